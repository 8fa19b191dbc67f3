"""What is kept of an object, and which of its changes matter to a decision.

Fields of pods that no rule reads (images, commands, the values of variables) are dropped, as in KAI's own
snapshots. That saves memory and keeps confidential values out of snapshots.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import orjson

from kai_cp.json_types import Object
from kai_cp.keys import LAST_APPLIED

CONTAINER_KEYS: Final = ("name", "ports", "resources", "volumeMounts", "volumeDevices", "restartPolicy")
RESIZED_KEYS: Final = ("name", "allocatedResources", "resources")
FINISHED_SPEC: Final = frozenset({"nodeName", "schedulerName", "priorityClassName"})
FINISHED: Final = frozenset({"Succeeded", "Failed"})
NOISE: Final = frozenset({"managedFields", "selfLink"})
VOLATILE: Final = frozenset({"resourceVersion", "generation", "managedFields"})


def plain(item: Object) -> Object:
    """Any object without ``managedFields``."""
    meta = item["metadata"]
    annotations = meta.get("annotations")
    if annotations and LAST_APPLIED in annotations:
        meta = {**meta, "annotations": {k: v for k, v in annotations.items() if k != LAST_APPLIED}}
    if NOISE & meta.keys():
        meta = {key: value for key, value in meta.items() if key not in NOISE}
    return item if meta is item["metadata"] else {**item, "metadata": meta}


def pod(item: Object) -> Object:
    """A pod without what no rule reads; a finished one keeps its identity and group only."""
    item = plain(item)
    status = item.get("status") or {}
    meta = item["metadata"]
    if status.get("phase") in FINISHED:
        kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp")
        short = {key: meta[key] for key in (*kept, "annotations", "labels", "ownerReferences") if key in meta}
        spec = {key: value for key, value in item["spec"].items() if key in FINISHED_SPEC}
        return {"metadata": short, "spec": spec, "status": {"phase": status["phase"]}}
    spec = dict(item["spec"])
    for key in ("containers", "initContainers", "ephemeralContainers"):
        if key in spec:
            spec[key] = [container(entry) for entry in spec[key]]
    spec.pop("imagePullSecrets", None)
    result = {**item, "spec": spec}
    conditions = status.get("conditions")
    known = ("phase", "startTime", "nominatedNodeName", "resourceClaimStatuses", "qosClass", "reason")
    kept_status = {key: status[key] for key in (*known, "extendedResourceClaimStatus") if key in status}
    if conditions:
        kept_status["conditions"] = conditions
    result["status"] = kept_status | _resized(spec, status)
    return result


def _resized(spec: Mapping[str, Any], status: Mapping[str, Any]) -> Object:
    """The amounts of the containers for which the kubelet reports others than their specs ask for."""
    found = {}
    for kind, key in (("containers", "containerStatuses"), ("initContainers", "initContainerStatuses")):
        asked = {one.get("name"): _resizable(one.get("resources")) for one in spec.get(kind) or ()}
        rows = []
        for one in status.get(key) or ():
            told = [one["resources"]] if one.get("resources") is not None else []
            told += [{"requests": one["allocatedResources"]}] if one.get("allocatedResources") else []
            if any(_resizable(each) != asked.get(one.get("name")) for each in told):
                rows.append({name: one[name] for name in RESIZED_KEYS if name in one})
        if rows:
            found[key] = rows
    return found


def _resizable(resources: Mapping[str, Any] | None) -> tuple[Any, Any]:
    """What can be changed in place of a container's requests."""
    requests = (resources or {}).get("requests") or {}
    return requests.get("cpu"), requests.get("memory")


def container(item: Mapping[str, Any]) -> Object:
    """A container without image, command and the values of its variables; references stay."""
    result = {key: item[key] for key in CONTAINER_KEYS if key in item}
    variables = [entry for entry in item.get("env") or () if "valueFrom" in entry]
    if variables:
        result["env"] = variables
    if item.get("envFrom"):
        result["envFrom"] = item["envFrom"]
    return result


def claim(item: Object) -> Object:
    """A claim without what drivers report about its devices; parameters for drivers are kept as text.

    No rule reads parameters, but they become part of an allocation (:func:`with_parameters`).
    """
    item = plain(item)
    spec = item.get("spec") or {}
    if (spec.get("devices") or {}).get("config"):
        item = {**item, "spec": _with_devices(spec, _as_text)}
    status = item.get("status") or {}
    allocation = status.get("allocation") or {}
    if "devices" in status:
        status = {key: value for key, value in status.items() if key != "devices"}
    if (allocation.get("devices") or {}).get("config"):
        status = {**status, "allocation": _with_devices(allocation, _as_text)}
    return {**item, "status": status} if status is not item.get("status") and status else item


def bind_request(item: Object) -> Object:
    """A BindRequest that says which pod goes to which node.

    KAI's definition requires neither: an order without a pod is one for the pod of its name, as in snapshots,
    and the node "" does not exist.
    """
    item = plain(item)
    spec = item.get("spec") or {}
    return {**item, "spec": {"podName": item["metadata"]["name"], "selectedNode": "", **spec}}


def with_parameters(allocation: Mapping[str, Any]) -> Mapping[str, Any]:
    """An allocation whose parameters for drivers are objects again, as the API has them."""
    has = (allocation.get("devices") or {}).get("config")
    return _with_devices(allocation, _as_object) if has else allocation


def _with_devices(holder: Mapping[str, Any], change: Callable[[Any], Any]) -> Object:
    devices = holder["devices"]
    config = [_with_parameters(entry, change) for entry in devices["config"]]
    return {**holder, "devices": {**devices, "config": config}}


def _with_parameters(entry: Mapping[str, Any], change: Callable[[Any], Any]) -> Mapping[str, Any]:
    opaque = entry.get("opaque") or {}
    if "parameters" not in opaque:
        return entry
    return {**entry, "opaque": {**opaque, "parameters": change(opaque["parameters"])}}


def _as_text(parameters: Any) -> Any:
    """The parameters as JSON text; unchanged when they are nested too deep, which the store checks."""
    try:
        return orjson.dumps(parameters).decode()
    except TypeError:
        return parameters


def _as_object(parameters: Any) -> Any:
    return orjson.loads(parameters) if isinstance(parameters, str) else parameters


def node(item: Object) -> Object:
    """A node without its images and volumes in use."""
    item = plain(item)
    status = item.get("status") or {}
    dropped = {"images", "volumesInUse", "addresses", "daemonEndpoints", "nodeInfo"}
    if not dropped & status.keys():
        return item
    return {**item, "status": {key: value for key, value in status.items() if key not in dropped}}


def any_change(old: Object, new: Object) -> bool:
    """Whether anything but bookkeeping differs."""
    return _without_bookkeeping(old) != _without_bookkeeping(new)


def _without_bookkeeping(item: Object) -> Object:
    meta = {key: value for key, value in item["metadata"].items() if key not in VOLATILE}
    return {**item, "metadata": meta}


def pod_change(old: Object, new: Object) -> bool:
    """Whether a pod's place, phase or needs changed; conditions alone do not matter."""
    return _pod_view(old) != _pod_view(new)


def _pod_view(item: Object) -> Object:
    status = item.get("status") or {}
    meta = {key: value for key, value in item["metadata"].items() if key not in VOLATILE}
    claims = (status.get("resourceClaimStatuses"), status.get("nominatedNodeName"))
    return {
        "meta": meta,
        "spec": item["spec"],
        "phase": status.get("phase"),
        "claims": claims,
        "held": held_view(status),
    }


def held_view(status: Mapping[str, Any]) -> tuple[Any, ...]:
    """What decides how much a pod holds whose containers are resized."""
    statuses = [status.get(key) for key in ("containerStatuses", "initContainerStatuses")]
    resize = [
        one.get("reason") for one in status.get("conditions") or () if one["type"] == "PodResizePending"
    ]
    return (*statuses, resize if any(statuses) else None)


def node_change(old: Object, new: Object) -> bool:
    """Whether a node's capacity, labels, taints or health changed; heartbeats do not matter."""
    return _node_view(old) != _node_view(new)


def _node_view(item: Object) -> Object:
    status = item.get("status") or {}
    health = {entry["type"]: entry["status"] for entry in status.get("conditions") or ()}
    meta = {key: value for key, value in item["metadata"].items() if key not in VOLATILE}
    return {
        "meta": {key: meta.get(key) for key in ("labels", "annotations", "deletionTimestamp", "uid")},
        "spec": item.get("spec"),
        "allocatable": status.get("allocatable"),
        "health": health,
    }


def spec_change(old: Object, new: Object) -> bool:
    """Whether anything but the status of an object changed."""
    views = []
    for item in (old, new):
        view = {key: value for key, value in _without_bookkeeping(item).items() if key != "status"}
        views.append(view)
    return views[0] != views[1]


def request_change(old: Object, new: Object) -> bool:
    """Whether a BindRequest was changed or failed; its success shows in the pod."""
    if (new.get("status") or {}).get("phase") == "Failed" and new.get("status") != old.get("status"):
        return True
    return bool(old["spec"] != new["spec"])


def never(_old: Object, _new: Object) -> bool:
    """No change matters; only creation and deletion do."""
    return False
