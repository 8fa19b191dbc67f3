"""Rights: no pod leaves only for a pod group that may not take it (4.7).

Preempt serves groups in their order. Take a group that has no right to any victim of its queue, and a victim
that is evicted only for groups before it. The group may use what is left over and nothing more: if the victim
would keep running without the group, the group waits. So the same plan without the group and without the
eviction must break a rule.

The order between queues depends on shares and is not judged here. Neither are places that reclaim gives,
because reclaim has rights and victims of its own. Once reclaim has evicted, what allocate gave stays. No pod
moves for what an earlier action bound: that place was idle before anything left.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from kai_cp_models.check.capacity import fits
from kai_cp_models.check.planned_cluster import PlannedCluster, Violation
from kai_cp_models.pods import GroupKey, Pod
from kai_cp_models.policy import STATE_ACTIONS
from kai_cp_models.snapshot import PodGroup


def broken(world: PlannedCluster) -> Iterator[Violation]:
    """Evictions from which only groups without a right gain."""
    if world.lawful is None:
        return
    victims: dict[str, list[PodGroup]] = {}
    for group in world.disturbed_groups:
        if any(world.evictions[pod.key].action == "preempt" for pod in world.evicted_of(group)):
            victims.setdefault(group.queue, []).append(group)
    for some in victims.values():
        least = min(group.priority + group.aged_at_start for group in some)
        for victim in some:
            yield from _served_in_vain(world, victim, least)


def _served_in_vain(world: PlannedCluster, victim: PodGroup, least: float) -> Iterator[Violation]:
    """``least``: the priority that a trigger must exceed to have a right to any victim of the queue."""
    evicted = [p for p in world.evicted_of(victim) if world.evictions[p.key].action == "preempt"]
    triggers = {key for pod in evicted for key in world.evictions[pod.key].triggers}
    only_moves = all(pod.key in world.moved for pod in evicted)
    # Preempt takes back no place on which reclaim counted (formulation 1.5).
    reclaimed = any(one.action == "reclaim" for one in world.evictions.values())
    stay = ("reclaim", "allocate") if reclaimed and world.earlier("reclaim", "preempt") else ("reclaim",)
    for home in dict.fromkeys(pod.node or "" for pod in evicted):
        others = tuple(
            dict.fromkeys(
                group.key
                for resident in world.arriving(home)
                if resident.pod.key in world.added
                and world.placed[resident.pod.key].action not in stay
                and (group := world.group_of(resident.pod)) is not None
                and group.priority <= least
                and _comes_last(world, group, triggers - {group.key})
                and not (only_moves and _was_idle(world, resident.pod))
            )
        )
        for unit in (evicted, [p for p in evicted if p.node == home]) if others else ():
            if _stays(world, unit, others):
                words = f"pod {unit[0].key} is evicted by preempt, and only {others[0]} has something of it"
                yield Violation("rights", f"{words}, which may not take it", groups=others)
                return


def _was_idle(world: PlannedCluster, pod: Pod) -> bool:
    """Whether an action before preempt bound the pod, so that nothing leaves for it."""
    return pod.key in world.binds and world.earlier(world.binds[pod.key].action, "preempt")


def _comes_last(world: PlannedCluster, group: PodGroup, triggers: set[GroupKey]) -> bool:
    """Whether the triggers are of the group's queue and come before it, which is promised nothing."""
    groups = world.snapshot.group_by_key
    before = (
        one is not None and one.queue == group.queue and one.priority + one.aged > group.priority + group.aged
        for one in map(groups.get, triggers)
    )
    waiting = world.snapshot.members[group.key]
    return bool(triggers) and all(before) and all(pod.nominated_node is None for pod in waiting)


def _stays(world: PlannedCluster, unit: Sequence[Pod], others: tuple[GroupKey, ...]) -> bool:
    """Whether the pods could run on, if the other groups were not served."""
    keys, gone = {pod.key for pod in unit}, set(others)
    for name in {pod.node for pod in unit if pod.node is not None}:
        end = [r for r in world.end(name) if r.pod.group not in gone and r.pod.key not in keys]
        back = [r for r in world.before(name) if r.pod.key in keys]
        if not fits(world, name, end + back):
            return False
    plan = world.plan_without(others, keys)
    # A pod that leaves later for its own state was still there.
    there = (d for d in plan.decisions if d.action not in STATE_ACTIONS or world.earlier(d.action, "preempt"))
    return world.lawful is not None and world.lawful(replace(plan, decisions=tuple(there)))
