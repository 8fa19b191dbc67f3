"""Dynamic resource allocation (2.5): claims, device classes and the devices that slices publish."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kai_cp_models.records.devices import DEVICES
from kai_cp_models.rules.stateful.dra.catalog import catalog_of
from kai_cp_models.rules.stateful.dra.state import NAME as STATE_NAME
from kai_cp_models.rules.stateful.dra.state import DraState
from kai_cp_models.rules.stateful.protocol import RuleState
from kai_cp_models.settings import OptionalRules
from kai_cp_models.snapshot import SetAside, Snapshot

__all__ = ["NAME", "active", "open", "set_aside"]

NAME: Final = STATE_NAME


def active(snapshot: Snapshot, options: OptionalRules) -> bool:
    """Whether there are device classes or slices, or pods that use claims, and the plugin is on."""
    return snapshot.policy.plugin("dynamicresources") and (
        snapshot.extras[DEVICES] is not None or any(spec.claims for spec in snapshot.specs)
    )


def open(snapshot: Snapshot) -> RuleState:
    """Claims and devices with what is in use."""
    return DraState(snapshot)


def set_aside(snapshot: Snapshot) -> Iterator[SetAside]:
    """Classes, claims and taint rules that cannot be used."""
    yield from catalog_of(snapshot).problems
