"""Volumes (2.7, 7.1 VolumeBinding): node affinity, late binding, CSI capacity, attach limits.

A bound claim ties its pod to the nodes of its volume. A claim that waits for its first consumer needs a
free volume that fits, or a provisioner that can make one on the node: the node is in the allowed topologies
and, where the driver publishes its capacities, enough is free. Capacity that the cycle has promised counts as
used. With ``--schedule-csi-storage``, nominations may use the volumes that go away with leaving pods.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kai_cp_models.records.storage import STORAGE
from kai_cp_models.rules.stateful.protocol import RuleState
from kai_cp_models.rules.stateful.storage.state import NAME as STATE_NAME
from kai_cp_models.rules.stateful.storage.state import StorageState
from kai_cp_models.settings import OptionalRules
from kai_cp_models.snapshot import SetAside, Snapshot

__all__ = ["NAME", "active", "open", "set_aside"]

NAME: Final = STATE_NAME


def active(snapshot: Snapshot, options: OptionalRules) -> bool:
    """Whether any pod uses a volume claim and there are claims."""
    return (
        snapshot.policy.plugin("predicates")
        and bool(snapshot.extras[STORAGE].claims)
        and any(spec.volume_claims for spec in snapshot.specs)
    )


def open(snapshot: Snapshot) -> RuleState:
    """The state at the start of the cycle: volumes, claims and capacities."""
    return StorageState(snapshot)


def set_aside(snapshot: Snapshot) -> Iterator[SetAside]:
    """Yield nothing: the reader names the objects that it cannot read."""
    yield from ()
