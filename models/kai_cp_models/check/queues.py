"""Queues: limits, and quotas of non-preemptible work, at the queue and all queues above it (3.7).

This is tested for every resource that the plan adds to a queue. What the queue holds in the end stays within
its limit; what its non-preemptible pod groups hold stays within its quota. Binds must keep the bounds while
the victims are still there. A queue that was over its bound before gets nothing, unless the plan frees more
there. Rollouts may exceed a quota by what their old pods give back (3.8): other pods fit by the plain sum,
and all pods together fit once what is given back is subtracted. Only leaf queues run pod groups (4.1).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kai_cp_models.check import amounts
from kai_cp_models.check.planned_cluster import PlannedCluster
from kai_cp_models.check.rollouts import Rollouts
from kai_cp_models.check.snapshot_facts import HeldByQueue
from kai_cp_models.extras import CLAIM_MILLI_GPUS
from kai_cp_models.pods import ACTIVE_ALLOCATED, MILLI, UNLIMITED, GpuKind, Pod, PodKey
from kai_cp_models.snapshot import PodGroup, Shares

_SCALE = (1, 1, MILLI)
"""Shares count GPUs in devices, amounts in thousandths."""
_NOISE = 1e-6
_Sums = tuple[HeldByQueue, HeldByQueue]
"""What queues hold: in all, and by non-preemptible pod groups."""


def broken(world: PlannedCluster) -> Iterator[str]:
    """Queues that get more than they may have."""
    yield from _homeless(world)
    bound = held(world, map(world.pod, world.binds))
    added = bound if world.binds.keys() == world.added else held(world, map(world.pod, world.added))
    moved = held(world, map(world.pod, world.moved))
    active = (pod for pod in map(world.pod, world.evictions) if pod.status in ACTIVE_ALLOCATED)
    gone = held(world, active, moved=False)
    rollouts = Rollouts(world)
    yield from _over(world, rollouts, world.binds, bound, (), now=True)
    yield from _over(world, rollouts, world.added, added, ((moved, 1), (gone, -1)), now=False)


def _homeless(world: PlannedCluster) -> Iterator[str]:
    for group in world.touched_groups:
        if not any(p.key in world.added for p in world.snapshot.members[group.key]):
            continue
        if group.queue not in world.snapshot.queue_by_name:
            yield f"queues: pod group {group.key} gets a place, but its queue {group.queue!r} does not exist"
        elif group.queue not in world.snapshot.leaf_queues:
            yield f"queues: pod group {group.key} gets a place, but its queue {group.queue} is not a leaf"


def held(world: PlannedCluster, pods: Iterable[Pod], *, moved: bool = True) -> _Sums:
    """What queues and their ancestors hold through ``pods``: in all, and by non-preemptible pod groups.

    ``moved``: charge evicted pods that move at their new node, otherwise at the old one.
    """
    total, firm = HeldByQueue(), HeldByQueue()
    _charge(world, (total, firm), pods, 1, moved=moved)
    return total, firm


def sums(world: PlannedCluster, arriving: Iterable[Pod], leaving: Iterable[Pod] = ()) -> _Sums:
    """What queues hold with ``arriving`` at their new places and ``leaving`` gone from their old ones."""
    total, firm = world.start.held
    sums = HeldByQueue(total), HeldByQueue(firm)
    _charge(world, sums, arriving, 1, moved=True)
    _charge(world, sums, leaving, -1, moved=False)
    return sums


def _charge(
    world: PlannedCluster,
    sums: _Sums,
    pods: Iterable[Pod],
    times: int,
    *,
    moved: bool,
) -> None:
    """Charge pods with a factor; pods that cost the same in the same queue are counted first."""
    alike: dict[tuple[object, ...], int] = {}
    examples: list[tuple[PodGroup, Pod, str]] = []
    claimed = world.snapshot.extras[CLAIM_MILLI_GPUS]
    for pod in pods:
        group = world.group_of(pod)
        if group is None or group.queue not in world.snapshot.queue_path:
            continue
        decision = world.placed.get(pod.key)
        node = decision.node if decision is not None and (moved or pod.node is None) else pod.node
        if node is None:
            continue
        where = node if pod.spec.gpu.kind is GpuKind.MEMORY else None
        claim = pod.key if claimed and pod.key in claimed else None
        kind = (group.queue, group.preemptible, pod.spec, where, claim)
        count = alike.get(kind, 0)
        if not count:
            examples.append((group, pod, node))
        alike[kind] = count + 1
    total, firm = sums
    for (group, pod, node), count in zip(examples, alike.values(), strict=True):
        cost = amounts.charge(world.snapshot, pod, world.node(node))
        for queue in world.snapshot.queue_path[group.queue]:
            total.add(queue, cost, times * count)
            if not group.preemptible:
                firm.add(queue, cost, times * count)


def _over(
    world: PlannedCluster,
    rollouts: Rollouts,
    keys: Iterable[PodKey],
    more: _Sums,
    changes: Iterable[tuple[_Sums, int]],
    *,
    now: bool,
) -> Iterator[str]:
    """``more``: what the pods with these keys hold. ``changes``: what else comes (1) or goes (-1)."""
    total, firm = map(HeldByQueue, world.start.held)
    for (change, firm_change), times in ((more, 1), *changes):
        total.add_all(change, times)
        firm.add_all(firm_change, times)
    when = "now" if now else "in the end"
    borrowed = held(world, rollouts.borrowing(map(world.pod, keys)))[1]
    yield from _beyond(world, total, more[0], when, firm=False)
    yield from _beyond(world, _without(firm, borrowed), _without(more[1], borrowed), when, firm=True)
    if borrowed:
        given_back = rollouts.given_back(world.places(now=now))
        yield from _beyond(world, _without(firm, given_back), borrowed, when, firm=True)


def _without(held: HeldByQueue, taken: HeldByQueue) -> HeldByQueue:
    left = HeldByQueue(held)
    left.add_all(taken, -1)
    return left


def _beyond(
    world: PlannedCluster, total: HeldByQueue, more: HeldByQueue, when: str, *, firm: bool
) -> Iterator[str]:
    """Queues that would hold more than their limit, or ``firm``: their quota, in a resource they get."""
    for name in sorted(more):
        queue = world.snapshot.queue_by_name[name]
        bounds: Shares = queue.firm_quota if firm else queue.limit
        for i, bound in enumerate(bounds):
            most = bound * _SCALE[i]
            if more[name][i] and bound != UNLIMITED and total[name][i] > most + _NOISE:
                what = "quota, used by non-preemptible pods" if firm else "limit"
                yield (
                    f"queues: queue {name} would hold {amounts.number(i, total[name][i])} of"
                    f" {amounts.in_words(i, most)} ({what}) {when},"
                    f" {amounts.number(i, more[name][i])} new"
                )
