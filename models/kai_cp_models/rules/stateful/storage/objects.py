"""Volumes, volume claims, storage classes and capacities as records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from kai_cp_models.rules.stateful.quantity import quantity
from kai_cp_models.rules.stateful.raw import (
    Malformed,
    Raw,
    collect_named,
    flag,
    mapping,
    names,
    objects,
    selector,
    strings,
    whole,
    word,
)
from kai_cp_models.snapshot import PodKey, SetAside, Snapshot

WAIT: Final = "WaitForFirstConsumer"
STATIC_ONLY: Final = "kubernetes.io/no-provisioner"
SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
MOST: Final = 2**60
"""Largest number of bytes that is told apart."""
BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"


@dataclass(frozen=True, slots=True)
class Volume:
    """A PersistentVolume. ``claim``: the claim it is bound to or reserved for."""

    name: str
    storage_class: str
    bytes: int
    modes: frozenset[str]
    block: bool
    labels: Mapping[str, str]
    affinity: Raw | None
    claim: PodKey | None
    driver: str
    handle: str
    usable: bool
    """Available or bound, and not being deleted."""


@dataclass(frozen=True, slots=True)
class VolumeClaim:
    """A PersistentVolumeClaim. ``volume``: its volume once bound; "" before."""

    key: PodKey
    volume: str
    storage_class: str
    bytes: int
    modes: frozenset[str]
    block: bool
    selector: Raw | None
    selected_node: str
    owner_uid: str
    """UID of the pod that it goes away with; "" when it stays."""


@dataclass(frozen=True, slots=True)
class StorageClass:
    """A StorageClass. ``topologies``: alternatives of node label values; empty: everywhere."""

    name: str
    provisioner: str
    waits: bool
    topologies: tuple[tuple[tuple[str, tuple[str, ...]], ...], ...]


@dataclass(frozen=True, slots=True)
class StorageCapacity:
    """A CSIStorageCapacity: room for volumes of a class on the nodes it selects."""

    name: str
    storage_class: str
    nodes: Raw | None
    bytes: int
    largest: int
    """Largest single volume that the driver promises; without one the capacity is the limit."""


@dataclass(frozen=True)
class Objects:
    """All storage objects of a snapshot that can be read."""

    volumes: Mapping[str, Volume]
    claims: Mapping[PodKey, VolumeClaim]
    classes: Mapping[str, StorageClass]
    capacities: tuple[StorageCapacity, ...]
    tracked: frozenset[str]
    """CSI drivers that publish capacities."""
    limits: Mapping[str, Mapping[str, int]]
    """Most volumes of a driver on a node, by driver and node name."""


def read(snapshot: Snapshot, problems: list[SetAside]) -> Objects:
    """Parse the storage lists; what cannot be read goes to ``problems``."""
    volumes = collect_named(snapshot, "persistentVolumes", "PersistentVolume", _volume, problems)
    claims = collect_named(snapshot, "persistentVolumeClaims", "PersistentVolumeClaim", _claim, problems)
    classes = collect_named(snapshot, "storageClasses", "StorageClass", _class, problems)
    capacities = collect_named(snapshot, "csiStorageCapacities", "CSIStorageCapacity", _capacity, problems)
    drivers = collect_named(snapshot, "csiDrivers", "CSIDriver", _tracks, problems)
    limits: dict[str, dict[str, int]] = {}
    for (_, node), found in collect_named(snapshot, "csiNodes", "CSINode", _limits, problems):
        for driver, most in found.items():
            limits.setdefault(driver, {})[node] = most
    return Objects(
        volumes={key[1]: volume for key, volume in volumes},
        claims={claim.key: claim for _, claim in claims},
        classes={key[1]: found for key, found in classes},
        capacities=tuple(capacity for _, capacity in capacities),
        tracked=frozenset(key[1] for key, tracks in drivers if tracks),
        limits=limits,
    )


def _volume(item: Raw) -> Volume:
    meta, spec = mapping(item, "metadata"), mapping(item, "spec")
    csi, claim = mapping(spec, "csi"), mapping(spec, "claimRef")
    phase = word(mapping(item, "status"), "phase", "Available")
    return Volume(
        name=word(meta, "name"),
        storage_class=word(spec, "storageClassName", ""),
        bytes=_bytes(mapping(spec, "capacity"), "storage"),
        modes=frozenset(names(spec, "accessModes")),
        block=spec.get("volumeMode") == "Block",
        labels=strings(meta, "labels"),
        affinity=selector(mapping(spec, "nodeAffinity"), "required"),
        claim=PodKey(word(claim, "namespace", ""), word(claim, "name")) if claim else None,
        driver=word(csi, "driver", ""),
        handle=word(csi, "volumeHandle", "") or word(meta, "name"),
        usable=phase in ("Available", "Bound", "Pending") and not meta.get("deletionTimestamp"),
    )


def _claim(item: Raw) -> VolumeClaim:
    meta, spec = mapping(item, "metadata"), mapping(item, "spec")
    notes = strings(meta, "annotations")
    volume = word(spec, "volumeName", "")
    bound = BIND_COMPLETED in notes or word(mapping(item, "status"), "phase", "") == "Bound"
    owners = [owner for owner in objects(meta, "ownerReferences") if owner.get("kind") == "Pod"]
    return VolumeClaim(
        key=PodKey(word(meta, "namespace", ""), word(meta, "name")),
        volume=volume if bound else "",
        storage_class=word(spec, "storageClassName", ""),
        bytes=_bytes(mapping(mapping(spec, "resources"), "requests"), "storage"),
        modes=frozenset(names(spec, "accessModes")),
        block=spec.get("volumeMode") == "Block",
        selector=selector(spec, "selector"),
        selected_node=notes.get(SELECTED_NODE, ""),
        owner_uid=word(owners[0], "uid", "") if owners else "",
    )


def _class(item: Raw) -> StorageClass:
    return StorageClass(
        name=word(mapping(item, "metadata"), "name"),
        provisioner=word(item, "provisioner", STATIC_ONLY),
        waits=word(item, "volumeBindingMode", "Immediate") == WAIT,
        topologies=tuple(
            tuple(
                (word(need, "key"), names(need, "values")) for need in objects(term, "matchLabelExpressions")
            )
            for term in objects(item, "allowedTopologies")
        ),
    )


def _capacity(item: Raw) -> StorageCapacity:
    return StorageCapacity(
        name=word(mapping(item, "metadata"), "name"),
        storage_class=word(item, "storageClassName"),
        nodes=selector(item, "nodeTopology"),
        bytes=_bytes(item, "capacity"),
        largest=_bytes(item, "maximumVolumeSize") if item.get("maximumVolumeSize") is not None else MOST,
    )


def _tracks(item: Raw) -> bool:
    return flag(mapping(item, "spec"), "storageCapacity")


def _limits(item: Raw) -> dict[str, int]:
    found = {}
    for driver in objects(mapping(item, "spec"), "drivers"):
        most = whole(mapping(driver, "allocatable"), "count", -1)
        if most >= 0:
            found[word(driver, "name")] = most
    return found


def _bytes(raw: Raw, field: str) -> int:
    value = raw.get(field)
    if value is None:
        return 0
    try:
        found = quantity(value if isinstance(value, str | int) else "")
    except ValueError as error:
        raise Malformed(f"{field}: {error}") from None
    return min(int(-(-found // Fraction(1))), MOST)
