"""The pod-group controller writes what the pods of a group request and hold into its status (3)."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from kai_cp.json_types import Object
from kai_cp.kube.api import names
from kai_cp.kube.api import resources as r
from kai_cp.kube.api import transforms as t
from kai_cp.kube.api.api_objects import annotations_of, labels_of
from kai_cp.kube.api.members import Members, groups_of
from kai_cp.kube.api.store import ObjectKey, key_of
from kai_cp.kube.controllers.base import Context, Want, changed
from kai_cp.workloads.sums import FIELDS, Usage, group_status, is_preemptible, usage_of

PROBLEM: Final = "PodGroupStatus"
NODE_SECONDS: Final = 300.0
"""How old the memory of a node's GPUs may be; it changes when the node is set up."""


class PodGroupController:
    """Keeps ``status.resourcesStatus`` of every pod group."""

    settle_seconds = 0.5

    def __init__(self, context: Context) -> None:
        self.workers = context.options.max_concurrent_reconciles
        self._context = context
        self._fields = f"spec.schedulerName={context.options.scheduler_name}"
        informers = context.informers
        self._groups = informers.store(r.POD_GROUPS)
        self._pods = informers.store(r.PODS, transform=t.pod, fields=self._fields)
        self._classes = informers.store(r.PRIORITY_CLASSES)
        self._claims = informers.store(r.RESOURCE_CLAIMS, optional=True)
        self._members = Members(self._pods)
        self._nodes: dict[str, tuple[float, Mapping[str, str]]] = {}

    def wants(self) -> Sequence[Want]:
        """Pod groups and their pods, and the classes and claims that change what a pod counts for."""
        return (
            Want(r.POD_GROUPS, changed(lambda group: (key_of(group),), _group_change)),
            Want(r.PODS, changed(groups_of, _pod_change), transform=t.pod, fields=self._fields),
            Want(r.PRIORITY_CLASSES, changed(self._groups_of_class)),
            Want(r.RESOURCE_CLAIMS, changed(self._groups_of_claim), optional=True),
        )

    def reconcile(self, key: ObjectKey, attempt: int) -> float | None:
        """Write the sums of one group if they differ from its status."""
        group = self._groups.get(key)
        if group is None:
            return None
        usages = [self._usage(pod) for pod in self._members.of(key)]
        classes = {item["metadata"]["name"]: item for item in self._classes.all()}
        namespace = key[0]
        wanted = {name for usage in usages for name in usage.claims}
        claims = {
            name: claim for name in wanted if (claim := self._claims.get((namespace, name))) is not None
        }
        preemptible = is_preemptible(group.get("spec") or {}, classes)
        status = group_status(usages, claims, preemptible=preemptible)
        before = (group.get("status") or {}).get("resourcesStatus") or {}
        patch = differing(before, status)
        if patch:
            body = {"status": {"resourcesStatus": patch}}
            answer = self._context.transport.patch(r.POD_GROUPS, *key, body, subresource="status")
            if answer is not None:
                self._groups.put(answer, ours=True)
        return None

    def _usage(self, pod: Object) -> Usage:
        node = pod["spec"].get("nodeName")
        shares_memory = names.GPU_MEMORY in annotations_of(pod)
        usage = usage_of(pod, self._node_labels(node) if node and shares_memory else {})
        if usage.problem:
            self._context.recorder.say(
                pod, r.PODS, "Warning", PROBLEM, f"{usage.problem}; the rest of the pod is counted"
            )
        return usage

    def _node_labels(self, name: str) -> Mapping[str, str]:
        """Labels of a node that holds shares of GPU memory. Nodes are not watched because they change all the
        time.
        """
        read, labels = self._nodes.get(name, (-NODE_SECONDS, {}))
        now = time.monotonic()
        if now - read >= NODE_SECONDS:
            found = self._context.transport.get(r.NODES, "", name)
            labels = {} if found is None else dict(labels_of(found))
            known = {node: seen for node, seen in self._nodes.items() if now - seen[0] < NODE_SECONDS}
            self._nodes = {**known, name: (now, labels)}
        return labels

    def _groups_of_class(self, priority_class: Object) -> Iterable[ObjectKey]:
        name = priority_class["metadata"]["name"]
        every = bool(priority_class.get("globalDefault"))
        for group in self._groups.all():
            if every or (group.get("spec") or {}).get("priorityClassName") == name:
                yield key_of(group)

    def _groups_of_claim(self, claim: Object) -> Iterable[ObjectKey]:
        holders = (claim.get("status") or {}).get("reservedFor") or ()
        for holder in holders:
            pod = self._pods.get((claim["metadata"]["namespace"], holder.get("name") or ""))
            if pod is not None:
                yield from groups_of(pod)


def differing(before: Any, wanted: dict[str, dict[str, str]]) -> dict[str, Any]:
    """The merge patch from one status of resource lists to another; empty when they are equal."""
    found: dict[str, Any] = {}
    for field in FIELDS:
        old, new = before.get(field) or {}, wanted[field]
        if old != new:
            found[field] = {**dict.fromkeys(old.keys() - new.keys()), **new}
    return found


def _pod_change(old: Object, new: Object) -> bool:
    return _view(old) != _view(new)


def _view(pod: Object) -> tuple[Any, ...]:
    status = pod.get("status") or {}
    scheduled = [c.get("status") for c in status.get("conditions") or () if c.get("type") == "PodScheduled"]
    return (
        pod["metadata"].get("annotations"),
        pod["spec"],
        status.get("phase"),
        scheduled,
        status.get("resourceClaimStatuses"),
        t.held_view(status),
    )


def _group_change(old: Object, new: Object) -> bool:
    """Whether the group's spec changed, or its sums, which another program may have overwritten."""
    sums = [(item.get("status") or {}).get("resourcesStatus") for item in (old, new)]
    return sums[0] != sums[1] or t.spec_change(old, new)
