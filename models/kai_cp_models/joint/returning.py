"""Victims that would take their place back: those that come before the trigger (formulation 1.3; 3.6).

Inside a queue the fair order goes by priority and age, whatever the queue holds. The next allocate would give
the trigger's place to a lost unit that comes before the trigger and fits there. So such a unit is not lost
while that trigger is admitted. Between queues what they hold decides, see ``InLine``.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from itertools import product
from operator import itemgetter

from kai_cp_models.fairness.amounts import NOTHING
from kai_cp_models.fairness.book import QueueBook
from kai_cp_models.fairness.order import FairOrder, group_sort_key
from kai_cp_models.joint.problem import Ask, EvictionUnit, fits_in_place_of
from kai_cp_models.ledger import Ledger
from kai_cp_models.pods import GroupKey, Pod, PodSpec
from kai_cp_models.shapes import BatchShape
from kai_cp_models.snapshot import PodGroup


class Returning:
    """Which of some units, all of one queue, come back before which asks, in one ledger."""

    def __init__(self, ledger: Ledger, units: Iterable[EvictionUnit]) -> None:
        self._ledger = ledger
        self._fits: dict[tuple[frozenset[PodSpec], BatchShape], bool] = {}
        # A group that loses its gang starts again from below its minimum; surplus pods come after all such
        # groups.
        turns = (
            (group_sort_key(unit.group, 0 if unit.whole else 1), o, unit.pods)
            for o, unit in enumerate(units)
            if not unit.group.root.constrained
        )
        self._in_turn = sorted(turns, key=itemgetter(0))

    def come_back_first(self, ask: Ask) -> list[int]:
        """Positions of the units that, when lost, come before the ask and fit there pod by pod."""
        if ask.group.root.constrained:
            return []
        earlier = self._in_turn[: bisect_left(self._in_turn, ask.entry[0], key=itemgetter(0))]
        shape = ask.kind.shape
        return sorted(o for _, o, pods in earlier if len(pods) <= shape.count and self._replace(pods, shape))

    def _replace(self, pods: Iterable[Pod], shape: BatchShape) -> bool:
        """Whether each of the pods fits wherever one of such a batch does."""
        mine = {pod.spec: pod for pod in pods}
        if (key := (frozenset(mine), shape)) not in self._fits:
            pairs = product(mine.values(), shape.examples)
            self._fits[key] = all(fits_in_place_of(self._ledger, *pair) for pair in pairs)
        return self._fits[key]


class InLine:
    """Which units come before asks as soon as they are lost, whatever queues both are of.

    In the fair order of the book they come before them even if they ask for nothing. What its queue loses
    only brings a unit forward, and what an ask gets only sets its queue back. A group that waits comes with
    what it asks for.
    """

    def __init__(self, line: FairOrder, book: QueueBook, lost: Iterable[tuple[PodGroup, bool]]) -> None:
        """``lost``: groups that do not wait, and whether all of it is lost."""
        also = {group.key: (group_sort_key(group, 0 if whole else 1), NOTHING) for group, whole in lost}
        self._left = line.fork(book, also=also)
        self._turns: dict[GroupKey, int] = {}

    def before(self, asks: Iterable[Ask], units: Iterable[EvictionUnit]) -> set[int]:
        """Positions of the units that come before all the asks."""
        asking, turns = {ask.group.key for ask in asks}, self._turns
        # A test of the whole set at each step would look at all turns again.
        late = not any(map(turns.__contains__, asking))
        while late and (key := self._left.pop()) is not None:
            turns[key], late = len(turns), key not in asking
        first = min(turns.get(key, len(turns)) for key in asking)
        again = ((o, unit.group.key) for o, unit in enumerate(units) if unit.movable)
        return {o for o, key in again if turns.get(key, first) < first}
