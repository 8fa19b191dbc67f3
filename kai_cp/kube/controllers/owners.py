"""The live cluster as the pod grouper reads it, and which pods depend on each object that was read."""

from __future__ import annotations

import logging
import threading
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice, takewhile
from typing import Any, Final, NamedTuple

from kai_cp.json_types import Json, Object
from kai_cp.kube.api import resources as r
from kai_cp.kube.api import transforms as t
from kai_cp.kube.api.errors import ApiError, NotGranted
from kai_cp.kube.api.memory import Memory
from kai_cp.kube.api.outline import why_unread
from kai_cp.kube.api.resources import Resource
from kai_cp.kube.api.store import ObjectKey, Store, key_of
from kai_cp.kube.controllers.base import Context
from kai_cp.kube.controllers.served import Served
from kai_cp.workloads.defaults import KindDefaults, read_defaults
from kai_cp.workloads.items import GroupingError, Item, Reference, item_of
from kai_cp.workloads.karta import GROUP_LABEL, KIND_LABEL, VERSION_LABEL
from kai_cp.workloads.reads import Forbidden
from kai_cp.workloads.settings import GroupingSettings

LOG = logging.getLogger(__name__)
DEFAULTS_SECONDS: Final = 30.0
"""How old the ConfigMap of defaults may be."""
INDEXED: Final = (
    ("serving.knative.dev/revision",),
    ("training.kubeflow.org/job-name", "training.kubeflow.org/job-role"),
)
"""Labels by which pods of one workload are looked for."""
_KEPT: Final = 32
"""Owners of which the grouper keeps what it made for their pods; a tree of 10,000 subgroups has 2 MiB."""
_UNREAD: Final = frozenset(("containers", "initContainers", "volumes", "ephemeralContainers"))


class Seen(NamedTuple):
    """An object on which a pod's group depends."""

    group: str
    kind: str
    namespace: str
    name: str


class OwnerLookup:
    """Reads objects from watches where they exist, and by single requests otherwise.

    The first readable owner of a kind starts a watch of that kind, so a kind that is unused or not installed
    costs nothing. ``dependants`` is called with the objects that a change touched.
    """

    def __init__(
        self, context: Context, settings: GroupingSettings, dependants: Callable[[Seen], None], fields: str
    ) -> None:
        self._context = context
        self._settings = settings
        self._dependants = dependants
        self._served = Served(context.transport.raw)
        informers = context.informers
        self.pod_store = informers.store(r.PODS, transform=t.pod, fields=fields)
        self.group_store = informers.store(r.POD_GROUPS)
        self._classes = informers.store(r.PRIORITY_CLASSES)
        self._kartas = (
            informers.store(r.KARTAS, optional=True) if context.options.generic_karta_fallback else None
        )
        self._namespaces = (
            informers.store(r.NAMESPACES, metadata_only=True) if settings.namespace_labels else None
        )
        self._owners: dict[tuple[Resource, bool], Store] = {}
        self._lock = threading.Lock()
        self._items: Memory[tuple[Reference, str], Item] = Memory(_KEPT)
        self._labelled: dict[tuple[str, ...], dict[ObjectKey, Object]] = defaultdict(dict)
        self._named: dict[str, list[str]] = defaultdict(list)
        """Names of pod groups in order, by namespace."""
        self._defaults: tuple[float, KindDefaults] = (-DEFAULTS_SECONDS, KindDefaults())
        self.pod_store.listen(self._pod_changed)
        self.group_store.listen(self._group_changed)

    def owner(self, reference: Reference, namespace: str) -> Item | None:
        """At least the metadata of an owner."""
        return self._read(reference, namespace, whole=self._whole_wanted(reference))

    def whole(self, reference: Reference, namespace: str) -> Item | None:
        """All of an object."""
        return self._read(reference, namespace, whole=True)

    def pod_group(self, namespace: str, name: str) -> Json | None:
        """A PodGroup. GroupingError if only an outline of it is kept: it would be written for each pod."""
        found = self.group_store.find((namespace, name))
        if found is not None and (why := why_unread(found)):
            raise GroupingError(f"PodGroup {namespace}/{name}", "", why)
        return found

    def pod_groups(self, namespace: str, prefix: str) -> Iterable[Json]:
        """PodGroups by the beginning of their names."""
        with self._lock:
            names = self._named.get(namespace, [])
            first = bisect_left(names, prefix)
            found = list(takewhile(lambda name: name.startswith(prefix), islice(names, first, None)))
        groups = (self.group_store.get((namespace, name)) for name in found)
        return [group for group in groups if group is not None]

    def pods(self, namespace: str, labels: Mapping[str, str]) -> Iterable[Item]:
        """Pods by labels that are indexed together."""
        names = next(names for names in INDEXED if labels.keys() == set(names))
        with self._lock:
            found = list(self._labelled.get((namespace, *map(labels.__getitem__, names)), {}).values())
        for raw in found:
            try:
                yield item_of(raw, "v1", "Pod")
            except GroupingError:
                continue

    def has_priority_class(self, name: str) -> bool:
        """Whether a PriorityClass exists."""
        return self._classes.get(("", name)) is not None

    def namespace_labels(self, name: str) -> Mapping[str, str] | None:
        """Labels of a namespace."""
        found = self._namespaces.get(("", name)) if self._namespaces is not None else None
        return None if found is None else found["metadata"].get("labels") or {}

    def kind_defaults(self) -> KindDefaults:
        """Defaults by kind of the configured ConfigMap."""
        options = self._context.options
        name, namespace = (
            options.default_priorities_configmap_name,
            options.default_priorities_configmap_namespace,
        )
        if not name or not namespace:
            return KindDefaults()
        read, known = self._defaults
        now = time.monotonic()
        if now - read < DEFAULTS_SECONDS:
            return known
        try:
            known = read_defaults(self._context.transport.get(r.CONFIG_MAPS, namespace, name))
        except (ValueError, ApiError) as problem:
            LOG.warning(
                "the ConfigMap of defaults by kind cannot be used, so there are none: correct it",
                extra={"configmap": f"{namespace}/{name}", "error": str(problem)},
            )
            known = KindDefaults()
        self._defaults = (now, known)
        return known

    def kartas(self, group: str, version: str, kind: str) -> Sequence[Item]:
        """Kartas of a kind."""
        if self._kartas is None:
            return ()
        wanted = {GROUP_LABEL: group, VERSION_LABEL: version, KIND_LABEL: kind}
        found = []
        for raw in self._kartas.all():
            try:
                item = item_of(raw, r.KARTAS.api_version, r.KARTAS.kind)
            except GroupingError:
                continue
            if wanted.items() <= item.labels.items():
                found.append(item)
        return found

    def _whole_wanted(self, reference: Reference) -> bool:
        row = self._settings.kinds.of(reference.group, reference.version, reference.kind)
        if row is not None:
            return row.reads_all
        return bool(self.kartas(reference.group, reference.version, reference.kind))

    def _read(self, reference: Reference, namespace: str, *, whole: bool) -> Item | None:
        resource = self._served.resource(reference.api_version, reference.kind)
        if resource is None:
            return None
        key = (namespace if resource.namespaced else "", reference.name)
        # An account that may get a kind but not list it never learns of a change: it asks each time.
        store = self._store(resource, whole=whole) if self._context.informers.listed(resource) else None
        raw = store.find(key) if store is not None else None
        uid = reference.uid
        if raw is None or (uid and raw["metadata"].get("uid") != uid):
            raw = self._fetch(resource, key, whole=whole) or None
        if raw is None:
            return None
        if why := why_unread(raw):
            raise GroupingError(f"{reference.kind} {'/'.join(filter(None, key))}", "", why)
        return self._item(reference, key[0], raw)

    def _item(self, reference: Reference, namespace: str, raw: Object) -> Item:
        """The object; the same for all its pods, so that what is made of it is made once."""
        where = replace(reference, uid=""), namespace
        with self._lock:
            known = self._items.get(where)
        if known is None or known.raw is not raw:
            known = item_of(raw, reference.api_version, reference.kind)
            with self._lock:
                self._items.put(where, known)
        return known

    def _fetch(self, resource: Resource, key: ObjectKey, *, whole: bool) -> Object | None:
        """Read one object now, and watch its kind from now on."""
        try:
            raw = self._context.transport.get(resource, *key)
        except NotGranted:
            raise Forbidden from None
        except ApiError as error:
            if error.status == 403:
                raise Forbidden from None
            if error.status != 404:
                raise
            raw = None
        if raw is None:
            # The kind itself may be gone.
            self._served.forget(resource.api_version)
            return None
        if resource == r.PODS:
            return t.pod(raw)
        kept = None
        if self._context.transport.may("list", resource):
            store = self._follow(resource, whole=whole)
            store.put(raw, ours=True)
            kept = store.find(key)
        return kept or self._kept(resource, whole=whole)(raw)

    def _store(self, resource: Resource, *, whole: bool) -> Store | None:
        if resource == r.PODS:
            return self.pod_store
        with self._lock:
            return self._owners.get((resource, whole)) or (
                None if whole else self._owners.get((resource, True))
            )

    def _follow(self, resource: Resource, *, whole: bool) -> Store:
        store = self._store(resource, whole=whole)
        if store is not None:
            return store
        store = self._context.informers.store(
            resource, transform=self._kept(resource, whole=whole), metadata_only=not whole, optional=True
        )
        with self._lock:
            if (resource, whole) in self._owners:
                return store
            self._owners[resource, whole] = store
        LOG.info("owners are followed", extra={"resource": f"{resource.plural}.{resource.group}"})

        def changed(old: Object | None, new: Object | None) -> None:
            # Pods of a deleted owner are deleted soon, or stay in their group.
            if new is not None and (old is None or t.any_change(old, new)):
                self._dependants(Seen(resource.group, resource.kind, *key_of(new)))

        store.listen(changed)
        return store

    def _kept(self, resource: Resource, *, whole: bool) -> Callable[[Object], Object]:
        if not whole:
            return _metadata
        known = [
            row
            for row in self._settings.kinds.rows
            if (row.group, row.name) == (resource.group, resource.kind)
        ]
        if not known:
            return t.plain
        fields = [path.keys[1:] for row in known for path in row.paths if path.keys[0] == "status"]
        return partial(_with_spec, fields)

    def _pod_changed(self, old: Object | None, new: Object | None) -> None:
        with self._lock:
            for state, present in ((old, False), (new, True)):
                if state is None:
                    continue
                key = key_of(state)
                labels = state["metadata"].get("labels") or {}
                for names in INDEXED:
                    if not labels.keys() >= set(names):
                        continue
                    where = (key[0], *map(labels.__getitem__, names))
                    if present:
                        self._labelled[where][key] = state
                    elif (
                        self._labelled.get(where, {}).pop(key, None) is not None and not self._labelled[where]
                    ):
                        del self._labelled[where]

    def _group_changed(self, old: Object | None, new: Object | None) -> None:
        if old is not None and new is not None:
            return
        namespace, name = key_of(new if new is not None else old or {})
        with self._lock:
            names = self._named[namespace]
            at = bisect_left(names, name)
            there = at < len(names) and names[at] == name
            if new is not None and not there:
                names.insert(at, name)
            elif new is None and there:
                del names[at]
            if not names:
                del self._named[namespace]


class OwnerAnswer:
    """A cluster that remembers from which owners one pod's group was made."""

    def __init__(self, cluster: OwnerLookup) -> None:
        self._cluster = cluster
        self.seen: set[Seen] = set()
        self.pod_group = cluster.pod_group
        self.pod_groups = cluster.pod_groups
        self.pods = cluster.pods
        self.has_priority_class = cluster.has_priority_class
        self.namespace_labels = cluster.namespace_labels
        self.kind_defaults = cluster.kind_defaults
        self.kartas = cluster.kartas

    def owner(self, reference: Reference, namespace: str) -> Item | None:
        """At least the metadata of an owner."""
        self.seen.add(Seen(reference.group, reference.kind, namespace, reference.name))
        return self._cluster.owner(reference, namespace)

    def whole(self, reference: Reference, namespace: str) -> Item | None:
        """All of an object."""
        self.seen.add(Seen(reference.group, reference.kind, namespace, reference.name))
        return self._cluster.whole(reference, namespace)


def _metadata(item: Object) -> Object:
    return {"metadata": t.plain(item)["metadata"]}


def _with_spec(fields: Sequence[tuple[str, ...]], item: Object) -> Object:
    """The object with these fields of its status: the others change as its pods do, and change no group."""
    plain = t.plain(item)
    status = _parts(plain.get("status"), fields)
    return {**plain, "spec": _pruned(plain.get("spec")), "status": status}


def _parts(value: Any, fields: Sequence[tuple[str, ...]]) -> Any:
    """What the fields lead to in a value; one that is not an object stays, and its reader reports it."""
    if not isinstance(value, dict) or () in fields:
        return value
    inner: dict[str, list[tuple[str, ...]]] = defaultdict(list)
    for first, *rest in fields:
        inner[first].append(tuple(rest))
    return {key: _parts(value[key], rest) for key, rest in inner.items() if key in value}


def _pruned(value: Any) -> Any:
    """The object without its large, unread parts: the containers and volumes of pod templates."""
    if isinstance(value, dict):
        return {key: _pruned(inner) for key, inner in value.items() if key not in _UNREAD}
    return value if not isinstance(value, list) else [_pruned(inner) for inner in value]
