"""LeaderWorkerSet: one group for each of its groups, with leader, workers and segments as subgroups."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from kai_cp.reader.fields import shown
from kai_cp.workloads.groups import NOWHERE, Grouped, GroupSubgroup, GroupTopology, Subgroups
from kai_cp.workloads.items import (
    GroupingError,
    Item,
    integer_in,
    label,
    object_in,
    path,
    spelled_integer,
    text_in,
)
from kai_cp.workloads.shapes import segments
from kai_cp.workloads.workload import Workload, inherited

_SIZE: Final = path("spec.leaderWorkerTemplate.size")
_POLICY: Final = path("spec.startupPolicy")
_SEGMENT: Final = path("spec.leaderWorkerTemplate.subGroupPolicy.subGroupSize")
_SEGMENT_TYPE: Final = path("spec.leaderWorkerTemplate.subGroupPolicy.subGroupPolicyType")
_TEMPLATE: Final = path("spec.leaderWorkerTemplate.workerTemplate")
_GROUP_INDEX: Final = "leaderworkerset.sigs.k8s.io/group-index"
_WORKER_INDEX: Final = "leaderworkerset.sigs.k8s.io/worker-index"
_STATED_SIZE: Final = "leaderworkerset.sigs.k8s.io/size"
_LEADER: Final = GroupSubgroup("leader", 1)


def lws(workload: Workload) -> Grouped:
    """The group of one leader and its workers."""
    owner, pod = workload.owner, workload.pod
    size = integer_in(owner, _SIZE)
    if size is None or size <= 0:
        raise owner.bad(str(_SIZE), "is missing" if size is None else f"{size} is below 1")
    index = _worker_index(pod)
    alone, most = _start(workload, size, index)
    subgroups, inside = _subgroups(workload, most, index, alone=alone)
    group = replace(inherited(workload), min_member=1 if alone else most, subgroups=subgroups)
    return Grouped(replace(group, name=_name(group.name, pod)), inside)


def _worker_index(pod: Item) -> int | None:
    text = pod.labels.get(_WORKER_INDEX)
    if text is None:
        return None
    index = spelled_integer(pod, label(_WORKER_INDEX), text)
    if index < 0:
        raise pod.bad(label(_WORKER_INDEX), f"{index} is negative")
    return index


def _name(usual: str, pod: Item) -> str:
    try:
        index = spelled_integer(pod, "", pod.labels.get(_GROUP_INDEX, ""))
    except GroupingError:
        return usual
    return f"{usual}-group-{index}"


def _start(workload: Workload, size: int, index: int | None) -> tuple[bool, int]:
    """Whether only the leader must start, before it has a node, and the pods of the whole group."""
    owner, pod = workload.owner, workload.pod
    policy = text_in(owner, _POLICY)
    if policy in (None, "LeaderCreated"):
        return False, size
    if policy != "LeaderReady":
        raise owner.bad(str(_POLICY), f"{shown(policy)} is neither LeaderCreated nor LeaderReady")
    spec = pod.raw.get("spec")
    alone = index == 0 and not (isinstance(spec, dict) and spec.get("nodeName"))
    try:
        return alone, spelled_integer(pod, "", pod.annotations.get(_STATED_SIZE, ""))
    except GroupingError:
        return alone, size


def _subgroups(workload: Workload, most: int, index: int | None, *, alone: bool) -> tuple[Subgroups, str]:
    owner, pod = workload.owner, workload.pod
    leads = index == 0
    size = _segment_size(owner, most)
    if size is None or alone:
        workers = (GroupSubgroup("workers", most - 1),) if most > 1 and not alone else ()
        return Subgroups((_LEADER, *workers)), "leader" if leads else "workers" if workers else ""
    if index is None:
        raise pod.bad(label(_WORKER_INDEX), "is missing; segments need it")
    topology = NOWHERE
    if object_in(owner, _TEMPLATE) is not None:
        topology = segments.segment_placement(pod, owner, _TEMPLATE)
    kind = text_in(owner, _SEGMENT_TYPE)
    tree = owner.once(_tree, most, size, topology, kind)
    number = 0 if leads else (index - 1 if _extra(most, size) else index) // size
    segment = f"segment-{number}"
    if segment not in tree.parents:
        raise pod.bad(label(_WORKER_INDEX), f"{index} is beyond the group's size, {most}")
    if leads and kind == "LeaderExcluded":
        return tree, "leader"
    if number or kind not in (None, "LeaderWorker"):
        return tree, segment
    return tree, "leader" if leads else "workers"


def _tree(owner: Item, most: int, size: int, topology: GroupTopology, kind: str | None) -> Subgroups:
    pieces = _pieces(owner, most, size, topology)
    if kind == "LeaderExcluded":
        return Subgroups((_LEADER, *pieces))
    if kind not in (None, "LeaderWorker"):
        return Subgroups(pieces)
    first = pieces[0].name
    beside = (pieces[0].min_member or 0) - (0 if _extra(most, size) else 1)
    return Subgroups(
        (
            replace(pieces[0], min_member=None, min_subgroup=2),
            *pieces[1:],
            replace(_LEADER, parent=first),
            GroupSubgroup("workers", beside, parent=first),
        )
    )


def _extra(most: int, size: int) -> bool:
    """Whether the leader is beyond what the segments divide."""
    return (most - 1) % size == 0


def _pieces(owner: Item, most: int, size: int, topology: GroupTopology) -> tuple[GroupSubgroup, ...]:
    """The segments. A surplus leader belongs to the first one, whose workers are counted here."""
    divided = most - 1 if _extra(most, size) else most
    count = -(-divided // size)
    segments.refuse_too_many(owner, count)
    last = divided - size * (count - 1)
    return tuple(
        GroupSubgroup(f"segment-{i}", size if i < count - 1 else last, topology=topology)
        for i in range(count)
    )


def _segment_size(owner: Item, most: int) -> int | None:
    size, where = integer_in(owner, _SEGMENT), str(_SEGMENT)
    if size is None:
        size, _, where = next(segments.stated_sizes((owner, None), (owner, _TEMPLATE)), (None, owner, ""))
    if size is not None and not 1 < size <= most:
        raise owner.bad(where, f"{size} is not between 2 and the group's size, {most}")
    if size is not None and text_in(owner, _SEGMENT_TYPE) == "LeaderExcluded" and (most - 1) % size:
        raise owner.bad(where, f"{most - 1} workers cannot be divided by {size}")
    return size
