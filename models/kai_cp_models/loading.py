"""What a snapshot's pods hold at its start: capacity of the nodes, and shared devices (2.6)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from functools import cached_property
from operator import add

import numpy as np

from kai_cp_models.arrays import Ints, Mask
from kai_cp_models.extras import CLAIM_MILLI_GPUS
from kai_cp_models.fairness import amounts
from kai_cp_models.free_capacity import FreeCapacity, NodeAmounts
from kai_cp_models.pods import (
    ACTIVE_USED,
    GPU,
    MILLI,
    GpuKind,
    GroupKey,
    Pod,
    PodKey,
    PodStatus,
)
from kai_cp_models.sharing import ACTIVE, RELEASING, SharedDevice, share_mib
from kai_cp_models.snapshot import Snapshot

Devices = dict[int, Mapping[str, SharedDevice]]


def taken(pod: Pod) -> NodeAmounts:
    """What a pod takes of a node beside its part of shared devices."""
    requests = pod.spec.requests
    if pod.reservation or pod.spec.gpu.shares:
        return (*requests[:GPU], 0, *requests[GPU + 1 :])
    return requests


class Homes:
    """The pods that have places in a snapshot.

    ``rows``: [P] their positions in the snapshot. ``nodes``: [P] where they are. ``kinds``: [P] which of its
    specs they have. ``requests``: [P, D] what they ask for. ``shares``: [P] whether they share devices.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        columns = snapshot.columns
        self.rows: Ints = np.flatnonzero((columns.node >= 0) & columns.having(ACTIVE_USED))
        self.pods = [snapshot.pods[row] for row in self.rows.tolist()]
        self.nodes: Ints = columns.node[self.rows]
        # There are many pods and few requests: pods share their specs.
        table = np.array([spec.requests for spec in columns.specs], dtype=np.int64)
        self._snapshot, self.kinds = snapshot, columns.spec[self.rows]
        self.requests: Ints = table.reshape(-1, len(snapshot.dimensions))[self.kinds]
        self.shares: Mask = columns.of_spec(lambda spec: spec.gpu.shares)[self.rows]

    @cached_property
    def position(self) -> Mapping[PodKey, int]:
        """Where each pod is in ``pods``."""
        return {pod.key: i for i, pod in enumerate(self.pods)}

    @cached_property
    def charges(self) -> Ints:
        """[pod, 3] what queues are charged for each where it is (2.3); the last row is for no place."""
        snapshot, nodes = self._snapshot, self._snapshot.nodes
        by_memory = snapshot.columns.of_spec(lambda spec: spec.gpu.kind is GpuKind.MEMORY)[self.rows]
        memory = np.array([node.gpu_memory_mib for node in nodes], dtype=np.int64)
        kinds = self.kinds + len(self.pods) * by_memory * memory[self.nodes]
        # Only pods with claims of their own have no equals.
        own = [i for key in snapshot.extras[CLAIM_MILLI_GPUS] if (i := self.position.get(key)) is not None]
        kinds[own] = -1 - np.array(own, dtype=np.int64)
        _, first, alike = np.unique(kinds, return_index=True, return_inverse=True)
        rows = [amounts.accepted(snapshot, self.pods[i], nodes[self.nodes[i]]) for i in first.tolist()]
        found: Ints = np.array([*rows, amounts.NOTHING], dtype=np.int64)[np.append(alike, len(rows))]
        return found

    @cached_property
    def groups(self) -> frozenset[GroupKey | None]:
        """Their pod groups."""
        return frozenset(pod.group for pod in self.pods)

    @cached_property
    def columns(self) -> Ints:
        """[pod, column] node, whether it shares devices, requests; the last row is for no place."""
        return np.pad(np.column_stack((self.nodes, self.shares, self.requests)), ((0, 1), (0, 0)))


def loaded(snapshot: Snapshot, homes: Homes, allocatable: Ints) -> tuple[FreeCapacity, Devices]:
    """Free capacity, and shared devices by node and name, in order. ``allocatable``: [N, D]."""
    idle, releasing = allocatable.copy(), np.zeros_like(allocatable)
    nodes, held = homes.nodes, homes.requests * (allocatable > 0)[homes.nodes]
    columns = snapshot.columns
    reserving = columns.reservation[homes.rows]
    held[homes.shares | reserving, GPU] = 0
    gone = columns.having((PodStatus.RELEASING,))[homes.rows]
    np.subtract.at(idle, nodes, held)
    np.add.at(releasing, nodes[gone], held[gone])
    devices = _devices(snapshot, homes, np.flatnonzero(homes.shares & ~reserving), gone)
    for node, there in devices.items():
        for device in there.values():
            idle_gpus, releasing_gpus = device.whole_gpu
            idle[node, GPU] += MILLI * idle_gpus
            releasing[node, GPU] += MILLI * releasing_gpus
    return FreeCapacity(idle, idle + releasing), devices


def _devices(snapshot: Snapshot, homes: Homes, sharing: Ints, gone: Mask) -> Devices:
    """The shared devices of the ``sharing`` pods, summed up. ``gone``: [P] which pods are leaving."""
    if not len(sharing):
        return {}
    memory = np.array([node.gpu_memory_mib for node in snapshot.nodes], dtype=np.int64)
    nodes = homes.nodes[sharing]
    # There are few specs, and few sizes of memory.
    sizes = homes.kinds[sharing] * (memory.max() + 1) + memory[nodes]
    _, one, alike = np.unique(sizes, return_index=True, return_inverse=True)
    pods = ((homes.pods[i], int(memory[homes.nodes[i]])) for i in sharing[one].tolist())
    needs = np.array([share_mib(pod, size) for pod, size in pods], dtype=np.int64)[alike]
    # Pods of one node and the same GPU groups hold the same devices; in the order of the first pod of each.
    groups = snapshot.columns.gpu_groups[homes.rows[sharing]].astype(np.int64)
    places = groups * len(memory) + nodes
    _, first, same = np.unique(places, return_index=True, return_inverse=True)
    parts = np.zeros((len(first), len(SharedDevice._fields) - 1), dtype=np.int64)
    roles = np.where(gone[sharing], RELEASING, ACTIVE)
    np.add.at(parts, (same, roles), needs)
    np.add.at(parts, (same, roles + 3), 1)
    found: dict[int, dict[str, SharedDevice]] = defaultdict(dict)
    order = np.argsort(first)
    for at, part in zip(sharing[first[order]].tolist(), parts[order].tolist(), strict=True):
        node, pod = int(homes.nodes[at]), homes.pods[at]
        for name in pod.gpu_groups:
            known = found[node].get(name)
            sums = part if known is None else map(add, known, part)
            found[node][name] = SharedDevice(*sums)
    return {node: dict(sorted(there.items())) for node, there in found.items()}
