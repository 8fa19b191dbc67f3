"""What may leave in any plan of a cycle: running pods by source, as masks over all of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import compress
from typing import Final

import numpy as np

from kai_cp_models.arrays import Ints, Mask
from kai_cp_models.fairness import amounts
from kai_cp_models.fairness.amounts import Amounts
from kai_cp_models.fairness.totals import RESOURCES
from kai_cp_models.joint.counting import Counting, Leaving
from kai_cp_models.ledger import Ledger
from kai_cp_models.pods import ACTIVE_ALLOCATED, GPU, GpuKind, Pod, PodStatus
from kai_cp_models.reservations.times import NEVER, TIMES
from kai_cp_models.running import UNIT, UnitRows

_LEAVING: Final = (PodStatus.RELEASING, PodStatus.STUCK_IN_RELEASING)
VictimSource = tuple[str, str, float, int]
"""Running pods that may leave: action, queue, minimum runtime in seconds, and the priority that they must be
below."""


class Departures:
    """The pods of every set of sources.

    ``base``: the ledger with which the cycle began. ``ended``: pods that may be evicted for their own state.
    """

    def __init__(self, base: Ledger, ended: Iterable[Pod]) -> None:
        self._snapshot, self.base, running = base.snapshot, base, base.fixed.running
        going = {pod.key: pod for pod in ended}
        self._ended: Sequence[Pod] = tuple(going.values())
        mine = [pod.key in going for pod in running.pods] if going else [False] * len(running.pods)
        able = {pod.key for pod in compress(running.pods, mine)}
        fixed = [pod for key, pod in going.items() if key not in able]
        self._pods: Sequence[Pod] = [*running.pods, *fixed]
        """[P] every running pod that some action could move, then those of ``ended`` that none could."""
        self._movable: Mask = np.arange(len(self._pods)) < len(mine)
        self._ends: Mask = np.array(mine + [True] * len(fixed), dtype=bool)
        more = np.zeros(len(fixed), UNIT)
        more["queue"] = [base.book.tree.index.get(self._queue(pod), -1) for pod in fixed]
        self._units: UnitRows = np.concatenate((np.repeat(running.units, running.units["pods"]), more))
        """[P] the unit of each; of the last ones only the queue."""
        homes = base.fixed.homes
        held = [homes.position.get(pod.key, -1) if pod.status in ACTIVE_ALLOCATED else -1 for pod in fixed]
        self._gives: Ints = homes.charges[np.append(running.homes, np.array(held, dtype=np.int64))]
        """[P] how much less the queue of each is charged without it."""
        # No function of its own remembers: that would keep the ledger until the collector finds the cycle.
        self._masks: dict[frozenset[VictimSource], Mask] = {}
        self._given: dict[frozenset[VictimSource], Sequence[Amounts]] = {}
        self._counting = Counting(base, (), everywhere=True)

    def _queue(self, pod: Pod) -> str:
        return "" if pod.group is None else self._snapshot.group_by_key[pod.group].queue

    @cached_property
    def ended(self) -> frozenset[VictimSource]:
        """The sources of the pods that no waiting group takes: those that end for their own state, and those
        evicted for a start that was promised or bought."""
        found = {("ended", self._queue(pod), 0.0, 0) for pod in self._ended}
        if self._starts_due():
            found |= {("reservation", queue, 0.0, 0) for queue in self._snapshot.preemptible_groups}
        return frozenset(found)

    @cached_property
    def firm_ended(self) -> Sequence[Amounts]:
        """For each queue of the book, how much less its non-preemptible groups hold without ``ended``."""
        groups, fixed = self._snapshot.group_by_key, np.flatnonzero(~self._movable).tolist()
        firm = np.zeros(len(self._pods), dtype=bool)
        firm[[i for i in fixed if (key := self._pods[i].group) and not groups[key].preemptible]] = True
        return self._summed(firm)

    def _starts_due(self) -> bool:
        times = self._snapshot.extras[TIMES]
        if times is None:
            return False
        waiting = [group.key for group in self._snapshot.waiting_groups]
        starts = [stored.start for key in waiting if (stored := times.due(key)) is not None]
        return min(starts, default=NEVER) <= times.now or any(times.notes(key).price for key in waiting)

    @cached_property
    def resized(self) -> frozenset[VictimSource]:
        """The sources of the movable shares by memory, which take less of a larger GPU (2.3)."""
        return frozenset(("resized", queue, 0.0, 0) for queue, _ in self.grown)

    @cached_property
    def grown(self) -> Sequence[tuple[str, Amounts]]:
        """Queues with such shares, and the most that they are charged for them."""
        if not self._snapshot.gpu_sizes_differ:
            return ()
        shares: dict[str, list[Amounts]] = {}
        for pod in compress(self._pods, self._resizes):
            shares.setdefault(self._queue(pod), []).append(amounts.most(self._snapshot, pod))
        return [(queue, amounts.total(some)) for queue, some in shares.items()]

    @cached_property
    def _resizes(self) -> Mask:
        """[P] the movable shares by memory."""
        kinds = (pod.spec.gpu.kind is GpuKind.MEMORY for pod in self._pods)
        found: Mask = self._movable & np.fromiter(kinds, bool, len(self._pods))
        return found

    @cached_property
    def _spared(self) -> Mask:
        """[P] pods of groups that may have their minimum without them: other pods run beyond it, wait, or
        leave. Which of its pods such a group gives up is left open, and whether leaving ones count."""
        running, columns = self.base.fixed.running, self._snapshot.columns
        groups = np.zeros(len(running.groups) + 1, dtype=bool)
        groups[running.units["group"][~running.units["whole"]]] = True
        groups[running.index[columns.group[columns.having((*_LEAVING, PodStatus.PENDING))]]] = True
        found: Mask = self._movable & groups[self._units["group"]]
        return found

    def _leave(self, sources: frozenset[VictimSource]) -> Mask:
        """[P] which pods may leave."""
        if sources in self._masks:
            return self._masks[sources]
        index, units = self.base.book.tree.index, self._units
        # What any group may take of a queue whose groups have run long enough, and what groups above a
        # priority may take.
        taken, preempted = np.full((2, len(index) + 1), np.nan)
        below, ended, resized = np.full(len(index) + 1, -np.inf), *np.zeros((2, len(index) + 1), dtype=bool)
        for action, queue, seconds, priority in sources:
            i = index.get(queue, -1)
            if action == "ended":
                ended[i] = True
            elif action == "resized":
                resized[i] = True
            elif action == "preempt":
                preempted[i], below[i] = np.fmin(preempted[i], seconds), max(below[i], priority)
            else:
                taken[i] = np.fmin(taken[i], seconds)
        queues = units["queue"]
        least = np.where(units["priority"] < below[queues], preempted[queues], np.nan)
        least = np.fmin(taken[queues], least)
        kept = units["whole"] & (self._snapshot.now < units["started"] + least) & ~self._spared
        found: Mask = self._movable & ~np.isnan(least) & ~kept
        found |= (self._ends & ended[queues]) | (self._resizes & resized[queues])
        self._masks[sources] = found
        return found

    def _all(self, sources: frozenset[VictimSource], moves: bool) -> Mask:
        return self._leave(sources) | self._movable if moves else self._leave(sources)

    def gone(self, sources: frozenset[VictimSource], moves: bool) -> Iterator[Pod]:
        """All that may leave, and with ``moves`` all that may move; each once."""
        return compress(self._pods, self._all(sources, moves))

    def count(self, sources: frozenset[VictimSource], moves: bool) -> int:
        """How many pods ``gone`` gives."""
        return int(self._all(sources, moves).sum())

    def some_stay(self, sources: frozenset[VictimSource]) -> bool:
        """Whether some action could move a running pod that these do not contain."""
        return bool((self._movable & ~self._leave(sources)).any())

    @cached_property
    def _leaving(self) -> Leaving:
        return self._counting.leaving(self._pods)

    def columns(self, sources: frozenset[VictimSource], moves: bool = False) -> Leaving:
        """What all of ``gone`` hold at their places."""
        return self._leaving.part(self._all(sources, moves))

    def offered(self, sources: frozenset[VictimSource]) -> int:
        """The most milli-GPUs that all nodes offer in sum when all of some sources have left."""
        return int(self._counting.room(self.columns(sources))[self._counting.totals][GPU])

    def given(self, sources: frozenset[VictimSource]) -> Sequence[Amounts]:
        """For each queue of the book, how much less it holds when all of some sources have left."""
        if sources not in self._given:
            self._given[sources] = self._summed(self._leave(sources))
        return self._given[sources]

    @cached_property
    def largest(self) -> Sequence[int]:
        """For each queue of the book, the most milli-GPUs that a group in it or below it loses as one unit of
        reclaim: a pod, or as many of each pod set as its minimum (4.4)."""
        tree, groups, rows = self.base.book.tree, self.base.fixed.running.groups, self._movable
        units, gpus = self._units[rows], self._gives[rows, 2]
        pod, total = np.zeros((2, len(groups)), dtype=np.int64)
        np.maximum.at(pod, units["group"], gpus)
        np.add.at(total, units["group"], gpus)
        core = np.array([sum(leaf.minimum for leaf in one.root.leaves()) for one in groups], dtype=np.int64)
        most = np.maximum(pod, np.minimum(total, pod * core))
        own, found = np.zeros(len(tree.queues) + 1, dtype=np.int64), [0] * len(tree.queues)
        np.maximum.at(own, units["queue"], most[units["group"]])
        for line, one in zip(tree.lines, own.tolist(), strict=False):
            for i in line:
                found[i] = max(found[i], one)
        return found

    def _summed(self, some: Mask) -> Sequence[Amounts]:
        queues, book = self._units["queue"][some], self.base.book
        found = np.zeros((len(book.held) + 1, RESOURCES), dtype=np.int64)
        np.add.at(found, queues, self._gives[some])
        rows = [(cpu, memory, gpu) for cpu, memory, gpu in found[:-1].tolist()]
        return book.summed((book.name(i), row) for i, row in enumerate(rows))

    def moving(self, sources: frozenset[VictimSource], *, pinned: bool) -> Iterator[Pod]:
        """Every running pod that some action could move when those of ``sources`` have left.

        ``pinned``: those of groups with a topology constraint, or those of the others.
        """
        groups = self._snapshot.group_by_key
        for pod in compress(self._pods, self._movable & ~self._leave(sources)):
            if pod.group and groups[pod.group].root.constrained == pinned:
                yield pod
