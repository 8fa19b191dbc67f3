"""Finds gangs below their minimum, and when the annotations say that they are evicted (4.8)."""

from __future__ import annotations

from collections.abc import Set

from kai_cp_models.check import tree
from kai_cp_models.plan import Plan
from kai_cp_models.pods import ACTIVE_USED, GroupKey, PodKey, PodStatus
from kai_cp_models.snapshot import PodGroup, Snapshot


def stale_groups(snapshot: Snapshot, plan: Plan) -> frozenset[GroupKey]:
    """Groups that are stale after the plan: some pods are active, but fewer than the minimum."""
    placed = {decision.pod for decision in plan.decisions if decision.kind != "Evict"}
    return frozenset(group.key for group in snapshot.groups if _is_stale(snapshot, group, placed))


def _is_stale(snapshot: Snapshot, group: PodGroup, placed: Set[PodKey]) -> bool:
    members = snapshot.members[group.key]
    if any(pod.status is PodStatus.SUCCEEDED for pod in members):
        return False
    active = [pod for pod in members if pod.status in ACTIVE_USED or pod.key in placed]
    if not any(pod.status in ACTIVE_USED for pod in members):
        return False
    return not tree.satisfied(group.root, tree.counts(active))


def next_eviction(snapshot: Snapshot, group: PodGroup, since: float) -> float | None:
    """When a stale group's grace period ends; None if it never does."""
    grace = group.staleness_grace_seconds
    if grace is None:
        grace = snapshot.policy.default_staleness_grace_seconds
    return None if grace < 0 else since + grace
