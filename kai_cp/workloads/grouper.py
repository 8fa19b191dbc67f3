"""One reconcile of the pod grouper: from one pod to everything that must be written (10.1)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from kai_cp import keys
from kai_cp.json_types import Json
from kai_cp.reader.fields import shown
from kai_cp.workloads import stored
from kai_cp.workloads.chain import Chain, walk
from kai_cp.workloads.groups import Group, Grouped
from kai_cp.workloads.items import GroupingError, Item, annotation, label
from kai_cp.workloads.karta import by_karta
from kai_cp.workloads.kinds import DEFAULT, Kind
from kai_cp.workloads.reads import Forbidden, Reads
from kai_cp.workloads.settings import GroupingSettings
from kai_cp.workloads.shapes import SHAPES
from kai_cp.workloads.validity import refuse_invalid, refuse_tree
from kai_cp.workloads.workload import Workload, nanoseconds_of

POD: Final = ("", "v1", "Pod")


class Note(NamedTuple):
    """An event to write once, about the pod group if ``about_group``, otherwise about the pod."""

    reason: str
    text: str
    about_group: bool = False


@dataclass(frozen=True, slots=True)
class Writes:
    """What a pod's reconcile writes; empty if nothing has to change.

    ``create`` is a PodGroup to create, ``change`` a merge patch for the PodGroup ``group``, ``pod`` a merge
    patch for the pod. ``owners`` are the uids of the owners that were read. ``notes`` are the events.
    """

    group: str = ""
    create: Json | None = None
    change: Json | None = None
    pod: Json | None = None
    owners: frozenset[str] = frozenset()
    notes: tuple[Note, ...] = ()

    @property
    def nothing(self) -> bool:
        """Whether there is nothing to write."""
        return self.create is None and self.change is None and self.pod is None


@dataclass(frozen=True, slots=True)
class FoundWorkload:
    """The group of a pod, or None if it is left alone, and the owners on the way to it."""

    grouped: Grouped | None
    chain: Chain = field(default_factory=Chain)


def reconcile(pod: Item, reads: Reads, settings: GroupingSettings) -> Writes:
    """What to write for ``pod``. Raises ``GroupingError`` if it cannot be grouped."""
    found = group_of(pod, reads, settings)
    owners = frozenset(owner.uid for owner in found.chain.owners)
    if found.grouped is None:
        return Writes(owners=owners)
    group, subgroup = found.grouped.group, found.grouped.subgroup
    pool = settings.node_pool_label_key
    if pool and pool not in group.labels and pool in pod.labels:
        group = replace(group, labels={**group.labels, pool: pod.labels[pool]})
    refuse_tree(group)
    before = reads.pod_group(group.namespace, group.name)
    notes = _notes(pod, group, found.chain, before, settings)
    if ignored := "; ".join(_ignored(group, (*found.chain.owners[-1:], pod), reads)):
        notes += (Note("ValueIgnored", ignored, about_group=True),)
    if before is None:
        body: dict[str, Any] = {"metadata": stored.metadata(group), "spec": group.spec()}
        refuse_invalid(body, group)
        return Writes(group.name, body, None, pod_patch(pod, group.name, subgroup), owners, notes)
    wanted = stored.merged(before, group, settings)
    change = stored.difference(before, wanted)
    if change is not None:
        refuse_invalid(wanted, group)
    return Writes(group.name, None, change, pod_patch(pod, group.name, subgroup), owners, notes)


def group_of(pod: Item, reads: Reads, settings: GroupingSettings) -> FoundWorkload:
    """The pod's group; None for pods of other schedulers, skipped pods, and bare pods that name a group."""
    if not _ours(pod, reads, settings):
        return FoundWorkload(None)
    try:
        chain = walk(pod, reads)
    except GroupingError:
        if pod.deleted:
            return FoundWorkload(None)
        raise
    if chain.skipped:
        return FoundWorkload(None, chain)
    return FoundWorkload(_grouped(pod, chain, reads, settings), chain)


def _ours(pod: Item, reads: Reads, settings: GroupingSettings) -> bool:
    spec = pod.raw.get("spec")
    if not isinstance(spec, Mapping) or spec.get("schedulerName") != settings.scheduler_name:
        return False
    if not settings.pod_labels.items() <= pod.labels.items():
        return False
    if settings.namespace_labels:
        labels = reads.namespace_labels(pod.namespace)
        if labels is None or not settings.namespace_labels.items() <= labels.items():
            return False
    if pod.annotations.get(keys.SKIP) == "true":
        return False
    return bool(pod.owners) or keys.POD_GROUP not in pod.annotations


def _grouped(pod: Item, chain: Chain, reads: Reads, settings: GroupingSettings) -> Grouped:
    top = chain.owners[-1] if chain.owners else pod
    kind = _kind(top, settings)
    if kind is None:
        found = by_karta(pod, _whole(top, reads), reads, Workload(pod, top, (), DEFAULT, reads, settings))
        if found is not None:
            return found
    return _by_kind(pod, top, chain.owners, kind or DEFAULT, reads, settings=settings)


def _by_kind(
    pod: Item, owner: Item, owners: tuple[Item, ...], kind: Kind, reads: Reads, *, settings: GroupingSettings
) -> Grouped:
    """The group by one row of the table; owners that leave the decision to the object below are skipped."""
    if kind.look_through and owner is not pod:
        below = owners[:-1]
        child = below[-1] if below else pod
        reference = child.reference
        row = settings.kinds.below(reference.group, reference.version, reference.kind) or DEFAULT
        if row.reads_all and child is not pod:
            child = _whole(child, reads)
        child = child.inheriting(_passed_on(owner, reads), owner.annotations)
        return _by_kind(pod, child, (*below[:-1], child) if below else (), row, reads, settings=settings)
    if kind.reads_all and owner is not pod and "spec" not in owner.raw:
        owner = replace(_whole(owner, reads), labels=owner.labels, annotations=owner.annotations)
    workload = Workload(pod, owner, owners, kind, reads, settings)
    return SHAPES[kind.shape](workload)


def _kind(owner: Item, settings: GroupingSettings) -> Kind | None:
    reference = owner.reference
    return settings.kinds.of(reference.group, reference.version, reference.kind)


def _whole(owner: Item, reads: Reads) -> Item:
    if owner.reference.kind == "Pod" and not owner.reference.group:
        return owner
    try:
        found = reads.whole(owner.reference, owner.namespace)
    except Forbidden:
        raise owner.bad("", "may not be read") from None
    if found is None:
        raise owner.bad("", "is not there any more")
    return found


def _passed_on(owner: Item, reads: Reads) -> dict[str, str]:
    """Labels of a skipped owner, with the ConfigMap's defaults of its kind where it says nothing usable."""
    usual = reads.kind_defaults().of(owner.reference.kind, owner.reference.group)
    found = dict(owner.labels)
    exists = reads.has_priority_class
    if not exists(found.get(keys.PRIORITY_CLASS, "")) and exists(usual.priority_class):
        found[keys.PRIORITY_CLASS] = usual.priority_class
    if usual.preemptibility and found.get(keys.PREEMPTIBILITY) not in keys.PREEMPTIBILITIES:
        found[keys.PREEMPTIBILITY] = usual.preemptibility.lower()
    return found


def pod_patch(pod: Item, group: str, subgroup: str) -> Json | None:
    """The merge patch that writes a pod's group and subgroup, and removes a wrong subgroup."""
    meta: dict[str, Any] = {}
    if pod.annotations.get(keys.POD_GROUP) != group:
        meta["annotations"] = {keys.POD_GROUP: group}
    if (pod.labels.get(keys.SUBGROUP) or "") != subgroup or (keys.SUBGROUP in pod.labels and not subgroup):
        meta["labels"] = {keys.SUBGROUP: subgroup or None}
    return {"metadata": meta} if meta else None


def _ignored(group: Group, items: Iterable[Item], reads: Reads) -> Iterator[str]:
    """Values of the workload and of its pod that a pod group cannot have, and therefore does without."""
    for item in items:
        name, said = item.labels.get(keys.PRIORITY_CLASS, ""), item.labels.get(keys.PREEMPTIBILITY, "")
        if name and name != group.priority_class and not reads.has_priority_class(name):
            where = f"{item.what}: {label(keys.PRIORITY_CLASS)}"
            yield f"{where}: there is no PriorityClass {shown(name)}; {group.priority_class} counts"
        if said not in keys.PREEMPTIBILITIES:
            where = f"{item.what}: {label(keys.PREEMPTIBILITY)}"
            yield f"{where}: {shown(said)} is neither preemptible nor non-preemptible and does not count"
        for key, negative in ((keys.PREEMPTION_DELAY, False), (keys.STALENESS_GRACE, True)):
            text = item.annotations.get(key)
            if text is not None and nanoseconds_of(text, negative=negative) is None:
                where = f"{item.what}: {annotation(key)}"
                yield f"{where}: {shown(text)} is not a duration such as 1m30s and does not count"


def _notes(
    pod: Item, group: Group, chain: Chain, before: Json | None, settings: GroupingSettings
) -> tuple[Note, ...]:
    """Events about common mistakes that users of KAI find hard to notice."""
    found: list[Note] = []
    key = settings.queue_label_key
    if chain.forbidden:
        text = (
            f"{chain.forbidden} may not be read, so the pod is grouped by what is below it; "
            "grant get, list and watch on it to the pod grouper to group by it"
        )
        found.append(Note("OwnerNotReadable", text))
    for item in (*chain.owners[-1:], pod):
        if key in item.annotations and group.queue != item.annotations[key]:
            text = (
                f"{item.what}: metadata.annotations[{key}] does not count; the queue is the label of "
                f"that name, and {group.queue} without it"
            )
            found.append(Note("QueueAnnotationIgnored", text))
            break
    if before is not None and not group.follows_queue:
        stays = (before.get("spec") or {}).get("queue")
        labelled = any(key in item.labels for item in (*chain.owners[-1:], pod))
        if stays and labelled and stays != group.queue:
            text = (
                f"the workload names the queue {group.queue}, and the pod group stays in {stays}: edit "
                f"spec.queue to move it, or annotate the workload with {keys.FOLLOW_QUEUE}=true"
            )
            found.append(Note("QueueKept", text, about_group=True))
    said = group.annotations.get(keys.MAX_RUNTIME)
    kept = ((before or {}).get("metadata") or {}).get("annotations") or {}
    stays = kept.get(keys.MAX_RUNTIME, said)
    if said not in (None, stays):
        text = (
            f"the workload says {keys.MAX_RUNTIME} {shown(said)}, and the pod group keeps {shown(stays)}: "
            "lower it there; to raise it takes the right to update queues"
        )
        found.append(Note("MaxRuntimeKept", text, about_group=True))
    return tuple(found)
