"""Shrinking: a pod group loses pods in the order of its eviction units (5.4).

Surplus pods go first, the latest in task order first; then whole surplus subgroups; then everything. A
subgroup that met its minimum still meets it, or has nothing left. Moved pods count as kept. Pods of equal
rank and age are interchangeable. A pod on another node stays where evicting it helps no trigger. A subgroup
that was below its minimum before is not checked, nor is a group that is evicted for its own state: what it
has afterwards started again.
"""

from __future__ import annotations

from collections.abc import Iterator

from kai_cp_models.check import tree
from kai_cp_models.check.planned_cluster import PlannedCluster, Violation
from kai_cp_models.pods import GroupKey, Pod
from kai_cp_models.policy import STATE_ACTIONS
from kai_cp_models.snapshot import PodGroup, Subgroup


def broken(world: PlannedCluster) -> Iterator[Violation]:
    """Pod groups that lose part of a minimum, or shrink in the wrong order."""
    for group in world.disturbed_groups:
        lost = [p for p in world.evicted_of(group) if p.key in world.lost]
        if not lost or not any(world.active_after(group.key)):
            # A group that keeps no pod gives up all of its units, in whatever order.
            continue
        ended = (world.evictions[p.key].action in STATE_ACTIONS | {"maxruntime"} for p in lost)
        if not all(ended):
            yield from _torn(world, group)
            yield from _wrong_pod(world, group, lost)


def _served(world: PlannedCluster, group: PodGroup) -> tuple[GroupKey, ...]:
    """The pod groups for which a pod group is evicted."""
    return world.served(pod.key for pod in world.evicted_of(group))


def _torn(world: PlannedCluster, group: PodGroup) -> Iterator[Violation]:
    before = tree.counts(world.active_before(group.key))
    after = tree.counts(world.active_after(group.key))
    for subgroup in tree.walk(group.root):
        left = tree.size(subgroup, after)
        shrinks = left < tree.size(subgroup, before)
        met = tree.satisfied(subgroup, before)
        if shrinks and met and left and not tree.satisfied(subgroup, after):
            yield Violation(
                "shrinking",
                f"{tree.label(group, subgroup)} is evicted in part: {tree.needs(subgroup, after)} stay",
                groups=_served(world, group),
            )
        if shrinks and met and not subgroup.leaf and tree.satisfied(subgroup, after):
            yield from _surplus_left(world, group, subgroup, before, after)


def _surplus_left(
    world: PlannedCluster,
    group: PodGroup,
    subgroup: Subgroup,
    before: tree.PodCounts,
    after: tree.PodCounts,
) -> Iterator[Violation]:
    """A whole member is lost only when no surplus pod is left below the set."""
    dropped = [c for c in subgroup.children if tree.satisfied(c, before) and not tree.satisfied(c, after)]
    spare = [leaf for leaf in _giving(subgroup, after) if after[leaf.name] > leaf.minimum]
    if dropped and spare:
        yield Violation(
            "shrinking",
            f"{tree.label(group, dropped[0])} is evicted whole while"
            f" {tree.label(group, spare[0])} keeps {after[spare[0].name]} pods,"
            f" {spare[0].minimum} are its minimum",
            groups=_served(world, group),
        )


def _giving(subgroup: Subgroup, have: tree.PodCounts) -> Iterator[Subgroup]:
    """The pod sets that give up surplus pods. Below a set without a satisfied member none does."""
    if subgroup.leaf:
        yield subgroup
    elif any(tree.satisfied(child, have) for child in subgroup.children):
        for child in subgroup.children:
            yield from _giving(child, have)


def _wrong_pod(world: PlannedCluster, group: PodGroup, lost: list[Pod]) -> Iterator[Violation]:
    staying = [p for p in world.active_before(group.key) if p.key not in world.evictions]
    for pod in lost:
        later = [
            p
            for p in staying
            if tree.leaf_name(p) == tree.leaf_name(pod) and _rank(p) > _rank(pod) and p.node == pod.node
        ]
        if later:
            yield Violation(
                "shrinking",
                f"pod {pod.key} is evicted before {later[0].key}, which comes after it",
                groups=world.served((pod.key,)),
            )


def _rank(pod: Pod) -> tuple[object, ...]:
    """Task order without the uid, which only breaks ties."""
    return pod.sort_key[:-1]
