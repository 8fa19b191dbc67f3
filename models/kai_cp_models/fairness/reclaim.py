"""Reclaim: which queue may take from which, and how much (4.4)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from math import inf
from typing import Generic, TypeVar

import numpy as np

from kai_cp_models.arrays import Floats, Ints
from kai_cp_models.fairness.amounts import Amounts, Involved, add, subtract
from kai_cp_models.fairness.book import QueueBook, Rows
from kai_cp_models.fairness.quota_checks import RESOURCE_NAMES, OverQuota
from kai_cp_models.fairness.totals import QueueTree
from kai_cp_models.pods import UNLIMITED

ResourceBounds = tuple[int | None, int | None, int | None]
"""Per resource, the amount above which a queue may lose a unit; None: the resource is not a reason."""
TakenUnit = tuple[str, Amounts, Involved]
"""A lost unit: the victim's leaf queue, the amount that it gives up, and the resources involved."""
Way = TypeVar("Way", bound=Hashable)
Standing = Involved | None
"""How a batch stands to victims: the resources that it asks for; None where its queue exceeds its quota."""


def can_reclaim(book: QueueBook, queue: str, amounts: Amounts, preemptible: bool) -> OverQuota | None:
    """Why the leaf ``queue`` may not reclaim for a batch of this size; None when it may.

    Every resource is tested, also one that the batch does not ask for (14: keep).
    """
    i = book.index(queue)
    found = _first_over(book.held, book.fair_share_floor, i, amounts)
    if found is not None:
        return OverQuota(queue, *found, "fair share")
    if not preemptible:
        found = _first_over(book.firm, book.firm_quota, i, amounts)
        if found is not None:
            return OverQuota(queue, *found, "quota")
    return None


def reclaim_conceivable(book: QueueBook, queue: str, amounts: Amounts, *, lost: Sequence[Amounts]) -> bool:
    """Whether ``can_reclaim`` may hold in some state of the action; False is a proof that it never does.

    ``lost``: the most by which each queue may fall below ``book``.
    """
    i = book.index(queue)
    return within(add(subtract(book.held[i], lost[i]), amounts), book.fair_share_floor[i])


def levelled(book: QueueBook, trigger_queue: str, victim_queue: str) -> tuple[str, str]:
    """The first pair that differs on the two root paths: siblings under the lowest common ancestor."""
    trigger, victim = _levelled(book, trigger_queue, victim_queue)
    return book.name(trigger), book.name(victim)


def victim_allowed(book: QueueBook, trigger_queue: str, amounts: Amounts, victim_queue: str) -> bool:
    """The victim filter: whether a batch of ``trigger_queue`` may look at victims of ``victim_queue``."""
    trigger, victim = _levelled(book, trigger_queue, victim_queue)
    return _open(book, victim, book.held[victim], _standing(book, trigger, book.held[trigger], amounts))


class VictimFilter:
    """``victim_allowed`` and ``due_bounds`` for all leaf queues at once, as a book is now.

    ``lost`` and ``gained``: the most by which each queue may fall below the book and rise above it. Which
    leaves are then left out is a proof that they are left out in every state between.
    """

    def __init__(
        self, book: QueueBook, lost: Sequence[Amounts] | None = None, gained: Sequence[Amounts] | None = None
    ) -> None:
        self._book, self._sure = book, lost is None
        self._least = list(book.held if lost is None else map(subtract, book.held, lost))
        self._most = list(book.held if gained is None else map(add, book.held, gained))
        self._open = _Levels[frozenset[Standing]](book.tree)
        self._above = _Levels[bool](book.tree)

    def victims(self, queue: int, asks: Iterable[Amounts]) -> Ints:
        """[leaves] the levelled queue of each at which a batch of one of these sizes may look, else -1."""
        book, asks = self._book, tuple(asks)

        def ways(i: int) -> frozenset[Standing]:
            # What its own queue gains may take any batch above its quota.
            beyond = () if self._sure else (None,)
            return frozenset((*(_standing(book, i, self._least[i], one) for one in asks), *beyond))

        return self._open.of(queue, [ways(i) for i in book.tree.lines[queue]], self._any_open)

    def dues(
        self, queue: int, entitled: Sequence[bool], among: Iterable[str]
    ) -> dict[str, tuple[str, ResourceBounds]]:
        """Of each of some leaves that is above its due to a batch, what ``due_bounds`` says. ``entitled``:
        see ``within_quotas``."""
        book, tree, found = self._book, self._book.tree, dict[str, tuple[str, ResourceBounds]]()
        levels = self._above.of(queue, entitled, self._above_due)
        for name in among:
            if (i := int(levels[tree.spans[tree.index[name]].start])) >= 0:
                yes = entitled[len(entitled) - len(tree.lines[i])]
                found[name] = book.name(i), _bounds(book, i, entitled=yes)
        return found

    def _any_open(self, i: int, ways: frozenset[Standing]) -> bool:
        return any(_open(self._book, i, self._most[i], way) for way in ways)

    def _above_due(self, i: int, entitled: bool) -> bool:
        return over(self._most[i], _bounds(self._book, i, entitled=entitled))


class _Levels(Generic[Way]):
    """For every queue, the levelled queue of each other leaf if it passes a test, else -1.

    The test is of a levelled queue, and of how a batch stands to those beside it; it is always the same. What
    it says of queues beside each other holds for all batches that stand alike, and what is above a queue for
    all below it.
    """

    def __init__(self, tree: QueueTree) -> None:
        self._tree = tree
        self._beside = dict[tuple[int, Way], Ints]()
        self._below = dict[tuple[int, int, Way], tuple[int, Ints]]()

    def of(self, queue: int, ways: Sequence[Way], test: Callable[[int, Way], bool]) -> Ints:
        """[leaves] for a batch of the queue. ``ways``: how it stands on each level, from the leaf up."""
        tree, at, found = self._tree, 0, np.full(len(self._tree.leaf_rows), -1)
        for i, way in zip(tree.lines[queue][::-1], reversed(ways), strict=True):
            key = at, i, way
            if key in self._below:
                at, found = self._below[key]
                continue
            found = found.copy()
            found[tree.spans[tree.parents[i]]] = self._passed(tree.parents[i], way, test)
            found[tree.spans[i]] = -1
            if tree.children[i]:
                at = len(self._below) + 1
                self._below[key] = at, found
        return found

    def _passed(self, parent: int, way: Way, test: Callable[[int, Way], bool]) -> Ints:
        if (parent, way) not in self._beside:
            levels = self._tree.levels[parent]
            queues = self._tree.children[parent] if parent >= 0 else self._tree.roots
            passing = [i for i in queues if test(i, way)]
            self._beside[parent, way] = np.where(np.isin(levels, passing), levels, -1)
        return self._beside[parent, way]


def may_reclaim(book: QueueBook, queue: str, amounts: Amounts, preemptible: bool, victim_queue: str) -> bool:
    """Whether the leaf ``queue`` may look at victims of ``victim_queue`` for a batch of this size (4.4)."""
    allowed = can_reclaim(book, queue, amounts, preemptible) is None
    return allowed and victim_allowed(book, queue, amounts, victim_queue)


def due_bounds(
    book: QueueBook, queue: str, amounts: Amounts, victim_queue: str
) -> tuple[str, ResourceBounds]:
    """The victim's levelled queue, and the amounts above which it may lose a unit to a batch of ``queue``."""
    trigger, victim = _levelled(book, queue, victim_queue)
    entitled = within(add(book.held[trigger], amounts), book.quota[trigger])
    return book.name(victim), _bounds(book, victim, entitled=entitled)


def within_quotas(book: QueueBook, queue: str, amounts: Amounts) -> tuple[bool, ...]:
    """Whether each queue, from the leaf up, stays within its quota with the batch."""
    return tuple(within(add(book.held[i], amounts), book.quota[i]) for i in book.line(queue))


def above_due(book: QueueBook, queue: int, held: Amounts) -> float:
    """How many milli-GPUs a queue holds that some trigger could take; infinite where it may lose units for
    its CPUs or memory.
    """
    bounds = zip(held, _bounds(book, queue, entitled=True), strict=True)
    cpu, memory, gpu = (0 if bound is None else max(0, have - bound) for have, bound in bounds)
    return inf if cpu or memory else gpu


def over(held: Sequence[int], bounds: ResourceBounds) -> bool:
    """Whether a queue holds more than its bound in some resource; else it may lose nothing."""
    return any(bound is not None and have > bound for have, bound in zip(held, bounds, strict=True))


def validate(
    book: QueueBook,
    trigger_queue: str,
    amounts: Amounts,
    preemptible: bool,
    units: Sequence[TakenUnit],
    *,
    multiplier: float = 1.0,
    trigger_involved: Involved | None = None,
) -> str | None:
    """Which rule the loss of ``units`` to the trigger breaks, in words; None when all hold.

    ``book``: totals before the units are lost and before the trigger is charged. ``units``: net
    losses in the order in which they were collected (reverse fair order). ``multiplier``: saturation
    multiplier. ``trigger_involved``: resources that the trigger involves; by default those it asks for.
    """
    left: dict[int, Amounts] = {}

    def remaining(i: int) -> Amounts:
        return left.get(i) or book.held[i]

    masks: dict[int, Involved] = {}
    for victim_queue, given, mask in units:
        trigger, victim = _levelled(book, trigger_queue, victim_queue)
        held = remaining(victim)
        entitled = within(add(remaining(trigger), amounts), book.quota[trigger])
        if not over(held, _bounds(book, victim, entitled=entitled)):
            return _kept(book, trigger, victim, entitled)
        for i in book.line(victim_queue):
            left[i] = subtract(remaining(i), given)
        masks[victim] = _either(masks.get(victim, (False, False, False)), mask)

    asked = trigger_involved or (amounts[0] > 0, amounts[1] > 0, amounts[2] > 0)
    parents = book.tree.parents
    for i in book.line(trigger_queue):
        mine = add(remaining(i), amounts)
        for sibling, mask in masks.items():
            if parents[sibling] != parents[i]:
                continue
            involved = _either(asked, mask)
            for resource in range(3):
                if not involved[resource] or mine[resource] <= book.fair_share_floor[i][resource]:
                    continue
                saturation = _ratio(mine[resource], book.fair_share, i, resource)
                theirs = _ratio(remaining(sibling)[resource], book.fair_share, sibling, resource)
                if book.fair_share[sibling, resource] > 0 and saturation * multiplier >= theirs:
                    return _less_saturated(book, i, sibling, resource, saturation, theirs=theirs)
    if not preemptible:
        for i in book.line(trigger_queue):
            found = _first_over(book.firm, book.firm_quota, i, amounts)
            if found is not None:
                return OverQuota(book.name(i), *found, "quota").message
    return None


def _levelled(book: QueueBook, trigger_queue: str, victim_queue: str) -> tuple[int, int]:
    trigger = book.line(trigger_queue)[::-1]
    victim = book.line(victim_queue)[::-1]
    for mine, theirs in zip(trigger, victim, strict=False):
        if mine != theirs:
            return mine, theirs
    return trigger[-1], victim[-1]


def _bounds(book: QueueBook, victim: int, *, entitled: bool) -> ResourceBounds:
    """A queue keeps its fair share; against a trigger within its quota it keeps only its own quota."""
    share, quota = book.allocatable_share_floor[victim], book.quota[victim]
    found: list[int | None] = []
    for r in range(3):
        options = (share[r], quota[r]) if entitled else (share[r],)
        found.append(min((option for option in options if option != UNLIMITED), default=None))
    return found[0], found[1], found[2]


def _standing(book: QueueBook, trigger: int, held: Amounts, amounts: Amounts) -> Standing:
    inside = within(add(held, amounts), book.quota[trigger])
    return (amounts[0] != 0, amounts[1] != 0, amounts[2] != 0) if inside else None


def _open(book: QueueBook, victim: int, held: Amounts, standing: Standing) -> bool:
    """Whether a queue with these holdings may be looked at: above its share; by a trigger that stays within
    its quota, above its own quota in a resource that is asked for, or at it in all of them."""
    if standing is None:
        return not within(held, book.allocatable_share_floor[victim])
    quota = book.quota[victim]
    asked = [r for r in range(3) if standing[r] and quota[r] != UNLIMITED]
    return any(held[r] > quota[r] for r in asked) or not any(held[r] < quota[r] for r in asked)


def within(amounts: Sequence[int], bounds: Amounts) -> bool:
    """Whether no amount is above its bound."""
    return all(bound == UNLIMITED or have <= bound for have, bound in zip(amounts, bounds, strict=True))


def _first_over(used: Rows, bounds: Rows, i: int, amounts: Amounts) -> tuple[int, int, int, int] | None:
    """(resource, bound, used, requested) of the first bound exceeded, whatever the batch asks for."""
    for resource, (have, most) in enumerate(zip(used[i], bounds[i], strict=True)):
        if most != UNLIMITED and have + amounts[resource] > most:
            return resource, most, have, amounts[resource]
    return None


def _either(left: Involved, right: Involved) -> Involved:
    return left[0] or right[0], left[1] or right[1], left[2] or right[2]


def _ratio(held: int, fair_share: Floats, i: int, resource: int) -> float:
    """Saturation: what a queue holds over its fair share."""
    share = float(fair_share[i, resource])
    if share == UNLIMITED:
        return 0.0
    if share == 0:
        return inf if held > 0 else 0.0
    return held / share


def _kept(book: QueueBook, trigger: int, victim: int, entitled: bool) -> str:
    kept = "its quota and its fair share" if entitled else "its fair share"
    why = "" if entitled else f"; queue {book.name(trigger)} would be over its quota"
    return f"queue {book.name(victim)} holds no more than {kept}{why}"


def _less_saturated(
    book: QueueBook, trigger: int, sibling: int, resource: int, mine: float, *, theirs: float
) -> str:
    return (
        f"queue {book.name(trigger)} would hold {mine:.2f} times its fair share of "
        f"{RESOURCE_NAMES[resource]}, queue {book.name(sibling)} would be left with {theirs:.2f} times"
    )
