"""NodeResourceTopology objects (``topology.node.k8s.io``) as arrays: zones of every node, policies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kai_cp_models.arrays import Ints
from kai_cp_models.migs import MIG_PREFIX
from kai_cp_models.rules.stateful.quantity import quantity
from kai_cp_models.rules.stateful.raw import Malformed, Raw, collect, mapping, names, objects, word
from kai_cp_models.snapshot import MILLI, SetAside, Snapshot

SINGLE: Final = "single-numa-node"
RESTRICTED: Final = "restricted"
BEST_EFFORT: Final = "best-effort"
NONE: Final = "none"
MOST: Final = 2**60
"""Largest amount that is read."""
_OLD_POLICIES: Final = {"SingleNUMANode": SINGLE, "Restricted": RESTRICTED, "BestEffort": BEST_EFFORT}
"""First words of the deprecated ``topologyPolicies``; the rest says the scope."""


@dataclass(frozen=True)
class NumaTopology:
    """One usable NodeResourceTopology."""

    node: int
    policy: str
    by_container: bool
    """The Topology Manager aligns every container by itself."""
    zones: tuple[str, ...]
    allocatable: tuple[Mapping[str, int], ...]
    available: tuple[Mapping[str, int], ...]
    resources: Mapping[str, str]
    """Resource name as the object writes it, by dimension."""


@dataclass(frozen=True)
class Zones:
    """Zones of all nodes, padded to the largest number of zones. N nodes, Z zones, D dimensions."""

    names: Mapping[int, tuple[str, ...]]
    resources: Mapping[int, Mapping[str, str]]
    allocatable: Ints
    """[N, Z, D]"""
    available: Ints
    """[N, Z, D] as reported."""
    listed: NDArray[np.bool_]
    """[N, D] dimensions that some zone of the node lists."""
    exists: NDArray[np.bool_]
    """[N, Z]"""
    policy: NDArray[np.str_]
    """[N] policy; "" for nodes without a topology."""
    by_container: NDArray[np.bool_]
    """[N]"""

    def kinds(self) -> NDArray[np.int64]:
        """[N] a number for every node; equal for nodes that differ in what is in use alone."""
        arrays = (self.by_container, self.exists, self.listed, self.allocatable)
        found: dict[tuple[object, ...], int] = {}
        numbers = []
        for i, policy in enumerate(self.policy.tolist()):
            kind = (policy, *(array[i].tobytes() for array in arrays))
            numbers.append(found.setdefault(kind, len(found)))
        return np.array(numbers, dtype=np.int64)


def parse(snapshot: Snapshot, problems: list[SetAside]) -> Zones:
    """The zones of the snapshot's nodes; unusable objects go to ``problems``."""
    return _zones(snapshot, topologies(snapshot, problems))


def topologies(snapshot: Snapshot, problems: list[SetAside]) -> list[NumaTopology]:
    """The usable NodeResourceTopologies by name; the others go to ``problems``."""

    def read(item: Raw) -> NumaTopology:
        name = word(mapping(item, "metadata"), "name")
        if name not in snapshot.node_index:
            raise Malformed(f"node {name} does not exist")
        return _topology(item, snapshot.node_index[name])

    return collect(snapshot, "nodeResourceTopologies", "NodeResourceTopology", read, problems)


def _topology(item: Raw, node: int) -> NumaTopology:
    zones = [zone for zone in objects(item, "zones") if zone.get("type", "Node") == "Node"]
    if not zones:
        raise Malformed("it has no zones")
    policy, by_container = _policy(item)
    resources: dict[str, str] = {}
    for zone in zones:
        for entry in objects(zone, "resources"):
            name = word(entry, "name")
            resources.setdefault(dimension(name), name)
    return NumaTopology(
        node=node,
        policy=policy,
        by_container=by_container,
        zones=tuple(word(zone, "name") for zone in zones),
        allocatable=tuple(_amounts(zone, "allocatable") for zone in zones),
        available=tuple(_amounts(zone, "available") for zone in zones),
        resources=resources,
    )


def _policy(item: Raw) -> tuple[str, bool]:
    attributes = {word(a, "name", ""): word(a, "value", "") for a in objects(item, "attributes")}
    if attributes.get("topologyManagerPolicy"):
        return attributes["topologyManagerPolicy"], attributes.get("topologyManagerScope") == "container"
    for old in names(item, "topologyPolicies"):
        for start, policy in _OLD_POLICIES.items():
            if old.startswith(start):
                # Without a level in the name the kubelet's default scope applies.
                return policy, not old.endswith("PodLevel")
    return NONE, False


def _amounts(zone: Raw, field: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for entry in objects(zone, "resources"):
        name = dimension(word(entry, "name"))
        value = entry.get(field, entry.get("allocatable", "0"))
        amount = written(value if isinstance(value, str | int) else "", name)
        if abs(amount) > MOST:
            raise Malformed(f"{field} of {name}: {value!r} is too large")
        found[name] = found.get(name, 0) + amount
    return found


@lru_cache(maxsize=4096)
def written(value: str | int, name: str) -> int:
    """A quantity in the unit of a dimension; ValueError if it is none."""
    return int(quantity(value) * (MILLI if in_milli(name) else 1))


def dimension(resource: str) -> str:
    """The dimension that a resource name belongs to (2.1)."""
    return "gpu" if resource.endswith("gpu") else resource


def in_milli(name: str) -> bool:
    """Whether a dimension is counted in thousandths (2.1)."""
    if name in ("cpu", "gpu"):
        return True
    return ("/" in name and not name.startswith(MIG_PREFIX)) or name.startswith("hugepages-")


def is_device(name: str) -> bool:
    """Whether a dimension counts devices, which the kubelet aligns for pods of every QoS class."""
    return name == "gpu" or "/" in name


def _zones(snapshot: Snapshot, found: Iterable[NumaTopology]) -> Zones:
    usable = list(found)
    most = max((len(t.zones) for t in usable), default=0)
    n, d = len(snapshot.nodes), len(snapshot.dimensions)
    shape = (n, most, d)
    allocatable, available = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
    listed, exists = np.zeros((n, d), dtype=np.bool_), np.zeros((n, most), dtype=np.bool_)
    policies = [""] * n
    by_container = np.zeros(n, dtype=np.bool_)
    for t in usable:
        policies[t.node] = t.policy
        by_container[t.node] = t.by_container
        exists[t.node, : len(t.zones)] = True
        listed[t.node] = [name in t.resources for name in snapshot.dimensions]
        allocatable[t.node, : len(t.zones)] = _matrix(t.allocatable, snapshot.dimensions)
        available[t.node, : len(t.zones)] = _matrix(t.available, snapshot.dimensions)
    return Zones(
        names={t.node: t.zones for t in usable},
        resources={t.node: t.resources for t in usable},
        allocatable=allocatable,
        available=available,
        listed=listed,
        exists=exists,
        policy=np.array(policies, dtype=np.str_),
        by_container=by_container,
    )


def _matrix(zones: Sequence[Mapping[str, int]], dimensions: Sequence[str]) -> list[list[int]]:
    return [[zone.get(name, 0) for name in dimensions] for zone in zones]
