"""Reclaim on worlds that no recorded case covers: min runtime, saturation, delay, depth, limits."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from kai_cp_models.actions import admit, jointly
from kai_cp_models.actions.run import ActionRun, Opening
from kai_cp_models.check import violations
from kai_cp_models.joint.problem import Ask
from kai_cp_models.limits import LIMITS
from kai_cp_models.pods import LabelSelector, Pod, PodAffinityTerm, PodStatus, Requirement
from kai_cp_models.snapshot import PodGroup, Queue, Shares, Snapshot
from tests.support.plans import bound, evicted, lost, nominated, placed, reasons, solved
from tests.support.worlds import (
    NOW,
    PLUGINS,
    cluster,
    fraction,
    gpu_bound,
    group,
    node,
    pod,
    pods,
    queue,
    spec,
)

ZERO = Shares(0, 0, 0)


def world(
    *queues: Queue, victims: int = 8, minimum: int = 1, started: float | None = NOW - 100, **more: Any
) -> Snapshot:
    """Queue v holds all 8 GPUs with one group of ``victims`` pods, and q asks for one; quotas 4 and 4."""
    members = [*pods("v", victims, "n1", spec=spec(8 // victims)), pod("t-0")]
    groups = [group("v", minimum, queue="v", last_start=started), group("t", queue="q")]
    half = gpu_bound(4)
    names = {one.name for one in queues}
    given = [*queues, *(queue(x, quota=half) for x in "qv" if x not in names)]
    return cluster(members, groups, queues=given, actions=("allocate", "reclaim"), **more)


def test_the_newest_surplus_goes() -> None:
    plan = solved(world())
    assert lost(plan) == {"v-7"}
    assert set(nominated(plan)) == {"t-0"}


def test_a_place_of_this_cycle_gives_no_right_to_the_pods_beside_it(caplog: pytest.LogCaptureFixture) -> None:
    """v runs two of its three pods, all of its quota, and allocate places the third. That one could only be
    withdrawn, and then v holds no more than its quota: t may not take the others.
    """
    members = [pod("v-0", "n1"), pod("v-1", "n1"), pod("v-2"), pod("t-0", spec=spec(2))]
    groups = [group("v", 3, queue="v", priority=100), group("t", queue="q", created=1.0)]
    queues = [queue(name, quota=gpu_bound(2)) for name in "qv"]
    nodes = [node("n1", gpus=3), node("n2", gpus=1)]
    plan = solved(cluster(members, groups, nodes, queues, actions=("allocate", "reclaim")))
    assert caplog.messages == []
    assert (set(bound(plan)), evicted(plan)) == ({"v-2"}, set())


@pytest.mark.parametrize("created", [-1.0, 5.0])
def test_no_running_group_makes_way_for_one_of_its_own_queue(created: float) -> None:
    """t needs the 4 GPUs of small, whose queue holds 12 of its 6. If big went as well, twin would be within
    the quota and take its place: 8 more GPUs stop for 8 that start in the same queue.
    """
    members = [
        *pods("big", 1, "n1", spec=spec(8)),
        *pods("small", 1, "n2", spec=spec(4)),
        *pods("twin", 1, spec=spec(8)),
        *pods("t", 1, spec=spec(4)),
    ]
    groups = [
        group("big", queue="v", last_start=NOW - 100),
        group("small", queue="v", last_start=NOW - 100, created=1.0),
        group("twin", queue="v", created=created),
        group("t", queue="q"),
    ]
    queues = [queue(name, quota=gpu_bound(6)) for name in "qv"]
    nodes = [node("n1", gpus=8), node("n2", gpus=4)]
    plan = solved(cluster(members, groups, nodes, queues, actions=("allocate", "reclaim")))
    assert (lost(plan), nominated(plan)) == ({"small-0"}, {"t-0": "n2"})


# --- min runtime (4.6): the victim runs for 100 s -------------------------------------------------


def leaf(name: str, parent: str | None = None, seconds: float | None = None) -> Queue:
    return queue(name, parent, quota=gpu_bound(4), reclaim_min_runtime_seconds=seconds)


NEAREST = {"reclaim_resolve_method": "queue"}
LONG = {"default_reclaim_min_runtime_seconds": 1000.0}


def departments(e: float | None, v: float | None) -> tuple[Queue, ...]:
    """q below d and v below e, with the values of e and v."""
    return leaf("d"), leaf("e", None, e), leaf("q", "d"), leaf("v", "e", v)


def siblings(d: float | None, v: float | None) -> tuple[Queue, ...]:
    """q and v below d, with the values of d and v."""
    return leaf("d", None, d), leaf("q", "d"), leaf("v", "d", v)


RUNTIMES: list[tuple[str, tuple[Queue, ...], dict[str, Any], bool]] = [
    # (queues, policy, whether the victim may be taken)
    ("the default protects", (), {"default_reclaim_min_runtime_seconds": 101.0}, False),
    ("until it is over", (), {"default_reclaim_min_runtime_seconds": 100.0}, True),
    ("the preempt value is another one", (), {"default_preempt_min_runtime_seconds": 1000.0}, True),
    ("the queue's value wins", (leaf("v", None, 10),), LONG, True),
    ("the queue's value protects", (leaf("v", None, 200),), {}, False),
    ("zero is a value", (leaf("v", None, 0),), LONG, True),
    # Different top-level queues: lca uses the victim's top-level queue only.
    ("lca: the leaf has no say across departments", departments(None, 200), {}, True),
    ("lca: its department has", departments(200, 0), {}, False),
    ("queue: the leaf has", departments(None, 200), NEAREST, False),
    ("queue: the nearest value counts", departments(200, 0), NEAREST, True),
    # One department: the child of the common ancestor on the victim's path is the victim's leaf.
    ("lca: the leaf has, inside a department", siblings(0, 200), {}, False),
    ("lca: and else the department", siblings(200, None), {}, False),
    ("without the plugin", (leaf("v", None, 200),), {"plugins": PLUGINS - {"minruntime"}}, True),
]


@pytest.mark.parametrize(
    ("queues", "policy", "taken"), [x[1:] for x in RUNTIMES], ids=[x[0] for x in RUNTIMES]
)
def test_min_runtime(queues: tuple[Queue, ...], policy: dict[str, Any], taken: bool) -> None:
    plan = solved(world(*queues, victims=1, **policy))
    assert evicted(plan) == ({"v-0"} if taken else set())
    assert ("t" in reasons(plan)) is not taken


def test_a_protected_elastic_group_gives_up_surplus_only() -> None:
    """Minimum 7 of 8: one pod may be evicted; with minimum 8 none."""
    snapshot = world(leaf("v", None, 200), minimum=7)
    assert lost(solved(snapshot)) == {"v-7"}
    full = world(leaf("v", None, 200), minimum=8)
    assert evicted(solved(full)) == set()


@pytest.mark.parametrize(("oldest", "taken"), [(300, True), (100, False)])
def test_a_group_is_protected_from_the_start_of_its_oldest_pod(oldest: int, *, taken: bool) -> None:
    """Two pods make the gang, of which one was made anew just now; so the owner notes as the start."""
    snapshot = world(leaf("v", None, 200), victims=2, minimum=2, started=NOW)
    ages = iter((oldest, 1))
    pods = [replace(p, started=NOW - next(ages)) if p.node else p for p in snapshot.pods]
    plan = solved(replace(snapshot, pods=tuple(pods)))
    assert evicted(plan) == ({"v-0", "v-1"} if taken else set())


def test_a_group_that_never_started_is_not_protected() -> None:
    assert evicted(solved(world(leaf("v", None, 200), victims=1, started=None))) == {"v-0"}


# --- saturation multiplier (4.4) -----------------------------------------------------------------


@pytest.mark.parametrize(("multiplier", "taken"), [(1.0, True), (1.39, True), (1.41, False)])
def test_the_saturation_multiplier(multiplier: float, taken: bool) -> None:
    """12 GPUs, three departments with a fair share of 4; d holds 4, e 8, and f only asks. With one more
    GPU d stands at 5/4 = 1.25 and e at 7/4 = 1.75: allowed while 1.25 m < 1.75, so m < 1.4. q itself
    stays within its quota, and the gang of f is never complete.
    """
    zero = gpu_bound(0)
    queues = [queue(x, quota=zero) for x in "def"]
    queues += [queue("q", "d", quota=gpu_bound(8)), queue("v", "e"), queue("w", "f")]
    members = [*pods("a", 4, "n1"), *pods("v", 8, "n1"), pod("t-0"), *pods("w", 8)]
    groups = [group("a", queue="q"), group("v", queue="v"), group("t", queue="q"), group("w", 9, queue="w")]
    plan = solved(
        cluster(
            members,
            groups,
            [node(gpus=12)],
            queues,
            actions=("allocate", "reclaim"),
            saturation_multiplier=multiplier,
        )
    )
    assert lost(plan) == ({"v-7"} if taken else set())


# --- which groups may trigger ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("created", "last_eviction", "delay", "acts"),
    [
        (NOW - 10, None, 60.0, False),
        (NOW - 60, None, 60.0, True),
        (NOW - 500, NOW - 10, 60.0, False),
        (NOW - 500, NOW - 70, 60.0, True),
        (NOW, None, 0.0, True),
    ],
)
def test_preemption_delay(created: float, last_eviction: float | None, delay: float, acts: bool) -> None:
    """4.1: the delay starts with the creation or the last eviction, whichever is later."""
    trigger = group(
        "t", queue="q", created=created, last_eviction=last_eviction, preemption_delay_seconds=delay
    )
    half = gpu_bound(4)
    snapshot = cluster(
        [*pods("v", 8, "n1"), pod("t-0")],
        [group("v", queue="v"), trigger],
        queues=[queue("q", quota=half), queue("v", quota=half)],
        actions=("allocate", "reclaim"),
    )
    plan = solved(snapshot)
    assert bool(evicted(plan)) is acts
    assert ("t" in reasons(plan)) is not acts


def test_the_delay_does_not_block_allocate() -> None:
    trigger = group("t", created=NOW, preemption_delay_seconds=600.0)
    assert set(bound(solved(cluster([pod("t-0")], [trigger])))) == {"t-0"}


def test_the_delay_does_not_protect_a_victim() -> None:
    snapshot = cluster(
        [*pods("v", 8, "n1"), pod("t-0")],
        [group("v", queue="v", created=NOW, preemption_delay_seconds=600.0), group("t", queue="q")],
        queues=[queue("q", quota=gpu_bound(4)), queue("v", quota=gpu_bound(4))],
        actions=("allocate", "reclaim"),
    )
    assert len(evicted(solved(snapshot))) == 1


def test_a_backed_off_group_triggers_nothing() -> None:
    snapshot = cluster(
        [*pods("v", 8, "n1"), pod("t-0")],
        [group("v", queue="v"), group("t", queue="q", backed_off=True)],
        queues=[queue("q", quota=gpu_bound(4)), queue("v", quota=gpu_bound(4))],
    )
    assert solved(snapshot).decisions == ()


def test_queue_depth_caps_the_triggers() -> None:
    """Three triggers are entitled; with depth 2 the two oldest ones are served."""
    snapshot = cluster(
        [*pods("v", 8, "n1"), *(pod(f"t{i}-0") for i in range(3))],
        [group("v", queue="v"), *(group(f"t{i}", queue="q", created=float(3 - i)) for i in range(3))],
        queues=[queue("q", quota=gpu_bound(4)), queue("v", quota=gpu_bound(4))],
        actions=("allocate", "reclaim"),
        queue_depth={"reclaim": 2},
    )
    plan = solved(snapshot)
    assert placed(plan) == {"t1-0", "t2-0"}
    assert len(evicted(plan)) == 2


# --- limits --------------------------------------------------------------------------------------


def test_victims_free_a_limit_that_binds_while_gpus_are_idle() -> None:
    """The department may hold 4 of 8 GPUs, and v has them all. q is due 2, so v gives up 2. The GPUs
    are idle now, but the limit holds only when the victims are gone: nominated, not bound.
    """
    queues = [
        queue("d", limit=gpu_bound(4)),
        queue("q", "d", quota=gpu_bound(2)),
        queue("v", "d", quota=gpu_bound(2)),
    ]
    snapshot = cluster(
        [*pods("v", 4, "n1"), *pods("t", 2)],
        [group("v", queue="v"), group("t", 2, queue="q")],
        queues=queues,
        actions=("allocate", "reclaim"),
    )
    plan = solved(snapshot)
    assert lost(plan) == {"v-2", "v-3"}
    assert set(nominated(plan)) == {"t-0", "t-1"}
    assert bound(plan) == {}


def test_a_limit_that_no_victim_frees_stays_a_reason() -> None:
    """It is q's own limit, and what v gives up does not count below it."""
    snapshot = cluster(
        [*pods("v", 8, "n1"), *pods("t", 2)],
        [group("v", queue="v"), group("t", 2, queue="q")],
        queues=[queue("q", quota=gpu_bound(4), limit=gpu_bound(1)), queue("v", quota=gpu_bound(4))],
    )
    plan = solved(snapshot)
    assert plan.decisions == ()
    assert reasons(plan) == {"t": "OverLimit"}


# --- which victims ---------------------------------------------------------------------------------


def test_non_preemptible_groups_are_no_victims() -> None:
    snapshot = cluster(
        [*pods("v", 8, "n1"), pod("t-0")],
        [group("v", queue="v", preemptible=False), group("t", queue="q")],
        queues=[queue("q", quota=gpu_bound(4)), queue("v", quota=gpu_bound(4))],
    )
    assert evicted(solved(snapshot)) == set()


def test_a_queue_within_its_share_loses_nothing() -> None:
    """v holds its quota of 4, w 4 with a quota of 2: everything is taken from w."""
    snapshot = cluster(
        [*pods("v", 4, "n1"), *pods("w", 4, "n1"), *pods("t", 2)],
        [group("v", queue="v"), group("w", queue="w"), group("t", 2, queue="q")],
        queues=[queue(x, quota=gpu_bound(g)) for x, g in (("q", 2), ("v", 4), ("w", 2))],
        actions=("allocate", "reclaim"),
    )
    assert lost(solved(snapshot)) == {"w-2", "w-3"}


def test_a_trigger_over_its_share_takes_nothing() -> None:
    snapshot = cluster(
        [*pods("a", 4, "n1"), *pods("v", 4, "n1"), pod("t-0")],
        [group("a", queue="q"), group("v", queue="v"), group("t", queue="q")],
        queues=[queue("q", quota=Shares(-1, -1, 4)), queue("v", quota=Shares(-1, -1, 4))],
    )
    plan = solved(snapshot)
    assert plan.decisions == ()


def test_a_victim_that_fits_elsewhere_is_moved_not_lost() -> None:
    """v holds 4, 4 and 8 on three nodes, 4 over its quota of 12; the trigger needs 8 on one node. One
    of the two small pods moves to the node of the other, and nothing is lost. Consolidation is off,
    so reclaim has to do it.
    """
    snapshot = cluster(
        [
            *(pod(f"v{i}-0", f"n{i}", spec=spec(4)) for i in (1, 2)),
            pod("v3-0", "n3", spec=spec(8)),
            pod("t-0", spec=spec(8)),
        ],
        [*(group(f"v{i}", queue="v") for i in (1, 2, 3)), group("t", queue="q")],
        [node(f"n{i}") for i in (1, 2, 3)],
        [queue("q", quota=gpu_bound(12)), queue("v", quota=gpu_bound(12))],
        actions=("allocate", "reclaim"),
    )
    plan = solved(snapshot)
    assert lost(plan) == set()
    assert len(evicted(plan)) == 1
    assert placed(plan) == {"t-0"}


def test_a_moved_victim_is_lost_where_reclaim_may_not_move() -> None:
    """b holds 5, one over its quota; t needs the places of v and w, for which n3 has others. If both count as
    lost, b loses too much: w is one more after v."""

    def contest(*, consolidating: bool) -> Snapshot:
        return cluster(
            [
                pod("v-0", "n1", spec=spec(4)),
                pod("w-0", "n2", spec=spec(1)),
                pod("t-0", spec=spec(4, node_selector=(("name", "n1"),))),
                pod("t-1", spec=spec(1, node_selector=(("name", "n2"),))),
            ],
            [group("v", queue="b"), group("w", queue="b"), group("t", 2, queue="a")],
            [node(name, gpus, labels={"name": name}) for name, gpus in (("n1", 4), ("n2", 1), ("n3", 8))],
            [queue("a", quota=gpu_bound(5), weight=ZERO), queue("b", quota=gpu_bound(4), weight=ZERO)],
            actions=("allocate", "reclaim"),
            allow_consolidating_reclaim=consolidating,
        )

    plan, strict = solved(contest(consolidating=True)), contest(consolidating=False)
    assert (placed(plan), evicted(plan), lost(plan)) == ({"t-0", "t-1"}, {"v-0", "w-0"}, set())
    assert solved(strict).decisions == ()
    assert ["takes too much" in str(one) for one in violations(strict, plan)] == [True]


def test_small_pods_that_need_each_other_stay_where_they_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """v holds all GPUs of two nodes, and three newer pods without GPUs that each want company of their kind
    on the own node: counting opens these before a large one. The first plan already leaves all of them
    where they are, as nothing that runs has to find its company anew."""
    kind = PodAffinityTerm(
        LabelSelector((Requirement("app", "In", ("v",)),)), "kubernetes.io/hostname", None, 0
    )
    near = spec(0, pod_affinity=(kind,))
    small = [pod(f"s{i}-0", f"n{n}", spec=near, labels={"app": "v"}) for i, n in enumerate((1, 2, 2))]
    large = [pod(f"v{n}-0", f"n{n}", spec=spec(8)) for n in (1, 2)]
    snapshot = cluster(
        [*large, *small, pod("t-0")],
        [
            *(group(f"v{n}", queue="v", last_start=NOW - 900) for n in (1, 2)),
            *(group(f"s{i}", queue="v", last_start=NOW - 100) for i in range(3)),
            group("t", queue="q"),
        ],
        [node(f"n{n}", labels={"kubernetes.io/hostname": f"n{n}"}) for n in (1, 2)],
        [queue("q", quota=gpu_bound(8)), queue("v", quota=gpu_bound(8))],
        actions=("allocate", "reclaim"),
    )
    monkeypatch.setattr(admit, "finish", lambda _, found: found)
    plan = solved(snapshot)
    assert placed(plan) == {"t-0"}
    assert len(evicted(plan)) == 1
    assert evicted(plan) < {"v1-0", "v2-0"}


def test_pods_on_a_node_that_shrank_stay_where_they_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """n1 has lost four of the six GPUs on which v runs. t can only have the one of n2, which v has had for
    longer; the first plan already leaves the six pods where they are."""
    members = [*(pod(f"v{i}-0", "n1") for i in range(6)), pod("v6-0", "n2")]
    near = spec(1, node_selector=(("host", "n2"),))
    snapshot = cluster(
        [*members, pod("t-0", spec=near)],
        [
            *(group(f"v{i}", queue="v", last_start=NOW - 100) for i in range(6)),
            group("v6", queue="v", last_start=NOW - 900),
            group("t", queue="q"),
        ],
        [node(name, gpus=count, labels={"host": name}) for name, count in (("n1", 2), ("n2", 1))],
        [queue("q", quota=gpu_bound(3)), queue("v", quota=gpu_bound(0))],
        actions=("allocate", "reclaim"),
    )
    monkeypatch.setattr(admit, "finish", lambda _, found: found)
    plan = solved(snapshot)
    assert placed(plan) == {"t-0"}
    assert evicted(plan) == {"v6-0"}


def test_a_releasing_pod_is_no_victim_twice() -> None:
    """Allocate may use what leaves anyway; reclaim has nothing to do."""
    members = [*pods("v", 7, "n1"), pod("v-7", "n1", status=PodStatus.RELEASING), pod("t-0")]
    snapshot = cluster(
        members,
        [group("v", queue="v"), group("t", queue="q")],
        queues=[queue("q", quota=gpu_bound(4)), queue("v", quota=gpu_bound(4))],
    )
    plan = solved(snapshot)
    assert evicted(plan) == set()
    assert set(nominated(plan)) == {"t-0"}


def test_a_gang_is_not_torn_by_a_move_that_has_no_place() -> None:
    """The model loses v0-1 and moves v0-0 and one pod of the gang v1; the greedy simulation places only
    v0-0. Many plans are allowed, for instance to lose v2 and nothing else.
    """
    members = [
        pod("v0-0", "n0"),
        pod("v0-1", "n1"),
        *pods("v1", 2, "n0", spec=spec(0)),
        pod("v2-0", "n2", spec=spec(2, cpus=2)),
        pod("v2-1", "n1", spec=spec(2, cpus=2)),
        pod("v3-0", "n2", spec=spec(1, cpus=2)),
        pod("t-0", spec=spec(2, cpus=3)),
    ]
    groups = [group(f"v{i}", minimum, queue="v", created=9.0) for i, minimum in enumerate((1, 2, 2, 1))]
    plan = solved(
        cluster(
            members,
            [*groups, group("t", priority=50, created=1.0)],
            [node("n0", gpus=2, cpus=4), node("n1", gpus=4, cpus=4), node("n2", gpus=3, cpus=4)],
            [queue("q", quota=gpu_bound(4)), queue("v", quota=gpu_bound(0))],
            actions=("allocate", "reclaim"),
            plugins=PLUGINS | {"nodeplacement", "nodeavailability"},
        )
    )
    assert placed(plan) == {"t-0"}


# --- many victims: the threshold by counting (formulation 1.4) ----------------------------------------------


def hundred(seed: int | None = None) -> Snapshot:
    """About a hundred units of v, which is due half of what it holds, and small gangs of q that wait.

    By hand: 104 units of one GPU, and three triggers of four. With a seed: units of 1 to 4 GPUs, some of them
    pods of one elastic group, of two priorities and any age. Nodes are full, so nothing can move.
    """
    rng = Random(seed)
    nodes = [node(f"n{n:02}") for n in range(13 if seed is None else 20)]
    members: list[Pod] = []
    groups: list[PodGroup] = []
    for one in nodes:
        left = one.gpu_count
        while left:
            size = 1 if seed is None else rng.choice([s for s in (1, 1, 1, 1, 1, 2, 4) if s <= left])
            count = rng.randint(1, left // size) if seed is not None and rng.random() < 0.1 else 1
            name = f"v{len(groups):03}"
            members += pods(name, count, one.name, spec=spec(size))
            age = float(len(groups)) if seed is None else float(rng.randint(1, 500))
            priority = 50 if seed is None else rng.choice((40, 50))
            groups.append(group(name, 1, "v", created=age, priority=priority))
            left -= size * count
    for i in range(3 if seed is None else rng.randint(3, 8)):
        count, size = (4, 1) if seed is None else (rng.randint(1, 4), rng.choice((1, 1, 2)))
        members += pods(f"t{i}", count, spec=spec(size))
        groups.append(group(f"t{i}", count, created=float(i)))
    half = gpu_bound(4 * len(nodes))
    return cluster(
        members,
        groups,
        nodes,
        [queue("q", quota=half), queue("v", quota=half)],
        actions=("reclaim",),
    )


def test_the_least_deserving_of_a_hundred_go() -> None:
    """Twelve GPUs are needed, and the youngest twelve pods of v are evicted, v092 to v103, wherever
    they run.
    """
    plan = solved(hundred())
    assert placed(plan) == {f"t{i}-{k}" for i in range(3) for k in range(4)}
    assert lost(plan) == {f"v{i:03}-0" for i in range(92, 104)}


def outcome(snapshot: Snapshot) -> tuple[set[str], int, dict[str, float]]:
    """The served groups, the lost GPUs, and the cost of the plan by the goals."""
    plan = solved(snapshot)
    gpus = {p.key.name: p.spec.gpu.devices for p in snapshot.pods}
    goals = {stage.name: stage.objective for stage in plan.stages if stage.objective}
    return placed(plan), sum(gpus[name] for name in lost(plan)), goals


@pytest.mark.parametrize("seed", range(10))
def test_a_shallow_look_finds_what_a_full_one_does(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only units down to the depth that counting finds are open at first. Where no pod can move, units
    beyond the threshold are useless: admission and the values of all goals equal those of a solve in
    which every unit is open from the start.
    """
    looks: list[tuple[int, int]] = []
    opening = ActionRun.opening

    def noted(run: ActionRun, asks: Sequence[Ask], useful: Set[int] | None = None) -> Opening:
        found = opening(run, asks, useful)
        first = found.first_for(asks)
        assert first is not None
        assert useful is not None
        looks.append((sum(rank <= first[-1].rank for rank in useful), len(useful)))
        return found

    snapshot = hundred(seed)
    monkeypatch.setattr(ActionRun, "opening", noted)
    monkeypatch.setattr(admit, "first_plans", lambda attempts, chunk: [])
    found = outcome(snapshot)
    assert found[0]
    assert any(2 * depth < units for depth, units in looks)
    monkeypatch.setattr(jointly, "LIMITS", replace(LIMITS, open_units=10**9))
    looks.clear()
    assert outcome(snapshot) == found
    assert looks == []


def test_units_that_come_back_first_in_any_case_are_passed_over() -> None:
    """Of v, the groups that started last were created first, and lost ones ask before a gang of v that waits.
    Beside a larger gang of q they come before t and s, so only the others may be lost to these.
    """
    old, young = [f"o{i}" for i in range(10)], [f"y{i}" for i in range(6)]
    members = [pod(f"{name}-0", "n1", spec=spec(1)) for name in (*old, *young)]
    members += [*pods("w", 8), *pods("b", 17), pod("t-0"), pod("s-0")]
    groups = [
        *(group(name, queue="v", created=1.0, last_start=NOW - 10) for name in old),
        *(group(name, queue="v", created=9.0, last_start=NOW - 100) for name in young),
        group("w", 8, queue="v", created=5.0),
        group("b", 17, queue="q", created=1.0),
        *(group(name, queue="q", created=8.0) for name in "ts"),
    ]
    queues = [queue(name, quota=gpu_bound(8)) for name in "qv"]
    nodes = [node("n1", gpus=16)]
    plan = solved(cluster(members, groups, nodes, queues, actions=("allocate", "reclaim")))
    assert set(nominated(plan)) == {"t-0", "s-0"}
    assert lost(plan) <= {f"{name}-0" for name in young}


def test_a_pod_that_allocate_bound_to_a_shared_gpu_may_wait_there(caplog: pytest.LogCaptureFixture) -> None:
    """Allocate binds the third pod of v to the shared GPU of the second. Where reclaim then moves the gang so
    that it starts together, the third keeps its place; reclaim has not put it beside a pod that it evicts."""
    apart = PodAffinityTerm(LabelSelector((Requirement("app", "In", ("b",)),)), "zone", None, 0)
    near = fraction(cpus=2, pod_anti_affinity=(apart,))
    members = [
        pod("v-0", "n1", spec=near, labels={"app": "a"}, gpu_groups=("d",)),
        pod("v-1", spec=near, labels={"app": "a"}),
        pod("v-2", "n2", spec=near, labels={"app": "a"}, gpu_groups=("e",)),
        pod("t-0", labels={"app": "b"}),
    ]
    zones = (("n1", 3, 2, "1"), ("n2", 4, 4, "0"), ("n3", 3, 4, "1"))
    snapshot = cluster(
        members,
        [group("v", 2, queue="v", last_start=NOW - 10), group("t", queue="t")],
        [node(name, gpus=gpus, cpus=cpus, labels={"zone": zone}) for name, gpus, cpus, zone in zones],
        [queue("v", quota=gpu_bound(1)), queue("t", quota=gpu_bound(8))],
        actions=("allocate", "reclaim"),
    )
    plan = solved(snapshot)
    assert caplog.messages == []
    assert {"v-1", "t-0"} <= placed(plan)


@pytest.mark.parametrize("priority", [10, 50])
def test_no_larger_group_stops_so_that_one_of_its_own_queue_may_follow(priority: int) -> None:
    """For a, the younger s of b stops; then b holds 8 of its 6 GPUs, so w waits. If h stopped, which has the
    priority 75, b would be within its quota, and w would fit beside a. But w has no right to h.
    """
    members = [
        pod("h-0", "n1", spec=spec(8)),
        pod("s-0", "n2", spec=spec(4)),
        pod("w-0"),
        pod("a-0", spec=spec(4)),
    ]
    groups = [group("h", queue="b", priority=75), group("s", queue="b", last_start=NOW - 10)]
    groups += [group("w", queue="b", priority=priority), group("a", queue="a")]
    queues = [queue(name, quota=gpu_bound(6)) for name in "ab"]
    nodes = [node("n1"), node("n2", gpus=4)]
    plan = solved(cluster(members, groups, nodes, queues, actions=("allocate", "reclaim")))
    assert (lost(plan), placed(plan)) == ({"s-0"}, {"a-0"})


def test_a_limit_counts_what_is_stuck_in_termination() -> None:
    """Queue a may hold 2 GPUs and s is stuck on one of them. t and u would fit in place of b and c."""
    groups = [group(name, queue="q") for name in "bc"] + [group(name, queue="a") for name in "stu"]
    stuck = pod("s-0", "n3", status=PodStatus.STUCK_IN_RELEASING)
    members = [pod("b-0", "n1"), pod("c-0", "n2"), stuck, pod("t-0"), pod("u-0")]
    queues = [queue("q", quota=gpu_bound(0)), queue("a", quota=gpu_bound(3), limit=gpu_bound(2))]
    nodes = [node(name, gpus=1) for name in ("n1", "n2", "n3")]
    plan = solved(cluster(members, groups, nodes, queues))
    assert (placed(plan), len(evicted(plan)), reasons(plan)) == ({"t-0"}, 1, {"u": "OverLimit"})


@pytest.mark.parametrize("least", [1, 4])
def test_pods_beyond_a_limit_do_not_come_back_first(least: int) -> None:
    """Queue v comes first in the fair order, but holds 4 GPUs where its limit was lowered to 2: what it loses
    to q takes nothing back.
    """
    members = [*pods("v", 4, "n1"), pod("t-0")]
    groups = [group("v", least, queue="v"), group("t", queue="q")]
    queues = [queue("q", quota=gpu_bound(0)), queue("v", limit=gpu_bound(2), priority=200)]
    plan = solved(cluster(members, groups, [node("n1", 4)], queues, actions=("allocate", "reclaim")))
    assert (placed(plan), len(lost(plan))) == ({"t-0"}, least)
