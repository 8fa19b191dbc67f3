"""Objects of generated clusters: nodes by hardware, pod groups by gang."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from kai_cp import raw_objects as raw
from kai_cp.json_types import Object
from kai_cp.raw_objects import NOW, PRIORITIES, ago
from kai_cp.reader.policy import DEFAULT_PLUGINS

__all__ = [
    "NON_PREEMPTIBLE",
    "NOW",
    "GangSpec",
    "NodeShape",
    "PodRequest",
    "RawCluster",
    "ago",
    "group",
    "node",
    "pod",
    "queue",
]

NON_PREEMPTIBLE: Final = frozenset(name for name, value in PRIORITIES.items() if value >= 100)

FRESH: Final = "1"
"""The resourceVersion of generated objects: a reader that met one before may remember it."""


@dataclass(frozen=True, slots=True)
class NodeShape:
    """Hardware of a node: GPUs, CPUs, memory in GiB, GPU memory in MiB and product name."""

    gpus: int = 8
    cpus: int = 128
    memory_gib: int = 1024
    gpu_memory_mib: int = 81_920
    product: str = "NVIDIA-H100-80GB-HBM3"


@dataclass(frozen=True, slots=True)
class PodRequest:
    """What one pod asks: whole GPUs, or one fraction in (0, 1), with 8 CPUs and 32 GiB per GPU."""

    gpus: int = 1
    fraction: float = 0.0

    @property
    def amount(self) -> float:
        """GPUs asked, fractions included."""
        return self.fraction or float(self.gpus)


def node(name: str, shape: NodeShape, labels: Mapping[str, str]) -> Object:
    """A Ready node."""
    amounts = {
        "cpu": str(shape.cpus),
        "memory": f"{shape.memory_gib}Gi",
        "nvidia.com/gpu": str(shape.gpus),
        "pods": "110",
    }
    found = {
        "kubernetes.io/hostname": name,
        **labels,
        "nvidia.com/gpu.count": str(shape.gpus),
        "nvidia.com/gpu.memory": str(shape.gpu_memory_mib),
        "nvidia.com/gpu.product": shape.product,
    }
    return raw.node(raw.metadata(name, resourceVersion=FRESH, labels=found), amounts)


def queue(name: str, quota: float, created: str, parent: str | None = None) -> Object:
    """A queue with a GPU quota and weight 1; CPU and memory are never scarce here."""
    meta = raw.metadata(name, resourceVersion=FRESH, creationTimestamp=created)
    return raw.queue(meta, raw.shares({"gpu": quota}, {}), parent, displayName=name, priority=100)


@dataclass(frozen=True, slots=True)
class GangSpec:
    """A pod group to be written: ``size`` pods of one request, all needed.

    ``age_seconds``: since creation. ``level``: required (or, with ``preferred``, wished) topology level.
    ``segments``: how many subgroups it is split into, each in one domain of ``level`` (8.5).
    """

    name: str
    queue: str
    request: PodRequest
    size: int = 1
    priority: str = "train"
    age_seconds: float = 3600.0
    level: str = ""
    preferred: bool = False
    segments: int = 0
    minimum: int | None = None


def group(gang: GangSpec, *, running: bool) -> Object:
    """The PodGroup object of a gang."""
    notes = {"kai.scheduler/last-start-timestamp": ago(int(gang.age_seconds - 60))} if running else {}
    meta = raw.metadata(
        gang.name,
        "default",
        resourceVersion=FRESH,
        creationTimestamp=ago(int(gang.age_seconds)),
        annotations=notes,
    )
    return raw.group(meta, **_members(gang), queue=gang.queue, priorityClassName=gang.priority)


def _members(gang: GangSpec) -> Object:
    """How many pods a gang needs, in which subgroups, and how close to each other."""
    least = gang.size if gang.minimum is None else gang.minimum
    if not gang.level:
        return {"minMember": least}
    word = "preferredTopologyLevel" if gang.preferred else "requiredTopologyLevel"
    constraint = {"topology": "fabric", word: gang.level}
    if not gang.segments:
        return {"minMember": least, "topologyConstraint": constraint}
    size = gang.size // gang.segments
    subgroups = [
        {"name": f"segment-{i}", "minMember": size, "topologyConstraint": dict(constraint)}
        for i in range(gang.segments)
    ]
    return {"minSubGroup": gang.segments, "subGroups": subgroups}


def pod(gang: GangSpec, index: int, place: str | None = None, gpu_group: str = "") -> Object:
    """Pod ``index`` of a gang; running on ``place``, pending without one."""
    request = gang.request
    labels: dict[str, str] = {}
    annotations = {"pod-group-name": gang.name}
    if request.fraction:
        amounts = {"cpu": "4", "memory": "16Gi"}
        annotations["gpu-fraction"] = f"{request.fraction:g}"
    else:
        amounts = {
            "cpu": str(8 * request.gpus),
            "memory": f"{32 * request.gpus}Gi",
            "nvidia.com/gpu": str(request.gpus),
        }
    if gang.segments:
        labels["kai.scheduler/subgroup-name"] = f"segment-{index * gang.segments // gang.size}"
    if place is not None:
        annotations["received-resource-type"] = "Fraction" if request.fraction else "Regular"
        if gpu_group:
            labels["runai-gpu-group"] = gpu_group
    meta = raw.metadata(
        f"{gang.name}-{index}",
        "default",
        resourceVersion=FRESH,
        creationTimestamp=ago(int(gang.age_seconds)),
        labels=labels,
        annotations=annotations,
    )
    made = raw.pod(meta, amounts, node=place or "", priorityClassName=gang.priority)
    made["spec"]["containers"][0]["resources"]["limits"] = amounts
    return made


@dataclass
class RawCluster:
    """Raw objects being collected; ``snapshot()`` wraps them up."""

    nodes: list[Object] = field(default_factory=list)
    queues: list[Object] = field(default_factory=list)
    groups: list[Object] = field(default_factory=list)
    pods: list[Object] = field(default_factory=list)
    levels: Sequence[str] = ("zone", "rack", "kubernetes.io/hostname")

    def snapshot(self) -> dict[str, Any]:
        """The snapshot document, with KAI's default actions and plugins."""
        arguments = {"nodeplacement": {"cpu": "binpack", "gpu": "binpack"}}
        actions = "allocate, consolidation, reclaim, preempt, stalegangeviction"
        levels = [{"nodeLabel": level} for level in self.levels]
        lists: dict[str, list[Object] | None] = {
            "nodes": self.nodes,
            "queues": self.queues,
            "podGroups": self.groups,
            "pods": self.pods,
            "topologies": [raw.topology("fabric", levels)],
            "resourceClaims": None,
            "resourceSlices": None,
            "deviceClasses": None,
            "nodeResourceTopologies": None,
        }
        return raw.snapshot(
            lists,
            raw.config(actions, sorted(DEFAULT_PLUGINS), arguments),
            {"maxNumberConsolidationPreemptees": 16, "allowConsolidatingReclaim": True},
        )
