"""The queue book: what every queue holds during a cycle, and what it may hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from kai_cp_models.arrays import Floats, Ints
from kai_cp_models.fairness.amounts import NOTHING, UNBOUNDED, Amounts, add, subtract, total
from kai_cp_models.fairness.share import cluster_total, divide
from kai_cp_models.fairness.steps import QueueSteps
from kai_cp_models.fairness.totals import SCALE, QueueTotals, QueueTree, terminating, to_amounts, to_shares
from kai_cp_models.pods import UNLIMITED, PodStatus
from kai_cp_models.snapshot import Shares, Snapshot

Rows = list[Amounts]
"""Amounts of every queue as plain numbers."""


@dataclass(slots=True)
class QueueBook:
    """Queue totals of a cycle, by position in the tree, in the units of ``Amounts``; "unlimited" is -1.

    Only ``held``, ``firm``, ``unsettled`` and ``entered`` ever change. ``held``: what a queue and all queues
    below it hold. ``firm``: the part of that which is not preemptible. ``*_floor``: the bound in whole units,
    so that an allocation is within it if and only if it is at most the floor.
    """

    tree: QueueTree
    held: Rows
    firm: Rows
    quota: Rows
    firm_quota: Rows
    """The quota as the bound of ``firm``."""
    limit: Rows
    shares: Mapping[str, Shares]
    """The fair share of every queue by name."""
    fair_share: Floats
    fair_share_floor: Rows
    allocatable_share: Floats
    """Limit if the quota is unlimited, else the larger of quota and fair share, within the limit (3.1)."""
    allocatable_share_floor: Rows
    cluster: Amounts
    """The cluster's resources that are divided among the queues."""
    steps: QueueSteps
    """How sibling queues are compared."""
    stuck: Mapping[tuple[int, bool], Amounts] = field(default_factory=dict)
    """What pods hold that were told to stop but do not end soon, by row and whether they are preemptible."""
    unsettled: dict[tuple[int, bool], Amounts] = field(default_factory=dict)
    """The same of pods that leave, also by an eviction of the cycle, less what nominated ones will hold. Only
    rows with a bound are counted."""
    entered: dict[int, int] = field(default_factory=dict)
    """By row, pods that waited and have places of the cycle."""

    @staticmethod
    def of(snapshot: Snapshot) -> QueueBook:
        """The book at the start of a cycle."""
        totals = QueueTotals.of(snapshot)
        cluster = cluster_total(snapshot)
        by_name = divide(snapshot, totals, cluster)
        queues = totals.tree.queues
        allocatable = [allocatable_share(q.quota, q.limit, by_name[q.name]) for q in queues]
        quota, whole = [to_amounts(queue.quota) for queue in queues], to_amounts(cluster)
        floor, shares = [to_amounts(by_name[queue.name]) for queue in queues], _floats(allocatable)
        book = QueueBook(
            tree=totals.tree,
            held=_rows(totals.allocated),
            firm=_rows(totals.non_preemptible),
            quota=quota,
            firm_quota=[to_amounts(queue.firm_quota) for queue in queues],
            limit=[to_amounts(queue.limit) for queue in queues],
            shares=by_name,
            fair_share=_floats([by_name[queue.name] for queue in queues]),
            fair_share_floor=floor,
            allocatable_share=shares,
            allocatable_share_floor=[to_amounts(shares) for shares in allocatable],
            cluster=whole,
            steps=QueueSteps(totals.tree, floor, quota, shares, whole),
        )
        book.stuck = book.bounded(terminating(snapshot, PodStatus.STUCK_IN_RELEASING))
        book.unsettled = book.bounded(terminating(snapshot, PodStatus.RELEASING))
        return book

    def charge(
        self, queue: str, amounts: Amounts, preemptible: bool, sign: int = 1, *, pods: int = 0
    ) -> None:
        """Add ``amounts`` to the queue and all its ancestors; ``sign`` -1 subtracts them. ``pods``: how many
        that waited get a place so, or lose one (negative)."""
        cpu, memory, gpu = sign * amounts[0], sign * amounts[1], sign * amounts[2]
        held, firm, entered = self.held, self.firm, self.entered
        for i in self.line(queue):
            if pods:
                entered[i] = entered.get(i, 0) + pods
            have = held[i]
            held[i] = have[0] + cpu, have[1] + memory, have[2] + gpu
            if not preemptible:
                have = firm[i]
                firm[i] = have[0] + cpu, have[1] + memory, have[2] + gpu

    def copy(self) -> QueueBook:
        """An independent book; rows that never change are shared."""
        return QueueBook(
            self.tree,
            list(self.held),
            list(self.firm),
            self.quota,
            self.firm_quota,
            self.limit,
            self.shares,
            self.fair_share,
            self.fair_share_floor,
            self.allocatable_share,
            self.allocatable_share_floor,
            self.cluster,
            self.steps,
            self.stuck,
            dict(self.unsettled),
            dict(self.entered),
        )

    def settles_later(self, queue: str, amounts: Amounts, preemptible: bool, sign: int) -> None:
        """A charge of this sign counts only once pods have left or come."""
        change = subtract if sign > 0 else add
        for key in self.bounds(queue, preemptible):
            self.unsettled[key] = change(self.unsettled.get(key, NOTHING), amounts)

    def bounded(self, given: Iterable[tuple[str, bool, Amounts]]) -> dict[tuple[int, bool], Amounts]:
        """What is given to queues, by whether it is preemptible, summed up in the rows that have a bound."""
        found: dict[tuple[int, bool], Amounts] = {}
        for queue, preemptible, amounts in given:
            for key in self.bounds(queue, preemptible):
                found[key] = add(found.get(key, NOTHING), amounts)
        return found

    def bounds(self, queue: str, preemptible: bool) -> Iterator[tuple[int, bool]]:
        """The rows of the queue's path that have a bound for pods that are preemptible or not."""
        for i in self.line(queue):
            if self.limit[i] != UNBOUNDED or not (preemptible or self.firm_quota[i] == UNBOUNDED):
                yield i, preemptible

    def bound_by(
        self, queues: Iterable[int], *, firm: bool = False, now: bool = False
    ) -> Rows | Mapping[int, Amounts]:
        """What bounds count of these queues: what they hold, and what is there for long (0.1); ``now``: also
        what leaves, and not yet what is promised. ``firm``: of what is not preemptible."""
        rows = self.firm if firm else self.held
        more = [one for one in (self.stuck, self.unsettled if now else None) if one]
        kinds = (False,) if firm else (False, True)
        if not more:
            return rows
        return {
            i: total((rows[i], *(one.get((i, kind), NOTHING) for one in more for kind in kinds)))
            for i in queues
        }

    def index(self, queue: str) -> int:
        """Position of a queue in all rows."""
        return self.tree.index[queue]

    def name(self, index: int) -> str:
        """Queue of a row."""
        return self.tree.queues[index].name

    def line(self, queue: str) -> tuple[int, ...]:
        """Positions from the queue up to its root, itself first."""
        return self.tree.lines[self.tree.index[queue]]

    def summed(self, given: Iterable[tuple[str, Amounts]]) -> list[Amounts]:
        """For each row, the sum of what is given to its queue and to those below it.

        What is given to a queue that does not exist is in no row.
        """
        found = [NOTHING] * len(self.held)
        for queue, one in given:
            for i in self.line(queue) if queue in self.tree.index else ():
                found[i] = add(found[i], one)
        return found

    def allocated_of(self, queue: str) -> Amounts:
        """What a queue holds, everything below it included."""
        return self.held[self.index(queue)]

    def fair_share_of(self, queue: str) -> Shares:
        """The queue's fair share as KAI writes it (GPUs in devices)."""
        cpu, memory, gpu = (self.fair_share[self.index(queue)] / SCALE).tolist()
        return Shares(cpu, memory, gpu)

    def allocated_shares(self, queue: str) -> Shares:
        """What a queue holds as KAI writes it (GPUs in devices)."""
        return to_shares(self.allocated_of(queue))


def allocatable_share(quota: Shares, limit: Shares, fair_share: Shares) -> Shares:
    """How much a queue may hold undisturbed (3.1); -1: any amount."""
    found = []
    for deserved, most, fair in zip(quota, limit, fair_share, strict=True):
        if deserved == UNLIMITED:
            found.append(float(most))
        else:
            share = max(deserved, fair)
            found.append(share if most == UNLIMITED else min(most, share))
    return Shares(*found)


def _rows(array: Ints) -> Rows:
    return [(cpu, memory, gpu) for cpu, memory, gpu in array.tolist()]


def _floats(rows: list[Shares]) -> Floats:
    """Amount units, unlimited kept as -1."""
    values = np.array(rows, dtype=np.float64).reshape(-1, 3)
    return np.where(values == UNLIMITED, float(UNLIMITED), values * np.array(SCALE, dtype=np.float64))
