"""Small raw objects."""

from __future__ import annotations

from typing import Any

from kai_cp.kube.scheduler.options import SchedulerOptions, default_config
from kai_cp_models.snapshot import Decision, GroupKey, PodKey

Object = dict[str, Any]


def pod(name: str, group: str = "g", gpus: int = 1, **extra: Any) -> Object:
    """A pending pod; ``node`` places it."""
    spec: Object = {
        "schedulerName": "kai-scheduler",
        "containers": [{"name": "c", "resources": {"requests": {"cpu": "1", "nvidia.com/gpu": str(gpus)}}}],
    }
    if "node" in extra:
        spec["nodeName"] = extra["node"]
    return {
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "ns",
            "uid": f"uid-{name}",
            "creationTimestamp": "2026-11-20T11:00:00Z",
            "annotations": {"pod-group-name": group, **extra.get("annotations", {})},
            "labels": extra.get("labels", {}),
        },
        "spec": spec,
        "status": {"phase": extra.get("phase", "Pending")},
    }


def node(name: str, gpus: int = 8) -> Object:
    """A ready node."""
    amounts = {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": str(gpus)}
    labels = {"nvidia.com/gpu.memory": "81920", "nvidia.com/gpu.count": str(gpus)}
    return {
        "metadata": {"name": name, "uid": f"uid-{name}", "labels": labels},
        "spec": {},
        "status": {"allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]},
    }


def queue(name: str = "q") -> Object:
    """A queue without bounds."""
    amounts = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
    spec = {"resources": {"cpu": amounts, "memory": amounts, "gpu": amounts}}
    return {"metadata": {"name": name, "uid": f"uid-{name}"}, "spec": spec}


def group(name: str = "g", minimum: int = 1, queue: str = "q") -> Object:
    """A pod group."""
    meta = {
        "name": name,
        "namespace": "ns",
        "uid": f"uid-{name}",
        "creationTimestamp": "2026-11-20T11:00:00Z",
    }
    return {"metadata": meta, "spec": {"queue": queue, "minMember": minimum}}


def snapshot(**lists: list[Object]) -> Object:
    """A raw snapshot of the given lists."""
    return {
        "config": default_config(),
        "schedulerParams": SchedulerOptions(nodepool_label_key="").params(),
        "rawObjects": {"pods": [], "nodes": [], "queues": [], "podGroups": [], "bindRequests": [], **lists},
    }


def bind(name: str, node_name: str, **extra: Any) -> Decision:
    """A Bind decision."""
    key = GroupKey("ns", extra.pop("group", "g"))
    return Decision("Bind", PodKey("ns", name), key, node_name, "allocate", **extra)


def evict(name: str, node_name: str, **extra: Any) -> Decision:
    """An Evict decision."""
    key = GroupKey("ns", extra.pop("group", "g"))
    action = extra.pop("action", "preempt")
    return Decision("Evict", PodKey("ns", name), key, node_name, action, **extra)
