"""Minimum runtimes, as the checker judges them (4.6)."""

from __future__ import annotations

import pytest

from kai_cp_models.check import violations
from kai_cp_models.plan import Decision, Plan
from kai_cp_models.pods import GroupKey, PodKey
from kai_cp_models.policy import ActionName
from tests.support.objects import ago
from tests.support.tiny import node, pod, queue, world


@pytest.mark.parametrize(("actions", "spared"), [("reclaim, preempt", True), ("preempt, reclaim", False)])
def test_a_surplus_pod_is_what_the_group_had_beyond_its_minimum_when_the_action_ran(
    actions: str, spared: bool
) -> None:
    """Reclaim may take the second pod, preempt both; once preempt has taken the first, none is surplus."""
    snapshot = world(
        [node(gpus=2)],
        [
            *(pod(f"runs-{i}", "n0", gpus=1, group="runs", queue="rich") for i in range(2)),
            pod("poor", gpus=1, queue="poor"),
            pod("high", gpus=1, queue="rich", priority="build"),
        ],
        groups={"runs": {"annotations": {"kai.scheduler/last-start-timestamp": ago(10)}}},
        queues=[queue("rich", quota={"gpu": 1}), queue("poor", quota={"gpu": 1})],
        actions=actions,
        minruntime={"defaultReclaimMinRuntime": "10m"},
    )

    def made(name: str, kind: str, action: ActionName, *triggers: str) -> Decision:
        keys = tuple(GroupKey("default", trigger) for trigger in triggers)
        group = GroupKey("default", name.partition("-")[0])
        return Decision(kind, PodKey("default", name), group, "n0", action, triggers=keys)  # type: ignore[arg-type]

    by_action = {
        "reclaim": [made("runs-1", "Evict", "reclaim", "poor"), made("poor", "Nominate", "reclaim")],
        "preempt": [made("runs-0", "Evict", "preempt", "high"), made("high", "Nominate", "preempt")],
    }
    plan = Plan(tuple(decision for name in actions.split(", ") for decision in by_action[name]))
    faults = violations(snapshot, plan)
    assert [fault.partition(":")[0] for fault in faults] == ([] if spared else ["runtime"])
