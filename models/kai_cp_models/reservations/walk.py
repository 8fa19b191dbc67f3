"""Allocate with a time axis: holders first, then everybody along the fair order (4.2).

Each ask starts now if places exist together with everything fixed; else, if it may hold, its start becomes
the least instant at which they do; else it waits. Places of all stay free to change, starts do not.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from kai_cp_models.actions.common import entry_of, waiting_groups
from kai_cp_models.cycle import Cycle, Eviction, Waiting
from kai_cp_models.fairness import amounts
from kai_cp_models.fairness.order import FairOrder
from kai_cp_models.joint.admission import Admission
from kai_cp_models.joint.problem import Ask, signature
from kai_cp_models.ledger import Ledger
from kai_cp_models.placement import NoPlace, Placer, gate, put
from kai_cp_models.reservations.gang import Shape, shape_of, unsuited
from kai_cp_models.reservations.hero import Priced, offers_of, priced
from kai_cp_models.reservations.holders import (
    Holder,
    backfilled,
    candidate,
    cause_of_delay,
    drop,
    stored_holders,
)
from kai_cp_models.reservations.instants import clock, span
from kai_cp_models.reservations.loads import Beyond, Load, loads_of
from kai_cp_models.reservations.refit import chosen_places
from kai_cp_models.reservations.search import Found, Refused, Scene, cost_of_ask, stored_nodes
from kai_cp_models.reservations.state import Hold, time_of, update
from kai_cp_models.reservations.times import NEVER
from kai_cp_models.reservations.vectors import Vector
from kai_cp_models.snapshot import GroupKey, Offer, PodKey, PodStatus, Stage
from kai_cp_models.units import Batch

WAITING: Final = "WaitingForReservation"
_HOUR: Final = 3600.0
_TOLERANCE: Final = 1e-6


def allocate_in_time(cycle: Cycle) -> None:
    """Run the action on the cycle."""
    started = time.monotonic()
    walk = Walk(cycle)
    walk.holders()
    walk.everybody()
    walk.finish(time.monotonic() - started)


@dataclass(frozen=True, slots=True)
class _Start:
    """A start that was found, or why there is none (reason, message; empty: its ordinary reason)."""

    instant: float = NEVER
    found: Found | None = None
    priced: Priced | None = None
    why: tuple[str, str] = ("", "")
    proved: bool = True


class Walk:
    """One run of the action."""

    def __init__(self, cycle: Cycle) -> None:
        state = time_of(cycle)
        assert state is not None
        self.cycle = cycle
        self.times = state.times
        self.now = self.times.now
        self.ledger = cycle.ledger.copy()
        self.batches: dict[GroupKey, Batch] = waiting_groups(cycle, "allocate")
        self.holds: list[Hold] = []
        self.state = replace(state, holds=())
        self.root = self.ledger
        """The state before anybody but holders started."""
        self.movable: dict[GroupKey, tuple[Ask, Shape, float]] = {}
        self.refused = self.unproved = 0
        self._scene: Scene | None = None
        self._dead: dict[tuple[object, ...], Waiting] = {}
        self._new = 0
        self._hero_told: set[str] = set()
        self.turns: list[GroupKey] = []

    @classmethod
    def resumed(cls, cycle: Cycle, holds: Sequence[Hold]) -> Walk:
        """A walk in the present state of the cycle, with ``holds`` standing."""
        walk = cls(cycle)
        state = time_of(cycle)
        assert state is not None
        walk.state, walk.holds = state, list(holds)
        walk._changed()
        return walk

    def hand_over(self) -> None:
        """The walk's holds are the cycle's."""
        self.cycle.time = replace(self.state, holds=tuple(sorted(self.holds, key=lambda hold: hold.order)))
        self.cycle.ledger = self.ledger
        self.cycle.time.bind(self.ledger, strict=False)

    # --- what stands -----------------------------------------------------------------------------

    def scene(self) -> Scene:
        """Everything fixed at this moment."""
        if self._scene is None:
            self._scene = Scene(
                self.state,
                self.ledger,
                self._base,
                self.movable,
                self.cycle.settings.solver,
                self.cycle.budget,
            )
        return self._scene

    def _base(self) -> Ledger:
        """The ledger without the asks whose places may change."""
        base = self.root.copy()
        self.state.bind(base, strict=True, without=frozenset(hold.key for hold in self.holds))
        moving = {pod.key for ask, _, _ in self.movable.values() for pod in ask.pods}
        for key, held in self.ledger.held.items():
            if key not in moving and key not in base.held:
                pod = base.snapshot.pod_by_key[key]
                base.place(pod, held.node, held.gpu_groups, pipelined=held.status is PodStatus.PIPELINED)
        return base

    def _changed(self) -> None:
        """Holds or places have changed: whoever comes next meets the new ones."""
        self.state = replace(self.state, holds=tuple(self.holds))
        self.state.bind(self.ledger, strict=True)
        self._scene = None

    def _settle(self, found: Found) -> None:
        """Take over the places of holds and of admitted asks that a search has changed."""
        if found.moved:
            self.holds = [replace(h, nodes=found.moved.get(h.key, h.nodes)) for h in self.holds]
        if found.admitted:
            self.state = replace(self.state, holds=tuple(self.holds))
            base = self._base()
            for key, nodes in found.admitted.items():
                base = self._put(base, self.movable[key][0], nodes)
            self.ledger = base

    def _put(self, ledger: Ledger, ask: Ask, nodes: Mapping[PodKey, int]) -> Ledger:
        """The ask at these nodes; the ledger is changed."""
        for pod in ask.pods:
            node = nodes[pod.key]
            put(ledger, pod, node, pipelined=not ledger.fits(pod, now=True)[node])
        Placer(ask.gang).start_together(ledger, ask.batch)
        return ledger

    # --- holders ---------------------------------------------------------------------------------

    def holders(self) -> None:
        """Holders of earlier cycles: at their start or earlier; later only where there is no other way."""
        found, dropped = stored_holders(self.cycle, self.times, self.batches)
        self.state = replace(self.state, reports={**self.state.reports, **dropped})
        self._bound({holder.key: holder.stored.start for holder in found}, found)
        late: list[tuple[Holder, Refused]] = []
        for holder in found:
            outcome = self._at_promise(holder)
            if isinstance(outcome, Refused):
                late.append((holder, outcome))
        for holder in found:
            self._earlier(holder)
        for holder, refused in late:
            self._later(holder, refused)
        self._bound({hold.key: hold.start for hold in self.holds}, found)
        for hold in sorted(self.holds, key=lambda hold: hold.order):
            self.turns.append(hold.key)
            if hold.start <= self.now:
                self._begin(hold)

    def _bound(self, starts: Mapping[GroupKey, float], holders: Sequence[Holder]) -> None:
        """Note who leaves at these starts."""
        bounds: dict[GroupKey, float] = {}
        for holder in holders:
            if holder.key in starts:
                start = starts[holder.key]
                bounds.update(backfilled(self.times, holder.ask.group, holder.stored, start, bounds))
        for hold in self.holds:
            bounds.update({victim: min(hold.start, bounds.get(victim, NEVER)) for victim in hold.victims})
        self.state = replace(self.state, bounds=bounds)
        self._changed()

    def _interval(self, holder: Holder | Ask, start: float) -> float:
        group = holder.ask.group if isinstance(holder, Holder) else holder.group
        expected = self.times.expected(group)
        return NEVER if expected is None else start + expected

    def _gpus_stored(self, holder: Holder) -> dict[int, float]:
        index = self.ledger.snapshot.node_index
        return {index[name]: gpus for name, gpus in holder.stored.nodes.items() if name in index}

    def _at_promise(self, holder: Holder) -> Hold | Refused:
        """The holder at its promised start, on the places it has where these are still good."""
        start = max(holder.stored.start, self.now)
        price = self.times.notes(holder.key).price
        if price is not None and self.times.hero(holder.ask.group):
            paid = priced(
                self.scene(),
                holder.ask,
                holder.shape,
                start,
                self._interval(holder, start),
                self.holds,
                paid_at=min(start, holder.stored.start),
            )
            if paid is not None and paid.lost_gpu_hours <= price + _TOLERANCE:
                return self._hold_paid(holder, start, paid)
        outcome = self._try(holder, start)
        if isinstance(outcome, Refused):
            return outcome
        return self._hold(holder, start, outcome)

    def _try(self, holder: Holder, start: float) -> Found | Refused:
        scene, end = self.scene(), self._interval(holder, start)
        others = [hold for hold in self.holds if hold.key != holder.key]
        gpus = self._gpus_stored(holder)
        load = Load(holder.ask.group, cost_of_ask(self.ledger, holder.shape), start, end, True)
        reserved = start > self.now
        beyond = scene.loads.beyond(replace(load, reserved=reserved), loads_of(self.ledger, others))
        if beyond is not None:
            return Refused(beyond)
        nodes = stored_nodes(holder.shape, gpus)
        if nodes is not None and _fits(holder.shape, nodes, scene.room(start, end, others)):
            return Found(nodes, {}, {})
        return scene.at(holder.ask, holder.shape, start, end, others, reserved=reserved, prefer=gpus)

    def _hold(self, holder: Holder, start: float, found: Found, cause: str | None = None) -> Hold:
        self._settle(found)
        stored = holder.stored
        hold = Hold(
            holder.ask,
            holder.shape,
            start,
            self._interval(holder, start),
            found.nodes,
            stored.made,
            min(stored.promised, max(start, self.now)),
            (stored.made, 0),
            stored,
            cause,
            stored_gpus=self._gpus_stored(holder),
        )
        self.holds = [other for other in self.holds if other.key != hold.key] + [hold]
        self._changed()
        return hold

    def _hold_paid(self, holder: Holder, start: float, paid: Priced) -> Hold:
        hold = self._hold(holder, start, Found(paid.nodes, {}, {}))
        hold = replace(hold, victims=paid.victims, lost_gpu_hours=paid.lost_gpu_hours)
        self.holds = [other for other in self.holds if other.key != hold.key] + [hold]
        self._bound_victims(hold)
        return hold

    def _bound_victims(self, hold: Hold) -> None:
        leaving = {victim: min(hold.start, self.state.bounds.get(victim, NEVER)) for victim in hold.victims}
        self.state = replace(self.state, bounds={**self.state.bounds, **leaving})
        self._changed()

    def _earlier(self, holder: Holder) -> None:
        """An earlier start, where one exists beside the starts of all others."""
        hold = next((hold for hold in self.holds if hold.key == holder.key), None)
        if hold is None or hold.start <= self.now or hold.victims:
            return
        for instant in self._points(holder.shape, until=hold.start, others=hold.key):
            if instant >= hold.start or self.scene().spent_up:
                return
            outcome = self._try(holder, instant)
            if isinstance(outcome, Found):
                self._hold(holder, instant, outcome)
                return

    def _later(self, holder: Holder, refused: Refused) -> None:
        """The least start after all, with the cause; the reservation ends where there is none."""
        bound = refused.beyond
        cause = cause_of_delay(
            self.times, holder, bound.bound if bound else None, [bound.queue] if bound else ()
        )
        if cause != "BeyondShare":
            for instant in self._points(holder.shape, until=self.now + self._horizon):
                outcome = self._try(holder, instant)
                if isinstance(outcome, Found):
                    late = instant > holder.stored.start
                    self._hold(holder, instant, outcome, cause if late else None)
                    return
        text = bound.message if bound else "no later start is known"
        report = drop(holder.ask.group, holder.stored, cause, text)
        self.state = replace(self.state, reports={**self.state.reports, holder.key: report})
        self._changed()

    @property
    def _horizon(self) -> float:
        return float(self.times.settings.reservations.horizon_seconds)

    def _points(self, shape: Shape, *, until: float, others: GroupKey | None = None) -> list[float]:
        """Instants at which a start is worth a try: not before the sums allow it without any hold."""
        scene = self.scene()
        ends = [hold.end for hold in self.holds if hold.key != others]
        points = [point for point in scene.timeline.points(ends) if point <= until]
        low, high = 0, len(points)
        while low < high:
            middle = (low + high) // 2
            if scene.counts(shape, points[middle]):
                high = middle
            else:
                low = middle + 1
        return points[low:]

    def _begin(self, hold: Hold) -> None:
        """The holder starts: whoever is in the way by backfill or price is evicted, then it is placed."""
        self.holds = [other for other in self.holds if other.key != hold.key]
        self.state = replace(self.state, started={**self.state.started, hold.key: hold})
        self._changed()
        ledger = self.ledger
        for node, usage in sorted(hold.usage.items()):
            self._clear(hold, node, usage)
        for victim in hold.victims:
            self._evict(hold, victim)
        placed = Placer(hold.ask.gang).place(ledger, hold.ask.batch) if not hold.stored else None
        if isinstance(placed, Ledger) and not hold.victims:
            ledger = placed
        else:
            ledger = self._put(ledger, hold.ask, hold.nodes)
        self.ledger = self.root = ledger
        for pod in hold.ask.pods:
            self.cycle.placed_by[pod.key] = "reservation"
        self.cycle.sequence.setdefault(hold.key, len(self.cycle.sequence))
        self.cycle.waiting.pop(hold.key, None)
        self.batches.pop(hold.key, None)
        batch = hold.ask.gang.next_batch(ledger.status)
        if batch is not None:
            self.batches[hold.key] = batch
        self._changed()

    def _clear(self, hold: Hold, node: int, usage: Vector) -> None:
        """Evict backfill on the node, the newest first, until the hold fits."""
        snapshot = self.ledger.snapshot
        name = snapshot.nodes[node].name
        there = {
            pod.group for pod in snapshot.pods if pod.node == name and pod.key not in self.ledger.changed
        }
        leaving = sorted(
            (key for key in there if key is not None and self.state.bounds.get(key, NEVER) <= self.now),
            key=lambda key: (-self.times.start(snapshot.group_by_key[key]), key),
        )
        for key in leaving:
            room = self.ledger.idle[node] + self.ledger.releasing[node]
            if (room >= usage).all():
                return
            self._evict(hold, key)

    def _evict(self, hold: Hold, key: GroupKey) -> None:
        ledger = self.ledger
        for pod in ledger.fixed.gangs[key].pods:
            if pod.key not in ledger.changed and self.times.runs(ledger.snapshot.group_by_key[key]):
                if pod.node is None or pod.status in (PodStatus.RELEASING, PodStatus.STUCK_IN_RELEASING):
                    continue
                ledger.evict(pod)
                words = f"its room is held for {hold.key} from {clock(hold.start, self.now)}"
                self.cycle.evicted_by[pod.key] = Eviction("reservation", (hold.key,), words)

    # --- everybody -------------------------------------------------------------------------------

    def everybody(self) -> None:
        """All others along the fair order."""
        cycle, snapshot = self.cycle, self.cycle.snapshot
        entries = {
            key: entry_of(self.ledger, snapshot.group_by_key[key], batch)
            for key, batch in self.batches.items()
            if not any(hold.key == key for hold in self.holds)
        }
        for hold in self.holds:
            self._waits_itself(hold)
        order = FairOrder(snapshot, self.ledger.book, entries)
        asking = [pod for key in self.batches for pod in self.ledger.fixed.gangs[key].pods]
        admission = Admission(self.ledger, asking, cycle.settings.solver, cycle.budget)
        while not cycle.out_of_time() and (key := order.pop()) is not None:
            self.turns.append(key)
            group = snapshot.group_by_key[key]
            ask = Ask(group, self.ledger.fixed.gangs[key], self.batches[key])
            refusal = gate(self.ledger, group, ask.batch)
            why: Waiting | None
            why = Waiting(*refusal, proved=True) if refusal else self._start_now(ask, admission)
            if why is None:
                cycle.waiting.pop(key, None)
                order.use(self.ledger.book, group.queue)
                batch = ask.gang.next_batch(self.ledger.status)
                if batch is not None:
                    self.batches[key] = batch
                    order.push(key, entry_of(self.ledger, group, batch))
                continue
            if refusal is None:
                self.refused += 1
                self.unproved += not why.proved
            cycle.waiting[key] = why
            self._reserve(ask, why)
        self.refused += len(order)
        self.unproved += len(order)

    def _waits_itself(self, hold: Hold) -> None:
        text = f"its start is reserved for {clock(hold.start, self.now)}"
        self.cycle.waiting[hold.key] = Waiting(WAITING, text, True)

    def _window_end(self, ask: Ask) -> float:
        return self.state.untils[ask.group.key]

    def _start_now(self, ask: Ask, admission: Admission) -> Waiting | None:
        """Start the ask, or say why it cannot."""
        key = (*signature(self.ledger, ask), ask.group.queue if self.holds else None)
        dead = self._dead.get(key)
        if dead is not None:
            return dead
        until = self._window_end(ask)
        load = Load(ask.group, cost_of_pods(self.ledger, ask), self.now, until, False)
        beyond = self.scene().loads.beyond(load, loads_of(self.ledger, self.holds)) if self.holds else None
        outcome = NoPlace("") if beyond else Placer(ask.gang).place(self.ledger, ask.batch)
        if isinstance(outcome, Ledger):
            self._admit(ask, outcome, admission)
            return None
        why = Waiting("NodeFragmented", outcome.message, pod=outcome.pod)
        if outcome.subgroup or not outcome.pod:
            why = replace(why, reason="TopologyFragmented")
        refused = Refused(beyond)
        if not self.holds:
            decided = admission.decide(self.ledger, ask, why)
            if isinstance(decided, Ledger):
                self.ledger = decided
                self._note_movable(ask)
                self._changed()
                return None
            why = decided
        elif not beyond:
            found = self._rearranged(ask, until)
            if found is None:
                return None
            refused = found
        if self.holds:
            if self._overrule(ask, admission):
                return None
            why = self._held_from(ask, replace(why, proved=refused.proved), beyond)
        self._dead[key] = why
        return why

    def _admit(self, ask: Ask, ledger: Ledger, admission: Admission) -> None:
        self.ledger = ledger
        admission.admitted(ask)
        self._note_movable(ask)
        self._scene = None

    def _note_movable(self, ask: Ask) -> None:
        """Asks that only requests and static rules bind may be placed anew."""
        bound = any(
            rule.concerns(pod)
            for rule in self.ledger.rules
            if rule.name != "reservations"
            for pod in ask.pods
        )
        key = ask.group.key
        if bound or unsuited(self.ledger, ask) or key in self.movable:
            return
        if any(self.ledger.place_of(pod) for pod in ask.gang.pods if pod not in ask.pods):
            return
        shape = shape_of(self.ledger, ask)
        if shape is not None:
            self.movable[key] = (ask, shape, self._window_end(ask))

    def _rearranged(self, ask: Ask, until: float) -> Refused | None:
        """Start the ask by giving others other places; None when it has started."""
        if unsuited(self.ledger, ask):
            return Refused(proved=False)
        shape = shape_of(self.ledger, ask)
        if shape is None:
            return Refused()
        found = self.scene().at(ask, shape, self.now, until, self.holds, reserved=False)
        if isinstance(found, Refused):
            return found
        before = self.holds, self.ledger, self.state
        self._settle(found)
        self._changed()
        outcome = Placer(ask.gang).place(self.ledger, ask.batch)
        if not isinstance(outcome, Ledger):
            fits = all(self.ledger.fits(pod, now=False)[found.nodes[pod.key]] for pod in ask.pods)
            outcome = self._put(self.ledger.copy(), ask, found.nodes) if fits else outcome
        if isinstance(outcome, NoPlace):
            self.holds, self.ledger, self.state = before
            self._scene = None
            return Refused(proved=False)
        self.ledger = outcome
        self._note_movable(ask)
        self._changed()
        return None

    def _overrule(self, ask: Ask, admission: Admission) -> bool:
        """Start the ask in room held by whom it could preempt; these are planned anew (5.3)."""
        ignored = self.state.windows[ask.group.key].ignores & {hold.key for hold in self.holds}
        if not ignored:
            return False
        trial = self.ledger.copy()
        self.state.bind(trial, strict=True, without=ignored)
        outcome = Placer(ask.gang).place(trial, ask.batch)
        if not isinstance(outcome, Ledger):
            return False
        self.ledger = outcome
        admission.admitted(ask)
        self._note_movable(ask)
        self._dead.clear()
        overruled = [hold for hold in self.holds if hold.key in ignored]
        self.holds = [hold for hold in self.holds if hold.key not in ignored]
        self._changed()
        for hold in overruled:
            self.replan(hold, "HigherPriority")
        return True

    def replan(self, hold: Hold, cause: str) -> None:
        """A new start for a hold whose room went to somebody with the right to it."""
        group = hold.ask.group
        prefer = hold.stored_gpus
        for instant in self._points(hold.shape, until=self.now + self._horizon):
            if instant <= self.now:
                continue
            end = self._interval(hold.ask, instant)
            found = self.scene().at(
                hold.ask, hold.shape, instant, end, self.holds, reserved=True, prefer=prefer
            )
            if isinstance(found, Found):
                self._settle(found)
                late = hold.stored is not None and instant > hold.stored.start
                again = replace(
                    hold, start=instant, end=end, nodes=found.nodes, cause=cause if late else None
                )
                if hold.stored is None:
                    again = replace(again, promised=instant)
                self.holds.append(again)
                self._changed()
                self._waits_itself(again)
                return
        if hold.stored is not None:
            report = drop(group, hold.stored, cause, "somebody with a right to its room took it")
            self.state = replace(self.state, reports={**self.state.reports, group.key: report})
        self._changed()

    def _held_from(self, ask: Ask, why: Waiting, beyond: Beyond | None) -> Waiting:
        """The reason of an ask that only holds keep from starting; else ``why``."""
        trial = self.ledger.copy()
        self.state.bind(trial, strict=True, without=frozenset(hold.key for hold in self.holds))
        outcome = Placer(ask.gang).place(trial, ask.batch)
        if not isinstance(outcome, Ledger):
            return why
        nodes = {outcome.held[pod.key].node for pod in ask.pods}
        ahead = [hold for hold in self.holds if beyond is None and nodes & hold.usage.keys()]
        first = min(ahead or self.holds, key=lambda hold: (hold.start, hold.order))
        expected = self.times.expected(ask.group)
        needs = "says not how long it runs" if expected is None else f"needs {span(expected)}"
        left = span(first.start - self.now)
        text = f"held for {first.key} from {clock(first.start, self.now)}; {needs}, {left} are left"
        if not ask.group.preemptible and self.times.limit(ask.group) == NEVER:
            text += "; it cannot be preempted and nothing limits its run time"
        if beyond is not None:
            text = f"{beyond.message} at the start of {first.key} ({clock(first.start, self.now)})"
        return Waiting(WAITING, text, why.proved)

    # --- new reservations ------------------------------------------------------------------------

    def _reserve(self, ask: Ask, why: Waiting) -> None:
        """A start in the future for an ask that may have one."""
        key = ask.group.key
        full = len(self.holds) >= self.times.settings.reservations.most
        if key in {hold.key for hold in self.holds} or key in self.state.reports:
            return
        shape = None if full else candidate(self.cycle, self.times, ask)
        if shape is None:
            return
        start = self._least_start(ask, shape)
        offers = self._offers(ask, shape, start)
        if offers:
            self.state = replace(self.state, offers={**self.state.offers, key: offers})
        if start.found is None:
            if start.why[0]:
                self.cycle.waiting[key] = replace(why, reason=start.why[0], message=start.why[1], pod=None)
                self.state = replace(self.state, beyond={**self.state.beyond, key: start.why})
            self._scene = None
            return
        self._settle(start.found)
        self._new += 1
        paid = start.priced
        hold = Hold(
            ask,
            shape,
            start.instant,
            self._interval(ask, start.instant),
            start.found.nodes,
            self.now,
            start.instant,
            (self.now, self._new),
            victims=paid.victims if paid else (),
            lost_gpu_hours=paid.lost_gpu_hours if paid else 0.0,
        )
        self.holds.append(hold)
        self._changed()
        if hold.victims:
            self._bound_victims(hold)
        if hold.start <= self.now:
            self._begin_new(hold)
        else:
            self._waits_itself(hold)

    def _begin_new(self, hold: Hold) -> None:
        """A hero that pays for a start at once."""
        self._begin(hold)
        # Others were admitted before it and stay where they are from now on.
        self.movable = {}

    def _least_start(self, ask: Ask, shape: Shape) -> _Start:
        settings = self.times.settings.reservations
        price = self.times.notes(ask.group.key).price
        paying = price is not None and self.times.hero(ask.group)
        shares: Beyond | None = None
        dear = False
        proved = True
        points = self._points(shape, until=self.now + self._horizon)
        if paying:
            points = [p for p in self.scene().timeline.points() if p <= self.now + self._horizon]
        for instant in points:
            if self.scene().spent_up:
                return _Start(proved=False)
            end = self._interval(ask, instant)
            if paying:
                paid = priced(self.scene(), ask, shape, instant, end, self.holds)
                if paid is not None and price is not None and paid.lost_gpu_hours <= price + _TOLERANCE:
                    return _Start(instant, Found(paid.nodes, {}, {}), paid)
                continue
            if instant <= self.now:
                continue
            outcome = self.scene().at(ask, shape, instant, end, self.holds, reserved=True)
            if isinstance(outcome, Refused):
                proved = proved and outcome.proved
                if outcome.beyond is not None and outcome.beyond.bound == "share":
                    shares = outcome.beyond
                continue
            if settings.max_idle_gpu_hours >= 0:
                cheap = self._cheap_enough(ask, shape, instant, end, outcome)
                if cheap is None:
                    dear = True
                    continue
                outcome = cheap
            return _Start(instant, outcome)
        if dear:
            most = settings.max_idle_gpu_hours
            return _Start(why=("ReservationTooDear", f"every start leaves more than {most:g} GPU-hours idle"))
        if shares is not None:
            return _Start(
                why=("ReservationBeyondShare", f"nothing is held beyond the share: {shares.message}")
            )
        return _Start(proved=proved)

    def _cheap_enough(self, ask: Ask, shape: Shape, start: float, end: float, found: Found) -> Found | None:
        """Places whose idle time is within the cap."""
        most = self.times.settings.reservations.max_idle_gpu_hours
        hold = Hold(ask, shape, start, end, found.nodes, self.now, start, (self.now, 0))
        scene = self.scene()
        if self._idle_hours(hold) <= most + _TOLERANCE:
            return found
        others = [replace(h, nodes=found.moved.get(h.key, h.nodes)) for h in self.holds]
        nodes = chosen_places([hold, *others], scene.timeline, self.cycle, counted=frozenset((hold.key,)))
        if nodes is None:
            return None
        best = replace(hold, nodes=nodes[hold.key])
        if self._idle_hours(best) > most + _TOLERANCE:
            return None
        return Found(
            nodes[hold.key], {key: one for key, one in nodes.items() if key != hold.key}, found.admitted
        )

    def _idle_hours(self, hold: Hold) -> float:
        idle = self.scene().idle(hold.start)
        return sum(int(idle.cost(gpus, hold.start)[node]) for node, gpus in hold.gpus.items()) / 1000 / _HOUR

    def _offers(self, ask: Ask, shape: Shape, start: _Start) -> tuple[Offer, ...]:
        """What a hero would have to pay for earlier starts."""
        queue = ask.group.queue
        if not self.times.hero(ask.group) or queue in self._hero_told:
            return ()
        self._hero_told.add(queue)

        def idle_of(nodes: Mapping[PodKey, int], instant: float) -> float:
            end = self._interval(ask, instant)
            return self._idle_hours(Hold(ask, shape, instant, end, nodes, self.now, instant, (self.now, 0)))

        def end_of(instant: float) -> float:
            return self._interval(ask, instant)

        return offers_of(self.scene(), ask, shape, self.holds, start.instant, end_of, idle_of)

    # --- end -------------------------------------------------------------------------------------

    def finish(self, seconds: float) -> None:
        """The best places for all holds, then the ledger is the cycle's."""
        cycle = self.cycle
        self.state = replace(self.state, holds=tuple(sorted(self.holds, key=lambda hold: hold.order)))
        cycle.ledger = self.ledger
        cycle.time = self.state
        cycle.turns = tuple(self.turns)
        best = chosen_places(self.state.holds, self.state.timeline(self.ledger), cycle)
        if best is not None:
            holds = tuple(replace(hold, nodes=best[hold.key]) for hold in self.state.holds)
            update(cycle, holds=holds)
        state = time_of(cycle)
        assert state is not None
        state.bind(cycle.ledger, strict=False)
        for key in cycle.ledger.held:
            cycle.placed_by.setdefault(key, "allocate")
        cycle.stages.append(
            Stage(
                "allocate",
                "OPTIMAL" if self.unproved == 0 else "FEASIBLE",
                objective=self.refused,
                bound=self.refused - self.unproved,
                gap=self.unproved / max(1, self.refused),
                seconds=seconds,
            )
        )


def cost_of_pods(ledger: Ledger, ask: Ask) -> tuple[int, int, int]:
    """What the ask costs its queue at least."""
    return amounts.optimistic_batch(ledger.snapshot, ask.pods)


def _fits(shape: Shape, nodes: Mapping[PodKey, int], room: Vector) -> bool:
    """Whether the pods fit on these nodes and lie in one domain of every scope."""
    left = room.copy()
    for part in shape.parts:
        for pod in part.pods:
            node = nodes[pod.key]
            left[node] -= part.need
            if not part.mask[node] or (left[node][part.need > 0] < 0).any():
                return False
        for s in part.scopes:
            domain = shape.scopes[s].domain
            everywhere = {int(domain[nodes[p.key]]) for q in shape.parts if s in q.scopes for p in q.pods}
            if len(everywhere) > 1:
                return False
    return True
