"""Queues: limits, and quotas of non-preemptible work, at the queue and all queues above it (3.7).

This is tested for every resource that the plan adds to a queue. What the queue holds in the end stays within
its limit; what its non-preemptible pod groups hold stays within its quota. Binds must keep the bounds while
victims and terminating pods are still there; a pod that is stuck in termination counts as running.
Nominations of allocate keep the bounds while everything that later actions evict is still there (as in
``capacity``). A queue that was over its bound before gets nothing, unless the plan frees more there; and a
pod moves only where it could start again. Rollouts may exceed a quota by what their old pods give back (3.8):
other pods fit by the plain sum, and all pods together fit once what is given back is subtracted. Only leaf
queues run pod groups (4.1).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from kai_cp_models.check import amounts
from kai_cp_models.check.planned_cluster import PlannedCluster, Violation
from kai_cp_models.check.rollouts import Rollouts
from kai_cp_models.check.snapshot_facts import HeldByQueue, HeldByQueues
from kai_cp_models.pods import MILLI, UNLIMITED, Pod, PodKey
from kai_cp_models.snapshot import Shares

_SCALE = (1, 1, MILLI)
"""Shares count GPUs in devices, amounts in thousandths."""
_NOISE = 1e-6


def broken(world: PlannedCluster) -> Iterator[Violation]:
    """Queues that get more than they may have."""
    yield from _homeless(world)
    parts = world.added_held.items()
    added = sums(world, *(part for _, part in parts))
    bound = sums(world, *(part for (kind, _), part in parts if kind == "Bind"))
    moved = held(world, map(world.pod, world.moved))
    gone = held(world, map(world.pod, world.evictions), moved=False)
    rollouts = Rollouts(world)
    yield from _over(world, rollouts, world.binds, bound, (), when="now")
    yield from _over(world, rollouts, world.added, added, ((moved, 1), (gone, -1)), when="in the end")
    if world.evicted_later:
        early = sums(world, *(part for (_, action), part in parts if not world.earlier("allocate", action)))
        gone = held(world, map(world.pod, world.evictions.keys() - world.evicted_later), moved=False)
        keys = (key for key in world.added if not world.earlier("allocate", world.placed[key].action))
        yield from _over(world, rollouts, keys, early, ((gone, -1),), when="after allocate")


def _homeless(world: PlannedCluster) -> Iterator[Violation]:
    for group in world.touched_groups:
        leaf = group.queue in world.snapshot.leaf_queues
        if leaf or not any(p.key in world.added for p in world.placed_of(group)):
            continue
        if group.queue not in world.snapshot.queue_by_name:
            yield Violation(
                "queues",
                f"pod group {group.key} gets a place, but its queue {group.queue!r} does not exist",
                groups=(group.key,),
            )
        else:
            yield Violation(
                "queues",
                f"pod group {group.key} gets a place, but its queue {group.queue} is not a leaf",
                groups=(group.key,),
            )


def held(world: PlannedCluster, pods: Iterable[Pod], *, moved: bool = True) -> HeldByQueues:
    """What queues and their ancestors hold through ``pods``: in all, and by non-preemptible pod groups.

    ``moved``: charge evicted pods that move at their new node, otherwise at the old one.
    """
    return world.start.held_by(_places(world, pods, moved))


def sums(
    world: PlannedCluster, *parts: HeldByQueues, arriving: Iterable[Pod] = (), leaving: Iterable[Pod] = ()
) -> HeldByQueues:
    """All parts together, with ``arriving`` at their new places and ``leaving`` gone from their old ones."""
    total, firm = HeldByQueue(), HeldByQueue()
    for part, firm_part in parts:
        total.add_all(part)
        firm.add_all(firm_part)
    world.start.add_up((total, firm), _places(world, arriving, True))
    world.start.add_up((total, firm), _places(world, leaving, False), -1)
    return total, firm


def _places(world: PlannedCluster, pods: Iterable[Pod], moved: bool) -> Iterator[tuple[Pod, str]]:
    placed = world.placed
    for pod in pods:
        decision = placed.get(pod.key) if moved or pod.node is None else None
        node = pod.node if decision is None else decision.node
        if node is not None:
            yield pod, node


def _over(
    world: PlannedCluster,
    rollouts: Rollouts,
    keys: Iterable[PodKey],
    more: HeldByQueues,
    changes: Sequence[tuple[HeldByQueues, int]],
    *,
    when: str,
) -> Iterator[Violation]:
    """``more``: what the pods with these keys hold. ``changes``: what else comes (1) or goes (-1)."""
    now = when == "now"
    total, firm = map(HeldByQueue, world.start.held)
    for (change, firm_change), times in ((more, 1), *changes):
        total.add_all(change, times)
        firm.add_all(firm_change, times)
    there = HeldByQueue(total), HeldByQueue(firm)
    releasing, stuck = world.start.terminating
    for gone in (releasing, stuck) if now else (stuck,):
        there[0].add_all(gone[0])
        there[1].add_all(gone[1])
    borrowed = held(world, rollouts.borrowing(map(world.pod, keys)))[1]
    for comes in (more, *(change for change, times in changes if times > 0)):
        yield from _beyond(world, there[0], comes[0], when, firm=False)
    yield from _beyond(world, _without(there[1], borrowed), _without(more[1], borrowed), when, firm=True)
    if borrowed:
        given_back = rollouts.given_back(world.places(now=now))
        yield from _beyond(world, _without(firm, given_back), borrowed, when, firm=True)


def _without(held: HeldByQueue, taken: HeldByQueue) -> HeldByQueue:
    left = HeldByQueue(held)
    left.add_all(taken, -1)
    return left


def _beyond(
    world: PlannedCluster, total: HeldByQueue, more: HeldByQueue, when: str, *, firm: bool
) -> Iterator[Violation]:
    """Queues that would hold more than their limit, or ``firm``: their quota, in a resource they get."""
    for name in sorted(more):
        queue = world.snapshot.queue_by_name[name]
        bounds: Shares = queue.firm_quota if firm else queue.limit
        for i, bound in enumerate(bounds):
            most = bound * _SCALE[i]
            if more[name][i] and bound != UNLIMITED and total[name][i] > most + _NOISE:
                what = "quota, used by non-preemptible pods" if firm else "limit"
                yield Violation(
                    "queues",
                    f"queue {name} would hold {amounts.number(i, total[name][i])} of"
                    f" {amounts.in_words(i, most)} ({what}) {when},"
                    f" {amounts.number(i, more[name][i])} new",
                    queue=name,
                )
