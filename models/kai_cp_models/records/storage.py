"""Volumes, volume claims, storage classes and capacities as records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from kai_cp_models.extras import Key
from kai_cp_models.pods import LabelSelector, NodeTerms, PodKey
from kai_cp_models.selectors import selects

STATIC_ONLY: Final = "kubernetes.io/no-provisioner"
_FOR_MANY: Final = frozenset(("ReadWriteMany", "ReadOnlyMany"))


@dataclass(frozen=True, slots=True)
class Volume:
    """A PersistentVolume. ``claim``: the claim it is bound to or reserved for, with its UID if known."""

    name: str
    storage_class: str
    bytes: int
    modes: frozenset[str]
    block: bool
    labels: Mapping[str, str]
    affinity: NodeTerms | None
    claim: PodKey | None
    driver: str
    handle: str
    usable: bool
    """Available or bound, and not being deleted."""
    claim_uid: str | None = None


@dataclass(frozen=True, slots=True)
class VolumeClaim:
    """A PersistentVolumeClaim. ``volume``: once it is bound; ``selected_node``: where its volume is made."""

    key: PodKey
    volume: str | None
    storage_class: str
    bytes: int
    modes: frozenset[str]
    block: bool
    selector: LabelSelector | None
    selected_node: str | None
    owner_uid: str | None
    """UID of the pod with which it is deleted; None: it stays."""

    @property
    def for_many(self) -> bool:
        """Whether pods on several nodes may use the volume at the same time."""
        return not self.modes.isdisjoint(_FOR_MANY)

    def fits(self, volume: Volume) -> bool:
        """Whether class, size, modes and labels of the volume are what the claim asks for."""
        return (
            volume.storage_class == self.storage_class
            and volume.bytes >= self.bytes
            and volume.modes >= self.modes
            and volume.block == self.block
            and (self.selector is None or selects(self.selector, volume.labels))
        )


@dataclass(frozen=True, slots=True)
class StorageClass:
    """A StorageClass. ``topologies``: alternatives of node label values; empty: everywhere."""

    name: str
    provisioner: str
    waits: bool
    topologies: tuple[tuple[tuple[str, tuple[str, ...]], ...], ...]


@dataclass(frozen=True, slots=True)
class StorageCapacity:
    """A CSIStorageCapacity: capacity for volumes of a class on the nodes that it selects."""

    name: str
    storage_class: str
    nodes: LabelSelector | None
    bytes: int
    largest: int
    """Largest single volume that the driver promises; without one the capacity is the limit."""


@dataclass(frozen=True)
class StorageObjects:
    """All storage objects of a snapshot that can be read."""

    volumes: Mapping[str, Volume] = field(default_factory=dict)
    claims: Mapping[PodKey, VolumeClaim] = field(default_factory=dict)
    classes: Mapping[str, StorageClass] = field(default_factory=dict)
    capacities: tuple[StorageCapacity, ...] = ()
    tracked: frozenset[str] = frozenset()
    """CSI drivers that publish capacities."""
    limits: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Most volumes of a driver on a node, by driver and node name."""
    away: frozenset[PodKey] = frozenset()
    """Claims that pods on nodes outside the snapshot use, such as those of another node pool."""


def different(options: Sequence[Sequence[str]]) -> Sequence[str] | None:
    """One of each of the options, no two of them alike; None: that cannot be. Each is the first that is left,
    unless a later one then finds none."""
    found: list[str] = []

    def gives(i: int, tried: set[str]) -> bool:
        """Whether the i-th gets another one, or lets those move that have what it asks for."""
        new = [one for one in options[i] if one not in tried]
        tried.update(new)
        for name in sorted(new, key=lambda one: one in found):
            if name not in found or gives(found.index(name), tried):
                found[i] = name
                return True
        return False

    for i in range(len(options)):
        found.append("")
        if not gives(i, set()):
            return None
    return found


STORAGE: Final[Key[StorageObjects]] = Key("storage", StorageObjects())
"""The storage objects of a snapshot, for the rule and its check."""

VOLUME_CLAIMS: Final[Key[Mapping[tuple[str, str], bool]]] = Key("volume_claims", {})
"""Namespace and name of every PersistentVolumeClaim, and whether it is being deleted."""
