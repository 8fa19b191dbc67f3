"""The queue controller writes what each queue requests and holds into its status and KAI's metrics (4)."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Final

from prometheus_client import CollectorRegistry, Gauge

from kai_cp.json_types import Object
from kai_cp.kube.api import resources as r
from kai_cp.kube.api.store import ObjectKey, Store, key_of
from kai_cp.kube.controllers.base import Context, Want, changed
from kai_cp.kube.controllers.options import ControllerOptions, metric_labels
from kai_cp.kube.controllers.podgroup import differing
from kai_cp.workloads.sums import FIELDS, Sum, add, gpus_of, parsed, queue_of, resource_list, shortened

_DEEPEST: Final = 64
_MEGABYTE: Final = 1e6
_DIGITS: Final = 4


class QueueController:
    """Keeps the ``status`` of every queue: its children, and the sums over all pod groups below it."""

    workers = 1
    settle_seconds = 0.3

    def __init__(self, context: Context) -> None:
        self._context = context
        self._queues = context.informers.store(r.QUEUES)
        self._groups = context.informers.store(r.POD_GROUPS)
        self._sums = Sums(self._groups)
        self._metrics = QueueMetrics(context.registry, context.options)

    def wants(self) -> Sequence[Want]:
        """Queues, and pod groups, which touch both the queue they name and the one they leave."""
        return (
            Want(r.QUEUES, self._queue_keys),
            Want(r.POD_GROUPS, changed(lambda group: self._line(queue_of(group)), _group_change)),
        )

    def reconcile(self, key: ObjectKey, attempt: int) -> float | None:
        """Write the status of one queue if it changed, and its metrics."""
        queue = self._queues.get(key)
        if queue is None:
            self._metrics.forget(key[1])
            return None
        children = self._children()
        sums: dict[str, Sum] = {field: {} for field in FIELDS}
        for name in _subtree(key[1], children):
            for field, found in self._sums.of(name).items():
                add(sums[field], found)
        self._metrics.show(queue, sums["allocated"])
        lists = {field: resource_list(shortened(found, sums["allocated"])) for field, found in sums.items()}
        before = queue.get("status") or {}
        patch: dict[str, Any] = differing(before, lists)
        own = sorted(children.get(key[1], ()))
        if (before.get("childQueues") or []) != own:
            patch["childQueues"] = own or None
        if patch:
            answer = self._context.transport.patch(
                r.QUEUES, "", key[1], {"status": patch}, subresource="status"
            )
            if answer is not None:
                self._queues.put(answer, ours=True)
        return None

    def _queue_keys(self, old: Object | None, new: Object | None) -> Iterable[ObjectKey]:
        if old is not None and new is not None and not _queue_change(old, new):
            return ()
        found: dict[ObjectKey, None] = {}
        for state in (old, new):
            if state is not None:
                found[key_of(state)] = None
                found |= dict.fromkeys(self._line(_parent(state)))
        return found

    def _line(self, name: str) -> Iterable[ObjectKey]:
        """A queue and its ancestors."""
        found: dict[ObjectKey, None] = {}
        while name and ("", name) not in found and len(found) < _DEEPEST:
            found["", name] = None
            queue = self._queues.get(("", name))
            name = _parent(queue) if queue is not None else ""
        return found

    def _children(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = defaultdict(list)
        for queue in self._queues.all():
            found[_parent(queue)].append(queue["metadata"]["name"])
        return found


class Sums:
    """Sums over the pod groups that name a queue, updated with each change of one."""

    def __init__(self, groups: Store) -> None:
        self._parts: dict[ObjectKey, tuple[str, dict[str, Sum]]] = {}
        """What each pod group adds, and to which queue."""
        self._totals: dict[str, dict[str, Sum]] = defaultdict(lambda: {field: {} for field in FIELDS})
        self._groups_of: Counter[str] = Counter()
        """Pod groups by the queue that they name; a total goes with the last one."""
        self._lock = threading.Lock()
        groups.listen(self._changed)

    def of(self, queue: str) -> dict[str, Sum]:
        """The sums, by field of the status."""
        with self._lock:
            total = self._totals.get(queue, {})
            return {field: dict(total.get(field, {})) for field in FIELDS}

    def _changed(self, old: Object | None, new: Object | None) -> None:
        state = old if new is None else new
        if state is None:
            return
        status = (state.get("status") or {}).get("resourcesStatus") or {}
        part = (queue_of(state), {field: parsed(status.get(field)) for field in FIELDS})
        with self._lock:
            gone = self._parts.pop(key_of(state), None)
            if gone is not None:
                for field, found in gone[1].items():
                    add(self._totals[gone[0]][field], {name: -amount for name, amount in found.items()})
                self._groups_of[gone[0]] -= 1
                if not self._groups_of[gone[0]]:
                    del self._totals[gone[0]], self._groups_of[gone[0]]
            if new is not None:
                self._parts[key_of(state)] = part
                self._groups_of[part[0]] += 1
                for field, found in part[1].items():
                    add(self._totals[part[0]][field], found)


class QueueMetrics:
    """KAI's metrics of queues: one series per queue, removed with the queue."""

    def __init__(self, registry: CollectorRegistry, options: ControllerOptions) -> None:
        self._labels, self._usual = metric_labels(options)
        names = (
            "queue_name",
            "queue_metadata_name",
            "queue_display_name",
            *(name for _, name in self._labels),
        )
        self._gauges = {
            name: Gauge(f"{options.metrics_namespace}_{name}", text, names, registry=registry)
            for name, text in (
                ("queue_info", "1 for every queue."),
                ("queue_deserved_gpus", "Quota of a queue; -1: no bound."),
                ("queue_quota_cpu_cores", "Quota of a queue; -1: no bound."),
                ("queue_quota_memory_bytes", "Quota of a queue; -1: no bound."),
                ("queue_allocated_gpus", "Allocated to a queue."),
                ("queue_allocated_cpu_cores", "Allocated to a queue."),
                ("queue_allocated_memory_bytes", "Allocated to a queue."),
            )
        }
        self._shown: dict[str, tuple[str, ...]] = {}

    def show(self, queue: Object, allocated: Sum) -> None:
        """Set the series of a queue."""
        meta, spec = queue["metadata"], queue.get("spec") or {}
        name = meta["name"]
        own = meta.get("labels") or {}
        extra = (own.get(label, self._usual.get(label, "")) for label, _ in self._labels)
        labels = (name, name, str(spec.get("displayName") or ""), *extra)
        if self._shown.get(name, labels) != labels:
            self.forget(name)
        self._shown[name] = labels
        values = {
            "queue_info": 1.0,
            "queue_deserved_gpus": _quota(spec, "gpu", 1.0),
            "queue_quota_cpu_cores": _quota(spec, "cpu", 1e-3),
            "queue_quota_memory_bytes": _quota(spec, "memory", _MEGABYTE),
            "queue_allocated_gpus": gpus_of(allocated) / 1000,
            "queue_allocated_cpu_cores": allocated.get("cpu", 0) / 1000,
            "queue_allocated_memory_bytes": allocated.get("memory", 0) / 1000,
        }
        for metric, value in values.items():
            self._gauges[metric].labels(*labels).set(round(value, _DIGITS))

    def forget(self, name: str) -> None:
        """Remove the series of a deleted queue."""
        labels = self._shown.pop(name, None)
        if labels is not None:
            for gauge in self._gauges.values():
                gauge.remove(*labels)


def _quota(spec: Object, resource: str, unit: float) -> float:
    """A quota in base units; -1 (unlimited) stays."""
    value = ((spec.get("resources") or {}).get(resource) or {}).get("quota") or 0
    return float(value) if value == -1 else float(value) * unit


def _parent(queue: Object) -> str:
    parent = (queue.get("spec") or {}).get("parentQueue")
    return parent if isinstance(parent, str) else ""


def _subtree(name: str, children: dict[str, list[str]]) -> list[str]:
    """A queue and all its descendants, each once even where the parents form a cycle."""
    found = {name: None}
    waiting = [name]
    while waiting:
        for child in children.get(waiting.pop(), ()):
            if child not in found:
                found[child] = None
                waiting.append(child)
    return list(found)


def _queue_change(old: Object, new: Object) -> bool:
    return any(old.get(key) != new.get(key) for key in ("spec", "status")) or (
        old["metadata"].get("labels") != new["metadata"].get("labels")
    )


def _group_change(old: Object, new: Object) -> bool:
    sums = [(item.get("status") or {}).get("resourcesStatus") for item in (old, new)]
    return sums[0] != sums[1] or queue_of(old) != queue_of(new)
