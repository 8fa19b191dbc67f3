"""The kinds of fixes that raise what a queue may hold: the least sum of raises that admits the group."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from kai_cp.explain.trials import Fix, NoTime, Trials, smallest
from kai_cp.json_types import Object
from kai_cp_models.queries.why import charge_steps, kind_of, shortages, subject_of
from kai_cp_models.snapshot import MILLI

_RESOURCES: Final = ("cpu", "memory", "gpu")
_UNIT: Final = {"gpu": MILLI, "cpu": 1, "memory": 1_000_000}
"""One of a queue's field in the units of ``Amounts``."""
_WHOLE: Final = {"gpu": MILLI, "cpu": 1_000, "memory": 0}
"""What bounds are raised by, beside what pods are charged: one GPU, one CPU."""
_SHARES: Final = frozenset(("fair-share", "order"))
"""Families that quotas decide."""

Field = Literal["limit", "quota"]


def raise_limit(trials: Trials) -> Fix | None:
    """Raise the limits on the queue's path that stand in the way."""
    return _raised(trials, "limit")


def raise_quota(trials: Trials) -> Fix | None:
    """Raise the quotas on the queue's path that stand in the way."""
    return _raised(trials, "quota")


@dataclass(frozen=True)
class _Bound:
    """A bound of one queue in one resource, in the units of ``Amounts``. ``now``: as it is; ``full``: with
    everything that the queue holds and the whole batch within it; ``step``: the smallest raise.
    """

    queue: str
    resource: str
    field: Field
    now: float
    full: int
    step: int

    @property
    def steps(self) -> int:
        """Smaller raises that there are, and the full one."""
        return max(1, math.ceil((self.full - self.now) / self.step))

    def at(self, steps: int) -> float:
        """The bound that is so many raises above ``now``, in the unit of the field; the last is ``full``."""
        value = (self.full - (self.steps - steps) * self.step) / _UNIT[self.resource]
        if self.resource != "gpu":
            return math.ceil(value)
        return int(value) if value == int(value) else round(value, 3)

    def operation(self, steps: int) -> Object:
        """The raise as an operation."""
        op: Object = {"op": "set-queue", "queue": self.queue, "resource": self.resource, "field": self.field}
        return {**op, "value": self.at(steps)}


def _raised(trials: Trials, field: Field) -> Fix | None:
    bounds = _bounds(trials, field)
    full = [one.steps for one in bounds]
    if not bounds or trials.admits(_operations(bounds, full)) is None:
        return None
    # Which of several bounds is lowered first makes a difference.
    orders = [range(len(bounds)), range(len(bounds) - 1, -1, -1)][: len(bounds)]
    found = [_lowered(trials, bounds, order) for order in orders]
    least, proved = min(found, key=lambda one: _sum(bounds, one[0]))
    ops = _operations(bounds, least)
    decided = trials.admits(ops)
    assert decided is not None
    return Fix(f"raise-{field}", _sum(bounds, least), "sum of the fields", ops, proved, decided)


def _lowered(trials: Trials, bounds: Sequence[_Bound], order: Sequence[int]) -> tuple[list[int], bool]:
    """Steps of every bound, one after the other as few as the others allow, and whether no fewer help.

    What goes below a queue, and what is owed to it, may let less than the full raise do.
    """
    steps = [one.steps for one in bounds]
    proved = len(bounds) == 1
    for i in order:

        def helps(count: int, i: int = i) -> bool:
            ops = _operations(bounds, [*steps[:i], count, *steps[i + 1 :]])
            return bool(ops) and trials.admits(ops) is not None

        try:
            if len(bounds) > 1 and helps(0):
                steps[i] = 0
                continue
        except NoTime:
            break
        steps[i], sure = smallest(helps, steps[i])
        proved = proved and sure
    return steps, proved


def _operations(bounds: Sequence[_Bound], steps: Sequence[int]) -> tuple[Object, ...]:
    return tuple(one.operation(count) for one, count in zip(bounds, steps, strict=True) if count)


def _sum(bounds: Sequence[_Bound], steps: Sequence[int]) -> float:
    total = sum(
        one.at(count) - one.now / _UNIT[one.resource]
        for one, count in zip(bounds, steps, strict=True)
        if count
    )
    return int(total) if total == int(total) else round(total, 6)


def _bounds(trials: Trials, field: Field) -> list[_Bound]:
    """The bounds on the queue's path that the batch would exceed, and that a blocking set is about."""
    snapshot = trials.snapshot
    if trials.group.queue not in snapshot.queue_by_name:
        return []
    families = {f for one in trials.blocking.sets for f in one}
    named = {subject_of(f) for f in families if kind_of(f) == field}
    every = not families or any(kind_of(f) in _SHARES for f in families)
    steps = charge_steps(trials.situation, trials.group)
    found = []
    for short in shortages(trials.situation, trials.group, field):
        queue = snapshot.queue_by_name[short.queue]
        if queue.user or not (every or queue.name in named):
            continue
        resource = _RESOURCES[short.resource]
        # Shares have memory in bytes, as charges do.
        scale = 1 if resource == "memory" else _UNIT[resource]
        now = float(getattr(queue, field)[short.resource]) * scale
        step = max(1, math.gcd(_WHOLE[resource], steps[short.resource]))
        found.append(_Bound(queue.name, resource, field, now, short.needed, step))
    return found
