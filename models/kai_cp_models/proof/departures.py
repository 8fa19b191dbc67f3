"""What may leave in any plan of a cycle: running pods, as masks over all of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import compress

import numpy as np

from kai_cp_models.arrays import Floats, Ints, Mask
from kai_cp_models.fairness import amounts
from kai_cp_models.fairness.amounts import Amounts
from kai_cp_models.fairness.totals import RESOURCES
from kai_cp_models.joint.counting import Counting, Leaving
from kai_cp_models.ledger import Ledger
from kai_cp_models.pods import ACTIVE_ALLOCATED, GPU, GpuKind, Pod, PodStatus
from kai_cp_models.reservations.times import NEVER, TIMES
from kai_cp_models.running import UNIT, UnitRows


class Departures:
    """The running pods [P], and what they give.

    ``base``: the ledger with which the cycle began. ``ended``: pods that may be evicted for their own state.
    """

    def __init__(self, base: Ledger, ended: Iterable[Pod]) -> None:
        self._snapshot, self.base, running = base.snapshot, base, base.fixed.running
        going = {pod.key: pod for pod in ended}
        mine = [pod.key in going for pod in running.pods] if going else [False] * len(running.pods)
        able = {pod.key for pod in compress(running.pods, mine)}
        fixed = [pod for key, pod in going.items() if key not in able]
        self._pods: Sequence[Pod] = [*running.pods, *fixed]
        """[P] every running pod that some action could move, then those of ``ended`` that none could."""
        self.movable: Mask = np.arange(len(self._pods)) < len(mine)
        self._ends: Mask = np.array(mine + [True] * len(fixed), dtype=bool)
        more = np.zeros(len(fixed), UNIT)
        more["queue"] = [base.book.tree.index.get(self._queue(pod), -1) for pod in fixed]
        self._units: UnitRows = np.concatenate((np.repeat(running.units, running.units["pods"]), more))
        """[P] the unit of each; of the last ones only the queue."""
        homes = base.fixed.homes
        held = [homes.position.get(pod.key, -1) if pod.status in ACTIVE_ALLOCATED else -1 for pod in fixed]
        self._gives: Ints = homes.charges[np.append(running.homes, np.array(held, dtype=np.int64))]
        """[P] how much less the queue of each is charged without it."""
        self._counting = Counting(base, (), everywhere=True)

    def _queue(self, pod: Pod) -> str:
        return "" if pod.group is None else self._snapshot.group_by_key[pod.group].queue

    @cached_property
    def ended(self) -> Mask:
        """[P] the pods that no waiting group takes: those that end for their own state, and those evicted for
        a start that was promised or bought."""
        if not self._starts_due():
            return self._ends
        return self._ends | self.old_enough(np.zeros(len(self.base.book.tree.index) + 1))

    @cached_property
    def firm_ended(self) -> Sequence[Amounts]:
        """For each queue of the book, how much less its non-preemptible groups hold without ``ended``."""
        groups, fixed = self._snapshot.group_by_key, np.flatnonzero(~self.movable).tolist()
        firm = np.zeros(len(self._pods), dtype=bool)
        firm[[i for i in fixed if (key := self._pods[i].group) and not groups[key].preemptible]] = True
        return self.given(firm)

    def _starts_due(self) -> bool:
        times = self._snapshot.extras[TIMES]
        if times is None:
            return False
        waiting = [group.key for group in self._snapshot.waiting_groups]
        starts = [stored.start for key in waiting if (stored := times.due(key)) is not None]
        return min(starts, default=NEVER) <= times.now or any(times.notes(key).price for key in waiting)

    @cached_property
    def resized(self) -> Mask:
        """[P] the movable shares by memory where GPUs differ: they take less of a larger one (2.3)."""
        differ = self._snapshot.gpu_sizes_differ
        kinds = (differ and pod.spec.gpu.kind is GpuKind.MEMORY for pod in self._pods)
        found: Mask = self.movable & np.fromiter(kinds, bool, len(self._pods))
        return found

    @property
    def grown(self) -> Iterator[tuple[str, Amounts]]:
        """The queue of each such share, and the most that it is charged for it."""
        shares = compress(self._pods, self.resized)
        return ((self._queue(pod), amounts.most(self._snapshot, pod)) for pod in shares)

    @cached_property
    def _spared(self) -> Mask:
        """[P] pods of groups that may have their minimum without them: other pods run beyond it, or wait.
        Which of its pods such a group gives up is left open."""
        running, columns = self.base.fixed.running, self._snapshot.columns
        groups = np.zeros(len(running.groups) + 1, dtype=bool)
        groups[running.units["group"][~running.units["whole"]]] = True
        groups[running.index[columns.group[columns.having((PodStatus.PENDING,))]]] = True
        found: Mask = self.movable & groups[self._units["group"]]
        return found

    def old_enough(self, seconds: Floats, below: Floats | None = None) -> Mask:
        """[P] which pods may be taken where groups of each queue run undisturbed for so many ``seconds``;
        NaN: they stay. ``below``: only those of lower priority. The last of both stands for queues that do
        not exist."""
        units, least = self._units, seconds[self._units["queue"]]
        kept = units["whole"] & (self._snapshot.now < units["started"] + least) & ~self._spared
        found: Mask = self.movable & ~np.isnan(least) & ~kept
        return found if below is None else found & (units["priority"] < below[units["queue"]])

    def pods(self, some: Mask) -> Iterator[Pod]:
        """Some of the pods; ``some``: [P] which."""
        return compress(self._pods, some)

    @cached_property
    def _leaving(self) -> Leaving:
        return self._counting.leaving(self._pods)

    def columns(self, some: Mask) -> Leaving:
        """What some of the pods hold at their places; ``some``: [P] which."""
        return self._leaving.part(some)

    def offered(self, taken: Mask) -> int:
        """The most milli-GPUs that all nodes offer in sum when some pods have left; ``taken``: [P] which."""
        return int(self._counting.room(self.columns(taken))[self._counting.totals][GPU])

    @cached_property
    def largest(self) -> Sequence[int]:
        """For each queue of the book, the most milli-GPUs that a group in it or below it loses as one unit of
        reclaim: a pod, or as many of each pod set as its minimum (4.4)."""
        tree, groups, rows = self.base.book.tree, self.base.fixed.running.groups, self.movable
        units, gpus = self._units[rows], self._gives[rows, 2]
        pod, total = np.zeros((2, len(groups)), dtype=np.int64)
        np.maximum.at(pod, units["group"], gpus)
        np.add.at(total, units["group"], gpus)
        # Nearly all groups share few trees.
        roots = {id(one.root): one.root for one in groups}
        cores = {of: sum(leaf.minimum for leaf in root.leaves()) for of, root in roots.items()}
        core = np.array([cores[id(one.root)] for one in groups], dtype=np.int64)
        most = np.maximum(pod, np.minimum(total, pod * core))
        own, found = np.zeros(len(tree.queues) + 1, dtype=np.int64), [0] * len(tree.queues)
        np.maximum.at(own, units["queue"], most[units["group"]])
        for line, one in zip(tree.lines, own.tolist(), strict=False):
            for i in line:
                found[i] = max(found[i], one)
        return found

    def given(self, some: Mask) -> Sequence[Amounts]:
        """For each queue of the book, how much less it holds without some of the pods."""
        queues, book = self._units["queue"][some], self.base.book
        found = np.zeros((len(book.held) + 1, RESOURCES), dtype=np.int64)
        np.add.at(found, queues, self._gives[some])
        rows = [(cpu, memory, gpu) for cpu, memory, gpu in found[:-1].tolist()]
        return book.summed((book.name(i), row) for i, row in enumerate(rows))
