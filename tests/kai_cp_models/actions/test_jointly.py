"""The joint model's plans: which of their goals are proved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from kai_cp.reader import parse
from kai_cp_models.actions import admit, jointly
from kai_cp_models.actions.eviction_plan import EvictionPlan, NoPlan
from kai_cp_models.actions.run import ActionRun
from kai_cp_models.joint.problem import Ask
from kai_cp_models.limits import LIMITS
from kai_cp_models.plan import Plan
from tests.support import objects as raw
from tests.support import tiny
from tests.support.clusters import random_cluster
from tests.support.plans import lost, placed, solved


@pytest.fixture(params=["all moves", "sums"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The two ways to bound goals. No plan is made without a solver."""
    monkeypatch.setattr(admit, "first_plans", lambda _run, _chunk: [])
    if request.param == "sums":
        monkeypatch.setattr(jointly, "LIMITS", replace(LIMITS, all_moves_pods=0))


def two_nodes(selector: Mapping[str, str]) -> Plan:
    """Two nodes with a pod each; the one of b is younger. A pod that comes before both waits."""
    return solved(
        tiny.world(
            [tiny.node("n0", gpus=1, labels={"side": "left"}), tiny.node("n1", gpus=1)],
            [
                tiny.pod("a", "n0", gpus=1),
                tiny.pod("b", "n1", gpus=1),
                tiny.pod("t", gpus=1, priority="build", nodeSelector=selector),
            ],
            actions="allocate, preempt",
        )
    )


def statuses(plan: Plan) -> dict[str, str]:
    return {stage.goal: stage.status for stage in plan.stages if stage.action == "preempt"}


def test_a_goal_that_a_move_into_the_place_of_another_victim_betters_is_not_proved() -> None:
    """Only n0 is of use. By age b would be lost first, so that a takes its place. That restarts two pods
    where one is lost in any case, so it is not done."""
    plan = two_nodes({"side": "left"})
    assert (lost(plan), placed(plan)) == ({"a"}, {"t"})
    assert statuses(plan)["threshold"] == "OPTIMAL"
    assert statuses(plan)["threshold by age"] == "FEASIBLE"
    assert statuses(plan)["pod groups stopped"] == "FEASIBLE", "it comes after one that is not proved"


def test_goals_are_proved_where_no_move_betters_them() -> None:
    """No plan loses less than b, however others move."""
    plan = two_nodes({})
    assert (lost(plan), placed(plan)) == ({"b"}, {"t"})
    assert statuses(plan)["threshold by age"] == "OPTIMAL"
    assert set(statuses(plan).values()) == {"OPTIMAL"}


def test_a_plan_disturbs_no_unit_that_came_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model lets go of more than the plan needs in the end; what runs on is open to no other trigger."""
    disturbed = list[bool]()

    def tried(run: ActionRun, chunk: Sequence[Ask], *, optional: bool = False) -> EvictionPlan | NoPlan:
        found = jointly.attempt(run, chunk, optional=optional)
        for unit in found.owners if isinstance(found, EvictionPlan) else ():
            states = [[(of.status(p), of.place_of(p)) for p in unit.pods] for of in (run.base, found.ledger)]
            disturbed.append(states[0] != states[1])
        return found

    monkeypatch.setattr(admit, "attempt", tried)
    solved(parse(random_cluster(44), now=raw.NOW.timestamp()))
    assert disturbed
    assert all(disturbed)
