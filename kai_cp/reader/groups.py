"""Pod groups (1.2) with priority, preemptibility, scheduler state and gang tree."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from kai_cp.json_types import Json
from kai_cp.keys import LAST_EVICTION, LAST_START, STALE_SINCE
from kai_cp.reader.annotations import read_group_notes
from kai_cp.reader.document import parsed
from kai_cp.reader.fields import (
    EMPTY,
    Malformed,
    bool_at,
    entry,
    int_at,
    object_at,
    objects_at,
    shown,
    text_at,
    typed,
)
from kai_cp.reader.limits import refuse_many_subgroups
from kai_cp.reader.listed import ListedObjects
from kai_cp.reader.memo import Memo, versioned
from kai_cp.reader.notes import Identity, Notes, title
from kai_cp.reader.pools import pool_of
from kai_cp.reader.subgroups import read_tree
from kai_cp.reader.times import duration_at, instant, optional_instant
from kai_cp.reader.topologies import TopologyDraft
from kai_cp_models.pods import GroupKey
from kai_cp_models.policy import Policy
from kai_cp_models.settings import Limits
from kai_cp_models.snapshot import PodGroup

_SPEC: Final = frozenset(
    (
        "minMember",
        "minSubGroup",
        "queue",
        "priorityClassName",
        "preemptibility",
        "topologyConstraint",
        "subGroups",
        "markUnschedulable",
        "schedulingBackoff",
        "preemptionDelay",
        "stalenessGracePeriod",
    )
)

_DEFAULT_PRIORITY = 50
_NON_PREEMPTIBLE_FROM = 100


@dataclass(frozen=True)
class Priorities:
    """Priority classes by name, and the value for a missing class (1.2)."""

    values: Mapping[str, int]
    default: int = _DEFAULT_PRIORITY

    def value(self, name: str) -> int:
        """The priority of a pod group with class ``name``."""
        return self.values.get(name, self.default)


def read_priorities(objects: Mapping[Identity, Json], notes: Notes) -> Priorities:
    """The priority classes; of several global defaults the lowest counts, as in Kubernetes."""
    values: dict[str, int] = {}
    defaults: list[int] = []
    for identity, obj in objects.items():
        try:
            value = int_at(obj, "value") or 0
            if bool_at(obj, "globalDefault"):
                defaults.append(value)
        except Malformed as problem:
            notes.aside(title("PriorityClass", identity), problem)
            continue
        values[identity[1]] = value
    return Priorities(values, min(defaults, default=_DEFAULT_PRIORITY))


class _Metadata(msgspec.Struct, rename="camel"):
    uid: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    creation_timestamp: str | None = None


class _Spec(msgspec.Struct, rename="camel"):
    queue: str | None = None
    priority_class_name: str | None = None
    preemptibility: str | None = None
    mark_unschedulable: bool | None = None


class _Group(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec | None = None


_NO_SPEC: Final = _Spec()

GroupsMemo = Memo[Identity, Any, PodGroup]


def read_groups(
    objects: ListedObjects,
    policy: Policy,
    priorities: Priorities,
    fabrics: Mapping[str, TopologyDraft],
    notes: Notes,
    *,
    now: float,
    memo: GroupsMemo,
    limits: Limits,
    user_label: str = "",
) -> Mapping[Identity, PodGroup]:
    """Pod groups by key, sorted. ``user_label`` is the label that names their user, "" for none."""

    def read(identity: Identity, item: Any) -> tuple[PodGroup | None, bool]:
        key, obj, before = GroupKey(*identity), parsed(item), len(notes)
        try:
            group = _group(
                key, obj, policy, priorities, fabrics, limits=limits, notes=notes, user_label=user_label
            )
        except Malformed as problem:
            notes.aside(title("PodGroup", identity), problem)
            return None, False
        if group.last_start is not None and group.last_start > now:
            field = entry("metadata.annotations", LAST_START)
            notes.aside(title("PodGroup", key), f"{field}: lies in the future")
        # A group with notes is read again, so that its notes are reported again.
        return group, versioned(obj) and len(notes) == before

    context = (policy, priorities, fabrics, limits, user_label)
    return memo.read(objects.unparsed, context, read, changed=objects.changed)


def _group(
    key: GroupKey,
    obj: Json,
    policy: Policy,
    priorities: Priorities,
    fabrics: Mapping[str, TopologyDraft],
    *,
    limits: Limits,
    notes: Notes,
    user_label: str,
) -> PodGroup:
    form, spec = typed(obj, _Group), obj.get("spec") or EMPTY
    head, said = form.metadata, form.spec or _NO_SPEC
    annotations = head.annotations or EMPTY
    notes.unknown(spec, _SPEC, "rawObjects.podGroups[].spec")
    priority = priorities.value(said.priority_class_name or "")
    try:
        refuse_many_subgroups(spec, limits)
        whole, root = True, read_tree(spec, fabrics)
    except Malformed as problem:
        # A running group stays in its queue and may be evicted: a bad change of its object is no way out.
        notes.aside(title("PodGroup", key), problem)
        whole, root = False, read_tree({}, {})
    # By position: there are very many groups, and names take twice as long.
    return PodGroup(
        key,
        head.uid or "",
        sys.intern(said.queue or ""),
        priority,
        _preemptible(said.preemptibility, priority),
        root,
        optional_instant(head.creation_timestamp, "metadata.creationTimestamp") or 0.0,
        _state(annotations, LAST_START, key, notes),
        _state(annotations, LAST_EVICTION, key, notes),
        _state(annotations, STALE_SINCE, key, notes),
        max(_seconds(spec, "preemptionDelay", key, notes) or 0.0, 0.0),
        _seconds(spec, "stalenessGracePeriod", key, notes),
        _backed_off(obj, spec, head.labels or EMPTY, policy),
        said.mark_unschedulable is not False,
        whole,
        read_group_notes(obj["metadata"]),
        (head.labels or EMPTY).get(user_label, "") if user_label else "",
    )


def _preemptible(text: str | None, priority: int) -> bool:
    if not text:
        return priority < _NON_PREEMPTIBLE_FROM
    if text in ("preemptible", "non-preemptible"):
        return text == "preemptible"
    raise Malformed("spec.preemptibility", f"{shown(text)} is neither preemptible nor non-preemptible")


def _seconds(spec: Json, name: str, key: GroupKey, notes: Notes) -> float | None:
    """A duration; one that cannot be read counts as absent."""
    if name not in spec:
        return None
    try:
        return duration_at(spec, name, "spec")
    except Malformed as problem:
        notes.aside(title("PodGroup", key), f"{problem}; treated as absent")
        return None


def _state(annotations: Mapping[str, str], name: str, key: GroupKey, notes: Notes) -> float | None:
    """A time that the scheduler itself wrote; an unreadable one counts as absent."""
    text = annotations.get(name)
    if not text:
        return None
    try:
        return instant(text, entry("metadata.annotations", name))
    except Malformed as problem:
        notes.aside(title("PodGroup", key), f"{problem}; treated as absent")
        return None


def _backed_off(obj: Json, spec: Json, labels: Mapping[str, str], policy: Policy) -> bool:
    if int_at(spec, "schedulingBackoff", "spec") != 1:
        return False
    conditions = objects_at(object_at(obj, "status"), "schedulingConditions", "status")
    if not conditions:
        return False
    where = f"status.schedulingConditions[{len(conditions) - 1}]"
    pool = pool_of(labels, policy)
    return (text_at(conditions[-1], "nodePool", where) or "default") == pool
