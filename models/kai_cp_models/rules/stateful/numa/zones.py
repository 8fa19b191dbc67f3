"""NodeResourceTopology objects (``topology.node.k8s.io``) as arrays: zones of every node, policies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from kai_cp_models.arrays import Ints
from kai_cp_models.pods import MILLI
from kai_cp_models.quantity import exact
from kai_cp_models.records.zones import TOPOLOGIES, in_milli
from kai_cp_models.snapshot import Snapshot


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
        """[N] a number for every node; equal for nodes that differ only in the amounts in use."""
        arrays = (self.by_container, self.exists, self.listed, self.allocatable)
        found: dict[tuple[object, ...], int] = {}
        numbers = []
        for i, policy in enumerate(self.policy.tolist()):
            kind = (policy, *(array[i].tobytes() for array in arrays))
            numbers.append(found.setdefault(kind, len(found)))
        return np.array(numbers, dtype=np.int64)


@lru_cache(maxsize=4096)
def written(value: str | int, name: str) -> int:
    """A quantity in the unit of a dimension. Raises ``ValueError`` for other text."""
    return int(exact(str(value)) * (MILLI if in_milli(name) else 1))


def is_device(name: str) -> bool:
    """Whether a dimension counts devices, which the kubelet aligns for pods of every QoS class."""
    return name == "gpu" or "/" in name


def zones_of(snapshot: Snapshot) -> Zones:
    """The zones of the snapshot's nodes."""
    usable = snapshot.extras[TOPOLOGIES]
    where = snapshot.node_index
    most = max((len(t.zones) for t in usable), default=0)
    n, d = len(snapshot.nodes), len(snapshot.dimensions)
    shape = (n, most, d)
    allocatable, available = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
    listed, exists = np.zeros((n, d), dtype=np.bool_), np.zeros((n, most), dtype=np.bool_)
    policies = [""] * n
    by_container = np.zeros(n, dtype=np.bool_)
    for t in usable:
        i = where[t.node]
        policies[i] = t.policy
        by_container[i] = t.by_container
        exists[i, : len(t.zones)] = True
        listed[i] = [name in t.resources for name in snapshot.dimensions]
        allocatable[i, : len(t.zones)] = _matrix(t.allocatable, snapshot.dimensions)
        available[i, : len(t.zones)] = _matrix(t.available, snapshot.dimensions)
    return Zones(
        names={where[t.node]: t.zones for t in usable},
        resources={where[t.node]: t.resources for t in usable},
        allocatable=allocatable,
        available=available,
        listed=listed,
        exists=exists,
        policy=np.array(policies, dtype=np.str_),
        by_container=by_container,
    )


def _matrix(zones: Sequence[Mapping[str, int]], dimensions: Sequence[str]) -> list[list[int]]:
    return [[zone.get(name, 0) for name in dimensions] for zone in zones]
