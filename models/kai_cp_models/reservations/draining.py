"""Closed places: where no end is declared, the least busy places empty one by one (4.5).

A gang has no date if no known end gives it a start. With ``reservations.without_ends: drain`` the places with
the fewest busy GPUs are closed to all asks but preemptible ones. Once the other pods have left, the gang
starts, and backfill there is evicted as at any start. The places are opened again earlier when more GPU-hours
have stood idle on them than ``reservations.max_idle_gpu_hours``. Closing places is a rule of order, not a
promise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from kai_cp_models.arrays import Ints
from kai_cp_models.budget import DRAIN_SHARE, Allowance
from kai_cp_models.joint.problem import Ask
from kai_cp_models.ledger import Ledger
from kai_cp_models.plan import IdleSoFar
from kai_cp_models.pods import ACTIVE_ALLOCATED, GPU, MILLI, GroupKey, PodStatus
from kai_cp_models.records.notes import Closed
from kai_cp_models.reservations.gang import GangNeeds
from kai_cp_models.reservations.holders import Holder, candidate, drop, runs
from kai_cp_models.reservations.items import GangInterval, Idle, NodeOfPod
from kai_cp_models.reservations.keeping import begin
from kai_cp_models.reservations.loads import Load, loads_of
from kai_cp_models.reservations.mending import at, keep
from kai_cp_models.reservations.places import places
from kai_cp_models.reservations.search import FoundPlaces, NoPlaces, stored_nodes
from kai_cp_models.reservations.state import Drain, Hold
from kai_cp_models.reservations.times import NEVER
from kai_cp_models.reservations.vectors import demand
from kai_cp_models.reservations.walk import Walk
from kai_cp_models.snapshot import PodGroup


def serve_drains(walk: Walk) -> None:
    """Serve the places that earlier cycles closed: start the gang where they are empty, else keep them closed
    while the cap lasts."""
    snapshot, times = walk.cycle.snapshot, walk.times
    noted = [
        (closed.made, group)
        for group in snapshot.groups
        if (closed := times.notes(group.key).closed) is not None and not runs(snapshot, group)
    ]
    for _, group in sorted(noted, key=lambda entry: (entry[0], entry[1].key)):
        closed = times.notes(group.key).closed
        ask = walk.asks.get(group.key)
        shape = None if ask is None else candidate(walk.cycle, times, ask)
        if closed is None or ask is None or shape is None or not times.drains or full(walk):
            _give_up(walk, group, "OptedOut", "no places are kept closed for it any more")
        elif closed.idle.at(times.now) > times.settings.reservations.max_idle_gpu_hours:
            hours = f"{closed.idle.at(times.now):.1f} GPU-hours"
            _give_up(walk, group, "Expired", f"{hours} stood idle on its places before they were empty", True)
        elif not _begun(walk, ask, shape):
            close(walk, ask, shape)


def full(walk: Walk, key: GroupKey | None = None) -> bool:
    """Whether as many other groups as allowed already hold capacity, or keep places closed, beside ``key``.

    A holder that has started and waits for evicted pods to leave counts until it is bound.
    """
    held = walk.ledger.held
    holding = [hold.key for hold in walk.holds] + [drain.key for drain in walk.state.drains]
    for hold in walk.state.started.values():
        if any(pod.key in held and held[pod.key].status is PodStatus.PIPELINED for pod in hold.ask.pods):
            holding.append(hold.key)
    return sum(holder != key for holder in holding) >= walk.times.settings.reservations.most


def _give_up(walk: Walk, group: PodGroup, cause: str, text: str, expired: bool = False) -> None:
    walk.report(drop(group, None, cause, text, expired=walk.now if expired else None))


def _begun(walk: Walk, ask: Ask, shape: GangNeeds) -> bool:
    """Start the gang if only backfill is left on its places."""
    stored = walk.times.due(ask.group.key)
    assert stored is not None
    holder = Holder(ask, shape, stored, stored.made, walk.now)
    walk.owes([holder])
    found = at(walk, holder, walk.now)
    if isinstance(found, NoPlaces):
        walk.serves(holder.key)
        return False
    walk.turns.append(ask.group.key)
    hold = keep(walk, holder, walk.now, found)
    return begin(walk, [hold]) is None


def close(walk: Walk, ask: Ask, shape: GangNeeds) -> None:
    """Keep the places of the gang closed, or close the least busy ones; close none if the gang would fit on
    none."""
    closed = walk.times.notes(ask.group.key).closed
    without(walk, ask.group.key)
    load = Load(ask.group, shape.cost, walk.now, NEVER, True)
    if walk.scene().loads.beyond(load, loads_of(walk.holds)) is not None:
        return
    nodes = _places(walk, ask, shape, closed)
    if nodes is None:
        return
    made = walk.now if closed is None else closed.made
    # The groups beside places that were closed earlier are noted already.
    beside = walk.placed if closed is None else frozenset[GroupKey]()
    hold = Hold(ask, shape, walk.now, NEVER, nodes, made, walk.now, (made, 0), beside=beside)
    idle = IdleSoFar(walk.now, 0.0, 0.0) if closed is None else closed.idle
    walk.state = replace(walk.state, drains=(*walk.state.drains, Drain(hold, idle)))
    walk.refusals.clear()
    walk.changed()


def without(walk: Walk, key: GroupKey) -> None:
    """Open the places of a group."""
    left = tuple(drain for drain in walk.state.drains if drain.key != key)
    if len(left) < len(walk.state.drains):
        walk.state = replace(walk.state, drains=left)
        walk.changed()


def never_fits(walk: Walk, ask: Ask, shape: GangNeeds) -> bool:
    """Whether the gang would not fit even alone, once everything that ends by itself has ended."""
    scene = walk.scene()
    last = scene.timeline.points()[-1]
    return not isinstance(scene.at(ask, shape, last, NEVER, (), reserved=False), FoundPlaces)


def _places(walk: Walk, ask: Ask, shape: GangNeeds, closed: Closed | None) -> NodeOfPod | None:
    room = _empty(walk.ledger)
    for one in (*walk.holds, *(drain.hold for drain in walk.state.drains)):
        for node, usage in one.usage.items():
            room[node] -= usage
    index = walk.ledger.snapshot.node_index
    gpus = {} if closed is None else {index[name]: amount for name, amount in closed.nodes.items()}
    nodes = stored_nodes(shape, gpus) if gpus else None
    if nodes is not None and shape.fits(nodes, room):
        return nodes
    busy = np.maximum(_empty(walk.ledger) - walk.ledger.free, 0)
    return _least_busy(walk, GangInterval(ask.group.key, shape, walk.now + 1, NEVER, stored=gpus), room, busy)


def _least_busy(walk: Walk, item: GangInterval, room: Ints, busy: Ints) -> NodeOfPod | None:
    """The places with the fewest busy GPUs. It uses the model of places, with busy GPUs in place of idle
    ones."""
    cost = Idle(np.array([walk.now, walk.now + 1]), busy[:, GPU][None, :] // MILLI)
    allowance = Allowance(walk.cycle.budget, DRAIN_SHARE * walk.cycle.budget.work_left())
    answer = places([item], lambda _: room, walk.cycle.settings.solver, allowance, idle=cost)
    return None if answer.places is None else answer.places[item.key]


def _empty(ledger: Ledger) -> Ints:
    """[N, D] what is free once every pod group has left; pods without a group stay."""
    snapshot = ledger.snapshot
    room: Ints = ledger.fixed.table.allocatable.copy()
    for pod in snapshot.pods:
        node = snapshot.node_index.get(pod.node or "")
        if node is not None and pod.group is None and pod.status in ACTIVE_ALLOCATED:
            room[node] -= demand(pod)
    return room


def idle_now(drain: Drain, ledger: Ledger, now: float) -> IdleSoFar:
    """The idle time of closed places, and the GPUs idle on them now; written again only when that number
    changes."""
    free = np.maximum(ledger.free, 0)[:, GPU] // MILLI
    gpus = float(sum(min(held, int(free[node])) for node, held in drain.hold.gpus.items()))
    if gpus == drain.idle.gpus:
        return drain.idle
    return IdleSoFar(now, gpus, drain.idle.at(now))


def names_of(drain: Drain, ledger: Ledger) -> Mapping[str, float]:
    """GPUs by node name."""
    return {ledger.snapshot.nodes[node].name: float(gpus) for node, gpus in drain.hold.gpus.items()}
