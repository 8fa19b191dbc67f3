"""Grouping of objects in files: simulates a cluster in memory, in the stages of the recorded cases."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Any, Final

from kai_cp.json_types import Json
from kai_cp.reader.fields import Malformed, bool_at, object_at, objects_at, strings_at, text_at
from kai_cp.workloads.defaults import KindDefaults, read_defaults
from kai_cp.workloads.grouper import reconcile
from kai_cp.workloads.items import GroupingError, Item, Reference, item_of
from kai_cp.workloads.karta import GROUP_LABEL, KIND_LABEL, VERSION_LABEL
from kai_cp.workloads.reads import Forbidden
from kai_cp.workloads.settings import GroupingSettings

BatchKey = tuple[str, str, str, str]
"""apiVersion, kind, namespace, name."""
SHIPPED_CLASSES: Final = ("train", "build-preemptible", "build", "inference")
GROUP_VERSION: Final = "scheduling.run.ai/v2alpha2"


class BatchObjects:
    """Objects by kind and name, with the reads that the grouper needs.

    ``options``: the spec of GroupingSettings; raises ``Malformed`` for a field of it that cannot be read.
    """

    def __init__(self, options: Json | None = None) -> None:
        options = options or {}
        self._items: dict[BatchKey, dict[str, Any]] = {}
        self._parsed: dict[BatchKey, tuple[Json, Item]] = {}
        self.pod_keys: list[BatchKey] = []
        where = object_at(options, "defaultPrioritiesConfigMap")
        self._defaults = ("v1", "ConfigMap", text_at(where, "namespace"), text_at(where, "name"))
        self._shipped = SHIPPED_CLASSES if bool_at(options, "defaultPriorityClasses", default=True) else ()
        self._karta = bool_at(options, "kartaInstalled")
        self._forbidden = {
            (text_at(entry, "group", "forbidden"), text_at(entry, "kind", "forbidden"))
            for entry in objects_at(options, "forbidden")
        }

    def apply(self, document: Json) -> None:
        """Create an object, or merge the document into it."""
        key = _key(document)
        if key in self._items:
            self._items[key] = merge_patch(self._items[key], document)
            return
        self._items[key] = deepcopy(dict(document))
        if key[:2] == ("v1", "Pod"):
            self.pod_keys.append(key)

    def patch(self, key: BatchKey, patch: Json) -> None:
        """Merge a patch into an existing object."""
        self._items[key] = merge_patch(self._items[key], patch)

    def all(self, api_version: str, kind: str) -> list[dict[str, Any]]:
        """Every object of a kind."""
        return [item for key, item in self._items.items() if key[:2] == (api_version, kind)]

    def item(self, key: BatchKey) -> Item | None:
        """An object as an item."""
        raw = self._items.get(key)
        if raw is None:
            return None
        known = self._parsed.get(key)
        if known is None or known[0] is not raw:
            known = self._parsed[key] = (raw, item_of(raw))
        return known[1]

    def owner(self, reference: Reference, namespace: str) -> Item | None:
        """An owner; Forbidden for kinds that the account may not read."""
        if (reference.group, reference.kind) in self._forbidden:
            raise Forbidden
        return self.whole(reference, namespace)

    def whole(self, reference: Reference, namespace: str) -> Item | None:
        """All of an object."""
        return self.item((reference.api_version, reference.kind, namespace, reference.name))

    def pod_group(self, namespace: str, name: str) -> Json | None:
        """A PodGroup. Raises ``GroupingError`` if a field that the grouper compares cannot be read."""
        raw = self._items.get((GROUP_VERSION, "PodGroup", namespace, name))
        return None if raw is None else _sound(raw)

    def pod_groups(self, namespace: str, prefix: str) -> Iterable[Json]:
        """PodGroups by the beginning of their names; errors as of :meth:`pod_group`."""
        for (version, kind, where, name), raw in self._items.items():
            if (version, kind, where) == (GROUP_VERSION, "PodGroup", namespace) and name.startswith(prefix):
                yield _sound(raw)

    def pods(self, namespace: str, labels: Mapping[str, str]) -> Iterable[Item]:
        """Pods by labels."""
        for key in self.pod_keys:
            try:
                pod = self.item(key) if key[2] == namespace else None
            except GroupingError:
                continue  # its own reconcile reports the fault
            if pod is not None and labels.items() <= pod.labels.items():
                yield pod

    def has_priority_class(self, name: str) -> bool:
        """Whether a PriorityClass exists or is built in."""
        return name in self._shipped or ("scheduling.k8s.io/v1", "PriorityClass", "", name) in self._items

    def namespace_labels(self, name: str) -> Mapping[str, str] | None:
        """Labels of a namespace."""
        found = self.item(("v1", "Namespace", "", name))
        return None if found is None else found.labels

    def kind_defaults(self) -> KindDefaults:
        """Defaults of the configured ConfigMap."""
        try:
            return read_defaults(self._items.get(self._defaults))
        except ValueError:
            return KindDefaults()

    def kartas(self, group: str, version: str, kind: str) -> Sequence[Item]:
        """Kartas labelled with a kind."""
        if not self._karta:
            return ()
        wanted = {GROUP_LABEL: group, VERSION_LABEL: version, KIND_LABEL: kind}
        items = [self.item(key) for key in self._items if key[:2] == ("run.ai/v1alpha1", "Karta")]
        return [item for item in items if item is not None and wanted.items() <= item.labels.items()]


def group_documents(documents: Sequence[Json], settings: GroupingSettings) -> dict[str, Any]:
    """The PodGroups, pods and errors after every stage; each stage reconciles every pod twice.

    Every document has a kind, and metadata with a name unless it is a Stage or GroupingSettings. Raises
    ``Malformed`` for GroupingSettings that cannot be read.
    """
    options: Json = {}
    if documents and documents[0].get("kind") == "GroupingSettings":
        options = object_at(documents[0], "spec")
        settings = _configured(settings, options)
        documents = documents[1:]
    objects = BatchObjects(options)
    errors: list[dict[str, Any]] = []
    stage = 1
    for document in documents:
        if document.get("kind") == "Stage":
            errors += group_pods(objects, settings, stage)
            stage += 1
        else:
            objects.apply(document)
    errors += group_pods(objects, settings, stage)
    groups = [
        {"metadata": _shown_metadata(raw["metadata"]), "spec": raw.get("spec") or {}}
        for raw in objects.all(GROUP_VERSION, "PodGroup")
    ]
    pods = [_shown_pod(item) for item in objects.all("v1", "Pod")]
    return {"podGroups": groups, "pods": pods, "errors": errors}


def group_pods(objects: BatchObjects, settings: GroupingSettings, stage: int = 1) -> list[dict[str, Any]]:
    """Reconcile every pod twice; returns the failures as ``pod``, ``stage`` and ``message``."""
    errors: dict[BatchKey, str] = {}
    for _round in range(2):
        errors.clear()
        for key in objects.pod_keys:
            try:
                _reconcile(objects, key, settings)
            except GroupingError as problem:
                errors[key] = str(problem)
    return [{"pod": f"{key[2]}/{key[3]}", "stage": stage, "message": text} for key, text in errors.items()]


def _reconcile(objects: BatchObjects, key: BatchKey, settings: GroupingSettings) -> None:
    pod = objects.item(key)
    if pod is None:
        return
    writes = reconcile(pod, objects, settings)
    group = (GROUP_VERSION, "PodGroup", pod.namespace, writes.group)
    if writes.create is not None:
        objects.apply({"apiVersion": GROUP_VERSION, "kind": "PodGroup", **writes.create})
    if writes.change is not None:
        objects.patch(group, writes.change)
    if writes.pod is not None:
        objects.patch(key, writes.pod)


def _configured(settings: GroupingSettings, options: Json) -> GroupingSettings:
    def said(key: str, default: Any, read: Callable[[Json, str], Any]) -> Any:
        return default if options.get(key) is None else read(options, key)

    return GroupingSettings(
        scheduler_name=said("schedulerName", settings.scheduler_name, text_at),
        queue_label_key=said("queueLabelKey", settings.queue_label_key, text_at),
        node_pool_label_key=said("nodePoolLabelKey", settings.node_pool_label_key, text_at),
        search_legacy_pod_groups=said("searchLegacyPodGroups", settings.search_legacy_pod_groups, bool_at),
        knative_gang_schedule=said("knativeGangSchedule", settings.knative_gang_schedule, bool_at),
        namespace_labels=said("namespaceLabelSelector", settings.namespace_labels, strings_at),
        pod_labels=said("podLabelSelector", settings.pod_labels, strings_at),
        kinds=settings.kinds,
    )


def _sound(group: Json) -> Json:
    """A PodGroup as an API server may have stored it: its labels are texts, its owners and spec objects."""
    found = item_of(group)
    try:
        object_at(group, "spec")
    except Malformed as problem:
        raise found.bad(problem.field, problem.problem) from None
    return group


def merge_patch(target: Any, patch: Any) -> Any:
    """JSON merge patch (RFC 7386)."""
    if not isinstance(patch, Mapping):
        return deepcopy(patch)
    result = dict(target) if isinstance(target, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge_patch(result.get(key), value)
    return result


def _key(document: Json) -> BatchKey:
    meta = document.get("metadata") or {}
    return (
        str(document.get("apiVersion") or ""),
        str(document.get("kind") or ""),
        str(meta.get("namespace") or ""),
        str(meta.get("name") or ""),
    )


def _shown_metadata(meta: Json) -> dict[str, Any]:
    keys = ("namespace", "name", "labels", "annotations", "ownerReferences")
    return {key: meta[key] for key in keys if meta.get(key)}


def _shown_pod(raw: Json) -> dict[str, Any]:
    meta = raw["metadata"]
    return {
        "namespace": meta.get("namespace") or "",
        "name": meta["name"],
        "labels": meta.get("labels") or {},
        "annotations": meta.get("annotations") or {},
    }
