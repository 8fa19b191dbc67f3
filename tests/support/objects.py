"""Raw Kubernetes and KAI objects for generated clusters, in the form of a snapshot."""

from __future__ import annotations

from typing import Any, Final

from kai_cp import raw_objects as raw
from kai_cp.json_types import Object
from kai_cp.raw_objects import NOW, ago

__all__ = [
    "LEVELS",
    "NOW",
    "PRIORITIES",
    "Object",
    "ago",
    "config",
    "group",
    "node",
    "pod",
    "queue",
    "reservation",
    "settle",
    "snapshot",
]

PRIORITIES: Final = {"low": 10, **raw.PRIORITIES}
LEVELS: Final = ("topology/block", "topology/rack")

_COMMON: Final = """predicates proportion priority nodeavailability resourcetype podaffinity elastic kubeflow
ray subgrouporder taskorder nominatednode dynamicresources minruntime topology snapshot"""


def config(actions: str, *, spread: bool, minruntime: dict[str, str], proportion: dict[str, str]) -> Object:
    """The scheduler's configuration."""
    strategy = "spread" if spread else "binpack"
    scores = ["gpuspread", "nodeplacement"] if spread else ["gpupack", "nodeplacement", "gpusharingorder"]
    arguments = {
        "nodeplacement": {"cpu": strategy, "gpu": strategy},
        "minruntime": minruntime,
        "proportion": proportion,
    }
    return raw.config(actions, (*_COMMON.split(), *scores), arguments)


def node(name: str, resources: dict[str, str], labels: dict[str, str]) -> Object:
    """A Ready node."""
    meta = raw.metadata(name, uid=f"node-{name}", labels={"kubernetes.io/hostname": name, **labels})
    return raw.node(meta, resources)


def queue(name: str, parent: str | None, age: float, resources: Object, **more: Any) -> Object:
    """A queue."""
    meta = raw.metadata(name, creationTimestamp=ago(age))
    return raw.queue(meta, resources, parent, displayName=name, **more)


def group(namespace: str, name: str, age: float, spec: Object, annotations: dict[str, str]) -> Object:
    """A pod group."""
    uid = f"{namespace}-{name}"
    meta = raw.metadata(name, namespace, uid=uid, creationTimestamp=ago(age), annotations=annotations)
    return raw.group(meta, **spec)


def pod(namespace: str, name: str, age: float, requests: dict[str, str], owner: str | None = None) -> Object:
    """A pending pod."""
    meta = raw.metadata(
        name,
        namespace,
        uid=f"{namespace}-{name}",
        creationTimestamp=ago(age),
        labels={"app": name.rpartition("-")[0] or name},
        annotations={"pod-group-name": owner} if owner else {},
    )
    return raw.pod(meta, requests, schedulerName="kai-scheduler" if owner else "default-scheduler")


def settle(one: Object, node: str, gpu_groups: list[str], state: str) -> Object | None:
    """Give a pod its place; return its BindRequest, if any."""
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
    """The whole snapshot, including lists that generated clusters leave empty."""
    fabric = raw.topology("fabric", [{"nodeLabel": LEVELS[0]}, {"nodeLabel": LEVELS[1], "alias": "rack"}])
    lists = {"topologies": [fabric], **objects}
    return raw.snapshot(lists, config, params, PRIORITIES)
