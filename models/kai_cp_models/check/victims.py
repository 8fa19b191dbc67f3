"""Victims: which pod groups may be evicted, by which action and for which group (4.1, 4.3).

Only active, preemptible pod groups are victims, without pods that name an unknown subgroup (1.2). Every
eviction names its triggers. Each of them has a nominated place by that action, and may take the victim: in
``preempt`` a trigger of the same queue with strictly higher priority, in ``reclaim`` one of another leaf
queue. Consolidation serves preemptible pod groups only, loses none and moves a limited number of pod groups
for each. No eviction is triggered by a pod group in its preemption delay, or with a waiting pod whose binds
failed again and again. No pod is moved to where it runs. An action serves no more pod groups of a leaf queue
than ``queueDepthPerAction`` says. (Min runtime: ``runtime``; fairness: ``reclaim``; actions without triggers
have modules of their own, such as ``stale``.)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kai_cp_models.check import tree
from kai_cp_models.check.planned_cluster import PlannedCluster, Violation
from kai_cp_models.plan import Decision
from kai_cp_models.pods import UNLIMITED, GroupKey
from kai_cp_models.policy import STATE_ACTIONS, TIME_ACTIONS, ActionName
from kai_cp_models.snapshot import PodGroup


def broken(world: PlannedCluster) -> Iterator[Violation]:
    """Evictions without a right to them."""
    known: dict[tuple[object, ...], list[str]] = {}
    for key, decision in world.evictions.items():
        victim = world.group_of(world.pod(key))
        if (
            victim is not None
            and decision.action not in STATE_ACTIONS
            and decision.action not in TIME_ACTIONS
        ):
            lost = decision.action == "consolidation" and key in world.lost
            alike = victim.key, decision.action, decision.triggers, lost
            if alike not in known:
                known[alike] = list(_faults(world, victim, decision, lost))
            if tree.leaf_name(world.pod(key)) not in tree.leaf_names(victim):
                words = f"pod {key} is evicted by {decision.action}, but its subgroup is unknown"
                yield Violation("victims", words, groups=world.served((key,)))
            if _at_home(world, decision):
                words = f"pod {key} is moved by {decision.action} to where it runs"
                yield Violation("victims", words, groups=world.served((key,)))
            for fault in known[alike]:
                what = f"pod {key} of pod group {victim.key} is evicted by {decision.action}"
                yield Violation("victims", f"{what}{fault}", groups=world.served((key,)))
    yield from _triggers(world)
    yield from _consolidated(world)
    yield from _beyond_depth(world)


def _at_home(world: PlannedCluster, eviction: Decision) -> bool:
    """Whether an evicted pod gets its present place again; on its node it may get other devices or zones."""
    place = world.placed.get(eviction.pod)
    if place is None or place.node != eviction.node or place.details:
        return False
    return set(place.gpu_groups) == set(world.pod(eviction.pod).gpu_groups)


def takers(world: PlannedCluster, victim: PodGroup, decision: Decision) -> Sequence[PodGroup]:
    """The triggers of an eviction that may take the victim; computed once for equal evictions."""
    alike = victim.key, decision.action, decision.triggers
    found = world.takers.get(alike)
    if found is None:
        named = _named(world, decision)
        found = world.takers[alike] = [t for t in named if not _refusal(t, victim, decision.action)]
    return found


def _named(world: PlannedCluster, decision: Decision) -> list[PodGroup]:
    groups = world.snapshot.group_by_key
    return [groups[key] for key in decision.triggers if key in groups]


def _faults(world: PlannedCluster, victim: PodGroup, decision: Decision, lost: bool) -> Iterator[str]:
    """What is wrong with an eviction of one of the victim's pods. ``lost``: consolidation gives it no new
    place.
    """
    if decision.action == "allocate":
        yield ", which evicts nothing"
        return
    if not victim.preemptible:
        yield ", but is not preemptible"
    if victim.queue not in world.snapshot.leaf_queues:
        yield f", but its queue {victim.queue!r} is not a leaf queue"
    if lost:
        yield " without a new place"
    if not decision.triggers:
        yield " for no pod group"
    refused = [_refusal(trigger, victim, decision.action) for trigger in _named(world, decision)]
    for why in filter(None, refused):
        yield f", but not every trigger may take it: {why}"


def _refusal(trigger: PodGroup, victim: PodGroup, action: str) -> str:
    """Why a trigger may not take a victim; "" when it may."""
    if trigger.key == victim.key:
        return f"{trigger.key} is the victim itself"
    if action == "preempt" and trigger.queue != victim.queue:
        return f"{trigger.key} is in queue {trigger.queue}, the victim in {victim.queue}"
    protected = victim.priority + victim.aged_at_start
    if action == "preempt" and trigger.priority <= protected:
        return f"{trigger.key} has priority {trigger.priority}, the victim {protected}"
    if action == "reclaim" and trigger.queue == victim.queue:
        return f"{trigger.key} is in the victim's queue {victim.queue}"
    if action == "consolidation" and not trigger.preemptible:
        return f"{trigger.key} is not preemptible"
    return ""


def _triggers(world: PlannedCluster) -> Iterator[Violation]:
    served: dict[tuple[GroupKey, ActionName], Decision] = {}
    for decision in world.evictions.values():
        for trigger in decision.triggers:
            served.setdefault((trigger, decision.action), decision)
    nominations = world.nominations
    nominated = {(world.pod(key).group, nominations[key].action) for key in nominations.keys() & world.added}
    for (key, action), decision in served.items():
        what = f"pod {decision.pod} is evicted by {action} for pod group {key}"
        group = world.snapshot.group_by_key.get(key)
        if group is None:
            yield Violation("victims", f"{what}, which does not exist", pods=(decision.pod,))
            continue
        if (key, action) not in nominated:
            words = f"{what}, which gets no place by {action} that it has to wait for"
            yield Violation("victims", words, groups=(key,))
        yield from _torn(world, group, action)
        since = max(group.created, group.last_eviction or group.created)
        waited = world.snapshot.now - since
        if waited < group.preemption_delay_seconds:
            yield Violation(
                "victims",
                f"{what}, whose preemption delay of {group.preemption_delay_seconds:g} s"
                f" is not over after {waited:g} s",
                groups=(key,),
            )
        yield from _in_vain(world, group, what)


def _in_vain(world: PlannedCluster, group: PodGroup, what: str) -> Iterator[Violation]:
    """No waiting pod of a trigger has just lost several places in a row."""
    noted = group.notes.failures
    if noted is None or world.snapshot.now >= noted.doubted_until:
        return
    for pod in world.snapshot.members[group.key]:
        if pod.uid == noted.uid and pod.node is None:
            words = f"{what}, whose pod {pod.key} lost what it was given {noted.times} times in a row"
            yield Violation("victims", words, groups=(group.key,))


def _torn(world: PlannedCluster, group: PodGroup, action: ActionName) -> Iterator[Violation]:
    """A trigger's batch is placed as a whole, not in part by an earlier action."""
    placed = [(p, world.placed[p.key].action) for p in world.placed_of(group) if p.key in world.added]
    if not (before_it := [p for p, by in placed if world.earlier(by, action)]):
        return
    earlier, given = tree.counts(before_it), tree.counts(p for p, by in placed if by == action)
    before = tree.counts(world.active_before(group.key)) + earlier
    for subgroup in tree.walk(group.root):
        parts = tree.size(subgroup, given), tree.size(subgroup, earlier)
        if all(parts) and not tree.satisfied(subgroup, before):
            words = f"{tree.label(group, subgroup)}, for which {action} evicts, gets its pods in part by it"
            yield Violation("victims", words, groups=(group.key,))


def _beyond_depth(world: PlannedCluster) -> Iterator[Violation]:
    """``queueDepthPerAction``: an action evicts for at most this many groups of each leaf queue, and allocate
    serves at most as many. When it gives out what is left over, as the last action, it serves as many once
    more."""
    policy, served = world.snapshot.policy, dict[tuple[ActionName, str], dict[GroupKey, None]]()
    places = (decision for key, decision in world.placed.items() if key in world.added)
    decisions = (*world.evictions.values(), *places)
    for decision in decisions if policy.queue_depth else ():
        own = () if decision.group is None or decision.action != "allocate" else (decision.group,)
        for key in own if decision.kind != "Evict" else decision.triggers:
            if key in world.snapshot.group_by_key:
                queue = world.snapshot.group_by_key[key].queue
                served.setdefault((decision.action, queue), {})[key] = None
    last = [action for action in policy.actions if action not in STATE_ACTIONS][-1:]
    for (action, queue), groups in served.items():
        depth = policy.queue_depth.get(action, len(groups))
        most = depth * 2 if [action] == last == ["allocate"] else depth
        if len(groups) > most:
            words = f"{action} serves {len(groups)} pod groups of queue {queue}, which has a depth of {depth}"
            yield Violation("victims", words, groups=tuple(groups)[most:])


def _consolidated(world: PlannedCluster) -> Iterator[Violation]:
    """The limit holds for each trigger; a group that moves for several triggers counts for one of them."""
    policy = world.snapshot.policy
    most = 0 if policy.spreads else policy.max_consolidation_preemptees
    if most == UNLIMITED:
        return
    alone: dict[GroupKey, set[GroupKey | None]] = {}
    moved: set[GroupKey | None] = set()
    for decision in world.evictions.values():
        if decision.action == "consolidation":
            moved.add(world.pod(decision.pod).group)
            for trigger in decision.triggers:
                alone.setdefault(trigger, set())
            if len(decision.triggers) == 1:
                alone[decision.triggers[0]].add(world.pod(decision.pod).group)
    for trigger, groups in alone.items():
        if len(groups) > most:
            what = f"consolidation moves {len(groups)} pod groups for {trigger}"
            yield Violation("victims", f"{what}, at most {most} are allowed", groups=(trigger,))
    if len(moved) > most * len(alone):
        what = f"consolidation moves {len(moved)} pod groups for {len(alone)} triggers"
        yield Violation("victims", f"{what}, at most {most} for each are allowed", groups=tuple(alone))
