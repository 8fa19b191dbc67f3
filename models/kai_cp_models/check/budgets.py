"""PodDisruptionBudgets: a plan evicts no more running pods than each one allows.

Always where pods are moved by ``defrag``; for all other evictions when the rule is switched on.
"""

from __future__ import annotations

from collections.abc import Iterator

from kai_cp_models.check.planned_cluster import PlannedCluster
from kai_cp_models.rules.stateful.budgets import allowance, read
from kai_cp_models.snapshot import PodStatus


def broken(world: PlannedCluster) -> Iterator[str]:
    """Budgets that the evictions exceed; a moved pod counts, it is a restart."""
    counted = {
        key
        for key, decision in world.evictions.items()
        if world.options.pod_disruption_budgets or decision.action == "defrag"
    }
    if not counted:
        return
    for budget in read(world.snapshot, []):
        pods = [pod for pod in world.snapshot.pods if budget.selects(pod)]
        running = [pod for pod in pods if pod.status is PodStatus.RUNNING]
        ended = sum(pod.status in (PodStatus.SUCCEEDED, PodStatus.FAILED) for pod in pods)
        evicted = [pod for pod in running if pod.key in counted]
        allowed = allowance(budget, len(running), len(pods) - ended)
        if len(evicted) > allowed:
            where = f"{budget.namespace}/{budget.name}"
            yield f"budgets: {len(evicted)} pods of budget {where} are evicted, it allows {allowed}"
