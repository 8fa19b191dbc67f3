"""Holders of earlier cycles: at their start or earlier; later only where there is no other way (12.5)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from kai_cp_models.arrays import Ints
from kai_cp_models.cycle import Eviction
from kai_cp_models.ledger import Ledger
from kai_cp_models.placement import Placer
from kai_cp_models.reservations.hero import PricedPlaces, priced
from kai_cp_models.reservations.holders import (
    Holder,
    cause_of_delay,
    drop,
    stored_holders,
)
from kai_cp_models.reservations.instants import clock
from kai_cp_models.reservations.loads import Load, loads_of
from kai_cp_models.reservations.refit import broken
from kai_cp_models.reservations.search import FoundPlaces, NoPlaces, stored_nodes
from kai_cp_models.reservations.state import Hold
from kai_cp_models.reservations.times import NEVER
from kai_cp_models.reservations.walk import TOLERANCE, Walk
from kai_cp_models.snapshot import GroupKey, PodStatus


def serve_holders(walk: Walk) -> None:
    """Holders of earlier cycles: at their start or earlier; later only where there is no other way."""
    found, dropped = stored_holders(walk.cycle, walk.times, walk.batches)
    walk.report(*dropped.values())
    walk.bound({holder.key: holder.stored.start for holder in found}, found)
    late: list[tuple[Holder, NoPlaces]] = []
    for holder in found:
        outcome = _at_promise(walk, holder)
        if isinstance(outcome, NoPlaces):
            late.append((holder, outcome))
    for holder in found:
        _earlier(walk, holder)
    for holder, refused in late:
        _later(walk, holder, refused)
    walk.turns.extend(hold.key for hold in sorted(walk.holds, key=lambda hold: hold.order))
    _begin_due(walk, found)


def _begin_due(walk: Walk, found: Sequence[Holder]) -> None:
    """Let those begin whose start has come, until all that is held has room.

    Backfill leaves at the start that was found for its holder. Where that start has moved, or has come and
    had no need of the room, its backfill stays: what counted on that room is planned once more. So those that
    need no eviction begin first, one by one; the others together, as each of them waits for what it evicts.
    """
    holders = {holder.key: holder for holder in found}
    again = Counter[GroupKey]()
    while True:
        walk.bound({hold.key: hold.start for hold in walk.holds}, found)
        holds = sorted(walk.holds, key=lambda hold: hold.order)
        standing = [hold for hold in holds if not hold.victims]
        lost = {hold.key for hold in broken(standing, walk.state.timeline(walk.ledger))}
        if lost:
            walk.holds = [hold for hold in walk.holds if hold.key not in lost]
            walk.changed()
            for key in sorted(lost):
                again[key] += 1
                _later(walk, holders[key], NoPlaces(), known=again[key] <= len(found))
            continue
        due = [hold for hold in holds if hold.start <= walk.now]
        if not due:
            return
        for hold in [hold for hold in due if _has_room(walk, hold)][:1] or due:
            begin(walk, hold)


def _has_room(walk: Walk, hold: Hold) -> bool:
    """Whether the hold can begin without an eviction."""
    room = walk.ledger.idle + walk.ledger.releasing
    return not hold.victims and all(bool((room[node] >= usage).all()) for node, usage in hold.usage.items())


def _gpus_stored(walk: Walk, holder: Holder) -> dict[int, float]:
    index = walk.ledger.snapshot.node_index
    return {index[name]: gpus for name, gpus in holder.stored.nodes.items() if name in index}


def _at_promise(walk: Walk, holder: Holder) -> Hold | NoPlaces:
    """The holder at its promised start, on the places it has where these are still good."""
    start = max(holder.stored.start, walk.now)
    price = walk.times.notes(holder.key).price
    if price is not None and walk.times.hero(holder.ask.group):
        paid = priced(
            walk.scene(),
            holder.ask,
            holder.shape,
            start,
            walk.interval(holder, start),
            holds=walk.holds,
            paid_at=min(start, holder.stored.start),
        )
        if paid is not None and paid.lost_gpu_hours <= price + TOLERANCE:
            return _hold_paid(walk, holder, start, paid)
    outcome = _at(walk, holder, start)
    if isinstance(outcome, NoPlaces):
        return outcome
    return keep(walk, holder, start, outcome)


def at_once(walk: Walk, holder: Holder) -> FoundPlaces | NoPlaces:
    """Places now, those that it has first."""
    return _at(walk, holder, walk.now)


def _at(walk: Walk, holder: Holder, start: float) -> FoundPlaces | NoPlaces:
    scene, end = walk.scene(), walk.interval(holder, start)
    others = [hold for hold in walk.holds if hold.key != holder.key]
    gpus = _gpus_stored(walk, holder)
    load = Load(holder.ask.group, holder.shape.cost, start, end, True)
    reserved = start > walk.now
    beyond = scene.loads.beyond(replace(load, reserved=reserved), loads_of(others))
    if beyond is not None:
        return NoPlaces(beyond)
    nodes = stored_nodes(holder.shape, gpus)
    if nodes is not None and holder.shape.fits(nodes, scene.room(start, end, others)):
        return FoundPlaces(nodes, {}, {})
    return scene.at(holder.ask, holder.shape, start, end, others, reserved=reserved, prefer=gpus)


def keep(walk: Walk, holder: Holder, start: float, found: FoundPlaces, cause: str | None = None) -> Hold:
    """Let the holder hold these places from ``start`` on. ``cause``: why that is later than before."""
    walk.settle(found)
    stored = holder.stored
    hold = Hold(
        holder.ask,
        holder.shape,
        start,
        walk.interval(holder, start),
        found.nodes,
        stored.made,
        min(stored.promised, max(start, walk.now)),
        (stored.made, 0),
        stored,
        cause,
        stored_gpus=_gpus_stored(walk, holder),
    )
    walk.stands(hold)
    walk.changed()
    return hold


def _hold_paid(walk: Walk, holder: Holder, start: float, paid: PricedPlaces) -> Hold:
    hold = keep(walk, holder, start, FoundPlaces(paid.nodes, {}, {}))
    hold = replace(hold, victims=paid.victims, lost_gpu_hours=paid.lost_gpu_hours)
    walk.stands(hold)
    walk.bound_victims(hold)
    return hold


def _earlier(walk: Walk, holder: Holder) -> None:
    """An earlier start, where one exists beside the starts of all others."""
    hold = next((hold for hold in walk.holds if hold.key == holder.key), None)
    if hold is None or hold.start <= walk.now or hold.victims:
        return
    for instant in walk.points(holder.shape, until=hold.start, others=hold.key):
        if instant >= hold.start or walk.scene().spent_up:
            return
        outcome = _at(walk, holder, instant)
        if isinstance(outcome, FoundPlaces):
            keep(walk, holder, instant, outcome)
            return


def _later(walk: Walk, holder: Holder, refused: NoPlaces, *, known: bool = True) -> None:
    """The least start after all, with the cause; the reservation ends where there is none.

    ``known``: whether a start is looked for; a hold that others have moved too often ends.
    """
    bound = refused.beyond
    slid = [hold.ask.group for hold in walk.holds if hold.stored and hold.start > hold.stored.start]
    queues = [bound.queue] if bound else []
    cause = cause_of_delay(walk.times, holder, bound.bound if bound else None, queues, slid)
    if known and cause != "BeyondShare":
        for instant in walk.points(holder.shape, until=walk.now + walk.horizon):
            outcome = _at(walk, holder, instant)
            if isinstance(outcome, FoundPlaces):
                late = instant > holder.stored.start
                keep(walk, holder, instant, outcome, cause if late else None)
                return
    text = bound.message if bound else "no later start is known"
    walk.report(drop(holder.ask.group, holder.stored, cause, text))
    walk.changed()


def begin(walk: Walk, hold: Hold) -> None:
    """The holder starts: what is in the way by backfill or price is evicted, then it is placed."""
    walk.holds = [other for other in walk.holds if other.key != hold.key]
    walk.state = replace(walk.state, started={**walk.state.started, hold.key: hold})
    walk.changed()
    ledger = walk.ledger
    for node, usage in sorted(hold.usage.items()):
        _clear(walk, hold, node, usage)
    for victim in hold.victims:
        _evict(walk, hold.key, victim)
    placed = Placer(hold.ask.gang).place(ledger, hold.ask.batch) if not hold.stored else None
    if isinstance(placed, Ledger) and not hold.victims:
        ledger = placed
    else:
        ledger = walk.put(ledger, hold.ask, hold.nodes)
    walk.ledger = walk.root = ledger
    for pod in hold.ask.pods:
        walk.cycle.placed_by[pod.key] = "reservation"
    walk.cycle.sequence.setdefault(hold.key, len(walk.cycle.sequence))
    walk.cycle.waiting.pop(hold.key, None)
    walk.batches.pop(hold.key, None)
    batch = hold.ask.gang.next_batch(ledger.status)
    if batch is not None:
        walk.batches[hold.key] = batch
    walk.changed()


def _clear(walk: Walk, hold: Hold, node: int, usage: Ints) -> None:
    """Evict backfill on the node, the newest first, until the hold fits.

    Each goes for the holder on whose places it is; that one starts now, too, though maybe elsewhere.
    """
    snapshot = walk.ledger.snapshot
    name = snapshot.nodes[node].name
    there = {pod.group for pod in snapshot.pods if pod.node == name and pod.key not in walk.ledger.changed}
    leaving = sorted(
        (key for key in there if key is not None and walk.state.bounds.get(key, NEVER) <= walk.now),
        key=lambda key: (-walk.times.start(snapshot.group_by_key[key]), key),
    )
    for key in leaving:
        room = walk.ledger.idle[node] + walk.ledger.releasing[node]
        if (room >= usage).all():
            return
        _evict(walk, walk.state.leaves_for[key], key)


def _evict(walk: Walk, holder: GroupKey, key: GroupKey) -> None:
    ledger = walk.ledger
    for pod in ledger.fixed.gangs[key].pods:
        if pod.key not in ledger.changed and walk.times.runs(ledger.snapshot.group_by_key[key]):
            if pod.node is None or pod.status in (PodStatus.RELEASING, PodStatus.STUCK_IN_RELEASING):
                continue
            ledger.evict(pod)
            words = f"its places are held for {holder} from {clock(walk.now, walk.now)}"
            walk.cycle.evicted_by[pod.key] = Eviction("reservation", (holder,), words)
