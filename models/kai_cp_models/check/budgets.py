"""PodDisruptionBudgets: a plan evicts no more running pods than each one allows, and none that has two.

This always holds for moves of ``defrag``, and for all other evictions when the rule is on.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from fractions import Fraction

from kai_cp_models.check.planned_cluster import PlannedCluster, Violation
from kai_cp_models.check.selectors import ByLabel, had, needed, selects
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
    evicted = [pod for key in sorted(counted) if (pod := world.pod(key)).status is PodStatus.RUNNING]
    budgets = world.snapshot.extras[BUDGETS]
    of = _covering(budgets, evicted)
    for pod in evicted:
        if len(of[pod.key]) > 1:
            first, second, *_ = (f"{budget.namespace}/{budget.name}" for budget in of[pod.key])
            words = f"pod {pod.key} is evicted, which has two budgets: {first}, {second}"
            yield Violation("budgets", words, groups=world.served((pod.key,)))
    members: dict[DisruptionBudget, list[Pod]] = {one: [] for pod in evicted for one in of[pod.key]}
    for key, found in _covering(members, world.snapshot.pods).items():
        for budget in found:
            members[budget].append(world.pod(key))
    for budget, pods in members.items():
        running = [pod.key for pod in pods if pod.status is PodStatus.RUNNING]
        ended = sum(pod.status in (PodStatus.SUCCEEDED, PodStatus.FAILED) for pod in pods)
        gone = [key for key in running if key in counted]
        allowed = _allowed(budget, len(running), len(pods) - ended)
        if len(gone) > allowed:
            where = f"{budget.namespace}/{budget.name}"
            words = f"{len(gone)} pods of budget {where} are evicted, it allows {allowed}"
            yield Violation("budgets", words, groups=world.served(gone))


def _covering(
    budgets: Iterable[DisruptionBudget], pods: Iterable[Pod]
) -> dict[PodKey, list[DisruptionBudget]]:
    """The budgets that protect each of the pods."""
    homes: dict[str, list[DisruptionBudget]] = {}
    for budget in budgets:
        homes.setdefault(budget.namespace, []).append(budget)
    of = {name: ByLabel((needed(budget.pods), budget) for budget in found) for name, found in homes.items()}
    nothing = ByLabel[DisruptionBudget](())
    asked = ((pod, of.get(pod.key.namespace, nothing).asked(had(pod.labels))) for pod in pods)
    return {pod.key: [one for one in found if covers(one, pod)] for pod, found in asked}


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
