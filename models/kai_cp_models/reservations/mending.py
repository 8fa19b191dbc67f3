"""Holds that are planned again: late holders, and holds whose capacity others took within the cycle (4.5,
5.3)."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from kai_cp_models.blame import for_group
from kai_cp_models.ledger import Ledger
from kai_cp_models.limits import LIMITS
from kai_cp_models.pods import GroupKey
from kai_cp_models.refusal import Refusal
from kai_cp_models.reservations.holders import Holder, cause_of_delay, drop
from kai_cp_models.reservations.items import NodeOfPod
from kai_cp_models.reservations.loads import Beyond, Load, Loads, loads_of
from kai_cp_models.reservations.refit import broken
from kai_cp_models.reservations.search import FoundPlaces, NoPlaces, stored_nodes
from kai_cp_models.reservations.state import Hold, TimeState
from kai_cp_models.reservations.walk import WAITING, Walk
from kai_cp_models.snapshot import PodGroup


def gpus_stored(walk: Walk, holder: Holder) -> dict[int, float]:
    """GPUs by node of the stored reservation, for nodes that still exist."""
    index = walk.ledger.snapshot.node_index
    return {index[name]: gpus for name, gpus in holder.stored.nodes.items() if name in index}


def at(walk: Walk, holder: Holder, start: float, only: NodeOfPod | None = None) -> FoundPlaces | NoPlaces:
    """Places from ``start`` on; the present ones are tried first. ``only``: no others are looked for."""
    scene, end = walk.scene(), walk.interval(holder.ask, start)
    others = [hold for hold in walk.holds if hold.key != holder.key]
    gpus = gpus_stored(walk, holder)
    reserved = start > walk.now
    load = Load(holder.ask.group, holder.shape.cost, start, end, reserved)
    beyond = scene.loads.beyond(load, loads_of(others))
    if beyond is not None:
        return NoPlaces(beyond)
    nodes = only or stored_nodes(holder.shape, gpus)
    if nodes is not None and holder.shape.fits(nodes, scene.room(start, end, others)):
        return FoundPlaces(nodes, {}, {})
    if only:
        return NoPlaces()
    return scene.at(holder.ask, holder.shape, start, end, others, reserved=reserved, prefer=gpus)


def keep(walk: Walk, holder: Holder, start: float, found: FoundPlaces, cause: str | None = None) -> Hold:
    """Let the holder hold these places from ``start`` on. ``cause``: why the start is late, where it is."""
    walk.settle(found)
    stored = holder.stored
    hold = Hold(
        holder.ask,
        holder.shape,
        start,
        walk.interval(holder.ask, start),
        found.nodes,
        stored.made,
        min(stored.promised, max(start, walk.now)),
        holder.order,
        stored,
        cause if start > stored.start else None,
        stored_gpus=gpus_stored(walk, holder),
    )
    walk.stands(hold)
    return hold


@for_group(lambda _, holder, *__, **___: holder.key)
def later(walk: Walk, holder: Holder, refused: NoPlaces, *, at_once: bool, known: bool = True) -> None:
    """The earliest start still possible, with the cause of the delay; the reservation ends where there is
    none.

    ``at_once``: whether it may start now. ``known``: whether a start is searched at all.
    """
    bound = refused.beyond
    cause = _cause(walk, holder, bound)
    if known and cause != "BeyondShare":
        for instant in walk.points(holder.shape, until=walk.now + walk.horizon):
            outcome = at(walk, holder, instant) if at_once or instant > walk.now else NoPlaces()
            if isinstance(outcome, FoundPlaces):
                keep(walk, holder, instant, outcome, cause)
                return
    text = bound.message if bound else "no later start is known"
    walk.report(drop(holder.ask.group, holder.stored, cause, text))
    walk.serves(holder.key)


def _cause(walk: Walk, holder: Holder, bound: Beyond | None) -> str:
    """Why the holder starts later than promised, or not at all."""
    snapshot, names = walk.ledger.snapshot, holder.stored.nodes
    came: list[PodGroup] = []
    for key, held in walk.ledger.held.items():
        group = snapshot.group_by_key.get(owner) if (owner := snapshot.pod_by_key[key].group) else None
        if group is not None and (bound is not None or snapshot.nodes[held.node].name in names):
            came.append(group)
    # A group that starts late ends late, and a group that came in this cycle stays as long as it runs.
    slid = [hold.ask.group for hold in walk.holds if hold.stored and hold.start > hold.stored.start]
    return cause_of_delay(walk.times, holder, bound, [*slid, *came], came)


def mend(walk: Walk, *, at_once: bool) -> None:
    """Plan again every hold that has lost its capacity or its share within the cycle, until all holds have
    both.

    ``at_once``: whether a new start may be now.
    """
    again = Counter[GroupKey]()
    while gone := lost(walk.state, walk.ledger):
        keys = {hold.key for hold, _ in gone}
        walk.holds = [hold for hold in walk.holds if hold.key not in keys]
        walk.owes(holder_of(hold) for hold, _ in gone if hold.stored)
        for hold, refused in gone:
            again[hold.key] += 1
            known = again[hold.key] <= LIMITS.held_again
            walk.cycle.waiting[hold.key] = Refusal(WAITING, "its places were taken by right")
            if hold.stored is None:
                _made_anew(walk, hold, known=known)
            else:
                later(walk, holder_of(hold), refused, at_once=at_once, known=known)
        for hold in walk.holds:
            if hold.key in keys:
                walk.waits_itself(hold)


def holder_of(hold: Hold) -> Holder:
    """The holder of a hold that was promised before this cycle."""
    assert hold.stored is not None
    return Holder(hold.ask, hold.shape, hold.stored, hold.order[0], hold.start)


def lost(state: TimeState, ledger: Ledger) -> list[tuple[Hold, NoPlaces]]:
    """Holds that do not fit at their start, or exceed a bound of their queues then; later holds yield to
    earlier ones."""
    if not state.holds:
        return []
    holds = sorted(state.holds, key=lambda hold: (hold.order, hold.key))
    without_room = {hold.key for hold in broken(holds, state.timeline(ledger))}
    loads = Loads(state, ledger)
    found: list[tuple[Hold, NoPlaces]] = []
    kept: list[Hold] = []
    for hold in holds:
        load = Load(hold.ask.group, hold.shape.cost, hold.start, hold.end, hold.start > state.times.now)
        beyond = loads.beyond(load, loads_of(kept))
        if beyond is not None or hold.key in without_room:
            found.append((hold, NoPlaces(beyond)))
        else:
            kept.append(hold)
    return found


def _made_anew(walk: Walk, hold: Hold, *, known: bool) -> None:
    """Another start for a hold made in this cycle, which has not promised anything yet."""
    for instant in walk.points(hold.shape, until=walk.now + walk.horizon) if known else ():
        if instant <= walk.now:
            continue
        end = walk.interval(hold.ask, instant)
        found = walk.scene().at(hold.ask, hold.shape, instant, end, walk.holds, reserved=True)
        if isinstance(found, FoundPlaces):
            walk.settle(found)
            walk.stands(
                replace(hold, start=instant, end=end, nodes=found.nodes, promised=instant, victims=())
            )
            return
