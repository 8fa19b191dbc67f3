"""What the triggers of an eviction action may take: bounds for the model, and the final test (4.4)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cache
from itertools import compress
from operator import attrgetter

from kai_cp_models.fairness import amounts
from kai_cp_models.fairness.book import QueueBook
from kai_cp_models.fairness.reclaim import (
    ResourceBounds,
    can_reclaim,
    due_bounds,
    over,
    validate,
    victim_allowed,
    within_quotas,
)
from kai_cp_models.joint.evicting import ReclaimBound
from kai_cp_models.joint.problem import Ask, EvictionUnit, Owed
from kai_cp_models.joint.victim_candidates import VictimOrder, charged
from kai_cp_models.ledger import Ledger
from kai_cp_models.pods import GroupKey, Pod, PodKey
from kai_cp_models.running import gpu_weight
from kai_cp_models.snapshot import PodGroup
from kai_cp_models.units import counted_apart

Owners = Mapping[EvictionUnit, tuple[GroupKey, ...]]
"""The triggers that take each disturbed unit; the eviction is charged to the first."""
_Terms = tuple[tuple[str, tuple[str, ResourceBounds]], ...]
"""For each victim queue, the levelled queue and what that must hold more than."""
_Rights = tuple[frozenset[int], tuple[int, ...], tuple[bool, ...]]
"""What an ask may take; under reclaim the queues above its own, and which of all keep their quotas."""


def reclaim_bounds(order: VictimOrder, asks: Sequence[Ask], ranks: Sequence[int]) -> list[ReclaimBound]:
    """Classes of triggers that may take the same units on the same terms; ``ranks``: of those units. Earlier
    asks count as charged.
    """
    victims, book = order.reach.filter, order.reach.ledger.book.copy()
    by_queue: dict[str, list[tuple[int, int]]] = {}
    for o, rank in enumerate(ranks):
        by_queue.setdefault(order.queues[rank], []).append((o, rank))

    @cache
    def queues(takes: frozenset[int]) -> Sequence[str]:
        return sorted(q for q, members in by_queue.items() if any(rank in takes for _, rank in members))

    @cache
    def within_queues(takes: frozenset[int], open_: frozenset[str]) -> frozenset[int]:
        return frozenset(o for q in open_ for o, rank in by_queue[q] if rank in takes)

    # Triggers of different queues that may take the same units on the same terms are one class.
    classes: dict[tuple[frozenset[int], _Terms], list[int]] = {}
    by_rights: dict[_Rights, list[int]] = {}
    for a, ask in enumerate(asks):
        group, asked, takes = ask.group, ask.asked, order.takes(ask)
        # An ask may take nothing of its own queue, so siblings with equal rights have equal terms.
        above = () if victims is None else book.line(group.queue)[1:]
        entitled = () if victims is None else within_quotas(book, group.queue, asked)
        if (key := (takes, above, entitled)) not in by_rights:
            open_: Iterable[str] = queues(takes)
            terms: dict[str, tuple[str, ResourceBounds]] = {}
            if victims is not None:
                open_ = terms = victims.dues(book.index(group.queue), entitled, open_)
            found = within_queues(takes, frozenset(open_)), tuple(terms.items())
            by_rights[key] = classes.setdefault(found, [])
        by_rights[key].append(a)
        if victims is not None:
            book.charge(group.queue, asked, group.preemptible)
    return [ReclaimBound(tuple(a), taken, dict(terms)) for (taken, terms), a in classes.items()]


def units_in_turn(
    asks: Sequence[Ask], ranked: Iterable[EvictionUnit], bounds: Sequence[ReclaimBound], book: QueueBook
) -> Iterator[EvictionUnit]:
    """Units that may go one after the other, in reverse fair order, without those of asking groups and those
    that no trigger may take while their queue holds no more than its due (4.4).
    """
    left = book.copy()
    terms: dict[str, list[tuple[Set[int], str, ResourceBounds]]] = {}
    for bound in bounds:
        for queue, (level, due) in bound.bounds.items():
            terms.setdefault(queue, []).append((bound.takes, level, due))
    taken = frozenset[int]().union(*(bound.takes for bound in bounds))
    # A unit goes only after those before it in its group's chain.
    closed, free = {ask.group.key for ask in asks}, not terms
    for o, item in enumerate(ranked):
        group = item.group
        here = terms.get(group.queue, ())
        may_go = free or any(o in takes and _over_bound(left, level, due) for takes, level, due in here)
        if may_go and o in taken and group.key not in closed:
            yield item
            left.charge(group.queue, item.holds, group.preemptible, -1)
            continue
        closed.add(group.key)
        if here and not may_go:
            # What a queue loses brings it no further above its due.
            terms[group.queue] = [one for one in here if _over_bound(left, *one[1:])]
            if not any(terms.values()):
                return


def shared_out(
    order: VictimOrder,
    asks: Sequence[Ask],
    ranked: Sequence[EvictionUnit],
    lost: Sequence[bool],
    moved: Collection[PodKey],
) -> Owners:
    """Which asks the disturbed units are lost to, in whole or in part: each ask in turn takes what it may,
    until it has what it needs.

    A lost unit that no ask needs goes to one that may still take it; a moved one goes to the first that may
    take it.
    """
    book, left = order.reach.ledger.book.copy(), list(compress(ranked, lost))

    def over_due(ask: Ask, item: EvictionUnit) -> bool:
        terms = ask.group.queue, ask.asked, item.group.queue
        return order.reach.filter is None or _over_bound(book, *due_bounds(book, *terms))

    found: dict[EvictionUnit, tuple[GroupKey, ...]] = {}
    able = [(ask, order.takes(ask)) for ask in asks]
    for ask, mine in able:
        need, within, seen = sum(gpu_weight(pod) for pod in ask.pods), set[str](), 0
        for item in left:
            victim, seen = item.group, seen + 1
            if item.rank not in mine or victim.queue in within:
                continue
            if over_due(ask, item):
                found[item] = (ask.group.key,)
                need -= item.weight
                book.charge(victim.queue, item.holds, victim.preemptible, -1)
                if need <= 0:
                    break
            else:
                # It only comes nearer to its due.
                within.add(victim.queue)
        left[:seen] = [item for item in left[:seen] if item not in found]
        book.charge(ask.group.queue, ask.asked, ask.group.preemptible)
    for item, gone in zip(ranked, lost, strict=True):
        if item in found or not (gone or any(pod.key in moved for pod in item.pods)):
            continue
        takers = [ask for ask, mine in able if item.rank in mine] or list(asks)
        if gone:
            takers.sort(key=lambda ask: not over_due(ask, item))
        found[item] = tuple(ask.group.key for ask in takers)
    return found


def _over_bound(book: QueueBook, level: str, bounds: ResourceBounds) -> bool:
    return over(book.allocated_of(level), bounds)


def inherited(unit: EvictionUnit, base: Ledger, ledger: Ledger) -> Owed:
    """What an earlier action evicted for a place that the unit has in ``base`` but not in ``ledger``;
    whatever takes the unit takes those evictions too (formulation 1.5).
    """
    gone = any(base.place_of(pod) != ledger.place_of(pod) for pod in unit.pods if pod.key in base.held)
    return unit.owed if gone else ()


@dataclass(slots=True)
class _Taken:
    """What a trigger takes from others: pods that they lose, and changes of charge by moves."""

    lost: list[tuple[PodGroup, amounts.Amounts, tuple[Pod, ...]]] = field(default_factory=list)
    moved: list[tuple[PodGroup, amounts.Amounts]] = field(default_factory=list)
    disturbed: set[str] = field(default_factory=set)
    """Queues of which it evicts a pod, be it lost or moved."""


def overreaching(
    base: Ledger, asks: Sequence[Ask], ledger: Ledger, owners: Owners, withdrawn: Set[PodKey] = frozenset()
) -> Ask | None:
    """The first trigger that takes more than it may; a pod that was placed again is not lost where reclaim
    may move (``allowConsolidatingReclaim``; 4.4).

    For each trigger: whether it may reclaim at all, whose pods it may disturb, and KAI's scenario validation
    on the net losses. ``withdrawn``: pods that lost the place which they have in ``base``; if they have one
    again, they got it after the triggers.
    """
    snapshot, book = base.snapshot, _without_withdrawn(base, ledger, owners, withdrawn)
    taken, multiplier = _taken(base, ledger, owners), snapshot.policy.saturation_multiplier
    for ask in asks:
        queue, preemptible, takes = ask.group.queue, ask.group.preemptible, taken.get(ask.group.key, _Taken())
        refused = can_reclaim(book, queue, ask.asked, preemptible) is not None
        if refused or not all(victim_allowed(book, queue, ask.asked, other) for other in takes.disturbed):
            return ask
        units = [(group.queue, holds, amounts.involved(snapshot, pods)) for group, holds, pods in takes.lost]
        terms = book, queue, ask.asked, preemptible, units
        if (units or not preemptible) and validate(
            *terms, multiplier=multiplier, trigger_involved=amounts.involved(snapshot, ask.pods)
        ):
            return ask
        for group, holds, _ in takes.lost:
            book.charge(group.queue, holds, group.preemptible, -1)
        for group, change in takes.moved:
            book.charge(group.queue, change, group.preemptible)
        # Up to here it counted with the most that it may be charged, from here on with its charge (2.3).
        book.charge(queue, charged(ledger, ask.pods), preemptible)
    return None


def _without_withdrawn(base: Ledger, ledger: Ledger, owners: Owners, withdrawn: Set[PodKey]) -> QueueBook:
    """The book before the triggers: pods that an earlier action no longer evicts never left, and places of
    this cycle that are withdrawn or replaced never counted.
    """
    book = base.book.copy()
    for key in base.evicted.keys() - base.held.keys() - ledger.evicted.keys():
        if (owner := base.evicted[key].group) is not None:
            group = base.snapshot.group_by_key[owner]
            book.charge(group.queue, charged(ledger, [base.evicted[key]]), group.preemptible)
    for item in sorted(owners, key=attrgetter("rank")):
        if new := _given_now(item, base):
            there = charged(ledger, [pod for pod in new if pod.key not in withdrawn])
            change = amounts.subtract(charged(base, new), there)
            book.charge(item.group.queue, change, item.group.preemptible, -1)
    return book


def _given_now(item: EvictionUnit, base: Ledger) -> list[Pod]:
    """The pods of a unit whose places are of this cycle and were not promised before."""
    given = (pod for pod in item.pods if pod.key in base.held and pod.key not in base.evicted)
    return [pod for pod in given if not base.as_promised(pod)]


def _taken(base: Ledger, ledger: Ledger, owners: Owners) -> dict[GroupKey, _Taken]:
    """What each trigger takes: of the units that it owns first, and of what was evicted for their places."""
    net, found = base.snapshot.policy.allow_consolidating_reclaim, dict[GroupKey, _Taken]()
    for item in sorted(owners, key=attrgetter("rank")):
        takes, new = found.setdefault(owners[item][0], _Taken()), _given_now(item, base)
        here = item.group, [pod for pod in item.pods if pod not in new]
        owed = ((other, [pod]) for other, pod in inherited(item, base, ledger))
        for group, pods in (here, *owed):
            gone = (p for p in pods if not (net and p.key in ledger.held))
            if away := tuple(p for p in gone if p.key in ledger.evicted or p.key in base.held):
                parts = counted_apart(group, away) if len(away) > 1 else (away,)
                takes.lost += ((group, charged(base, part), part) for part in parts)
            if left := [pod for pod in pods if pod.key in ledger.evicted]:
                takes.disturbed.add(group.queue)
                # A share by memory may be charged differently at its new place (2.3).
                held = [pod for pod in left if ledger.stays(pod)]
                change = amounts.subtract(charged(ledger, held), charged(base, held if net else ()))
                takes.moved.append((group, change))
    return found
