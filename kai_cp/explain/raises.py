"""The kinds of fixes that raise what a queue may hold: the least sum of raises that admits the group."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from kai_cp.explain.operations import QUEUE_RESOURCES
from kai_cp.explain.trials import Fix, Spent, Trials, smallest
from kai_cp.json_types import Object, plain_number
from kai_cp_models.pods import MILLI
from kai_cp_models.queries.why import charge_steps, kind_of, shortages, subject_of
from kai_cp_models.snapshot import Queue

_UNIT: Final = {"gpu": MILLI, "cpu": 1, "memory": 1_000_000}
"""One of a queue's field in the units of ``Amounts``."""
_WHOLE: Final = {"gpu": MILLI, "cpu": 1_000, "memory": 0}
"""The steps of raises besides the charges of pods: one GPU, one CPU."""
_SMALLEST: Final = {"gpu": 1, "cpu": 1, "memory": _UNIT["memory"]}
"""The smallest raise of a field: a thousandth of a GPU, a thousandth of a CPU, a megabyte."""
SHARES: Final = frozenset(("fair-share", "order"))
"""Families that follow from capacity, limits and quotas of queues, so that a change of these may change
them."""

Field = Literal["limit", "quota"]


def raise_limit(trials: Trials) -> Fix | None:
    """Raise the limits on the queue's path that block the group."""
    return _raised(trials, "limit")


def raise_quota(trials: Trials) -> Fix | None:
    """Raise the quotas on the queue's path that block the group."""
    return _raised(trials, "quota")


@dataclass(frozen=True)
class QueueBound:
    """A bound of one queue in one resource, in the units of ``Amounts``. ``now``: the present bound;
    ``full``: the bound with everything that the queue holds and asks for; ``step``: the smallest raise."""

    queue: str
    resource: str
    field: Field
    now: float
    full: int
    step: int

    @classmethod
    def of(cls, queue: Queue, field: Field, resource: int, full: int, charges: int) -> QueueBound:
        """The bound as the queue has it. ``resource``: its place in ``Amounts``; ``charges``: the step that
        divides every charge, so that no raise in between does more."""
        name = QUEUE_RESOURCES[resource]
        # Shares have memory in bytes, as charges do.
        scale = 1 if name == "memory" else _UNIT[name]
        now = float(getattr(queue, field)[resource]) * scale
        return cls(queue.name, name, field, now, full, max(_SMALLEST[name], math.gcd(_WHOLE[name], charges)))

    @property
    def steps(self) -> int:
        """The number of possible raises, the full one included."""
        return max(1, math.ceil((self.full - self.now) / self.step))

    def at(self, steps: int) -> float:
        """The bound after ``steps`` raises from ``now``, in the unit of the field; the last is ``full``."""
        value = (self.full - (self.steps - steps) * self.step) / _UNIT[self.resource]
        return math.ceil(value) if self.resource != "gpu" else plain_number(round(value, 3))

    def raised(self, steps: int) -> float:
        """The amount that ``steps`` raises add, in the unit of the field."""
        return plain_number(self.at(steps) - self.now / _UNIT[self.resource])

    def operation(self, steps: int) -> Object:
        """The raise as an operation."""
        op: Object = {"op": "set-queue", "queue": self.queue, "resource": self.resource, "field": self.field}
        return {**op, "value": self.at(steps)}


def _raised(trials: Trials, field: Field) -> Fix | None:
    for of_all in (False, True):
        bounds = _bounds(trials, field, of_all=of_all)
        if bounds and trials.admits(_operations(bounds, [one.steps for one in bounds])) is not None:
            return _least(trials, field, bounds)
    return None


def _least(trials: Trials, field: Field, bounds: Sequence[QueueBound]) -> Fix:
    """The least of raises that help in full."""
    # The order in which several bounds are lowered matters.
    orders = [range(len(bounds)), range(len(bounds) - 1, -1, -1)][: len(bounds)]
    found = [_lowered(trials, bounds, order) for order in orders]
    least, proved = min(found, key=lambda one: _sum(bounds, one[0]))
    ops = _operations(bounds, least)
    decided = trials.admits(ops)
    assert decided is not None
    return Fix(f"raise-{field}", _sum(bounds, least), "sum of the fields", ops, proved, decided)


def _lowered(trials: Trials, bounds: Sequence[QueueBound], order: Sequence[int]) -> tuple[list[int], bool]:
    """Steps of every bound, lowered one after the other as far as the others allow, and whether it is proved
    that no fewer help.

    Less than the full raise may be enough, because of what goes below a queue and what is owed to it. Of
    several bounds, only limits that all need the full raise are proved: each was tried lower beside the
    others in full.
    """
    steps = [one.steps for one in bounds]
    proved = True
    for i in order:

        def helps(count: int, i: int = i) -> bool:
            ops = _operations(bounds, [*steps[:i], count, *steps[i + 1 :]])
            return bool(ops) and trials.admits(ops) is not None

        try:
            if len(bounds) > 1 and helps(0):
                steps[i] = 0
                continue
        except Spent:
            proved = False
            break
        steps[i], sure = smallest(helps, steps[i])
        proved = proved and sure
    limits = all(one.field == "limit" and one.steps == some for one, some in zip(bounds, steps, strict=True))
    return steps, proved and (len(bounds) == 1 or limits)


def _operations(bounds: Sequence[QueueBound], steps: Sequence[int]) -> tuple[Object, ...]:
    return tuple(one.operation(count) for one, count in zip(bounds, steps, strict=True) if count)


def _sum(bounds: Sequence[QueueBound], steps: Sequence[int]) -> float:
    return plain_number(sum(one.raised(count) for one, count in zip(bounds, steps, strict=True) if count))


def _bounds(trials: Trials, field: Field, *, of_all: bool = False) -> list[QueueBound]:
    """The bounds on the queue's path that the batch would exceed and that a blocking set names.

    ``of_all``: bounds that all work below the queue would exceed. Groups that come earlier may take what a
    raise allows, and what is owed to a queue depends on what is owed to the queues above it.
    """
    snapshot = trials.snapshot
    if trials.group.queue not in snapshot.queue_by_name:
        return []
    families = {f for one in trials.blocking.sets for f in one}
    named = {subject_of(f) for f in families if kind_of(f) == field}
    every = not families or any(kind_of(f) in SHARES for f in families)
    waiting = snapshot.waiting_groups if of_all else (trials.group,)
    steps = charge_steps(trials.situation, waiting)
    found = []
    for short in shortages(trials.situation, trials.group, field, of_all=of_all):
        queue = snapshot.queue_by_name[short.queue]
        if queue.user or not (every or queue.name in named):
            continue
        charges = steps[short.resource]
        found.append(QueueBound.of(queue, field, short.resource, short.needed, charges))
    return found
