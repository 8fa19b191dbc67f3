"""Builders of fair shares: queues about GPUs, portions and MIG instances."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from kai_cp_models.pods import BASE_DIMENSIONS, UNLIMITED, GpuKind, GpuRequest, Pod, PodSpec, PodStatus
from kai_cp_models.snapshot import Node, PodGroup, Queue, Shares, Snapshot
from tests.support import worlds

NOW = worlds.NOW
MIG = ("nvidia.com/mig-1g.5gb", "nvidia.com/mig-3g.20gb", "nvidia.com/mig-1g.5gb+me")
DIMENSIONS = (*BASE_DIMENSIONS, *MIG)
GIB = 2**30


def node(name: str = "n0", gpus: int = 8, cpus: int = 64, gib: int = 256, **fields: Any) -> Node:
    """A healthy node with plenty of CPU and memory."""
    mig = fields.pop("mig", (0, 0, 0))
    made = worlds.node(name, gpus, cpus, gib, **fields)
    return replace(made, allocatable=(*made.allocatable, *mig))


def queue(
    name: str,
    parent: str | None = None,
    quota: float = 0,
    limit: float = UNLIMITED,
    weight: float = 1,
    **fields: Any,
) -> Queue:
    """A queue whose CPU and memory are unlimited; ``quota``, ``limit`` and ``weight`` are for GPUs."""
    shares = {
        "quota": fields.pop("quotas", worlds.gpu_bound(quota)),
        "limit": fields.pop("limits", worlds.gpu_bound(limit)),
        "weight": Shares(1, 1, weight),
        "usage": Shares(0, 0, fields.pop("usage", 0)),
    }
    return worlds.queue(name, parent, **shares, **fields)


def group(name: str, queue: str, **fields: Any) -> PodGroup:
    """A preemptible group of priority 50 with one pod set and a minimum of one pod."""
    return worlds.group(name, queue=queue, **fields)


def request(
    gpus: float = 0,
    cpus: int = 0,
    gib: int = 0,
    mib: int = 0,
    devices: int = 1,
    mig: tuple[int, int, int] = (0, 0, 0),
) -> PodSpec:
    """Whole GPUs, a portion below one of ``devices``, ``mib`` of memory on each, or MIG instances."""
    whole = int(gpus) if gpus >= 1 else 0
    if any(mig):
        gpu = GpuRequest(GpuKind.MIG, 0)
    elif mib:
        gpu = GpuRequest(GpuKind.MEMORY, devices, 0, mib)
    elif 0 < gpus < 1:
        gpu = GpuRequest(GpuKind.FRACTION, devices, round(gpus * 100) * 10)
    else:
        gpu = GpuRequest(devices=whole)
    return PodSpec((cpus * 1000, gib * GIB, whole * 1000, 1, *mig), gpu)


def pods(
    group: PodGroup | None,
    count: int,
    spec: PodSpec,
    status: PodStatus = PodStatus.PENDING,
    node: str | None = "n0",
    prefix: str = "",
    **fields: Any,
) -> Iterator[Pod]:
    """``count`` equal pods of a group; placed on ``node`` unless they are pending."""
    where = None if status in (PodStatus.PENDING, PodStatus.GATED) else node
    owner = group.key.name if group else None
    stem = prefix or f"{owner or 'pod'}-{status.value.lower()}"
    for i in range(count):
        yield worlds.pod(f"{stem}-{i}", where, owner, spec=spec, status=status, **fields)


def running(group: PodGroup, gpus: float, **fields: Any) -> Iterator[Pod]:
    """One running pod with whole GPUs or a portion of one."""
    return pods(group, 1, request(gpus), PodStatus.RUNNING, **fields)


def pending(group: PodGroup, gpus: float, **fields: Any) -> Iterator[Pod]:
    """One pending pod with whole GPUs or a portion of one."""
    return pods(group, 1, request(gpus), **fields)


def cluster(
    nodes: Iterable[Node],
    queues: Iterable[Queue],
    groups: Iterable[PodGroup] = (),
    *members: Iterable[Pod],
    **fields: Any,
) -> Snapshot:
    """A snapshot with the dimensions of MIG instances."""
    found = (pod for some in members for pod in some)
    chosen = {"plugins": frozenset({"minruntime"}), **fields}
    return worlds.cluster(found, groups, nodes, queues, dimensions=DIMENSIONS, **chosen)
