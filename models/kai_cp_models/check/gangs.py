"""Gangs: a gang that gets a place gets all of it, and starts together (4.2, 5.1, 5.2).

Every subgroup that gets a pod, and every set above it, reaches its minimum after the plan; a pod group below
its minimum is not moved either, unless it then reaches its minimum. A pod group that is not ready gets
nothing; a pod that names an unknown subgroup never gets anything (1.2). If a needed pod of a gang is only
nominated, no pod of the gang is bound in this cycle. Waiting pods of a pod set get their places in task
order. Of the subgroups below their minimum, those that come first by name are served first, and before
further pods of the other subgroups (5.3, 3.6).
"""

from __future__ import annotations

from collections.abc import Iterator

from kai_cp_models.check import tree
from kai_cp_models.check.planned_cluster import PlannedCluster, Violation
from kai_cp_models.pods import ACTIVE_ALLOCATED, PodKey, PodStatus
from kai_cp_models.snapshot import PodGroup


def broken(world: PlannedCluster) -> Iterator[Violation]:
    """Pod groups of which only a part gets its places."""
    for group in world.touched_groups:
        if not world.placed_of(group) or _plainly_whole(world, group):
            continue
        if group.backed_off and any(p.key in world.added for p in world.placed_of(group)):
            yield Violation(
                "gangs",
                f"pod group {group.key} gets a place, but it is backed off on this node pool",
                groups=(group.key,),
            )
        yield from _whole(world, group)
        yield from _moved(world, group)
        yield from _together(world, group)
        yield from _pods_in_turn(world, group)
        yield from _subgroups_in_turn(world, group)


def _plainly_whole(world: PlannedCluster, group: PodGroup) -> bool:
    """Whether counting alone shows that nothing is wrong. Nearly all groups have one pod set and pass it."""
    root = group.root
    if group.backed_off or len(root.children) != 1 or not root.children[0].leaf or root.minimum != 1:
        return False
    leaf, alive, after, waits = root.children[0], 0, 0, False
    for pod in world.snapshot.members[group.key]:
        placed = pod.key in world.placed
        if waits and pod.key in world.added:
            return False
        waits |= pod.status is PodStatus.PENDING and not placed
        if tree.leaf_name(pod) == leaf.name:
            active = pod.status in ACTIVE_ALLOCATED
            alive += active or pod.status is PodStatus.PENDING
            after += placed or (active and pod.key not in world.evictions)
        elif placed:
            return False
    if alive < leaf.minimum or after < leaf.minimum:
        return False
    bound = (pod.key in world.binds for pod in world.placed_of(group))
    later = (pod.key in world.nominations for pod in world.placed_of(group))
    return not (world.binds and world.nominations and any(bound) and any(later))


def _whole(world: PlannedCluster, group: PodGroup) -> Iterator[Violation]:
    known = tree.leaf_names(group)
    new = []
    for pod in world.snapshot.members[group.key]:
        if pod.key in world.added:
            if tree.leaf_name(pod) in known:
                new.append(pod)
            else:
                yield Violation(
                    "gangs",
                    f"pod {pod.key} gets a place, but its subgroup {tree.leaf_name(pod)} is unknown",
                    pods=(pod.key,),
                )
    if not new:
        return
    alive = tree.alive(world.snapshot.members[group.key])
    if not tree.satisfied(group.root, alive):
        needs = tree.needs(group.root, alive)
        yield Violation(
            "gangs", f"pod group {group.key} gets a place, but it is not ready: {needs}", groups=(group.key,)
        )
    added = tree.counts(new)
    after = tree.counts(world.active_after(group.key))
    for subgroup in tree.walk(group.root):
        if tree.size(subgroup, added) and not tree.satisfied(subgroup, after):
            yield Violation(
                "gangs",
                f"{tree.label(group, subgroup)} is placed in part: {tree.needs(subgroup, after)}",
                groups=(group.key,),
            )


def _moved(world: PlannedCluster, group: PodGroup) -> Iterator[Violation]:
    after = tree.counts(world.active_after(group.key))
    if tree.satisfied(group.root, after):
        return
    for pod in world.snapshot.members[group.key]:
        if pod.key in world.moved:
            needs = tree.needs(group.root, after)
            yield Violation(
                "gangs",
                f"pod {pod.key} is moved, but {group.key} stays below its minimum: {needs}",
                groups=world.served((pod.key,)),
            )
            return


def _together(world: PlannedCluster, group: PodGroup) -> Iterator[Violation]:
    members = world.snapshot.members[group.key]
    bound = [pod for pod in members if pod.key in world.binds]
    waiting = tree.counts(pod for pod in members if pod.key in world.nominations)
    if not bound or not waiting:
        return
    runs = tree.counts(p for p in world.active_after(group.key) if p.key not in world.nominations)
    starting = tree.counts(bound)
    for subgroup in tree.walk(group.root):
        # A subgroup beyond the minimum of its set may wait; if it starts, it starts as a whole.
        if tree.size(subgroup, starting) and not tree.satisfied(subgroup, runs):
            yield Violation(
                "gangs",
                f"{tree.label(group, subgroup)} starts in part: {tree.needs(subgroup, runs)}"
                f" counting what is bound or runs, but {bound[0].key} is bound",
                groups=(group.key,),
            )


def _pods_in_turn(world: PlannedCluster, group: PodGroup) -> Iterator[Violation]:
    """The members of a snapshot are in task order."""
    passed: dict[str, PodKey] = {}
    for pod in world.snapshot.members[group.key]:
        name = tree.leaf_name(pod)
        if pod.status is PodStatus.PENDING and pod.key not in world.added:
            passed.setdefault(name, pod.key)
        elif pod.key in world.added and name in passed:
            words = f"pod {pod.key} gets a place, but not {passed[name]}, which comes before it"
            yield Violation("gangs", words, pods=(pod.key,))


def _subgroups_in_turn(world: PlannedCluster, group: PodGroup) -> Iterator[Violation]:
    members = world.snapshot.members[group.key]
    if any(pod.key in world.evictions for pod in members):
        # Then its batches differ from those of the snapshot.
        return
    alive, before = tree.alive(members), tree.counts(world.active_before(group.key))
    added = tree.counts(pod for pod in members if pod.key in world.added)
    for subgroup in tree.walk(group.root):
        waiting = ""
        below = (
            one for one in subgroup.children if tree.satisfied(one, alive) and not tree.satisfied(one, before)
        )
        first = sorted(below, key=lambda one: one.name)
        others = (one for one in subgroup.children if tree.satisfied(one, before))
        for one in (*first, *others):
            if not tree.size(one, added):
                waiting = waiting or (one.name if one in first else "")
            elif waiting:
                what = f"{tree.label(group, one)} gets a place"
                words = f"{what}, but not subgroup {waiting}, which comes before it"
                yield Violation("gangs", words, groups=(group.key,))
