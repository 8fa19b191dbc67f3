"""How many triggers an eviction action tries together, what it remembers, and when the last goals end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from kai_cp.bench.generate import NOW, SHAPES
from kai_cp.reader import parse
from kai_cp_models.actions import admit, evict, eviction_plan, jointly
from kai_cp_models.actions.eviction_plan import NOTHING_SUFFICES, EvictionPlan, NoPlan
from kai_cp_models.actions.reclaim_bounds import Owners
from kai_cp_models.actions.run import ActionRun, rightful
from kai_cp_models.budget import Budget
from kai_cp_models.cycle import Cycle
from kai_cp_models.fairness.steps import QueueSteps
from kai_cp_models.joint.evicting import EvictingModel
from kai_cp_models.joint.policy import RECLAIM
from kai_cp_models.joint.problem import Answer, Ask
from kai_cp_models.joint.victim_candidates import VictimOrder
from kai_cp_models.limits import LIMITS
from kai_cp_models.plan import Plan
from kai_cp_models.pods import Pod
from kai_cp_models.policy import ActionName
from kai_cp_models.settings import Settings
from kai_cp_models.snapshot import Shares, Snapshot, Topology, TopologyConstraint
from tests.support import tiny
from tests.support.objects import Object
from tests.support.plans import SETTINGS, evicted, lost, placed, solved
from tests.support.worlds import PLUGINS, cluster, gpu_bound, group, node, pod, pods, queue, spec

TRIGGERS = ("t0", "t1", "t2", "t3")


def world() -> Snapshot:
    """Queue v holds all 8 GPUs with one pod each; four groups of q ask for one GPU; both queues
    deserve four.
    """
    return cluster(
        [*pods("v", 8, "n1"), *(pod(f"{name}-0") for name in TRIGGERS)],
        [
            group("v", queue="v"),
            *(group(name, queue="q", created=float(i)) for i, name in enumerate(TRIGGERS)),
        ],
        queues=[queue("q", quota=gpu_bound(4)), queue("v", quota=gpu_bound(4))],
        actions=("allocate", "reclaim"),
    )


def test_a_plan_that_serves_no_more_groups_moves_no_more_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    """60 nodes: three groups get a place by five moves. A model of ten more serves none of them, and moves
    seven pods for the same three.
    """
    first: list[EvictionPlan] = []
    first_plans = admit.first_plans

    def recorded(run: ActionRun, chunk: Sequence[Ask]) -> list[EvictionPlan]:
        found = first_plans(run, chunk)
        first.extend(found)
        return found

    monkeypatch.setattr(admit, "first_plans", recorded)
    snapshot = parse(SHAPES["contended"](60, 1), now=NOW.timestamp())
    actions = replace(snapshot.policy, actions=("allocate", "consolidation"))
    plan = solved(
        replace(snapshot, policy=actions),
        SETTINGS.model_copy(update={"solver": SETTINGS.solver.model_copy(update={"patience": 0.5})}),
    )
    assert len(first[0].ledger.evicted) == 5
    assert len(evicted(plan)) == 5


def test_triggers_that_fit_as_it_is_need_no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Queue v holds four of eight GPUs, so that all four triggers fit without it losing anything."""
    snapshot = world()
    free = replace(
        snapshot, pods=tuple(one for one in snapshot.pods if one.key.name not in {"v-4", "v-5", "v-6", "v-7"})
    )
    actions = replace(free.policy, actions=("reclaim",))
    monkeypatch.setattr(admit, "attempt", None)
    plan = solved(replace(free, policy=actions))
    assert not evicted(plan)
    assert placed(plan) == {f"{name}-0" for name in TRIGGERS}


def test_a_group_that_models_have_no_work_left_for_is_asked_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first plan serves only the first trigger, and no model finds another one. Beside what is admitted,
    first plans serve one after the other."""
    first_plans = admit.first_plans
    monkeypatch.setattr(admit, "first_plans", lambda run, chunk: first_plans(run, chunk[:1]))
    monkeypatch.setattr(admit, "attempt", lambda run, chunk, **_: NoPlan(eviction_plan.OUT_OF_TIME))
    plan = solved(world())
    assert placed(plan) == {f"{name}-0" for name in TRIGGERS}


def entitling(*others: Pod) -> Plan:
    """Reclaim on two nodes of six GPUs. Queues a, b and c deserve four each, and have a group of their name.
    Group u of queue a needs four pods that wait.
    """
    return solved(
        cluster(
            [*others, *pods("u", 4)],
            [*(group(name, queue=name) for name in "abc"), group("u", 4, queue="a")],
            [node("n1", gpus=6), node("n2", gpus=6)],
            [queue(name, quota=gpu_bound(4)) for name in "abc"],
            actions=("allocate", "reclaim"),
        )
    )


def test_a_queue_that_loses_pods_is_entitled_in_the_same_action() -> None:
    """All queues deserve four GPUs. c takes the gang of six of queue a, which was above its share until then.
    Group u of a then takes two pods of b.
    """
    plan = entitling(pod("a-0", "n1", spec=spec(6)), *pods("b", 6, "n2"), pod("c-0", spec=spec(4)))
    assert evicted(plan) == {"a-0", "b-4", "b-5"}
    assert placed(plan) == {"c-0", "u-0", "u-1", "u-2", "u-3"}


def test_admitted_groups_take_what_entitles_a_further_one() -> None:
    """All queues deserve four GPUs; a holds five and b six. For c, two pods of b are enough, but then a keeps
    more than its share and its group u waits. With the gang of a gone, there is room for both.
    """
    plan = entitling(pod("a-0", "n1", spec=spec(5)), *pods("b", 6, "n2"), pod("c-0", spec=spec(2)))
    assert evicted(plan) == {"a-0"}
    assert placed(plan) == {"c-0", "u-0", "u-1", "u-2", "u-3"}


def test_no_victim_is_chosen_anew_for_a_group_that_what_is_left_over_serves() -> None:
    """All queues deserve four GPUs; a holds five and b six, one pod each. c takes the pod of b, which goes
    first, and what it leaves over is enough for group u of a. With the pod of a gone, which goes later, u has
    a right to its place.
    """
    plan = entitling(pod("a-0", "n1", spec=spec(5)), pod("b-0", "n2", spec=spec(6)), pod("c-0", spec=spec(2)))
    assert evicted(plan) == {"b-0"}
    assert placed(plan) == {"c-0", "u-0", "u-1", "u-2", "u-3"}


def test_a_loss_that_is_too_much_is_not_tried_again_beside_needless_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both departments have a share of ten; d1 holds nine and asks for two. It may not take the gang of
    eight, which leaves d0 with less of its share than d1 would have, but the older work of two. Six other
    pods do not help and come home, so each set of these beside the gang would be one plan more.
    """
    small = [f"small{i}" for i in range(6)]
    snapshot = cluster(
        [
            pod("big-0", "n1", spec=spec(8)),
            pod("old-0", "n1", spec=spec(2)),
            *(pod(f"{name}-0", f"m{name}") for name in small),
            *pods("held", 9, "n2"),
            pod("t-0", spec=spec(2)),
        ],
        [
            group("big", queue="a", created=2.0),
            group("old", queue="a", created=1.0, priority=60),
            *(group(name, queue="a", created=3.0) for name in small),
            group("held", queue="b2"),
            group("t", queue="b"),
        ],
        [node("n1", gpus=10), node("n2", gpus=9), *(node(f"m{name}", gpus=1) for name in small)],
        [
            queue(name, parent, quota=gpu_bound(quota), weight=Shares(0, 0, 0))
            for name, parent, quota in (
                ("d0", None, 10),
                ("d1", None, 10),
                ("a", "d0", 10),
                ("b", "d1", 5),
                ("b2", "d1", 5),
            )
        ],
        actions=("allocate", "reclaim"),
    )
    monkeypatch.setattr(admit, "first_plans", lambda _victims, _chunk: [])
    plan = solved(snapshot)
    assert evicted(plan) == {"old-0"}
    assert placed(plan) == {"t-0"}


def test_a_model_without_a_solution_costs_no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gang of two asks for one rack, and in each rack one pod gives way to it. The sums allow that, so a
    model is made, and has no solution.
    """
    racks = {"a": {"rack": "a"}, "b": {"rack": "b"}}
    snapshot = cluster(
        [
            *(pod(f"v{name}-0", name) for name in racks),
            *(pod(f"f{name}-0", name) for name in racks),
            *pods("t", 2),
        ],
        [
            *(group(f"v{name}", priority=10) for name in racks),
            *(group(f"f{name}", priority=90) for name in racks),
            group("t", 2, priority=50, constraint=TopologyConstraint("fabric", "rack")),
        ],
        [node(name, gpus=2, labels=labels) for name, labels in racks.items()],
        topologies=(Topology("fabric", ("rack",)),),
        actions=("allocate", "preempt"),
        plugins=PLUGINS | {"topology"},
    )
    results: list[EvictionPlan | NoPlan] = []
    attempt = admit.attempt

    def recorded(*chunk: Any, **options: bool) -> EvictionPlan | NoPlan:
        results.append(attempt(*chunk, **options))
        return results[-1]

    monkeypatch.setattr(admit, "attempt", recorded)
    vain: list[float] = []
    monkeypatch.setattr(Budget, "in_vain", lambda _budget, work: vain.append(work))
    assert not placed(solved(snapshot))
    assert results == [NoPlan(NOTHING_SUFFICES)]
    assert not vain


def test_a_plan_holds_where_each_takes_what_it_needs_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both departments have a share of five; d0 holds four and c six. The first of two groups of d0 takes the
    pod of two GPUs, with which d0 holds its five, and the second takes nothing. With d0 at six of five, the
    second may not take from c. That a solver charges the loss to the second makes it no other plan.
    """
    snapshot = cluster(
        [
            *pods("held", 4, "n1"),
            *pods("old", 4, "n1"),
            pod("big-0", "n1", spec=spec(2)),
            pod("t0-0"),
            pod("t1-0"),
        ],
        [
            group("held", queue="a", preemptible=False),
            group("old", queue="c", priority=60),
            group("big", queue="c"),
            group("t0", queue="b", created=1.0),
            group("t1", queue="b", created=2.0),
        ],
        [node("n1", gpus=10)],
        [
            queue(name, parent, quota=gpu_bound(quota), weight=Shares(0, 0, 0))
            for name, parent, quota in (
                ("d0", None, 5),
                ("d1", None, 5),
                ("a", "d0", 4),
                ("b", "d0", 2),
                ("c", "d1", 5),
            )
        ],
        actions=("allocate", "reclaim"),
    )

    def to_the_last(model: EvictingModel, answer: Answer, _solver: object) -> Owners:
        lost = zip(model.units, answer.lost, strict=True)
        return {item: (model.asks[-1].group.key,) for item, yes in lost if yes}

    served: list[int] = []
    attempt = admit.attempt

    def recorded(*chunk: Any, **options: bool) -> EvictionPlan | NoPlan:
        found = attempt(*chunk, **options)
        served.append(len(found.asks) if isinstance(found, EvictionPlan) else 0)
        return found

    monkeypatch.setattr(admit, "first_plans", lambda _victims, _chunk: [])
    monkeypatch.setattr(admit, "attempt", recorded)
    monkeypatch.setattr(jointly, "_chosen", to_the_last)
    plan = solved(snapshot)
    assert served[0] == 2
    assert evicted(plan) == {"big-0"}
    assert placed(plan) == {"t0-0", "t1-0"}


def test_another_victim_is_sought_where_the_first_would_come_back() -> None:
    """Both departments deserve four GPUs; d1 holds seven and d0 five. Without the group of four or of three,
    d1 holds less than d0, comes first and takes its place back. Without three of d0's five GPUs, d0 comes
    first, and there the queue that holds nothing.
    """
    snapshot = cluster(
        [
            *(pod(f"{name}-0", "n1", spec=spec(k)) for name, k in (("a", 3), ("b", 2), ("c", 4), ("d", 3))),
            pod("t-0", spec=spec(3)),
        ],
        [
            *(group(name, queue="held", created=float(at)) for at, name in ((1, "b"), (2, "a"))),
            *(group(name, queue="other", created=float(at)) for at, name in ((1, "c"), (2, "d"))),
            group("t", queue="empty"),
        ],
        [node("n1", gpus=12)],
        [
            queue(name, parent, quota=gpu_bound(quota))
            for name, parent, quota in (
                ("d0", None, 4),
                ("d1", None, 4),
                ("held", "d0", 1),
                ("empty", "d0", 3),
                ("other", "d1", 4),
            )
        ],
        actions=("allocate", "reclaim"),
    )
    plan = solved(snapshot)
    assert evicted(plan) == {"a-0"}
    assert placed(plan) == {"t-0"}


def test_that_all_triggers_have_no_plan_shows_nothing_about_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    """x asks for two GPUs, then y for one; their queue holds three of its six. The fair order looks first at
    huge, with which their queue would hold 8/6. So what frees two or more GPUs comes home first: gang, with
    which b holds 8/6, and big, with which c holds 5/4. After small, c would hold 8/4 with firm: y is served,
    without a first plan.
    """
    monkeypatch.setattr(admit, "first_plans", lambda *_: [])
    running = {"gang": ("n1", 8), "own": ("n2", 3), "small": ("n2", 1), "big": ("n2", 4)}
    waiting, weights = {"huge": 5, "x": 2, "y": 1}, {"a": 6, "b": 6, "c": 4}
    snapshot = cluster(
        [
            *(pod(f"{name}-0", at, spec=spec(gpus)) for name, (at, gpus) in running.items()),
            *(pod(f"{name}-0", spec=spec(gpus)) for name, gpus in (waiting | {"firm": 4}).items()),
        ],
        [
            *(group(name, queue=of) for name, of in zip(running, "bacc", strict=True)),
            *(group(name, queue="a", created=float(at)) for at, name in enumerate(waiting)),
            group("firm", queue="c", preemptible=False, priority=100),
        ],
        [node("n1"), node("n2")],
        [queue(name, quota=gpu_bound(0), weight=Shares(1, 1, share)) for name, share in weights.items()],
        actions=("allocate", "reclaim"),
    )
    plan = solved(snapshot)
    assert evicted(plan) == {"small-0"}
    assert placed(plan) == {"y-0"}


# --- the last goals -------------------------------------------------------------------------------


@pytest.mark.parametrize(("most", "pursued"), [(3, False), (4, True)])
def test_the_last_goals_are_pursued_for_so_many(
    monkeypatch: pytest.MonkeyPatch, most: int, pursued: bool
) -> None:
    """Models with a rough goal admit four triggers; the goals are pursued for at most four triggers."""
    again: list[bool] = []
    finish = admit.finish

    def recorded(run: ActionRun, found: EvictionPlan) -> EvictionPlan:
        best = finish(run, found)
        again.append(best is not found)
        return best

    monkeypatch.setattr(eviction_plan, "LIMITS", replace(LIMITS, finished_asks=most))
    monkeypatch.setattr(admit, "finish", recorded)
    monkeypatch.setattr(admit, "first_plans", lambda _victims, _chunk: [])
    assert placed(solved(world())) == {f"{name}-0" for name in TRIGGERS}
    assert again == [pursued]


def test_a_group_that_lost_its_pods_is_not_entitled_by_that() -> None:
    """b takes the gang of a. Queue a is within its share then, but one more pod of the gang is of no use."""
    snapshot = tiny.world(
        [tiny.node("n0", gpus=4, labels={"kind": "old"}), tiny.node("n1", gpus=4)],
        [
            *(tiny.pod(f"gang-{i}", "n0", gpus=1, group="gang", queue="a") for i in range(4)),
            tiny.pod("gang-4", gpus=1, group="gang", queue="a"),
            *(tiny.pod(f"c-{i}", "n1", gpus=1, queue="c") for i in range(4)),
            tiny.pod("b", gpus=4, queue="b", nodeSelector={"kind": "old"}),
        ],
        groups={"gang": {"minMember": 4}},
        queues=[tiny.queue(name, quota={"gpu": quota}) for name, quota in (("a", 2), ("b", 4), ("c", 2))],
        actions="allocate, reclaim",
    )
    plan = solved(snapshot)
    assert placed(plan) == {"b"}
    assert evicted(plan) == {f"gang-{i}" for i in range(4)}


@pytest.mark.parametrize(("nodes", "seed"), [(9, 3), (14, 0)])
def test_a_group_that_a_part_of_reclaim_serves_is_in_no_later_part(
    monkeypatch: pytest.MonkeyPatch, nodes: int, seed: int
) -> None:
    """A loss entitles a group, which is decided at the end; before that what is left over serves it."""
    commits, offers = evict.named_triggers, evict.backfill
    passes: list[list[Sequence[Ask]]] = [[]]

    def committed(order: VictimOrder, found: EvictionPlan) -> object:
        if order.reach.policy is RECLAIM:
            passes[-1].append(found.asks)
        return commits(order, found)

    def offered(cycle: Cycle, action: ActionName) -> None:
        passes.append([])
        offers(cycle, action)

    monkeypatch.setattr(evict, "named_triggers", committed)
    monkeypatch.setattr(evict, "backfill", offered)
    solved(parse(SHAPES["backlog"](nodes, seed), now=NOW.timestamp()))
    assert max(map(len, passes)) > 1
    for parts in passes:
        groups = [ask.group.key for part in parts for ask in part]
        assert len(groups) == len(set(groups))


def test_no_model_looks_for_groups_beside_those_that_are_decided_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A plan serves a group that has a right to fewer units than an earlier one. So the first groups are
    decided without it, and what a model found beside all of them would not be used."""
    attempt, attempts = admit.attempt, list[bool]()

    def attempted(run: ActionRun, chunk: Sequence[Ask], *, optional: bool) -> EvictionPlan | NoPlan:
        found = run.found
        if run.open_units is None and not run.anew:
            attempts.append(bool(rightful(run.ranked, found.asks, found.lost or found.disturbed)))
        return attempt(run, chunk, optional=optional)

    monkeypatch.setattr(admit, "attempt", attempted)
    solved(parse(SHAPES["backlog"](16, 0), now=NOW.timestamp()))
    assert attempts
    assert not any(attempts)


@pytest.mark.parametrize("actions", ["allocate, reclaim, preempt", "preempt, reclaim, allocate"])
def test_decisions_are_named_in_the_order_in_which_the_actions_run(actions: str) -> None:
    """high preempts low in its own queue, and b reclaims from c."""
    snapshot = tiny.world(
        [tiny.node("n0", gpus=1, labels={"kind": "old"}), tiny.node("n1", gpus=2)],
        [
            tiny.pod("low", "n0", gpus=1, queue="a", priority="low"),
            tiny.pod("high", gpus=1, queue="a", nodeSelector={"kind": "old"}),
            *(tiny.pod(f"c-{i}", "n1", gpus=1, queue="c") for i in range(2)),
            tiny.pod("b", gpus=1, queue="b"),
        ],
        queues=[tiny.queue(name, quota={"gpu": 1}) for name in "abc"],
        actions=actions,
    )
    plan = solved(snapshot)
    assert placed(plan) == {"high", "b"}
    done = list(dict.fromkeys(d.action for d in plan.decisions))
    assert done == [name for name in actions.split(", ") if name in done]
    assert len(done) == 2


def test_a_group_that_its_own_rule_refuses_does_not_end_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pods of twice, which is first, want each other's node, and each may use another one. No model has a
    row for that. Without a first plan the model alone serves easy.
    """
    monkeypatch.setattr(admit, "first_plans", lambda *_: [])
    together = {"labelSelector": {"matchLabels": {"g": "twice"}}, "topologyKey": "name"}
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [together]}}

    def half(i: int) -> Object:
        name, where = f"twice-{i}", {"name": f"n{i}"}
        own = {"labels": {"g": "twice"}, "affinity": affinity, "nodeSelector": where}
        return tiny.pod(name, gpus=1, group="twice", **own)

    snapshot = tiny.world(
        [tiny.node(name, gpus=2, labels={"name": name}) for name in ("n0", "n1", "n2")],
        [
            *(tiny.pod(f"v{i}", f"n{i % 3}", gpus=1, queue="hog") for i in range(6)),
            *map(half, range(2)),
            tiny.pod("easy", gpus=2),
        ],
        groups={"twice": {"minMember": 2}},
        queues=[tiny.queue("q", quota={"gpu": 4}), tiny.queue("hog", quota={"gpu": 0})],
        actions="allocate, reclaim",
    )
    plan = solved(snapshot)
    assert placed(plan) == {"easy"}
    assert len(lost(plan)) == 2


@pytest.mark.parametrize("count", [32, 64])
def test_a_refused_kind_costs_the_same_however_many_there_are(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every gang wants two whole nodes of one rack, of which v, first in line itself, holds a part. Gangs are
    refused one by one, as each asks for another amount of CPUs.
    """
    work = Counter[str]()

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def count(*given: Any) -> Any:
            work[function.__name__] += 1
            return function(*given)

        return count

    monkeypatch.setattr(admit, "refusal", counted(admit.refusal))
    monkeypatch.setattr(QueueSteps, "standing", counted(QueueSteps.standing))
    monkeypatch.setattr(admit, "LIMITS", replace(LIMITS, passed_over=4))
    rack = TopologyConstraint("fabric", "rack")
    members, gangs = pods("v", 4, "n0"), [group("v", 4, queue="v")]
    for i in range(count):
        members += pods(f"g{i}", 2, spec=spec(7, cpus=i + 1))
        gangs.append(group(f"g{i}", 2, queue="q", constraint=rack, created=float(i)))
    snapshot = cluster(
        members,
        gangs,
        [node(f"n{i}", cpus=200, labels={"zone": "z", "rack": f"r{i}"}) for i in range(4)],
        queues=[queue("q", quota=gpu_bound(24)), queue("v", quota=gpu_bound(3))],
        topologies=(Topology("fabric", ("zone", "rack")),),
        actions=("allocate", "reclaim"),
    )
    plan = solved(snapshot)
    assert not placed(plan)
    assert max(work.values()) <= 16 * count


def test_goal_that_one_queue_did_not_pursue_is_no_value_of_the_action(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Preempt stops one group in each of two queues. In b the last goals are not pursued, so how many groups
    it stops is not known; that of a alone is not the value of the plan.
    """
    finish = admit.finish

    def only_a(run: ActionRun, found: EvictionPlan) -> EvictionPlan:
        rough = replace(found, complete=False)
        return finish(run, rough) if found.asks[0].group.queue == "a" else rough

    monkeypatch.setattr(admit, "finish", only_a)
    members = [pod(f"{name}-0", at) for name, at in (("xa", "n1"), ("xb", "n1"), ("ta", None), ("tb", None))]
    groups = [group(f"{kind}{q}", queue=q, priority=p) for q in "ab" for kind, p in (("x", 10), ("t", 60))]
    found = cluster(
        members, groups, [node(gpus=2)], [queue("a"), queue("b")], actions=("allocate", "preempt")
    )
    plan = solved(found)
    assert lost(plan) == {"xa-0", "xb-0"}
    goals = [stage.goal for stage in plan.stages if stage.action == "preempt"]
    assert "pod groups stopped" not in goals
    assert goals[-1] == ""


@pytest.mark.parametrize(
    ("rights", "lost", "first"),
    [
        ({"a": {0, 1}, "b": {0, 1}}, {0, 1}, ""),
        ({"a": {0, 1}, "b": {0}}, {0, 1}, "a"),
        ({"a": {0, 1}, "b": {0}}, {0}, ""),
        ({"a": {0}, "b": {0, 1}}, {0, 1}, ""),
        ({"a": {0}, "b": {1}}, {0, 1}, ""),
        ({"a": set(), "b": {0}, "c": {0}}, {0}, "bc"),
        ({"a": {0, 1}, "b": {0, 1}, "c": {1}, "d": {0, 1}}, {0, 1}, "ab"),
        ({"a": set(), "b": set()}, {0}, ""),
        ({"a": {0, 1}, "b": {0}}, set(), ""),
    ],
)
def test_the_first_asks_are_served_before_one_with_fewer_rights(
    rights: dict[str, set[int]], lost: set[int], first: str
) -> None:
    """Ranks of the units that each ask may take; none where all may be served together."""
    names = {name: SimpleNamespace(group=group(name)) for name in rights}
    takes = {id(ask): frozenset(rights[name]) for name, ask in names.items()}
    order = SimpleNamespace(takes=lambda ask: takes[id(ask)])
    found = rightful(order, list(names.values()), lost)  # type: ignore[arg-type]
    assert "".join(sorted(key.name for key in found)) == first


@pytest.mark.parametrize("gpus", [1, 2])
def test_a_goal_has_a_sum_where_each_queue_has_a_value_of_it(gpus: int) -> None:
    """Queue q loses its first unit, if any, for which no goal is solved for. Queue r loses its second one, as
    its trigger needs n3, so all goals are pursued. Each number that the action gives is one of both queues.
    """

    def on(name: str, at: str, **more: Any) -> Pod:
        wants = (("kubernetes.io/hostname", at),)
        return pod(f"{name}-0", more.get("runs"), spec=spec(more.get("gpus", 1), node_selector=wants))

    running = [on("v", "n1", runs="n1"), on("a", "n2", runs="n2"), on("c", "n3", runs="n3")]
    groups = [group("v", priority=5), group("t", priority=60), group("b", queue="r", priority=60)]
    groups += [group(name, queue="r", priority=priority) for name, priority in (("a", 5), ("c", 6))]
    nodes = [
        node(name, gpus, labels={"kubernetes.io/hostname": name})
        for name, gpus in (("n1", 2), ("n2", 1), ("n3", 1))
    ]
    waiting = [on("t", "n1", gpus=gpus), on("b", "n3")]
    queues = [queue("q"), queue("r")]
    plan = solved(cluster([*running, *waiting], groups, nodes, queues, actions=("preempt",)))
    assert lost(plan) == ({"c-0"} if gpus == 1 else {"v-0", "c-0"})
    told = {stage.goal: stage.objective for stage in plan.stages if stage.action == "preempt"}
    assert told.get("lost GPUs [milli-GPUs]", 1_000 * len(lost(plan))) == 1_000 * len(lost(plan))
    assert told.get("pod groups stopped", len(lost(plan))) == len(lost(plan))
    assert {stage.status for stage in plan.stages} == {"OPTIMAL"}


@pytest.mark.parametrize("idle", [0, 1])
def test_a_goal_is_not_proved_where_a_lost_pod_gets_a_place_left_over(idle: int) -> None:
    """Moves count before losses, so v is lost to t. The idle GPU is given to it all the same: a move, and no
    plan loses less."""
    nodes = [node("n1", 1, labels={"kubernetes.io/hostname": "n1"}), node("n2", idle)]
    wants = spec(1, node_selector=(("kubernetes.io/hostname", "n1"),))
    groups = [group("v", priority=5), group("t", priority=60)]
    world = cluster([pod("v-0", "n1"), pod("t-0", spec=wants)], groups, nodes, actions=("preempt",))
    goals = {"goals": ["moved_pods", "lost_gpus"]}
    plan = solved(world, Settings.model_validate({"objective": goals}))
    assert {d.pod.name for d in plan.decisions if d.kind == "Nominate"} == {"t-0", *["v-0"][:idle]}
    told = {
        one.goal: (one.objective, one.bound, one.status) for one in plan.stages if one.goal != "admission"
    }
    lost_gpus = 0 if idle else 1_000
    assert told["moved pods"] == (idle, 0, "FEASIBLE" if idle else "OPTIMAL")
    assert told["lost GPUs [milli-GPUs]"] == (lost_gpus, lost_gpus, "OPTIMAL")
