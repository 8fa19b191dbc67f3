"""Victims that would take their place back: those of the trigger's queue that come before it (formulation
1.3; 3.6).

Inside a queue the fair order goes by priority and age, whatever the queue holds. The next allocate would give
the trigger's place to a lost unit that comes before the trigger and fits there. So such a unit is not lost
while that trigger is admitted.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter

import numpy as np

from kai_cp_models.arrays import Mask
from kai_cp_models.fairness.order import group_sort_key
from kai_cp_models.joint.problem import Ask, EvictionUnit
from kai_cp_models.ledger import Ledger
from kai_cp_models.pods import PODS, Pod
from kai_cp_models.rules.static.table import accepting
from kai_cp_models.snapshot import PodGroup


@dataclass(frozen=True, eq=False)
class _Shape:
    """Pods that start together, described as far as it matters for taking another unit's place."""

    count: int
    most: tuple[int, ...]
    """Per dimension the largest request of a pod."""
    least: tuple[int, ...]
    """Per dimension the smallest request of a pod."""
    everywhere: Mask
    """Nodes that accept every pod."""
    anywhere: Mask
    """Nodes that accept some pod."""
    slots: int
    """Pod slots that are free on every node that accepts some pod."""
    plain: bool
    """Whether only static rules and requests decide where the pods may go."""

    def replaces(self, other: _Shape) -> bool:
        """Whether these pods fit wherever the others do; several may fit in the place of one."""
        if not (self.plain and other.plain) or (other.anywhere & ~self.everywhere).any():
            return False
        ratios = [theirs // mine for mine, theirs in zip(self.most, other.least, strict=True) if mine]
        each = min(ratios, default=self.count)
        return self.count <= other.count * min(each, 1 + other.slots)


class Returning:
    """Which of some units, all of one queue, come back before which asks, in one ledger."""

    def __init__(self, ledger: Ledger, units: Iterable[EvictionUnit]) -> None:
        self._ledger = ledger
        self._shapes: dict[tuple[object, ...], _Shape] = {}
        self._replaces: dict[tuple[_Shape, _Shape], bool] = {}
        # A group that loses its gang starts again from below its minimum; surplus pods come after all such
        # groups.
        turns = (
            (group_sort_key(unit.group, 0 if unit.whole else 1), o, self._shape(unit.group, unit.pods))
            for o, unit in enumerate(units)
        )
        self._in_turn = sorted(turns, key=itemgetter(0))

    def come_back_first(self, ask: Ask) -> list[int]:
        """Positions of the units that are placed again, when lost, where the ask should go."""
        turn = group_sort_key(ask.group, ask.gang.elastic_state(self._ledger.status))
        shape = self._shape(ask.group, ask.pods)
        earlier = self._in_turn[: bisect_left(self._in_turn, turn, key=itemgetter(0))]
        return sorted(o for _, o, mine in earlier if self._fits(mine, shape))

    def _fits(self, mine: _Shape, theirs: _Shape) -> bool:
        found = self._replaces.get((mine, theirs))
        if found is None:
            found = self._replaces[mine, theirs] = mine.replaces(theirs)
        return found

    def _shape(self, group: PodGroup, pods: Sequence[Pod]) -> _Shape:
        specs = {id(pod.spec): pod for pod in pods}
        constrained = _constrained(group)
        key = (len(pods), constrained, *sorted(specs))
        found = self._shapes.get(key)
        if found is None:
            found = self._shapes[key] = self._make(len(pods), list(specs.values()), constrained)
        return found

    def _make(self, count: int, examples: Sequence[Pod], constrained: bool) -> _Shape:
        masks = [accepting(self._ledger.fixed.table, pod) for pod in examples]
        # Every pod takes one pod slot, so slots are counted separately.
        requests = np.array([pod.spec.requests for pod in examples])
        requests[:, PODS] = 0
        anywhere = np.logical_or.reduce(masks)
        slots = (self._ledger.idle + self._ledger.releasing)[anywhere, PODS]
        special = any(pod.spec.gpu.shares for pod in examples) or any(
            rule.concerns(pod) for rule in self._ledger.rules for pod in examples
        )
        return _Shape(
            count,
            tuple(requests.max(axis=0).tolist()),
            tuple(requests.min(axis=0).tolist()),
            np.logical_and.reduce(masks),
            anywhere,
            max(int(slots.min()), 0) if len(slots) else 0,
            not special and not constrained,
        )


def _constrained(group: PodGroup) -> bool:
    waiting = [group.root]
    while waiting:
        part = waiting.pop()
        if part.constraint is not None:
            return True
        waiting.extend(part.children)
    return False
