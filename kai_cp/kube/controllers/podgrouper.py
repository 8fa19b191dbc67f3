"""The pod grouper makes a pod group for every workload and writes its name on every pod (1)."""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

from kai_cp import keys
from kai_cp.json_types import Object
from kai_cp.kube.api import resources as r
from kai_cp.kube.api import transforms as t
from kai_cp.kube.api.api_objects import annotations_of
from kai_cp.kube.api.errors import ApiError
from kai_cp.kube.api.members import Members
from kai_cp.kube.api.store import ObjectKey, key_of
from kai_cp.kube.controllers.base import Context, NotYet, Want, changed
from kai_cp.kube.controllers.options import ControllerOptions, pairs
from kai_cp.kube.controllers.owners import OwnerAnswer, OwnerLookup, Seen
from kai_cp.workloads.chain import OwnerMissing
from kai_cp.workloads.grouper import Writes, reconcile
from kai_cp.workloads.items import GroupingError, Item, item_of
from kai_cp.workloads.kinds import load_kinds
from kai_cp.workloads.settings import GroupingSettings

LOG = logging.getLogger(__name__)
WARNING: Final = "PodGrouperWarning"
_LOCKS: Final = 64
_TRIES: Final = 4
"""How often a reconcile starts over when another program wrote at the same time."""


def grouping_settings(options: ControllerOptions) -> GroupingSettings:
    """Settings of the grouper from flags; ValueError names the flag or file that is wrong."""
    files = [Path(part) for part in options.workload_kinds.split(",") if part]
    return GroupingSettings(
        scheduler_name=options.scheduler_name,
        queue_label_key=options.queue_label_key,
        node_pool_label_key=options.nodepool_label_key,
        search_legacy_pod_groups=options.search_legacy_pg,
        knative_gang_schedule=options.knative_gang_schedule,
        namespace_labels=pairs(options.namespace_label_selector, "--namespace-label-selector"),
        pod_labels=pairs(options.pod_label_selector, "--pod-label-selector"),
        kinds=load_kinds(files),
    )


class PodGrouper:
    """Groups pods by their owners, and again when an owner changes."""

    settle_seconds = 0.0

    def __init__(self, context: Context) -> None:
        self.workers = context.options.max_concurrent_reconciles
        self._context = context
        self._settings = grouping_settings(context.options)
        self._fields = f"spec.schedulerName={context.options.scheduler_name}"
        self._cluster = OwnerLookup(context, self._settings, self._touched, self._fields)
        self._pods = self._cluster.pod_store
        self._groups = self._cluster.group_store
        self._members = Members(self._pods)
        self._depend: dict[Seen, set[ObjectKey]] = defaultdict(set)
        self._seen: dict[ObjectKey, frozenset[Seen]] = {}
        self._indexing = threading.Lock()
        self._locks = [threading.Lock() for _ in range(_LOCKS)]

    def wants(self) -> Sequence[Want]:
        """Pods, pod groups (a user may delete one), and the objects that decide about classes and kinds."""
        wants = [
            Want(r.PODS, changed(lambda pod: (key_of(pod),), _pod_change), t.pod, fields=self._fields),
            Want(r.POD_GROUPS, self._orphans),
            Want(r.PRIORITY_CLASSES, changed(self._everyone, t.never)),
        ]
        if self._context.options.generic_karta_fallback:
            wants.append(Want(r.KARTAS, changed(self._everyone), optional=True))
        if self._settings.namespace_labels:
            wants.append(Want(r.NAMESPACES, changed(self._inhabitants, _label_change), metadata_only=True))
        return wants

    def reconcile(self, key: ObjectKey, attempt: int) -> float | None:
        """Group one pod."""
        raw = self._pods.get(key)
        if raw is None:
            self._depends(key, frozenset())
            return None
        if raw["metadata"].get("deletionTimestamp") and keys.POD_GROUP in annotations_of(raw):
            return None
        looked = OwnerAnswer(self._cluster)
        try:
            pod = item_of(raw, "v1", "Pod")
            writes = reconcile(pod, looked, self._settings)
        except OwnerMissing as problem:
            if keys.POD_GROUP in annotations_of(raw):
                return None  # The owner was deleted: the pod is deleted soon, or stays in its group.
            self._refuse(raw, str(problem), attempt)
        except GroupingError as problem:
            self._refuse(raw, str(problem), attempt)
        finally:
            self._depends(key, frozenset(looked.seen))
        if not writes.nothing:
            self._carry_out(pod, raw, writes, attempt)
        self._tell(raw, writes)
        return None

    def _carry_out(self, pod: Item, raw: Object, writes: Writes, attempt: int) -> None:
        try:
            if writes.create is not None or writes.change is not None:
                self._write_group(pod)
            if writes.pod is not None:
                self._write_pod(pod, writes.pod)
        except GroupingError as problem:
            self._refuse(raw, str(problem), attempt)
        except ApiError as error:
            if error.reason == "NamespaceTerminating":
                return
            if error.status in (400, 403, 422):
                self._refuse(raw, f"PodGroup {pod.namespace}/{writes.group}: {error.message}", attempt)
            raise

    def _write_group(self, pod: Item) -> None:
        """Create or update the group; another of its pods may have done so meanwhile."""
        transport = self._context.transport
        for _ in range(_TRIES):
            writes = reconcile(pod, self._cluster, self._settings)
            if writes.create is None and writes.change is None:
                return
            namespace = pod.namespace
            with self._locks[hash((namespace, writes.group)) % _LOCKS]:
                writes = reconcile(pod, self._cluster, self._settings)
                if writes.create is not None:
                    try:
                        made = transport.create(r.POD_GROUPS, namespace, dict(writes.create))
                    except ApiError as error:
                        if error.status != 409:
                            raise
                        made = transport.get(r.POD_GROUPS, namespace, writes.group) or {}
                        if made:
                            self._groups.put(made, ours=True)
                        continue
                    self._groups.put(made, ours=True)
                elif writes.change is not None:
                    answer = transport.patch(r.POD_GROUPS, namespace, writes.group, dict(writes.change))
                    if answer is None:
                        stored = self._groups.get((namespace, writes.group))
                        if stored is not None:
                            self._groups.remove(stored, ours=True)
                        continue
                    self._groups.put(answer, ours=True)
                return
        raise NotYet(f"PodGroup {pod.namespace}: others write it at the same time")

    def _write_pod(self, pod: Item, patch: Any) -> None:
        body = {"metadata": {"uid": pod.uid, **patch["metadata"]}}  # never another pod of that name
        answer = self._context.transport.patch(r.PODS, pod.namespace, pod.name, body)
        if answer is not None:
            self._pods.put(answer, ours=True)

    def _refuse(self, raw: Object, message: str, attempt: int) -> NoReturn:
        """Write an event on the pod from the second failure on; the first may be a matter of arrival
        order.
        """
        if attempt:
            self._context.recorder.say(raw, r.PODS, "Warning", WARNING, message)
        raise NotYet(message)

    def _tell(self, raw: Object, writes: Writes) -> None:
        recorder = self._context.recorder
        for note in writes.notes:
            if not note.about_group:
                recorder.say(raw, r.PODS, "Warning", note.reason, note.text)
                continue
            group = self._groups.get((raw["metadata"].get("namespace") or "", writes.group))
            if group is not None:
                recorder.say(group, r.POD_GROUPS, "Normal", note.reason, note.text)

    def _depends(self, key: ObjectKey, seen: frozenset[Seen]) -> None:
        with self._indexing:
            before = self._seen.get(key, frozenset())
            for gone in before - seen:
                self._depend[gone].discard(key)
                if not self._depend[gone]:
                    del self._depend[gone]
            for new in seen - before:
                self._depend[new].add(key)
            if seen:
                self._seen[key] = seen
            else:
                self._seen.pop(key, None)

    def _touched(self, seen: Seen) -> None:
        """Reconcile the pods that were grouped by an owner that changed."""
        with self._indexing:
            keys = list(self._depend.get(seen, ()))
        if keys:
            self._context.enqueue(keys)

    def _orphans(self, old: Object | None, new: Object | None) -> Iterable[ObjectKey]:
        if old is None or new is not None:
            return ()
        return [key_of(pod) for pod in self._members.of(key_of(old))]

    def _everyone(self, _item: Object) -> Iterable[ObjectKey]:
        return [key_of(pod) for pod in self._pods.all()]

    def _inhabitants(self, namespace: Object) -> Iterable[ObjectKey]:
        name = namespace["metadata"]["name"]
        return [key_of(pod) for pod in self._pods.all() if pod["metadata"].get("namespace") == name]


def _pod_change(old: Object, new: Object) -> bool:
    return _view(old) != _view(new)


def _view(pod: Object) -> tuple[Any, ...]:
    meta, spec = pod["metadata"], pod["spec"]
    return (
        *(meta.get(key) for key in ("uid", "labels", "annotations", "ownerReferences", "deletionTimestamp")),
        spec.get("nodeName"),
        spec.get("priorityClassName"),
    )


def _label_change(old: Object, new: Object) -> bool:
    return bool(old["metadata"].get("labels") != new["metadata"].get("labels"))
