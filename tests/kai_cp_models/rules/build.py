"""Builders of node rules: pods without a pod group, and resources beyond the base dimensions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kai_cp_models.pods import BASE_DIMENSIONS, Pod
from kai_cp_models.snapshot import Node, Snapshot
from tests.support import worlds

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


def node(name: str = "n0", *, extended: tuple[int, ...] = (), **fields: Any) -> Node:
    """A node with 64 CPUs, 512 GiB and 8 GPUs."""
    made = worlds.node(name, **fields)
    return replace(made, allocatable=(*made.allocatable, *extended))


def pod(
    name: str = "p0",
    *,
    gpus: int = 0,
    cpus: int = 1,
    extended: tuple[int, ...] = (),
    nominated: str | None = None,
    on: str | None = None,
    gpu_groups: tuple[str, ...] = (),
    **fields: Any,
) -> Pod:
    """A pod with 1 CPU and 1 GiB; pending where no status is given."""
    status = {"status": fields.pop("status")} if "status" in fields else {}
    spec = worlds.spec(gpus, cpus, **fields)
    spec = replace(spec, requests=(*spec.requests, *extended))
    return worlds.pod(name, on, None, spec=spec, nominated_node=nominated, gpu_groups=gpu_groups, **status)


def snapshot(
    *nodes: Node,
    pods: tuple[Pod, ...] = (),
    extended: tuple[str, ...] = (),
    plugins: frozenset[str] = ALL,
    **more: Any,
) -> Snapshot:
    """A cluster of nodes, sorted by name; none where none is given."""
    made = worlds.cluster(pods, (), nodes, dimensions=(*BASE_DIMENSIONS, *extended), plugins=plugins, **more)
    return made if nodes else replace(made, nodes=())
