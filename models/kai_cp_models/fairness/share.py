"""Fair share: how the cluster is divided among the queues (3.1, 3.2, 3.4).

Each resource is divided separately: first among top-level queues, then each queue's share among its children.
Siblings get their quotas, then the surplus by weight in tiers of queue priority, then the devices left over
by rounding down.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kai_cp_models.fairness.amounts import mig_milli_gpus
from kai_cp_models.fairness.totals import RESOURCES, SCALE, QueueTotals
from kai_cp_models.pods import ACTIVE_USED, CPU, GPU, MEMORY, MILLI, UNLIMITED
from kai_cp_models.snapshot import Node, Shares, Snapshot


def cluster_total(snapshot: Snapshot) -> Shares:
    """The resources to divide: those of healthy nodes, less what other schedulers' pods use there (3.1)."""
    cpu = memory = gpu = 0
    counted = {node.name: _offers_gpus(snapshot, node) for node in snapshot.nodes if node.healthy}
    # There are many nodes and few sizes of them.
    sizes = Counter((node.allocatable, counted[node.name]) for node in snapshot.nodes if node.name in counted)
    for (vector, offers_gpus), nodes in sizes.items():
        cpu += nodes * vector[CPU]
        memory += nodes * vector[MEMORY]
        gpu += nodes * _gpus(snapshot, vector) if offers_gpus else 0
    columns = snapshot.columns
    for row in np.flatnonzero(columns.foreign & columns.having(ACTIVE_USED)).tolist():
        pod = snapshot.pods[row]
        if pod.node in counted:
            cpu -= pod.spec.requests[CPU]
            memory -= pod.spec.requests[MEMORY]
            gpu -= _gpus(snapshot, pod.spec.requests) if counted[pod.node] else 0
    return Shares(float(cpu), float(memory), gpu / MILLI)


def fair_shares(snapshot: Snapshot) -> dict[str, Shares]:
    """The fair share of every queue by name (3.2)."""
    return divide(snapshot, QueueTotals.of(snapshot), cluster_total(snapshot))


def divide(snapshot: Snapshot, totals: QueueTotals, cluster: Shares) -> dict[str, Shares]:
    """The fair share of every queue, from what each asks for and what the cluster has."""
    tree = totals.tree
    shares = np.zeros((len(tree.queues), RESOURCES))
    for resource in range(RESOURCES):
        claims = [
            ShareClaim(
                quota=queue.quota[resource],
                requestable=_requestable(queue.limit[resource], totals.requested[i, resource], resource),
                weight=queue.weight[resource],
                usage=queue.usage[resource],
                priority=queue.priority,
                seniority=(queue.created, queue.name),
            )
            for i, queue in enumerate(tree.queues)
        ]
        below = [(tree.roots, cluster[resource])]
        while below:
            siblings, amount = below.pop()
            found = divide_siblings([claims[i] for i in siblings], amount, snapshot.policy.k_value)
            for i, share in zip(siblings, found, strict=True):
                shares[i, resource] = share
                below.append((tree.children[i], share))
    return {queue.name: Shares(*map(float, shares[i])) for i, queue in enumerate(tree.queues)}


@dataclass(frozen=True, slots=True)
class ShareClaim:
    """What one queue claims of one resource, in the units of ``Shares``.

    ``seniority``: creation time and name; the smaller one gets a leftover device first.
    """

    quota: float
    requestable: float
    weight: float
    usage: float
    priority: int
    seniority: tuple[float, str]


def divide_siblings(claims: Sequence[ShareClaim], amount: float, k_value: float = 1.0) -> list[float]:
    """Divide ``amount`` of one resource among sibling queues (3.2, steps 1 to 3)."""
    shares = [min(amount if c.quota == UNLIMITED else c.quota, c.requestable) for c in claims]
    left = amount - sum(shares)
    tiers = sorted({claim.priority for claim in claims}, reverse=True)
    remainders: dict[int, float] = {}
    for priority in tiers:
        if left <= 0:
            break
        tier = [i for i, claim in enumerate(claims) if claim.priority == priority]
        left = _share_surplus(tier, claims, shares, left, max(k_value, 0.0), remainders=remainders)
    for priority in tiers:
        waiting = [i for i in remainders if claims[i].priority == priority]
        for i in sorted(waiting, key=lambda i: (-remainders[i], claims[i].seniority)):
            if left <= 0:
                break
            shares[i] += min(1.0, left)
            left -= min(1.0, left)
    return shares


def _share_surplus(
    tier: Sequence[int],
    claims: Sequence[ShareClaim],
    shares: list[float],
    left: float,
    k_value: float,
    *,
    remainders: dict[int, float],
) -> float:
    """Step 2 for one tier: rounds by weight until no round meets another need; returns what is left over."""
    while left > 0:
        unsatisfied = [i for i in tier if claims[i].requestable > shares[i]]
        weights = sum(claims[i].weight for i in unsatisfied)
        if weights == 0:
            break
        slices = {}
        for i in unsatisfied:
            weight = claims[i].weight / weights
            slices[i] = max(0.0, weight + k_value * (weight - claims[i].usage))
        of = math.fsum(slices.values())
        if of == 0:
            break
        offered, met = left, False
        for i in unsatisfied:
            if claims[i].weight <= 0:
                continue
            offer = offered * slices[i] / of
            need = claims[i].requestable - shares[i]
            if need <= offer:
                remainders.pop(i, None)
                given = need
            else:
                given = float(math.floor(offer))
                if offer > given:
                    remainders[i] = offer - given
            met = met or need < offer
            shares[i] += given
            left -= given
        if not met:
            break
    return left


def _requestable(limit: float, requested: int, resource: int) -> float:
    request = float(requested) / SCALE[resource]
    return request if limit == UNLIMITED else min(limit, request)


def _gpus(snapshot: Snapshot, vector: tuple[int, ...]) -> int:
    return vector[GPU] + mig_milli_gpus(snapshot.dimensions, vector)


def _offers_gpus(snapshot: Snapshot, node: Node) -> bool:
    policy = snapshot.policy
    return not policy.restrict_node_scheduling or policy.gpu_worker_label in node.labels
