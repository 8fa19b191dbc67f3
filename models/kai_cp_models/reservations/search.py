"""The earliest start for which places exist beside everything fixed, and these places (12.2, 12.4).

Cheap answers come first: counting refuses the start, or the cheapest free nodes suffice. The joint model is
asked only if neither decides. In it the places of all holds and of everything admitted now may change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kai_cp_models.arrays import Ints
from kai_cp_models.budget import PLACES_SHARE, Allowance, Budget
from kai_cp_models.joint.problem import Ask
from kai_cp_models.ledger import Ledger
from kai_cp_models.limits import LIMITS
from kai_cp_models.pods import GPU, MILLI, GroupKey, Pod, PodKey, PodStatus
from kai_cp_models.reservations.gang import GangNeeds, GangPart
from kai_cp_models.reservations.items import GangInterval, Idle, NodeOfPod, PlacedGangs
from kai_cp_models.reservations.loads import Beyond, Load, Loads, loads_of
from kai_cp_models.reservations.places import places
from kai_cp_models.reservations.state import Hold, TimeState
from kai_cp_models.reservations.timeline import Timeline
from kai_cp_models.settings import SolverSettings


@dataclass(frozen=True, slots=True)
class FoundPlaces:
    """Places at one instant. ``moved``: new places of holds; ``admitted``: of asks admitted in this cycle."""

    nodes: NodeOfPod
    moved: Mapping[GroupKey, NodeOfPod]
    admitted: Mapping[GroupKey, NodeOfPod]


@dataclass(frozen=True, slots=True)
class NoPlaces:
    """Why there are no places at an instant. ``proved``: no other arrangement helps."""

    beyond: Beyond | None = None
    proved: bool = True


@dataclass(eq=False)
class Scene:
    """What is fixed while a start is searched.

    ``ledger``: with everything admitted. ``base``: the same without the ``movable`` asks, whose places may
    change (ask, shape, until when it counts).
    """

    state: TimeState
    ledger: Ledger
    base: Callable[[], Ledger]
    movable: Mapping[GroupKey, tuple[Ask, GangNeeds, float]]
    settings: SolverSettings
    budget: Budget

    @property
    def spent_up(self) -> bool:
        """Whether this action has no work left for another solve."""
        return self.budget.work_left() < LIMITS.places_work or self.budget.passed()

    def allowance(self) -> Allowance:
        """The work that one solve may use."""
        return Allowance(self.budget, PLACES_SHARE * self.budget.work_left())

    @property
    def objective_cap(self) -> int:
        """Upper limit of the work that a group can lose, in seconds."""
        return self.state.times.settings.objective.lost_work_cap_seconds

    def __post_init__(self) -> None:
        self.timeline = self.state.timeline(self.ledger)
        self._before: Timeline | None = None
        self.loads = Loads(self.state, self.ledger)

    def add(self, ask: Ask) -> None:
        """Follow the ledger, in which the ask has got its places; nothing else has changed there."""
        self.timeline.add(ask.pods)
        self.loads.add(ask.group, ask.pods)
        movable = self.movable.get(ask.group.key)
        if self._before is not None and (movable is None or movable[0] is not ask):
            put_again(self._before.ledger, self.ledger, ask.pods)
            self._before.add(ask.pods)

    @property
    def before(self) -> Timeline:
        """Free capacity over time without the asks that may be placed again."""
        if self._before is None:
            self._before = self.state.timeline(self.base())
        return self._before

    def at(
        self,
        ask: Ask,
        shape: GangNeeds,
        start: float,
        end: float,
        holds: Sequence[Hold],
        *,
        reserved: bool,
        prefer: Mapping[int, float] | None = None,
        solve: bool = True,
    ) -> FoundPlaces | NoPlaces:
        """Places for the ask from ``start`` to ``end`` beside ``holds`` and everything admitted.

        ``prefer``: GPUs by node where it has a reservation; ``solve``: whether models may be asked.
        """
        load = Load(ask.group, shape.cost, start, end, reserved)
        beyond = self.loads.beyond(load, loads_of(holds, ask.group.key))
        if beyond is not None:
            return NoPlaces(beyond)
        if not self.counts(shape, start):
            return NoPlaces()
        others = [hold for hold in holds if hold.key != ask.group.key]
        if not self.sums(shape, start, end, others):
            return NoPlaces()
        nodes = self.beside(shape, start, end, holds, reserved=reserved, prefer=prefer)
        if nodes is not None:
            return FoundPlaces(nodes, {}, {})
        if not solve or self.spent_up:
            return NoPlaces(proved=False)
        return self._together(ask, shape, start, end, holds, reserved=reserved, prefer=prefer)

    def counts(self, shape: GangNeeds, start: float) -> bool:
        """Whether the sums allow the shape at ``start`` while all holds are ignored; False is a proof."""
        now = self._counts(shape, start, self.timeline)
        return now or (bool(self.movable) and self._counts(shape, start, self.before))

    def _counts(self, shape: GangNeeds, start: float, timeline: Timeline) -> bool:
        """Whether the sums allow the shape at ``start`` while all holds are ignored."""
        free = timeline.free(start)
        for part in shape.parts:
            capacity = part.capacity(free)
            if _most(shape, part, capacity) < len(part.pods):
                return False
        return True

    def sums(self, shape: GangNeeds, start: float, end: float, holds: Sequence[Hold]) -> bool:
        """Whether the total of GPUs suffices while the shape runs; False is a proof for all places.

        Placing a group elsewhere changes no sum, so groups admitted now need no look.
        """
        for instant in sorted({start, *(hold.start for hold in holds if start < hold.start < end)}):
            active = [shape, *(hold.shape for hold in holds if hold.active(instant))]
            if sum(one.milli_gpus for one in active) > self.timeline.gpus(instant):
                return False
        return True

    def beside(
        self,
        shape: GangNeeds,
        start: float,
        end: float,
        holds: Iterable[Hold],
        *,
        reserved: bool,
        prefer: Mapping[int, float] | None,
    ) -> NodeOfPod | None:
        """The cheapest nodes beside everything in its present place; None where the shape needs a model."""
        if not shape.simple:
            return None
        part = shape.parts[0]
        room = self.room(start, end, holds)
        capacity = part.capacity(room)
        if _most(shape, part, capacity) < len(part.pods):
            return None
        cost = np.zeros(len(capacity), dtype=np.float64)
        if reserved and start > self.timeline.now:
            idle = self.idle(start)
            for k in np.unique(capacity[capacity > 0]).tolist():
                here = capacity == k
                cost[here] = idle.cost(int(k) * part.gpus // MILLI, start)[here] / int(k)
        return _fill(shape, part, capacity, cost, prefer or {})

    def room(self, start: float, end: float, holds: Iterable[Hold]) -> Ints:
        """[N, D] what is free from ``start`` to ``end`` beside the holds in their present places."""
        found = tuple(holds)
        room = self._less(start, found)
        for instant in sorted({hold.start for hold in found if start < hold.start < end}):
            room = np.minimum(room, self._less(instant, found))
        return room

    def _less(self, instant: float, holds: Iterable[Hold]) -> Ints:
        room: Ints = self.timeline.free(instant).copy()
        for hold in holds:
            if hold.active(instant):
                for node, usage in hold.usage.items():
                    room[node] -= usage
        return room

    def idle(self, last: float) -> Idle:
        """The GPUs that stay unused until ``last``."""
        return Idle(*self.timeline.unused(last))

    def _together(
        self,
        ask: Ask,
        shape: GangNeeds,
        start: float,
        end: float,
        holds: Sequence[Hold],
        *,
        reserved: bool,
        prefer: Mapping[int, float] | None,
    ) -> FoundPlaces | NoPlaces:
        mine = GangInterval(ask.group.key, shape, start, end, reserved, prefer or {})
        items = [item_of(hold) for hold in holds if hold.key != ask.group.key]
        hint = {hold.key: hold.nodes for hold in holds}
        moving: PlacedGangs | None = None
        if self.movable:
            # If no rearrangement helps, a second model is not needed.
            asked = [
                GangInterval(key, other, self.timeline.now, until, False)
                for key, (_, other, until) in self.movable.items()
            ]
            moving = self._solve([mine, *items, *asked], self.before, hint)
            if moving.places is None and moving.proved:
                return NoPlaces()
        if items or not shape.simple:
            answer = self._solve([mine, *items], self.timeline, hint)
            if answer.places is not None:
                found = dict(answer.places)
                return FoundPlaces(found.pop(mine.key), found, {})
            if moving is None:
                return NoPlaces(proved=answer.proved)
        if moving is None or moving.places is None:
            return NoPlaces(proved=moving is None)
        found = dict(moving.places)
        admitted = {key: found.pop(key) for key in self.movable}
        return FoundPlaces(found.pop(mine.key), found, admitted)

    def _solve(
        self, items: Sequence[GangInterval], timeline: Timeline, hint: Mapping[GroupKey, NodeOfPod]
    ) -> PlacedGangs:
        return places(items, timeline.free, self.settings, self.allowance(), hint=hint)


def put_again(ledger: Ledger, placed: Ledger, pods: Iterable[Pod]) -> None:
    """Give pods in ``ledger`` the places that they have in ``placed``."""
    for pod in pods:
        held = placed.held[pod.key]
        ledger.place(pod, held.node, held.gpu_groups, pipelined=held.status is PodStatus.PIPELINED)


def item_of(hold: Hold, domains: tuple[Ints, ...] = ()) -> GangInterval:
    """A hold as the model sees it.

    ``domains``: for each level that it needs, the domain [N] of every node.
    """
    return GangInterval(hold.key, hold.shape, hold.start, hold.end, True, hold.stored_gpus, domains)


def _domains(shape: GangNeeds, part: GangPart) -> NDArray[np.int64] | None:
    return shape.scopes[part.scopes[0]].domain if part.scopes else None


def _most(shape: GangNeeds, part: GangPart, capacity: Ints) -> int:
    """The largest number of pods of a part that one domain takes."""
    domain = _domains(shape, part)
    if domain is None:
        return int(capacity.sum())
    inside = domain >= 0
    if not inside.any():
        return 0
    return int(np.bincount(domain[inside], weights=capacity[inside]).max())


def _fill(
    shape: GangNeeds,
    part: GangPart,
    capacity: Ints,
    cost: NDArray[np.float64],
    prefer: Mapping[int, float],
) -> dict[PodKey, int] | None:
    """Put the pods on the cheapest nodes of the cheapest domain; among equal nodes the present ones first,
    then by name."""
    count = len(part.pods)
    kept = np.zeros(len(capacity), dtype=np.int64)
    for node in prefer:
        kept[node] = -1
    order = np.lexsort((np.arange(len(capacity)), kept, cost))
    order = order[capacity[order] > 0]
    domain = _domains(shape, part)
    options: list[tuple[float, int, list[int]]] = []
    for k in [None] if domain is None else np.unique(domain[order]).tolist():
        slots: list[int] = []
        total, stays = 0.0, 0
        for node in order.tolist():
            if k is not None and domain is not None and domain[node] != k:
                continue
            take = min(int(capacity[node]), count - len(slots))
            slots += [node] * take
            total += take * float(cost[node])
            stays += take * int(kept[node])
            if len(slots) == count:
                break
        if len(slots) == count:
            options.append((total, stays, slots))
    if not options:
        return None
    slots = min(options)[2]
    return {pod.key: node for pod, node in zip(part.pods, sorted(slots), strict=True)}


def stored_nodes(shape: GangNeeds, gpus: Mapping[int, float]) -> dict[PodKey, int] | None:
    """The nodes of a stored reservation pod by pod; None where it does not hold exactly this gang."""
    left = {node: round(amount * MILLI) for node, amount in sorted(gpus.items())}
    found: dict[PodKey, int] = {}
    for part in sorted(shape.parts, key=lambda part: -part.gpus):
        if not part.gpus:
            return None
        for pod in part.pods:
            node = next((n for n, room in left.items() if room >= part.need[GPU] and part.mask[n]), None)
            if node is None:
                return None
            left[node] -= int(part.need[GPU])
            found[pod.key] = node
    return found if not any(left.values()) else None
