"""Min runtime: a pod group that started recently is protected from reclaim and preempt (4.6), until its last
start plus the minimum runtime.

A pod group never counts as started later than the oldest of its running pods, whatever is noted.

A protected pod group may only lose or move pods above its minimum, and only if it has such pods at all; every
subgroup that met its minimum must still meet it without the pods that such an action moves and without those
that terminate. A pod that a later action evicts was still kept when this one ended. Of several triggers, only
the one to which the eviction is charged counts.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Final

from kai_cp_models.check import tree
from kai_cp_models.check.planned_cluster import PlannedCluster, Violation
from kai_cp_models.check.victims import takers
from kai_cp_models.plan import Decision
from kai_cp_models.pods import ACTIVE_ALLOCATED, PodKey
from kai_cp_models.policy import ActionName
from kai_cp_models.snapshot import PodGroup

_GRANTING: Final[tuple[ActionName, ...]] = ("reclaim", "preempt")
"""Actions that respect the minimum runtime of a pod group."""


def broken(world: PlannedCluster) -> Iterator[Violation]:
    """Protected pod groups that are touched."""
    policy = world.snapshot.policy
    defaults = policy.default_preempt_min_runtime_seconds, policy.default_reclaim_min_runtime_seconds
    said = ((q.preempt_min_runtime_seconds, q.reclaim_min_runtime_seconds) for q in world.snapshot.queues)
    longest = max(0.0, *defaults, *(seconds or 0.0 for both in said for seconds in both))
    for group in world.disturbed_groups:
        if group.last_start is None:
            continue
        running = (pod.started for pod in world.active_before(group.key) if pod.started is not None)
        age = world.snapshot.now - min([group.last_start, *running])
        if age >= longest:
            continue
        for action in _GRANTING:
            granted = {
                pod.key: _min_runtime(world, group, decision)
                for pod in world.evicted_of(group)
                if (decision := world.evictions[pod.key]).action == action
            }
            early = {key: seconds for key, seconds in granted.items() if age < seconds}
            if early and not _spares_the_minimum(world, group, action, early):
                pod, seconds = next(iter(early.items()))
                yield Violation(
                    "runtime",
                    f"pod {pod} of pod group {group.key} is evicted by {action}"
                    f" {age:g} s after its start, it is protected for {seconds:g} s",
                    groups=world.served(early),
                )


def _min_runtime(world: PlannedCluster, victim: PodGroup, decision: Decision) -> float:
    """Seconds for which the victim is protected from the trigger that an eviction is charged to."""
    if not world.snapshot.policy.plugin("minruntime"):
        return 0.0
    if decision.action == "preempt":
        return preempt_min_runtime(world, victim.queue)
    able = takers(world, victim, decision)
    return reclaim_min_runtime(world, able[0].queue, victim.queue) if able else 0.0


def preempt_min_runtime(world: PlannedCluster, queue: str) -> float:
    """First value from the victim's leaf up, else the default."""
    queues = world.snapshot.queue_by_name
    for name in world.snapshot.queue_path.get(queue, ()):
        value = queues[name].preempt_min_runtime_seconds
        if value is not None:
            return max(value, 0.0)
    return world.snapshot.policy.default_preempt_min_runtime_seconds


def reclaim_min_runtime(world: PlannedCluster, trigger: str, victim: str) -> float:
    """By method ``lca`` from below the lowest common ancestor up, by ``queue`` from the leaf up."""
    snapshot = world.snapshot
    path = snapshot.queue_path.get(victim, ())
    if snapshot.policy.reclaim_resolve_method == "lca" and path:
        shared = set(snapshot.queue_path.get(trigger, ())) & set(path)
        # Without a common ancestor only the top-level queue is asked; otherwise the child of the lowest one.
        first = next((i - 1 for i, name in enumerate(path) if name in shared), len(path) - 1)
        path = path[max(first, 0) :]
    for name in path:
        value = snapshot.queue_by_name[name].reclaim_min_runtime_seconds
        if value is not None:
            return max(value, 0.0)
    return snapshot.policy.default_reclaim_min_runtime_seconds


def _spares_the_minimum(
    world: PlannedCluster, group: PodGroup, action: ActionName, taken: Container[PodKey]
) -> bool:
    """Whether the group keeps its minimum without the pods that the action takes despite the protection. Pods
    that others take later, or that this action may take freely, count as kept."""
    members = world.snapshot.members[group.key]
    have = tree.counts(members)
    elastic = any(have[leaf.name] > leaf.minimum for leaf in group.root.leaves()) or any(
        len(subgroup.children) > subgroup.minimum for subgroup in tree.walk(group.root) if not subgroup.leaf
    )
    gone = {p.key for p in members if p.key in world.lost}
    gone = {key for key in gone if world.earlier(world.evictions[key].action, action)}
    kept = tree.counts(
        p
        for p in members
        if (p.status in ACTIVE_ALLOCATED or p.key in world.placed)
        and p.key not in taken
        and p.key not in gone
    )
    return elastic and tree.satisfied(group.root, kept)
