"""Queues (1.1): quotas in engine units, and a forest without cycles or missing parents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from kai_cp.json_types import Json
from kai_cp.reader.annotations import read_queue_notes
from kai_cp.reader.fields import Malformed, int_at, number_at, object_at, path, shown, text_at
from kai_cp.reader.notes import Identity, Notes, title
from kai_cp.reader.times import duration_at, instant_at
from kai_cp_models.pods import UNLIMITED
from kai_cp_models.policy import Policy
from kai_cp_models.snapshot import Queue, Shares

_MEMORY_UNIT = 1_000_000
_DEFAULT_PRIORITY = 100
_MOST: Final = {"cpu": 2.0**53, "memory": 2.0**60, "gpu": 2.0**40}
"""More than any cluster has; a larger quota or limit means the same and would not fit into 64 bits."""
_MOST_USAGE = 1e6
_SPEC: Final = frozenset(
    ("displayName", "parentQueue", "priority", "resources", "preemptMinRuntime", "reclaimMinRuntime")
)
DEEPEST: Final = 100
"""The most queues in a chain of parents; the engine walks such chains by recursion."""
SYNTHETIC_ROOT: Final = "default"
"""Queue above all others without full-hierarchy fairness (1.1)."""


def read_queues(
    objects: Mapping[Identity, Json],
    policy: Policy,
    usage: Mapping[str, Any] | None,
    notes: Notes,
) -> dict[str, Queue]:
    """Queues by name; those in a cycle or below a missing parent are set aside."""
    found: dict[str, Queue] = {}
    for identity, obj in objects.items():
        try:
            found[identity[1]] = _queue(obj, identity[1], _usage(usage, identity[1], notes), notes)
        except Malformed as problem:
            notes.aside(title("Queue", identity), problem)
    if not policy.full_hierarchy_fairness:
        return _flattened(found, notes)
    return _rooted(found, notes)


def _queue(obj: Json, name: str, usage: Shares, notes: Notes) -> Queue:
    spec = object_at(obj, "spec")
    notes.unknown(spec, _SPEC, "rawObjects.queues[].spec")
    resources = object_at(spec, "resources", "spec")
    rows = {key: object_at(resources, key, "spec.resources") for key in ("cpu", "memory", "gpu")}

    def shares(field: str) -> Shares:
        found = {key: number_at(row, field, f"spec.resources.{key}") or 0.0 for key, row in rows.items()}
        if field != "overQuotaWeight":
            # Only memory is normalised; a negative CPU or GPU other than -1 stays as it is (1.1).
            found["memory"] = max(float(UNLIMITED), found["memory"] * _MEMORY_UNIT)
        return Shares(*(_bounded(found[key], _MOST[key]) for key in Shares._fields))

    priority = int_at(spec, "priority", "spec")
    return Queue(
        name=name,
        parent=text_at(spec, "parentQueue", "spec") or None,
        created=instant_at(object_at(obj, "metadata"), "creationTimestamp", "metadata") or 0.0,
        priority=_DEFAULT_PRIORITY if priority is None else priority,
        quota=shares("quota"),
        limit=shares("limit"),
        weight=shares("overQuotaWeight"),
        display_name=text_at(spec, "displayName", "spec"),
        preempt_min_runtime_seconds=_runtime(spec, "preemptMinRuntime"),
        reclaim_min_runtime_seconds=_runtime(spec, "reclaimMinRuntime"),
        usage=usage,
        notes=read_queue_notes(object_at(obj, "metadata")),
    )


def _bounded(value: float, most: float) -> float:
    return min(max(value, -most), most)


def _runtime(spec: Json, key: str) -> float | None:
    seconds = duration_at(spec, key, "spec")
    return None if seconds is None else max(seconds, 0.0)


def _usage(usage: Mapping[str, Any] | None, name: str, notes: Notes) -> Shares:
    try:
        row = object_at(usage or {}, name, "usage")
        return Shares(
            *(
                _bounded(max(number_at(row, key, path("usage", name)) or 0.0, 0.0), _MOST_USAGE)
                for key in Shares._fields
            )
        )
    except Malformed as problem:
        notes.aside(f"Queue {name}", problem)
        return Shares(0, 0, 0)


def _rooted(queues: dict[str, Queue], notes: Notes) -> dict[str, Queue]:
    """Drop queues that do not reach a top-level queue, or have too many above them; the reason says which."""
    kept: dict[str, Queue] = {}
    for name, queue in queues.items():
        seen = [name]
        parent = queue.parent
        problem = ""
        while parent is not None and not problem:
            if parent not in queues:
                problem = f"the parent {shown(parent)} of queue {shown(seen[-1])} does not exist"
            elif parent in seen:
                cycle = sorted(seen[seen.index(parent) :])
                problem = f"the parents of {', '.join(map(shown, cycle))} form a cycle"
            elif len(seen) == DEEPEST:
                problem = f"more than {DEEPEST - 1} queues lie above it"
            else:
                seen.append(parent)
                parent = queues[parent].parent
        if problem:
            notes.aside(f"Queue {name}", f"spec.parentQueue: {problem}")
        else:
            kept[name] = queue
    return kept


def _flattened(queues: dict[str, Queue], notes: Notes) -> dict[str, Queue]:
    """Every queue with a parent directly below one synthetic queue; top-level queues vanish (1.1)."""
    every = Shares(UNLIMITED, UNLIMITED, UNLIMITED)
    root = Queue(SYNTHETIC_ROOT, None, 0.0, quota=every, limit=every, weight=Shares(1, 1, 1))
    flat = {SYNTHETIC_ROOT: root}
    for name, queue in queues.items():
        if queue.parent is None:
            continue
        if name == SYNTHETIC_ROOT:
            notes.aside(f"Queue {name}", "metadata.name: is the queue above all others here")
            continue
        flat[name] = replace(queue, parent=SYNTHETIC_ROOT)
    return flat
