"""What groups that wait may take and move in any plan of a cycle, whatever else that plan does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, repeat

import numpy as np

from kai_cp_models.arrays import Mask
from kai_cp_models.fairness import amounts
from kai_cp_models.fairness.amounts import Amounts
from kai_cp_models.fairness.reclaim import VictimFilter, above_due, reclaim_conceivable
from kai_cp_models.fairness.runtime import granted
from kai_cp_models.joint.policy import RECLAIM
from kai_cp_models.joint.problem import Ask
from kai_cp_models.joint.victim_candidates import Entitlement, Reach
from kai_cp_models.pods import PodStatus
from kai_cp_models.proof.departures import Departures


@dataclass(frozen=True, slots=True, eq=False)
class Coming:
    """A kind of group that waits and that another plan may serve; equal groups share one.

    ``asked``: the least that its first batch asks for, and any further one, in reclaim. ``gains``: the most
    that its queue is charged for it. ``evicts``, ``moves``: whether it may trigger
    evictions, and moves.
    """

    queue: str
    priority: int
    asked: frozenset[Amounts]
    gains: Amounts
    evicts: bool
    moves: bool

    @staticmethod
    def of(departures: Departures, ask: Ask, acts: bool) -> Coming:
        """What the group with this first batch could be. ``acts``: it may disturb others."""
        group, snapshot = ask.group, departures.base.snapshot
        pods = [pod for pod in ask.gang.pods if pod.status is PodStatus.PENDING]
        later = {pod.spec: pod for pod in pods} if len(pods) > len(ask.pods) else {}
        asked = [ask.asked, *(amounts.pessimistic(snapshot, pod) for pod in later.values())]
        gains = amounts.total(amounts.most(snapshot, pod) for pod in pods)
        moves = acts and group.preemptible
        return Coming(group.queue, group.priority, frozenset(asked), gains, acts, moves)


class Rights:
    """What groups of some kinds may take and move in any plan; ``coming``: how many of each kind."""

    def __init__(self, departures: Departures, coming: Mapping[Coming, int]) -> None:
        self._book, self._snapshot = departures.base.book, departures.base.snapshot
        self._departures = departures
        self._coming = coming
        self._actions = self._snapshot.policy.actions

    @cached_property
    def moved(self) -> Mask:
        """[P] what consolidation might move that is not taken."""
        left: Mask = self._departures.movable & ~self.taken
        return left if self._consolidates else np.zeros_like(left)

    @cached_property
    def _consolidates(self) -> bool:
        able = "consolidation" in self._actions and self._snapshot.policy.consolidates
        return able and any(one.moves for one in self._coming)

    @cached_property
    def taken(self) -> Mask:
        """[P] what may leave."""
        return self._freely | self._reclaimed

    @cached_property
    def _freely(self) -> Mask:
        """[P] what may leave, whatever reclaim may take."""
        departures, index = self._departures, self._book.tree.index
        found = departures.ended | departures.resized if self._consolidates else departures.ended
        seconds, below = np.full(len(index) + 1, np.nan), np.full(len(index) + 1, -np.inf)
        for one in self._coming if "preempt" in self._actions else ():
            if one.evicts:
                i = index[one.queue]
                seconds[i] = granted(self._snapshot, one.queue, "preempt", one.queue)
                below[i] = max(below[i], one.priority)
        return found | departures.old_enough(seconds, below)

    @cached_property
    def _reclaimed(self) -> Mask:
        """[P] what reclaim may take: what one of them takes may entitle another."""
        departures, book = self._departures, self._book
        seconds = np.full(len(book.tree.index) + 1, np.nan)
        asking: dict[str, set[Amounts]] = {}
        for one in self._coming if "reclaim" in self._actions else ():
            if one.evicts:
                asking.setdefault(one.queue, set()).update(one.asked)
        if asking and not self._snapshot.policy.plugin("proportion"):
            # Whatever queues hold, all of it may go.
            seconds[:] = 0.0
        found = departures.old_enough(seconds)
        while True:
            lost = departures.given(self._freely | found)
            reach = Reach(departures.base, RECLAIM, VictimFilter(book, lost, self._gained))
            for queue, asked in ((queue, asked) for queue, sizes in asking.items() for asked in sizes):
                if reclaim_conceivable(book, queue, asked, lost=lost):
                    own = reach.undisturbed(Entitlement(queue, np.inf, asked))
                    seconds = np.fmin(seconds, own)
            more = departures.old_enough(seconds)
            if (more == found).all():
                return found
            found = more

    @cached_property
    def most_gpus(self) -> int:
        """The most milli-GPUs that all nodes offer to batches: a queue loses to reclaim only while it holds
        more than its due."""
        if not self._snapshot.policy.plugin("proportion"):
            return self._departures.offered(self.taken)
        book, given = self._book, self._departures.given(self._reclaimed)
        tree, largest, lost = book.tree, self._departures.largest, dict[int, float]()
        # Queues before those above them.
        for i in sorted(range(len(book.held)), key=lambda i: -len(tree.lines[i])):
            above = above_due(book, i, amounts.add(book.held[i], self._gained[i]))
            # The last unit goes while the queue is still above.
            own = above + largest[i] - 1 if above else 0
            lost[i] = min(given[i][2], own + sum(map(lost.__getitem__, tree.children[i])))
        return self._departures.offered(self._freely) + int(sum(map(lost.__getitem__, tree.roots)))

    @cached_property
    def kept_by_shares(self) -> Sequence[Amounts]:
        """For each queue of the book, what else might leave it if reclaim did not look at shares."""
        queues, reclaims = self._book.tree.queues, "reclaim" in self._actions
        seconds = [granted(self._snapshot, one.name, "reclaim", one.name) for one in queues]
        kept = self._departures.old_enough(np.array([*seconds, np.nan])) & ~self.taken
        return self._departures.given(kept if reclaims else np.zeros_like(kept))

    @cached_property
    def _gained(self) -> Sequence[Amounts]:
        """Per queue of the book, by how much it might rise: by all that waits for it, and by moves, which
        every action may make."""
        waiting = ((one.queue, amounts.total(repeat(one.gains, n))) for one, n in self._coming.items())
        return self._book.summed(chain(waiting, self._departures.grown))
