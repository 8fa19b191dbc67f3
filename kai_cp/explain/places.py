"""What pods hold beside their nodes: promised places, devices of claims, shared GPUs.

If a change ends a pod, or sends it back to wait, all of this becomes free. If a plan is carried out, its pods
hold it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Set
from typing import Any

from kai_cp.decisions import rfc3339
from kai_cp.explain.draft import Draft
from kai_cp.explain.raw import (
    group_of,
    key_of,
    labels_of,
    metadata,
    name_of,
    spec_of,
)
from kai_cp.json_types import Object
from kai_cp.keys import GPU_GROUP, LAST_EVICTION, LAST_START
from kai_cp_models.plan import Decision, Plan

_NOMINATED = "nominatedNodeName"


def end_pods(draft: Draft, gone: Set[str]) -> None:
    """Remove these pods with their own claims, and pod groups that lose their last pod."""
    _vacate(draft, gone)
    if draft.frees_devices:
        draft.keep("resourceClaims", lambda claim: _owner(claim) not in gone)
    draft.drop_pods(gone)


def end_groups(draft: Draft, gone: Set[str]) -> None:
    """Remove these pod groups with all their pods."""
    end_pods(draft, {key_of(pod) for pod in draft.objects("pods") if group_of(pod) in gone})
    draft.keep("podGroups", lambda group: key_of(group) not in gone)


def restart(draft: Draft, keys: Set[str]) -> None:
    """Let these pods wait again, as their controllers would create them."""
    _vacate(draft, keys)
    uids: dict[str, str] = {}
    for pod in draft.edit_all("pods", lambda pod: key_of(pod) in keys):
        head, status = pod["metadata"], pod.get("status") or {}
        pod["spec"].pop("nodeName", None)
        head.pop("deletionTimestamp", None)
        head["labels"] = {k: v for k, v in labels_of(pod).items() if not k.startswith(GPU_GROUP)}
        head["uid"] = uids[key_of(pod)] = str(head.get("uid") or "")[:-1] + "e"
        kept = {name: status[name] for name in ("resourceClaimStatuses",) if name in status}
        pod["status"] = {"phase": "Pending", "qosClass": status.get("qosClass", "Burstable"), **kept}
    # Claims of templates are made again, here under the same names.
    for claim in draft.edit_all("resourceClaims", lambda claim: _owner(claim) in uids):
        for row in claim["metadata"]["ownerReferences"]:
            row["uid"] = uids[_owner(claim)]


def carry_out(draft: Draft, plan: Plan) -> None:
    """Carry out a plan: bound pods run, evicted pods wait again, and the status of nominated pods names the
    node. The replacement of a moved pod is another pod and names no node."""
    at = rfc3339(draft.now)
    lost = {str(one.pod) for one in plan.decisions if one.kind == "Evict"}
    bound = {str(one.pod): one for one in plan.decisions if one.kind == "Bind" and str(one.pod) not in lost}
    stopped = {group_of(pod) for pod in draft.objects("pods") if key_of(pod) in lost}
    restart(draft, lost)
    promised = {str(one.pod): one.node for one in plan.decisions if one.kind == "Nominate"}
    _nominate(draft, {pod: node for pod, node in promised.items() if pod not in lost}, bound)
    stay = (pod for pod in draft.objects("pods") if "deletionTimestamp" not in metadata(pod))
    ordered = {_bound(request) for request in draft.objects("bindRequests")}
    placed = {group_of(pod) for pod in stay if spec_of(pod).get("nodeName") or key_of(pod) in ordered}
    started = set[str | None]()
    for pod in draft.edit_all("pods", lambda pod: key_of(pod) in bound):
        _start(draft, pod, bound[key_of(pod)], at)
        started.add(group_of(pod))
    for group in draft.edit_all("podGroups", lambda item: key_of(item) in started | stopped):
        notes = group["metadata"].setdefault("annotations", {})
        if key_of(group) in started - placed:
            notes[LAST_START] = at
        if key_of(group) in stopped:
            notes[LAST_EVICTION] = at


def _nominate(draft: Draft, to: Mapping[str, str], bound: Collection[str]) -> None:
    """Pods that wait name the nodes that are promised to them, and no others."""

    def changes(pod: Object) -> bool:
        waits = group_of(pod) is not None and not spec_of(pod).get("nodeName") and key_of(pod) not in bound
        return waits and (pod.get("status") or {}).get(_NOMINATED) != to.get(key_of(pod))

    for pod in draft.edit_all("pods", changes):
        kept = {name: value for name, value in (pod.get("status") or {}).items() if name != _NOMINATED}
        new = {_NOMINATED: to[key_of(pod)]} if key_of(pod) in to else {}
        pod["status"] = kept | new


def _start(draft: Draft, pod: Object, place: Decision, at: str) -> None:
    """Let a pod, which may be changed, run where the plan binds it; ``at``: since when."""
    pod["spec"]["nodeName"] = place.node
    pod["status"] = {**(pod.get("status") or {}), "phase": "Running", "startTime": at}
    labels = pod["metadata"].setdefault("labels", {})
    for name in place.gpu_groups:
        labels[GPU_GROUP if len(place.gpu_groups) == 1 else f"{GPU_GROUP}/{name}"] = name
    # The binder writes devices into the objects; until then, and here, the BindRequest has them.
    if place.details or len(place.gpu_groups) > 1:
        chosen = {"selectedGPUGroups": list(place.gpu_groups)} if place.gpu_groups else {}
        names = {"numaZones": "predictedNUMAZones"}
        details = {names.get(name, name): value for name, value in place.details.items()}
        head: Object = {name: pod["metadata"].get(name) for name in ("name", "namespace")}
        spec = {"podName": head["name"], "selectedNode": place.node, **chosen, **details}
        head["uid"] = f"bind-{head['name']}"
        request = {"metadata": head, "spec": spec, "status": {"phase": "Succeeded"}}
        draft.list_of("bindRequests").append(request)


def promised(draft: Draft, nodes: Collection[str]) -> set[str]:
    """Pods that have a BindRequest for one of the nodes."""
    requests = draft.objects("bindRequests")
    return {_bound(one) for one in requests if spec_of(one).get("selectedNode") in nodes}


def _vacate(draft: Draft, pods: Set[str]) -> None:
    draft.keep("bindRequests", lambda request: _bound(request) not in pods)
    if not draft.frees_devices:
        return
    for claim in draft.edit_all("resourceClaims", lambda claim: not pods.isdisjoint(_users(claim))):
        status = claim["status"]
        kept = zip(status["reservedFor"], list(_users(claim)), strict=True)
        status["reservedFor"] = [row for row, user in kept if user not in pods]
        if not status["reservedFor"]:
            status.pop("allocation", None)


def _bound(request: Object) -> str:
    """``namespace/name`` of the pod that a BindRequest is for."""
    return f"{key_of(request).split('/', 1)[0]}/{spec_of(request).get('podName') or name_of(request)}"


def _users(claim: Object) -> Iterator[str]:
    """``namespace/name`` of the pods that a claim is reserved for."""
    status = claim.get("status")
    rows: Any = status.get("reservedFor") if isinstance(status, dict) else None
    for row in rows if isinstance(rows, list) else ():
        yield f"{key_of(claim).split('/', 1)[0]}/{row.get('name') if isinstance(row, dict) else ''}"


def _owner(claim: Object) -> str:
    """``namespace/name`` of the pod that a claim was made for; "" of none."""
    rows: Any = metadata(claim).get("ownerReferences")
    for row in rows if isinstance(rows, list) else ():
        if isinstance(row, dict) and row.get("kind") == "Pod":
            return f"{key_of(claim).split('/', 1)[0]}/{row.get('name')}"
    return ""
