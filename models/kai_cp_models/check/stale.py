"""Stale gangs: a gang below its minimum for longer than the grace period is evicted as a whole (4.8).

Stale: no succeeded pod, at least one pod that holds a place, and the gang tree is not satisfied by the
pods that hold one (with minSubGroup: an optional subgroup that never started does not count; 14).
"""

from __future__ import annotations

from collections.abc import Iterator

from kai_cp_models.check import tree
from kai_cp_models.check.planned_cluster import PlannedCluster, Violation
from kai_cp_models.pods import ACTIVE_USED, PodStatus
from kai_cp_models.snapshot import PodGroup


def broken(world: PlannedCluster) -> Iterator[Violation]:
    """Evictions of gangs that are not stale, or only in part."""
    for group in world.disturbed_groups:
        evictions = (world.evictions[pod.key] for pod in world.evicted_of(group))
        if not any(decision.action == "stalegangeviction" for decision in evictions):
            continue
        what = f"pod group {group.key} is evicted"
        reason = _fresh(world, group)
        if reason:
            yield Violation("stale", f"{what}, but {reason}", groups=(group.key,))
        for pod in world.active_after(group.key):
            words = f"{what}, but its pod {pod.key} keeps or gets a place"
            yield Violation("stale", words, groups=(group.key,))
            break


def _fresh(world: PlannedCluster, group: PodGroup) -> str:
    """Why the gang is not stale; "" when it is."""
    members = world.snapshot.members[group.key]
    if any(p.status is PodStatus.SUCCEEDED for p in members):
        return "a pod of it has succeeded"
    holding = tree.counts(p for p in members if p.status in ACTIVE_USED)
    if tree.satisfied(group.root, holding):
        return f"it has its minimum: {tree.needs(group.root, holding)}"
    grace = group.staleness_grace_seconds
    if grace is None:
        grace = world.snapshot.policy.default_staleness_grace_seconds
    if grace < 0:
        return "its grace period is without end"
    since = group.stale_since if group.stale_since is not None else world.snapshot.now
    age = world.snapshot.now - since
    return f"it is below its minimum for {age:g} s of {grace:g} s of grace" if age < grace else ""
