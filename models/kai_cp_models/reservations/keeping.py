"""Holders of earlier cycles: they start when promised or earlier, and later only if nothing else is possible
(12.5)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from kai_cp_models.arrays import Ints
from kai_cp_models.blame import for_group
from kai_cp_models.cycle import Eviction
from kai_cp_models.fairness.runtime import delayed
from kai_cp_models.joint.problem import further
from kai_cp_models.placement import Placer
from kai_cp_models.pods import ACTIVE_ALLOCATED, GroupKey, Pod, PodKey
from kai_cp_models.refusal import Refusal
from kai_cp_models.reservations.hero import PricedPlaces, priced
from kai_cp_models.reservations.holders import Holder, drop, stored_holders
from kai_cp_models.reservations.leaving import Departure
from kai_cp_models.reservations.mending import at, holder_of, keep, later, mend
from kai_cp_models.reservations.search import FoundPlaces, NoPlaces
from kai_cp_models.reservations.state import Hold
from kai_cp_models.reservations.walk import TOLERANCE, WAITING, Walk
from kai_cp_models.shown import clock

NOT_TAKEN: Final = (
    "its places cannot be used now: what runs there keeps its pods out (ports, affinity, limits of kinds or "
    "the like), or may not be evicted (budgets; InVain, preemption delay)"
)


def keep_starts(walk: Walk) -> list[tuple[Holder, Hold | NoPlaces]]:
    """Keep every start of earlier cycles that can be kept. Returns the holders and what became of their
    starts.

    Holders whose places are promised now start there at once (4.2).
    """
    found, dropped = stored_holders(walk.cycle, walk.times, walk.asks)
    walk.report(*dropped.values())
    walk.owes(found)
    starts = [(holder, _at_promise(walk, holder)) for holder in found]
    return [
        (holder, _as_nominated(walk, holder, start) if holder.ask.promised else start)
        for holder, start in starts
    ]


def serve_holders(walk: Walk, found: Sequence[tuple[Holder, Hold | NoPlaces]]) -> None:
    """Each holder, in its order, takes its earliest start beside the starts that are kept. A start becomes
    later only if nothing else is possible.
    """
    for holder, outcome in found:
        if isinstance(outcome, NoPlaces):
            later(walk, holder, outcome, at_once=True)
        else:
            _earlier(walk, holder)
    walk.turns.extend(hold.key for hold in sorted(walk.holds, key=lambda hold: hold.order))
    _begin_due(walk)


def _begin_due(walk: Walk) -> None:
    """Start the holders whose start has come, until all holds fit.

    Backfill leaves at the start that was found for its holder. If that start has moved, or has come and did
    not need the capacity, the backfill stays, and what counted on its capacity is planned once more. So
    holders that need no eviction start first, one by one. The others start together, as each of them waits
    for what it evicts. A holder that cannot begin before its promise keeps that.
    """
    early = set[GroupKey]()
    while True:
        mend(walk, at_once=True)
        holds = sorted(walk.holds, key=lambda hold: hold.order)
        due = [hold for hold in holds if hold.start <= walk.now]
        if not due:
            return
        failed = begin(walk, [hold for hold in due if _has_room(walk, hold)][:1] or due)
        if failed is None or (stored := failed.stored) is None:
            continue
        if stored.start <= walk.now or failed.key in early:
            walk.report(drop(failed.ask.group, stored, "NotTaken", NOT_TAKEN))
        elif isinstance(outcome := _at_promise(walk, holder_of(failed)), NoPlaces):
            later(walk, holder_of(failed), outcome, at_once=False)
        early.add(failed.key)


def _has_room(walk: Walk, hold: Hold) -> bool:
    """Whether the hold can begin without an eviction."""
    room = walk.ledger.free
    return not hold.victims and all(bool((room[node] >= usage).all()) for node, usage in hold.usage.items())


@for_group(lambda _, holder: holder.key)
def _at_promise(walk: Walk, holder: Holder) -> Hold | NoPlaces:
    """The holder at its promised start, on its present places where these are still good."""
    start = max(holder.stored.start, walk.now)
    price = walk.times.notes(holder.key).price
    if price is not None and walk.times.hero(holder.ask.group):
        paid = priced(
            walk.scene(),
            holder.ask,
            holder.shape,
            start,
            walk.interval(holder.ask, start),
            holds=walk.holds,
            paid_at=min(start, holder.stored.start),
        )
        if paid is not None and paid.lost_gpu_hours <= price + TOLERANCE:
            return _hold_paid(walk, holder, start, paid)
    outcome = at(walk, holder, start)
    if isinstance(outcome, NoPlaces):
        return outcome
    return keep(walk, holder, start, outcome)


@for_group(lambda _, holder, __: holder.key)
def _as_nominated(walk: Walk, holder: Holder, start: Hold | NoPlaces) -> Hold | NoPlaces:
    """The holder now at the places that its pods are nominated to; ``start`` where these do not take it."""
    index = walk.ledger.snapshot.node_index
    nodes = {pod.key: index[pod.nominated_node or ""] for pod in holder.ask.pods}
    found = at(walk, holder, walk.now, only=nodes)
    return start if isinstance(found, NoPlaces) else keep(walk, holder, walk.now, found)


def _hold_paid(walk: Walk, holder: Holder, start: float, paid: PricedPlaces) -> Hold:
    hold = keep(walk, holder, start, FoundPlaces(paid.nodes, {}, {}))
    hold = replace(hold, victims=paid.victims, lost_gpu_hours=paid.lost_gpu_hours)
    walk.stands(hold)
    return hold


@for_group(lambda _, holder: holder.key)
def _earlier(walk: Walk, holder: Holder) -> None:
    """An earlier start, where one exists beside the starts of all others."""
    hold = next((hold for hold in walk.holds if hold.key == holder.key), None)
    if hold is None or hold.start <= walk.now or hold.victims:
        return
    for instant in walk.points(holder.shape, until=hold.start, others=hold.key):
        if instant >= hold.start or walk.scene().spent_up:
            return
        outcome = at(walk, holder, instant)
        if isinstance(outcome, FoundPlaces):
            keep(walk, holder, instant, outcome, hold.cause)
            return


def begin(walk: Walk, holds: Sequence[Hold]) -> Hold | None:
    """The holders start together: backfill and accepted victims in their way are evicted, then they are
    placed.

    Returns the first one whose nodes do not take its pods; its hold is gone, and nothing else has changed.
    Starts are planned by capacity and static rules alone, because ports, affinity and the like depend on what
    runs there by then.
    """
    departures, before, cycle = walk.state.leaving, vars(walk).copy(), walk.cycle.save()
    walk.ledger, walk.asks = walk.ledger.copy(), dict(walk.asks)
    for hold in holds:
        walk.holds = [other for other in walk.holds if other.key != hold.key]
        walk.state = replace(walk.state, started={**walk.state.started, hold.key: hold})
        walk.changed()
        if not _begins(walk, hold, departures):
            vars(walk).update(before)
            walk.cycle.restore(cycle)
            walk.holds = [other for other in walk.holds if other.key != hold.key]
            walk.changed()
            return hold
    return None


@for_group(lambda _, hold, *__: hold.key)
def _begins(walk: Walk, hold: Hold, departures: Mapping[PodKey, Departure]) -> bool:
    """Whether the holder has started. ``departures``: what leaves for it, and for those that start with
    it."""
    ledger = walk.ledger
    free = all(_clear(walk, node, usage, departures) for node, usage in sorted(hold.usage.items()))
    bought = (ledger.fixed.gangs[victim].pods for victim in hold.victims)
    if not (free and all(_evict(walk, hold.key, pods) for pods in bought)):
        return False
    anywhere = not (hold.stored or hold.victims)
    placed = anywhere and Placer(hold.ask.gang).place(ledger, hold.ask.batch) is None
    if not placed and not walk.put(ledger, hold.ask, hold.nodes, checked=True):
        return False
    walk.root = ledger.copy()
    walk.cycle.admitted("reservation", hold.key, hold.ask.pods)
    walk.cycle.waiting.pop(hold.key, None)
    walk.asks.pop(hold.key, None)
    if (more := further(ledger, hold.ask)) is not None:
        walk.asks[hold.key] = more
    walk.changed()
    return True


def _clear(walk: Walk, node: int, usage: Ints, departures: Mapping[PodKey, Departure]) -> bool:
    """Evict backfill on the node that is due to leave, in its order, until ``usage`` fits.

    Each eviction is for the holder whose places it frees; that holder also starts now, though maybe
    elsewhere. False: a rule forbids one of them.
    """
    snapshot = walk.ledger.snapshot
    name = snapshot.nodes[node].name
    for key, leaves in departures.items():
        if snapshot.pod_by_key[key].node != name or key in walk.ledger.evicted or leaves.at > walk.now:
            continue
        if (walk.ledger.free[node] >= usage).all():
            return True
        if not _evict(walk, leaves.holder, leaves.pods):
            return False
    return True


def _evict(walk: Walk, holder: GroupKey, pods: Iterable[Pod]) -> bool:
    ledger, snapshot = walk.ledger, walk.ledger.snapshot
    if delayed(snapshot, snapshot.group_by_key[holder]) is not None:
        return False
    for pod in pods:
        if pod.key in ledger.evicted or pod.node is None or pod.status not in ACTIVE_ALLOCATED:
            continue
        if not ledger.let_go([pod]):
            return False
        words = f"its places are held for {holder} from {clock(walk.now, walk.now)}"
        walk.cycle.evicted_by[pod.key] = Eviction("reservation", (holder,), words)
        if pod.group is not None and walk.asks.pop(pod.group, None) is not None:
            # The pod group leaves, so its waiting pods would run without the others.
            walk.cycle.waiting[pod.group] = Refusal(WAITING, words)
    return True
