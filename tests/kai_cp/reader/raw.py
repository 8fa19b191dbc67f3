"""Short builders of raw KAI objects: a test shows only what matters to it."""

from __future__ import annotations

from typing import Any

from kai_cp import raw_objects as made

NOW = made.NOW.timestamp()

Raw = dict[str, Any]


def node(name: str = "n1", *, gpus: int = 8, labels: Raw | None = None, **status: Any) -> Raw:
    """A Ready node with 64 CPUs and 256Gi."""
    allocatable = {"cpu": "64", "memory": "256Gi", "pods": "110"}
    if gpus:
        allocatable["nvidia.com/gpu"] = str(gpus)
    meta = made.metadata(name, uid=f"uid-{name}", labels=labels or {})
    found = made.node(meta, allocatable | status.pop("allocatable", {}))
    found["status"] |= status
    return found


def queue(name: str = "q", parent: str = "", *, quota: float = -1, **spec: Any) -> Raw:
    """A queue without limits."""
    quotas = dict.fromkeys(made.RESOURCES, quota)
    found = made.queue(made.metadata(name), made.shares(quotas, {}), parent)
    found["spec"] |= spec
    return found


def group(name: str = "g", *, namespace: str = "default", annotations: Raw | None = None, **spec: Any) -> Raw:
    """A pod group in queue ``q``."""
    meta = made.metadata(name, namespace, uid=f"uid-{name}", annotations=annotations or {})
    return made.group(meta, **{"queue": "q", **spec})


def pod(
    name: str = "p",
    *,
    namespace: str = "default",
    group: str | None = "g",
    node: str = "",
    phase: str = "",
    requests: Raw | None = None,
    annotations: Raw | None = None,
    labels: Raw | None = None,
    metadata: Raw | None = None,
    status: Raw | None = None,
    **spec: Any,
) -> Raw:
    """A pod that asks for one CPU and 1Gi; Running when it has a node."""
    notes = dict(annotations or {})
    if group is not None:
        notes["pod-group-name"] = group
    asked = {"cpu": "1", "memory": "1Gi"} if requests is None else requests
    meta = made.metadata(name, namespace, uid=f"uid-{name}", annotations=notes, labels=labels or {})
    found = made.pod(meta | (metadata or {}), asked, node=node, phase=phase, **spec)
    found["status"] |= status or {}
    return found


def snapshot(*, params: Raw | None = None, config: Raw | None = None, **lists: Any) -> Raw:
    """A raw snapshot with node ``n1``, queue ``q`` and pod group ``g``, unless others are given."""
    defaults = {"nodes": [node()], "queues": [queue()], "podGroups": [group()], "pods": []}
    raw: Raw = {"rawObjects": defaults | lists}
    if config is not None:
        raw["config"] = config
    raw["schedulerParams"] = {
        "schedulerName": "kai-scheduler",
        "fullHierarchyFairness": True,
        "stuckInReleasingThreshold": 120_000_000_000,
    } | (params or {})
    return raw
