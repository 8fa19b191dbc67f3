"""What the triggers of an eviction action may take: bounds for the model, and the final test (4.4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kai_cp_models.fairness import amounts
from kai_cp_models.fairness.book import QueueBook
from kai_cp_models.fairness.reclaim import levelled, validate
from kai_cp_models.joint.evicting import Bounds, Due
from kai_cp_models.joint.offers import Ranked, entitlement
from kai_cp_models.joint.problem import Ask
from kai_cp_models.ledger import Ledger
from kai_cp_models.snapshot import UNLIMITED, ActionName, GroupKey

Owners = Mapping[int, tuple[GroupKey, ...]]
"""For every lost unit, by position, the triggers it is lost to; the first one answers for it."""


def dues_of(
    base: Ledger,
    action: ActionName,
    asks: Sequence[Ask],
    ranked: Sequence[Ranked],
    takes_of: Mapping[tuple[object, ...], frozenset[int]],
) -> list[Due]:
    """Classes of triggers that may take the same units on the same terms.

    ``takes_of``: ranks of the units each entitlement may take. Totals are tested in the order of the
    asks, each with all earlier ones charged.
    """
    book = base.book.copy()
    position = {item.rank: o for o, item in enumerate(ranked)}
    classes: dict[tuple[frozenset[int], tuple[tuple[str, tuple[str, Bounds]], ...]], list[int]] = {}
    terms_of: dict[tuple[object, ...], tuple[frozenset[int], tuple[tuple[str, tuple[str, Bounds]], ...]]] = {}
    for a, ask in enumerate(asks):
        group = ask.group
        asked = amounts.pessimistic_batch(base.snapshot, ask.pods)
        entitled = entitlement(base, ask, action)
        within = action == "reclaim" and _within_quota(book, group.queue, asked)
        if (entitled, within) not in terms_of:
            units = frozenset(position[rank] for rank in takes_of[entitled] if rank in position)
            bounds: dict[str, tuple[str, Bounds]] = {}
            if action == "reclaim":
                for queue in sorted({ranked[o].offer.group.queue for o in units}):
                    bounds[queue] = _bounds(book, group.queue, asked, queue)
                open_ = {queue for queue, terms in bounds.items() if _over_due(base.book, *terms)}
                units = frozenset(o for o in units if ranked[o].offer.group.queue in open_)
                bounds = {queue: terms for queue, terms in bounds.items() if queue in open_}
            terms_of[entitled, within] = (units, tuple(bounds.items()))
        if action == "reclaim":
            book.charge(group.queue, asked, group.preemptible)
        # Triggers of different queues that may take the same units on the same terms are one class.
        classes.setdefault(terms_of[entitled, within], []).append(a)
    return [Due(tuple(members), units, dict(terms)) for (units, terms), members in classes.items()]


def _over_due(book: QueueBook, level: str, bounds: Bounds) -> bool:
    """Whether the levelled queue holds more than its due in some resource; else nothing there may move."""
    held = book.allocated_of(level)
    return any(bound is not None and have > bound for have, bound in zip(held, bounds, strict=True))


def _within_quota(book: QueueBook, queue: str, asked: amounts.Amounts) -> tuple[bool, ...]:
    """For every queue from the leaf up, whether it stays within its quota with the batch."""
    return tuple(_fits_quota(book, i, asked) for i in book.path(queue).tolist())


def _fits_quota(book: QueueBook, i: int, asked: amounts.Amounts) -> bool:
    return all(
        int(book.quota[i, r]) == UNLIMITED or int(book.allocated[i, r]) + asked[r] <= int(book.quota[i, r])
        for r in range(3)
    )


def _bounds(book: QueueBook, queue: str, asked: amounts.Amounts, victim: str) -> tuple[str, Bounds]:
    """What the victim's levelled queue must hold more than, in some resource, to lose a unit."""
    mine, theirs = levelled(book, queue, victim)
    i, v = book.index(mine), book.index(theirs)
    entitled = _fits_quota(book, i, asked)
    found: list[int | None] = []
    for r in range(3):
        options = [int(book.allocatable_share_floor[v, r])]
        if entitled:
            options.append(int(book.quota[v, r]))
        finite = [option for option in options if option != UNLIMITED]
        found.append(min(finite) if finite else None)
    return theirs, (found[0], found[1], found[2])


def valid_reclaim(
    base: Ledger, asks: Sequence[Ask], ranked: Sequence[Ranked], ledger: Ledger, owners: Owners
) -> bool:
    """The scenario validation on the net losses, trigger by trigger; what was placed again is no loss."""
    snapshot = base.snapshot
    book = base.book.copy()
    lost: dict[GroupKey, list[Ranked]] = {}
    for o in sorted(owners, key=lambda o: ranked[o].rank):
        pods = ranked[o].offer.pods
        if ranked[o].offer.placed_now:
            # What is withdrawn never ran: it is gone before anything is tested.
            if not any(pod.key in ledger.held for pod in pods):
                group = ranked[o].offer.group
                book.charge(group.queue, ranked[o].holds, group.preemptible, -1)
            continue
        if not all(pod.key in ledger.held or pod.key not in ledger.changed for pod in pods):
            lost.setdefault(owners[o][0], []).append(ranked[o])
    for ask in asks:
        asked = amounts.pessimistic_batch(snapshot, ask.pods)
        taken = lost.get(ask.group.key, [])
        units = [
            (item.offer.group.queue, item.holds, amounts.involved(snapshot, item.offer.pods))
            for item in taken
        ]
        if units or not ask.group.preemptible:
            broken = validate(
                book,
                ask.group.queue,
                asked,
                ask.group.preemptible,
                units,
                snapshot.policy.saturation_multiplier,
                trigger_involved=amounts.involved(snapshot, ask.pods),
            )
            if broken is not None:
                return False
        for item in taken:
            book.charge(item.offer.group.queue, item.holds, item.offer.group.preemptible, -1)
        book.charge(ask.group.queue, asked, ask.group.preemptible)
    return True
