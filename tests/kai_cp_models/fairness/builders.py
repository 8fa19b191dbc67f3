"""Short builders, so that a case shows only what matters. Queues are about GPUs unless a case says
otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from kai_cp_models.snapshot import (
    BASE_DIMENSIONS,
    UNLIMITED,
    GpuKind,
    GpuRequest,
    GroupKey,
    Node,
    Pod,
    PodGroup,
    PodKey,
    PodSpec,
    PodStatus,
    Policy,
    Queue,
    Shares,
    Snapshot,
    Subgroup,
)

NOW = 1_000_000.0
MIG = ("nvidia.com/mig-1g.5gb", "nvidia.com/mig-3g.20gb", "nvidia.com/mig-1g.5gb+me")
DIMENSIONS = (*BASE_DIMENSIONS, *MIG)
GIB = 2**30
DEFAULT_POLICY = Policy(plugins=frozenset({"minruntime"}))


def node(name: str = "n0", gpus: int = 8, cpus: int = 64, gib: int = 256, **fields: Any) -> Node:
    """A healthy node with plenty of CPU and memory."""
    mig = fields.pop("mig", (0, 0, 0))
    return Node(name, (cpus * 1000, gib * GIB, gpus * 1000, 110, *mig), gpu_count=gpus, **fields)


def queue(
    name: str,
    parent: str | None = None,
    quota: float = 0,
    limit: float = UNLIMITED,
    weight: float = 1,
    **fields: Any,
) -> Queue:
    """A queue whose CPU and memory are unlimited; ``quota``, ``limit`` and ``weight`` are for GPUs."""
    return Queue(
        name,
        parent,
        created=fields.pop("created", 0.0),
        quota=fields.pop("quotas", Shares(UNLIMITED, UNLIMITED, quota)),
        limit=fields.pop("limits", Shares(UNLIMITED, UNLIMITED, limit)),
        weight=Shares(1, 1, weight),
        usage=Shares(0, 0, fields.pop("usage", 0)),
        **fields,
    )


def group(name: str, queue: str, **fields: Any) -> PodGroup:
    """A preemptible group of priority 50 with one pod set and a minimum of one pod."""
    root = fields.pop("root", Subgroup("", 1, (Subgroup("default", 1),), leaf=False))
    given: dict[str, Any] = {"priority": 50, "preemptible": True, "created": 0.0, **fields}
    return PodGroup(GroupKey("ns", name), name, queue, root=root, **given)


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
    stem = prefix or f"{group.key.name if group else 'pod'}-{status.value.lower()}"
    for i in range(count):
        name = f"{stem}-{i}"
        key = group.key if group else None
        yield Pod(PodKey("ns", name), name, spec, status, 0.0, key, node=where, **fields)


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
    policy: Policy = DEFAULT_POLICY,
    **fields: Any,
) -> Snapshot:
    """A snapshot with everything sorted by name, as the reader sorts it."""
    return Snapshot(
        NOW,
        DIMENSIONS,
        tuple(sorted(nodes, key=lambda n: n.name)),
        tuple(sorted(queues, key=lambda q: q.name)),
        tuple(sorted(groups, key=lambda g: g.key)),
        tuple(sorted((pod for some in members for pod in some), key=lambda p: p.key)),
        policy=policy,
        **fields,
    )
