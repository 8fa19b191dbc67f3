"""Reclaim: the plan's net losses pass KAI's fairness tests, trigger by trigger (4.4).

Triggers are tested in the order of their first places, because the evictions of an action come before all of
its places; a trigger without a place comes first. Every lost pod counts for the first of its triggers that
may take it. Each trigger is tested on totals that include what earlier triggers got and took. A pod group
that takes nothing and only uses what is left over needs no right to reclaim. What a group gets beyond its
batch (5.3) needs none either, and comes after all triggers. A moved victim is not a loss, unless
``allowConsolidatingReclaim`` is false. Within one victim queue, the units pass the tests in some order in
which each pod group gives up its surplus before its core (5.4). Totals only fall, so such an order exists if
and only if the last unit of some pod group passes the tests as the last one of all. Promised places that
reclaim takes back are lost as well; no decision shows for which trigger, so they may be a unit of each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from kai_cp_models.check import amounts, tree
from kai_cp_models.check.amounts import CheckedAmounts
from kai_cp_models.check.levels import Levels, QueueLevel
from kai_cp_models.check.planned_cluster import PlannedCluster, Violation
from kai_cp_models.check.victims import takers
from kai_cp_models.pods import GpuKind, GroupKey, Pod, PodStatus
from kai_cp_models.snapshot import PodGroup, Subgroup


class Trigger(NamedTuple):
    """A trigger, the pods it gets from reclaim, and the pods that are lost to it, by pod group."""

    group: PodGroup
    gets: list[Pod]
    takes: Mapping[GroupKey, list[Pod]]
    moves: Sequence[tuple[PodGroup, Pod]]
    """Pods that it moves; a share by memory may be charged differently on its new node."""
    disturbs: bool
    """Whether an eviction names it; a group that only uses what is left over takes nothing."""

    def __str__(self) -> str:
        return f"pod group {self.group.key} of queue {self.group.queue}"

    def breaks(self, words: str) -> Violation:
        """What is wrong with it."""
        return Violation("reclaim", words, groups=(self.group.key,))


class _Loss(NamedTuple):
    """What a trigger takes from one queue, ``theirs``, beside which its own side is ``mine``.

    ``held``: what ``mine`` holds with all that the trigger gets and takes. ``left``: what ``theirs`` does.
    """

    mine: QueueLevel
    theirs: QueueLevel
    lost: CheckedAmounts
    held: CheckedAmounts
    left: CheckedAmounts


_Costs = dict[tuple[str, bool], CheckedAmounts]
"""What pods cost in all, by queue and whether they can be preempted."""


def broken(world: PlannedCluster) -> Iterator[Violation]:
    """Reclaims that fairness does not allow."""
    if not world.snapshot.policy.plugin("proportion"):
        return
    claims = _claims(world)
    if not claims:
        return
    levels, placed, charge = Levels.before_reclaim(world), world.placed, world.start.charge
    net = world.snapshot.policy.allow_consolidating_reclaim
    for claim in claims:
        got, costs = _sum(charge(pod, placed[pod.key].node) for pod in claim.gets), _costs(world, claim)
        if claim.disturbs:
            yield from _judge(world, levels, claim, got, costs)
        levels.charge(claim.group.queue, claim.group.preemptible, got, 1)
        for (queue, preemptible), cost in costs.items():
            levels.charge(queue, preemptible, cost, -1)
        for group, pod in claim.moves:
            change = amounts.minus(charge(pod, placed[pod.key].node), _cost(world, [pod] if net else []))
            levels.charge(group.queue, group.preemptible, change, 1)


def _claims(world: PlannedCluster) -> list[Trigger]:
    gets: dict[GroupKey, list[Pod]] = {}
    turns: dict[GroupKey, int] = {}
    named: set[GroupKey] = set()
    taken: dict[GroupKey, dict[GroupKey, list[Pod]]] = {}
    moves: dict[GroupKey, list[tuple[PodGroup, Pod]]] = {}
    groups, leaves = world.snapshot.group_by_key, world.snapshot.leaf_queues
    added, evictions = world.added, world.evictions
    for decision in world.plan.decisions:
        key = decision.pod
        if decision.action != "reclaim" or (key not in added and decision is not evictions.get(key)):
            continue
        pod = world.pod(key)
        group = world.group_of(pod)
        if group is None or group.queue not in leaves:
            continue
        if key in added:
            gets.setdefault(group.key, []).append(pod)
            turns.setdefault(group.key, len(turns))
        elif able := takers(world, group, decision):
            named.update(decision.triggers)
            trigger = able[0].key
            gets.setdefault(trigger, [])
            if key in world.lost or not world.snapshot.policy.allow_consolidating_reclaim:
                taken.setdefault(trigger, {}).setdefault(group.key, []).append(pod)
            if key not in world.lost:
                moves.setdefault(trigger, []).append((group, pod))
    claims, left_over = list[Trigger](), list[Trigger]()
    for name, pods in sorted(gets.items(), key=lambda item: turns.get(item[0], -1)):
        if (group := groups[name]).queue in leaves:
            batch = _batch(world, group, pods)
            claims.append(Trigger(group, batch, taken.get(name, {}), moves.get(name, ()), name in named))
            left_over.append(Trigger(group, [pod for pod in pods if pod not in batch], {}, (), False))
    return claims + left_over


def _batch(world: PlannedCluster, group: PodGroup, gets: Sequence[Pod]) -> list[Pod]:
    """What a trigger reclaims for (5.3): what its minimum lacked before, or one increment."""
    earlier = (
        pod for pod in world.placed_of(group) if world.earlier(world.placed[pod.key].action, "reclaim")
    )
    there = {pod.key: pod for pod in (*world.active_before(group.key), *earlier)}
    return _next(group.root, tree.counts(there.values()), sorted(gets, key=lambda pod: pod.sort_key))


def _next(subgroup: Subgroup, have: tree.PodCounts, gets: Sequence[Pod]) -> list[Pod]:
    """The first of the pods by which a part of a group grows: all that it lacks, or one more pod or part."""
    if subgroup.leaf:
        own = [pod for pod in gets if tree.leaf_name(pod) == subgroup.name]
        return own[: max(subgroup.minimum - have[subgroup.name], 1)]
    given = tree.counts(gets)
    able = (child for child in subgroup.children if tree.size(child, given))
    parts = sorted(able, key=lambda child: tree.turn(child, have))
    met = sum(tree.satisfied(child, have) for child in subgroup.children)
    return [pod for part in parts[: max(subgroup.minimum - met, 1)] for pod in _next(part, have, gets)]


def _costs(world: PlannedCluster, claim: Trigger) -> _Costs:
    found: _Costs = {}
    for key, pods in claim.takes.items():
        victim = world.snapshot.group_by_key[key]
        side = victim.queue, victim.preemptible
        found[side] = amounts.plus(found.get(side, (0, 0, 0)), _cost(world, pods))
    return found


def _cost(world: PlannedCluster, pods: list[Pod]) -> CheckedAmounts:
    places = ((pod, pod.node or pod.nominated_node) for pod in pods)
    return _sum(world.start.charge(pod, node) for pod, node in places if node is not None)


def _judge(
    world: PlannedCluster, levels: Levels, claim: Trigger, got: CheckedAmounts, costs: _Costs
) -> Iterator[Violation]:
    """``got``: what the pods that the trigger gets cost; ``costs``: what those that it takes cost."""
    # Only for a share by memory does the request differ from the charge.
    by_memory = any(pod.spec.gpu.kind is GpuKind.MEMORY for pod in claim.gets)
    request = amounts.demand(world.snapshot, claim.gets) if by_memory else got
    yield from _may_reclaim(world, levels, claim, request)
    for queue in sorted({group.queue for group, _ in claim.moves} | {queue for queue, _ in costs}):
        mine, theirs = levels.levelled(claim.group.queue, queue)
        promised = _sum(_cost(world, pods) for pods in _taken_back(world, theirs.name))
        able = (theirs.held, amounts.plus(theirs.held, promised))
        if not any(_candidate(mine, theirs, held, request) for held in able):
            yield claim.breaks(f"{claim} may not disturb queue {theirs.name}: {theirs.described()}")
    losses = list(_losses(world, levels, claim, request, costs))
    for loss in losses:
        quota = loss.mine.within(loss.held, "quota")
        # What is too much without all the units is so with each of them.
        if not _may_lose(loss.theirs, loss.left, quota) and not any(
            _may_lose(loss.theirs, amounts.plus(loss.left, _cost(world, unit)), quota)
            for unit in _last_units(world, claim, loss.theirs.name)
        ):
            lost = ", ".join(amounts.in_words(i, x) for i, x in enumerate(loss.lost) if x)
            held = loss.theirs.described()
            yield claim.breaks(f"{claim} takes too much from queue {loss.theirs.name}: {held}, loses {lost}")
    yield from _saturation(world, claim, losses)


def _losses(
    world: PlannedCluster, levels: Levels, claim: Trigger, request: CheckedAmounts, costs: _Costs
) -> Iterator[_Loss]:
    """What the trigger takes, by levelled queue."""
    pooled: dict[tuple[QueueLevel, QueueLevel], CheckedAmounts] = {}
    for (queue, _), cost in costs.items():
        pair = levels.levelled(claim.group.queue, queue)
        pooled[pair] = amounts.plus(pooled.get(pair, (0, 0, 0)), cost)
    for (mine, theirs), lost in pooled.items():
        # Losses on the trigger's own path.
        below = _sum(c for (queue, _), c in costs.items() if mine.name in world.snapshot.queue_path[queue])
        held = amounts.plus(amounts.minus(mine.held, below), request)
        yield _Loss(mine, theirs, lost, held, amounts.minus(theirs.held, lost))


def _may_reclaim(
    world: PlannedCluster, levels: Levels, claim: Trigger, request: CheckedAmounts
) -> Iterator[Violation]:
    leaf = levels[claim.group.queue]
    if not leaf.within(amounts.plus(leaf.held, request), "fair_share"):
        asked = ", ".join(amounts.in_words(i, x) for i, x in enumerate(request) if x)
        yield claim.breaks(
            f"{claim} may not reclaim: with {asked} its queue is over its fair share: {leaf.described()}"
        )
    for name in () if claim.group.preemptible else world.snapshot.queue_path[claim.group.queue]:
        level = levels[name]
        if not level.user and not level.within(amounts.plus(level.firm, request), "quota"):
            yield claim.breaks(
                f"{claim} is non-preemptible and over the quota of queue {name}: {level.described()}"
            )


def _candidate(mine: QueueLevel, theirs: QueueLevel, held: CheckedAmounts, request: CheckedAmounts) -> bool:
    """The victim filter, where ``theirs`` holds ``held``."""
    if not mine.within(amounts.plus(mine.held, request), "quota"):
        return theirs.exceeds(held, "allocatable")
    asked = [i for i in range(3) if request[i]]
    over = any(theirs.over(i, held[i], "quota") for i in asked)
    return over or not any(theirs.under(i, held[i], "quota") for i in asked)


def _may_lose(theirs: QueueLevel, remaining: CheckedAmounts, entitled: bool) -> bool:
    """Whether a queue may still lose a unit if ``remaining``, the unit included, is all that it holds."""
    return theirs.exceeds(remaining, "allocatable") or (entitled and theirs.exceeds(remaining, "quota"))


def _saturation(world: PlannedCluster, claim: Trigger, losses: list[_Loss]) -> Iterator[Violation]:
    """A level over its fair share must end less saturated than each sibling that it takes from."""
    multiplier = max(world.snapshot.policy.saturation_multiplier, 1.0)
    for loss in losses:
        mine, theirs = loss.mine, loss.theirs
        for i in range(3):
            ours = mine.ratio(i, loss.held[i])
            if ours <= 1 + 1e-9 or not theirs.shares(i):
                continue
            others = theirs.ratio(i, loss.left[i])
            if ours * multiplier >= others - 1e-9 and _involved(world, claim, theirs.name)[i]:
                yield claim.breaks(
                    f"{claim} leaves queue {mine.name} at {ours:.3g} of its fair share of {amounts.NAMES[i]},"
                    f" queue {theirs.name} that it takes from at {others:.3g}"
                )


def _involved(world: PlannedCluster, claim: Trigger, theirs: str) -> tuple[bool, bool, bool]:
    """Resources that the trigger asks for, or that pods ask for which it takes from a queue."""
    taken = (pod for _, lost in _taken_below(world, claim, theirs) for pod in lost)
    return amounts.involves(world.snapshot, [*claim.gets, *taken])


def _taken_below(world: PlannedCluster, claim: Trigger, theirs: str) -> Iterator[tuple[PodGroup, list[Pod]]]:
    """What the trigger takes from a queue and those below it, by pod group."""
    for key, lost in claim.takes.items():
        victim = world.snapshot.group_by_key[key]
        if theirs in world.snapshot.queue_path[victim.queue]:
            yield victim, lost


def _taken_back(world: PlannedCluster, theirs: str) -> Iterator[list[Pod]]:
    """The pods that were promised places and get none, of each pod group below a queue (4.2)."""
    for group in world.start.nominated_groups:
        if theirs in world.snapshot.queue_path.get(group.queue, ()) and not world.placed_of(group):
            pods = (pod for pod in world.snapshot.members[group.key] if pod.status is PodStatus.PENDING)
            yield [pod for pod in pods if pod.nominated_node in world.snapshot.node_index]


def _last_units(world: PlannedCluster, claim: Trigger, theirs: str) -> Iterator[list[Pod]]:
    """What each pod group that the trigger takes from may give up last: the first ``minimum`` lost pods of
    its pod sets together; without such pods, the first of any pod set. Also what was taken back.
    """
    yield from _taken_back(world, theirs)
    for victim, lost in _taken_below(world, claim, theirs):
        by_leaf: dict[str, list[Pod]] = {}
        for pod in sorted(lost, key=lambda p: p.sort_key):
            by_leaf.setdefault(tree.leaf_name(pod), []).append(pod)
        minimum = {leaf.name: leaf.minimum for leaf in victim.root.leaves()}
        core = [pod for name, pods in by_leaf.items() for pod in pods[: minimum.get(name, 0)]]
        if core:
            yield core
        else:
            yield from (pods[:1] for pods in by_leaf.values())


def _sum(costs: Iterable[CheckedAmounts]) -> CheckedAmounts:
    cpu = memory = gpu = 0
    for cost in costs:
        cpu, memory, gpu = cpu + cost[0], memory + cost[1], gpu + cost[2]
    return cpu, memory, gpu
