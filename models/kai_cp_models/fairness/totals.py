"""Totals: the queue tree as indices, and what every queue holds and asks for in a snapshot (3.1)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np

from kai_cp_models.arrays import Ints, Mask
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
from kai_cp_models.snapshot import Queue, Shares, Snapshot

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
    leaves: dict[str, int]
    """Those of the queues without children."""

    @cached_property
    def leaf_rows(self) -> Ints:
        """[leaves] the same, those below one queue side by side."""
        return np.array(sorted(self.leaves.values(), key=lambda i: self.lines[i][::-1]), dtype=np.int64)

    @cached_property
    def spans(self) -> Mapping[int, slice]:
        """Which of ``leaf_rows`` are below each queue (-1: all)."""
        ends = dict[int, list[int]]()
        for at, leaf in enumerate(self.leaf_rows.tolist()):
            for i in (*self.lines[leaf], -1):
                ends.setdefault(i, [at, at])[1] = at + 1
        return {i: slice(*end) for i, end in ends.items()}

    @cached_property
    def levels(self) -> Mapping[int, Ints]:
        """Below each queue (-1: at the top), its child above each leaf, in the order of ``leaf_rows``."""
        found = dict[int, Ints]()
        for parent, children in ((-1, self.roots), *enumerate(self.children)):
            spans = sorted((self.spans[i].start, i) for i in children)
            each = [np.full(self.spans[i].stop - start, i) for start, i in spans]
            found[parent] = np.concatenate((np.zeros(0, np.int64), *each))
        return found

    @staticmethod
    def of(snapshot: Snapshot) -> QueueTree:
        """The tree of a snapshot."""
        queues = snapshot.queues
        index = snapshot.queue_index
        parents = tuple(-1 if queue.parent is None else index[queue.parent] for queue in queues)
        children: list[list[int]] = [[] for _ in queues]
        for i, parent in enumerate(parents):
            if parent >= 0:
                children[parent].append(i)
        lines = tuple(tuple(index[name] for name in snapshot.queue_path[queue.name]) for queue in queues)
        roots = tuple(i for i, parent in enumerate(parents) if parent < 0)
        leaves = {name: i for name, i in index.items() if not children[i]}
        return QueueTree(queues, index, parents, tuple(map(tuple, children)), roots, lines, leaves)


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
    columns, claims = snapshot.columns, snapshot.extras[CLAIM_MILLI_GPUS]
    placed = columns.having(ALLOCATED)
    rows = np.flatnonzero((columns.group >= 0) & (placed | _asks(snapshot)))
    groups, placed = columns.group[rows], placed[rows]
    queues, firm = columns.queue[groups], ~columns.preemptible[groups]
    by_memory = placed & columns.of_spec(lambda spec: spec.gpu.kind is GpuKind.MEMORY)[rows]
    where = np.where(by_memory, columns.node[rows] + 1, 0)
    kinds = (queues * 2 + firm) * 2 + placed
    kinds = (kinds * len(columns.specs) + columns.spec[rows]) * (len(snapshot.nodes) + 1) + where
    if claims:
        # Pods with claims of their own have no equals.
        own = [i for i, row in enumerate(rows.tolist()) if snapshot.pods[row].key in claims]
        kinds[own] = -1 - np.array(own, dtype=np.int64)
    _, first, counts = np.unique(kinds, return_index=True, return_counts=True)
    for at, count in zip(first.tolist(), counts.tolist(), strict=True):
        if queues[at] >= 0:
            pod = snapshot.pods[rows[at]]
            yield _Kind(int(queues[at]), bool(placed[at]), bool(firm[at]), pod), count


def _asks(snapshot: Snapshot) -> Mask:
    """[P] Pending pods of pod groups; one of an unknown pod set is never placed, so it adds nothing (1.2)."""
    columns = snapshot.columns
    found = (columns.group >= 0) & columns.having((PodStatus.PENDING,))
    # Groups of one form share the record of it.
    pod_sets: dict[int, frozenset[str]] = {}
    for row, at in zip(np.flatnonzero(found).tolist(), columns.group[found].tolist(), strict=True):
        root = snapshot.groups[at].root
        names = pod_sets.get(id(root))
        if names is None:
            names = pod_sets[id(root)] = frozenset(leaf.name for leaf in root.leaves())
        if (snapshot.pods[row].subgroup or "default") not in names:
            found[row] = False
    return found


def held(snapshot: Snapshot, pod: Pod) -> Amounts:
    """What a placed pod is charged where it is."""
    if pod.node is None or pod.node not in snapshot.node_index:
        return pessimistic(snapshot, pod)
    return accepted(snapshot, pod, snapshot.nodes[snapshot.node_index[pod.node]])


def terminating(snapshot: Snapshot, status: PodStatus) -> Iterator[tuple[str, bool, Amounts]]:
    """Queue, whether it is preemptible, and charge of every pod of the status that holds a place."""
    columns, groups = snapshot.columns, snapshot.groups
    there = columns.having((status,)) & (columns.group >= 0) & (columns.node >= 0)
    for row in np.flatnonzero(there).tolist():
        group = groups[columns.group[row]]
        if group.queue in snapshot.queue_index:
            yield group.queue, group.preemptible, held(snapshot, snapshot.pods[row])


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
