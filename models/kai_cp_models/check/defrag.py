"""Defragmentation (docs/defragmentation.md, docs/inference.md): every pod that it evicts has a new place, and
the cycle does nothing else.

A non-preemptible pod moves only if all of this holds: an annotation of its pod group or of a queue allows it,
and none forbids it; a PodDisruptionBudget covers it; no other pod of the pod group or budget moves in the
same cycle; and its new place is free beside all pods that are there, leaving ones included.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from kai_cp_models.check.budgets import covers
from kai_cp_models.check.capacity import used
from kai_cp_models.check.planned_cluster import PlannedCluster, Violation
from kai_cp_models.pods import Pod, PodKey
from kai_cp_models.records.budgets import BUDGETS, DisruptionBudget
from kai_cp_models.snapshot import PodGroup


def broken(world: PlannedCluster) -> Iterator[Violation]:
    """Pods that defragmentation evicts without a right to it."""
    moved = {key for key, decision in world.evictions.items() if decision.action == "defrag"}
    if not moved:
        return
    others = sorted((world.placed.keys() | world.evictions.keys()) - moved)
    if others:
        words = f"defrag moves pods, but pod {others[0]} is placed or evicted in the same cycle"
        yield Violation("defrag", words, pods=tuple(sorted(moved)))
    budgets = world.snapshot.extras[BUDGETS]
    for key in sorted(moved):
        pod = world.pod(key)
        group = world.group_of(pod)
        for fault in _faults(world, pod, group, budgets, moved):
            yield Violation("defrag", f"pod {key} {fault}", groups=world.served((key,)))


def _faults(
    world: PlannedCluster,
    pod: Pod,
    group: PodGroup | None,
    budgets: Collection[DisruptionBudget],
    moved: Collection[PodKey],
) -> Iterator[str]:
    if world.snapshot.policy.spreads:
        yield "is moved, though placementStrategy is spread"
    if pod.key not in world.moved:
        yield "is evicted without a new place"
        return
    if world.placed[pod.key].node == pod.node:
        yield "is moved to the node where it runs"
    if group is None:
        return
    path = world.snapshot.queue_path.get(group.queue, ())
    said = {group.notes.defrag, *(world.snapshot.queue_by_name[name].notes.defrag for name in path)}
    if group.preemptible:
        if False in said:
            yield "is moved, though an annotation forbids it"
    else:
        if True not in said or False in said:
            yield "cannot be preempted, and no annotation lets it move"
        for fault in _serving(world, pod, budgets, moved):
            yield f"cannot be preempted, and {fault}"


def _serving(
    world: PlannedCluster, pod: Pod, budgets: Collection[DisruptionBudget], moved: Collection[PodKey]
) -> Iterator[str]:
    covering = [budget for budget in budgets if covers(budget, pod)]
    if not covering:
        yield "no PodDisruptionBudget covers it"
    for other in sorted(moved):
        one = world.pod(other)
        if one is not pod and (one.group == pod.group or any(covers(budget, one) for budget in covering)):
            yield f"pod {other} moves at the same time"
    node = world.node(world.placed[pod.key].node)
    arriving = tuple(r for r in world.arriving(node.name) if r.pod.key == pod.key)
    total = used(world, node, (*world.now(node.name), *(r for r in arriving if r.pod.key not in world.binds)))
    if any(0 < room < amount for amount, room in zip(total, node.allocatable, strict=True)):
        yield f"node {node.name} has too little free for it while other pods are still there"
