"""PodDisruptionBudgets: a plan evicts no more running pods than each one allows, and none that has two.

This always holds for moves of ``defrag``, and for all other evictions when the rule is on.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction

from kai_cp_models.check.planned_cluster import PlannedCluster, Violation
from kai_cp_models.check.selectors import selects
from kai_cp_models.pods import Pod, PodKey, PodStatus
from kai_cp_models.records.budgets import BUDGETS, DisruptionBudget


def broken(world: PlannedCluster) -> Iterator[Violation]:
    """Budgets that the evictions exceed; a moved pod counts, because it restarts."""
    counted = {
        key
        for key, decision in world.evictions.items()
        if world.options.pod_disruption_budgets or decision.action == "defrag"
    }
    if not counted:
        return
    found, members = dict[PodKey, str](), dict[str, list[Pod]]()
    for pod in world.snapshot.pods:
        members.setdefault(pod.key.namespace, []).append(pod)
    for budget in world.snapshot.extras[BUDGETS]:
        pods = [pod for pod in members.get(budget.namespace, ()) if covers(budget, pod)]
        running = [pod for pod in pods if pod.status is PodStatus.RUNNING]
        ended = sum(pod.status in (PodStatus.SUCCEEDED, PodStatus.FAILED) for pod in pods)
        evicted = [pod for pod in running if pod.key in counted]
        allowed = _allowed(budget, len(running), len(pods) - ended)
        where = f"{budget.namespace}/{budget.name}"
        for pod in evicted:
            if (other := found.setdefault(pod.key, where)) != where:
                words = f"pod {pod.key} is evicted, which has two budgets: {other}, {where}"
                yield Violation("budgets", words, groups=world.served((pod.key,)))
        if len(evicted) > allowed:
            yield Violation(
                "budgets",
                f"{len(evicted)} pods of budget {where} are evicted, it allows {allowed}",
                groups=world.served(pod.key for pod in evicted),
            )


def covers(budget: DisruptionBudget, pod: Pod) -> bool:
    """Whether a budget protects a pod: the pod is in its namespace and matches its selector."""
    return budget.namespace == pod.key.namespace and selects(budget.pods, pod.labels)


def _allowed(budget: DisruptionBudget, running: int, expected: int) -> int:
    """How many evictions the budget allows: as its status says, or counted from its pods."""
    if budget.allowed is not None:
        return budget.allowed
    if budget.maximum is not None:
        needed = expected - _of(budget.maximum, expected)
    else:
        needed = 1 if budget.minimum is None else _of(budget.minimum, expected)
    return max(running - needed, 0)


def _of(bound: int | str, expected: int) -> int:
    """A number, or a percentage of ``expected``, rounded up as the disruption controller does."""
    return bound if isinstance(bound, int) else math.ceil(Fraction(int(bound.rstrip("%")) * expected, 100))
