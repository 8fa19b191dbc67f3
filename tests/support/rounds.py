"""The snapshot after a plan, once binder, kubelets and controllers have acted on it."""

from __future__ import annotations

import copy

from kai_cp_models.plan import Plan
from kai_cp_models.snapshot import Snapshot
from tests.support import objects as raw
from tests.support.objects import Object

_START = "kai.scheduler/last-start-timestamp"
_STALE = "kai.scheduler/stale-podgroup-timestamp"


def advance(cluster: Object, snapshot: Snapshot, plan: Plan) -> Object:
    """The next raw snapshot. Bound pods run; releasing and evicted pods return as pending pods of the
    same name; nominations are dropped. Ages stay the same, so that only places change.
    """
    after = copy.deepcopy(cluster)
    objects = after["rawObjects"]
    bound = {(d.pod.namespace, d.pod.name): d for d in plan.decisions if d.kind == "Bind"}
    gone = {(d.pod.namespace, d.pod.name) for d in plan.decisions if d.kind == "Evict"}
    old = {(r["metadata"]["namespace"], r["spec"]["podName"]): r for r in objects["bindRequests"]}
    stuck = {p.key for p in snapshot.pods if p.status.value == "StuckInReleasing"}
    requests: list[Object] = []
    for pod in objects["pods"]:
        meta = pod["metadata"]
        key = (meta["namespace"], meta["name"])
        if key in bound:
            request = raw.settle(pod, bound[key].node, list(bound[key].gpu_groups), "Running")
            if request is not None:
                requests.append(request)
        elif key in gone or ("deletionTimestamp" in meta and key not in stuck):
            _come_back(pod)
        elif key in old:
            request = old[key]
            groups = list(request["spec"]["selectedGPUGroups"])
            if request["status"]["phase"] == "Pending":
                request = raw.settle(pod, request["spec"]["selectedNode"], groups, "Running")
            if request is not None:
                requests.append(request)
        elif pod["spec"].get("nodeName") and pod["status"]["phase"] == "Pending":
            pod["status"]["phase"] = "Running"
    objects["bindRequests"] = requests
    _stamp(objects)
    return after


def _come_back(pod: Object) -> None:
    meta = pod["metadata"]
    for field in ("deletionTimestamp", "deletionGracePeriodSeconds"):
        meta.pop(field, None)
    for label in [x for x in meta["labels"] if x.startswith("runai-gpu-group")]:
        del meta["labels"][label]
    pod["spec"].pop("nodeName", None)
    pod["status"] = {"phase": "Pending"}


def _stamp(objects: Object) -> None:
    """Update start and stale timestamps for the running pods, and reservation pods for their GPU groups."""
    running = {
        (p["metadata"]["namespace"], p["metadata"]["annotations"].get("pod-group-name"))
        for p in objects["pods"]
        if p["spec"].get("nodeName")
    }
    for group in objects["podGroups"]:
        notes = group["metadata"]["annotations"]
        if (group["metadata"]["namespace"], group["metadata"]["name"]) in running:
            notes.setdefault(_START, raw.ago(60))
        else:
            notes.pop(_START, None)
            notes.pop(_STALE, None)
    used = {x for p in objects["pods"] for k, x in p["metadata"]["labels"].items() if _names_device(p, k)}
    objects["pods"] = [
        p
        for p in objects["pods"]
        if p["metadata"]["labels"].get("app") != "kai-resource-reservation"
        or p["metadata"]["labels"]["runai-gpu-group"] in used
    ]


def _names_device(pod: Object, label: str) -> bool:
    reserves = pod["metadata"]["labels"].get("app") == "kai-resource-reservation"
    return label.startswith("runai-gpu-group") and not reserves
