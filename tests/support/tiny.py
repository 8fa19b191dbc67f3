"""Tiny worlds as Kubernetes objects, so that a test shows only what matters to it.

Every pod has a pod group of its own unless it names one. Pending pods are served in the order of the list,
because their pod groups were created in that order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kai_cp.raw_objects import shares as rows
from kai_cp.reader import parse
from kai_cp_models.snapshot import Snapshot
from tests.support import objects as raw
from tests.support.objects import Object

MIB_PER_GPU = 40_000
NONE: Mapping[str, Any] = {}
NOTHING: Mapping[str, float] = {"cpu": 0, "memory": 0, "gpu": 0}


def node(name: str = "n0", offers: Mapping[str, str] = NONE, *, gpus: int = 0,
    labels: Mapping[str, str] = NONE,
         taints: Sequence[Object] = (), conditions: Sequence[Object] = (),
         unschedulable: bool = False) -> Object:  # fmt: skip
    """A Ready node with 8 CPUs, 64Gi, 20 pod slots and what it ``offers``; GPUs have 40,000 MiB."""
    amounts = {"cpu": "8", "memory": "64Gi", "pods": "20"}
    if gpus:
        amounts["nvidia.com/gpu"] = str(gpus)
        labels = {"nvidia.com/gpu.memory": str(MIB_PER_GPU), "nvidia.com/gpu.count": str(gpus), **labels}
    made = raw.node(name, amounts | dict(offers), dict(labels))
    made["spec"] |= {"taints": list(taints), "unschedulable": unschedulable}
    made["status"]["conditions"] = [{"type": "Ready", "status": "True"}, *conditions]
    return made


def pod(name: str, on: str = "", *, requests: Mapping[str, str] | None = None, gpus: int = 0,
        labels: Mapping[str, str] = NONE, notes: Mapping[str, str] = NONE, group: str = "",
        queue: str = "q", priority: str = "train", state: str = "Running", shares: Sequence[str] = (),
        status: Mapping[str, Any] = NONE, **spec: Any) -> Object:  # fmt: skip
    """A pod of one CPU; it runs if it is ``on`` a node. ``shares``: ids of the shared GPUs it is on."""
    amounts = {"cpu": "1", "memory": "1Gi"} if requests is None else dict(requests)
    if gpus:
        amounts["nvidia.com/gpu"] = str(gpus)
    made = raw.pod("default", name, 0, amounts, group or name)
    made["metadata"]["labels"] = {"app": name, **labels}
    made["metadata"]["annotations"] |= dict(notes or {})
    made["spec"] |= spec
    made["status"] |= dict(status)
    made["belongs"] = {"queue": queue, "priorityClassName": priority}
    if on:
        raw.settle(made, on, list(shares), state)
    return made


def queue(name: str, parent: str = "top", *, quota: Mapping[str, float] = NONE,
    limit: Mapping[str, float] = NONE,
          **spec: Any) -> Object:  # fmt: skip
    """A queue; a resource that ``quota`` or ``limit`` omits is unlimited."""
    return raw.queue(name, parent or None, 9, rows(quota, limit), **spec)


def world(nodes: Sequence[Object], pods: Sequence[Object], *, user_label: str = "", **more: Any) -> Snapshot:
    """The snapshot of a cluster as it is read; ``more`` is of ``cluster``."""
    return parse(cluster(nodes, pods, **more), now=raw.NOW.timestamp(), user_label=user_label)


def cluster(nodes: Sequence[Object], pods: Sequence[Object], *, actions: str = "allocate",
            groups: Mapping[str, Object] = NONE, queues: Sequence[Object] = (),
            params: Mapping[str, Any] = NONE,
            plugins: Sequence[str] = (), minruntime: Mapping[str, str] = NONE,
            **lists: Sequence[Object]) -> Object:  # fmt: skip
    """The raw snapshot of a cluster.

    ``groups`` has more fields for the specs of pod groups, by name; ``annotations`` and ``labels`` among them
    go to the object's metadata. ``lists`` has further objects, named as in a snapshot.
    """
    owners: dict[str, Object] = {}
    for one in pods:
        owners.setdefault(one["metadata"]["annotations"]["pod-group-name"], one["belongs"])
    made = []
    for i, (name, spec) in enumerate(owners.items()):
        more = dict(groups.get(name, {}))
        annotations = more.pop("annotations", {})
        labels = more.pop("labels", {})
        made.append(raw.group("default", name, 1000 - i, {"minMember": 1} | spec | more, annotations))
        made[-1]["metadata"]["labels"] = labels
    config = raw.config(actions, spread=False, minruntime=dict(minruntime), proportion={})
    config["tiers"][0]["plugins"] += [{"name": name} for name in plugins]
    given = {"maxNumberConsolidationPreemptees": 16, "allowConsolidatingReclaim": True} | dict(params)
    return raw.snapshot(
        config,
        given,
        {
            "nodes": list(nodes),
            "queues": [queue("top", ""), *(queues or [queue("q")])],
            "podGroups": made,
            "pods": [{key: value for key, value in one.items() if key != "belongs"} for one in pods],
            **{name: list(objects) for name, objects in lists.items()},
        },
    )
