"""API objects of decisions: BindRequests (9.1), events and conditions as plain objects."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from kai_cp import keys
from kai_cp.json_types import Object
from kai_cp.kube.api import resources
from kai_cp.kube.api.resources import Resource
from kai_cp.kube.api.transforms import with_parameters
from kai_cp.object_names import LONGEST_LABEL
from kai_cp.reader.nodes import gpu_memory_mib
from kai_cp.reader.pods import MOST_GRACE_SECONDS
from kai_cp.reader.requests import read_requests
from kai_cp.reader.shares import read_gpu
from kai_cp_models.plan import Decision
from kai_cp_models.pods import GpuKind, GpuRequest, GroupKey

MOST_MESSAGE: Final = 1024
"""The most letters of what a condition or an event says."""
RECEIVED: Final = {
    GpuKind.REGULAR: "Regular",
    GpuKind.FRACTION: "Fraction",
    GpuKind.MEMORY: "Fraction",
    GpuKind.MIG: "MigInstance",
}
"""``receivedResourceType`` by how a pod asks (2.2)."""
NOMINATED: Final = "nominatedNodeName"
DEFAULT_GRACE_SECONDS: Final = 30.0
"""Of a pod that states none, as in Kubernetes."""


def rfc3339(seconds: float) -> str:
    """Time as the API writes it: UTC, whole seconds."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def owner(item: Mapping[str, Any], resource: Resource) -> Object:
    """Owner reference to an object, so that its dependents are deleted with it."""
    meta = item["metadata"]
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "name": meta["name"],
        "uid": meta["uid"],
    }


def annotations_of(item: Mapping[str, Any]) -> Mapping[str, str]:
    """Annotations of an object; none is an empty mapping."""
    return item["metadata"].get("annotations") or {}


def group_of(pod: Object) -> GroupKey:
    """The pod group that a pod names."""
    return GroupKey(pod["metadata"].get("namespace") or "", annotations_of(pod).get(keys.POD_GROUP, ""))


def labels_of(item: Mapping[str, Any]) -> Mapping[str, str]:
    """Labels of an object; none is an empty mapping."""
    return item["metadata"].get("labels") or {}


def shorter_grace(pod: Mapping[str, Any]) -> int | None:
    """The grace period, in seconds, that an eviction states because the pod's own is too long (9.6); None:
    its own holds."""
    own = pod["spec"].get("terminationGracePeriodSeconds")
    return MOST_GRACE_SECONDS if isinstance(own, int) and own > MOST_GRACE_SECONDS else None


def grace_seconds(pod: Mapping[str, Any]) -> float:
    """How long an evicted pod may take to end."""
    own = pod["spec"].get("terminationGracePeriodSeconds", DEFAULT_GRACE_SECONDS)
    return float(shorter_grace(pod) or own)


def nominated_to(pod: Object) -> str:
    """The node that the status of a pod names; "" for none."""
    return str((pod.get("status") or {}).get(NOMINATED) or "")


def nominated(pod: Object, node: str) -> Object:
    """The pod with a status that names the node."""
    meta = pod["metadata"]
    # What is read of an object is kept by its version.
    version = f"{meta.get('resourceVersion', '')}-{NOMINATED}={node}"
    status = {**(pod.get("status") or {}), NOMINATED: node}
    return {**pod, "metadata": {**meta, "resourceVersion": version}, "status": status}


def limits(pod: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Resource requests of the pod's containers, limits standing in for requests that are not given."""
    found: list[Mapping[str, Any]] = []
    for container in [*(pod["spec"].get("containers") or ()), *(pod["spec"].get("initContainers") or ())]:
        needs = container.get("resources") or {}
        found.append({**(needs.get("limits") or {}), **(needs.get("requests") or {})})
    return found


def gpu_request(pod: Mapping[str, Any]) -> GpuRequest:
    """How a pod asks for GPUs, read by the same rules as for its decision; raises ``Malformed``."""
    amounts, _ = read_requests(pod["spec"])
    return read_gpu(annotations_of(pod), amounts)


def received_gpu(asked: GpuRequest, node: Mapping[str, Any] | None) -> Object:
    """``receivedGPU`` of a pod on a node: number of devices, and the portion of each with two decimals."""
    hundredths = 100
    if asked.kind is GpuKind.FRACTION:
        hundredths = asked.milli_portion // 10
    elif asked.kind is GpuKind.MEMORY:
        memory = gpu_memory_mib(labels_of(node).get(keys.GPU_MEMORY_LABEL, "")) if node is not None else 0
        # Rounded up, as it is charged (2.2): a share is never smaller than what was asked for.
        hundredths = -(-100 * asked.memory_mib // memory) if memory else 0
    return {"count": asked.devices, "portion": f"{hundredths / 100:.2f}"}


def bind_request(
    pod: Mapping[str, Any],
    node: Mapping[str, Any] | None,
    decision: Decision,
    pool: tuple[str, str] | None = None,
) -> Object:
    """The BindRequest of a ``Bind`` decision (9.1). ``pool``: node-pool label and value of the shard."""
    meta = pod["metadata"]
    asked = gpu_request(pod)
    # For people: a node whose name is too long for a label has none.
    labels = {keys.SELECTED_NODE: decision.node} if len(decision.node) <= LONGEST_LABEL else {}
    if pool is not None and pool[0] and pool[1]:
        labels[pool[0]] = pool[1]
    spec: Object = {
        "podName": meta["name"],
        "selectedNode": decision.node,
        "receivedResourceType": RECEIVED[asked.kind],
        "receivedGPU": received_gpu(asked, node),
    }
    if decision.gpu_groups:
        spec["selectedGPUGroups"] = list(decision.gpu_groups)
    for theirs, ours in (
        ("resourceClaimAllocations", "resourceClaimAllocations"),
        ("extendedResourceClaimAllocation", "extendedResourceClaimAllocation"),
        ("predictedNUMAZones", "numaZones"),
    ):
        value = decision.details.get(ours)
        if value:
            spec[theirs] = value
    if "resourceClaimAllocations" in spec:
        spec["resourceClaimAllocations"] = [_allocated(entry) for entry in spec["resourceClaimAllocations"]]
    extended = spec.get("extendedResourceClaimAllocation")
    if extended:
        mappings = container_mappings(pod, extended.get("containerMappings") or ())
        spec["extendedResourceClaimAllocation"] = {**_allocated(extended), "containerMappings": mappings}
    return {
        "apiVersion": resources.BIND_REQUESTS.api_version,
        "kind": resources.BIND_REQUESTS.kind,
        "metadata": {
            "name": meta["name"],
            "namespace": meta["namespace"],
            "labels": labels,
            "ownerReferences": [owner(pod, resources.PODS)],
        },
        "spec": spec,
    }


def _allocated(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    allocation = entry.get("allocation")
    return {**entry, "allocation": with_parameters(allocation)} if allocation else entry


def container_mappings(pod: Mapping[str, Any], mappings: Sequence[Mapping[str, Any]]) -> list[Object]:
    """Which container takes which device request: the engine names resource and request; the container is
    found here.
    """
    found: list[Object] = []
    for mapping in mappings:
        if "containerName" in mapping:
            found.append(dict(mapping))
            continue
        for container in [*(pod["spec"].get("initContainers") or ()), *pod["spec"]["containers"]]:
            needs = container.get("resources") or {}
            if mapping["resourceName"] in {**(needs.get("limits") or {}), **(needs.get("requests") or {})}:
                found.append({"containerName": container["name"], **mapping})
    return found


def failed_for_good(request: Mapping[str, Any]) -> bool:
    """Whether a BindRequest will not be tried again (1.3); the default limit allows no failure."""
    status = request.get("status") or {}
    if status.get("phase") != "Failed":
        return False
    limit = request["spec"].get("backoffLimit")
    return limit is None or int(status.get("failedAttempts") or 0) >= int(limit)


def finished(request: Mapping[str, Any]) -> bool:
    """Whether a BindRequest needs no further work: it succeeded, or failed for good."""
    phase = (request.get("status") or {}).get("phase")
    return phase == "Succeeded" or failed_for_good(request)


def belongs_to(request: Mapping[str, Any], pod: Mapping[str, Any]) -> bool:
    """Whether a BindRequest was made for this pod, and not for an earlier pod of its name."""
    owners = request["metadata"].get("ownerReferences") or ()
    uids = [entry.get("uid") for entry in owners if entry.get("kind") == "Pod"]
    return not uids or pod["metadata"].get("uid") in uids


def event(
    about: Mapping[str, Any],
    resource: Resource,
    *,
    kind: str,
    reason: str,
    message: str,
    component: str,
    now: float,
    annotations: Mapping[str, str] | None = None,
) -> Object:
    """An event about an object. Events with equal content have equal names, so each is written only once."""
    meta = about["metadata"]
    namespace = meta.get("namespace") or "default"
    content = "\0".join([meta.get("uid", ""), kind, reason, message, component])
    digest = hashlib.sha256(content.encode()).hexdigest()[:16]
    stamp = rfc3339(now)
    # A part of a name ends with a letter or a digit.
    header: Object = {"name": f"{meta['name'][:220].rstrip('-.')}.{digest}", "namespace": namespace}
    if annotations:
        header["annotations"] = dict(annotations)
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": header,
        "involvedObject": {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "name": meta["name"],
            "namespace": meta.get("namespace") or "",
            "uid": meta.get("uid", ""),
        },
        "type": kind,
        "reason": reason,
        "message": message[:MOST_MESSAGE],
        "source": {"component": component},
        "firstTimestamp": stamp,
        "lastTimestamp": stamp,
        "count": 1,
    }


def condition_patch(pod: Object, kind: str, status: str, reason: str, message: str, *, now: float) -> Object:
    """The strategic patch that sets one condition of this pod, and of no later one of its name."""
    entry = {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message[:MOST_MESSAGE],
        "lastTransitionTime": rfc3339(now),
    }
    return {"metadata": {"uid": pod["metadata"]["uid"]}, "status": {"conditions": [entry]}}


def condition(conditions: Sequence[Mapping[str, Any]] | None, kind: str) -> Mapping[str, Any] | None:
    """The condition of a type, or None."""
    return next((entry for entry in conditions or () if entry.get("type") == kind), None)
