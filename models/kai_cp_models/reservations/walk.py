"""Allocate with a time axis: the state of one run, which its steps share (12.2).

``keeping`` serves the holders of earlier cycles, ``serving`` serves all other groups in the fair order, and
``making`` plans new starts. An ask starts now if places exist for it beside everything fixed. Otherwise, if
it may hold capacity, its start becomes the earliest instant with such places; if not, it waits. The places of
all asks may still change; starts may not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from kai_cp_models.actions.allocate import AdmissionPass
from kai_cp_models.actions.asking import waiting_groups
from kai_cp_models.cycle import Cycle
from kai_cp_models.joint.problem import Ask
from kai_cp_models.ledger import Ledger
from kai_cp_models.placement import Placer, start_elsewhere
from kai_cp_models.plan import Reservation
from kai_cp_models.pods import GroupKey, PodKey
from kai_cp_models.refusal import Refusal
from kai_cp_models.reservations.gang import GangNeeds, shape_of, unsuited
from kai_cp_models.reservations.holders import Holder
from kai_cp_models.reservations.items import TICKS_PER_SECOND
from kai_cp_models.reservations.refit import chosen_places
from kai_cp_models.reservations.search import FoundPlaces, Scene, put_again
from kai_cp_models.reservations.state import Hold, update
from kai_cp_models.reservations.times import NEVER
from kai_cp_models.shown import clock

WAITING: Final = "WaitingForReservation"
HOUR: Final = 3600.0
TOLERANCE: Final = 1e-6


class Walk(AdmissionPass):
    """One run of the action."""

    def __init__(self, cycle: Cycle) -> None:
        state = cycle.time
        assert state is not None
        super().__init__(cycle, waiting_groups(cycle, "allocate"))
        self.root = cycle.ledger
        """The state before any group except holders has started; no step changes it."""
        cycle.ledger = cycle.ledger.copy()
        self.times = state.times
        self.now = self.times.now
        self.holds: list[Hold] = []
        self.state = replace(state, holds=())
        self.movable: dict[GroupKey, tuple[Ask, GangNeeds, float]] = {}
        self._scene: Scene | None = None
        self.refusals: dict[tuple[object, ...], Refusal] = {}
        self.made = 0
        self.heroes_told: set[str] = set()

    @property
    def ledger(self) -> Ledger:
        """The state so far, which is that of the cycle."""
        return self.cycle.ledger

    @ledger.setter
    def ledger(self, ledger: Ledger) -> None:
        self.cycle.ledger = ledger

    @property
    def placed(self) -> frozenset[GroupKey]:
        """The pod groups that the cycle has given places so far."""
        owners = (self.ledger.snapshot.pod_by_key[key].group for key in self.ledger.held)
        return frozenset(owner for owner in owners if owner is not None)

    @classmethod
    def resumed(cls, cycle: Cycle, holds: Sequence[Hold]) -> Walk:
        """A walk in the present state of the cycle, with ``holds`` standing."""
        walk = cls(cycle)
        state = cycle.time
        assert state is not None
        walk.state, walk.holds = state, list(holds)
        walk.changed()
        return walk

    def hand_over(self) -> None:
        """Make the walk's holds the cycle's."""
        self.cycle.time = replace(self.state, holds=tuple(sorted(self.holds, key=lambda hold: hold.order)))
        self.cycle.time.bind(self.ledger, strict=False)

    def scene(self) -> Scene:
        """Everything fixed at this moment."""
        if self._scene is None:
            self._scene = Scene(
                self.state,
                self.ledger,
                self.base,
                self.movable,
                self.cycle.settings.solver,
                self.cycle.budget,
            )
        return self._scene

    def base(self) -> Ledger:
        """The ledger without the asks whose places may change."""
        base = self.root.copy()
        self.state.bind(base, strict=True, without=frozenset(hold.key for hold in self.holds))
        moving = {pod.key for ask, _, _ in self.movable.values() for pod in ask.pods}
        stay = [key for key in self.ledger.held if key not in moving and key not in base.held]
        put_again(base, self.ledger, map(base.snapshot.pod_by_key.__getitem__, stay))
        return base

    def stay(self) -> None:
        """Fix the places of the asks that have started; all others are served beside them."""
        self.root, self.movable = self.ledger.copy(), {}
        self._scene = None
        self.refusals.clear()
        self.admission = self.admission.beside(self.root)

    def start_elsewhere(self, ask: Ask) -> None:
        """Start the ask, which waits for its promised places, wherever it fits now; others are served beside
        it."""
        if start_elsewhere(self.ledger, ask):
            self.stay()

    def started(self, ask: Ask) -> None:
        """Follow the ledger, in which the ask has got its places beside all others."""
        self.admission.admitted(ask)
        self.note_movable(ask)
        if self._scene is not None:
            self._scene.add(ask)

    def changed(self) -> None:
        """Forget everything derived from holds or places, as they have changed."""
        self.state = replace(self.state, holds=tuple(self.holds))
        for ledger in (self.root, self.ledger):
            self.state.bind(ledger, strict=True)
        self._scene = None

    def settle(self, found: FoundPlaces) -> None:
        """Take over the places of holds and of admitted asks that a search has changed."""
        if found.moved:
            self.holds = [replace(h, nodes=found.moved.get(h.key, h.nodes)) for h in self.holds]
        if found.admitted:
            self.state = replace(self.state, holds=tuple(self.holds))
            base = self.base()
            for key, nodes in found.admitted.items():
                # No rule but reservations concerns asks that may be placed again, so none refuses them.
                self.put(base, self.movable[key][0], nodes)
            self.ledger = base

    def put(self, ledger: Ledger, ask: Ask, nodes: Mapping[PodKey, int], *, checked: bool = False) -> bool:
        """Place the ask on these nodes, pod by pod; this changes the ledger.

        ``checked``: stop and return False at the first pod that its node does not take beside those before
        it.
        """
        for pod in ask.pods:
            node = nodes[pod.key]
            if checked and not ledger.fits_on(pod, node, now=False):
                return False
            ledger.place(pod, node, pipelined=not ledger.fits_on(pod, node, now=True))
        Placer(ask.gang).start_together(ledger, ask.pods)
        return True

    def owes(self, holders: Iterable[Holder]) -> None:
        """Note holders that hold nothing until their turn comes; groups in their way leave at the time that
        was set."""
        self.state = replace(self.state, unserved=tuple(holders))
        self.changed()

    def serves(self, key: GroupKey) -> None:
        """Mark a holder of an earlier cycle as decided."""
        self.owes(holder for holder in self.state.unserved if holder.key != key)

    def interval(self, ask: Ask, start: float) -> float:
        """When a group that starts at ``start`` ends, as far as declared."""
        expected = self.times.expected(ask.group)
        return NEVER if expected is None else start + expected

    @property
    def horizon(self) -> float:
        """How far ahead starts are promised [s]."""
        return float(self.times.settings.reservations.horizon_seconds)

    def points(self, shape: GangNeeds, *, until: float, others: GroupKey | None = None) -> list[float]:
        """Instants at which a start is worth a try: none before the sums allow it without any hold."""
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

    def report(self, *ended: Reservation) -> None:
        """Note reservations that end without a start."""
        reports = {**self.state.reports, **{one.group: one for one in ended}}
        self.state = replace(self.state, reports=reports)

    def stands(self, hold: Hold) -> None:
        """Add the hold, in place of any other of its holder."""
        self.holds = [other for other in self.holds if other.key != hold.key] + [hold]
        self.serves(hold.key)

    def waits_itself(self, hold: Hold) -> None:
        """Record why a holder waits."""
        text = f"its start is reserved for {clock(hold.start, self.now)}"
        self.cycle.waiting[hold.key] = Refusal(WAITING, text)

    def window_end(self, ask: Ask) -> float:
        """Until when an ask that starts now counts in held capacity."""
        return self.state.untils[ask.group.key]

    def note_movable(self, ask: Ask) -> None:
        """Note asks that only requests and static rules bind: they may be placed again."""
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
        self.movable[key] = ask, shape_of(self.ledger, ask), self.window_end(ask)

    def idle_hours(self, hold: Hold) -> float:
        """GPU-hours that stand idle for a hold before its start, with all other holds ignored."""
        idle = self.scene().idle(hold.start)
        ticks = sum(int(idle.cost(gpus, hold.start)[node]) for node, gpus in hold.gpus.items())
        return ticks / TICKS_PER_SECOND / HOUR

    def finish(self, seconds: float) -> None:
        """Find the best places for all holds, and note what was served."""
        cycle = self.cycle
        self.state = replace(self.state, holds=tuple(sorted(self.holds, key=lambda hold: hold.order)))
        cycle.time = self.state
        best = chosen_places(self.state.holds, self.state.timeline(self.ledger), cycle)
        if best is not None:
            holds = tuple(replace(hold, nodes=best[hold.key]) for hold in self.state.holds)
            update(cycle, holds=holds)
        state = cycle.time
        assert state is not None
        state.bind(cycle.ledger, strict=False)
        self.record(seconds)
