"""Shared GPUs: the pods of a GPU group fit into the memory of one device (2.6).

A group is joined only while a pod stays in it: when all its pods are releasing, or evicted by the
same action or an earlier one, its device becomes whole again. A pod is bound into a group only if the group
has enough free memory now. (How many devices a node has is the subject of ``capacity``.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from kai_cp_models.check import amounts
from kai_cp_models.check.planned_cluster import PlannedCluster, Resident, Violation
from kai_cp_models.pods import PodStatus
from kai_cp_models.policy import ActionName
from kai_cp_models.snapshot import Node


def broken(world: PlannedCluster) -> Iterator[Violation]:
    """GPU groups that are overfull, or joined while they go away."""
    for name in sorted({decision.node for decision in world.placed.values() if decision.gpu_groups}):
        arrivals = [r for r in world.arriving(name) if r.gpu_groups]
        node = world.node(name)
        bound = [r for r in arrivals if r.pod.key in world.binds]
        yield from _overfull(node, world.now(name), bound, "now")
        yield from _overfull(node, world.end(name), arrivals, "in the end")
        yield from _going_away(world, name, arrivals)
    yield from _elsewhere(world)


def _memory(node: Node, residents: Iterable[Resident]) -> Counter[str]:
    used: Counter[str] = Counter()
    for resident in residents:
        for group in resident.gpu_groups:
            used[group] += amounts.share_mib(resident.pod, node)
    return used


def _overfull(
    node: Node, there: Iterable[Resident], arrivals: list[Resident], when: str
) -> Iterator[Violation]:
    used = _memory(node, there)
    for group in sorted({group for r in arrivals for group in r.gpu_groups}):
        if used[group] > node.gpu_memory_mib:
            yield Violation(
                "sharing",
                f"GPU group {group} on node {node.name} would hold {used[group]} MiB"
                f" of {node.gpu_memory_mib} {when}",
                node=node.name,
            )


def _going_away(world: PlannedCluster, node: str, arrivals: list[Resident]) -> Iterator[Violation]:
    known = {group for r in world.before(node) for group in r.gpu_groups}
    for resident in arrivals:
        action = world.placed[resident.pod.key].action
        there = [r for r in world.before(node) if _stays(world, r, action)]
        there += [r for r in arrivals if world.earlier(world.placed[r.pod.key].action, action)]
        staying = {group for r in there for group in r.gpu_groups}
        for group in resident.gpu_groups:
            if group in known - staying:
                where = f"GPU group {group} on node {node}"
                yield Violation(
                    "sharing",
                    f"pod {resident.pod.key} joins {where}, which is going away",
                    pods=(resident.pod.key,),
                )


def _stays(world: PlannedCluster, resident: Resident, action: ActionName) -> bool:
    """Whether a pod was staying when ``action`` placed others: evictions of later actions do not count."""
    if resident.pod.status is PodStatus.RELEASING:
        return False
    eviction = world.evictions.get(resident.pod.key)
    return eviction is None or world.earlier(action, eviction.action)


def _elsewhere(world: PlannedCluster) -> Iterator[Violation]:
    """A group id names one device of one node."""
    home = dict(world.start.homes)
    for key, decision in world.placed.items():
        for group in decision.gpu_groups:
            if home.setdefault(group, decision.node) not in (decision.node, ""):
                where = f"node {decision.node}, it is on {home[group]}"
                yield Violation("sharing", f"pod {key} names GPU group {group} on {where}", pods=(key,))
