"""One pod and its workload, and what every kind of workload gives its pod group (10.2)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import yaml

from kai_cp import keys, yaml_text
from kai_cp.object_names import LONGEST_NAME
from kai_cp.reader.times import go_duration
from kai_cp.workloads.defaults import KindDefaults
from kai_cp.workloads.groups import Group, GroupTopology
from kai_cp.workloads.items import Item, Reference
from kai_cp.workloads.reads import Reads

if TYPE_CHECKING:
    from kai_cp.workloads.kinds import Kind
    from kai_cp.workloads.settings import GroupingSettings

_UNITS: Final = ((3_600_000_000_000, "h"), (60_000_000_000, "m"))
_SECOND: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Workload:
    """The objects behind a pod group. ``owner`` is the workload, or the pod itself if it is bare.

    ``chain``: the owners whose labels and annotations count, the pod's direct owner first.
    """

    pod: Item
    owner: Item
    chain: tuple[Item, ...]
    kind: Kind
    reads: Reads
    settings: GroupingSettings

    def about(self, owner: Item) -> Workload:
        """The same pod as part of another workload, which alone counts."""
        return replace(self, owner=owner, chain=(owner,))

    @property
    def counted(self) -> Sequence[Item]:
        """Owners that may set priority class, preemptibility and delays."""
        return self.chain if self.kind.chain and self.chain else (self.owner,)


def group_name(item: Item) -> str:
    """The usual name of a pod group: ``pg-<name>-<uid>``; if it is too long, ``<name>`` is cut."""
    most = LONGEST_NAME - len(f"{keys.GROUP_PREFIX}--{item.uid}")
    name = item.name if len(item.name) <= most else item.name[:most].rstrip(".")
    return f"{keys.GROUP_PREFIX}-{name}-{item.uid}"


def inherited(workload: Workload) -> Group:
    """The pod group that any workload gets; shapes change parts of it."""
    owner, pod = workload.owner, workload.pod
    counted = workload.counted
    defaults = workload.reads.kind_defaults()
    return Group(
        namespace=pod.namespace,
        name=group_name(owner),
        owner=owner.reference,
        labels=_labels(owner, pod),
        annotations=_annotations(owner, pod),
        queue=queue_of(workload),
        priority_class=_priority_class(workload, counted, defaults),
        preemptibility=_preemptibility(pod, counted, defaults),
        preemption_delay=_duration(keys.PREEMPTION_DELAY, (*counted, pod), negative=False),
        staleness_grace=_duration(keys.STALENESS_GRACE, (*counted, pod), negative=True),
        topology=placement(owner.annotations),
        follows_queue=owner.annotations.get(keys.FOLLOW_QUEUE) == "true",
    )


def queue_of(workload: Workload) -> str:
    """The queue: label of the workload, of the pod, project, default."""
    key, owner, pod = workload.settings.queue_label_key, workload.owner, workload.pod
    for labels in (owner.labels, pod.labels):
        if key in labels:
            return labels[key]
    project = owner.labels.get(keys.PROJECT, pod.labels.get(keys.PROJECT, ""))
    if not project:
        return keys.DEFAULT_QUEUE
    pool = pod.labels.get(workload.settings.node_pool_label_key)
    return project if pool is None else f"{project}-{pool}"


def top_owner_metadata(reference: Reference) -> str:
    """YAML about the workload, in the format that KAI's other components read."""
    values = {
        "name": reference.name,
        "uid": reference.uid,
        "group": reference.group,
        "version": reference.version,
        "kind": reference.kind,
    }
    return "".join(f"{key}: {_scalar(value)}\n" for key, value in values.items())


@lru_cache(maxsize=4096)
def _scalar(text: str) -> str:
    """A text as YAML: quoted where it would be read as something else, such as the name ``123``."""
    try:
        plain = yaml_text.load(text) == text
    except yaml.YAMLError:
        plain = False
    return text if plain else json.dumps(text)


def placement(annotations: Mapping[str, str]) -> GroupTopology:
    """The topology constraint from annotations."""
    return GroupTopology(
        annotations.get(keys.TOPOLOGY, ""),
        annotations.get(keys.TOPOLOGY_REQUIRED, ""),
        annotations.get(keys.TOPOLOGY_PREFERRED, ""),
    )


def _labels(owner: Item, pod: Item) -> dict[str, str]:
    found = {keys.USER: pod.labels[keys.USER]} if keys.USER in pod.labels else {}
    return {**found, **owner.labels}


def _annotations(owner: Item, pod: Item) -> dict[str, str]:
    found = {keys.USER: pod.annotations[keys.USER]} if keys.USER in pod.annotations else {}
    found[keys.TOP_OWNER] = top_owner_metadata(owner.reference)
    return {**_deadline(owner), **found, **taken_over(owner.annotations)}


def taken_over(annotations: Mapping[str, str]) -> dict[str, str]:
    """The annotations of a workload that its pod group has, too."""
    return {name: value for name, value in annotations.items() if name not in keys.OURS}


def _deadline(owner: Item) -> dict[str, str]:
    """A Job's deadline as the run time after which its pods are gone (time axis, section 2)."""
    spec = owner.raw.get("spec")
    seconds = spec.get("activeDeadlineSeconds") if isinstance(spec, Mapping) else None
    whole = isinstance(seconds, int) and not isinstance(seconds, bool) and seconds > 0
    job = owner.reference.kind == "Job" and owner.reference.group == "batch"
    return {keys.MAX_RUNTIME: f"{seconds}s"} if job and whole else {}


def _priority_class(workload: Workload, counted: Sequence[Item], defaults: KindDefaults) -> str:
    """The first existing class: an owner's, the pod's if an owner names none, or the default."""
    pod = workload.pod
    spec = pod.raw.get("spec")
    in_spec = spec.get("priorityClassName") if isinstance(spec, Mapping) else None
    silent = pod.labels.get(keys.PRIORITY_CLASS, in_spec if isinstance(in_spec, str) else "")
    said = [owner.labels.get(keys.PRIORITY_CLASS, silent) for owner in counted]
    usual = [defaults.of(o.reference.kind, o.reference.group).priority_class for o in counted]
    for name in (*said, *usual):
        if name and workload.reads.has_priority_class(name):
            return name
    return workload.kind.priority_class


def _preemptibility(pod: Item, counted: Sequence[Item], defaults: KindDefaults) -> str:
    for item in (*counted, pod):
        said = item.labels.get(keys.PREEMPTIBILITY)
        if said in keys.PREEMPTIBILITIES:
            return said or ""
    for owner in counted:
        usual = defaults.of(owner.reference.kind, owner.reference.group).preemptibility.lower()
        if usual and usual in keys.PREEMPTIBILITIES:
            return usual
    return ""


def _duration(key: str, items: Sequence[Item], *, negative: bool) -> str:
    """The first readable annotation, in Go's canonical form."""
    for item in items:
        found = nanoseconds_of(item.annotations.get(key, ""), negative=negative)
        if found is not None:
            return canonical_duration(found)
    return ""


def nanoseconds_of(text: str, *, negative: bool) -> int | None:
    """A duration as Go reads it; None for another text, and for one below 0 unless it may be ``negative``."""
    try:
        found = round(go_duration(text) * _SECOND)
    except ValueError:
        return None
    return found if negative or found >= 0 else None


def canonical_duration(nanoseconds: int) -> str:
    """A duration in Go's format: ``1m30s``, ``1.5s``, ``250ms``, ``0s``."""
    if not nanoseconds:
        return "0s"
    sign, rest = ("-", -nanoseconds) if nanoseconds < 0 else ("", nanoseconds)
    if rest < _SECOND:
        for unit, name in ((1_000_000, "ms"), (1000, "µs"), (1, "ns")):
            if rest >= unit:
                return f"{sign}{_decimal(rest, unit)}{name}"
    text = ""
    for unit, name in _UNITS:
        if rest >= unit or text:
            text += f"{rest // unit}{name}"
            rest %= unit
    return f"{sign}{text}{_decimal(rest, _SECOND)}s"


def _decimal(amount: int, unit: int) -> str:
    whole, part = divmod(amount, unit)
    digits = len(str(unit)) - 1
    return f"{whole}.{part:0{digits}d}".rstrip("0") if part else str(whole)
