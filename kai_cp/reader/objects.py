"""Objects that rules need records of: every kind is read once, and unreadable objects are reported.

A rule with objects of its own has its parser in a module here, and one line in :func:`read_objects`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Final, TypeVar

from kai_cp.json_types import Json
from kai_cp.reader.budgets import read_budget
from kai_cp.reader.devices import (
    HasGone,
    claim_reader,
    incomplete,
    newest,
    read_device_class,
    read_pool,
    read_slice,
    read_taint_rule,
)
from kai_cp.reader.fields import Malformed
from kai_cp.reader.listed import NOTHING_LISTED, ListedObjects, ListMemo, raw_list, unique
from kai_cp.reader.notes import Identity, Notes, title
from kai_cp.reader.storage import (
    is_deleted,
    read_capacity,
    read_limits,
    read_storage_class,
    read_volume,
    read_volume_claim,
    tracks_capacity,
)
from kai_cp.reader.zones import read_topology
from kai_cp_models.extras import Extras
from kai_cp_models.pods import PodKey
from kai_cp_models.policy import Policy
from kai_cp_models.records.budgets import BUDGETS
from kai_cp_models.records.devices import DEVICES, Counter, Device, DeviceId, DeviceObjects
from kai_cp_models.records.storage import STORAGE, VOLUME_CLAIMS, StorageObjects
from kai_cp_models.records.zones import TOPOLOGIES, NumaTopology

T = TypeVar("T")
Lists = Mapping[str, ListedObjects]
"""Objects by list and identity."""

KINDS: Final = {
    "resourceClaims": "ResourceClaim",
    "resourceSlices": "ResourceSlice",
    "deviceClasses": "DeviceClass",
    "deviceTaintRules": "DeviceTaintRule",
    "persistentVolumes": "PersistentVolume",
    "persistentVolumeClaims": "PersistentVolumeClaim",
    "csiStorageCapacities": "CSIStorageCapacity",
    "storageClasses": "StorageClass",
    "csiDrivers": "CSIDriver",
    "csiNodes": "CSINode",
    "nodeResourceTopologies": "NodeResourceTopology",
    "podDisruptionBudgets": "PodDisruptionBudget",
    "namespaces": "Namespace",
}
"""Kinds by list of ``rawObjects``."""
_NAMESPACED: Final = frozenset(
    ("ResourceClaim", "PersistentVolumeClaim", "CSIStorageCapacity", "PodDisruptionBudget")
)


def lists_of(
    objects: Json, notes: Notes, memos: dict[str, ListMemo] | None = None
) -> dict[str, ListedObjects]:
    """The lists of ``KINDS`` with objects, sorted by identity. ``memos``: of the last reading, by list."""
    found: dict[str, ListedObjects] = {}
    for name, kind in KINDS.items():
        values = raw_list(objects, name, notes)
        memo = None if memos is None else memos.setdefault(name, ListMemo())
        kept = unique(values, kind, name, notes, namespaced=kind in _NAMESPACED, memo=memo)
        if kept:
            found[name] = kept.sorted()
    return found


def read_objects(
    lists: Lists,
    nodes: Set[str],
    policy: Policy,
    notes: Notes,
    has_gone: HasGone,
    *,
    away: Iterable[PodKey] = (),
) -> Extras:
    """The records for the rules. ``nodes``: names of existing nodes; ``away``: volume claims that pods
    elsewhere use."""
    read = _Reading(lists, notes)
    found = Extras()
    if any(name in lists for name in ("deviceClasses", "resourceSlices", "resourceClaims")):
        found = found.having(DEVICES, _devices(read, nodes, policy, has_gone))
    if "podDisruptionBudgets" in lists:
        found = found.having(BUDGETS, tuple(read.each("podDisruptionBudgets", read_budget).values()))
    if "nodeResourceTopologies" in lists and policy.plugin("numa"):

        def zones(obj: Json, identity: Identity) -> NumaTopology:
            if identity[1] not in nodes:
                raise Malformed("metadata.name", f"node {identity[1]} does not exist")
            return read_topology(obj, identity[1])

        found = found.having(TOPOLOGIES, tuple(read.each("nodeResourceTopologies", zones).values()))
    if "persistentVolumeClaims" in lists:
        storage, deleted = _storage(read, away), read.each("persistentVolumeClaims", is_deleted)
        # A pod does not start on a claim about which nothing is known.
        known = {key: gone for key, gone in deleted.items() if PodKey(*key) in storage.claims}
        found = found.having(STORAGE, storage).having(VOLUME_CLAIMS, known)
    return found


@dataclass(frozen=True, slots=True)
class _Reading:
    lists: Lists
    notes: Notes

    def each(
        self, name: str, read: Callable[[Json, Identity], T], which: Iterable[Identity] | None = None
    ) -> dict[Identity, T]:
        """The records of a list's objects, or of ``which`` of them, by identity."""
        objects, found = self.lists.get(name, NOTHING_LISTED), {}
        for identity in objects if which is None else which:
            try:
                found[identity] = read(objects[identity], identity)
            except Malformed as problem:
                self.notes.aside(title(KINDS[name], identity), problem)
        return found

    def named(self, name: str, read: Callable[[Json, Identity], T]) -> dict[str, T]:
        """The parsed objects of a list without namespaces, by name."""
        return {key[1]: row for key, row in self.each(name, read).items()}


def _devices(read: _Reading, nodes: Set[str], policy: Policy, has_gone: HasGone) -> DeviceObjects:
    parts = read.each("resourceSlices", read_pool)
    slices, left_out = newest(parts), incomplete(parts)
    pools = {parts[at].pool: left_out[at] for at in reversed(slices) if at in left_out}
    for pool, reason in sorted(pools.items()):
        read.notes.aside(f"ResourcePool {pool[0]}/{pool[1]}", reason)
    devices: dict[DeviceId, Device] = {}
    counters: dict[Counter, Fraction] = {}
    parse, used = partial(read_slice, nodes=nodes), (at for at in slices if at not in left_out)
    for at, (drawn, found) in read.each("resourceSlices", parse, used).items():
        own = {device.id: device for device in found}
        if len(own) < len(found) or not devices.keys().isdisjoint(own):
            twice = "its pool has a device of that name already; none of its devices is used"
            read.notes.aside(title(KINDS["resourceSlices"], at), f"spec.devices: {twice}")
            continue
        counters = drawn | counters
        devices |= own
    return DeviceObjects(
        devices=tuple(devices.values()),
        counters=counters,
        classes=read.named("deviceClasses", read_device_class),
        taint_rules=tuple(read.each("deviceTaintRules", read_taint_rule).values()),
        claims=read.each("resourceClaims", claim_reader(policy.queue_label, has_gone)),
    )


def _storage(read: _Reading, away: Iterable[PodKey]) -> StorageObjects:
    limits: dict[str, dict[str, int]] = {}
    for node, most in read.named("csiNodes", read_limits).items():
        for driver, count in most.items():
            limits.setdefault(driver, {})[node] = count
    claims = read.each("persistentVolumeClaims", read_volume_claim)
    tracked = read.named("csiDrivers", tracks_capacity)
    return StorageObjects(
        volumes=read.named("persistentVolumes", read_volume),
        claims={claim.key: claim for claim in claims.values()},
        classes=read.named("storageClasses", read_storage_class),
        capacities=tuple(read.each("csiStorageCapacities", read_capacity).values()),
        tracked=frozenset(name for name, tracks in tracked.items() if tracks),
        limits=limits,
        away=frozenset(away),
    )
