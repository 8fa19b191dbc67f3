"""Starts in the future: a reservation has its capacity at its time, and no eviction for it lacks a right.

When a reservation starts, its nodes hold it beside everything that is there by then: pods that still run
(until the known end of their group), pods of this plan that have not ended, and all other reservations. A
reservation holds no more than its gang, on usable nodes, in one domain of a required level, and does not
start in the past. It moves later only with a cause, and it never grows.

``reservation`` evicts for a group that gets its place in this plan: preemptible pods that started on its
stored nodes after it was made, with what cannot run without them, once its start has come; or any pod group
of lower priority, where its queue is a hero queue and the price that it accepted covers what they lose.
``maxruntime`` ends whole pod groups whose enforced maximum is over, which get no places again until their
delay has passed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from operator import add
from typing import Final

from kai_cp_models.check import tree
from kai_cp_models.check.capacity import numbers_of, used
from kai_cp_models.check.planned_cluster import PlannedCluster, Violation
from kai_cp_models.plan import Decision, Reservation
from kai_cp_models.pods import ACTIVE_ALLOCATED, GPU, MILLI, PODS, GroupKey, Pod, PodKey
from kai_cp_models.records.notes import Stored
from kai_cp_models.reservations.times import NEVER, TIMES, Times
from kai_cp_models.snapshot import PodGroup

HOLDING: Final = ("made", "kept", "earlier", "later")
"""States of a hold with a start."""
_SECOND = 1.0
_HOUR = 3600.0


def broken(world: PlannedCluster) -> Iterator[Violation]:
    """Reservations without capacity, and evictions by time without a right."""
    times, entries = world.snapshot.extras[TIMES], world.plan.reservations or ()
    reserving = times is not None and times.settings.reservations.enabled
    ending = times is not None and times.settings.max_runtime.enforce
    for one in world.plan.decisions:
        if (one.action == "reservation" and not reserving) or (one.action == "maxruntime" and not ending):
            words = f"{one.kind} of pod {one.pod} by {one.action}, which no setting switches on"
            yield Violation("starts", words, pods=(one.pod,))
    if entries and not reserving:
        words = f"{len(entries)} reservations, which no setting switches on"
        yield Violation("starts", words, groups=tuple(entry.group for entry in entries))
    if times is None:
        return
    for group, count in Counter(entry.group for entry in entries).items():
        if count > 1:
            yield Violation("starts", f"pod group {group} has {count} reservations", groups=(group,))
    holds = {e.group: e for e in entries if e.state in HOLDING and e.group in world.snapshot.group_by_key}
    for entry in entries:
        if entry.state in HOLDING:
            yield from _form(world, times, entry)
            yield from _room(world, times, entry, holds)
        elif entry.state == "draining":
            yield from _nodes(world, entry)
            yield from _closed(world, times, entry)
        elif entry.state == "started":
            yield from _begun(world, times, entry.group)
    yield from _again(world, times)
    yield from _unheld(world, times)
    for key, decision in world.evictions.items():
        if decision.action == "reservation":
            yield from _evicted(world, times, world.pod(key), decision)
        elif decision.action == "maxruntime":
            yield from _ended(world, times, world.pod(key))


def _unheld(world: PlannedCluster, times: Times) -> Iterator[Violation]:
    """Places by reservation for groups that hold none."""
    for key, place in world.placed.items():
        if place.action == "reservation" and not _may_start(world, times, place.group):
            words = f"pod {key} gets a place by reservation, and its pod group holds none"
            yield Violation("starts", words, pods=(key,))


def _again(world: PlannedCluster, times: Times) -> Iterator[Violation]:
    """A group that its maximum run time ended gets no place before its delay has passed."""
    for group in world.touched_groups:
        left = times.requeue_delay_left(group)
        if left > 0 and any(pod.key in world.added for pod in world.placed_of(group)):
            words = f"{group.key} gets a place; its maximum ended it, it may start again in {left:.0f} s"
            yield Violation("starts", words, groups=(group.key,))


def _form(world: PlannedCluster, times: Times, entry: Reservation) -> Iterator[Violation]:
    what = f"the reservation of {entry.group}"
    group = world.snapshot.group_by_key.get(entry.group)
    if group is None or entry.start is None or not entry.start < NEVER:
        yield Violation("starts", f"{what} is of no pod group, or has no start", groups=(entry.group,))
        return
    if entry.start < times.now:
        yield Violation("starts", f"{what} starts in the past", groups=(entry.group,))
    yield from _nodes(world, entry)
    stored = times.stored(entry.group)
    if stored is not None and not entry.cause and max(stored.start, times.now) < entry.start:
        yield Violation("starts", f"{what} moves later without a cause", groups=(entry.group,))


def _begun(world: PlannedCluster, times: Times, key: GroupKey) -> Iterator[Violation]:
    """Only a group whose start was promised or bought counts as started; it may stay for its run time."""
    group = world.snapshot.group_by_key.get(key)
    if group is None or not world.placed_of(group):
        yield Violation("starts", f"{key} is said to have started, but gets no place", groups=(key,))
    elif not _may_start(world, times, key):
        yield Violation("starts", f"{key} is said to have started, but has no right to places", groups=(key,))


def _may_start(world: PlannedCluster, times: Times, key: GroupKey | None) -> bool:
    """Whether the group was promised a start, has places closed for it, or has accepted a price."""
    group = world.snapshot.group_by_key.get(key) if key is not None else None
    if key is None or group is None:
        return False
    return times.due(key) is not None or (times.notes(key).price is not None and times.hero(group))


def _nodes(world: PlannedCluster, entry: Reservation) -> Iterator[Violation]:
    """A reservation holds no more than the gang, on usable nodes, in one domain."""
    what = f"the reservation of {entry.group}"
    group = world.snapshot.group_by_key.get(entry.group)
    if group is None:
        yield Violation("starts", f"{what} is of no pod group", groups=(entry.group,))
        return
    waiting = [pod for pod in world.snapshot.members[entry.group] if pod.key not in world.placed]
    without_gpus = any(not pod.spec.requests[GPU] for pod in waiting)
    held = sum(_milli(gpus) for gpus in entry.nodes.values())
    if held > sum(pod.spec.requests[GPU] for pod in waiting):
        yield Violation(
            "starts", f"{what} holds {held / MILLI:g} GPUs, more than its pods ask for", groups=(entry.group,)
        )
    for name, gpus in entry.nodes.items():
        i = world.snapshot.node_index.get(name)
        if i is None or world.snapshot.nodes[i].not_ready:
            yield Violation("starts", f"{what} holds node {name}, which takes no pods", groups=(entry.group,))
        if not 0 < gpus < NEVER and not (gpus == 0 and without_gpus):
            yield Violation("starts", f"{what} holds {gpus:g} GPUs of node {name}", groups=(entry.group,))
    constraint = group.root.constraint
    topology = world.snapshot.policy.plugin("topology")
    if topology and constraint is not None and constraint.required and not constraint.error:
        level = constraint.required
        nodes = [world.node(name) for name in entry.nodes if name in world.snapshot.node_index]
        if len({node.labels.get(level) for node in nodes}) > 1:
            yield Violation("starts", f"{what} spans several domains of {level}", groups=(entry.group,))


def _milli(gpus: float) -> int:
    """Held milli-GPUs; 0 where it is not a number of GPUs, which ``_nodes`` says."""
    return round(gpus * MILLI) if 0 < gpus < NEVER else 0


def _closed(world: PlannedCluster, times: Times, entry: Reservation) -> Iterator[Violation]:
    """Places that were closed before this cycle take only new pods that can be evicted at any time."""
    closed = times.notes(entry.group).closed
    for name, gpus in sorted(entry.nodes.items()):
        if closed is None or name not in closed.nodes or name not in world.snapshot.node_index:
            continue
        firm = [r for r in world.arriving(name) if (g := world.group_of(r.pod)) is None or not g.preemptible]
        if not any(resident.pod.spec.requests[GPU] for resident in firm):
            continue
        node = world.node(name)
        taken = used(world, node, (*world.staying(name), *firm))[GPU] + _milli(gpus)
        if taken > node.allocatable[GPU]:
            words = f"node {name} is closed for {entry.group}, and takes pods that cannot be preempted"
            yield Violation("starts", words, pods=tuple(resident.pod.key for resident in firm))


def _room(
    world: PlannedCluster, times: Times, entry: Reservation, holds: Mapping[GroupKey, Reservation]
) -> Iterator[Violation]:
    start = entry.start
    if start is None:
        return
    gone = leaving(world, times, holds, start)
    others = [one for one in holds.values() if one.group != entry.group and _runs(world, times, one, start)]
    asked = {one.group: _asked(world, one.group) for one in (entry, *others)}
    for name in sorted(entry.nodes):
        if name not in world.snapshot.node_index:
            continue
        node = world.node(name)
        there = (
            resident
            for resident in (*world.staying(name), *world.arriving(name))
            if until(world, times, resident.pod, gone, start) > start
        )
        taken, mine = used(world, node, there), _amounts(entry, name, asked[entry.group])
        for amounts in (
            mine,
            *(_amounts(one, name, asked[one.group]) for one in others if name in one.nodes),
        ):
            taken = list(map(add, taken, amounts))
        for i, (amount, most) in enumerate(zip(taken, node.allocatable, strict=True)):
            if mine[i] and amount > most:
                numbers = numbers_of(i, amount, most, world.snapshot.dimensions[i])
                words = f"node {name} would hold {numbers} when {entry.group} starts"
                yield Violation("starts", words, groups=(entry.group,))


def _runs(world: PlannedCluster, times: Times, hold: Reservation, start: float) -> bool:
    """Whether a holder runs at an instant."""
    expected = times.expected(world.snapshot.group_by_key[hold.group])
    begins = hold.start if hold.start is not None else NEVER
    return begins <= start and (expected is None or start < begins + expected)


def _asked(world: PlannedCluster, key: GroupKey) -> list[int]:
    """What each waiting pod of a group asks for; where the pods are not alike, a single milli-GPU.

    Pod slots are left out: it is not known which pods share GPUs by then.
    """
    members = world.snapshot.members[key] if key in world.snapshot.group_by_key else ()
    alike = {pod.spec.requests for pod in members if pod.key not in world.placed}
    if len(alike) == 1 and (found := list(*alike))[GPU]:
        found[PODS] = 0
        return found
    found = [0] * len(world.snapshot.dimensions)
    found[GPU] = 1
    return found


def _amounts(entry: Reservation, name: str, asked: Sequence[int]) -> list[int]:
    """What a hold takes of a node, where each of its pods asks for the same."""
    milli = _milli(entry.nodes.get(name, 0.0))
    found = [amount * (milli // asked[GPU]) for amount in asked]
    found[GPU] = milli
    return found


def leaving(
    world: PlannedCluster, times: Times, holds: Mapping[GroupKey, Reservation], start: float
) -> frozenset[PodKey]:
    """Pods that are evicted at some start up to ``start``: backfill, and victims of accepted prices."""
    found: set[PodKey] = set()
    for entry in holds.values():
        if entry.start is None or entry.start > start:
            continue
        if times.notes(entry.group).price is not None:
            bought = (world.snapshot.members.get(key, ()) for key in entry.victims)
            found.update(pod.key for pods in bought for pod in pods)
        if (stored := times.stored(entry.group)) is None:
            continue
        holder = world.snapshot.group_by_key[entry.group]
        for key in dict.fromkeys(pod.group for pod in world.snapshot.pods if pod.node in stored.nodes):
            if key is not None and (group := world.snapshot.group_by_key.get(key)) is not None:
                found |= _backfill(world, times, group, holder, stored)
    return frozenset(found)


def _backfill(
    world: PlannedCluster, times: Times, group: PodGroup, holder: PodGroup, stored: Stored
) -> set[PodKey]:
    """Pods of a group that leave for a holder: those that came later, surplus pods on its nodes after them in
    task order, and the whole group if it loses its minimum (12.5, 5.4)."""
    found: set[PodKey] = set()
    minimum = {leaf.name: leaf.minimum for leaf in group.root.leaves()}
    nested = len(minimum) > 1
    seen, late = Counter[str](), set[str]()
    for pod in world.active_before(group.key):
        name = tree.leaf_name(pod)
        seen[name] += 1
        if _by_backfill(times, pod, group, holder, stored):
            if nested or seen[name] <= minimum.get(name, 0):
                return {one.key for one in world.active_before(group.key)}
            late.add(name)
        if name in late and pod.node in stored.nodes:
            found.add(pod.key)
    return found


def _by_backfill(times: Times, pod: Pod, group: PodGroup, holder: PodGroup, stored: Stored) -> bool:
    """Whether the pod came to the holder's places later, without a right to them (12.5, 12.8)."""
    return (
        pod.status in ACTIVE_ALLOCATED
        and pod.node in stored.nodes
        and group.preemptible
        and group.key not in stored.beside
        and times.entered(group, [pod]) >= stored.made
        and not (group.queue == holder.queue and group.priority > holder.priority + holder.aged)
    )


def until(world: PlannedCluster, times: Times, pod: Pod, gone: Collection[PodKey], start: float) -> float:
    """When a pod that is on a node in the end leaves it. ``gone``: pods that are evicted at the start."""
    group = world.group_of(pod)
    if group is None:
        return NEVER
    if pod.key not in world.placed:
        return start if pod.key in gone else times.end(group.key)
    if _starts_by_reservation(world, pod.key):
        expected = times.expected(group)
        return NEVER if expected is None else times.now + expected
    if times.gives_way(group):
        return start
    return times.until(group) if group.preemptible or _limited(world, times, pod, group) else NEVER


def _limited(world: PlannedCluster, times: Times, pod: Pod, group: PodGroup) -> bool:
    """Whether something ends the pod for certain: its own deadline, or an enforced maximum of its group or
    queues."""
    queues = (world.snapshot.queue_by_name[name] for name in world.snapshot.queue_path.get(group.queue, ()))
    maxima = [group.notes.maximum, *(queue.notes.maximum for queue in queues)]
    enforced = times.settings.max_runtime.enforce and maxima != [None] * len(maxima)
    return enforced or pod.deadline_seconds is not None


def _starts_by_reservation(world: PlannedCluster, key: PodKey) -> bool:
    group = world.placed[key].group
    return any(e.group == group and e.state == "started" for e in world.plan.reservations or ())


def _evicted(world: PlannedCluster, times: Times, pod: Pod, decision: Decision) -> Iterator[Violation]:
    what, groups = f"pod {pod.key} is evicted by reservation", world.served((pod.key,))
    victim = world.group_of(pod)
    if victim is None or not victim.preemptible:
        yield Violation("starts", f"{what}, but it is not preemptible", groups=groups)
        return
    if len(decision.triggers) != 1:
        yield Violation("starts", f"{what} for {len(decision.triggers)} pod groups", groups=groups)
        return
    holder = world.snapshot.group_by_key.get(decision.triggers[0])
    if holder is None or not any(p.key in world.placed for p in world.snapshot.members[holder.key]):
        yield Violation("starts", f"{what} for {decision.triggers[0]}, which gets no place", groups=groups)
        return
    stored, price = times.due(holder.key), times.notes(holder.key).price
    due = stored if stored is not None and stored.start <= times.now else None
    if due is not None and pod.key in _backfill(world, times, victim, holder, due):
        if not any(world.arriving(p.node or "") for p in world.evicted_of(victim)):
            words = f"{what} for {holder.key}, and nothing gets a place where {victim.key} was"
            yield Violation("starts", words, groups=groups)
        return
    if not times.hero(holder) or price is None:
        yield Violation("starts", f"{what} for {holder.key}, which has no right to its places", groups=groups)
        return
    if victim.priority + victim.aged_at_start >= holder.priority:
        yield Violation("starts", f"{what} for {holder.key}, which has no higher priority", groups=groups)
    paid = [
        k for k, d in world.evictions.items() if d.action == "reservation" and d.triggers == decision.triggers
    ]
    when = times.now if stored is None else min(times.now, stored.start)
    cap, lost = times.settings.objective.lost_work_cap_seconds, 0.0
    for key in paid:
        group = world.group_of(world.pod(key))
        if group is not None:
            age = min(max(0.0, when - times.start(group)), cap)
            lost += world.pod(key).spec.requests[GPU] / MILLI * age / _HOUR
    if lost > price + _SECOND * len(paid) / _HOUR:
        yield Violation(
            "starts",
            f"{what}: {holder.key} accepted {price:g} GPU-hours, its victims lose {lost:.2f}",
            groups=groups,
        )


def _ended(world: PlannedCluster, times: Times, pod: Pod) -> Iterator[Violation]:
    what, groups = f"pod {pod.key} is evicted by maxruntime", world.served((pod.key,))
    group = world.group_of(pod)
    if group is None or not times.overdue(group):
        yield Violation("starts", f"{what}, but its time is not over", groups=groups)
        return
    left = [p for p in world.active_before(group.key) if p.key not in world.evictions]
    if left:
        yield Violation("starts", f"{what}, but {left[0].key} of its pod group stays", groups=groups)
