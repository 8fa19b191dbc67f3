"""Reclaim: which queue may take from which, and how much (4.4)."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from kai_cp_models.fairness.amounts import Amounts, Mask, add, subtract
from kai_cp_models.fairness.book import QueueBook, Rows
from kai_cp_models.fairness.gates import RESOURCE_NAMES, Refusal
from kai_cp_models.fairness.totals import Floats
from kai_cp_models.snapshot import UNLIMITED

Unit = tuple[str, Amounts, Mask]
"""A lost unit: the victim's leaf queue, what it gives up, and the resources that this involves."""


def can_reclaim(book: QueueBook, queue: str, amounts: Amounts, preemptible: bool) -> Refusal | None:
    """Why the leaf ``queue`` may not reclaim for a batch of this size; None when it may.

    Every resource is tested, also one that the batch does not ask for (14: keep).
    """
    i = book.index(queue)
    found = _first_over(book.held, book.fair_share_floor, i, amounts)
    if found is not None:
        return Refusal(queue, *found, "fair share")
    if not preemptible:
        found = _first_over(book.firm, book.quota, i, amounts)
        if found is not None:
            return Refusal(queue, *found, "quota")
    return None


def levelled(book: QueueBook, trigger_queue: str, victim_queue: str) -> tuple[str, str]:
    """The first pair that differs on the two root paths: siblings under the lowest common ancestor."""
    trigger, victim = _levelled(book, trigger_queue, victim_queue)
    return book.name(trigger), book.name(victim)


def victim_allowed(book: QueueBook, trigger_queue: str, amounts: Amounts, victim_queue: str) -> bool:
    """The victim filter: whether a batch of ``trigger_queue`` may look at victims of ``victim_queue``."""
    trigger, victim = _levelled(book, trigger_queue, victim_queue)
    held = book.held[victim]
    quota = book.quota[victim]
    if _within(add(book.held[trigger], amounts), book.quota[trigger]):
        asked = [r for r in range(3) if amounts[r] != 0 and quota[r] != UNLIMITED]
        return any(held[r] > quota[r] for r in asked) or not any(held[r] < quota[r] for r in asked)
    return not _within(held, book.allocatable_share_floor[victim])


def validate(
    book: QueueBook,
    trigger_queue: str,
    amounts: Amounts,
    preemptible: bool,
    units: Sequence[Unit],
    multiplier: float = 1.0,
    *,
    trigger_involved: Mask | None = None,
) -> str | None:
    """Which rule the loss of ``units`` to the trigger breaks, in words; None when all hold.

    ``book``: totals before the units are lost and before the trigger is charged. ``units``: net
    losses in the order in which they were collected (reverse fair order). ``multiplier``: saturation
    multiplier. ``trigger_involved``: resources that the trigger involves; by default those it asks for.
    """
    left: dict[int, Amounts] = {}

    def remaining(i: int) -> Amounts:
        return left.get(i) or book.held[i]

    masks: dict[int, Mask] = {}
    for victim_queue, given, mask in units:
        trigger, victim = _levelled(book, trigger_queue, victim_queue)
        held = remaining(victim)
        if _within(held, book.allocatable_share_floor[victim]):
            entitled = _within(add(remaining(trigger), amounts), book.quota[trigger])
            if not entitled or _within(held, book.quota[victim]):
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
                    return _less_saturated(book, i, sibling, resource, saturation, theirs)
    if not preemptible:
        for i in book.line(trigger_queue):
            found = _first_over(book.firm, book.quota, i, amounts)
            if found is not None:
                return Refusal(book.name(i), *found, "quota").message
    return None


def _levelled(book: QueueBook, trigger_queue: str, victim_queue: str) -> tuple[int, int]:
    trigger = book.line(trigger_queue)[::-1]
    victim = book.line(victim_queue)[::-1]
    for mine, theirs in zip(trigger, victim, strict=False):
        if mine != theirs:
            return mine, theirs
    return trigger[-1], victim[-1]


def _within(amounts: Amounts, bounds: Amounts) -> bool:
    return all(bound == UNLIMITED or have <= bound for have, bound in zip(amounts, bounds, strict=True))


def _first_over(used: Rows, bounds: Rows, i: int, amounts: Amounts) -> tuple[int, int, int, int] | None:
    """(resource, bound, used, requested) of the first bound exceeded, whatever the batch asks for."""
    for resource, (have, most) in enumerate(zip(used[i], bounds[i], strict=True)):
        if most != UNLIMITED and have + amounts[resource] > most:
            return resource, most, have, amounts[resource]
    return None


def _either(left: Mask, right: Mask) -> Mask:
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
    book: QueueBook, trigger: int, sibling: int, resource: int, mine: float, theirs: float
) -> str:
    return (
        f"queue {book.name(trigger)} would hold {mine:.2f} times its fair share of "
        f"{RESOURCE_NAMES[resource]}, queue {book.name(sibling)} would be left with {theirs:.2f} times"
    )
