"""The effect of a list of decisions on a cluster, in numbers that compare schedulers."""

from __future__ import annotations

from collections.abc import Iterable

from kai_cp.bench.records import NetEffect
from kai_cp_models.pods import ACTIVE_USED, GPU, MILLI, GpuKind, GroupKey, Pod, PodKey, PodStatus
from kai_cp_models.snapshot import Snapshot

Deed = tuple[str, PodKey]
"""Kind (Bind, Nominate, Evict) and pod of a decision."""

_WAITING = frozenset({PodStatus.PENDING, PodStatus.GATED})


def gpus_of(snapshot: Snapshot, pod: Pod) -> float:
    """GPUs of a pod; a memory request counts as its fraction of its node's device, else of the largest."""
    gpu = pod.spec.gpu
    if gpu.kind is GpuKind.MEMORY:
        node = snapshot.nodes[snapshot.node_index[pod.node]] if pod.node else None
        bounds = snapshot.gpu_memory_bounds_mib
        memory = node.gpu_memory_mib if node is not None else (bounds[1] if bounds else 100)
        return gpu.devices * gpu.memory_mib / memory
    return gpu.devices * gpu.milli_portion / MILLI


def outcome(snapshot: Snapshot, deeds: Iterable[Deed]) -> NetEffect:
    """Net effect of decisions: a pod evicted and nominated is moved, a pod only evicted is lost."""
    bound: set[PodKey] = set()
    nominated: set[PodKey] = set()
    evicted: set[PodKey] = set()
    sets = {"Bind": bound, "Nominate": nominated, "Evict": evicted}
    for kind, key in deeds:
        sets[kind].add(key)
    waiting = {pod.key for pod in snapshot.pods if pod.status in _WAITING}
    admitted = admitted_groups(snapshot, bound | nominated)
    lost = [snapshot.pod_by_key[key] for key in evicted - nominated if key not in waiting]
    moved = [snapshot.pod_by_key[key] for key in evicted & nominated if key not in waiting]

    def total(keys: Iterable[PodKey]) -> float:
        return sum(gpus_of(snapshot, snapshot.pod_by_key[key]) for key in keys)

    return NetEffect(
        bound_gpus=round(total(bound), 3),
        nominated_gpus=round(total(nominated & waiting), 3),
        lost_gpus=round(sum(gpus_of(snapshot, pod) for pod in lost), 3),
        lost_gpu_hours=round(sum(gpus_of(snapshot, pod) * _hours(snapshot, pod) for pod in lost), 1),
        moved_gpus=round(sum(gpus_of(snapshot, pod) for pod in moved), 3),
        moved_pods=len(moved),
        evicted_pods=len(evicted - waiting),
        groups_admitted=len(admitted),
        groups_left=len(waiting_groups(snapshot) - admitted),
    )


def most_gpus(snapshot: Snapshot) -> float:
    """An upper bound on the GPUs that any plan gains: GPUs admitted minus GPUs taken from running pods.

    It is the smaller of the GPUs that waiting pods request, and of those that are idle or being released on
    nodes that accept pods. Moving pods changes neither.
    """
    used: dict[str, float] = {}
    asked = 0.0
    for pod in snapshot.pods:
        if pod.status in _WAITING:
            asked += gpus_of(snapshot, pod)
        elif pod.node is not None and pod.status in ACTIVE_USED and not pod.reservation:
            leaves = pod.status is PodStatus.RELEASING
            used[pod.node] = used.get(pod.node, 0.0) + (0.0 if leaves else gpus_of(snapshot, pod))
    idle = sum(
        max(0.0, node.allocatable[GPU] / MILLI - used.get(node.name, 0.0))
        for node in snapshot.nodes
        if not node.not_ready
    )
    return round(min(asked, idle), 3)


def waiting_groups(snapshot: Snapshot) -> set[GroupKey]:
    """Pod groups with a pod that waits for a place."""
    return {
        pod.group
        for pod in snapshot.pods
        if pod.status is PodStatus.PENDING and pod.group in snapshot.group_by_key and pod.group is not None
    }


def admitted_groups(snapshot: Snapshot, placed: Iterable[PodKey]) -> set[GroupKey]:
    """Waiting pod groups with a waiting pod that is placed."""
    found: set[GroupKey] = set()
    for key in placed:
        pod = snapshot.pod_by_key[key]
        if pod.status in _WAITING and pod.group is not None:
            found.add(pod.group)
    return found


def _hours(snapshot: Snapshot, pod: Pod) -> float:
    group = None if pod.group is None else snapshot.group_by_key.get(pod.group)
    if group is None or group.last_start is None:
        return 0.0
    return max(0.0, snapshot.now - group.last_start) / 3600
