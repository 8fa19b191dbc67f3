"""What tests read from a plan: the bound, nominated, evicted and waiting pods, and the reasons."""

from __future__ import annotations

from kai_cp_models.engine import FAILED, REJECTED, decide
from kai_cp_models.plan import Plan
from kai_cp_models.queries.cluster import faults
from kai_cp_models.settings import Settings
from kai_cp_models.snapshot import Snapshot

SETTINGS = Settings.model_validate({"solver": {"budget_seconds": 20, "patience": 1000, "workers": 1}})
UNHURRIED = Settings.model_validate({"solver": {"budget_seconds": 60}})
"""Like the default, for a machine that may be busy."""
ALL_RULES = Settings.model_validate(
    {
        "solver": SETTINGS.solver,
        "rules": {
            "topology_spread": True,
            "pod_disruption_budgets": True,
            "gpu_kinds": True,
            "rollouts": True,
        },
    }
)
"""With the rules that KAI lacks."""


def solved(snapshot: Snapshot, settings: Settings = SETTINGS) -> Plan:
    """The engine's plan with enough time. Asserts that it breaks no rule and that nothing was dropped."""
    plan = decide(snapshot, settings)
    assert faults(snapshot, plan, settings) == []
    assert not [stage.name for stage in plan.stages if stage.kind in (REJECTED, FAILED)]
    return plan


def bound(plan: Plan) -> dict[str, str]:
    """The node of every bound pod, by pod name."""
    return {d.pod.name: d.node for d in plan.decisions if d.kind == "Bind"}


def nominated(plan: Plan) -> dict[str, str]:
    """The node of every nominated pod, by pod name; moved pods included."""
    return {d.pod.name: d.node for d in plan.decisions if d.kind == "Nominate"}


def evicted(plan: Plan) -> set[str]:
    """Names of all evicted pods, moved ones included."""
    return {d.pod.name for d in plan.decisions if d.kind == "Evict"}


def lost(plan: Plan) -> set[str]:
    """Names of the evicted pods without a new place."""
    return evicted(plan) - set(nominated(plan))


def placed(plan: Plan) -> set[str]:
    """Names of the waiting pods that get a place, bound or nominated."""
    return (set(bound(plan)) | set(nominated(plan))) - evicted(plan)


def reasons(plan: Plan) -> dict[str, str]:
    """The reason token of every waiting pod group, by group name."""
    return {u.group.name: u.reason for u in plan.unscheduled}
