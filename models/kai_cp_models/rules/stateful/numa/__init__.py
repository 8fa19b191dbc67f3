"""NUMA alignment (6, 7; opt-in plugin ``numa``): policies of the Topology Manager per node.

``single-numa-node`` and ``restricted`` refuse nodes for Guaranteed pods and pods that ask for devices;
all policies but ``none`` are scored by the number of zones that the pod would span. All resources
that the zones list and ``ignoreList`` does not name are aligned. With ``reconstructAvailable`` a zone has its
allocatable amount less the known use of its pods; otherwise the reported availability counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kai_cp_models.records.zones import TOPOLOGIES
from kai_cp_models.rules.stateful.numa.state import NAME as STATE_NAME
from kai_cp_models.rules.stateful.numa.state import NumaState
from kai_cp_models.rules.stateful.protocol import RuleState
from kai_cp_models.settings import OptionalRules
from kai_cp_models.snapshot import SetAside, Snapshot

__all__ = ["NAME", "active", "open", "set_aside"]

NAME: Final = STATE_NAME


def active(snapshot: Snapshot, options: OptionalRules) -> bool:
    """Whether the plugin is on and there are NodeResourceTopologies."""
    return snapshot.policy.plugin("numa") and bool(snapshot.extras[TOPOLOGIES])


def open(snapshot: Snapshot) -> RuleState:
    """The zones and the amounts in use there."""
    return NumaState(snapshot)


def set_aside(snapshot: Snapshot) -> Iterator[SetAside]:
    """Nothing: the reader reports unreadable objects."""
    yield from ()
