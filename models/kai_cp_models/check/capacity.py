"""Capacity: a node holds what its pods ask for, in every dimension it advertises (2.1, 2.6).

A bind must fit beside all pods that are there at this instant, releasing and evicted ones included. Binds and
nominations must fit after all releases. A pod that is stuck in releasing never frees what it holds. A
dimension that a node does not advertise is never charged, and no pod that asks for it is placed there. A node
that is over its capacity takes no pod, whatever the pod asks for (2.1). Reservation pods are charged for
everything except the GPU; their GPU group is charged for it. A new GPU group brings a reservation pod and
costs one more pod slot.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from operator import add

import numpy as np

from kai_cp_models.check import amounts
from kai_cp_models.check.planned_cluster import PlannedCluster, Resident
from kai_cp_models.pods import CPU, GPU, MEMORY, MILLI, PODS, Pod
from kai_cp_models.snapshot import Node


def broken(world: PlannedCluster) -> Iterator[str]:
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


def _suspects(world: PlannedCluster) -> frozenset[str]:
    """Nodes to look at one by one: requests add up to more than a node has, or do not tell what shares take.

    Pods that stand in for shares count in full here, so that no other node can hold too much.
    """
    facts, placed, evicted = world.start, world.placed.items(), map(world.pod, world.evictions)
    bound = facts.requests((world.pod(key), d.node) for key, d in world.binds.items())
    given = facts.requests((world.pod(key), d.node) for key, d in placed) if world.nominations else bound
    gone = facts.requests((pod, pod.node) for pod in evicted if pod.node)
    room = facts.allocatable
    now, end = facts.requested + bound, facts.requested - facts.releasing - gone + given
    over = np.flatnonzero(((now > room) | (end > room)).any(axis=1)).tolist()
    sharing = {decision.node for _, decision in placed if decision.gpu_groups}
    return frozenset(world.snapshot.nodes[i].name for i in over) | sharing | facts.sharing


def used(world: PlannedCluster, node: Node, residents: Iterable[Resident]) -> list[int]:
    """What pods take of a node, aligned with the dimensions."""
    total = [0] * len(world.snapshot.dimensions)
    shared: set[str] = set()
    known = {group for r in world.before(node.name) for group in r.gpu_groups}
    for resident in residents:
        pod = resident.pod
        requests = pod.spec.requests
        total = list(map(add, total, requests))
        if requests[GPU] and (pod.spec.gpu.shares or _stands_in(world, pod)):
            total[GPU] -= requests[GPU]
        shared.update(resident.gpu_groups)
    total[GPU] += MILLI * len(shared)
    if len(total) > PODS:
        total[PODS] += len(shared - known)
    return total


def _stands_in(world: PlannedCluster, pod: Pod) -> bool:
    """Whether the pod is a reservation pod of a shared GPU: it has the label, and is in the namespace of such
    pods.
    """
    policy = world.snapshot.policy
    app = pod.labels.get("app")
    return bool(pod.key.namespace == policy.reservation_namespace and app == policy.reservation_app)


def _over(world: PlannedCluster, node: Node, residents: tuple[Resident, ...], when: str) -> Iterator[str]:
    total = used(world, node, residents)
    newest = ", ".join(sorted(str(r.pod.key) for r in residents if r.placed)[:3])
    for i, (amount, room) in enumerate(zip(total, node.allocatable, strict=True)):
        dimension = world.snapshot.dimensions[i]
        if 0 < room < amount:
            numbers = _numbers(i, amount, room, dimension)
            yield f"capacity: node {node.name} would hold {numbers} {when} (placed there: {newest})"
        elif room <= 0:
            for resident in residents:
                if resident.placed and _asks(resident, i):
                    yield f"capacity: pod {resident.pod.key} asks for {dimension}, node {node.name} has none"


def _asks(resident: Resident, dimension: int) -> bool:
    return resident.pod.spec.requests[dimension] > 0 or (dimension == GPU and bool(resident.gpu_groups))


def _numbers(index: int, amount: int, room: int, dimension: str) -> str:
    if index in (CPU, MEMORY, GPU):
        return f"{amounts.number(index, amount)} of {amounts.in_words(index, room)}"
    return f"{amount} of {room} {dimension}"
