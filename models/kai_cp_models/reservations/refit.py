"""The best places for all holds, and holds that later actions of the cycle have broken (12.3, 12.8)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from kai_cp_models.arrays import Ints
from kai_cp_models.budget import REFIT_SHARE, Allowance
from kai_cp_models.cycle import Cycle
from kai_cp_models.pods import GroupKey
from kai_cp_models.reservations.gang import GangNeeds
from kai_cp_models.reservations.items import Idle, NodeOfPod
from kai_cp_models.reservations.places import places
from kai_cp_models.reservations.search import Scene, item_of
from kai_cp_models.reservations.state import Hold
from kai_cp_models.reservations.timeline import Timeline


def chosen_places(
    holds: Sequence[Hold],
    timeline: Timeline,
    cycle: Cycle,
    *,
    counted: frozenset[GroupKey] | None = None,
) -> Mapping[GroupKey, NodeOfPod] | None:
    """Places with the least idle GPU time, then by the later goals; None where none are found in time.

    ``counted``: holds whose idle time counts; all by default.
    """
    if not holds:
        return None
    idle = Idle(*timeline.unused(max(hold.start for hold in holds)))
    if len(holds) == 1 and counted is None and (one := _alone(holds[0], timeline, cycle)) is not None:
        return {holds[0].key: one}
    items = [
        replace(item_of(hold, _domains(cycle, hold.shape)), reserved=counted is None or hold.key in counted)
        for hold in holds
    ]
    allowance = Allowance(cycle.budget, REFIT_SHARE * cycle.budget.work_left())
    hint = {hold.key: hold.nodes for hold in holds}
    answer = places(items, timeline.free, cycle.settings.solver, allowance, idle=idle, hint=hint)
    return answer.places


def _alone(hold: Hold, timeline: Timeline, cycle: Cycle) -> NodeOfPod | None:
    """Places of a single hold without a model: its cheapest nodes, if only the order of nodes matters."""
    if not hold.shape.simple or _domains(cycle, hold.shape):
        return None
    part = hold.shape.parts[0]
    if int(part.capacity(timeline.free(hold.start)).max(initial=0)) > 1:
        return None
    state = cycle.time
    assert state is not None
    scene = Scene(state, timeline.ledger, lambda: timeline.ledger, {}, cycle.settings.solver, cycle.budget)
    found = scene.beside(hold.shape, hold.start, hold.end, (), reserved=True, prefer=hold.stored_gpus)
    return found


def _domains(cycle: Cycle, shape: GangNeeds) -> tuple[Ints, ...]:
    """Levels at which the pods of a gang are drawn together, the closest first."""
    fabric = cycle.ledger.fixed.close_fabric
    found: list[Ints] = []
    if fabric is not None and len(shape.pods) > 1:
        for place in fabric.shared:
            if place.any():
                found.append(np.where(place > 0, place, -1 - np.arange(len(place))))
    constraint = None
    if shape.pods and shape.pods[0].group is not None and cycle.snapshot.policy.plugin("topology"):
        constraint = cycle.snapshot.group_by_key[shape.pods[0].group].root.constraint
    if constraint is not None and constraint.preferred and not constraint.error:
        trees = cycle.ledger.fixed.table.trees
        found.append(trees[constraint.topology].domain_at(constraint.preferred))
    return tuple(found)


def idle_by_node(hold: Hold, holds: Sequence[Hold], timeline: Timeline) -> dict[int, float]:
    """GPU-hours that stand idle for a hold on each of its nodes until its start (12.3)."""
    ends, rows = timeline.unused(hold.start)
    edges = sorted(
        {edge for other in holds for edge in (other.start, other.end) if timeline.now < edge < hold.start}
        | set(ends.tolist())
    )
    nodes = list(hold.gpus)
    rows = rows[:, nodes]
    mine = np.array(list(hold.gpus.values()))
    theirs = [
        (other, np.array([other.gpus.get(node, 0) for node in nodes]))
        for other in holds
        if other.key != hold.key and other.start < hold.start
    ]
    idle = np.zeros(len(nodes))
    for low, high in pairwise(edges):
        unused = rows[np.searchsorted(ends, low, side="right") - 1]
        for other, gpus in theirs:
            if other.active(low):
                unused = unused - gpus
        idle += np.minimum(mine, np.maximum(unused, 0)) * (high - low) / 3600.0
    return dict(zip(nodes, idle.tolist(), strict=True))


def broken(holds: Sequence[Hold], timeline: Timeline) -> list[Hold]:
    """Holds that no longer fit at their start beside what is there by then and the earlier holds."""
    found: list[Hold] = []
    kept: list[Hold] = []
    for hold in holds:
        fits = True
        for instant in sorted({hold.start, *(o.start for o in kept if hold.start < o.start < hold.end)}):
            room = timeline.free(instant)
            for node, usage in hold.usage.items():
                others = [o.usage[node] for o in kept if o.active(instant) and node in o.usage]
                left = room[node] - usage - sum(others, start=np.zeros_like(usage))
                fits = fits and not bool((left[usage > 0] < 0).any())
        (kept if fits else found).append(hold)
    return found
