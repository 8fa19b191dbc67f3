"""The queue book: what every queue holds during a cycle, beside what it may hold."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from kai_cp_models.fairness.amounts import Amounts
from kai_cp_models.fairness.share import cluster_total, divide
from kai_cp_models.fairness.totals import SCALE, Floats, Ints, QueueTotals, QueueTree, to_amounts, to_shares
from kai_cp_models.snapshot import UNLIMITED, Shares, Snapshot


@dataclass(frozen=True, slots=True)
class QueueBook:
    """Queue totals of a cycle. Arrays are [queues, 3] in the units of ``Amounts``.

    Only ``allocated`` and ``non_preemptible`` ever change, through ``charge``. "Unlimited" is -1.
    ``*_floor``: the bound in whole units, so that an allocation is within it if and only if it is
    at most the floor.
    """

    tree: QueueTree
    allocated: Ints
    non_preemptible: Ints
    quota: Ints
    limit: Ints
    fair_share: Floats
    fair_share_floor: Ints
    allocatable_share: Floats
    """Limit if the quota is unlimited, else the larger of quota and fair share, within the limit (3.1)."""
    allocatable_share_floor: Ints
    cluster: Amounts
    """What there is to divide."""

    @staticmethod
    def of(snapshot: Snapshot) -> QueueBook:
        """The book at the start of a cycle."""
        totals = QueueTotals.of(snapshot)
        cluster = cluster_total(snapshot)
        by_name = divide(snapshot, totals, cluster)
        queues = totals.tree.queues
        allocatable = [allocatable_share(q.quota, q.limit, by_name[q.name]) for q in queues]
        return QueueBook(
            tree=totals.tree,
            allocated=totals.allocated,
            non_preemptible=totals.non_preemptible,
            quota=_ints([queue.quota for queue in queues]),
            limit=_ints([queue.limit for queue in queues]),
            fair_share=_floats([by_name[queue.name] for queue in queues]),
            fair_share_floor=_ints([by_name[queue.name] for queue in queues]),
            allocatable_share=_floats(allocatable),
            allocatable_share_floor=_ints(allocatable),
            cluster=to_amounts(cluster),
        )

    def charge(self, queue: str, amounts: Amounts, preemptible: bool, sign: int = 1) -> None:
        """Add ``amounts`` to the queue and all its ancestors; ``sign`` -1 takes them back."""
        path = self.path(queue)
        row = np.array(amounts, dtype=np.int64) * sign
        self.allocated[path] += row
        if not preemptible:
            self.non_preemptible[path] += row

    def copy(self) -> QueueBook:
        """An independent book; what never changes is shared."""
        return replace(self, allocated=self.allocated.copy(), non_preemptible=self.non_preemptible.copy())

    def index(self, queue: str) -> int:
        """Row of a queue in every array."""
        return self.tree.index[queue]

    def name(self, index: int) -> str:
        """Queue of a row."""
        return self.tree.queues[index].name

    def path(self, queue: str) -> Ints:
        """Rows from the queue up to its root, itself first."""
        return self.tree.paths[self.tree.index[queue]]

    def allocated_of(self, queue: str) -> Amounts:
        """What a queue holds, everything below it included."""
        return row(self.allocated, self.index(queue))

    def fair_share_of(self, queue: str) -> Shares:
        """The queue's fair share as KAI writes it (GPUs in devices)."""
        cpu, memory, gpu = (self.fair_share[self.index(queue)] / SCALE).tolist()
        return Shares(cpu, memory, gpu)

    def allocated_shares(self, queue: str) -> Shares:
        """What a queue holds as KAI writes it (GPUs in devices)."""
        return to_shares(self.allocated_of(queue))


def row(array: Ints, index: int) -> Amounts:
    """One row of an integer array as plain integers."""
    cpu, memory, gpu = array[index].tolist()
    return cpu, memory, gpu


def allocatable_share(quota: Shares, limit: Shares, fair_share: Shares) -> Shares:
    """Up to where a queue may hold resources undisturbed (3.1); -1: without bound."""
    found = []
    for deserved, most, fair in zip(quota, limit, fair_share, strict=True):
        if deserved == UNLIMITED:
            found.append(float(most))
        else:
            share = max(deserved, fair)
            found.append(share if most == UNLIMITED else min(most, share))
    return Shares(*found)


def _ints(rows: list[Shares]) -> Ints:
    return np.array([to_amounts(shares) for shares in rows], dtype=np.int64).reshape(-1, 3)


def _floats(rows: list[Shares]) -> Floats:
    """Amount units, unlimited kept as -1."""
    values = np.array(rows, dtype=np.float64).reshape(-1, 3)
    return np.where(values == UNLIMITED, float(UNLIMITED), values * np.array(SCALE, dtype=np.float64))
