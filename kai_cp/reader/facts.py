"""What a raw pod states by itself, before it is joined with nodes, pod groups and BindRequests."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from kai_cp.json_types import Json
from kai_cp.keys import POD_GROUP, SUBGROUP
from kai_cp.reader.affinity import Namespaces
from kai_cp.reader.fields import EMPTY, Malformed, typed
from kai_cp.reader.limits import refuse_costly
from kai_cp.reader.numa import ZoneRows, annotated_zones
from kai_cp.reader.podspec import NO_SPEC, SpecDraft, read_spec
from kai_cp.reader.resize import as_held
from kai_cp.reader.revisions import REVISION_LABELS, revision_of
from kai_cp.reader.shares import group_labels
from kai_cp.reader.spec_source import spec_source
from kai_cp.reader.times import instant, optional_instant
from kai_cp_models.pods import PodKey, Revision
from kai_cp_models.settings import Limits

_PRIORITY_LABEL: Final = "kai.scheduler/task-priority"
_KUBEFLOW_LABEL: Final = "training.kubeflow.org/job-role"
_RAY_LABEL: Final = "ray.io/node-type"
_WHOLE: Final = re.compile(r"[+-]?\d{1,18}", re.ASCII)
_MOST_LABELS: Final = 10_000
"""Sets of labels that later pods may share; if each pod has its own, more would only take memory."""
_ENDED: Final = frozenset(("Succeeded", "Failed"))


class _Metadata(msgspec.Struct, rename="camel"):
    uid: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    owner_references: list[Any] | None = None


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str | None = None
    scheduler_name: str | None = None
    scheduling_gates: list[Any] | None = None
    active_deadline_seconds: Any = None


class _Status(msgspec.Struct, rename="camel"):
    phase: str | None = None
    nominated_node_name: str | None = None
    start_time: Any = None


class _Pod(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec | None = None
    status: _Status | None = None


_NO_SPEC: Final = _Spec()
_NO_STATUS: Final = _Status()


class PodFacts(msgspec.Struct, frozen=True):
    """A pod as its own object describes it. ``deleted``: its deletionTimestamp, seconds."""

    key: PodKey
    uid: str
    draft: SpecDraft
    phase: str
    deleted: float | None
    node: str
    gated: bool
    created: float
    group: str
    subgroup: str
    labels: Mapping[str, str]
    order: tuple[int, int, int, int]
    nominated: str
    scheduler: str
    owned: bool
    """Whether another object made the pod."""
    gpu_groups: tuple[str, ...]
    numa_zones: ZoneRows
    warnings: tuple[str, ...] = ()
    """Annotations that were treated as absent, and why."""
    started: float | None = None
    deadline: float | None = None
    revision: Revision | None = None


@dataclass(frozen=True, slots=True)
class LabelFacts:
    """What the labels of a pod show; pods with equal labels share it."""

    labels: Mapping[str, str]
    subgroup: str
    order: tuple[int, int, int, int]
    gpu_groups: tuple[str, ...]
    revised: bool
    """Whether the labels may name a revision; those of most pods do not."""


class FactReader:
    """Reads pods and remembers their specs."""

    def __init__(self, namespaces: Namespaces, specs: dict[bytes, SpecDraft], limits: Limits) -> None:
        self._limits = limits
        self._namespaces = namespaces
        self._specs = specs
        self._labels: dict[tuple[tuple[str, str], ...], LabelFacts] = {}

    def read(self, pod: Json, namespace: str, name: str) -> PodFacts:
        """The facts of a pod; Malformed names the field that cannot be read."""
        form = typed(pod, _Pod)
        head, spec, status = form.metadata, form.spec or _NO_SPEC, form.status or _NO_STATUS
        told, annotations = self._told(head.labels or EMPTY), head.annotations or EMPTY
        phase = status.phase or ""
        zones: ZoneRows = ()
        warnings: tuple[str, ...] = ()
        try:
            zones = annotated_zones(annotations)
        except Malformed as problem:
            warnings = (f"{problem}; treated as absent",)
        # By position: there are very many pods, and names take twice as long.
        return PodFacts(
            PodKey(namespace, name),
            head.uid or "",
            NO_SPEC if phase in _ENDED else self._draft(pod, head, namespace, name),
            sys.intern(phase),
            optional_instant(head.deletion_timestamp, "metadata.deletionTimestamp"),
            sys.intern(spec.node_name or ""),
            bool(spec.scheduling_gates),
            optional_instant(head.creation_timestamp, "metadata.creationTimestamp") or 0.0,
            annotations.get(POD_GROUP, ""),
            told.subgroup,
            told.labels,
            told.order,
            status.nominated_node_name or "",
            sys.intern(spec.scheduler_name or ""),
            bool(head.owner_references),
            told.gpu_groups,
            zones,
            warnings,
            _started(status.start_time),
            _deadline(spec.active_deadline_seconds),
            revision_of(head.owner_references or (), told.labels) if told.revised else None,
        )

    def _told(self, labels: Mapping[str, str]) -> LabelFacts:
        key = tuple(labels.items())
        found = self._labels.get(key)
        if found is None:
            found = LabelFacts(
                labels,
                labels.get(SUBGROUP, ""),
                _order(labels),
                group_labels(labels),
                not REVISION_LABELS.isdisjoint(labels),
            )
            if len(self._labels) < _MOST_LABELS:
                self._labels[key] = found
        return found

    def _draft(
        self, pod: Json, head: _Metadata, namespace: str, name: str, *, tolerates: bool = True
    ) -> SpecDraft:
        status = pod.get("status") or EMPTY
        spec = as_held(pod.get("spec") or EMPTY, status)
        if not tolerates:
            spec = {**spec, "tolerations": []}
        key = spec_source(spec, status, head.annotations, head.labels, namespace=namespace, name=name)
        known = self._specs.get(key)
        if known is None:
            try:
                refuse_costly(spec, self._limits)
            except Malformed:
                if not (spec.get("nodeName") and spec.get("tolerations")):
                    raise
                # Only tolerations can be added to a running pod, and they matter only for placing it: it
                # stays in its queue.
                return self._draft(pod, head, namespace, name, tolerates=False)
            known = self._specs[key] = read_spec(msgspec.json.decode(key), self._namespaces)
        return known


def _started(value: object) -> float | None:
    """``startTime``, which the kubelet writes; a bad one counts as missing and harms no other pod."""
    try:
        return instant(value, "status.startTime") if value and isinstance(value, str) else None
    except Malformed:
        return None


def _deadline(value: object) -> float | None:
    """``activeDeadlineSeconds``, read with the same tolerance."""
    return float(value) if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _order(labels: Mapping[str, str]) -> tuple[int, int, int, int]:
    """Pod order inside a pod set (3.6): kubeflow master, ray head, labelled priority."""
    kubeflow = labels.get(_KUBEFLOW_LABEL) not in ("master", "launcher")
    ray = labels.get(_RAY_LABEL) != "head"
    text = labels.get(_PRIORITY_LABEL)
    if text is None:
        return (kubeflow, ray, 2, 0)
    if _WHOLE.fullmatch(text):
        return (kubeflow, ray, 0, -int(text))
    return (kubeflow, ray, 1, 0)
