"""JobSet: one subgroup for each replicated job, and in it one for each of its Jobs."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from kai_cp import keys
from kai_cp.json_types import Json
from kai_cp.object_names import LONGEST_LABEL
from kai_cp.reader.fields import shown
from kai_cp.workloads.groups import NOWHERE, Group, Grouped, GroupSubgroup, GroupTopology, Subgroups
from kai_cp.workloads.items import (
    Item,
    annotation,
    checked_integer,
    checked_object,
    label,
    objects_in,
    path,
    spelled_integer,
    text_in,
)
from kai_cp.workloads.rows import template_annotations
from kai_cp.workloads.workload import Workload, group_name, inherited, placement

MOST: Final = 10_000
"""Subgroups of one gang, as many as there may be segments; each is an object of the pod group."""
_JOBS: Final = path("spec.replicatedJobs")
_ORDER: Final = path("spec.startupPolicy.startupPolicyOrder")
_NAME: Final = "jobset.sigs.k8s.io/replicatedjob-name"
_INDEX: Final = "jobset.sigs.k8s.io/job-index"


def jobset(workload: Workload) -> Grouped:
    """All replicated jobs at once, or one if they start in order; an existing flat group stays flat."""
    owner, pod = workload.owner, workload.pod
    for field in ("name", "uid"):
        if not getattr(owner, field):
            raise owner.bad(f"metadata.{field}", "is missing")
    group = inherited(workload)
    in_order = text_in(owner, _ORDER) == "InOrder"
    jobs = owner.once(objects_in, _JOBS)
    if not jobs:
        raise owner.bad(str(_JOBS), "is missing or empty")
    least = _stated_minimum(owner)
    if _is_flat(workload):
        return Grouped(_flat(group, pod, in_order=in_order, least=least))
    subgroups, count = owner.once(_tree)
    wanted = 1 if in_order else count
    group = replace(
        group, min_subgroup=min(least, count) if least is not None else wanted, subgroups=subgroups
    )
    return Grouped(group, _leaf(pod, group))


def _tree(owner: Item) -> tuple[Subgroups, int]:
    """The subgroups, and how many replicated jobs have replicas."""
    subgroups: list[GroupSubgroup] = []
    count = 0
    for i, job in enumerate(objects_in(owner, _JOBS)):
        parts = _replicated_job(owner, f"{_JOBS}[{i}]", job, MOST - len(subgroups))
        subgroups += parts
        count += bool(parts)
    if not count:
        raise owner.bad(str(_JOBS), "no replicated job has replicas")
    return Subgroups(subgroups), count


def _stated_minimum(owner: Item) -> int | None:
    text = owner.annotations.get(keys.BATCH_MIN_MEMBER)
    if text is None:
        return None
    where = annotation(keys.BATCH_MIN_MEMBER)
    least = spelled_integer(owner, where, text)
    if least < 1:
        raise owner.bad(where, f"{least} is below 1")
    return least


def _is_flat(workload: Workload) -> bool:
    """Whether this JobSet already has a group without subgroups."""
    name = group_name(workload.owner)
    for found in workload.reads.pod_groups(workload.pod.namespace, name):
        called = found["metadata"]["name"]
        if (called == name or called.startswith(f"{name}-")) and not (found.get("spec") or {}).get(
            "subGroups"
        ):
            return True
    return False


def _flat(group: Group, pod: Item, *, in_order: bool, least: int | None) -> Group:
    job = pod.labels.get(_NAME)
    if not job:
        raise pod.bad(label(_NAME), "is missing")
    name = f"{group.name}-{job}" if in_order else group.name
    return replace(group, name=name, min_member=1 if least is None else least)


def _replicated_job(owner: Item, where: str, job: Json, most: int) -> list[GroupSubgroup]:
    """The subgroups of one replicated job, at most ``most``: none when it has no replicas."""
    name = job.get("name")
    if not isinstance(name, str) or not 0 < len(name) <= LONGEST_LABEL:
        raise owner.bad(f"{where}.name", f"{shown(name)} is not a name")
    replicas = checked_integer(owner, f"{where}.replicas", job.get("replicas"))
    replicas = 1 if replicas is None else replicas
    if replicas < 0:
        raise owner.bad(f"{where}.replicas", f"{replicas} is negative")
    if not replicas:
        return []
    if replicas >= most:
        raise owner.bad(f"{where}.replicas", f"{replicas} give more than {MOST} subgroups")
    template = checked_object(owner, f"{where}.template", job.get("template")) or {}
    annotations = template_annotations(owner, f"{where}.template", template)
    least = _pods(owner, where, template, annotations)
    topology = _topology(annotations)
    leaves = [
        GroupSubgroup(f"{name}-replica-{i}", least, parent=name, topology=topology) for i in range(replicas)
    ]
    return [GroupSubgroup(name, min_subgroup=replicas), *leaves]


def _pods(owner: Item, where: str, template: Json, annotations: dict[str, str]) -> int:
    text = annotations.get(keys.BATCH_MIN_MEMBER)
    if text:
        stated = f"{where}.template.metadata.annotations[{keys.BATCH_MIN_MEMBER}]"
        least = spelled_integer(owner, stated, text)
        if least < 1:
            raise owner.bad(stated, f"{least} is below 1")
        return least
    spec = checked_object(owner, f"{where}.template.spec", template.get("spec")) or {}
    parallelism = checked_integer(owner, f"{where}.template.spec.parallelism", spec.get("parallelism"))
    return 1 if parallelism is None else parallelism


def _topology(annotations: dict[str, str]) -> GroupTopology:
    wanted = placement(annotations)
    return wanted if wanted.name and (wanted.required or wanted.preferred) else NOWHERE


def _leaf(pod: Item, group: Group) -> str:
    for name in (_NAME, _INDEX):
        if name not in pod.labels:
            raise pod.bad(label(name), "is missing")
    wanted = f"{pod.labels[_NAME]}-replica-{pod.labels[_INDEX]}"
    if not group.subgroups.parents.get(wanted):
        raise pod.bad(label(_NAME), f"the JobSet has no Job {shown(wanted)}")
    return wanted
