"""What a plan reports about reservations, and when the groups that wait might start (section 11)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from kai_cp_models.cycle import Cycle
from kai_cp_models.joint.problem import Ask, ask_of
from kai_cp_models.ledger import Ledger
from kai_cp_models.plan import Estimate, HoldState, Reservation, Unscheduled
from kai_cp_models.pods import ACTIVE_ALLOCATED, GPU, MILLI, GroupKey
from kai_cp_models.reservations.draining import idle_now, names_of
from kai_cp_models.reservations.gang import GangNeeds, shape_of
from kai_cp_models.reservations.refit import idle_by_node
from kai_cp_models.reservations.search import FoundPlaces, Scene
from kai_cp_models.reservations.state import Drain, Hold, TimeState
from kai_cp_models.reservations.timeline import Timeline
from kai_cp_models.reservations.times import NEVER, Times
from kai_cp_models.shown import clock, plural


def reservations(cycle: Cycle) -> tuple[Reservation, ...] | None:
    """One entry, by group, for every group that holds capacity, has started, was dropped or has an offer."""
    state = cycle.time
    if state is None or not state.times.settings.reservations.enabled:
        return None
    found = dict(state.reports)
    timeline = state.timeline(cycle.ledger)
    for hold in state.holds:
        found[hold.key] = _entry(cycle, state, hold, timeline)
    for drain in state.drains:
        found[drain.key] = _draining(cycle, state.times, drain)
    for key, hold in state.started.items():
        known = hold.stored or hold.victims or state.times.notes(key).closed
        if known and any(pod.key in cycle.ledger.held for pod in hold.ask.pods):
            found[key] = _started(cycle, state, hold)
    for key, offers in state.offers.items():
        group = cycle.snapshot.group_by_key[key]
        if key not in found and not any(p.key in cycle.ledger.held for p in cycle.snapshot.members[key]):
            text = "starts that others would have to pay for; none is promised"
            found[key] = Reservation(key, group.queue, "offered", message=text)
        if key in found:
            found[key] = replace(found[key], offers=offers)
    return tuple(found[key] for key in sorted(found))


def _state(hold: Hold) -> HoldState:
    if hold.stored is None:
        return "made"
    if hold.start == hold.stored.start:
        return "kept"
    return "earlier" if hold.start < hold.stored.start else "later"


def _entry(cycle: Cycle, state: TimeState, hold: Hold, timeline: Timeline) -> Reservation:
    snapshot, now = cycle.snapshot, state.times.now
    idle = idle_by_node(hold, state.holds, timeline)
    names = {node: snapshot.nodes[node].name for node in hold.gpus}
    kind = _state(hold)
    words = {
        "made": "holds",
        "kept": "still holds",
        "earlier": "may start earlier, it holds",
        "later": "starts later, it holds",
    }
    text = f"{words[kind]} {plural(len(hold.gpus), 'node')} from {clock(hold.start, now)}"
    if hold.cause is not None:
        text += f" ({hold.cause})"
    if hold.victims:
        text += f", when it evicts {plural(len(hold.victims), 'pod group')}"
    return Reservation(
        hold.key,
        hold.ask.group.queue,
        kind,
        start=hold.start,
        promised=min(hold.promised, hold.start),
        made=hold.made,
        nodes={names[node]: float(gpus) for node, gpus in hold.gpus.items()},
        domain=_domain(cycle, hold),
        waits_for=_waits_for(cycle, state, hold),
        drained=tuple(sorted(names[node] for node, hours in idle.items() if hours > 0)),
        idle_gpu_hours=sum(idle.values()),
        lost_gpu_hours=hold.lost_gpu_hours,
        victims=hold.victims,
        cause=hold.cause,
        message=text,
        beside=_beside(cycle, state.times, hold),
    )


def _draining(cycle: Cycle, times: Times, drain: Drain) -> Reservation:
    """Closed places: no start and no promise, only the time that they have stood idle."""
    now = cycle.snapshot.now
    idle = idle_now(drain, cycle.ledger, now)
    most = cycle.settings.reservations.max_idle_gpu_hours
    nodes = names_of(drain, cycle.ledger)
    text = (
        f"keeps {plural(len(nodes), 'node')} closed to all but preemptible pods until all is empty: no end is"
        f" known, so no start; given up when {most:g} GPU-hours have stood idle"
    )
    return Reservation(
        drain.key,
        drain.hold.ask.group.queue,
        "draining",
        made=drain.hold.made,
        nodes=nodes,
        domain=_domain(cycle, drain.hold),
        drained=tuple(sorted(nodes)),
        idle_gpu_hours=idle.at(now),
        message=text,
        idle=idle,
        beside=_beside(cycle, times, drain.hold),
    )


def _beside(cycle: Cycle, times: Times, hold: Hold) -> tuple[GroupKey, ...]:
    """Groups that are not backfill although the hold was made before they started (12.5): they had their
    places before the holder got its own there, or others were evicted for them. The holder waits for their
    ends."""
    snapshot, ledger = cycle.snapshot, cycle.ledger
    before = times.due(hold.key) if hold.made < times.now else None
    old, found = (before.nodes, set(before.beside)) if before else ({}, set[GroupKey]())
    new = {node for node in hold.gpus if snapshot.nodes[node].name not in old}
    by_right = {key for one in cycle.evicted_by.values() for key in one.triggers}
    for key, held in ledger.held.items():
        owner = snapshot.pod_by_key[key].group
        # A group that came before the new hold in the same cycle is not backfill.
        earlier = held.node in new and (before is not None or owner in hold.beside)
        if owner is not None and (earlier or (held.node in hold.gpus and owner in by_right)):
            found.add(owner)
    names = {snapshot.nodes[node].name: node in new for node in hold.gpus if new}
    backfill = set[GroupKey]()
    for pod in snapshot.pods if new else ():
        if pod.node not in names or pod.status not in ACTIVE_ALLOCATED or pod.key in ledger.evicted:
            continue
        group = snapshot.group_by_key.get(pod.group) if pod.group else None
        if group and times.entered(group, [pod]) >= hold.made:
            # The holder does not wait for pods that the start itself evicts.
            (found if names[pod.node or ""] else backfill).add(group.key)
    found -= backfill - by_right - (before.beside if before else set())
    there = (key for key in found - {hold.key} if key in snapshot.members)
    return tuple(sorted(key for key in there if any(map(ledger.place_of, snapshot.members[key]))))


def _domain(cycle: Cycle, hold: Hold) -> tuple[str, str] | None:
    if not hold.shape.scopes:
        return None
    level = hold.shape.scopes[0].level
    node = next(iter(hold.gpus))
    return level, cycle.snapshot.nodes[node].labels.get(level, "")


def _waits_for(cycle: Cycle, state: TimeState, hold: Hold) -> tuple[GroupKey, ...]:
    """Running groups on the held nodes that must end before the holder starts."""
    names = {cycle.snapshot.nodes[node].name for node in hold.gpus}
    found = {
        pod.group
        for pod in cycle.snapshot.pods
        if pod.node in names and pod.status in ACTIVE_ALLOCATED and pod.key not in cycle.ledger.evicted
        if state.occupancy.end(pod) == hold.start
    }
    return tuple(sorted(key for key in found if key is not None))


def _started(cycle: Cycle, state: TimeState, hold: Hold) -> Reservation:
    stored = hold.stored
    names = cycle.snapshot.nodes
    nodes: dict[str, float] = {}
    for pod in hold.ask.pods:
        held = cycle.ledger.held.get(pod.key)
        if held is not None:
            name = names[held.node].name
            nodes[name] = nodes.get(name, 0.0) + pod.spec.requests[GPU] / MILLI
    return Reservation(
        hold.key,
        hold.ask.group.queue,
        "started",
        start=state.times.now,
        promised=hold.promised if stored is None else stored.promised,
        made=hold.made,
        nodes=nodes,
        lost_gpu_hours=hold.lost_gpu_hours,
        victims=hold.victims,
        message="its pods have their places",
    )


def estimated(cycle: Cycle, entries: tuple[Unscheduled, ...], start: Ledger) -> tuple[Unscheduled, ...]:
    """The entries with estimates. ``start``: the state at the beginning of the cycle."""
    state = cycle.time
    if state is None or not state.times.settings.reservations.enabled:
        return entries
    return tuple(_Estimates(cycle, state, start).of(entries))


class _Estimates:
    """Start estimates of one plan; equal groups share one estimate."""

    def __init__(self, cycle: Cycle, state: TimeState, start: Ledger) -> None:
        self._cycle = cycle
        self._state = replace(state, holds=(), drains=(), started={})
        self._holds = state.holds
        self._ledger = start
        solver = cycle.settings.solver
        self._scene = Scene(self._state, start, lambda: start, {}, solver, cycle.budget)
        self._known: dict[tuple[object, ...], float] = {}

    def of(self, entries: tuple[Unscheduled, ...]) -> Iterator[Unscheduled]:
        unknown = self._state.times.unknown_ends
        starts = {hold.key: hold.start for hold in self._holds}
        for entry in entries:
            if entry.group in starts:
                yield entry._replace(estimate=Estimate("reserved", starts[entry.group], unknown))
                continue
            start = self._least(entry.group)
            if start is None:
                yield entry
            elif start == NEVER:
                yield entry._replace(estimate=Estimate("none", None, unknown))
            else:
                yield entry._replace(estimate=Estimate("notBefore", start, unknown))

    def _least(self, key: GroupKey) -> float | None:
        """The earliest instant at which the group would fit alone; None: not computed in time."""
        group = self._cycle.snapshot.group_by_key[key]
        gang = self._ledger.fixed.gangs[key]
        batch = self._ledger.state(gang).batch
        if batch is None or group.queue not in self._cycle.snapshot.leaf_queues:
            return NEVER
        ask = ask_of(self._ledger, gang, batch)
        alike = (*ask.kind.signature, group.queue, group.preemptible)
        if alike not in self._known:
            if self._cycle.budget.passed():
                return None
            self._known[alike] = self._search(ask)
        return self._known[alike]

    def _search(self, ask: Ask) -> float:
        shape = shape_of(self._ledger, ask)
        points = self._scene.timeline.points()
        low, high = 0, len(points)
        while low < high:
            middle = (low + high) // 2
            if self._fits(ask, shape, points[middle]):
                high = middle
            else:
                low = middle + 1
        return points[low] if low < len(points) else NEVER

    def _fits(self, ask: Ask, shape: GangNeeds, instant: float) -> bool:
        outcome = self._scene.at(ask, shape, instant, NEVER, (), reserved=False)
        return isinstance(outcome, FoundPlaces)
