"""Eviction actions against brute force on tiny clusters: nothing is refused for which the checker allows a
plan.

The brute force tries every set of victim units, and every place of every pod that moves or waits. The
independent checker says what is allowed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import combinations, product
from random import Random

import pytest

from kai_cp_models.actions import jointly
from kai_cp_models.check import violations
from kai_cp_models.limits import LIMITS
from kai_cp_models.plan import Decision, Plan
from kai_cp_models.pods import GroupKey, Pod, PodKey
from kai_cp_models.settings import Settings
from kai_cp_models.snapshot import Snapshot
from kai_cp_models.units import Gang, Gangs
from tests.properties.comparing import bettered
from tests.support.plans import evicted, lost, placed, solved
from tests.support.worlds import NOW, PLUGINS, cluster, gpu_bound, group, node, pod, pods, queue, spec

COUNT = int(os.environ.get("KAI_CP_EVICTION_CLUSTERS", "60"))


def chains(gang: Gang) -> list[tuple[Pod, ...]]:
    """All prefixes of the group's eviction units (5.4), the empty one first."""
    found: list[tuple[Pod, ...]] = [()]
    for unit in gang.units_at_first:
        found.append((*found[-1], *unit.pods))
    return found


def subsets(gang: Gang) -> list[tuple[Pod, ...]]:
    """All sets of its pods that may go, whatever their order: the minimum stays, or nothing."""
    running = [p for p in gang.pods if p.node]
    counts = (*range(len(running) - gang.top.minimum + 1), len(running))
    return [some for count in dict.fromkeys(counts) for some in combinations(running, count)]


def in_turn(snapshot: Snapshot, plan: Plan) -> Plan:
    """The plan as goals count it: of every group the first ones of its chain go, as many as are lost."""
    again = {d.pod for d in plan.decisions if d.kind != "Evict"}
    went = {d.pod for d in plan.decisions if d.kind == "Evict"} - again
    names: dict[PodKey, PodKey] = {}
    for g in snapshot.groups:
        chain = [p.key for unit in Gangs(snapshot)[g.key].units_at_first for p in unit.pods]
        first = chain[: len(went.intersection(chain))]
        for mine, other in zip(
            sorted(went.intersection(chain).difference(first)), sorted(set(first) - went), strict=True
        ):
            names |= {mine: other, other: mine}
    return Plan(tuple(replace(d, pod=names.get(d.pod, d.pod)) for d in plan.decisions))


def waiting(snapshot: Snapshot) -> list[Pod]:
    return [p for p in snapshot.pods if p.group is not None and p.group.name == "t"]


def decision(kind: str, one: Pod, where: str, action: str) -> Decision:
    triggers = (waiting_key,) if kind == "Evict" else ()
    return Decision(kind, one.key, one.group, where, action, triggers=triggers)  # type: ignore[arg-type]


waiting_key = group("t").key


def takings(
    snapshot: Snapshot,
    action: str,
    *,
    moves: bool = False,
    of: Callable[[Gang], list[tuple[Pod, ...]]] = chains,
) -> Iterator[Plan]:
    """Every plan that takes units from groups from which the trigger may take them, and nominates the
    trigger. ``moves``: pods of these units may get places on other nodes. ``of``: what a group may lose.
    """
    gangs = Gangs(snapshot)
    trigger = snapshot.group_by_key[waiting_key]
    victims = [
        g
        for g in snapshot.groups
        if g.preemptible
        and (g.priority < trigger.priority if action == "preempt" else g.queue != trigger.queue)
    ]
    names = [n.name for n in snapshot.nodes]
    for given in product(*(of(gangs[g.key]) for g in victims)):
        out = [p for unit in given for p in unit]
        if not out:
            continue
        evictions = [decision("Evict", p, p.node or "", action) for p in out]
        others = [["", *(name for name in names if moves and name != p.node)] for p in out]
        for places in product(*others, *([names] * len(waiting(snapshot)))):
            asked = [(p, at) for p, at in zip((*out, *waiting(snapshot)), places, strict=True) if at]
            if has_room(snapshot, out, asked):
                yield Plan((*evictions, *(decision("Nominate", p, at, action) for p, at in asked)))


def has_room(snapshot: Snapshot, gone: Sequence[Pod], placed: Sequence[tuple[Pod, str]]) -> bool:
    """Whether no node takes more GPUs and CPUs than it has, which is far cheaper than the checker."""
    left = {n.name: [n.gpu_count, n.allocatable[0]] for n in snapshot.nodes}
    stay = [(p, p.node) for p in snapshot.pods if p.node and p not in gone]
    for one, where in (*stay, *placed):
        left[where][0] -= one.spec.gpu.devices
        left[where][1] -= one.spec.requests[0]
    return all(min(amounts) >= 0 for amounts in left.values())


def moves(snapshot: Snapshot) -> Iterator[Plan]:
    """Every plan that moves running pods and nominates the trigger."""
    names = [n.name for n in snapshot.nodes]
    movers = [p for p in snapshot.pods if p.node and snapshot.group_by_key[_owner(p)].preemptible]
    for there in product(names, repeat=len(movers)):
        going = [(p, where) for p, where in zip(movers, there, strict=True) if where != p.node]
        if not going:
            continue
        decisions = [decision("Evict", p, p.node or "", "consolidation") for p, _ in going]
        decisions += [decision("Nominate", p, where, "consolidation") for p, where in going]
        for places in product(names, repeat=len(waiting(snapshot))):
            asked = zip(waiting(snapshot), places, strict=True)
            yield Plan((*decisions, *(decision("Nominate", p, x, "consolidation") for p, x in asked)))


def _owner(one: Pod) -> GroupKey:
    assert one.group is not None
    return one.group


def world(seed: int, action: str, *, elastic: bool = False) -> Snapshot:
    """Two or three nodes with 2 to 4 GPUs and few CPUs, some small groups that run, and one trigger.

    ``elastic``: groups are few and have surplus pods.
    """
    rng = Random(seed)
    nodes = [node(f"n{i}", rng.choice((2, 3, 4)), cpus=rng.choice((4, 6))) for i in range(rng.randint(2, 3))]
    free = {n.name: [n.gpu_count, n.allocatable[0] // 1000] for n in nodes}
    members: list[Pod] = []
    groups = []
    for i in range(rng.randint(1, 2) if elastic else rng.randint(2, 4)):
        gpus, cpus = rng.choice((0, 1, 1, 2)), rng.choice((1, 1, 2, 3))
        # Units are tested one by one (4.4). If each holds a GPU, their order does not matter.
        gpus = max(gpus, 1) if action == "reclaim" else gpus
        made = 0
        for k in range(
            rng.choice((2, 3, 3)) if elastic else rng.choice((1, 1, 2)) if action != "consolidation" else 1
        ):
            where = next((n for n, f in free.items() if f[0] >= gpus and f[1] >= cpus), None)
            if where is None:
                break
            free[where][0] -= gpus
            free[where][1] -= cpus
            free = dict(rng.sample(sorted(free.items()), len(free)))
            members.append(pod(f"v{i}-{k}", where, spec=spec(gpus, cpus=cpus)))
            made += 1
        if made:
            # Newer than the trigger, so that the trigger comes first among equal groups.
            priority = rng.choice((10, 20, 70)) if action == "preempt" else 50
            groups.append(
                group(
                    f"v{i}",
                    rng.randint(1, max(made - elastic, 1)),
                    priority=priority,
                    queue="v" if action == "reclaim" else "q",
                    created=9.0,
                    preemptible=rng.random() < 0.9,
                )
            )
    count = rng.randint(1, 2)
    wants = spec(rng.choice((1, 2, 3)), cpus=rng.choice((1, 2, 3)))
    priority = 60 if action == "preempt" else 50
    return cluster(
        [*members, *pods("t", count, spec=wants)],
        [*groups, group("t", count, priority=priority, created=1.0)],
        nodes,
        [queue("q", quota=gpu_bound(rng.choice((1, 3, 4)))), queue("v", quota=gpu_bound(rng.choice((0, 2))))],
        actions=("allocate", action),
        plugins=PLUGINS | {"nodeplacement", "nodeavailability"},
    )


@pytest.mark.parametrize("seed", range(COUNT))
def test_preempt_finds_a_plan_where_there_is_one(seed: int) -> None:
    snapshot = world(seed, "preempt")
    plan = solved(snapshot)
    if placed(plan):
        # Only pods that are lost to the trigger, or moved for it, leave.
        assert not evicted(plan) or {p.key.name for p in waiting(snapshot)} == placed(plan)
        return
    assert [u.proved for u in plan.unscheduled] == [True]
    allowed = next((one for one in takings(snapshot, "preempt") if not violations(snapshot, one)), None)
    assert allowed is None, allowed


def keeps_its_quota(snapshot: Snapshot, plan: Plan) -> bool:
    """Whether v still holds its quota of GPUs, so that each of its groups comes after the trigger (3.5,
    2).
    """
    gone = {d.pod for d in plan.decisions if d.kind == "Evict"}
    left = [
        p.spec.gpu.devices
        for p in snapshot.pods
        if p.node and p.key not in gone and snapshot.group_by_key[_owner(p)].queue == "v"
    ]
    return sum(left) >= snapshot.queue_by_name["v"].quota.gpu


@pytest.mark.parametrize("seed", range(COUNT))
def test_reclaim_finds_a_plan_where_there_is_one(seed: int) -> None:
    snapshot = world(seed, "reclaim")
    plan = solved(snapshot)
    if not placed(plan):
        allowed = (one for one in takings(snapshot, "reclaim") if keeps_its_quota(snapshot, one))
        assert next((one for one in allowed if not violations(snapshot, one)), None) is None


@pytest.mark.parametrize("seed", range(COUNT))
def test_consolidation_moves_as_few_as_can_be(seed: int) -> None:
    snapshot = world(seed, "consolidation")
    plan = solved(snapshot)
    assert lost(plan) == set()
    if placed(plan) and not evicted(plan):
        return
    found = [one for one in moves(snapshot) if not violations(snapshot, one)]
    if not found:
        assert plan.decisions == ()
        assert [u.proved for u in plan.unscheduled] == [True]
        return
    assert placed(plan) == {p.key.name for p in waiting(snapshot)}
    assert len(evicted(plan)) == min(sum(d.kind == "Evict" for d in one.decisions) for one in found)


BETTERED = (1132, 1263)
"""Worlds in which the first units of the reverse fair order once counted as the best ones, though few others
free the CPUs as well."""


def one_size(snapshot: Snapshot, plan: Plan) -> bool:
    """Whether all pods that the plan evicts hold as many GPUs, so that any order of losing them is permitted
    if one is (4.4)."""
    gone = (snapshot.pod_by_key[d.pod] for d in plan.decisions if d.kind == "Evict")
    return len({p.spec.gpu.devices for p in gone}) == 1


@pytest.mark.parametrize("action", ["preempt", "reclaim"])
@pytest.mark.parametrize("seed", [*range(COUNT), *BETTERED])
def test_no_allowed_plan_betters_what_is_called_optimal(
    seed: int, action: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = world(seed, action)
    rng = Random(seed)
    if seed % 2:
        # Units of one queue and priority that differ in what they have worked so far.
        starts = {g.key: NOW - rng.choice((100, 100, 300)) for g in snapshot.groups}
        aged = (replace(g, last_start=starts[g.key]) if g.key != waiting_key else g for g in snapshot.groups)
        snapshot = replace(snapshot, groups=tuple(aged))
    # With many pods, bounds come from sums over the cluster.
    if seed % 3 == 0:
        monkeypatch.setattr(jointly, "LIMITS", replace(LIMITS, all_moves_pods=0))
    plan = solved(snapshot)
    for other in takings(snapshot, action, moves=True) if evicted(plan) else ():
        if action == "reclaim" and not (keeps_its_quota(snapshot, other) and one_size(snapshot, other)):
            continue
        stages = [stage for stage, below in bettered(snapshot, plan, other, Settings()) if below]
        assert not stages or violations(snapshot, other), (stages, other)


@pytest.mark.parametrize("action", ["preempt", "reclaim"])
@pytest.mark.parametrize("seed", [*range(COUNT), 99])
def test_nor_does_one_that_takes_other_pods_of_an_elastic_group(seed: int, action: str) -> None:
    """A surplus pod stays where its eviction helps no trigger, and another one of its group may go."""
    snapshot = world(seed, action, elastic=True)
    plan = solved(snapshot)
    for other in takings(snapshot, action, moves=True, of=subsets) if evicted(plan) else ():
        counted = in_turn(snapshot, other)
        if action == "reclaim" and not (keeps_its_quota(snapshot, other) and one_size(snapshot, other)):
            continue
        stages = [stage for stage, below in bettered(snapshot, plan, counted, Settings()) if below]
        assert not stages or violations(snapshot, other), (stages, other)
