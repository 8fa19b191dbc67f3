"""Short builders for node rules: a case shows only what matters to it."""

from __future__ import annotations

from typing import Any

from kai_cp_models.snapshot import (
    BASE_DIMENSIONS,
    GpuRequest,
    Node,
    Pod,
    PodKey,
    PodSpec,
    PodStatus,
    Policy,
    Snapshot,
    Topology,
)

ALL = frozenset(
    {
        "predicates",
        "topology",
        "nominatednode",
        "nodeplacement",
        "gpusharingorder",
        "nodeavailability",
        "resourcetype",
    }
)
GIB = 2**30


def node(
    name: str = "n0", *, gpus: int = 8, cpus: int = 64, extended: tuple[int, ...] = (), **fields: Any
) -> Node:
    """A node with 64 CPUs, 512 GiB and 8 GPUs."""
    fields.setdefault("gpu_count", gpus)
    return Node(name, (cpus * 1000, 512 * GIB, gpus * 1000, 110, *extended), **fields)


def pod(
    name: str = "p0",
    *,
    gpus: int = 0,
    cpus: int = 1,
    extended: tuple[int, ...] = (),
    nominated: str | None = None,
    status: PodStatus = PodStatus.PENDING,
    on: str | None = None,
    gpu_groups: tuple[str, ...] = (),
    **fields: Any,
) -> Pod:
    """A pod with 1 CPU and 1 GiB."""
    fields.setdefault("gpu", GpuRequest(devices=gpus))
    spec = PodSpec((cpus * 1000, GIB, gpus * 1000, 1, *extended), **fields)
    return Pod(
        PodKey("ns", name), name, spec, status, 0.0, node=on, nominated_node=nominated, gpu_groups=gpu_groups
    )


def snapshot(
    *nodes: Node,
    pods: tuple[Pod, ...] = (),
    topologies: tuple[Topology, ...] = (),
    extended: tuple[str, ...] = (),
    plugins: frozenset[str] = ALL,
    **policy: Any,
) -> Snapshot:
    """A cluster of nodes, sorted by name."""
    return Snapshot(
        now=0.0,
        dimensions=(*BASE_DIMENSIONS, *extended),
        nodes=tuple(sorted(nodes, key=lambda n: n.name)),
        queues=(),
        groups=(),
        pods=pods,
        topologies=topologies,
        policy=Policy(plugins=plugins, **policy),
    )
