"""KAI's own recorded decisions: all are legal except for the defects of KAI that the recordings show."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

from kai_cp.reader import parse
from kai_cp_models.check import violations
from kai_cp_models.plan import Decision, Plan
from kai_cp_models.pods import GroupKey, PodKey
from kai_cp_models.policy import ActionName
from kai_cp_models.snapshot import Snapshot

DEFECTS = {
    "integration_tests/consolidation_and_reclaim/TestConsolidateAndReclaimIntegrationTest#0",
    "integration_tests/preempt/TestAllocateDeallocateSubgroupsIntegrationTest#3",
}
"""A pod that one action nominated is evicted by a later one (14.1)."""
KINDS = {"bind": "Bind", "evict": "Evict", "pipeline": "Nominate"}


def recorded(case: dict[str, Any], snapshot: Snapshot) -> Plan:
    """The calls of the first session as a plan."""
    pods = {pod.key.name: pod for pod in snapshot.pods}
    groups = {group.key.name: group.key for group in snapshot.groups}
    decisions = []
    for step in case["observed"]["sessions"][0]["steps"]:
        for call in step["calls"]:
            pod = pods[call["pod"]]
            shares = pod.spec.gpu.shares and call["op"] != "evict"
            trigger = groups.get(call.get("preemptor") or "")
            decisions.append(
                _decision(
                    KINDS[call["op"]],
                    pod.key,
                    pod.group,
                    call["node"],
                    step["action"],
                    tuple(call["gpuGroups"]) if shares else (),
                    (trigger,) if trigger else (),
                )
            )
    return Plan(decisions=tuple(decisions))


def _decision(
    kind: str,
    pod: PodKey,
    group: GroupKey | None,
    node: str,
    action: ActionName,
    gpu_groups: tuple[str, ...],
    triggers: tuple[GroupKey, ...],
) -> Decision:
    return Decision(kind, pod, group, node, action, "", gpu_groups, triggers)  # type: ignore[arg-type]


def _unrecorded(fault: str) -> bool:
    """The recordings do not say which devices and zones KAI chose."""
    return fault.endswith("gets no allocation") or (
        fault.startswith("zones:") and "its zones [] give" in fault
    )


def test_kai_keeps_the_rules_in_its_recordings(shared: Path) -> None:
    faults = {}
    for path in sorted((shared / "conformance" / "cases").glob("*/*.json")):
        case = json.loads(path.read_text())
        now = datetime.fromisoformat(case["now"].replace("Z", "+00:00")).timestamp()
        snapshot = parse(case["snapshot"], now=now)
        plan = recorded(case, snapshot)
        found = [fault for fault in violations(snapshot, plan) if not _unrecorded(fault)]
        if found:
            faults[case["id"]] = found
    for name in DEFECTS & faults.keys():
        assert "does not run, it is Pending" in faults.pop(name)[0]
    assert faults == {}
