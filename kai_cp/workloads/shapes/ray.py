"""Ray clusters, and the jobs and services that make them."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from kai_cp.json_types import Json
from kai_cp.reader.fields import shown
from kai_cp.workloads.groups import Grouped, GroupSubgroup, GroupTopology, Subgroups
from kai_cp.workloads.items import Item, Reference, checked_integer, object_in, objects_in, path, text_in
from kai_cp.workloads.reads import Forbidden
from kai_cp.workloads.rows import template_placement
from kai_cp.workloads.workload import Workload, inherited

HEAD: Final = "headgroup"
_GROUP: Final = "ray.io/group"
_CLASS: Final = "ray.io/priority-class-name"
_HEAD_SPEC: Final = path("spec.headGroupSpec")
_WORKERS: Final = path("spec.workerGroupSpecs")


def ray(workload: Workload) -> Grouped:
    """The head and every worker group are subgroups; an existing flat group stays flat."""
    owner = workload.owner
    cluster = _cluster(workload)
    subgroups = cluster.once(_subgroups)
    group = replace(
        inherited(workload),
        min_member=sum(subgroup.min_member or 0 for subgroup in subgroups),
    )
    if _CLASS in owner.labels:
        group = replace(group, priority_class=owner.labels[_CLASS])
    stored = workload.reads.pod_group(group.namespace, group.name)
    if stored is not None and not (stored.get("spec") or {}).get("subGroups"):
        return Grouped(group)
    wanted = workload.pod.labels.get(_GROUP, "")
    inside = wanted if wanted in subgroups.parents else ""
    return Grouped(replace(group, subgroups=subgroups), inside)


def _cluster(workload: Workload) -> Item:
    """The RayCluster: the workload itself, or the one that its status names."""
    owner, paths = workload.owner, workload.kind.cluster
    if not paths:
        return owner
    where, name = paths[-1], ""
    for candidate in paths:
        found = text_in(owner, candidate)
        if found is not None:
            where, name = candidate, found
            break
    if not name:
        raise owner.bad(str(where), "names no RayCluster yet")
    reference = Reference(owner.reference.api_version, "RayCluster", name, "")
    try:
        cluster = workload.reads.whole(reference, workload.pod.namespace)
    except Forbidden:
        raise owner.bad(str(where), f"the RayCluster {name} may not be read") from None
    if cluster is None:
        raise owner.bad(str(where), f"the RayCluster {name} is not there")
    return cluster


def _subgroups(cluster: Item) -> Subgroups:
    head = object_in(cluster, _HEAD_SPEC)
    found = [GroupSubgroup(HEAD, 1, topology=_topology(cluster, str(_HEAD_SPEC), head or {}))]
    for i, spec in enumerate(objects_in(cluster, _WORKERS)):
        where = f"{_WORKERS}[{i}]"
        least = _least(cluster, where, spec)
        if least is None:
            continue
        name = spec.get("groupName")
        name = name if isinstance(name, str) and name else f"worker-group-{i}"
        found.append(GroupSubgroup(name, least, topology=_topology(cluster, where, spec)))
    return Subgroups(found)


def _least(cluster: Item, where: str, spec: Json) -> int | None:
    """The pods of a worker group that must start together; None if it is suspended or has no replicas."""

    def integer(key: str, default: int) -> int:
        found = checked_integer(cluster, f"{where}.{key}", spec.get(key))
        return default if found is None else found

    suspended = spec.get("suspended")
    if suspended is not None and not isinstance(suspended, bool):
        raise cluster.bad(f"{where}.suspended", f"{shown(suspended)} is neither true nor false")
    if suspended:
        return None
    replicas, least, hosts = integer("replicas", 0), integer("minReplicas", 0), integer("numOfHosts", 1)
    if least > replicas:
        raise cluster.bad(f"{where}.minReplicas", f"{least} is more than the replicas, {replicas}")
    if not least and not replicas:
        return None
    return (least if least > 0 else replicas) * hosts


def _topology(cluster: Item, where: str, spec: Json) -> GroupTopology:
    return template_placement(cluster, f"{where}.template", spec.get("template"))
