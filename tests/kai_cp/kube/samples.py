"""Small raw objects."""

from __future__ import annotations

from typing import Any

from kai_cp import raw_objects as raw
from kai_cp.json_types import Object
from kai_cp.kube.scheduler.options import SchedulerOptions, default_config
from kai_cp_models.plan import Decision
from kai_cp_models.pods import GroupKey, PodKey

MADE = "2026-11-20T11:00:00Z"


def pod(name: str, group: str = "g", gpus: int = 1, **extra: Any) -> Object:
    """A pending pod; ``node`` places it."""
    meta = raw.metadata(
        name,
        "ns",
        uid=f"uid-{name}",
        creationTimestamp=MADE,
        annotations={"pod-group-name": group, **extra.get("annotations", {})},
        labels=extra.get("labels", {}),
    )
    asked = {"cpu": "1", "nvidia.com/gpu": str(gpus)}
    phase = extra.get("phase", "Pending")
    return {"kind": "Pod", **raw.pod(meta, asked, node=extra.get("node", ""), phase=phase)}


def node(name: str, gpus: int = 8) -> Object:
    """A ready node."""
    amounts = {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": str(gpus)}
    labels = {"nvidia.com/gpu.memory": "81920", "nvidia.com/gpu.count": str(gpus)}
    return raw.node(raw.metadata(name, uid=f"uid-{name}", labels=labels), amounts)


def queue(name: str = "q") -> Object:
    """A queue without bounds."""
    return raw.queue(raw.metadata(name, uid=f"uid-{name}"), raw.shares({}, {}))


def group(name: str = "g", minimum: int = 1, queue: str = "q") -> Object:
    """A pod group."""
    meta = raw.metadata(name, "ns", uid=f"uid-{name}", creationTimestamp=MADE)
    return raw.group(meta, queue=queue, minMember=minimum)


def snapshot(**lists: list[Object]) -> Object:
    """A raw snapshot of the given lists."""
    params = SchedulerOptions(nodepool_label_key="").params()
    return raw.snapshot({"priorityClasses": [], **lists}, default_config(), params)


def bind(name: str, node_name: str, **extra: Any) -> Decision:
    """A Bind decision."""
    key = GroupKey("ns", extra.pop("group", "g"))
    return Decision("Bind", PodKey("ns", name), key, node_name, "allocate", **extra)


def evict(name: str, node_name: str, **extra: Any) -> Decision:
    """An Evict decision."""
    key = GroupKey("ns", extra.pop("group", "g"))
    action = extra.pop("action", "preempt")
    return Decision("Evict", PodKey("ns", name), key, node_name, action, **extra)
