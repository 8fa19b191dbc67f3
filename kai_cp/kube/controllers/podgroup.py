"""The pod-group controller writes what the pods of a group request and hold into its status (3)."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from kai_cp import keys
from kai_cp.json_types import Object
from kai_cp.kube.api import resources as r
from kai_cp.kube.api import transforms as t
from kai_cp.kube.api.api_objects import annotations_of, labels_of
from kai_cp.kube.api.members import Members, groups_of
from kai_cp.kube.api.memory import Memory
from kai_cp.kube.api.store import ObjectKey, key_of
from kai_cp.kube.controllers.base import Context, Want, changed
from kai_cp.workloads.sums import FIELDS, GroupSums, is_preemptible

PROBLEM: Final = "PodGroupStatus"
NODE_SECONDS: Final = 300.0
"""How old the memory of a node's GPUs may be; it changes when the node is set up."""
REMEMBERED: Final = 20_000
"""Nodes; a pod may be created with the name of any, also of none."""
MOST_LOOKS: Final = 200
"""Nodes that one pass asks for; another pass follows. Each pod of a group may name another one."""
PAUSE_SECONDS: Final = 1.0
"""Until that pass; there is no end of them if the pods name more nodes than are remembered."""


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
        self._sums: dict[ObjectKey, GroupSums] = {}
        """By pod group: a look at a large one costs what changed since the last."""
        self._nodes: Memory[str, tuple[float, Mapping[str, str]]] = Memory(REMEMBERED)
        self._looking = threading.Lock()

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
            self._sums.pop(key, None)
            return None
        pods = self._members.keyed(key)
        on = {pod: name for pod, item in pods.items() if (name := _node_of(item))}
        if self._look_at_nodes(on.values()):
            return PAUSE_SECONDS
        sums = self._sums.setdefault(key, GroupSums())
        labels = {pod: self._nodes.get(name, (0.0, {}))[1] for pod, name in on.items()}
        for pod, problem in sums.update(pods, labels):
            words = f"{problem}; the rest of the pod is counted"
            self._context.recorder.say(pod, r.PODS, "Warning", PROBLEM, words)
        classes = {item["metadata"]["name"]: item for item in self._classes.all()}
        namespace = key[0]
        claims = {
            name: claim for name in sums.claims if (claim := self._claims.get((namespace, name))) is not None
        }
        preemptible = is_preemptible(group.get("spec") or {}, classes)
        status = sums.status(claims, preemptible=preemptible)
        before = (group.get("status") or {}).get("resourcesStatus") or {}
        patch = differing(before, status)
        if patch:
            body = {"status": {"resourcesStatus": patch}}
            answer = self._context.transport.patch(r.POD_GROUPS, *key, body, subresource="status")
            if answer is not None:
                self._groups.put(answer, ours=True)
        return None

    def _look_at_nodes(self, names: Iterable[str]) -> bool:
        """Read the labels of these nodes, which hold shares of GPU memory. Nodes are not watched because they
        change all the time. Whether more are to be read.
        """
        old = time.monotonic() - NODE_SECONDS
        unknown = [name for name in dict.fromkeys(names) if self._nodes.get(name, (-math.inf, {}))[0] < old]
        for name in unknown[:MOST_LOOKS]:
            found = self._context.transport.get(r.NODES, "", name)
            labels = {} if found is None else dict(labels_of(found))
            with self._looking:
                self._nodes.put(name, (time.monotonic(), labels))
        return len(unknown) > MOST_LOOKS

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


def _node_of(pod: Object) -> str:
    """The node on which the pod holds a share of GPU memory; "" for none."""
    return pod["spec"].get("nodeName") or "" if keys.GPU_MEMORY in annotations_of(pod) else ""


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
