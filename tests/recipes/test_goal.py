"""The recipe *Add a goal* of CONTRIBUTING, carried out: one entry, and every proposer obeys it."""

from typing import Any, cast

import pytest

from kai_cp_models.joint.goals import GOALS, Goal
from kai_cp_models.joint.search import Objective
from kai_cp_models.settings import GoalWeights, ObjectiveSettings
from tests.support.plans import SETTINGS, lost, solved
from tests.support.worlds import NOW, cluster, group, node, pod, pods, spec

LOST_PODS = Goal(
    cast(Any, "lost_pods"),
    "pods",
    lambda model: [
        Objective(
            "lost pods",
            sum(len(item.unit.pods) * gone for item, gone in zip(model.ranked, model.lost, strict=True)),
        )
    ],
    lambda plan: (
        sum(len(item.unit.pods) for item, gone in zip(plan.ranked, plan.lost, strict=True) if gone),
    ),
)


def test_a_goal_is_one_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Either node has to be emptied: the pair of young pods by policy, the single old one by the new goal."""
    snapshot = cluster(
        [*pods("pair", 2, "n1", spec=spec(4)), pod("single-0", "n2", spec=spec(8)), pod("t-0", spec=spec(8))],
        [
            group("pair", 2, last_start=NOW - 60),
            group("single", last_start=NOW - 6_000),
            group("t", priority=100),
        ],
        [node("n1"), node("n2")],
        actions=("preempt",),
    )
    assert lost(solved(snapshot)) == {"pair-0", "pair-1"}
    monkeypatch.setitem(cast(Any, GOALS), "lost_pods", LOST_PODS)
    objective = ObjectiveSettings.model_construct(goals=("lost_pods",), weights=GoalWeights())
    assert lost(solved(snapshot, SETTINGS.model_copy(update={"objective": objective}))) == {"single-0"}
