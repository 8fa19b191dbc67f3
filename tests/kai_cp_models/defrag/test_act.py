"""Defragmentation step by step, on tiny worlds argued by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from kai_cp.reader.annotations import OwnAnnotations
from kai_cp_models.check import violations
from kai_cp_models.defrag.notes import moved
from kai_cp_models.defrag.questions import BadQuestion, goal_of, question_like, question_of
from kai_cp_models.defrag.windows import opening, window
from kai_cp_models.engine import decide
from kai_cp_models.extras import Extras
from kai_cp_models.plan import Plan
from kai_cp_models.pods import Pod
from kai_cp_models.reservations.prepare import prepare
from kai_cp_models.settings import Settings
from kai_cp_models.snapshot import PodGroup, Snapshot
from tests.support.plans import UNHURRIED, evicted, nominated
from tests.support.rule_objects import objects_of
from tests.support.times import at, runs, stored, waits, world, written
from tests.support.worlds import NOW, cluster, evict, gpu_bound, group, node, nominate, pods, queue, spec
from tests.support.worlds import noted as with_annotations

NODES = (node("n1"), node("n2"), node("n3"))
MAY = {"preemptible": True, "priority": 50}
DAY = 86_400.0


def chosen(**more: Any) -> Settings:
    """Act now for one more free node, unless the test sets something else."""
    acts = {"mode": "act", "goal": "nodes=2", "windows": ["00:00-24:00"], "max_moves_per_hour": 10}
    reservations = more.pop("reservations", {})
    values = {"solver": {"budget_seconds": 20}, "defrag": {**acts, **more}, "reservations": reservations}
    return Settings.model_validate(values)


def solved(snapshot: Snapshot, settings: Settings) -> Plan:
    plan = decide(snapshot, settings)
    assert violations(prepare(snapshot, settings)[0], plan, settings.rules) == []
    return plan


def state(plan: Plan) -> tuple[str, int]:
    assert plan.defrag is not None
    return plan.defrag.state, plan.defrag.value


def two(**more: Any) -> dict[str, Any]:
    """n1 holds 2 GPUs, n2 4 and n3 none: one restart frees n1."""
    return world(runs("a", "n1", 2, since=90, **{**MAY, **more}), runs("b", "n2", 4, since=90, **MAY))


@pytest.mark.parametrize(
    ("to", "notes", "strategy", "words"),
    [
        ("n2", (), "binpack", []),
        ("n1", (), "binpack", ["is moved to the node where it runs"]),
        ("n2", (("kai-cp/defrag", "false"),), "binpack", ["is moved, though an annotation forbids it"]),
        ("n2", (), "spread", ["is moved, though placementStrategy is spread"]),
    ],
)
def test_the_checker_knows_what_may_be_moved(
    to: str, notes: OwnAnnotations, strategy: str, words: list[str]
) -> None:
    a, its_pods = runs("a", "n1", 2, since=90, **MAY)
    snapshot = cluster(nodes=NODES, gpu_strategy=strategy, **world((with_annotations(a, *notes), its_pods)))
    plan = Plan((evict("a-0", "defrag"), nominate("a-0", to, "defrag")))
    assert [str(one).removeprefix("defrag: pod ns/a-0 ") for one in violations(snapshot, plan)] == words


def test_the_cheapest_step_is_taken() -> None:
    """Moving the two GPUs of a costs less work than moving the four of b, so a goes to n2."""
    plan = solved(cluster(nodes=NODES, **two()), chosen())
    assert state(plan) == ("moved", 1)
    assert evicted(plan) == {"a-0"}
    assert nominated(plan) == {"a-0": "n2"}
    assert {decision.action for decision in plan.decisions} == {"defrag"}


def test_report_moves_nothing() -> None:
    plan = solved(cluster(nodes=NODES, **two()), chosen(mode="report"))
    assert (state(plan), plan.decisions) == (("report", 1), ())


def test_without_a_goal_there_is_no_report() -> None:
    plan = solved(cluster(nodes=NODES, **two()), Settings())
    assert plan.defrag is None


def test_a_goal_that_is_met_moves_nothing() -> None:
    plan = solved(cluster(nodes=NODES, **two()), chosen(goal="nodes=1"))
    assert (state(plan), plan.decisions) == (("met", 1), ())


def test_outside_the_windows_nothing_moves() -> None:
    """The clock of these worlds is 13:46:40 on a Monday; the next window is at two on Tuesday."""
    plan = solved(cluster(nodes=NODES, **two()), chosen(windows=["Tue-Fri 02:00-05:00"]))
    assert (state(plan), plan.decisions) == (("closed", 1), ())
    assert plan.again_at == NOW - (13 * 3600 + 46 * 60 + 40) + DAY + 2 * 3600


@pytest.mark.parametrize("strategy", ["gpu_strategy", "cpu_strategy"])
def test_in_spread_mode_nothing_moves(strategy: str) -> None:
    """What moves to another pod's node would be spread again as soon as it comes back."""
    snapshot = cluster(nodes=NODES, **two())
    plan = solved(replace(snapshot, policy=replace(snapshot.policy, **{strategy: "spread"})), chosen())
    assert (state(plan), plan.decisions, plan.again_at) == (("closed", 1), (), None)
    assert plan.defrag is not None
    assert "spread" in plan.defrag.message


def test_a_group_that_needs_capacity_ends_it() -> None:
    members = two()
    group, pods = waits("big", 3, 8)
    members = {"groups": [*members["groups"], group], "pods": [*members["pods"], *pods]}
    plan = solved(cluster(nodes=NODES, **members), chosen())
    assert state(plan) == ("waits", 1)
    assert evicted(plan) == set()
    assert plan.defrag is not None
    assert "ns/big" in plan.defrag.message


@pytest.mark.parametrize(
    ("count", "gpus", "needs"),
    [
        (1, 1, {"node_selector": (("kind", "z"),)}),  # no node has the label
        (4, 8, {}),  # three nodes have 24 GPUs
    ],
)
def test_groups_that_freed_nodes_do_not_help_stop_nothing(count: int, gpus: int, needs: Any) -> None:
    members = two()
    group, pods = waits("w", count, gpus, needs=needs)
    members = {"groups": [*members["groups"], group], "pods": [*members["pods"], *pods]}
    assert state(solved(cluster(nodes=NODES, **members), chosen())) == ("moved", 1)


def note(pods: int, *minutes: float) -> tuple[tuple[str, str], ...]:
    return (("kai-cp/moved", json.dumps({"pods": pods, "at": [written(one) for one in minutes]})),)


def noted(members: dict[str, Any], name: str, notes: tuple[tuple[str, str], ...]) -> dict[str, Any]:
    groups = [with_annotations(one, *notes) if one.key.name == name else one for one in members["groups"]]
    return {**members, "groups": groups}


def test_the_rate_counts_restarts_of_the_last_hour() -> None:
    """c was moved 10 and 70 minutes ago: one restart counts, and c itself stays."""
    members = world(*[runs("c", "n2", 1, since=10, **MAY)])
    both = {key: [*two()[key], *members[key]] for key in ("groups", "pods")}
    both = noted(both, "c", note(1, -70, -10))
    plan = solved(cluster(nodes=NODES, **both), chosen(max_moves_per_hour=1))
    assert (state(plan), evicted(plan)) == (("rate", 1), set())
    assert plan.again_at == at(50) + 1
    assert state(solved(cluster(nodes=NODES, **both), chosen(max_moves_per_hour=2))) == ("moved", 1)


def test_the_next_step_waits_for_the_pods_of_the_last() -> None:
    """Two pods of c are to run again, and one of them does."""
    members = world(*[runs("c", "n2", 1, since=10, **MAY)])
    both = {key: [*two()[key], *members[key]] for key in ("groups", "pods")}
    plan = solved(cluster(nodes=NODES, **noted(both, "c", note(2, -5))), chosen())
    assert (state(plan), evicted(plan)) == (("waits", 1), set())


def test_a_moved_pod_stays_for_an_hour() -> None:
    """Moving a is cheaper, but it was moved 20 minutes ago, so b moves."""
    plan = solved(cluster(nodes=NODES, **noted(two(), "a", note(1, -20))), chosen())
    assert evicted(plan) == {"b-0"}


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"pods": "x", "at": []}', '{"pods": 1, "at": ["now"]}'])
def test_a_note_that_cannot_be_read_is_none(text: str) -> None:
    group = noted(two(), "a", (("kai-cp/moved", text),))["groups"][0]
    assert moved(group, NOW) is None


@pytest.mark.parametrize(
    ("limit", "waits_too", "moves"), [(1, False, False), (2, True, False), (2, False, True)]
)
def test_a_pod_moves_only_where_its_queue_lets_it_start_again(
    limit: int, *, waits_too: bool, moves: bool
) -> None:
    """a, of queue p, holds 2 GPUs and would move to n2. Within a limit of 1 it could not start there, and
    where another group waits for the limit of 2, that one might start first.
    """
    a, b = group("a", queue="p"), group("b")
    members = [*pods("a", 1, "n1", spec=spec(2)), *pods("b", 1, "n2", spec=spec(4))]
    others = [group("o", queue="p")] if waits_too else []
    members += pods("o", 1, spec=spec(2)) if waits_too else ()
    queues = [queue("p", limit=gpu_bound(limit)), queue()]
    plan = solved(cluster(members, [a, b, *others], NODES, queues), chosen())
    assert evicted(plan) == ({"a-0"} if moves else set())
    assert state(plan) == ("moved" if moves else "stuck", 1)


def test_no_pod_moves_into_a_held_place() -> None:
    """hero holds 6 GPUs of n2 from the end of b on, beside c. What is idle there until then is not for a."""
    labelled = (node("n1"), node("n2", labels={"kind": "a"}))
    firm = {"preemptible": False, "priority": 100}
    here = [
        runs("a", "n1", 2, since=90, **MAY),
        runs("b", "n2", 4, lasts="30m", **firm),
        runs("c", "n2", 2, **firm),
    ]
    needs = {"node_selector": (("kind", "a"),)}
    hero = waits("hero", 1, 6, lasts="4h", reserve=True, waited=60, stored=stored(30, {"n2": 6}), needs=needs)
    settings = chosen(goal="nodes=1", reservations={"enabled": True, "min_gpus": 1})
    assert state(solved(cluster(nodes=labelled, **world(*here)), settings)) == ("moved", 0)
    assert state(solved(cluster(nodes=labelled, **world(*here, hero)), settings)) == ("stuck", 0)


def budget(allowed: int) -> Extras:
    """A PodDisruptionBudget for the pods of app a."""
    protected = {
        "metadata": {"name": "a", "namespace": "ns"},
        "spec": {"selector": {"matchLabels": {"app": "a"}}},
        "status": {"disruptionsAllowed": allowed},
    }
    return objects_of({"podDisruptionBudgets": [protected]})


def protected(name: str, on: str, gpus: int) -> tuple[PodGroup, tuple[Pod, ...]]:
    """A pod group of app a that may be moved."""
    one, members = runs(name, on, gpus, since=90, **MAY)
    return one, tuple(replace(pod, labels={"app": "a"}) for pod in members)


def test_a_pod_that_a_budget_protects_stays() -> None:
    """Moving a would be the cheaper choice, but its budget allows no eviction. That holds with every rule
    switched off.
    """
    members = world(protected("a", "n1", 2), runs("b", "n2", 4, since=90, **MAY))
    plan = solved(cluster(nodes=NODES, extras=budget(0), **members), chosen())
    assert (state(plan), evicted(plan)) == (("moved", 1), {"b-0"})
    both = world(protected("a", "n1", 2), protected("b", "n2", 4))
    plan = solved(cluster(nodes=NODES, extras=budget(0), **both), chosen())
    assert (state(plan), plan.decisions) == (("stuck", 1), ())


def test_a_gang_that_a_budget_would_tear_stays() -> None:
    """One pod of app a may be evicted, and the gang on n1 and n2 has two. With two allowed evictions it moves
    to n3.
    """
    gang = group("g", 2, last_start=at(-90), **MAY)
    members = pods("g", 2, "n1", spec=spec(2), started=at(-90), labels={"app": "a"})
    apart = (members[0], replace(members[1], node="n2"))
    for allowed, moves in ((1, 0), (2, 2)):
        snapshot = cluster(nodes=NODES, extras=budget(allowed), **world((gang, apart)))
        assert len(evicted(solved(snapshot, chosen()))) == moves, allowed


def test_two_pods_of_one_budget_leave_one_at_a_time() -> None:
    """Both pods have to leave for two more free nodes. The budget allows one eviction, so the first cycle
    moves only one.
    """
    members = world(protected("a", "n1", 2), protected("b", "n2", 2), runs("c", "n3", 2, since=90))
    plan = solved(cluster(nodes=NODES, extras=budget(1), **members), chosen())
    assert (state(plan), len(evicted(plan))) == (("moved", 0), 1)


def test_a_goal_out_of_reach_says_so() -> None:
    firm = world(runs("a", "n1", 2, preemptible=False), runs("b", "n2", 4, preemptible=False))
    plan = solved(cluster(nodes=NODES, **firm), chosen())
    assert (state(plan), plan.decisions) == (("stuck", 1), ())


def test_an_unknown_level_is_named() -> None:
    plan = solved(cluster(nodes=NODES, **two()), chosen(goal="rack=1"))
    assert plan.defrag is not None
    assert (plan.defrag.state, plan.decisions) == ("unknown", ())
    assert "rack" in plan.defrag.message


def test_off_changes_nothing() -> None:
    """With a goal that is met already the decisions are the same as without a goal."""
    members = two()
    group, pods = waits("w", 1, 4)
    members = {"groups": [*members["groups"], group], "pods": [*members["pods"], *pods]}
    plain = decide(cluster(nodes=NODES, **members), UNHURRIED)
    assert decide(cluster(nodes=NODES, **members), chosen(goal="nodes=1")).decisions == plain.decisions


# --- words of settings ---------------------------------------------------------------------------

MONDAY = 345_600.0
"""1970-01-05 00:00 UTC."""


@pytest.mark.parametrize(
    ("text", "hours", "expected"),
    [
        ("Mon-Fri 02:00-05:00", 3, 3),
        ("Mon-Fri 02:00-05:00", 1, 2),
        ("Mon-Fri 02:00-05:00", 5, 26),
        ("Mon-Fri 02:00-05:00", 5 * 24, 7 * 24 + 2),
        ("Sun 22:00-04:00", 3, 3),
        ("Sun 22:00-04:00", 4, 6 * 24 + 22),
        ("Fri-Mon 10:00-11:00", 12, 4 * 24 + 10),
        ("00:00-24:00", 24, 24),
    ],
)
def test_windows(text: str, hours: float, expected: float) -> None:
    assert opening([text], MONDAY + hours * 3600) == MONDAY + expected * 3600


def test_the_nearest_window_counts_and_none_is_never() -> None:
    assert opening(["Wed 02:00-03:00", "Tue 02:00-03:00"], MONDAY) == MONDAY + 26 * 3600
    assert opening([], MONDAY) is None


@pytest.mark.parametrize(
    "text", ["", "02:00", "Mo 02:00-03:00", "Mon-Fry 02:00-03:00", "25:00-26:00", "02:00-02:00", "2:00-3:00"]
)
def test_bad_windows_are_refused_with_the_key(text: str) -> None:
    with pytest.raises(ValueError, match=r"window|days|hours"):
        window(text)
    with pytest.raises(ValidationError, match=r"defrag\.windows"):
        chosen(windows=[text])


@pytest.mark.parametrize("missing", [{"goal": ""}, {"windows": []}, {"max_moves_per_hour": 0}])
def test_act_needs_bounds(missing: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=r"needs goal, windows and max_moves_per_hour"):
        chosen(**missing)


@pytest.mark.parametrize("text", ["nodes", "nodes=0", "gang=0x8=1", "gang=8x8@rack", "=1"])
def test_bad_goals(text: str) -> None:
    with pytest.raises(BadQuestion, match=r"defrag\.goal"):
        goal_of(cluster(nodes=NODES, groups=[], pods=[]), text)


@pytest.mark.parametrize(
    ("text", "options"),
    [("nodes=4", "--free nodes --most 4"), ("gang=1x4=2", "--for gang=1x4 --most 2"), ("nodes", "")],
)
def test_a_goal_has_options_that_ask_for_it(text: str, options: str) -> None:
    assert question_like(text) == (f"; ask {options}" if options else "")
    if options:
        option, what, _, _ = options.split()
        free, gang = (what, None) if option == "--free" else (None, what)
        world = cluster(nodes=NODES, groups=[], pods=[])
        assert question_of(world, free, gang) == goal_of(world, text)[0]
