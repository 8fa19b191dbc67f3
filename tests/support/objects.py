"""Raw Kubernetes and KAI objects for generated clusters, as a snapshot holds them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

Object = dict[str, Any]

NOW: Final = datetime(2026, 11, 20, 12, 0, 0, tzinfo=UTC)
"""The instant at which generated snapshots are read."""
PRIORITIES: Final = {"low": 10, "train": 50, "build-preemptible": 75, "build": 100, "inference": 125}
LEVELS: Final = ("topology/block", "topology/rack")

_COMMON: Final = """predicates proportion priority nodeavailability resourcetype podaffinity elastic kubeflow
ray subgrouporder taskorder nominatednode dynamicresources minruntime topology snapshot"""
_EMPTY: Final = """configMaps persistentVolumes persistentVolumeClaims csiStorageCapacities storageClasses
csiDrivers"""


def ago(seconds: float) -> str:
    """Time stamp so many seconds before ``NOW``."""
    return (NOW - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def config(actions: str, *, spread: bool, minruntime: dict[str, str], proportion: dict[str, str]) -> Object:
    """The scheduler's configuration."""
    strategy = "spread" if spread else "binpack"
    scores = ["gpuspread", "nodeplacement"] if spread else ["gpupack", "nodeplacement", "gpusharingorder"]
    arguments = {
        "nodeplacement": {"cpu": strategy, "gpu": strategy},
        "minruntime": minruntime,
        "proportion": proportion,
    }
    plugins = [
        {"name": name, **({"arguments": arguments[name]} if arguments.get(name) else {})}
        for name in (*_COMMON.split(), *scores)
    ]
    return {"actions": actions, "tiers": [{"plugins": plugins}]}


def node(name: str, resources: dict[str, str], labels: dict[str, str]) -> Object:
    """A Ready node."""
    return {
        "metadata": {
            "name": name,
            "uid": f"node-{name}",
            "labels": {"kubernetes.io/hostname": name, **labels},
        },
        "spec": {},
        "status": {
            "allocatable": resources,
            "capacity": resources,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def queue(name: str, parent: str | None, age: float, resources: Object, **more: Any) -> Object:
    """A queue."""
    spec: Object = {"displayName": name, "resources": resources, **more}
    if parent is not None:
        spec["parentQueue"] = parent
    metadata = {"name": name, "uid": name, "creationTimestamp": ago(age)}
    return {"metadata": metadata, "spec": spec, "status": {}}


def group(namespace: str, name: str, age: float, spec: Object, annotations: dict[str, str]) -> Object:
    """A pod group."""
    metadata = {
        "name": name,
        "namespace": namespace,
        "uid": f"{namespace}-{name}",
        "creationTimestamp": ago(age),
        "annotations": annotations,
    }
    return {"metadata": metadata, "spec": spec, "status": {}}


def pod(namespace: str, name: str, age: float, requests: dict[str, str], owner: str | None = None) -> Object:
    """A pending pod."""
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"{namespace}-{name}",
            "creationTimestamp": ago(age),
            "labels": {"app": name.rpartition("-")[0] or name},
            "annotations": {"pod-group-name": owner} if owner else {},
        },
        "spec": {
            "schedulerName": "kai-scheduler" if owner else "default-scheduler",
            "containers": [{"name": "main", "resources": {"requests": requests}}],
        },
        "status": {"phase": "Pending"},
    }


def settle(one: Object, node: str, gpu_groups: list[str], state: str) -> Object | None:
    """Give a pod its place; returns the BindRequest that goes with it, if any."""
    meta, spec, status = one["metadata"], one["spec"], one["status"]
    request = None
    if state == "Binding" or len(gpu_groups) > 1:
        request = {
            "metadata": {
                "name": meta["name"],
                "namespace": meta["namespace"],
                "uid": f"bind-{meta['uid']}",
                "labels": {"selected-node": node},
            },
            "spec": {
                "podName": meta["name"],
                "selectedNode": node,
                "receivedResourceType": "Fraction" if gpu_groups else "Regular",
                "receivedGPU": {"count": max(len(gpu_groups), 1), "portion": "1.00"},
                "selectedGPUGroups": gpu_groups,
            },
            "status": {"phase": "Pending" if state == "Binding" else "Succeeded"},
        }
    if state != "Binding":
        spec["nodeName"] = node
        for index in gpu_groups:
            label = "runai-gpu-group" if len(gpu_groups) == 1 else f"runai-gpu-group/{index}"
            meta["labels"][label] = index
    if state in ("Running", "Releasing", "Stuck"):
        status["phase"] = "Running"
    if state in ("Releasing", "Stuck"):
        meta["deletionTimestamp"] = ago(-30 if state == "Releasing" else 600)
        meta["deletionGracePeriodSeconds"] = 30
    return request


def reservation(node: str, gpu_group: str) -> Object:
    """KAI's reservation pod of a shared GPU."""
    one = pod("kai-resource-reservation", f"gpu-reservation-{gpu_group}", 60, {"nvidia.com/gpu": "1"})
    one["metadata"]["labels"] = {"app": "kai-resource-reservation", "runai-gpu-group": gpu_group}
    one["spec"]["nodeName"] = node
    one["status"]["phase"] = "Running"
    return one


def snapshot(config: Object, params: Object, objects: dict[str, list[Object]]) -> Object:
    """The whole of it, with the lists that generated clusters leave empty."""
    classes = [{"metadata": {"name": name}, "value": value} for name, value in PRIORITIES.items()]
    topology = {
        "metadata": {"name": "fabric"},
        "spec": {"levels": [{"nodeLabel": LEVELS[0]}, {"nodeLabel": LEVELS[1], "alias": "rack"}]},
    }
    lists = {name: [] for name in _EMPTY.split()} | objects
    return {
        "config": config,
        "schedulerParams": {
            "schedulerName": "kai-scheduler",
            "partitionParams": {"NodePoolLabelKey": "", "NodePoolLabelValue": ""},
            "useSchedulingSignatures": True,
            "fullHierarchyFairness": True,
            "numOfStatusRecordingWorkers": 5,
            "globalDefaultStalenessGracePeriod": 60_000_000_000,
            "schedulePeriod": 1_000_000_000,
            "stuckInReleasingThreshold": 120_000_000_000,
            "queueLabelKey": "kai.scheduler/queue",
            **params,
        },
        "rawObjects": {**lists, "priorityClasses": classes, "topologies": [topology]},
    }
