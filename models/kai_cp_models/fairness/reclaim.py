"""Reclaim: which queue may take from which, and how much (4.4)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import inf
from typing import Final

import numpy as np

from kai_cp_models.arrays import Floats, Ints
from kai_cp_models.fairness.amounts import Amounts, Involved, add, subtract
from kai_cp_models.fairness.book import QueueBook, Rows
from kai_cp_models.fairness.quota_checks import RESOURCE_NAMES, OverQuota
from kai_cp_models.pods import UNLIMITED

ResourceBounds = tuple[int | None, int | None, int | None]
"""Per resource, the amount above which a queue may lose a unit; None: the resource is no reason."""
TakenUnit = tuple[str, Amounts, Involved]
"""A lost unit: the victim's leaf queue, the amount that it gives up, and the resources involved."""
_MOST: Final = 2**62


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
    held = book.held[victim]
    if within(add(book.held[trigger], amounts), book.quota[trigger]):
        return _above_quota(held, book.quota[victim], amounts)
    return not within(held, book.allocatable_share_floor[victim])


class VictimFilter:
    """``victim_allowed`` and ``due_bounds`` for all leaf queues at once, as a book is now."""

    def __init__(self, book: QueueBook) -> None:
        self._book, self._rows = book, list(book.held)
        held, quota, share = map(_ints, (book.held, book.quota, book.allocatable_share_floor))
        self._over_share = ((share != UNLIMITED) & (held > share)).any(axis=1)
        bounded = quota != UNLIMITED
        self._above, self._below = bounded & (held > quota), bounded & (held < quota)
        self._due: dict[tuple[int, bool], tuple[str, ResourceBounds]] = {}

    def _levelled(self, queue: int) -> Iterator[tuple[int, Ints, Ints]]:
        """Each queue on the path of a leaf from the top down, the leaves that are below siblings of it, and
        which these are."""
        tree, left = self._book.tree, self._book.tree.leaf_rows
        for mine, theirs in zip(tree.lines[queue][::-1], tree.lines_down, strict=False):
            beside = theirs[left] != mine
            leaves, left = left[beside], left[~beside]
            yield mine, leaves, theirs[leaves]

    def victims(self, queue: int, amounts: Amounts) -> tuple[Ints, Ints]:
        """[victims] the leaves at which a batch of this size may look, and the levelled queue of each."""
        asked, found = np.array(amounts) != 0, list[tuple[Ints, Ints]]()
        for mine, leaves, levels in self._levelled(queue):
            if within(add(self._rows[mine], amounts), self._book.quota[mine]):
                above, below = (part[levels][:, asked].any(axis=1) for part in (self._above, self._below))
                allowed = above | ~below
            else:
                allowed = self._over_share[levels]
            found.append((leaves[allowed], levels[allowed]))
        return np.concatenate([one for one, _ in found]), np.concatenate([levels for _, levels in found])

    def dues(self, queue: int, entitled: Sequence[bool]) -> dict[str, tuple[str, ResourceBounds]]:
        """Of each leaf that is above its due to a batch, what ``due_bounds`` says. ``entitled``: whether the
        queues on the path, from the leaf up, are within their quotas with the batch."""
        book, found = self._book, dict[str, tuple[str, ResourceBounds]]()
        for (_, leaves, levels), yes in zip(self._levelled(queue), reversed(entitled), strict=True):
            over = self._over_share[levels] | (yes & self._above[levels].any(axis=1))
            for leaf, i in zip(leaves[over].tolist(), levels[over].tolist(), strict=True):
                due = self._due.get((i, yes))
                if due is None:
                    due = self._due[i, yes] = book.name(i), _bounds(book, i, entitled=yes)
                found[book.name(leaf)] = due
        return found


def may_reclaim(book: QueueBook, queue: str, amounts: Amounts, preemptible: bool, victim_queue: str) -> bool:
    """Whether the leaf ``queue`` may look at victims of ``victim_queue`` for a batch of this size (4.4)."""
    allowed = can_reclaim(book, queue, amounts, preemptible) is None
    return allowed and victim_allowed(book, queue, amounts, victim_queue)


def victim_conceivable(
    book: QueueBook,
    trigger_queue: str,
    asks: Iterable[Amounts],
    victim_queue: str,
    *,
    lost: Sequence[Amounts],
    gained: Sequence[Amounts],
) -> bool:
    """Whether ``victim_allowed`` may hold in some state of the action for a batch of one of these sizes.

    False is a proof that it never does.

    ``lost`` and ``gained``: the most by which each queue may fall below ``book`` and rise above it.
    """
    trigger, victim = _levelled(book, trigger_queue, victim_queue)
    most = add(book.held[victim], gained[victim])
    if not within(most, book.allocatable_share_floor[victim]):
        return True
    least, quota = subtract(book.held[trigger], lost[trigger]), book.quota[trigger]
    able = (asked for asked in asks if _above_quota(most, book.quota[victim], asked))
    return any(within(add(least, asked), quota) for asked in able)


def due_bounds(
    book: QueueBook, queue: str, amounts: Amounts, victim_queue: str
) -> tuple[str, ResourceBounds]:
    """The victim's levelled queue, and the amounts above which it may lose a unit to a batch of ``queue``."""
    trigger, victim = _levelled(book, queue, victim_queue)
    entitled = within(add(book.held[trigger], amounts), book.quota[trigger])
    return book.name(victim), _bounds(book, victim, entitled=entitled)


def above_due(book: QueueBook, queue: int, held: Amounts) -> float:
    """How many milli-GPUs of its holdings a queue does not keep from every trigger; infinite
    where it may lose units for its CPUs or memory.
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


def _above_quota(held: Amounts, quota: Amounts, amounts: Amounts) -> bool:
    """Above quota in a resource that is asked for, or at it in all of them."""
    asked = [r for r in range(3) if amounts[r] != 0 and quota[r] != UNLIMITED]
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


def _ints(rows: Rows) -> Ints:
    """[queue, 3]; a quota beyond all that there is may be no 64-bit integer."""
    return np.array([[max(-_MOST, min(one, _MOST)) for one in row] for row in rows], np.int64).reshape(-1, 3)


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
