"""Capacity: a node holds what its pods ask for, in every dimension it advertises (2.1, 2.6).

A bind must fit beside all pods that are there at this instant, releasing and evicted ones included. Binds and
nominations must fit after all releases. A pod that is stuck in releasing never frees what it holds. A
dimension that a node does not advertise is never charged, and no pod that asks for it is placed there. A node
that is over its capacity takes no pod, whatever the pod asks for (2.1); neither does a node without GPUs on
which GPUs are shared (2.6). Reservation pods are charged for everything except the GPU; their GPU group is
charged for it. A new GPU group brings a reservation pod and costs one more pod slot. Nominations of allocate
must fit even while everything that later actions evict or move is still there. This does not hold where an
evicting action comes before allocate, because a pod that was moved away may be home again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from operator import add

import numpy as np

from kai_cp_models.check import amounts
from kai_cp_models.check.planned_cluster import PlannedCluster, Resident, Violation
from kai_cp_models.pods import CPU, GPU, MEMORY, MILLI, PODS
from kai_cp_models.policy import ActionName
from kai_cp_models.snapshot import Node


def broken(world: PlannedCluster) -> Iterator[Violation]:
    """Nodes that would hold more than they have."""
    suspects = _suspects(world)
    at_once = set(world.bound_nodes)
    full: set[str] = set()
    for name in filter(suspects.__contains__, world.bound_nodes):
        faults = list(_over(world, world.node(name), world.now(name), "now"))
        full.update((name,) if faults else ())
        yield from faults
    for name in filter(suspects.__contains__, world.target_nodes):
        # Without nominations a node holds no more in the end than now.
        promised = any(r.pod.key in world.nominations for r in world.arriving(name))
        if promised or name in full or name not in at_once:
            yield from _over(world, world.node(name), world.end(name), "in the end")
    yield from _evicted_for(world)


def _evicted_for(world: PlannedCluster) -> Iterator[Violation]:
    """Nodes on which nominations of allocate need what later actions evict."""
    gone = world.evicted_later
    nominated = (d for d in world.nominations.values() if not world.earlier("allocate", d.action))
    for name in sorted({d.node for d in nominated} & {world.pod(key).node for key in gone}):
        still = (r for r in world.before(name) if r.pod.key in gone)
        come = (r for r in world.arriving(name) if not world.earlier("allocate", _by(world, r)))
        yield from _over(world, world.node(name), (*world.staying(name), *still, *come), "after allocate")


def _by(world: PlannedCluster, arriving: Resident) -> ActionName:
    return world.placed[arriving.pod.key].action


def _suspects(world: PlannedCluster) -> frozenset[str]:
    """Nodes whose pods take more than there is, summed up for all nodes at once."""
    facts, evicted, placed = world.start, world.evictions, world.placed
    bound, promised = (
        facts.requests([(pod, d.node) for pod, d in world.arrivals if (d.kind == "Bind") is now], new=True)
        for now in (True, False)
    )
    gone = facts.requests((pod, pod.node) for pod in map(world.pod, evicted) if pod.node is not None)
    now = facts.requested + bound
    end = now - facts.releasing - gone + promised
    before, members = facts.devices
    left = {(pod.node or "", group) for pod in map(world.pod, evicted) for group in pod.gpu_groups}
    staying = members.keys() - {device for device in left if members.get(device, set()) <= evicted.keys()}
    for taken, groups, decisions in ((now, before, world.binds), (end, staying, placed)):
        arriving = {(d.node, group) for d in decisions.values() for group in d.gpu_groups}
        for dimension, amount, devices in ((GPU, MILLI, groups | arriving), (PODS, 1, arriving - before)):
            at = [i for name, _ in devices if (i := world.snapshot.node_index.get(name)) is not None]
            taken[:, dimension] += amount * np.bincount(at, minlength=len(taken))
    room = facts.allocatable
    over = np.flatnonzero(((now > room) | (end > room)).any(axis=1)).tolist()
    return frozenset(world.snapshot.nodes[i].name for i in over)


def used(world: PlannedCluster, node: Node, residents: Iterable[Resident]) -> list[int]:
    """What pods take of a node, aligned with the dimensions."""
    total = [0] * len(world.snapshot.dimensions)
    shared: set[str] = set()
    known = {group for r in world.before(node.name) for group in r.gpu_groups}
    for resident in residents:
        pod = resident.pod
        requests = pod.spec.requests
        total = list(map(add, total, requests))
        if requests[GPU] and (pod.spec.gpu.shares or pod.key in world.start.stand_ins):
            total[GPU] -= requests[GPU]
        shared.update(resident.gpu_groups)
    total[GPU] += MILLI * len(shared)
    if len(total) > PODS:
        total[PODS] += len(shared - known)
    return total


def fits(world: PlannedCluster, name: str, residents: Iterable[Resident]) -> bool:
    """Whether a node has enough of everything for all these."""
    node = world.node(name)
    taken = used(world, node, residents)
    return all(amount <= max(has, 0) for amount, has in zip(taken, node.allocatable, strict=True))


def _over(
    world: PlannedCluster, node: Node, residents: tuple[Resident, ...], when: str
) -> Iterator[Violation]:
    total = used(world, node, residents)
    devices = MILLI * len({group for resident in residents for group in resident.gpu_groups})
    newest = ", ".join(sorted(str(r.pod.key) for r in residents if r.placed)[:3])
    for i, (amount, room) in enumerate(zip(total, node.allocatable, strict=True)):
        dimension = world.snapshot.dimensions[i]
        # What a node does not advertise is not charged, but for devices that are shared on it.
        amount = amount if room > 0 else devices if i == GPU else 0
        if max(room, 0) < amount:
            numbers = numbers_of(i, amount, room, dimension)
            yield Violation(
                "capacity",
                f"node {node.name} would hold {numbers} {when} (placed there: {newest})",
                node=node.name,
            )
        if room <= 0:
            for resident in residents:
                if resident.placed and _asks(resident, i):
                    yield Violation(
                        "capacity",
                        f"pod {resident.pod.key} asks for {dimension}, node {node.name} has none",
                        pods=(resident.pod.key,),
                    )


def _asks(resident: Resident, dimension: int) -> bool:
    return resident.pod.spec.requests[dimension] > 0 or (dimension == GPU and bool(resident.gpu_groups))


def numbers_of(index: int, amount: int, room: int, dimension: str) -> str:
    """What is taken and what there is of a dimension, in words."""
    if index in (CPU, MEMORY, GPU):
        return f"{amounts.number(index, amount)} of {amounts.in_words(index, room)}"
    return f"{amount} of {room} {dimension}"
