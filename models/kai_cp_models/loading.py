"""What a snapshot's pods hold at its start: room of the nodes and shared devices (2.6)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cached_property

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
    PodSpec,
    PodStatus,
)
from kai_cp_models.sharing import ACTIVE, RELEASING, SharedDevice, share_mib
from kai_cp_models.snapshot import Snapshot

Devices = dict[tuple[int, str], SharedDevice]
GroupsOn = dict[int, tuple[str, ...]]


def taken(pod: Pod) -> NodeAmounts:
    """What a pod takes of a node beside its part of shared devices."""
    requests = pod.spec.requests
    if pod.reservation or pod.spec.gpu.shares:
        return (*requests[:GPU], 0, *requests[GPU + 1 :])
    return requests


class Homes:
    """The pods that have places in a snapshot.

    ``nodes``: [P] where they are. ``requests``: [P, D] what they ask for.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        index = snapshot.node_index
        self.pods = [pod for pod in snapshot.pods if pod.node in index and pod.status in ACTIVE_USED]
        self.nodes: Ints = np.array([index[pod.node or ""] for pod in self.pods], dtype=np.int64)
        # There are many pods and few requests: pods share their specs.
        specs = {id(pod.spec): pod.spec for pod in self.pods}
        rows = {place: row for row, place in enumerate(specs)}
        kinds = np.array([rows[id(pod.spec)] for pod in self.pods], dtype=np.int64)
        table = np.array([spec.requests for spec in specs.values()], dtype=np.int64)
        self.requests: Ints = table.reshape(-1, len(snapshot.dimensions))[kinds]
        self.shares: Mask = np.array([spec.gpu.shares for spec in specs.values()], dtype=bool)[kinds]
        self._snapshot, self._kinds = snapshot, kinds

    @cached_property
    def position(self) -> Mapping[PodKey, int]:
        """Where each pod is in ``pods``."""
        return {pod.key: i for i, pod in enumerate(self.pods)}

    @cached_property
    def charges(self) -> Ints:
        """[pod, 3] what queues are charged for each where it is (2.3); the last row stands for no place."""
        snapshot, nodes = self._snapshot, self._snapshot.nodes
        by_memory = np.array([pod.spec.gpu.kind is GpuKind.MEMORY for pod in self.pods], dtype=bool)
        memory = np.array([node.gpu_memory_mib for node in nodes], dtype=np.int64)
        kinds = self._kinds + len(self.pods) * by_memory * memory[self.nodes]
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
        """[pod, column] node, whether it shares devices, requests; the last row stands for no place."""
        return np.pad(np.column_stack((self.nodes, self.shares, self.requests)), ((0, 1), (0, 0)))


def loaded(snapshot: Snapshot, homes: Homes, allocatable: Ints) -> tuple[FreeCapacity, Devices, GroupsOn]:
    """Room, shared devices by (node, name), and their names by node. ``allocatable``: [N, D]."""
    idle, releasing = allocatable.copy(), np.zeros_like(allocatable)
    nodes, held = homes.nodes, homes.requests * (allocatable > 0)[homes.nodes]
    reserving = np.array([pod.reservation for pod in homes.pods], dtype=bool)
    held[homes.shares | reserving, GPU] = 0
    gone = np.array([pod.status is PodStatus.RELEASING for pod in homes.pods], dtype=bool)
    np.subtract.at(idle, nodes, held)
    np.add.at(releasing, nodes[gone], held[gone])
    sharing = [(homes.pods[i], int(nodes[i])) for i in np.flatnonzero(homes.shares & ~reserving).tolist()]
    devices = _devices(snapshot, sharing)
    names: dict[int, list[str]] = defaultdict(list)
    for node, name in devices:
        names[node].append(name)
    if devices:
        nodes = np.array([node for node, _ in devices])
        changes = MILLI * np.array([device.whole_gpu for device in devices.values()])
        np.add.at(idle[:, GPU], nodes, changes[:, 0])
        np.add.at(releasing[:, GPU], nodes, changes[:, 1])
    return (
        FreeCapacity(idle, idle + releasing),
        devices,
        {node: tuple(sorted(group)) for node, group in names.items()},
    )


def _devices(snapshot: Snapshot, sharing: Sequence[tuple[Pod, int]]) -> Devices:
    """The shared devices of pods and their nodes, summed up."""
    sums: dict[tuple[int, str], list[int]] = {}
    memory = [node.gpu_memory_mib for node in snapshot.nodes]
    needs: dict[tuple[PodSpec, int], int] = {}
    for pod, node in sharing:
        kind = (pod.spec, memory[node])
        need = needs.get(kind)
        if need is None:
            need = needs[kind] = share_mib(pod, memory[node])
        role = RELEASING if pod.status is PodStatus.RELEASING else ACTIVE
        for name in pod.gpu_groups:
            members = sums.get((node, name))
            if members is None:
                members = sums[node, name] = [0, 0, 0, 0, 0, 0]
            members[role] += need
            members[role + 3] += 1
    return {place: SharedDevice(*members) for place, members in sums.items()}
