"""Holds: what a plan says of starts in the future is true, and what was promised is kept (12.1, 12.2, 12.5).

A holder wants a start and may have one, and none of its pods holds a place. It holds capacity for whole pods
of the gang, on nodes that accept them, and no less than the gang needs. Promises are reported as they were
made. A start that is late or dropped has one of the documented causes; if the input can show the cause, it
must show it. A group that the plan names beside the holder has a place there, and only an accepted price
makes others leave. With the hold, no queue is beyond its limit of GPUs at the start.

Not judged: whether a broken promise could have been kept; the order of starts; quotas and fair shares at
later instants; ports, affinity and budgets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from kai_cp_models.check import amounts, nodes, tree
from kai_cp_models.check.amounts import CheckedAmounts
from kai_cp_models.check.planned_cluster import PlannedCluster, Violation
from kai_cp_models.check.starts import HOLDING, leaving, until
from kai_cp_models.plan import Reservation
from kai_cp_models.pods import (
    ACTIVE_USED,
    GPU,
    MILLI,
    UNLIMITED,
    GpuKind,
    GroupKey,
    Pod,
    PodStatus,
)
from kai_cp_models.reservations.times import NEVER, TIMES, Times
from kai_cp_models.snapshot import PodGroup, Subgroup

_LATER: Final = ("NodeLost", "Overrun", "HigherPriority", "LimitLowered")
_CAUSES: Final[dict[str, tuple[str, ...]]] = {
    "later": _LATER,
    "dropped": (*_LATER, "OptedOut", "BeyondShare", "Expired", "NotTaken", "LeftOut"),
}
_NOISE: Final = 1e-6


def broken(world: PlannedCluster) -> Iterator[Violation]:
    """Holds that are not as the plan says, and promises that vanish."""
    times, entries = world.snapshot.extras[TIMES], world.plan.reservations
    if times is None or entries is None or not times.settings.reservations.enabled:
        return
    holding = [entry for entry in entries if entry.state in (*HOLDING, "draining")]
    if len(holding) > times.settings.reservations.most:
        words = (
            f"{len(holding)} pod groups hold capacity, no more than {times.settings.reservations.most} may"
        )
        yield Violation("holds", words, groups=(holding[-1].group,))
    for entry in entries:
        group = world.snapshot.group_by_key.get(entry.group)
        if group is None:
            continue
        faults = list(_told(world, times, entry, group))
        if entry in holding:
            faults += [*_wanted(world, times, entry, group), *_gang(world, entry, group)]
            faults += _bounded(world, times, entry, group) if entry.state in HOLDING else ()
        for fault in faults:
            yield Violation("holds", f"the reservation of {entry.group} {fault}", groups=(entry.group,))
    yield from _vanished(world, times, {entry.group: entry for entry in entries})


def _wanted(world: PlannedCluster, times: Times, entry: Reservation, group: PodGroup) -> Iterator[str]:
    """Whether the group may hold capacity."""
    settings, notes = times.settings.reservations, times.notes(group.key)
    members, waiting = world.snapshot.members[group.key], _waiting(world, group)
    known = tree.leaf_names(group)
    if not times.asks_for_reservation(group):
        yield "is of a group that asks for none"
    if any(pod.status in ACTIVE_USED and tree.leaf_name(pod) in known for pod in members):
        yield "is of a group that has places"
    kinds = [pod.spec.gpu for pod in waiting if not pod.spec.claims]
    if not any(gpu.kind is GpuKind.REGULAR for gpu in kinds):
        yield "is of pods that do not ask for whole GPUs alone"
    if sum(entry.nodes.values()) < settings.min_gpus:
        yield f"holds fewer than {settings.min_gpus} GPUs"
    if notes.expired is not None and world.snapshot.now < notes.expired + settings.max_overdue_seconds:
        yield "is made again too early: the last one was given up"
    stored = times.stored(group.key)
    if stored is not None and world.snapshot.now > stored.start + settings.max_overdue_seconds:
        yield "is overdue, and is not given up"


def _waiting(world: PlannedCluster, group: PodGroup) -> list[Pod]:
    return [pod for pod in world.snapshot.members[group.key] if pod.status is PodStatus.PENDING]


def _gang(world: PlannedCluster, entry: Reservation, group: PodGroup) -> Iterator[str]:
    """Whether the places are for whole pods, and for enough of them."""
    waiting = _waiting(world, group)
    sizes = Counter(pod.spec.requests[GPU] for pod in waiting)
    kinds = list({id(pod.spec): pod for pod in waiting}.values())
    held = {name: round(gpus * MILLI) for name, gpus in entry.nodes.items() if 0 <= gpus < NEVER}
    torn = {milli for milli in set(held.values()) if milli and not _whole(milli, sizes)}
    if not entry.nodes or sum(held.values()) < _least(group.root, waiting):
        yield f"holds {sum(held.values()) / MILLI:g} GPUs, less than its gang needs"
    for name, milli in held.items():
        if milli in torn:
            yield f"holds {milli / MILLI:g} GPUs of node {name}, which are not whole pods of it"
        there = (pod for pod in kinds if pod.spec.requests[GPU] <= milli)
        if name in world.snapshot.node_index and all(_refused(world, pod, name) for pod in there):
            yield f"holds node {name}, which accepts none of its pods"


def _least(subgroup: Subgroup, waiting: Sequence[Pod]) -> int:
    """Milli-GPUs that a gang needs at least to reach its minimum."""
    if subgroup.leaf:
        mine = (pod.spec.requests[GPU] for pod in waiting if tree.leaf_name(pod) == subgroup.name)
        return sum(sorted(mine)[: subgroup.minimum])
    return sum(sorted(_least(child, waiting) for child in subgroup.children)[: subgroup.minimum])


def _whole(milli: int, sizes: Counter[int]) -> bool:
    """Whether some of the pods together ask for exactly this number of milli-GPUs."""
    if len(sizes) == 1:
        return milli % max(1, *sizes) == 0
    sums = {0}
    for size, count in sizes.items():
        sums = {total + size * n for total in sums for n in range(count + 1) if total + size * n <= milli}
    return milli in sums


def _refused(world: PlannedCluster, pod: Pod, name: str) -> bool:
    known, alike = world.start.refusals, (id(pod.spec), name, None)
    if alike not in known:
        known[alike] = nodes.refusals(world.snapshot, pod, world.node(name))
    return bool(known[alike])


def _too_small(world: PlannedCluster, pod: Pod, name: str) -> bool:
    return any(a > b for a, b in zip(pod.spec.requests, world.node(name).allocatable, strict=True))


def _told(world: PlannedCluster, times: Times, entry: Reservation, group: PodGroup) -> Iterator[str]:
    """Whether the hold tells the truth about its state, promise, cause, and the groups beside it or paid
    for."""
    stored = times.stored(group.key)
    if entry.state in HOLDING and entry.start is not None:
        yield from _promised(world, times, entry, entry.start)
    if entry.state == "draining" and (entry.start is not None or not times.drains):
        yield "closes places, and has a start, or no setting lets it"
    if entry.state == "offered" and stored is not None and not times.runs(group):
        yield "is offered, and was promised"
    if entry.queue != group.queue:
        yield f"is told of queue {entry.queue}, its pod group is in {group.queue}"
    # That a later start has a cause at all is tested in ``starts``.
    causes = _CAUSES.get(entry.state, (None,)) if entry.state != "later" or entry.cause else ()
    if causes and entry.cause not in causes:
        yield f"is {entry.state}, and {entry.cause!r} is not a cause of that"
    elif causes and not _seen(world, times, entry, group):
        yield f"is {entry.state} because of {entry.cause}, of which nothing is to be seen"
    if entry.expired is not None and entry.cause != "Expired":
        yield "says when it was given up, and was not"
    if entry.state in ("dropped", "offered") and entry.nodes:
        yield f"is {entry.state}, and still holds nodes"
    yield from _others(world, times, entry, group)


def _others(world: PlannedCluster, times: Times, entry: Reservation, group: PodGroup) -> Iterator[str]:
    """Whether the groups beside it, and those that leave for it, are as the hold says."""
    before = times.due(group.key)
    for key in entry.beside:
        places = {world.node_after(p) for p in world.snapshot.members.get(key, ())} - {None}
        there = places if before is not None and key in before.beside else places & entry.nodes.keys()
        if key == group.key or not there:
            yield f"names {key} beside it, which has no places there"
    for key in entry.victims:
        victim = world.snapshot.group_by_key.get(key)
        if times.notes(group.key).price is None or not times.hero(group):
            yield f"lets {key} leave, for which no price was accepted"
        elif victim is None or not victim.preemptible or not victim.priority < group.priority:
            yield f"lets {key} leave, which it may not evict"


def _promised(world: PlannedCluster, times: Times, entry: Reservation, start: float) -> Iterator[str]:
    """Whether a hold says what became of the stored one."""
    stored, closed = times.stored(entry.group), times.notes(entry.group).closed
    since = world.snapshot.now if stored is None else stored.made
    change = 0.0 if stored is None else start - stored.start
    state = "made" if stored is None else "kept" if not change else "earlier" if change < 0 else "later"
    if entry.state != state:
        yield f"is said to be {entry.state}, it is {state}"
    if entry.promised != (start if stored is None else min(stored.promised, start)):
        yield "says nothing of what it promised, or something else"
    if entry.made != since and (closed is None or entry.made != closed.made):
        yield "was made at another time than it says"


def _seen(world: PlannedCluster, times: Times, entry: Reservation, group: PodGroup) -> bool:
    """Whether the snapshot, the settings or the plan show the cause; True where they cannot show it."""
    stored, settings = times.stored(group.key), times.settings.reservations
    if entry.cause == "HigherPriority":
        groups = world.snapshot.groups
        return any(_outranks(one, group) and any(world.active_after(one.key)) for one in groups)
    if entry.cause == "NodeLost" and stored is not None:
        waiting = {id(pod.spec): pod for pod in _waiting(world, group)}.values()
        return any(s.constraint is not None for s in tree.walk(group.root)) or any(
            name not in world.snapshot.node_index
            or any(_refused(world, pod, name) or _too_small(world, pod, name) for pod in waiting)
            for name in stored.nodes
        )
    if entry.cause == "BeyondShare":
        return settings.within == "fair_share"
    if entry.cause == "Expired" and stored is not None:
        return world.snapshot.now > stored.start + settings.max_overdue_seconds
    return True


def _outranks(one: PodGroup, holder: PodGroup) -> bool:
    """Whether a group could preempt the holder if it ran (12.8)."""
    return one.queue == holder.queue and one.priority > holder.priority + holder.aged


def _at_start(
    world: PlannedCluster, times: Times, entry: Reservation, group: PodGroup
) -> dict[str, CheckedAmounts]:
    """What the queues of a holder hold when it starts, with all holds at that time."""
    start, snapshot = entry.start or times.now, world.snapshot
    holds = {e.group: e for e in world.plan.reservations or () if e.state in HOLDING and e.start is not None}
    holds = {key: one for key, one in (holds | {entry.group: entry}).items() if key in snapshot.group_by_key}
    gone = leaving(world, times, holds, start)
    found = dict.fromkeys(snapshot.queue_path.get(group.queue, ()), (0, 0, 0))

    def add(queue: str, cost: CheckedAmounts) -> None:
        for name in found.keys() & set(snapshot.queue_path.get(queue, ())):
            found[name] = amounts.plus(found[name], cost)

    for owner in snapshot.groups:
        if not found.keys().isdisjoint(snapshot.queue_path.get(owner.queue, ())):
            for pod in world.active_after(owner.key):
                node = world.node_after(pod)
                if node in snapshot.node_index and until(world, times, pod, gone, start) > start:
                    add(owner.queue, world.start.charge(pod, node or ""))
    for key, one in holds.items():
        holder = snapshot.group_by_key[key]
        lasts = times.expected(holder)
        if one.start is not None and one.start <= start and (lasts is None or start < one.start + lasts):
            add(holder.queue, _of_gang(one))
    return found


def _of_gang(entry: Reservation) -> CheckedAmounts:
    """What a hold counts in its queues at least: its GPUs."""
    return 0, 0, sum(round(gpus * MILLI) for gpus in entry.nodes.values() if 0 <= gpus < NEVER)


def _bounded(world: PlannedCluster, times: Times, entry: Reservation, group: PodGroup) -> Iterator[str]:
    """Whether the limits of its queues hold at the start."""
    path = [world.snapshot.queue_by_name[name] for name in world.snapshot.queue_path.get(group.queue, ())]
    bounds = {queue.name: queue.limit.gpu for queue in path if queue.limit.gpu != UNLIMITED}
    held = _at_start(world, times, entry, group) if bounds else {}
    for name, most in bounds.items():
        if held[name][GPU] > most * MILLI + _NOISE:
            gpus = f"{held[name][GPU] / MILLI:g} of {most:g} GPUs"
            yield f"lets queue {name} hold {gpus} at the start"


def _vanished(world: PlannedCluster, times: Times, told: dict[GroupKey, Reservation]) -> Iterator[Violation]:
    """Promises that the plan does not mention."""
    # Actions before allocate report no holds; neither does a cycle in which allocate failed.
    allocated = any(decision.action in ("allocate", "reservation") for decision in world.plan.decisions)
    for group in world.snapshot.groups:
        stored, entry = times.stored(group.key), told.get(group.key)
        if stored is None or times.runs(group) or world.placed_of(group):
            continue
        if entry is None and allocated:
            words = f"the plan says nothing of the start that {group.key} was promised"
            yield Violation("holds", words, groups=(group.key,))
