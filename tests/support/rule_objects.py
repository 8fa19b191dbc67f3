"""Objects of the rules as the reader gives them, for snapshots that tests make of records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kai_cp.reader.devices import read_allocation
from kai_cp.reader.notes import Notes
from kai_cp.reader.objects import lists_of, read_objects
from kai_cp_models.extras import Extras
from kai_cp_models.policy import Policy
from kai_cp_models.records.devices import ClaimAllocation
from kai_cp_models.snapshot import SetAside


def objects_of(raw: Mapping[str, Any], nodes: Iterable[str] = (), policy: Policy | None = None) -> Extras:
    """The records of raw lists, without those that cannot be read."""
    return read(raw, nodes, policy)[0]


def read(
    raw: Mapping[str, Any], nodes: Iterable[str] = (), policy: Policy | None = None, gone: Iterable[str] = ()
) -> tuple[Extras, tuple[SetAside, ...]]:
    """The records of raw lists, and what could not be read. ``gone``: UIDs of pods that are gone."""
    notes = Notes()
    lists, left = lists_of(raw, notes), set(gone)
    extras = read_objects(lists, frozenset(nodes), policy or Policy(), notes, lambda _, uid: uid in left)
    return extras, notes.set_aside()


def promised(**allocations: Mapping[str, Any]) -> dict[str, ClaimAllocation]:
    """What a BindRequest promises, by claim name inside the pod."""
    return {name: read_allocation(raw, name) for name, raw in allocations.items()}
