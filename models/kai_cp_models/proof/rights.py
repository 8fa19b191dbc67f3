"""What groups that wait may take and move in any plan of a cycle, whatever else that plan does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, repeat

from kai_cp_models.fairness import amounts
from kai_cp_models.fairness.amounts import Amounts
from kai_cp_models.fairness.reclaim import VictimFilter, above_due, reclaim_conceivable, within
from kai_cp_models.fairness.runtime import granted
from kai_cp_models.joint.problem import Ask
from kai_cp_models.pods import PodStatus
from kai_cp_models.proof.departures import Departures, VictimSource


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
    def moves(self) -> bool:
        """Whether consolidation might move something that is not taken."""
        # Where all that could move may leave as well, moves free nothing more.
        return self._consolidates and self._departures.some_stay(self.taken)

    @cached_property
    def _consolidates(self) -> bool:
        able = "consolidation" in self._actions and self._snapshot.policy.consolidates
        return able and any(one.moves for one in self._coming)

    @cached_property
    def taken(self) -> frozenset[VictimSource]:
        """What may leave: what one of them takes may entitle another."""
        evicting = [one for one in self._coming if one.evicts]
        found = self._departures.ended | (self._departures.resized if self._consolidates else frozenset())
        # What a group may preempt, those above it in its queue may preempt, too.
        for queue, priority in dict(sorted((one.queue, one.priority) for one in evicting)).items():
            found |= self._preempted(queue, priority)
        asking: dict[str, set[Amounts]] = {}
        for one in evicting:
            asking.setdefault(one.queue, set()).update(one.asked)
        while "reclaim" in self._actions:
            lost, fair = self._departures.given(found), self._snapshot.policy.plugin("proportion")
            victims = VictimFilter(self._book, lost, self._gained) if fair else None
            reclaiming = self._reclaiming(asking, lost)
            more = found.union(*(self._reclaimed(*one, victims) for one in reclaiming))
            if more == found:
                break
            found = more
        return found

    def _reclaiming(
        self, asking: Mapping[str, set[Amounts]], lost: Sequence[Amounts]
    ) -> Iterator[tuple[str, Sequence[Amounts]]]:
        """The queues that might reclaim for batches of some sizes, and these. Of siblings that stand alike
        two are enough: what one may take of a third, all of them may.
        """
        fair, book = self._snapshot.policy.plugin("proportion"), self._book
        seen = Counter[object]()
        for queue, asks in asking.items():
            able = [x for x in asks if not fair or reclaim_conceivable(book, queue, x, lost=lost)]
            i = book.index(queue)
            least = amounts.subtract(book.held[i], lost[i])
            entitled = frozenset(x for x in able if within(amounts.add(least, x), book.quota[i]))
            alike = book.tree.parents[i], frozenset(able), entitled
            seen[alike] += 1
            if able and seen[alike] <= 2:
                yield queue, able

    @cached_property
    def most_gpus(self) -> int:
        """The most milli-GPUs that all nodes offer to batches: a queue loses to reclaim only while it holds
        more than its due."""
        if not self._snapshot.policy.plugin("proportion"):
            return self._departures.offered(self.taken)
        freely = frozenset(source for source in self.taken if source[0] != "reclaim")
        book, given = self._book, self._departures.given(self.taken - freely)
        largest = self._departures.largest

        def lost(i: int) -> float:
            """The most that a queue loses, and those below it."""
            above = above_due(book, i, amounts.add(book.held[i], self._gained[i]))
            # The last unit goes while the queue is still above.
            own = above + largest[i] - 1 if above else 0
            return min(given[i][2], own + sum(map(lost, book.tree.children[i])))

        return self._departures.offered(freely) + int(sum(map(lost, book.tree.roots)))

    def _preempted(self, queue: str, priority: int) -> frozenset[VictimSource]:
        if "preempt" not in self._actions or queue not in self._snapshot.preemptible_groups:
            return frozenset()
        return frozenset({("preempt", queue, granted(self._snapshot, queue, "preempt", queue), priority)})

    def _reclaimed(
        self, queue: str, able: Sequence[Amounts], victims: VictimFilter | None
    ) -> frozenset[VictimSource]:
        """The victims that the filter might permit for one of the batches of these sizes."""
        names = self._victim_queues - {queue}
        if victims is not None:
            tree = self._book.tree
            leaves = tree.leaf_rows[victims.victims(tree.index[queue], able) >= 0]
            names = names.intersection(map(self._book.name, leaves.tolist()))
        return frozenset(
            ("reclaim", victim, granted(self._snapshot, victim, "reclaim", queue), 0) for victim in names
        )

    @cached_property
    def _victim_queues(self) -> frozenset[str]:
        return frozenset(self._snapshot.leaf_queues).intersection(self._snapshot.preemptible_groups)

    @cached_property
    def _gained(self) -> Sequence[Amounts]:
        """Per queue of the book, by how much it might rise: by all that waits for it, and by moves, which
        every action may make."""
        waiting = ((one.queue, amounts.total(repeat(one.gains, n))) for one, n in self._coming.items())
        return self._book.summed(chain(waiting, self._departures.grown))
