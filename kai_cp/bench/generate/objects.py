"""Raw Kubernetes and KAI objects, as a snapshot holds them (snapshot format, section 2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from kai_cp.reader.policy import DEFAULT_PLUGINS

NOW: Final = datetime(2026, 11, 20, 12, 0, 0, tzinfo=UTC)
"""The instant at which generated snapshots are to be read."""

PRIORITIES: Final = {"train": 50, "build-preemptible": 75, "build": 100, "inference": 125}
"""Priority classes that KAI installs; 100 and above is not preemptible (1.3)."""

NON_PREEMPTIBLE: Final = frozenset(name for name, value in PRIORITIES.items() if value >= 100)

FRESH: Final = "1"
"""resourceVersion of what is generated: a reader that met it before may remember the object."""

_LISTS: Final = (
    "pods",
    "nodes",
    "queues",
    "podGroups",
    "bindRequests",
    "priorityClasses",
    "configMaps",
    "persistentVolumes",
    "persistentVolumeClaims",
    "csiStorageCapacities",
    "storageClasses",
    "csiDrivers",
    "topologies",
)


def stamp(when: datetime) -> str:
    """RFC 3339 time stamp in whole seconds."""
    return when.strftime("%Y-%m-%dT%H:%M:%SZ")


def ago(seconds: float) -> str:
    """Time stamp so many seconds before ``NOW``."""
    return stamp(NOW - timedelta(seconds=int(seconds)))


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


def node(name: str, shape: NodeShape, labels: Mapping[str, str]) -> dict[str, Any]:
    """A Ready node."""
    amounts = {
        "cpu": str(shape.cpus),
        "memory": f"{shape.memory_gib}Gi",
        "nvidia.com/gpu": str(shape.gpus),
        "pods": "110",
    }
    return {
        "metadata": {
            "name": name,
            "uid": name,
            "resourceVersion": FRESH,
            "labels": {
                "kubernetes.io/hostname": name,
                **labels,
                "nvidia.com/gpu.count": str(shape.gpus),
                "nvidia.com/gpu.memory": str(shape.gpu_memory_mib),
                "nvidia.com/gpu.product": shape.product,
            },
        },
        "spec": {},
        "status": {
            "capacity": amounts,
            "allocatable": dict(amounts),
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def queue(name: str, quota: float, created: str, parent: str | None = None) -> dict[str, Any]:
    """A queue with a GPU quota and weight 1; CPU and memory are never the point here."""
    free = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
    spec: dict[str, Any] = {
        "displayName": name,
        "priority": 100,
        "resources": {
            "gpu": {"quota": quota, "limit": -1, "overQuotaWeight": 1},
            "cpu": dict(free),
            "memory": dict(free),
        },
    }
    if parent is not None:
        spec["parentQueue"] = parent
    metadata = {"name": name, "uid": name, "resourceVersion": FRESH, "creationTimestamp": created}
    return {"metadata": metadata, "spec": spec, "status": {}}


@dataclass(frozen=True, slots=True)
class GangSpec:
    """A pod group to be written: ``size`` pods of one request, all needed.

    ``age_seconds``: since creation. ``level``: required (or, with ``preferred``, wished) topology level.
    ``segments``: split into so many subgroups, each in one domain of ``level`` (8.5).
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


def group(gang: GangSpec, *, running: bool) -> dict[str, Any]:
    """The PodGroup object of a gang."""
    metadata: dict[str, Any] = {
        "name": gang.name,
        "namespace": "default",
        "uid": gang.name,
        "resourceVersion": FRESH,
        "creationTimestamp": ago(gang.age_seconds),
        "annotations": {},
    }
    if running:
        metadata["annotations"]["kai.scheduler/last-start-timestamp"] = ago(gang.age_seconds - 60)
    spec: dict[str, Any] = {
        "minMember": gang.size if gang.minimum is None else gang.minimum,
        "queue": gang.queue,
        "priorityClassName": gang.priority,
    }
    if gang.level:
        word = "preferredTopologyLevel" if gang.preferred else "requiredTopologyLevel"
        constraint = {"topology": "fabric", word: gang.level}
        if gang.segments:
            del spec["minMember"]
            spec["minSubGroup"] = gang.segments
            spec["subGroups"] = [
                {
                    "name": f"segment-{i}",
                    "minMember": gang.size // gang.segments,
                    "topologyConstraint": dict(constraint),
                }
                for i in range(gang.segments)
            ]
        else:
            spec["topologyConstraint"] = constraint
    return {"metadata": metadata, "spec": spec, "status": {}}


def pod(gang: GangSpec, index: int, place: str | None = None, gpu_group: str = "") -> dict[str, Any]:
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
    spec: dict[str, Any] = {
        "schedulerName": "kai-scheduler",
        "priorityClassName": gang.priority,
        "containers": [{"name": "main", "resources": {"requests": amounts, "limits": dict(amounts)}}],
    }
    if place is not None:
        spec["nodeName"] = place
        annotations["received-resource-type"] = "Fraction" if request.fraction else "Regular"
        if gpu_group:
            labels["runai-gpu-group"] = gpu_group
    return {
        "metadata": {
            "name": f"{gang.name}-{index}",
            "namespace": "default",
            "uid": f"{gang.name}-{index}",
            "resourceVersion": FRESH,
            "creationTimestamp": ago(gang.age_seconds),
            "labels": labels,
            "annotations": annotations,
        },
        "spec": spec,
        "status": {"phase": "Pending" if place is None else "Running"},
    }


@dataclass
class RawCluster:
    """Raw objects being collected; ``snapshot()`` wraps them up."""

    nodes: list[dict[str, Any]] = field(default_factory=list)
    queues: list[dict[str, Any]] = field(default_factory=list)
    groups: list[dict[str, Any]] = field(default_factory=list)
    pods: list[dict[str, Any]] = field(default_factory=list)
    levels: Sequence[str] = ("zone", "rack", "kubernetes.io/hostname")

    def snapshot(self) -> dict[str, Any]:
        """The snapshot document, with KAI's default actions and plugins."""
        plugins: list[dict[str, Any]] = [{"name": name} for name in sorted(DEFAULT_PLUGINS)]
        arguments = {"cpu": "binpack", "gpu": "binpack"}
        next(p for p in plugins if p["name"] == "nodeplacement")["arguments"] = arguments
        raw: dict[str, Any] = {name: [] for name in _LISTS}
        raw |= {"resourceClaims": None, "resourceSlices": None, "deviceClasses": None}
        raw |= {"nodeResourceTopologies": None}
        raw["nodes"] = self.nodes
        raw["queues"] = self.queues
        raw["podGroups"] = self.groups
        raw["pods"] = self.pods
        raw["priorityClasses"] = [{"metadata": {"name": n}, "value": v} for n, v in PRIORITIES.items()]
        raw["topologies"] = [
            {
                "metadata": {"name": "fabric"},
                "spec": {"levels": [{"nodeLabel": level} for level in self.levels]},
            }
        ]
        return {
            "config": {
                "actions": "allocate, consolidation, reclaim, preempt, stalegangeviction",
                "tiers": [{"plugins": plugins}],
            },
            "schedulerParams": {
                "schedulerName": "kai-scheduler",
                "partitionParams": {"NodePoolLabelKey": "", "NodePoolLabelValue": ""},
                "maxNumberConsolidationPreemptees": 16,
                "useSchedulingSignatures": True,
                "fullHierarchyFairness": True,
                "allowConsolidatingReclaim": True,
                "numOfStatusRecordingWorkers": 5,
                "globalDefaultStalenessGracePeriod": 60_000_000_000,
                "schedulePeriod": 1_000_000_000,
                "stuckInReleasingThreshold": 120_000_000_000,
                "queueLabelKey": "kai.scheduler/queue",
            },
            "rawObjects": raw,
        }
