"""Fixes in the order of cost that the settings give."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import orjson
import pytest

from kai_cp.explain.cycle import Cycles, DecidedCycle
from kai_cp.explain.document import Explainer
from kai_cp.explain.draft import Draft
from kai_cp.explain.fixes import _Pairs
from kai_cp.explain.trials import Trials
from kai_cp_models.plan import CUT, Stage
from kai_cp_models.pods import GroupKey
from kai_cp_models.queries.why import Blocking, Situation, shortages
from kai_cp_models.settings import ExplainSettings, FixKind, Settings
from tests.kai_cp.explain.clusters import NOW, cluster
from tests.support.objects import Object
from tests.support.tiny import node, pod, queue

X = GroupKey("default", "x")


def kinds_with(*order: FixKind) -> list[str]:
    """Kinds of the fixes for x, behind a job that cannot be preempted, under an order of cost."""
    raw = cluster(
        [node("n0", gpus=2)],
        [pod("hog", "n0", gpus=2), pod("x", gpus=2)],
        groups={"hog": {"preemptibility": "non-preemptible"}},
    )
    settings = Settings(explain=ExplainSettings(fix_order=order))
    entry = Explainer(Draft(raw, NOW), settings).explain(X)
    return [fix["kind"] for fix in entry["fixes"]]


def test_the_settings_say_what_is_cheapest() -> None:
    assert kinds_with("stop", "add-nodes") == ["stop", "add-nodes"]
    assert kinds_with("add-nodes", "stop") == ["add-nodes", "stop"]


def test_a_kind_that_is_left_out_is_not_looked_for() -> None:
    assert kinds_with("add-nodes") == ["add-nodes"]


def test_a_queue_that_does_not_exist_has_no_limit_to_exceed() -> None:
    raw = cluster([node("n0", gpus=1)], [pod("r", "n0", gpus=1), pod("x", gpus=1, queue="nope")])
    situation = Explainer(Draft(raw, NOW), Settings()).decided.situation
    assert not any(shortages(situation, situation.snapshot.group_by_key[X], "limit"))


def test_allocate_is_switched_on_where_no_action_serves_a_group() -> None:
    """Where only preempt runs, nothing serves x while a node is free."""
    raw = cluster([node("n0", gpus=2)], [pod("x", gpus=2)], actions="preempt")
    settings = Settings(explain=ExplainSettings(fix_order=("enable-action",)))
    entry = Explainer(Draft(raw, NOW), settings).explain(X)
    assert [fix["ops"] for fix in entry["fixes"]] == [[{"op": "enable-action", "action": "allocate"}]]


def fixes(raw: Object) -> dict[str, Object]:
    """The fixes for x, by kind."""
    entry = Explainer(Draft(raw, NOW), Settings(), budget=60.0).explain(X)
    assert entry["state"] == "pending"
    return {fix["kind"]: fix for fix in entry["fixes"]}


def test_a_limit_is_raised_by_no_more_than_what_the_queue_cannot_take_from_its_own_work() -> None:
    """x asks for six GPUs, and the queue may have four. Four GPUs of lower priority leave, so a limit
    of six is enough.
    """
    raw = cluster(
        [node("n0", gpus=8)],
        [pod("r0", "n0", gpus=4, priority="train"), pod("x", gpus=6, priority="build")],
        groups={"r0": {"preemptibility": "preemptible"}, "x": {"preemptibility": "preemptible"}},
        queues=[queue("q", limit={"gpu": 4})],
        priorityClasses=[
            {"metadata": {"name": name, "uid": name}, "value": value}
            for name, value in (("train", 50), ("build", 60))
        ],
    )
    found = fixes(raw)["raise-limit"]
    assert (found["amount"], found["least"]) == (2, "proved")
    assert found["ops"][0]["value"] == 6


def test_nodes_that_return_are_tried_where_fair_shares_are_in_the_way() -> None:
    """b holds both nodes. With one cordoned, the half of a is four GPUs; with it schedulable again, eight."""
    raw = cluster(
        [node("n0", gpus=8), node("n1", gpus=8, unschedulable=True)],
        [pod("rb", "n0", gpus=8, queue="b"), pod("rc", "n1", gpus=8, queue="b"), pod("x", gpus=8, queue="a")],
        groups={
            "rb": {"preemptibility": "preemptible"},
            "rc": {"preemptibility": "non-preemptible"},
            "x": {"preemptibility": "preemptible"},
        },
        queues=[queue("a", quota={"gpu": 0}), queue("b", quota={"gpu": 0})],
    )
    found = fixes(raw)
    assert found["uncordon"]["lose"] == ["default/rb"]


def test_fewer_stops_are_found_where_another_job_that_waits_takes_what_is_freed() -> None:
    """y comes before x, and each needs a whole node: with both jobs stopped, y takes one node and x the
    other.
    """
    firm: Object = {"preemptibility": "non-preemptible"}
    raw = cluster(
        [node("n0", gpus=4), node("n1", gpus=4)],
        [pod("r0", "n0", gpus=4), pod("r1", "n1", gpus=4), pod("y", gpus=4), pod("x", gpus=4)],
        groups={"r0": firm, "r1": firm},
    )
    found = fixes(raw)["stop"]
    assert (found["amount"], found["least"]) == (2, "proved")


def test_a_least_move_is_not_called_proved_where_moves_are_left_out() -> None:
    """r1 shares a GPU, so no move of it is proposed, although that alone would leave six CPUs on n0."""
    raw = cluster(
        [node("n0", gpus=2), node("n1", gpus=2)],
        [
            pod("r1", "n0", requests={"cpu": "2"}, notes={"gpu-fraction": "0.5"}, shares=["g1"]),
            pod("r2", "n0", requests={"cpu": "1"}),
            pod("r3", "n0", requests={"cpu": "1"}),
            pod("x", requests={"cpu": "6"}),
            pod("r4", "n1", requests={"cpu": "5"}),
        ],
        groups={name: {"preemptibility": "non-preemptible"} for name in ("r1", "r2", "r3", "r4")},
    )
    found = fixes(raw)["move"]
    assert (found["amount"], found["least"]) == (2, "not proved")


def test_no_move_is_tried_for_a_pod_that_no_node_holds() -> None:
    """Both nodes have two GPUs and x asks for three: no move helps, whatever else waits."""
    raw = cluster(
        [node("n0", gpus=2), node("n1", gpus=2)],
        [pod("r", "n0", gpus=1), pod("x", gpus=3), pod("y", gpus=2)],
        groups={"r": {"preemptibility": "preemptible"}},
    )
    entry = Explainer(Draft(raw, NOW), Settings(), budget=60.0, kinds=("move",)).explain(X)
    assert ["fragmentation", "room:gpu"] in entry["blocking"]
    assert (entry["fixes"], [one["because"] for one in entry["noFix"]]) == (
        [],
        ["it does not help against: free GPUs, each pod on one node"],
    )


def over_its_limit() -> Object:
    """Queue q may have eight GPUs: y takes four of them from r0, which has a lower priority. So x, which asks
    for eight, is over the limit. Jobs of queue p run on two other nodes, with two GPUs free.
    """
    preemptible: Object = {"preemptibility": "preemptible"}
    others = [pod(f"p{i}", f"n{1 + i % 2}", gpus=1, queue="p") for i in range(6)]
    return cluster(
        [node("n0", gpus=8), node("n1", gpus=4), node("n2", gpus=4)],
        [
            *(pod(f"r{i}", "n0", gpus=4, priority="train") for i in range(2)),
            *others,
            pod("y", gpus=4, priority="build"),
            pod("x", gpus=8, priority="build"),
        ],
        groups={name: preemptible for name in ("r0", "r1", "y", "x", *(f"p{i}" for i in range(6)))},
        queues=[queue("q", limit={"gpu": 8}), queue("p")],
        priorityClasses=[
            {"metadata": {"name": name, "uid": name}, "value": value}
            for name, value in (("train", 50), ("build", 60))
        ],
    )


def test_moves_and_stops_that_leave_a_limit_exceeded_are_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither moves nor stops of what runs in p change what q holds; each of them would cost a cycle."""
    explainer = Explainer(Draft(over_its_limit(), NOW), Settings(), budget=60.0, kinds=("move", "stop"))
    tried: list[Draft] = []
    monkeypatch.setattr("kai_cp.explain.cycle.Cycles.decide", lambda _self, draft: tried.append(draft))
    entry = explainer.explain(X)
    assert (entry["reason"], entry["fixes"], tried) == ("OverLimit", [], [])
    assert entry["noFix"][0] == {
        "kind": "move",
        "because": "while others keep what they get, it does not help against: "
        "the limit of q, the groups ahead of it",
    }


def test_a_limit_that_blocks_beside_others_is_not_said_to_block_nothing() -> None:
    entry = Explainer(Draft(over_its_limit(), NOW), Settings(), budget=60.0, kinds=("raise-limit",)).explain(
        X
    )
    assert entry["noFix"] == [{"kind": "raise-limit", "because": "no higher limit alone would be enough"}]


def test_places_of_others_are_no_wall_for_a_change_of_the_request() -> None:
    """x selects no node, so y takes the node from r. Without its selector, x comes before y and takes it."""
    classes = {"low": 40, "mid": 50, "high": 60}
    pods = [
        pod("r", "n0", gpus=2, priority="low"),
        pod("x", gpus=2, priority="high", nodeSelector={"zone": "b"}),
        pod("y", gpus=2, priority="mid"),
    ]
    raw = cluster(
        [node("n0", gpus=2)],
        pods,
        groups={name: {"preemptibility": "preemptible"} for name in "rxy"},
        priorityClasses=[
            {"metadata": {"name": name, "uid": name}, "value": value} for name, value in classes.items()
        ],
    )
    entry = Explainer(Draft(raw, NOW), Settings(), budget=60.0, kinds=("drop-selector",)).explain(X)
    assert (entry["blocking"][0], entry["noFix"]) == (["selector"], [])
    assert any("order" in one for one in entry["blocking"])
    (found,) = entry["fixes"]
    assert (found["amount"], found["lose"]) == (1, ["default/y"])


def test_a_limit_is_raised_for_those_that_come_before_too() -> None:
    """Queue q may have two GPUs. y asks for three and comes before x, which asks for four: with a limit of
    four to six, y gets three of them and x nothing.
    """
    raw = cluster(
        [node("n0", gpus=8)],
        [pod("y", gpus=3), pod("x", gpus=4)],
        queues=[queue("q", limit={"gpu": 2})],
    )
    entry = Explainer(Draft(raw, NOW), Settings(), budget=60.0, kinds=("raise-limit",)).explain(X)
    (found,) = entry["fixes"]
    assert (found["amount"], found["least"]) == (5, "proved")


@pytest.mark.parametrize(("budget", "untried"), [(60.0, False), (0.3, True)])
def test_a_slow_machine_finds_the_same_fixes(
    monkeypatch: pytest.MonkeyPatch, budget: float, untried: bool
) -> None:
    entry = Explainer(Draft(over_its_limit(), NOW), Settings(), budget=budget).explain(X)
    idle, late, decide = time.monotonic, [0.0], Cycles.decide

    def slow(cycles: Cycles, draft: Draft) -> DecidedCycle:
        late[0] += 30.0
        return decide(cycles, draft)

    monkeypatch.setattr(Cycles, "decide", slow)
    monkeypatch.setattr(time, "monotonic", lambda: idle() + late[0])
    assert Explainer(Draft(over_its_limit(), NOW), Settings(), budget=budget).explain(X) == entry
    because = {one["because"] for one in entry["noFix"]}
    assert ("not tried: the work that the budget allows is done" in because) is untried


def test_fixes_that_the_deadline_left_untried_say_so() -> None:
    explainer = Explainer(Draft(over_its_limit(), NOW), Settings(), budget=60.0, deadline=time.monotonic())
    assert "not tried: the deadline has passed" in {one["because"] for one in explainer.explain(X)["noFix"]}


def test_a_cycle_that_the_deadline_cut_off_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    explainer = Explainer(Draft(over_its_limit(), NOW), Settings(), budget=60.0, kinds=("raise-limit",))
    decide = Cycles.decide

    def cut(cycles: Cycles, draft: Draft) -> DecidedCycle:
        decided = decide(cycles, draft)
        plan = decided.situation.plan
        stage = Stage("reclaim", "", "FEASIBLE", gap=1.0, kind=CUT)
        late = replace(plan, stages=(*plan.stages, stage))
        return replace(decided, situation=Situation(decided.snapshot, cycles.settings, late))

    monkeypatch.setattr(Cycles, "decide", cut)
    (told,) = explainer.explain(X)["noFix"]
    assert told["because"] == "not tried: the deadline cut a cycle off"


FIRM: Object = {"preemptibility": "non-preemptible"}


@pytest.mark.parametrize(
    ("world", "amounts"),
    [
        # Four GPUs for one pod on nodes of two, and hog holds both: with two GPUs asked, hog must still go.
        (
            cluster([node("n0", gpus=2)], [pod("hog", "n0", gpus=2), pod("x", gpus=4)], groups={"hog": FIRM}),
            {"stop": 1, "reduce-request": 2},
        ),
        # No node has the label, and hog holds both GPUs of the only one.
        (
            cluster(
                [node("n0", gpus=2)],
                [pod("hog", "n0", gpus=2), pod("x", gpus=2, nodeSelector={"disk": "ssd"})],
                groups={"hog": FIRM},
            ),
            {"stop": 1, "drop-selector": 1},
        ),
        # The limit is two GPUs short, and with it raised y, which is older, takes half of the nodes.
        (
            cluster(
                [node("n0", gpus=2), node("n1", gpus=2)],
                [pod("y", gpus=2), pod("x", gpus=2), pod("x-1", group="x", gpus=2)],
                groups={"x": {"minMember": 2}},
                queues=[queue("q", limit={"gpu": 2})],
            ),
            {"raise-limit": 2, "raise-priority": 1},
        ),
    ],
)
def test_two_kinds_together_are_found_where_no_kind_helps_alone(world: Object, amounts: Object) -> None:
    found = fixes(world)
    assert (list(found), found["combined"]["amounts"]) == (["combined"], amounts)


def test_the_cycle_after_all_that_a_kind_can_do_is_decided_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here with one GPU less, beside which moves and stops are looked for; it was tried alone before that."""
    worlds: list[bytes] = []

    def decide(
        cycles: Cycles, draft: Draft, made: Callable[..., DecidedCycle] = Cycles.decide
    ) -> DecidedCycle:
        worlds.append(orjson.dumps([draft.now, draft.raw], option=orjson.OPT_SORT_KEYS))
        return made(cycles, draft)

    monkeypatch.setattr(Cycles, "decide", decide)
    nodes, pods = [node("n0", gpus=2), node("n1", gpus=2)], [pod("r0", "n0", gpus=2), pod("r1", "n1", gpus=2)]
    firm = {"preemptibility": "non-preemptible"}
    fixes(cluster(nodes, [*pods, pod("w", gpus=1), pod("x", gpus=3)], groups={"r0": firm, "r1": firm}))
    assert max(Counter(worlds).values()) == 2


def test_a_request_that_no_node_takes_is_refused_without_a_cycle() -> None:
    cycles = Cycles(Settings())
    raw = cluster([node("n0", gpus=4), node("n1", gpus=4)], [pod("r", "n0", gpus=1), pod("x", gpus=8)])
    trials = Trials(cycles, cycles.decide(Draft(raw, NOW)), X, Blocking())
    ask: Object = {"op": "set-request", "podGroup": str(X), "resource": "nvidia.com/gpu"}
    helps = {asked: trials.admits([{**ask, "value": asked}]) is not None for asked in (6, 5, 4)}
    assert (helps, cycles.count) == ({6: False, 5: False, 4: True}, 2)


def test_pairs_of_a_model_come_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time may be over by then, and the other pairs take few cycles."""
    tried: list[bool] = []

    def least(_pairs: object, *pair: str) -> None:
        tried.append(not {"move", "stop"}.isdisjoint(pair))

    monkeypatch.setattr(_Pairs, "least", least)
    fixes(cluster([node("n0", gpus=2)], [pod("hog", "n0", gpus=2), pod("x", gpus=4)], groups={"hog": FIRM}))
    assert tried == sorted(tried)
    assert {False, True} <= set(tried)


def test_an_affinity_to_what_waits_is_no_wall() -> None:
    """x must be beside w, and r fills n0 before both. With r stopped, both go there."""
    beside_w = [
        {"labelSelector": {"matchLabels": {"app": "w"}}, "topologyKey": "kubernetes.io/hostname"},
    ]
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": beside_w}}
    raw = cluster(
        [node("n0", gpus=2)],
        [pod("r", "n0", gpus=2), pod("w", gpus=1), pod("x", gpus=1, affinity=affinity)],
        groups={name: {"preemptibility": "preemptible"} for name in ("r", "w", "x")},
    )
    entry = Explainer(Draft(raw, NOW), Settings(), budget=60.0, kinds=("stop",)).explain(X)
    assert ["affinity"] in entry["blocking"]
    assert [fix["ops"][0]["pods"] for fix in entry["fixes"]] == [["default/r"]]
    assert "impossible" not in entry["message"]
    assert entry["start"]["because"] == "no estimate: 1 running job declares no end"


@pytest.mark.parametrize("pods", [1, 2])
def test_a_neighbour_that_moves_is_found_at_its_new_place(pods: int) -> None:
    """x must be beside a pod of w, which fills n0 and cannot be preempted; n1 takes all of them. Two pods of
    w must be beside each other, too."""
    beside_w = [
        {"labelSelector": {"matchLabels": {"job": "w"}}, "topologyKey": "kubernetes.io/hostname"},
    ]
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": beside_w}}
    own = {"affinity": affinity} if pods > 1 else {}
    running = [pod(f"w{i}", "n0", gpus=2 // pods, group="w", labels={"job": "w"}, **own) for i in range(pods)]
    raw = cluster(
        [node("n0", gpus=2), node("n1", gpus=3)],
        [*running, pod("x", gpus=1, affinity=affinity)],
        groups={"w": {"minMember": pods, "preemptibility": "non-preemptible"}},
        actions="allocate, consolidation, preempt",
    )
    entry = Explainer(Draft(raw, NOW), Settings(), budget=60.0, kinds=("stop", "move")).explain(X)
    assert entry["blocking"] == [["affinity", "fragmentation", "non-preemptible", "room:gpu"]]
    moves = [{"pod": f"default/w{i}", "node": "n1"} for i in range(pods)]
    assert [fix["ops"][0]["moves"] for fix in entry["fixes"]] == [moves]


def test_a_neighbour_that_this_cycle_places_is_there() -> None:
    """y, of higher priority, fills n0, and x must be beside y. n1 takes both of them once r has ended."""
    beside_y = [
        {"labelSelector": {"matchLabels": {"job": "y"}}, "topologyKey": "kubernetes.io/hostname"},
    ]
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": beside_y}}
    raw = cluster(
        [node("n0", gpus=2), node("n1", gpus=3)],
        [
            pod("r", "n1", gpus=3),
            pod("y", gpus=2, labels={"job": "y"}, priority="high"),
            pod("x", gpus=1, affinity=affinity),
        ],
        groups={"r": {"preemptibility": "non-preemptible"}},
        priorityClasses=[{"metadata": {"name": "high", "uid": "high"}, "value": 60}],
    )
    entry = Explainer(Draft(raw, NOW), Settings(), budget=60.0, kinds=("stop",)).explain(X)
    assert entry["blocking"]
    assert ["affinity"] not in entry["blocking"]
    assert [fix["ops"][0]["pods"] for fix in entry["fixes"]] == [["default/r"]]


@pytest.mark.parametrize("of_q", [2, 3])
def test_limits_that_must_all_be_raised_in_full_are_the_least(of_q: int) -> None:
    """r holds two GPUs and cannot be preempted; x asks for two. mid may have two, and q below it ``of_q``."""
    raw = cluster(
        [node("n0", gpus=8)],
        [pod("r", "n0", gpus=2), pod("x", gpus=2)],
        groups={"r": {"preemptibility": "non-preemptible"}},
        queues=[queue("mid", limit={"gpu": 2}), queue("q", "mid", limit={"gpu": of_q})],
    )
    found = fixes(raw)["raise-limit"]
    assert (found["amount"], found["least"]) == (2 + 4 - of_q, "proved")
