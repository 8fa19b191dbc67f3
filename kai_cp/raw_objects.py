"""Raw Kubernetes and KAI objects: generators, the simulator, benchmarks and tests build snapshots of them.

Each function gives the object that an API server would show, and leaves the sizes to its caller.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from kai_cp.json_types import Object

NOW: Final = datetime(2026, 11, 20, 12, 0, 0, tzinfo=UTC)
"""The time as of which generated snapshots are read."""

PRIORITIES: Final = {"train": 50, "build-preemptible": 75, "build": 100, "inference": 125}
"""Priority classes that KAI installs; 100 and above is not preemptible (1.3)."""

RESOURCES: Final = ("cpu", "memory", "gpu")
"""What queues divide."""

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
_PARAMS: Final[Mapping[str, Any]] = {
    "schedulerName": "kai-scheduler",
    "partitionParams": {"NodePoolLabelKey": "", "NodePoolLabelValue": ""},
    "useSchedulingSignatures": True,
    "fullHierarchyFairness": True,
    "numOfStatusRecordingWorkers": 5,
    "globalDefaultStalenessGracePeriod": 60_000_000_000,
    "schedulePeriod": 1_000_000_000,
    "stuckInReleasingThreshold": 120_000_000_000,
    "queueLabelKey": "kai.scheduler/queue",
}


def stamp(when: datetime) -> str:
    """RFC 3339 time stamp in whole seconds."""
    return when.strftime("%Y-%m-%dT%H:%M:%SZ")


def ago(seconds: float) -> str:
    """Time stamp ``seconds`` before ``NOW``."""
    return stamp(NOW - timedelta(seconds=seconds))


def metadata(name: str, namespace: str | None = None, *, uid: str = "", **more: Any) -> Object:
    """The identity of an object, and those fields of ``more`` that are not None."""
    where = {} if namespace is None else {"namespace": namespace}
    said = {key: value for key, value in more.items() if value is not None}
    return {"name": name, **where, "uid": uid or name, **said}


def node(meta: Object, amounts: Mapping[str, str]) -> Object:
    """A Ready node with these amounts of each resource."""
    return {
        "metadata": meta,
        "spec": {},
        "status": {
            "capacity": dict(amounts),
            "allocatable": dict(amounts),
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def shares(quota: Mapping[str, float], limit: Mapping[str, float]) -> Object:
    """Rows of a queue of weight 1; resources that ``quota`` and ``limit`` do not name have no bound (-1)."""
    return {
        name: {"quota": quota.get(name, -1), "limit": limit.get(name, -1), "overQuotaWeight": 1}
        for name in RESOURCES
    }


def queue(meta: Object, resources: Object, parent: str | None = None, **spec: Any) -> Object:
    """A queue."""
    above = {} if parent is None else {"parentQueue": parent}
    return {"metadata": meta, "spec": {**spec, "resources": resources, **above}, "status": {}}


def group(meta: Object, **spec: Any) -> Object:
    """A pod group."""
    return {"metadata": meta, "spec": spec, "status": {}}


def pod(meta: Object, requests: Mapping[str, str], *, node: str = "", phase: str = "", **spec: Any) -> Object:
    """A pod with one container; it runs if it has a node, unless ``phase`` says otherwise."""
    place = {"nodeName": node} if node else {}
    return {
        "metadata": meta,
        "spec": {
            "schedulerName": "kai-scheduler",
            "containers": [{"name": "main", "resources": {"requests": dict(requests)}}],
            **spec,
            **place,
        },
        "status": {"phase": phase or ("Running" if node else "Pending")},
    }


def topology(name: str, levels: Iterable[Object]) -> Object:
    """A topology, its levels from the widest to the narrowest."""
    return {"metadata": {"name": name}, "spec": {"levels": list(levels)}}


def config(actions: str, plugins: Iterable[str], arguments: Mapping[str, Mapping[str, str]]) -> Object:
    """The scheduler's configuration: actions in order, and plugins, some of which have arguments."""
    tier = [
        {"name": name, **({"arguments": dict(arguments[name])} if arguments.get(name) else {})}
        for name in plugins
    ]
    return {"actions": actions, "tiers": [{"plugins": tier}]}


def snapshot(
    lists: Mapping[str, Sequence[Object] | None],
    config: Object,
    params: Mapping[str, Any],
    priorities: Mapping[str, int] = PRIORITIES,
) -> Object:
    """The snapshot document: kinds that ``lists`` leaves out are empty, ``params`` replace KAI's defaults."""
    classes = [{"metadata": {"name": name}, "value": value} for name, value in priorities.items()]
    return {
        "config": config,
        "schedulerParams": {**_PARAMS, **params},
        "rawObjects": {**{name: [] for name in _LISTS}, "priorityClasses": classes, **lists},
    }
