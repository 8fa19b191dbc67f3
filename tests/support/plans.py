"""What tests ask of a plan: who is bound, nominated, evicted, who waits and why."""

from __future__ import annotations

from kai_cp_models.check import violations
from kai_cp_models.engine import FAILED, REJECTED, decide
from kai_cp_models.settings import Settings
from kai_cp_models.snapshot import Plan, Snapshot

SETTINGS = Settings.model_validate({"solver": {"budget_seconds": 20, "patience": 1000, "workers": 1}})
UNHURRIED = Settings.model_validate({"solver": {"budget_seconds": 60}})
"""As by default, on a machine that may be busy."""
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
    """The engine's plan with time enough; it breaks no rule, and the engine had to drop nothing."""
    plan = decide(snapshot, settings)
    assert violations(snapshot, plan, settings.rules) == []
    assert not [stage.name for stage in plan.stages if stage.name.endswith((REJECTED, FAILED))]
    return plan


def bound(plan: Plan) -> dict[str, str]:
    """Node by name of every pod that is bound."""
    return {d.pod.name: d.node for d in plan.decisions if d.kind == "Bind"}


def nominated(plan: Plan) -> dict[str, str]:
    """Node by name of every pod that is nominated, moved ones included."""
    return {d.pod.name: d.node for d in plan.decisions if d.kind == "Nominate"}


def evicted(plan: Plan) -> set[str]:
    """Names of all evicted pods, moved ones included."""
    return {d.pod.name for d in plan.decisions if d.kind == "Evict"}


def lost(plan: Plan) -> set[str]:
    """Names of the evicted pods that get no new place."""
    return evicted(plan) - set(nominated(plan))


def placed(plan: Plan) -> set[str]:
    """Names of the waiting pods that get a place, bound or nominated."""
    return (set(bound(plan)) | set(nominated(plan))) - evicted(plan)


def reasons(plan: Plan) -> dict[str, str]:
    """Reason token by name of every pod group that waits."""
    return {u.group.name: u.reason for u in plan.unscheduled}
