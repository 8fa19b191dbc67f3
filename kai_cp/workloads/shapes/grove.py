"""Grove: the group of a PodGang, which names its pods itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from kai_cp import keys
from kai_cp.json_types import Json
from kai_cp.reader.fields import shown
from kai_cp.workloads.groups import Group, Grouped, GroupSubgroup, GroupTopology, Subgroups
from kai_cp.workloads.items import (
    Item,
    Reference,
    checked_integer,
    checked_object,
    label,
    objects_in,
    path,
    text_in,
    value_at,
)
from kai_cp.workloads.reads import Forbidden
from kai_cp.workloads.workload import Workload, inherited, taken_over

_GANG: Final = "grove.io/podgang"
_TOPOLOGY_NAME: Final = "grove.io/topology-name"
_CLASS: Final = path("spec.priorityClassName")
_CONSTRAINT: Final = path("spec.topologyConstraint")
_CONFIGS: Final = path("spec.topologyConstraintGroupConfigs")
_GROUPS: Final = path("spec.podgroups")


def grove(workload: Workload) -> Grouped:
    """The PodGang as a group; the workload's labels and annotations count where the gang is silent."""
    gang = _gang(workload)
    topology = gang.annotations.get(_TOPOLOGY_NAME) or gang.annotations.get(keys.TOPOLOGY, "")
    name = text_in(gang, _CLASS)
    group = inherited(workload.about(gang))
    subgroups, least, places = gang.once(_tree, topology)
    group = replace(
        group,
        priority_class=group.priority_class if name is None else name,
        topology=_constraint(gang, str(_CONSTRAINT), value_at(gang, _CONSTRAINT), topology),
        min_member=least,
        subgroups=subgroups,
    )
    return Grouped(_completed(group, workload, gang), places.get(workload.pod.name, ""))


def _tree(gang: Item, topology: str) -> tuple[Subgroups, int, Mapping[str, str]]:
    """The subgroups, the pods that they need, and the subgroup of each pod."""
    parents, parent_of = _parents(gang, topology)
    leaves, places = _leaves(gang, topology, parent_of)
    return Subgroups((*parents, *leaves)), sum(leaf.min_member or 0 for leaf in leaves), places


def _gang(workload: Workload) -> Item:
    pod = workload.pod
    name = pod.labels.get(_GANG)
    if not name:
        raise pod.bad(label(_GANG), "is missing")
    try:
        found = workload.reads.whole(
            Reference("scheduler.grove.io/v1alpha1", "PodGang", name, ""), pod.namespace
        )
    except Forbidden:
        raise pod.bad(label(_GANG), f"the PodGang {name} may not be read") from None
    if found is None:
        raise pod.bad(label(_GANG), f"the PodGang {name} is not there")
    return found


def _completed(group: Group, workload: Workload, gang: Item) -> Group:
    """The gang completed from the workload; the workload's queue label counts too, unlike in KAI."""
    owner = workload.owner
    labels = {**owner.labels, **group.labels}
    annotations = {**taken_over(owner.annotations), **group.annotations}
    group = replace(group, labels=labels, annotations=annotations)
    queue = workload.settings.queue_label_key
    if owner.labels.get(queue) and queue not in gang.labels:
        group = replace(group, queue=labels[queue])
    if keys.PRIORITY_CLASS in labels:
        group = replace(group, priority_class=labels[keys.PRIORITY_CLASS])
    if keys.PREEMPTIBILITY in labels:
        said = labels[keys.PREEMPTIBILITY]
        if said not in keys.PREEMPTIBILITIES:
            whose = gang if keys.PREEMPTIBILITY in gang.labels else owner
            raise whose.bad(
                label(keys.PREEMPTIBILITY), f"{shown(said)} is neither preemptible nor non-preemptible"
            )
        group = replace(group, preemptibility=said)
    merged = inherited(workload.about(replace(gang, labels=labels, annotations=annotations)))
    if keys.PREEMPTION_DELAY in annotations:
        group = replace(group, preemption_delay=merged.preemption_delay)
    own, wanted = group.topology, merged.topology
    return replace(
        group,
        topology=GroupTopology(
            own.name or wanted.name, own.required or wanted.required, own.preferred or wanted.preferred
        ),
        follows_queue=merged.follows_queue,
    )


def _parents(gang: Item, topology: str) -> tuple[list[GroupSubgroup], Mapping[str, str]]:
    """Subgroups of subgroups, and the parent by the name of a child."""
    found: list[GroupSubgroup] = []
    parent_of: dict[str, str] = {}
    for i, config in enumerate(objects_in(gang, _CONFIGS)):
        where = f"{_CONFIGS}[{i}]"
        name = _text(gang, where, config, "name")
        children = _list(gang, where, config, "podGroupNames")
        if not children:
            continue
        for j, child in enumerate(children):
            if not isinstance(child, str):
                raise gang.bad(f"{where}.podGroupNames[{j}]", f"{shown(child)} is not a string")
            parent_of[child] = name
        inner = f"{where}.topologyConstraint"
        constraint = _constraint(gang, inner, config.get("topologyConstraint"), topology)
        found.append(GroupSubgroup(name, min_subgroup=len(children), topology=constraint))
    return found, parent_of


def _leaves(
    gang: Item, topology: str, parent_of: Mapping[str, str]
) -> tuple[list[GroupSubgroup], dict[str, str]]:
    """Subgroups of pods, and for each pod the first that lists it."""
    found: list[GroupSubgroup] = []
    places: dict[str, str] = {}
    for i, entry in enumerate(objects_in(gang, _GROUPS)):
        where = f"{_GROUPS}[{i}]"
        name = _text(gang, where, entry, "name")
        least = checked_integer(gang, f"{where}.minReplicas", entry.get("minReplicas"))
        if least is None or least <= 0:
            raise gang.bad(f"{where}.minReplicas", "is missing" if least is None else f"{least} is below 1")
        if "podReferences" not in entry:
            raise gang.bad(f"{where}.podReferences", "is missing")
        for j, reference in enumerate(_list(gang, where, entry, "podReferences")):
            inner = f"{where}.podReferences[{j}]"
            if not isinstance(reference, dict):
                raise gang.bad(inner, f"{shown(reference)} is not an object")
            namespace = _text(gang, inner, reference, "namespace")
            if namespace != gang.namespace:
                raise gang.bad(f"{inner}.namespace", f"{shown(namespace)} is another namespace")
            places.setdefault(_text(gang, inner, reference, "name"), name)
        inner = f"{where}.topologyConstraint"
        constraint = _constraint(gang, inner, entry.get("topologyConstraint"), topology)
        found.append(GroupSubgroup(name, least, parent=parent_of.get(name, ""), topology=constraint))
    return found, places


def _constraint(gang: Item, where: str, value: object, topology: str) -> GroupTopology:
    raw = checked_object(gang, where, value) or {}
    pack = checked_object(gang, f"{where}.packConstraint", raw.get("packConstraint")) or {}
    levels = []
    for key in ("required", "preferred"):
        value = pack.get(key)
        if value is not None and not isinstance(value, str):
            raise gang.bad(f"{where}.packConstraint.{key}", f"{shown(value)} is not a string")
        levels.append(value or "")
    if not any(levels):
        return GroupTopology()
    if not topology:
        raise gang.bad(f"{where}.packConstraint", f"a level without a topology: {_TOPOLOGY_NAME} is missing")
    return GroupTopology(topology, *levels)


def _text(gang: Item, where: str, holder: Json, key: str) -> str:
    value = holder.get(key)
    if not isinstance(value, str):
        raise gang.bad(f"{where}.{key}", "is missing" if value is None else f"{shown(value)} is not a name")
    return value


def _list(gang: Item, where: str, holder: Json, key: str) -> list[object]:
    value = holder.get(key)
    if value is None:
        return []
    if isinstance(value, list):
        return value
    raise gang.bad(f"{where}.{key}", f"{shown(value)} is not a list")
