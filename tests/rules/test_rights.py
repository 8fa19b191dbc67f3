"""What protects a pod, a gang or a queue: every right in one table, for the engine and for the checker.

``v`` holds the one GPU of n0 and ``x`` waits for it. Without a protection v has to leave. With one, no pod is
disturbed, and the checker names the rule when it gets the plan of the unprotected world.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from kai_cp_models.check import violations
from kai_cp_models.plan import Plan
from kai_cp_models.settings import Settings
from kai_cp_models.snapshot import Snapshot
from tests.support.brute import named
from tests.support.objects import LEVELS, Object, ago
from tests.support.plans import bound, evicted, nominated, placed, solved
from tests.support.tiny import NOTHING, node, pod, queue, world

ON = Settings.model_validate(
    {
        "solver": {"budget_seconds": 20, "patience": 1000, "workers": 1},
        "rules": {"topology_spread": True, "pod_disruption_budgets": True},
    }
)
EVERY = ("preempt", "reclaim", "consolidation")


@dataclass(frozen=True)
class Row:
    """``v``, ``x``: what is added to the specs of the two pod groups. ``more``: arguments of ``world``."""

    name: str
    subject: str
    actions: Sequence[str] = EVERY
    v: Mapping[str, Any] = field(default_factory=dict)
    x: Mapping[str, Any] = field(default_factory=dict)
    more: Mapping[str, Any] = field(default_factory=dict)
    queues: Sequence[Object] = ()
    fields: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the pod x."""

    def world(self, action: str, *, protected: bool) -> Snapshot:
        v: Object = {"preempt": {"priority": "low"}, "reclaim": {"queue": "poor"}, "consolidation": {}}[
            action
        ]
        # Only a pod that moves needs n1, which no other pod may use.
        taint = {"key": "kept", "effect": "NoSchedule"}
        nodes = [node("n0", gpus=1), node("n1", gpus=1, taints=[taint])]
        pods = [
            pod("v", "n0", gpus=1, tolerations=[{"key": "kept", "operator": "Exists"}], **v),
            pod("x", gpus=1, **(self.fields if protected else {})),
        ]
        settings: Object = {
            "actions": f"allocate, {action}",
            "queues": [queue("q"), queue("poor", quota=NOTHING)],
        }
        if protected:
            settings |= {"groups": {"v": dict(self.v), "x": dict(self.x)}} | dict(self.more)
            settings["queues"] = self.queues or settings["queues"]
        return world(nodes, pods, **settings)


POOR = queue("poor", quota=NOTHING)
STARTED = {"annotations": {"kai.scheduler/last-start-timestamp": ago(10)}}
BUDGET = {
    "metadata": {"name": "b", "namespace": "default"},
    "spec": {"selector": {"matchLabels": {"app": "v"}}, "maxUnavailable": 0},
}
UNSCHEDULABLE = {
    "type": "UnschedulableOnNodePool",
    "nodePool": "default",
    "status": "True",
    "reason": "Unschedulable",
}
GONE = [{"name": "m", "configMap": {"name": "gone"}}]

ROWS = [
    Row("a pod group that is not preemptible", "victims", v={"preemptibility": "non-preemptible"}),
    Row("a disruption budget", "budgets", more={"podDisruptionBudgets": [BUDGET]}),
    Row("minimum runtime, of preempt", "runtime", ("preempt",), v=STARTED,
        more={"minruntime": {"defaultPreemptMinRuntime": "1h"}}),
    Row("minimum runtime, of reclaim", "runtime", ("reclaim",), v=STARTED,
        more={"minruntime": {"defaultReclaimMinRuntime": "1h"}}),
    Row("equal priority", "victims", ("preempt",), v={"priorityClassName": "train"}),
    Row("a trigger that still has to wait", "victims", x={"preemptionDelay": "1h"}),
    Row("a trigger that is not preemptible", "victims", ("consolidation",),
        x={"preemptibility": "non-preemptible"}),
    Row("no move allowed", "victims", ("consolidation",),
        more={"params": {"maxNumberConsolidationPreemptees": 0}}),
    Row("a queue within its quota", "reclaim", ("reclaim",),
        queues=[queue("q"), queue("poor", quota={"cpu": 8000, "memory": 9999, "gpu": 1})]),
    Row("a queue at its limit", "queues", queues=[queue("q", limit={"gpu": 0}), POOR]),
    Row("a quota for what cannot be preempted", "queues", ("preempt", "reclaim"),
        x={"preemptibility": "non-preemptible"}, queues=[queue("q", quota=NOTHING), POOR]),
    Row("a missing ConfigMap", "objects", fields={"volumes": GONE}),
    Row("a gang that is not whole", "gangs", x={"minMember": 2}),
    Row("a level that does not exist", "topology", x={"topologyConstraint": {"topology": "fabric",
        "requiredTopologyLevel": "row"}}),
    Row("a required level that the node lacks", "topology", x={"topologyConstraint": {"topology": "fabric",
        "requiredTopologyLevel": "rack"}}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("row", "action"),
    [(row, action) for row in ROWS for action in row.actions],
    ids=[f"{row.subject}: {row.name}-{action}" for row in ROWS for action in row.actions],
)
def test_each_protection_stops_an_eviction(row: Row, action: str) -> None:
    plan = solved(row.world(action, protected=False), ON)
    assert (placed(plan), evicted(plan), nominated(plan)["x"]) == ({"x"}, {"v"}, "n0")
    protected = row.world(action, protected=True)
    assert solved(protected, ON).decisions == ()
    faults = violations(protected, plan, ON.rules)
    assert [fault for fault in faults if fault.startswith(f"{row.subject}:")], faults


# --- gangs -----------------------------------------------------------------------------------------


def gang(name: str, count: int, on: str = "", **more: Any) -> list[Object]:
    return [pod(f"{name}-{i}", on, gpus=1, group=name, **more) for i in range(count)]


def test_a_gang_starts_whole_or_not_at_all() -> None:
    nodes = [node("n0", gpus=2), node("n1", gpus=1)]
    for least, expected in ((3, 3), (4, 0), (2, 3)):
        found = world(nodes, gang("g", 4), groups={"g": {"minMember": least}})
        assert len(bound(solved(found))) == expected
    found = world(nodes, gang("g", 4), groups={"g": {"minMember": 4}})
    part = Plan(tuple(named(found, "Bind", f"g-{i}", at) for i, at in enumerate(("n0", "n0", "n1"))))
    assert any(fault.startswith("gangs:") for fault in violations(found, part))


@pytest.mark.parametrize("action", ["preempt", "reclaim"])
def test_a_gang_gives_its_surplus_or_all_of_itself(action: str) -> None:
    """Two of three pods are needed: one GPU is surplus; for two GPUs the whole gang has to leave."""
    v: Object = {"priority": "low"} if action == "preempt" else {"queue": "poor"}
    for need, gone in ((1, {"v-2"}), (2, {"v-0", "v-1", "v-2"})):
        found = world(
            [node("n0", gpus=3)],
            [*gang("v", 3, "n0", **v), pod("x", gpus=need)],
            actions=f"allocate, {action}",
            groups={"v": {"minMember": 2}},
            queues=[queue("q"), queue("poor", quota=NOTHING)],
        )
        plan = solved(found)
        assert (evicted(plan), placed(plan)) == (gone, {"x"})
        if need == 2:
            torn = Plan(tuple(d for d in plan.decisions if d.pod.name != "v-0"))
            assert any(fault.startswith("shrinking:") for fault in violations(found, torn))


@pytest.mark.parametrize(("racks", "expected"), [("rrs", 2), ("rst", 0), ("ssr", 2)])
def test_a_required_level_holds_a_gang_together(racks: str, expected: int) -> None:
    """Each node takes one pod of the gang."""
    nodes = [node(f"n{i}", gpus=1, labels={LEVELS[0]: "b", LEVELS[1]: rack}) for i, rack in enumerate(racks)]
    level = {"topologyConstraint": {"topology": "fabric", "requiredTopologyLevel": "rack"}}
    found = world(nodes, gang("g", 2), groups={"g": {"minMember": 2, **level}})
    plan = solved(found)
    assert len(bound(plan)) == expected
    assert expected or plan.unscheduled[0].proved
    apart = Plan((named(found, "Bind", "g-0", "n0"), named(found, "Bind", "g-1", "n2")))
    assert any(fault.startswith("topology:") for fault in violations(found, apart))
