"""Totals: the queue tree as indices, and what every queue holds and asks for in a snapshot (3.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kai_cp_models.fairness.amounts import Amounts, accepted, pessimistic, smallest_gpu_mib
from kai_cp_models.snapshot import (
    ALLOCATED,
    MILLI,
    GpuKind,
    GroupKey,
    Pod,
    PodGroup,
    PodStatus,
    Queue,
    Shares,
    Snapshot,
)

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

RESOURCES: Final = 3
SCALE: Final[Amounts] = (1, 1, MILLI)
"""Amount units per unit of ``Shares``: milli-CPUs and bytes are the same, a device is 1000."""

_NOISE: Final = 1e-6
"""Slack when a float is cut to an integer: 0.29 devices are 290 milli_gpus, not 289."""


@dataclass(frozen=True)
class QueueTree:
    """The queues by index (their place in ``Snapshot.queues``); ``parents`` is -1 at the top."""

    queues: tuple[Queue, ...]
    index: dict[str, int]
    parents: tuple[int, ...]
    children: tuple[tuple[int, ...], ...]
    roots: tuple[int, ...]
    paths: tuple[Ints, ...]
    """Indices from each queue up to its root, itself first."""

    @staticmethod
    def of(snapshot: Snapshot) -> QueueTree:
        """The tree of a snapshot."""
        queues = snapshot.queues
        index = {queue.name: i for i, queue in enumerate(queues)}
        parents = tuple(-1 if queue.parent is None else index[queue.parent] for queue in queues)
        children: list[list[int]] = [[] for _ in queues]
        for i, parent in enumerate(parents):
            if parent >= 0:
                children[parent].append(i)
        paths = tuple(
            np.array([index[name] for name in snapshot.queue_path[queue.name]], dtype=np.int64)
            for queue in queues
        )
        roots = tuple(i for i, parent in enumerate(parents) if parent < 0)
        return QueueTree(queues, index, parents, tuple(map(tuple, children)), roots, paths)


@dataclass(frozen=True)
class QueueTotals:
    """[queues, 3] amounts with everything below a queue included."""

    tree: QueueTree
    allocated: Ints
    non_preemptible: Ints
    requested: Ints
    """Allocated plus what Pending pods ask for (3.1)."""

    @staticmethod
    def of(snapshot: Snapshot) -> QueueTotals:
        """Totals of a snapshot: pods of groups whose queue exists."""
        tree = QueueTree.of(snapshot)
        shape = (len(tree.queues), RESOURCES)
        allocated, non_preemptible, pending = (np.zeros(shape, dtype=np.int64) for _ in range(3))
        shared_mib = np.zeros(len(tree.queues), dtype=np.int64)
        leaves: dict[GroupKey, frozenset[str]] = {}
        for pod in snapshot.pods:
            group = snapshot.group_by_key.get(pod.group) if pod.group is not None else None
            if group is None or group.queue not in tree.index:
                continue
            i = tree.index[group.queue]
            if pod.status in ALLOCATED:
                charge = held(snapshot, pod)
                allocated[i] += charge
                if not group.preemptible:
                    non_preemptible[i] += charge
            elif pod.status is PodStatus.PENDING and _belongs(pod, group, leaves):
                if pod.spec.gpu.kind is GpuKind.MEMORY:
                    shared_mib[i] += pod.spec.gpu.devices * pod.spec.gpu.memory_mib
                    charge = pessimistic(snapshot, pod)
                    pending[i] += (charge[0], charge[1], 0)
                else:
                    pending[i] += pessimistic(snapshot, pod)
        for totals in (allocated, non_preemptible, pending):
            _propagate(totals, tree)
        _propagate(shared_mib, tree)
        # Memory shares are summed before they are rounded: three thirds of a GPU are one GPU.
        pending[:, 2] -= -MILLI * shared_mib // smallest_gpu_mib(snapshot)
        return QueueTotals(tree, allocated, non_preemptible, allocated + pending)


def held(snapshot: Snapshot, pod: Pod) -> Amounts:
    """What a placed pod is charged where it is."""
    if pod.node is None or pod.node not in snapshot.node_index:
        return pessimistic(snapshot, pod)
    return accepted(snapshot, pod, snapshot.nodes[snapshot.node_index[pod.node]])


def to_amounts(shares: Shares) -> Amounts:
    """Shares in whole amount units, cut; -1 stays "unlimited", other negatives stay below zero."""
    return tuple(_cut(value, scale) for value, scale in zip(shares, SCALE, strict=True))  # type: ignore[return-value]


def to_shares(amounts: Amounts) -> Shares:
    """Amounts as KAI's floats (devices instead of milli_gpus)."""
    return Shares(float(amounts[0]), float(amounts[1]), amounts[2] / MILLI)


def _cut(value: float, scale: int) -> int:
    if value == -1:
        return -1
    units = int((value * scale + _NOISE) // 1)
    return units if units >= 0 else min(units, -2)


def _belongs(pod: Pod, group: PodGroup, leaves: dict[GroupKey, frozenset[str]]) -> bool:
    """Whether the pod names a pod set of its group; others are never placed and ask for nothing (1.2)."""
    names = leaves.get(group.key)
    if names is None:
        names = leaves[group.key] = frozenset(leaf.name for leaf in group.root.leaves())
    return (pod.subgroup or "default") in names


def _propagate(totals: Ints, tree: QueueTree) -> None:
    """Add every queue's own total to all its ancestors, in place."""
    own = totals.copy()
    for i, path in enumerate(tree.paths):
        totals[path[1:]] += own[i]
