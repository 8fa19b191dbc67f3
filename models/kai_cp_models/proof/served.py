"""The batches that got places in a cycle, in the fair order in which another plan might serve them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import accumulate, count
from operator import itemgetter

import numpy as np

from kai_cp_models.actions.asking import line_of
from kai_cp_models.arrays import Ints
from kai_cp_models.cycle import Cycle
from kai_cp_models.fairness.amounts import Amounts, add
from kai_cp_models.fairness.totals import RESOURCES
from kai_cp_models.joint.problem import Ask, ask_of
from kai_cp_models.ledger import Ledger
from kai_cp_models.pods import GroupKey, Pod, PodKey, PodStatus


class ServedBatches:
    """What got places in a cycle. ``asks``: what every waiting group asks for first, where it may come.

    Once the deadline has passed, what was not looked at yet is left out, so that less is shown.
    """

    def __init__(self, cycle: Cycle, base: Ledger, asks: Mapping[GroupKey, Ask]) -> None:
        self._cycle = cycle
        self._base = base
        self._asks = asks
        self._sums: dict[int, tuple[Ints, Ints]] = {}
        """By queue, which batches are charged to it, and the sums of the first ones of them."""

    @cached_property
    def groups(self) -> frozenset[GroupKey]:
        """Pod groups of which waiting pods got a place."""
        return frozenset(pod.group for pod in self._placed if pod.group)

    @cached_property
    def _placed(self) -> Sequence[Pod]:
        """The waiting pods that got a place."""
        pods = self._cycle.snapshot.pod_by_key
        held = (pods[key] for key in self._cycle.ledger.held)
        return [pod for pod in held if pod.status is PodStatus.PENDING and pod.group]

    def before(self, key: GroupKey) -> int:
        """How many of the batches come before a refused group in the fair order."""
        return bisect_left(self._batches, self._turns.get(key, self._later), key=itemgetter(0))

    @cached_property
    def asks(self) -> Sequence[Ask]:
        """The batches, in an order in which one is before a refused group only if its group is, and if it is
        itself where further batches have turns of their own."""
        return [ask for _, ask in self._batches]

    @cached_property
    def pods(self) -> Sequence[int]:
        """For each number of first batches, how many pods they have."""
        return list(accumulate((len(ask.pods) for ask in self.asks), initial=0))

    def charged(self, queue: int, before: int) -> tuple[Amounts, Amounts]:
        """What limits and quotas count of those among the first ``before`` that are in the queue or below it:
        in all, and of what cannot be preempted."""
        if queue not in self._sums:
            below = np.array([queue in line for line in self._base.book.tree.lines])
            places = np.flatnonzero(below[self._queues])
            self._sums[queue] = places, np.insert(self._charges[places], 0, 0, axis=0).cumsum(axis=0)
        places, sums = self._sums[queue]
        total, firm = sums[np.searchsorted(places, before)].tolist()
        return tuple(total), tuple(firm)

    @cached_property
    def _queues(self) -> Ints:
        """[B] where the queue of each batch is in the book."""
        return np.array([self._base.book.index(ask.group.queue) for ask in self.asks], dtype=np.int64)

    @cached_property
    def _charges(self) -> Ints:
        """[B, 2, 3] what limits and quotas count of each batch: in all, and of what cannot be preempted."""
        sizes = np.array([ask.kind.shape.optimistic for ask in self.asks], np.int64).reshape(-1, RESOURCES)
        firm = np.array([not ask.group.preemptible for ask in self.asks], dtype=bool)
        return np.stack([sizes, sizes * firm[:, None]], axis=1)

    @cached_property
    def _turns(self) -> Mapping[GroupKey, int]:
        """The fair order of all waiting groups, or where that suffices up to the last of ``groups``; what the
        cycle gave to one at first is charged at its position."""
        if self.as_served:
            turns = self._cycle.turns
            last = next((i for i in reversed(range(len(turns))) if turns[i] in self.groups), -1)
            return dict(zip(turns[: last + 1], count()))
        book = self._base.book.copy()
        order, left = line_of(self._base, self._asks, book), set(self.groups)
        found: dict[GroupKey, int] = {}
        while not self._cycle.budget.passed() and (left or not self._first):
            passed: list[GroupKey] = []
            popped = order.pop(left, passed)
            found |= zip(passed, count(len(found)))
            if popped is None:
                break
            found[popped] = len(found)
            left.discard(popped)
            ask = self._asks[popped]
            book.charge(ask.group.queue, ask.asked, ask.group.preemptible)
            order.charged(ask.group.queue)
        return found

    @cached_property
    def as_served(self) -> bool:
        """Whether only allocate gave places, to these groups, after it looked once at each waiting group and
        charged what the group asks for. Then the turns wanted here are those of allocate."""
        cycle, asks, book = self._cycle, self._asks, self._base.book
        once = len(cycle.turns) == len(asks) and asks.keys() == set(cycle.turns)
        mine = len(cycle.served) == len(self.groups) and self.groups == set(cycle.served)
        if not (once and mine and self._first) or cycle.ledger.evicted or cycle.time is not None:
            return False
        given = book.summed((asks[key].group.queue, asks[key].asked) for key in cycle.served)
        return list(map(add, book.held, given)) == cycle.ledger.book.held

    @cached_property
    def _first(self) -> bool:
        """Whether each of ``groups`` got what it asked for first and no more."""
        asked = {pod.key for key in self.groups for pod in self._asks[key].pods}
        return {pod.key for pod in self._placed} == asked

    @cached_property
    def _later(self) -> int:
        """The turn of all groups that ``_turns`` does not have: after the last one, or unknown."""
        return len(self._turns) if self.groups <= self._turns.keys() else -1

    @cached_property
    def _batches(self) -> Sequence[tuple[int, Ask]]:
        """Each batch that got its places, with its turn in the fair order."""
        asks, turns = {key: self._asks[key] for key in self.groups}, self._turns
        if self._first:
            # The turns are those of the groups.
            return [(turn, asks[key]) for key, turn in turns.items() if key in asks]
        book, found, latest = self._base.book.copy(), list[tuple[int, Ask]](), -1
        order = line_of(self._base, self._asks, book)
        coming = {key: ask for key, ask in asks.items() if self._got_places(ask)}
        tallies = {key: self._base.tally(ask.gang) for key, ask in coming.items()}
        begun: set[PodKey] = set()

        def status(pod: Pod) -> PodStatus:
            return PodStatus.ALLOCATED if pod.key in begun else pod.status

        while not self._cycle.budget.passed() and (key := order.pop()) is not None:
            ask = coming.pop(key, None)
            if ask is None:
                latest = max(latest, turns[key])
                continue
            found.append((max(latest, turns[key]), ask))
            book.charge(ask.group.queue, ask.asked, ask.group.preemptible)
            order.charged(ask.group.queue)
            for pod in ask.pods:
                tallies[key] = ask.gang.moved(
                    tallies[key], pod.subgroup or "default", pod.status, PodStatus.ALLOCATED
                )
                begun.add(pod.key)
            state = ask.gang.state(status, tallies[key])
            if state.batch is not None and self._got_places(
                following := ask_of(self._base, ask.gang, state.batch, state)
            ):
                coming[key] = following
                order.push(key, following.entry)
        return sorted(found, key=itemgetter(0))

    def _got_places(self, ask: Ask) -> bool:
        return all(pod.key in self._cycle.ledger.held for pod in ask.pods)
