"""Reclaim: the plan's net losses pass KAI's fairness tests, trigger by trigger (4.4).

Triggers are tested in the order of their first places, as the evictions of an action come before all of its
places; a trigger without a place comes first. Every lost pod counts for the first of its triggers that may
take it. Each trigger is tested on totals that include what earlier triggers got and took. A pod group that
takes nothing and only uses what is left over needs no right to reclaim. A moved victim is not a loss. Within
one victim queue, some order of the units must pass. As totals only fall, that holds if and only if there is a
unit that passes the tests as the last one taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from kai_cp_models.check import amounts, tree
from kai_cp_models.check.amounts import CheckedAmounts
from kai_cp_models.check.levels import Levels, QueueLevel, levelled
from kai_cp_models.check.planned_cluster import PlannedCluster
from kai_cp_models.check.victims import takers
from kai_cp_models.pods import GroupKey, Pod
from kai_cp_models.snapshot import PodGroup


@dataclass(frozen=True)
class Trigger:
    """A trigger, the pods it gets from reclaim, and the units it takes, by victim queue."""

    group: PodGroup
    gets: list[Pod]
    takes: dict[str, list[list[Pod]]]
    moves: frozenset[str]
    """Queues whose pods it moves."""
    disturbs: bool
    """Whether an eviction names it; a group that only uses what is left over takes nothing."""


def broken(world: PlannedCluster) -> Iterator[str]:
    """Reclaims that fairness does not allow."""
    if not world.snapshot.policy.plugin("proportion"):
        return
    claims = _claims(world)
    if not claims:
        return
    levels = Levels.before_reclaim(world)
    for claim in claims:
        if claim.disturbs:
            yield from _judge(world, levels, claim)
        for pod in claim.gets:
            levels.charge(claim.group, world.start.charge(pod, world.placed[pod.key].node), 1)
        for units in claim.takes.values():
            for pod in (pod for unit in units for pod in unit):
                victim = world.group_of(pod)
                assert victim is not None
                levels.charge(victim, _held(world, pod), -1)


def _claims(world: PlannedCluster) -> list[Trigger]:
    gets: dict[GroupKey, list[Pod]] = {}
    turns: dict[GroupKey, int] = {}
    named: set[GroupKey] = set()
    taken: dict[GroupKey, list[Pod]] = {}
    moves: dict[GroupKey, set[str]] = {}
    for decision in world.plan.decisions:
        if decision.action != "reclaim" or decision.pod not in world.snapshot.pod_by_key:
            continue
        pod = world.pod(decision.pod)
        group = world.group_of(pod)
        if group is None or group.queue not in world.snapshot.leaf_queues:
            continue
        if pod.key in world.added:
            gets.setdefault(group.key, []).append(pod)
            turns.setdefault(group.key, len(turns))
        elif decision is world.evictions.get(pod.key) and (able := takers(world, group, decision)):
            named |= set(decision.triggers)
            trigger = able[0].key
            gets.setdefault(trigger, [])
            if pod.key in world.lost:
                taken.setdefault(trigger, []).append(pod)
            else:
                moves.setdefault(trigger, set()).add(group.queue)
    groups = world.snapshot.group_by_key
    return [
        Trigger(
            groups[key], pods, _units(world, taken.get(key, [])), frozenset(moves.get(key, ())), key in named
        )
        for key, pods in sorted(gets.items(), key=lambda item: turns.get(item[0], -1))
        if groups[key].queue in world.snapshot.leaf_queues
    ]


def _units(world: PlannedCluster, pods: list[Pod]) -> dict[str, list[list[Pod]]]:
    """Units by victim queue: the first ``minimum`` lost pods of a pod set together, others alone."""
    by_group: dict[GroupKey, list[Pod]] = {}
    for pod in pods:
        if pod.group is not None:
            by_group.setdefault(pod.group, []).append(pod)
    found: dict[str, list[list[Pod]]] = {}
    for key, lost in by_group.items():
        group = world.snapshot.group_by_key[key]
        minimum = {leaf.name: leaf.minimum for leaf in group.root.leaves()}
        core: list[Pod] = []
        units = found.setdefault(group.queue, [])
        for pod in sorted(lost, key=lambda p: p.sort_key):
            name = tree.leaf_name(pod)
            if minimum.get(name, 0) > 0:
                minimum[name] -= 1
                core.append(pod)
            else:
                units.append([pod])
        if core:
            units.append(core)
    return found


def _held(world: PlannedCluster, pod: Pod) -> CheckedAmounts:
    assert pod.node is not None
    return world.start.charge(pod, pod.node)


def _cost(world: PlannedCluster, pods: list[Pod]) -> CheckedAmounts:
    return _sum(_held(world, pod) for pod in pods)


def _judge(world: PlannedCluster, levels: Levels, claim: Trigger) -> Iterator[str]:
    what = f"reclaim: pod group {claim.group.key} of queue {claim.group.queue}"
    request = amounts.demand(world.snapshot, claim.gets)
    path = world.snapshot.queue_path[claim.group.queue]
    yield from _may_reclaim(levels, claim, request, path, what)
    for queue in sorted(claim.moves | claim.takes.keys()):
        mine, theirs = levelled(world.snapshot, claim.group.queue, queue)
        if not _candidate(levels[mine], levels[theirs], request):
            yield f"{what} may not disturb queue {theirs}: {levels[theirs].described()}"
    costs = {queue: [_cost(world, unit) for unit in units] for queue, units in claim.takes.items()}
    pooled: dict[tuple[str, str], list[CheckedAmounts]] = {}
    for queue, units in costs.items():
        pooled.setdefault(levelled(world.snapshot, claim.group.queue, queue), []).extend(units)
    below = {  # losses on the trigger's own path
        name: _sum(
            c for queue, units in costs.items() if name in world.snapshot.queue_path[queue] for c in units
        )
        for name in path
    }
    for (mine, theirs), units in pooled.items():
        quota = levels[mine].within(
            amounts.plus(amounts.minus(levels[mine].held, below[mine]), request), "quota"
        )
        if not any(_last(levels[theirs], units, unit, quota) for unit in units):
            lost = _sum(units)
            yield (
                f"{what} takes too much from queue {theirs}: {levels[theirs].described()},"
                f" loses {', '.join(amounts.in_words(i, x) for i, x in enumerate(lost) if x)}"
            )
    yield from _saturation(world, levels, claim, request, pooled, below=below, what=what)


def _may_reclaim(
    levels: Levels, claim: Trigger, request: CheckedAmounts, path: tuple[str, ...], what: str
) -> Iterator[str]:
    leaf = levels[path[0]]
    if not leaf.within(amounts.plus(leaf.held, request), "fair_share"):
        asked = ", ".join(amounts.in_words(i, x) for i, x in enumerate(request) if x)
        yield f"{what} may not reclaim: with {asked} its queue is over its fair share: {leaf.described()}"
    if not claim.group.preemptible:
        for name in path:
            level = levels[name]
            if not level.user and not level.within(amounts.plus(level.firm, request), "quota"):
                yield f"{what} is non-preemptible and over the quota of queue {name}: {level.described()}"


def _candidate(mine: QueueLevel, theirs: QueueLevel, request: CheckedAmounts) -> bool:
    """The victim filter."""
    if not mine.within(amounts.plus(mine.held, request), "quota"):
        return theirs.exceeds(theirs.held, "allocatable")
    asked = [i for i, x in enumerate(request) if x]
    over = any(theirs.over(i, theirs.held[i], "quota") for i in asked)
    return over or not any(theirs.under(i, theirs.held[i], "quota") for i in asked)


def _last(theirs: QueueLevel, units: list[CheckedAmounts], last: CheckedAmounts, entitled: bool) -> bool:
    """Whether a unit may be taken after all the others."""
    remaining = amounts.plus(amounts.minus(theirs.held, _sum(units)), last)
    return theirs.exceeds(remaining, "allocatable") or (entitled and theirs.exceeds(remaining, "quota"))


def _saturation(
    world: PlannedCluster,
    levels: Levels,
    claim: Trigger,
    request: CheckedAmounts,
    pooled: dict[tuple[str, str], list[CheckedAmounts]],
    *,
    below: dict[str, CheckedAmounts],
    what: str,
) -> Iterator[str]:
    """A level over its fair share must end less saturated than each sibling that it takes from."""
    multiplier = max(world.snapshot.policy.saturation_multiplier, 1.0)
    asks = amounts.involves(world.snapshot, claim.gets)
    for (mine, theirs), units in pooled.items():
        gives = amounts.involves(
            world.snapshot,
            [
                pod
                for queue, taken in claim.takes.items()
                if theirs in world.snapshot.queue_path[queue]
                for unit in taken
                for pod in unit
            ],
        )
        held = amounts.plus(amounts.minus(levels[mine].held, below[mine]), request)
        left = amounts.minus(levels[theirs].held, _sum(units))
        for i in range(3):
            if not (asks[i] or gives[i]) or not levels[theirs].shares(i):
                continue
            ours, others = levels[mine].ratio(i, held[i]), levels[theirs].ratio(i, left[i])
            if ours > 1 + 1e-9 and ours * multiplier >= others - 1e-9:
                yield (
                    f"{what} leaves queue {mine} at {ours:.3g} of its fair share of {amounts.NAMES[i]},"
                    f" queue {theirs} that it takes from at {others:.3g}"
                )


def _sum(costs: Iterable[CheckedAmounts]) -> CheckedAmounts:
    total = (0, 0, 0)
    for cost in costs:
        total = amounts.plus(total, cost)
    return total
