"""Victims that would take their place back: those of the trigger's queue that come before it (formulation
1.3; 3.6).

Inside a queue the fair order goes by priority and age, whatever the queue holds. The next allocate would give
the trigger's place to a lost unit that comes before the trigger and fits there. So such a unit is not lost
while that trigger is admitted.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import product
from operator import itemgetter

from kai_cp_models.fairness.order import group_sort_key
from kai_cp_models.joint.problem import Ask, EvictionUnit, fits_in_place_of
from kai_cp_models.ledger import Ledger
from kai_cp_models.pods import Pod, PodSpec

_Kinds = tuple[Pod, ...]
"""One pod of each spec."""


class Returning:
    """Which of some units, all of one queue, come back before which asks, in one ledger."""

    def __init__(self, ledger: Ledger, units: Iterable[EvictionUnit]) -> None:
        self._ledger = ledger
        self._fits: dict[tuple[frozenset[PodSpec], frozenset[PodSpec]], bool] = {}
        # A group that loses its gang starts again from below its minimum; surplus pods come after all such
        # groups.
        turns = (
            (group_sort_key(unit.group, 0 if unit.whole else 1), o, len(unit.pods), _kinds(unit.pods))
            for o, unit in enumerate(units)
            if not unit.group.root.constrained
        )
        self._in_turn = sorted(turns, key=itemgetter(0))

    def come_back_first(self, ask: Ask) -> list[int]:
        """Positions of the units that are placed again, when lost, where the ask should go: those that come
        first and fit there pod by pod.
        """
        if ask.group.root.constrained:
            return []
        turn = group_sort_key(ask.group, self._ledger.state(ask.gang).elastic_state)
        earlier = self._in_turn[: bisect_left(self._in_turn, turn, key=itemgetter(0))]
        count, kinds = len(ask.pods), _kinds(ask.pods)
        return sorted(o for _, o, pods, mine in earlier if pods <= count and self._replace(mine, kinds))

    def _replace(self, mine: _Kinds, theirs: _Kinds) -> bool:
        key = frozenset(pod.spec for pod in mine), frozenset(pod.spec for pod in theirs)
        found = self._fits.get(key)
        if found is None:
            pairs = product(mine, theirs)
            found = self._fits[key] = all(fits_in_place_of(self._ledger, *pair) for pair in pairs)
        return found


def _kinds(pods: Sequence[Pod]) -> _Kinds:
    return tuple({pod.spec: pod for pod in pods}.values())
