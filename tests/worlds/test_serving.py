"""Serving pods in defragmentation: the rows of docs/inference.md, and the checker's own view of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from kai_cp.reader.annotations import OwnAnnotations
from kai_cp_models.check import violations
from kai_cp_models.engine import decide
from kai_cp_models.plan import Plan
from kai_cp_models.pods import Pod, PodStatus
from kai_cp_models.settings import Settings
from kai_cp_models.snapshot import PodGroup, Snapshot
from tests.support.plans import evicted, nominated
from tests.support.rule_objects import objects_of
from tests.support.times import at, runs
from tests.support.worlds import cluster, evict, group, node, nominate, noted, pod, pods, queue, spec

NODES = (node("n1"), node("n2"), node("n3"))
YES: OwnAnnotations = (("kai-cp/defrag", "true"),)
NO: OwnAnnotations = (("kai-cp/defrag", "false"),)
ACTS = {"mode": "act", "goal": "nodes=2", "windows": ["00:00-24:00"], "max_moves_per_hour": 10}
Member = tuple[PodGroup, Sequence[Pod]]


def settings(**more: Any) -> Settings:
    return Settings.model_validate(
        {"solver": {"budget_seconds": 20}, "defrag": {**ACTS, "serving": True, **more}}
    )


def serves(name: str, on: str, gpus: int, notes: OwnAnnotations = ()) -> Member:
    """One pod of app ``name`` that cannot be preempted."""
    one, members = runs(name, on, gpus, since=90)
    return noted(one, *notes), tuple(replace(each, labels={"app": name}) for each in members)


def budget(app: str, allowed: int) -> dict[str, Any]:
    return {
        "metadata": {"name": app, "namespace": "ns"},
        "spec": {"selector": {"matchLabels": {"app": app}}},
        "status": {"disruptionsAllowed": allowed},
    }


def cluster_of(
    *members: Member,
    budgets: Sequence[dict[str, Any]] = (),
    said: OwnAnnotations = (),
    more: Sequence[Pod] = (),
) -> Snapshot:
    return cluster(
        [*(one for _, many in members for one in many), *more],
        [one for one, _ in members],
        NODES,
        [queue(notes=said)],
        extras=objects_of({"podDisruptionBudgets": list(budgets)}),
    )


def two(
    said: OwnAnnotations, budgets: Sequence[dict[str, Any]], own: OwnAnnotations = (), **more: Any
) -> Snapshot:
    return cluster_of(serves("a", "n1", 2, own), serves("b", "n2", 4), budgets=budgets, said=said, **more)


def solved(found: Snapshot, **more: Any) -> Plan:
    plan = decide(found, settings(**more))
    assert violations(found, plan) == []
    return plan


ONE = (budget("a", 1),)


@pytest.mark.parametrize(
    ("said", "budgets", "own", "moves"),
    [
        ((), ONE, (), set()),
        (YES, (), (), set()),
        (YES, (budget("a", 0),), (), set()),
        (YES, ONE, (), {"a-0"}),
        ((), ONE, YES, {"a-0"}),
        (YES, ONE, NO, set()),
    ],
)
def test_the_rows_of_the_page(
    said: OwnAnnotations, budgets: Sequence[dict[str, Any]], own: OwnAnnotations, moves: set[str]
) -> None:
    plan = solved(two(said, budgets, own))
    assert evicted(plan) == moves
    assert nominated(plan) == dict.fromkeys(moves, "n2")


def test_off_means_off() -> None:
    assert solved(two(YES, ONE), serving=False).decisions == ()


def test_nothing_moves_while_capacity_is_on_its_way() -> None:
    leaving = pod("old-0", "n2", spec=spec(4), status=PodStatus.RELEASING)
    assert solved(two(YES, ONE, more=(leaving,))).decisions == ()


def test_a_gang_of_servers_stays() -> None:
    """Two pods that need each other cannot go one at a time."""
    gang = group("a", 2, last_start=at(-90), preemptible=False, priority=100)
    members = pods("a", 2, "n1", spec=spec(1), started=at(-90), labels={"app": "a"})
    found = cluster_of((gang, members), serves("b", "n2", 4), budgets=(budget("a", 2),), said=YES)
    assert solved(found).decisions == ()


def test_surplus_pods_of_a_group_leave_one_at_a_time() -> None:
    """Both pods on n1 have to leave. The budget would allow both at once, but one leaves."""
    elastic = group("a", 1, last_start=at(-90), preemptible=False, priority=100)
    members = pods("a", 2, "n1", spec=spec(1), started=at(-90), labels={"app": "a"})
    found = cluster_of((elastic, members), serves("b", "n2", 4), budgets=(budget("a", 2),), said=YES)
    assert len(evicted(solved(found))) == 1


def moved(*names: str, to: str = "n2") -> Plan:
    return Plan(
        (*(evict(name, "defrag") for name in names), *(nominate(name, to, "defrag") for name in names))
    )


@pytest.mark.parametrize(
    ("said", "budgets", "words"),
    [
        ((), ONE, "no annotation lets it move"),
        (NO, ONE, "no annotation lets it move"),
        (YES, (), "no PodDisruptionBudget covers it"),
    ],
)
def test_the_checker_asks_for_annotation_and_budget(
    said: OwnAnnotations, budgets: Sequence[dict[str, Any]], words: str
) -> None:
    faults = violations(two(said, budgets), moved("a-0"))
    assert faults == [f"defrag: pod ns/a-0 cannot be preempted, and {words}"]
    assert violations(two(YES, ONE), moved("a-0")) == []


def test_nothing_else_happens_in_a_cycle_that_defragments() -> None:
    """What defragmentation frees is no place for others in the same cycle; it comes last."""
    also = pods("w", 1, spec=spec(4))
    found = cluster_of(
        serves("a", "n1", 2), serves("b", "n2", 4), (group("w", 1), also), budgets=ONE, said=YES
    )
    both = Plan((nominate("w-0", "n1"), *moved("a-0").decisions))
    assert [fault for fault in violations(found, both) if "in the same cycle" in fault] != []


def test_the_checker_wants_a_new_place() -> None:
    lost = Plan((evict("a-0", "defrag"),))
    assert violations(two(YES, ONE), lost) == ["defrag: pod ns/a-0 is evicted without a new place"]


def test_the_checker_wants_one_at_a_time() -> None:
    elastic = group("a", 1, last_start=at(-90), preemptible=False, priority=100)
    members = pods("a", 2, "n1", spec=spec(1), started=at(-90), labels={"app": "a"})
    found = cluster_of((elastic, members), budgets=(budget("a", 2),), said=YES)
    faults = violations(found, moved("a-0", "a-1"))
    assert any(fault.endswith("pod ns/a-1 moves at the same time") for fault in faults)


def test_the_checker_wants_the_new_one_before_the_old() -> None:
    """The place that a pod gets on n2 becomes free only when the pod that leaves it is gone."""
    leaving = pod("old-0", "n2", spec=spec(4), status=PodStatus.RELEASING)
    faults = violations(two(YES, ONE, more=(leaving,)), moved("a-0"))
    assert faults == [
        "defrag: pod ns/a-0 cannot be preempted, and node n2 has too little free for it "
        "while other pods are still there"
    ]
