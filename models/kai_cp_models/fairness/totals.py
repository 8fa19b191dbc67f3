"""Totals: the queue tree as indices, and what every queue holds and asks for in a snapshot (3.1)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from kai_cp_models.arrays import Ints
from kai_cp_models.extras import CLAIM_MILLI_GPUS
from kai_cp_models.fairness.amounts import (
    Amounts,
    accepted,
    pessimistic,
    shared_memory_mib,
    smallest_gpu_mib,
    without_shared_memory,
)
from kai_cp_models.pods import ALLOCATED, MILLI, GpuKind, Pod, PodStatus
from kai_cp_models.snapshot import PodGroup, Queue, Shares, Snapshot

RESOURCES: Final = 3
SCALE: Final[Amounts] = (1, 1, MILLI)
"""Amount units per unit of ``Shares``: milli-CPUs and bytes are the same, a device is 1000."""

_NOISE: Final = 1e-6
"""Added before a float is cut to an integer: 0.29 devices are 290 milli_gpus and not 289."""


@dataclass(frozen=True)
class QueueTree:
    """The queues by index (their place in ``Snapshot.queues``); ``parents`` is -1 at the top."""

    queues: tuple[Queue, ...]
    index: dict[str, int]
    parents: tuple[int, ...]
    children: tuple[tuple[int, ...], ...]
    roots: tuple[int, ...]
    lines: tuple[tuple[int, ...], ...]
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
        lines = tuple(tuple(index[name] for name in snapshot.queue_path[queue.name]) for queue in queues)
        roots = tuple(i for i, parent in enumerate(parents) if parent < 0)
        return QueueTree(queues, index, parents, tuple(map(tuple, children)), roots, lines)


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
        """Totals of a snapshot over the pods of groups whose queue exists."""
        tree = QueueTree.of(snapshot)
        shape = (len(tree.queues), RESOURCES)
        allocated, non_preemptible, pending = (np.zeros(shape, dtype=np.int64) for _ in range(3))
        shared_mib = np.zeros(len(tree.queues), dtype=np.int64)
        for kind, count in _kinds(snapshot, tree):
            if not kind.placed:
                pending[kind.queue] += _times(without_shared_memory(snapshot, kind.pod), count)
                shared_mib[kind.queue] += shared_memory_mib(kind.pod) * count
                continue
            charge = _times(held(snapshot, kind.pod), count)
            allocated[kind.queue] += charge
            if kind.firm:
                non_preemptible[kind.queue] += charge
        for totals in (allocated, non_preemptible, pending):
            _propagate(totals, tree)
        _propagate(shared_mib, tree)
        # Memory shares are summed before they are rounded: three thirds of a GPU are one GPU.
        pending[:, 2] -= -MILLI * shared_mib // smallest_gpu_mib(snapshot)
        return QueueTotals(tree, allocated, non_preemptible, allocated + pending)


class _Kind(NamedTuple):
    """Pods with equal amounts; ``pod`` is one of them."""

    queue: int
    placed: bool
    firm: bool
    pod: Pod


def _kinds(snapshot: Snapshot, tree: QueueTree) -> Iterator[tuple[_Kind, int]]:
    """Placed and pending pods of existing queues, counted by what determines their amounts.

    There are few kinds: pods share their specs, and only GPU memory depends on the node.
    """
    claims = snapshot.extras[CLAIM_MILLI_GPUS]
    groups = snapshot.group_by_key
    by_memory = {id(spec) for spec in snapshot.specs if spec.gpu.kind is GpuKind.MEMORY}
    counts: dict[tuple[object, ...], int] = {}
    firsts: list[tuple[Pod, PodGroup]] = []
    # Groups of one form share the record of it, and equal pods that of their spec.
    pod_sets: dict[int, frozenset[str]] = {}
    for pod in snapshot.pods:
        group = None if pod.group is None else groups.get(pod.group)
        if group is None:
            continue
        placed = pod.status in ALLOCATED
        if not placed:
            if pod.status is not PodStatus.PENDING:
                continue
            names = pod_sets.get(id(group.root))
            if names is None:
                names = pod_sets[id(group.root)] = frozenset(leaf.name for leaf in group.root.leaves())
            # One of an unknown pod set is never placed, so it adds nothing to the demand (1.2).
            if (pod.subgroup or "default") not in names:
                continue
        spec = id(pod.spec)
        where = pod.node if placed and spec in by_memory else None
        claim = pod.key if claims and pod.key in claims else None
        kind = (group.queue, group.preemptible, placed, spec, where, claim)
        known = counts.get(kind)
        if known is None:
            known = 0
            firsts.append((pod, group))
        counts[kind] = known + 1
    for (pod, group), count in zip(firsts, counts.values(), strict=True):
        if group.queue in tree.index:
            yield _Kind(tree.index[group.queue], pod.status in ALLOCATED, not group.preemptible, pod), count


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


def _times(amounts: Amounts, count: int) -> Amounts:
    return amounts[0] * count, amounts[1] * count, amounts[2] * count


def _propagate(totals: Ints, tree: QueueTree) -> None:
    """Add every queue's own total to all its ancestors, in place."""
    own = totals.copy()
    for i, line in enumerate(tree.lines):
        totals[list(line[1:])] += own[i]
