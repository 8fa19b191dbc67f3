"""The state of the time axis in a cycle: run times, the holds that stand, and reports on the other
reservations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from kai_cp_models.arrays import Ints
from kai_cp_models.cycle import Cycle
from kai_cp_models.joint.problem import Ask
from kai_cp_models.ledger import Ledger
from kai_cp_models.plan import IdleSoFar, Offer, Reservation
from kai_cp_models.pods import GPU, MILLI, GroupKey, PodKey
from kai_cp_models.records.notes import Stored
from kai_cp_models.reservations.gang import GangNeeds
from kai_cp_models.reservations.held import HeldAmounts, HeldRoom, HoldWindow
from kai_cp_models.reservations.holders import Holder, outranks
from kai_cp_models.reservations.leaving import Departure, StartClaim, leaving
from kai_cp_models.reservations.timeline import Occupancy, Timeline, occupancy_of
from kai_cp_models.reservations.times import NEVER, Times
from kai_cp_models.snapshot import PodGroup


@dataclass(frozen=True, eq=False)
class Hold:
    """A start in the future with places for all pods. ``nodes``: node position by pod.

    ``order``: holders of earlier cycles come by ``made``, new ones after them. ``victims``: groups evicted at
    the start for an accepted price, which costs ``lost_gpu_hours``.
    """

    ask: Ask
    shape: GangNeeds
    start: float
    end: float
    nodes: Mapping[PodKey, int]
    made: float
    promised: float
    order: tuple[float, int]
    stored: Stored | None = None
    cause: str | None = None
    victims: tuple[GroupKey, ...] = ()
    lost_gpu_hours: float = 0.0
    stored_gpus: Mapping[int, float] = field(default_factory=dict)
    """GPUs by node of the stored reservation, for nodes that still exist."""
    beside: frozenset[GroupKey] = frozenset()
    """Of a hold made in this cycle: the groups that the cycle had placed before it."""

    @property
    def key(self) -> GroupKey:
        """The holder."""
        return self.ask.group.key

    def active(self, instant: float) -> bool:
        """Whether the holder will run at an instant."""
        return self.start <= instant < self.end

    @cached_property
    def usage(self) -> Mapping[int, Ints]:
        """[D] by node."""
        found: dict[int, Ints] = {}
        for part in self.shape.parts:
            for pod in part.pods:
                node = self.nodes[pod.key]
                found[node] = found.get(node, np.zeros_like(part.need)) + part.need
        return found

    @cached_property
    def gpus(self) -> Mapping[int, int]:
        """Whole GPUs by node."""
        return {node: int(usage[GPU]) // MILLI for node, usage in sorted(self.usage.items())}

    def claim(self) -> HeldAmounts:
        """The hold as other placements see it."""
        return HeldAmounts(self.key, self.start, self.end, self.usage)


@dataclass(frozen=True, eq=False)
class Drain:
    """Places that are closed until they are empty, for a gang without a start. ``idle``: idle time on them so
    far."""

    hold: Hold
    idle: IdleSoFar

    @property
    def key(self) -> GroupKey:
        """The gang."""
        return self.hold.key

    def claim(self) -> HeldAmounts:
        """The closed places as other placements see them."""
        return replace(self.hold.claim(), draining=True)


@dataclass(frozen=True, eq=False)
class TimeState:
    """The time axis of one cycle; replaced as a whole, never changed.

    ``unserved``: holders of earlier cycles whose turn has not come. ``drains``: places that are closed until
    they are empty. ``reports``: on groups that hold nothing any more. ``beyond``: why a group that asked
    holds nothing (reason, message).
    """

    times: Times
    holds: tuple[Hold, ...] = ()
    unserved: tuple[Holder, ...] = ()
    drains: tuple[Drain, ...] = ()
    reports: Mapping[GroupKey, Reservation] = field(default_factory=dict)
    beyond: Mapping[GroupKey, tuple[str, str]] = field(default_factory=dict)
    offers: Mapping[GroupKey, tuple[Offer, ...]] = field(default_factory=dict)
    started: Mapping[GroupKey, Hold] = field(default_factory=dict)

    @cached_property
    def leaving(self) -> Mapping[PodKey, Departure]:
        """Running pods that leave at a start: backfill, and victims of an accepted price."""
        claims = [(h.order, StartClaim(h.ask.group, h.start, h.stored, h.victims)) for h in self.holds]
        claims += [(h.order, StartClaim(h.ask.group, h.due, h.stored)) for h in self.unserved]
        claims.sort(key=lambda entry: (entry[0], entry[1].group.key))
        return leaving(self.times, [claim for _, claim in claims])

    @cached_property
    def occupancy(self) -> Occupancy:
        """When running pods leave."""
        return occupancy_of(self.times, {key: one.at for key, one in self.leaving.items()})

    def hold(self, key: GroupKey) -> Hold | None:
        """The hold of a group."""
        return next((hold for hold in self.holds if hold.key == key), None)

    @cached_property
    def untils(self) -> Mapping[GroupKey, float]:
        """Until when each group that starts now counts: a holder for its run time, other groups by 12.8.

        A group that yields to every hold counts now, but at no later start.
        """
        at_once = float(np.nextafter(self.times.now, np.inf))
        return {key: at_once if window.gives_way else window.until for key, window in self.windows.items()}

    @cached_property
    def windows(self) -> Mapping[GroupKey, HoldWindow]:
        """How each group counts in held capacity."""
        times, known = self.times, self.times.windows
        everyone = (*self.holds, *self.started.values())
        holders = [hold.ask.group for hold in everyone]
        # Holds made in this cycle were never promised: a group that starts after all counts like one that did
        # not ask.
        promised = [hold.ask.group for hold in everyone if hold.stored or hold.victims]
        held = frozenset(one.key for one in holders), frozenset(one.key for one in promised)
        if held in known:
            return known[held]
        if not holders:
            known[held] = {group.key: window_of(times, group, ()) for group in times.snapshot.groups}
            return known[held]
        found = dict(replace(self, holds=(), started={}).windows)
        ignored: dict[tuple[str, int], frozenset[GroupKey]] = {}
        queues = {one.queue for one in holders}
        for group in times.snapshot.groups:
            if group.queue not in queues:
                continue
            rank = group.queue, group.priority
            if rank not in ignored:
                ignored[rank] = frozenset(one.key for one in holders if outranks(group, one))
            if ignored[rank]:
                found[group.key] = replace(found[group.key], ignores=ignored[rank])
        found.update((one.key, window_of(times, one, promised)) for one in promised)
        known[held] = found
        return found

    def timeline(self, ledger: Ledger) -> Timeline:
        """Free capacity over time in the state of ``ledger``; closed places are taken at all times."""
        return Timeline(ledger, self.occupancy, self.untils, [drain.hold.usage for drain in self.drains])

    def bind(self, ledger: Ledger, *, strict: bool, without: frozenset[GroupKey] = frozenset()) -> None:
        """Let the holds bind every placement in ``ledger`` from now on. ``without``: holds that do not
        bind."""
        held = [(hold.key, hold.claim()) for hold in self.holds]
        held += [(drain.key, drain.claim()) for drain in self.drains]
        claims = [claim for key, claim in held if key not in without]
        timeline = Timeline(ledger, self.occupancy, self.untils)
        HeldRoom.of(timeline, claims, self.windows, strict=strict).bind(ledger)


def window_of(times: Times, group: PodGroup, holders: Iterable[PodGroup]) -> HoldWindow:
    """How a group counts in held capacity while ``holders`` hold it."""
    found = tuple(holders)
    if any(holder.key == group.key for holder in found):
        expected = times.expected(group)
        return HoldWindow(NEVER if expected is None else times.now + expected)
    ignores = frozenset(holder.key for holder in found if outranks(group, holder))
    return HoldWindow(times.until(group), times.gives_way(group), ignores, times.drains and group.preemptible)


def update(cycle: Cycle, **changes: object) -> TimeState:
    """Replace the time axis of the cycle by one with these changes."""
    assert cycle.time is not None
    found: TimeState = replace(cycle.time, **changes)  # type: ignore[arg-type]
    cycle.time = found
    return found
