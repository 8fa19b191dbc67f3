"""The first plan needs no solver: many triggers are served although CP-SAT never answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any

import pytest
from ortools.sat.python import cp_model

from kai_cp.bench.generate import NOW as BENCH_NOW
from kai_cp.bench.generate import SHAPES
from kai_cp.reader import parse
from kai_cp_models.actions import admit, first, simulation
from kai_cp_models.actions.asking import waiting_groups
from kai_cp_models.actions.eviction_plan import EvictionPlan
from kai_cp_models.actions.run import ActionRun
from kai_cp_models.actions.simulation import Simulated, disturbed, in_the_way, simulate_all
from kai_cp_models.cycle import Cycle
from kai_cp_models.joint import search
from kai_cp_models.joint.policy import PREEMPT
from kai_cp_models.joint.problem import Ask, EvictionUnit
from kai_cp_models.joint.search import Outcome
from kai_cp_models.ledger import Ledger
from kai_cp_models.limits import LIMITS
from kai_cp_models.plan import Plan
from kai_cp_models.pods import GroupKey, Pod
from kai_cp_models.policy import ActionName
from kai_cp_models.snapshot import PodGroup, Queue, Snapshot, Topology, TopologyConstraint
from tests.properties.reasking import SETTINGS, decided, read, searching
from tests.support import tiny
from tests.support.clusters import random_cluster
from tests.support.objects import Object
from tests.support.plans import evicted, lost, placed, reasons, solved
from tests.support.worlds import NOW, PLUGINS, cluster, gpu_bound, group, node, pod, pods, queue, spec

SEEDS = range(12)
TRIGGERS = 24


@pytest.fixture
def speechless() -> Iterator[None]:
    """CP-SAT finds nothing and proves nothing, as if there were no time for it."""

    def solve(model: cp_model.CpModel, *_: object, **__: object) -> tuple[Outcome, cp_model.CpSolver]:
        return Outcome("unknown", False), cp_model.CpSolver()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "solve", solve)
        yield


def world(seed: int, action: ActionName) -> Snapshot:
    """Nodes full of pods of one queue, or of a queue above its share, and many small groups that wait."""
    rng = Random(seed)
    nodes = [node(f"n{i:02}") for i in range(rng.randint(8, 10))]
    members: list[Pod] = []
    groups: list[PodGroup] = []
    for one in nodes:
        left = 8
        while left:
            size = rng.choice([size for size in (1, 2, 4, 8) if size <= left])
            count = rng.randint(1, left // size)
            owner = f"v{len(groups):03}"
            members += pods(owner, count, one.name, spec=spec(size))
            groups.append(
                group(
                    owner,
                    rng.randint(1, count),
                    queue="v" if action == "reclaim" else "q",
                    priority=rng.choice((10, 20, 40)),
                    created=float(rng.randint(1, 99)),
                    last_start=NOW - rng.choice((100, 5000)),
                )
            )
            left -= size * count
    for i in range(TRIGGERS):
        count = rng.randint(1, 2)
        owner = f"t{i:02}"
        members += pods(owner, count, spec=spec(rng.choice((1, 1, 1, 2))))
        # Under preempt some of the running groups may come back before some of the waiting ones.
        priority = rng.choice((30, 60)) if action == "preempt" else 50
        groups.append(group(owner, count, priority=priority, created=float(rng.randint(1, 99))))
    half = gpu_bound(4 * len(nodes))
    queues: list[Queue] = [queue("q", quota=half), queue("v", quota=half)]
    return cluster(
        members,
        groups,
        nodes,
        queues,
        actions=(action,),
        plugins=PLUGINS | {"nodeplacement", "nodeavailability"},
    )


@pytest.mark.usefixtures("speechless")
@pytest.mark.parametrize("action", ["reclaim", "preempt"])
@pytest.mark.parametrize("seed", SEEDS)
def test_without_a_solver_there_is_a_plan(seed: int, action: ActionName) -> None:
    """``solved`` runs the checker. Where counting finds capacity for more than a dozen groups, most of them
    are served.
    """
    plan = solved(world(seed, action))
    served = {d.group for d in plan.decisions if d.kind == "Nominate"} - _running(plan)
    assert len(served) > 8
    assert lost(plan)


def _running(plan: Plan) -> set[GroupKey | None]:
    return {d.group for d in plan.decisions if d.kind == "Evict"}


@pytest.mark.parametrize("action", ["reclaim", "preempt"])
@pytest.mark.parametrize("seed", SEEDS)
def test_the_solver_takes_nothing_away(seed: int, action: ActionName, request: pytest.FixtureRequest) -> None:
    """What the first plan serves stays served, and the solver serves no group whose refusal was proved
    before.
    """
    snapshot = world(seed, action)
    full = solved(snapshot)
    request.getfixturevalue("speechless")
    first = solved(snapshot)
    assert placed(first) <= placed(full)
    impossible = {u.group for u in first.unscheduled if u.proved}
    assert not impossible & ({d.group for d in full.decisions} - _running(full))


@pytest.mark.usefixtures("speechless")
@pytest.mark.parametrize("count", [1, 12, 13])
def test_few_and_many_are_served_without_a_solver(count: int) -> None:
    """However many groups wait, each one gets the capacity of one that is evicted."""
    waiting = [pod(f"t{i:02}-0") for i in range(count)]
    running = [pod(f"v{i:02}-0", f"n{1 + i // 8}") for i in range(16)]
    groups = [group(one.key.name[:3], priority=10 if one.node else 60) for one in (*waiting, *running)]
    snapshot = cluster([*waiting, *running], groups, [node("n1"), node("n2")], actions=("preempt",))
    plan = solved(snapshot)
    assert len(placed(plan)) == len(lost(plan)) == count
    assert reasons(plan) == {}


@pytest.mark.usefixtures("speechless")
def test_more_leaves_where_counting_finds_capacity_that_is_no_place() -> None:
    """By counting, two pods of the lowest priority free enough for two triggers, but one trigger may not use
    their node.
    """
    nodes = [node(name, 2, labels={"pool": name}) for name in ("n1", "n2")]
    waiting = [pod(f"t{name}-0", spec=spec(node_selector=(("pool", name),))) for name in ("n1", "n2")]
    running = [pod(f"v{i}-0", f"n{1 + i // 2}") for i in range(4)]
    groups = [group("tn1", priority=60), group("tn2", priority=60)]
    groups += [group(f"v{i}", priority=5 + i) for i in range(4)]
    plan = solved(cluster([*waiting, *running], groups, nodes, actions=("preempt",)))
    assert placed(plan) == {"tn1-0", "tn2-0"}
    assert len(lost(plan)) == 2


@pytest.mark.usefixtures("speechless")
@pytest.mark.parametrize("count", [1, 2])
def test_a_plan_is_tried_where_the_units_in_turn_are_too_few(count: int) -> None:
    """Queue v holds eight GPUs and may lose four, the newest on each node. Taken in turn they free no two
    GPUs of one node, which each trigger asks for; both pods of some nodes do, while the others come home.
    """
    nodes = [node(f"n{i}", 2) for i in range(4)]
    running = [pod(f"{age}{i}-0", f"n{i}") for age in ("old", "new") for i in range(4)]
    waiting = [pod(f"t{i}-0", spec=spec(2)) for i in range(count)]
    groups = [group(f"old{i}", queue="v", created=1.0) for i in range(4)]
    groups += [group(f"new{i}", queue="v", created=2.0) for i in range(4)]
    groups += [group(f"t{i}") for i in range(count)]
    queues: list[Queue] = [queue("q", quota=gpu_bound(4)), queue("v", quota=gpu_bound(4))]
    plan = solved(cluster([*running, *waiting], groups, nodes, queues, actions=("reclaim",)))
    assert placed(plan) == {f"t{i}-0" for i in range(count)}
    assert len(lost(plan)) == 2 * count


@pytest.mark.usefixtures("speechless")
@pytest.mark.parametrize("action", ["reclaim", "preempt"])
def test_of_many_units_more_leave_until_an_ask_is_served(action: ActionName) -> None:
    """The trigger needs all of one node. The first eight units, as many as it asks for, are one of each of
    ten nodes, and the first 60 are six of each: no node is free until nearly all have left. All but the
    pods of one node come home.
    """
    assert LIMITS.open_units < 80
    nodes = [node(f"n{i}", 8) for i in range(10)]
    running = [pod(f"v{i:02}-0", f"n{i % 10}") for i in range(80)]
    groups = [group(f"v{i:02}", queue="v" if action == "reclaim" else "q", priority=5) for i in range(80)]
    groups.append(group("t", priority=60))
    queues: list[Queue] = [queue("q", quota=gpu_bound(8)), queue("v", quota=gpu_bound(72))]
    plan = solved(
        cluster([*running, pod("t-0", spec=spec(8))], groups, nodes, queues, actions=(action,)),
    )
    assert placed(plan) == {"t-0"}
    assert len(lost(plan)) == 8


@pytest.mark.usefixtures("speechless")
def test_the_bound_counts_what_leaves_everywhere() -> None:
    """The trigger needs one GPU of n1. The gang that leaves for it holds another one on n2, of no use to the
    trigger; so nothing shows that two must be lost.
    """
    running = [pod("v-0", "n1"), pod("v-1", "n2"), pod("w-0", "n1")]
    waiting = pod("t-0", spec=spec(node_selector=(("pool", "n1"),)))
    groups = [group("v", 2, priority=5), group("w", priority=6), group("t", priority=60)]
    nodes = [node("n1", 2, labels={"pool": "n1"}), node("n2", 1)]
    plan = solved(cluster([*running, waiting], groups, nodes, actions=("preempt",)))
    assert lost(plan) == {"v-0", "v-1"}
    stage = next(one for one in plan.stages if "lost GPUs" in one.name)
    assert (stage.objective, stage.bound, stage.status) == (2_000, 1_000, "FEASIBLE")


@pytest.mark.usefixtures("speechless")
def test_the_bound_counts_places_of_this_cycle_that_may_be_taken_back() -> None:
    """The first plan stops b for t. Without a, and with the place that allocate gave to new, t has one too,
    and a GPU less is lost.
    """
    running = [pod("a-0", "n1", spec=spec(3)), pod("b-0", "n2", spec=spec(4))]
    groups = [group(name, priority=5, last_start=NOW - ago) for name, ago in (("a", 9), ("b", 5))]
    groups += [group("new", priority=5), group("t", priority=60)]
    waiting = [pod("new-0"), pod("t-0", spec=spec(4))]
    nodes = [node("n1", 4), node("n2", 4)]
    plan = solved(cluster([*running, *waiting], groups, nodes, actions=("allocate", "preempt")))
    assert lost(plan) == {"b-0"}
    stage = next(one for one in plan.stages if "lost GPUs" in one.name)
    assert (stage.objective, stage.bound, stage.status) == (4_000, 3_000, "FEASIBLE")


@pytest.mark.parametrize("devices", [1, 2])
def test_a_gang_that_comes_home_in_part_has_lost_what_has_no_place(devices: int) -> None:
    """The trigger needs n1. Of the gang only the pod there is lost, and its surplus pod v-2 stays on n2. One
    pod counts as lost, although none of the gang's units has left as a whole.
    """
    members = [pod(f"v-{i}", at, spec=spec(devices)) for i, at in enumerate(("n2", "n1", "n2"))]
    waiting = pod("t-0", spec=spec(node_selector=(("pool", "n1"),)))
    groups = [group("v", 2, priority=5), group("t", priority=60)]
    nodes = [node("n1", devices, labels={"pool": "n1"}), node("n2", 2 * devices)]
    plan = solved(cluster([*members, waiting], groups, nodes, actions=("preempt",)))
    assert lost(plan) == {"v-1"}
    stage = next(one for one in plan.stages if "lost GPUs" in one.name)
    assert (stage.objective, stage.bound) == (1_000 * devices, 1_000)


@pytest.mark.usefixtures("speechless")
@pytest.mark.parametrize("looks", [1, 5, 12])
def test_a_plan_cut_short_serves_the_first(looks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Time ends after so many pod groups were popped. The groups before that are served, and nothing else is
    evicted.
    """
    waiting = [pod(f"t{i:02}-0") for i in range(16)]
    running = [pod(f"v{i:02}-0", f"n{1 + i // 8}") for i in range(16)]
    groups = [
        group(one.key.name[:3], priority=10 if one.node else 60, created=float(i))
        for i, one in enumerate((*waiting, *running))
    ]
    snapshot = cluster([*waiting, *running], groups, [node("n1"), node("n2")], actions=("preempt",))
    full = solved(snapshot)
    assert len(placed(full)) == len(lost(full)) == 16
    late = iter([False] * looks + [True] * 99)
    monkeypatch.setattr(first, "simulate_all", lambda *given: simulate_all(*given[:-1], lambda: next(late)))
    plan = solved(snapshot)
    assert placed(plan) == {f"t{i:02}-0" for i in range(looks)}
    assert len(lost(plan)) == looks


@pytest.mark.usefixtures("speechless")
def test_a_victim_of_a_group_without_a_place_is_for_no_other() -> None:
    """Every v leaves for the high groups, each of which needs two pods in one rack and gets no place. Low may
    take w alone, which is not enough, although it would fit where a v was.
    """
    count = LIMITS.optional_chunk
    racks = [f"r{i:02}" for i in range(2 * count + 1)]
    nodes = [node(name, 4, labels={"rack": name}) for name in (*racks, "last")]
    firm = [pod(f"f-{i}", name) for i, name in enumerate((*racks, "last", "last", "last"))]
    running = [*(pod(f"v{name}-0", name, spec=spec(2)) for name in racks), pod("w-0", "last")]
    high = [f"high{i:02}" for i in range(count)]
    waiting = [*(one for name in high for one in pods(name, 2, spec=spec(3))), pod("low-0", spec=spec(2))]
    rack = TopologyConstraint("fabric", "rack")
    groups = [
        group("f", len(firm), preemptible=False),
        *(group(f"v{name}") for name in racks),
        group("w", priority=10),
        *(group(name, 2, priority=75, constraint=rack) for name in high),
        group("low"),
    ]
    snapshot = cluster(
        (*firm, *running, *waiting),
        groups,
        nodes,
        topologies=(Topology("fabric", ("rack",)),),
        actions=("preempt",),
        plugins=PLUGINS | {"topology"},
    )
    plan = solved(snapshot)
    assert not lost(plan)
    assert "InternalError" not in reasons(plan).values()


def test_first_plan_ends_where_pods_that_left_for_others_do_not_come_home() -> None:
    """Of two triggers one gets no place, and the other uses what left for it, which it may not take. The
    search for a first plan ends all the same, long before the deadline.
    """
    snapshot = parse(SHAPES["mixed"](24, 593), now=BENCH_NOW.timestamp())
    calls: list[int] = []

    def counted(*given: Any) -> Any:
        calls.append(len(given[1]))
        assert len(calls) < 100
        return simulate_all(*given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(first, "simulate_all", counted)
        plan = solved(snapshot)
    assert calls
    assert not any("cut" in stage.name for stage in plan.stages)


def torn_gang(first: str, second: str) -> tuple[list[Object], dict[str, Object]]:
    """A gang of which one subgroup suffices: a runs, and one of the two pods of b."""
    named = (("a", "torn-a", first, 2), ("b", "torn-b", second, 2), ("b", "torn-more", "", 8))
    members = [
        tiny.pod(name, on, gpus=gpus, group="torn", labels={"kai.scheduler/subgroup-name": part})
        for part, name, on, gpus in named
    ]
    parts = [{"name": "a", "minMember": 1}, {"name": "b", "minMember": 2}]
    return members, {"torn": {"minSubGroup": 1, "subGroups": parts}}


OLD = {"nodeSelector": {"kind": "old"}}


def test_pods_that_a_gang_leaves_behind_are_taken_only_by_right() -> None:
    """The gang leaves for high, which finds no place: its pods listen on one port. Subgroup a comes home
    alone. later fits into the place of torn-b, which it may not take."""
    members, groups = torn_gang("n0", "n0")
    listens = {"ports": [{"containerPort": 80, "hostPort": 80}], "name": "c", "image": "i"}
    resources = {"resources": {"requests": {"cpu": "1", "nvidia.com/gpu": "1"}}}
    high = {"priority": "build-preemptible", "containers": [listens | resources]}
    snapshot = tiny.world(
        [tiny.node("n0", gpus=4, labels={"kind": "old"}), tiny.node("n1", gpus=1)],
        [
            tiny.pod("small", "n1", gpus=1, priority="low"),
            *(tiny.pod(f"high-{i}", group="high", **OLD, **high) for i in range(2)),
            tiny.pod("later", gpus=1, **OLD),
            *members,
        ],
        groups=groups | {"high": {"minMember": 2}},
        actions="allocate, preempt",
    )
    plan = solved(snapshot)
    assert evicted(plan) == set()
    assert "InternalError" not in reasons(plan).values()


@pytest.mark.usefixtures("speechless")
def test_a_pod_below_the_minimum_of_its_subgroup_stays_beside_the_others() -> None:
    """high needs the place of torn-a, which moves; torn-b, which is in no batch, stays."""
    members, groups = torn_gang("n0", "n1")
    snapshot = tiny.world(
        [tiny.node("n0", gpus=2, labels={"kind": "old"}), *(tiny.node(f"n{i}", gpus=2) for i in (1, 2))],
        [*members, tiny.pod("high", gpus=2, priority="build-preemptible", **OLD)],
        groups=groups,
        actions="allocate, preempt",
    )
    plan = solved(snapshot)
    assert evicted(plan) == {"torn-a"}
    assert placed(plan) == {"high"}


@pytest.mark.parametrize("seed", [9_700_065, 9_700_249, 9_700_263])
def test_every_victim_is_taken_by_a_trigger(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a gang comes home in part: what it leaves behind is for a trigger that may take it."""
    plans: list[EvictionPlan] = []

    def first_plans(run: ActionRun, chunk: Sequence[Ask]) -> list[EvictionPlan]:
        found = first.first_plans(run, chunk)
        plans.extend(found)
        return found

    monkeypatch.setattr(admit, "first_plans", first_plans)
    decided(read(random_cluster(seed, scale=2)), searching(SETTINGS, {"solver": {"budget_seconds": 2}}))
    assert plans
    for found in plans:
        gone = (i for i in found.ranked if not all(map(found.ledger.stays, i.pods)))
        assert all(item in found.owners for item in gone)


@pytest.mark.parametrize("action", ["reclaim", "preempt"])
def test_an_action_that_is_decided_twice_looks_for_first_plans_once(
    action: ActionName, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was decided first has changed nothing in them."""
    asked, looked = list[tuple[Ledger, tuple[GroupKey, ...]]](), list[Ledger]()
    look, simulated = first.first_plans, first.simulate_all

    def states(plans: Sequence[EvictionPlan]) -> list[tuple[object, ...]]:
        return [(one.asks, one.ledger.evicted, one.ledger.held, one.ledger.book) for one in plans]

    def twice(run: ActionRun, chunk: Sequence[Ask]) -> list[EvictionPlan]:
        what = run.base, tuple(ask.group.key for ask in chunk)
        before, count = what in asked, len(looked)
        asked.append(what)
        found = look(run, chunk)
        if before:
            assert len(looked) == count
            assert states(found) == states(look(ActionRun(run.cycle, run.policy, run.base, run.asks), chunk))
        return found

    def counted(*given: Any) -> Simulated:
        looked.append(given[0])
        return simulated(*given)

    monkeypatch.setattr(admit, "first_plans", twice)
    monkeypatch.setattr(first, "simulate_all", counted)
    for seed in SEEDS:
        solved(world(seed, action))
    assert len(set(asked)) < len(asked)


@pytest.mark.usefixtures("speechless")
def test_a_first_plan_looks_once_for_what_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """All places of the cycle are looked at for it, and a queue after the other makes a plan."""
    looked, look, plans = list[Ledger](), ActionRun.taken, first.first_plans

    def counted(run: ActionRun, ledger: Ledger) -> Any:
        looked.append(ledger)
        return look(run, ledger)

    def made(run: ActionRun, chunk: Sequence[Ask]) -> list[EvictionPlan]:
        looked.clear()
        found = plans(run, chunk)
        assert looked
        assert len(set(map(id, looked))) == len(looked)
        return found

    monkeypatch.setattr(admit, "first_plans", made)
    monkeypatch.setattr(ActionRun, "taken", counted)
    assert evicted(solved(world(0, "preempt")))


@pytest.mark.usefixtures("speechless")
@pytest.mark.parametrize("action", ["reclaim", "preempt"])
def test_units_in_the_way_are_found_without_those_that_come_home_for_certain(
    action: ActionName, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of all units that first plans evict, the same cannot come home where only those are played back that
    something may hinder as where all are.
    """
    counts: list[tuple[int, int]] = []

    def some(base: Ledger, emptied: Ledger, victims: Mapping[GroupKey, Sequence[Pod]]) -> Any:
        found = disturbed(base, emptied, victims)
        counts.append((len(found), len(victims)))
        return found

    def compared(base: Ledger, asks: Sequence[Ask], units: Sequence[EvictionUnit], *rest: Any) -> Simulated:
        for few in (asks[:1], asks) if len(units) > 1 else ():
            ways = []
            for played in (some, lambda *given: given[2]):
                monkeypatch.setattr(simulation, "disturbed", played)
                ways.append(list(in_the_way(base, few, units, (len(units) // 2, len(units)))))
                ways += [
                    list(in_the_way(base, few, units[:most], (most,)))
                    for most in (len(units) // 2, len(units))
                ]
            assert ways[0] == ways[3]
            assert ways[0] == ways[1] + ways[2]
        return simulate_all(base, asks, units, *rest)

    monkeypatch.setattr(first, "simulate_all", compared)
    for seed in SEEDS:
        solved(world(seed, action))
    assert any(0 < played < victims for played, victims in counts)


def test_a_group_that_asks_for_more_gives_up_none_of_its_pods() -> None:
    """t needs the place of e-0, and e-1 could have that of w: a gang does not go on with its second pod."""
    snapshot = tiny.world(
        [tiny.node("n0", gpus=1, labels={"side": "left"}), tiny.node("n1", gpus=1)],
        [
            tiny.pod("e-0", "n0", gpus=1, group="e"),
            tiny.pod("w", "n1", gpus=1, priority="low"),
            tiny.pod("t", gpus=1, priority="build", nodeSelector={"side": "left"}),
            tiny.pod("e-1", gpus=1, group="e"),
        ],
        groups={"e": {"minMember": 1}},
        actions="allocate, preempt",
    )
    cycle = Cycle(snapshot, SETTINGS, Ledger.of(snapshot), float("inf"))
    run = ActionRun(cycle, PREEMPT, cycle.ledger, waiting_groups(cycle, "preempt"))
    asks = sorted(run.asks.values(), key=lambda ask: ask.group.key.name, reverse=True)
    served = [{ask.group.key.name for ask in plan.asks} for plan in first.first_plans(run, asks)]
    assert served == [{"e"}], "without the place of e-0"


@pytest.mark.usefixtures("speechless")
def test_places_of_this_cycle_stay_where_others_free_enough() -> None:
    """new gets the idle GPU of five. t asks for two: new and old would leave in turn, and new would start
    when old has gone. Where old alone leaves, t has its place, too, and new starts now.
    """
    snapshot = cluster(
        [
            pod("old-0", "n1", spec=spec(2)),
            pod("firm-0", "n1", spec=spec(2)),
            pod("new-0"),
            pod("t-0", spec=spec(2)),
        ],
        [
            group("old", queue="v"),
            group("firm", queue="w", preemptible=False),
            group("new", queue="v", created=1.0),
            group("t", queue="q"),
        ],
        [node("n1", gpus=5)],
        [queue(name, quota=gpu_bound(gpus)) for name, gpus in (("q", 3), ("v", 1), ("w", 1))],
        actions=("allocate", "reclaim"),
    )
    plan = solved(snapshot)
    assert evicted(plan) == {"old-0"}
    assert {(d.pod.name, d.kind) for d in plan.decisions if d.kind != "Evict"} == {
        ("new-0", "Bind"),
        ("t-0", "Nominate"),
    }
