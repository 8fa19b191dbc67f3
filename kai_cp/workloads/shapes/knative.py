"""Knative services: one group for each revision, or for each pod if that is set or was so before."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from kai_cp import keys
from kai_cp.workloads.groups import Grouped
from kai_cp.workloads.items import GroupingError, Item, Reference, annotation, label, spelled_integer
from kai_cp.workloads.reads import Forbidden
from kai_cp.workloads.workload import Workload, group_name, inherited

_REVISION: Final = "serving.knative.dev/revision"
_MIN_SCALE: Final = "autoscaling.knative.dev/min-scale"


def knative(workload: Workload) -> Grouped:
    """The group of a revision's pods, or of one of them."""
    pod = workload.pod
    revision = _revision(workload)
    own = workload.about(revision)
    group = inherited(own)
    if not workload.settings.knative_gang_schedule or _grouped_by_pod(workload, revision):
        return Grouped(
            replace(
                group, name=group_name(pod), owner=pod.reference, priority_class=workload.kind.priority_class
            )
        )
    try:
        least = spelled_integer(revision, annotation(_MIN_SCALE), revision.annotations.get(_MIN_SCALE, ""))
    except GroupingError:
        least = 1
    return Grouped(replace(group, min_member=least))


def _revision(workload: Workload) -> Item:
    pod = workload.pod
    name = pod.labels.get(_REVISION)
    if name is None:
        raise pod.bad(label(_REVISION), "is missing")
    try:
        found = workload.reads.owner(Reference("serving.knative.dev/v1", "Revision", name, ""), pod.namespace)
    except Forbidden:
        raise pod.bad(label(_REVISION), f"the Revision {name} may not be read") from None
    if found is None:
        raise pod.bad(label(_REVISION), f"the Revision {name} is not there")
    return found


def _grouped_by_pod(workload: Workload, revision: Item) -> bool:
    """Whether the revision's pods already have groups of their own."""
    namespace = workload.pod.namespace
    named: set[str] = set()
    # Two pods of one group answer it: each of thousands of pods asks.
    for pod in workload.reads.pods(namespace, {_REVISION: revision.name}):
        if keys.POD_GROUP not in pod.annotations:
            continue
        name = pod.annotations[keys.POD_GROUP]
        if name in named:
            return False
        named.add(name)
    if len(named) != 1:
        return bool(named)
    [only] = named
    group = workload.reads.pod_group(namespace, only)
    if group is None:
        return False
    owners = (group.get("metadata") or {}).get("ownerReferences") or [{}]
    kind = owners[0].get("kind")
    if kind in ("Revision", "Pod"):
        return bool(kind == "Pod")
    raise GroupingError(
        f"PodGroup {namespace}/{only}",
        "metadata.ownerReferences",
        "neither the revision nor a pod owns it, so nothing says how its pods are grouped",
    )
