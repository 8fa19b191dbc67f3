"""Hero jobs: what an earlier start costs other groups, stated before any pod is evicted (section 6)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from kai_cp_models.arrays import Ints
from kai_cp_models.budget import HERO_SHARE
from kai_cp_models.joint.problem import Ask
from kai_cp_models.joint.search import solve
from kai_cp_models.plan import Offer
from kai_cp_models.pods import GPU, MILLI, GroupKey, Pod, PodKey
from kai_cp_models.reservations.gang import GangNeeds
from kai_cp_models.reservations.loads import Load, Loads, loads_of
from kai_cp_models.reservations.search import Scene
from kai_cp_models.reservations.state import Hold
from kai_cp_models.reservations.times import NEVER
from kai_cp_models.reservations.vectors import demand
from kai_cp_models.snapshot import PodGroup
from kai_cp_models.solver import cp_model

_HOUR: Final = 3600.0
_TICKS: Final = 10.0
"""Lost work is counted in tenths of a GPU-second."""


@dataclass(frozen=True, slots=True)
class PricedPlaces:
    """Places at an instant, and what has to leave for them."""

    nodes: Mapping[PodKey, int]
    victims: tuple[GroupKey, ...]
    lost_gpu_hours: float


def priced(
    scene: Scene,
    ask: Ask,
    shape: GangNeeds,
    start: float,
    end: float,
    *,
    holds: Sequence[Hold],
    paid_at: float | None = None,
) -> PricedPlaces | None:
    """The least lost work for which the ask may start at ``start``; None where no price suffices.

    Whole pod groups leave: preemptible ones of strictly lower priority, in any queue. ``paid_at``: when they
    leave, where a price was accepted for an earlier instant.
    """
    others = [hold for hold in holds if hold.key != ask.group.key]
    room = scene.room(start, end, others)
    cap = float(scene.objective_cap)
    victims = _victims(scene, ask.group, start)
    model = cp_model.CpModel()
    leaves = {group.key: model.new_bool_var(f"lost[{group.key}]") for group, _ in victims}
    freed: dict[int, list[tuple[Ints, cp_model.IntVar]]] = {}
    for group, pods in victims:
        for node, pod in pods:
            freed.setdefault(node, []).append((demand(pod), leaves[group.key]))
    counts = _places(model, shape, room, freed)
    if counts is None:
        return None
    when = start if paid_at is None else paid_at
    cost = {group.key: _lost(scene, group, pods, when, cap) for group, pods in victims}
    # Among choices of equal cost, the one with fewer groups is taken, then the first by name.
    rank = {key: i for i, key in enumerate(sorted(leaves))}
    scale = (len(leaves) + 1) ** 2
    terms = [(cost[key] * scale + len(leaves) + rank[key]) * leaf for key, leaf in leaves.items()]
    if terms:
        model.minimize(sum(terms))
    work = HERO_SHARE * scene.budget.work_left()
    outcome, solver = solve(model, scene.settings, work, seconds=scene.budget.seconds_left())
    scene.budget.spend(outcome.work)
    if outcome.status != "solved" or outcome.cut:
        return None
    gone = tuple(sorted(key for key, leaf in leaves.items() if solver.value(leaf)))
    if _beyond(scene, ask, shape, start, end, others=others, gone=gone):
        return None
    nodes: dict[PodKey, int] = {}
    for p, part in enumerate(shape.parts):
        slots = [n for (q, n), x in sorted(counts.items()) if q == p for _ in range(solver.value(x))]
        nodes.update({pod.key: node for pod, node in zip(part.pods, slots, strict=True)})
    return PricedPlaces(nodes, gone, sum(cost[key] for key in gone) / _TICKS / _HOUR)


def _places(
    model: cp_model.CpModel,
    shape: GangNeeds,
    room: Ints,
    freed: Mapping[int, Sequence[tuple[Ints, cp_model.IntVar]]],
) -> dict[tuple[int, int], cp_model.IntVar] | None:
    """How many pods of each part go to each node, given ``room`` and what is ``freed`` there; None where even
    all of that is too little."""
    most = room.copy()
    for node, entries in freed.items():
        for need, _ in entries:
            most[node] += need
    counts: dict[tuple[int, int], cp_model.IntVar] = {}
    for p, part in enumerate(shape.parts):
        capacity = part.capacity(most)
        here = {}
        for node in np.flatnonzero(capacity).tolist():
            here[node] = counts[p, node] = model.new_int_var(0, int(capacity[node]), f"x[{p},{node}]")
        if int(capacity.sum()) < len(part.pods):
            return None
        model.add(sum(here.values()) == len(part.pods))
    _domains(model, shape, counts)
    for node in sorted({node for _, node in counts}):
        for d in range(room.shape[1]):
            terms = [
                int(shape.parts[p].need[d]) * x
                for (p, n), x in counts.items()
                if n == node and shape.parts[p].need[d]
            ]
            if terms:
                gives = [int(need[d]) * leaf for need, leaf in freed.get(node, ()) if need[d]]
                model.add(sum(terms) - sum(gives) <= int(room[node, d]))
    return counts


def _domains(
    model: cp_model.CpModel, shape: GangNeeds, counts: Mapping[tuple[int, int], cp_model.IntVar]
) -> None:
    """One domain for every scope."""
    for s, scope in enumerate(shape.scopes):
        chosen: dict[int, cp_model.IntVar] = {}
        for (p, node), x in counts.items():
            if s in shape.parts[p].scopes:
                k = int(scope.domain[node])
                if k not in chosen:
                    chosen[k] = model.new_bool_var(f"chosen[{s},{k}]")
                model.add(x <= len(shape.parts[p].pods) * chosen[k])
        model.add_exactly_one(chosen.values())


def _victims(scene: Scene, hero: PodGroup, start: float) -> list[tuple[PodGroup, list[tuple[int, Pod]]]]:
    """Groups that may leave for a hero and would still run at its start, with their pods and nodes."""
    times, ledger = scene.state.times, scene.ledger
    snapshot = ledger.snapshot
    found = []
    for groups in snapshot.preemptible_groups.values():
        for group in groups:
            if group.priority + group.aged_at_start >= hero.priority or group.key == hero.key:
                continue
            if not times.runs(group):
                continue
            pods = [
                (snapshot.node_index[pod.node], pod)
                for pod in snapshot.members[group.key]
                if pod.node is not None
                and pod.key in ledger.snapshot.pod_by_key
                and pod.key not in ledger.evicted
                and scene.state.occupancy.end(pod) > start
            ]
            if pods:
                found.append((group, pods))
    return sorted(found, key=lambda entry: entry[0].key)


def _lost(scene: Scene, group: PodGroup, pods: Sequence[tuple[int, Pod]], when: float, cap: float) -> int:
    """Tenths of GPU-seconds that the group loses when it leaves."""
    age = min(max(0.0, when - scene.state.times.start(group)), cap)
    gpus = sum(int(demand(pod)[GPU]) for _, pod in pods) / MILLI
    return round(gpus * age * _TICKS)


def _beyond(
    scene: Scene,
    ask: Ask,
    shape: GangNeeds,
    start: float,
    end: float,
    *,
    others: Sequence[Hold],
    gone: Sequence[GroupKey],
) -> bool:
    loads = Loads(scene.state, scene.ledger, dict.fromkeys(gone, start))
    load = Load(ask.group, shape.cost, start, end, True)
    return loads.beyond(load, loads_of(others)) is not None


def offers_of(
    scene: Scene,
    ask: Ask,
    shape: GangNeeds,
    holds: Sequence[Hold],
    last: float,
    *,
    end_of: Callable[[float], float],
    idle_of: Callable[[Mapping[PodKey, int], float], float],
) -> tuple[Offer, ...]:
    """Starts up to ``last``, each with the least cost at which it can be had; ``last`` costs nothing."""
    found: list[Offer] = []
    for instant in scene.timeline.points(hold.end for hold in holds):
        if instant > last or scene.spent_up:
            break
        if (
            last == NEVER
            and instant > scene.timeline.now + scene.state.times.settings.reservations.horizon_seconds
        ):
            break
        paid = priced(scene, ask, shape, instant, end_of(instant), holds=holds)
        if paid is not None and (not found or paid.lost_gpu_hours < found[-1].lost_gpu_hours - 1e-6):
            idle = idle_of(paid.nodes, instant)
            found.append(Offer(instant, paid.lost_gpu_hours, idle, paid.victims))
            if paid.lost_gpu_hours == 0:
                break
    return tuple(found)
