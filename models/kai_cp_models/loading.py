"""What a snapshot's pods hold at its start: room of the nodes and shared devices (2.6)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from kai_cp_models.arrays import Ints
from kai_cp_models.free_capacity import FreeCapacity, NodeAmounts
from kai_cp_models.pods import ACTIVE_USED, GPU, MILLI, Pod, PodSpec, PodStatus
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


def loaded(snapshot: Snapshot, allocatable: Ints) -> tuple[FreeCapacity, Devices, GroupsOn]:
    """Room, shared devices by (node, name), and their names by node. ``allocatable``: [N, D]."""
    idle, releasing = allocatable.copy(), np.zeros_like(allocatable)
    index = snapshot.node_index
    # There are many pods and few requests: pods share their specs.
    rows: dict[tuple[PodSpec, bool], int] = {}
    requests: list[NodeAmounts] = []
    row_of: list[int] = []
    node_of: list[int] = []
    leaving: list[bool] = []
    sharing: list[tuple[Pod, int]] = []
    for pod in snapshot.pods:
        node = index.get(pod.node) if pod.node and pod.status in ACTIVE_USED else None
        if node is None:
            continue
        kind = (pod.spec, pod.reservation)
        row = rows.get(kind)
        if row is None:
            row = rows[kind] = len(requests)
            requests.append(taken(pod))
        row_of.append(row)
        node_of.append(node)
        leaving.append(pod.status is PodStatus.RELEASING)
        if pod.gpu_groups and not pod.reservation and pod.spec.gpu.shares:
            sharing.append((pod, node))
    devices: Devices = {}
    if row_of:
        nodes, gone = np.array(node_of), np.array(leaving)
        vectors = np.array(requests, dtype=np.int64)[row_of] * (allocatable > 0)[nodes]
        np.subtract.at(idle, nodes, vectors)
        np.add.at(releasing, nodes[gone], vectors[gone])
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
