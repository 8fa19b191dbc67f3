"""Evaluates a row of the table without a shape: minimum, roles, subgroups, one group per pod."""

from __future__ import annotations

from dataclasses import replace

from kai_cp import keys
from kai_cp.reader.fields import shown
from kai_cp.workloads.groups import NOWHERE, Grouped, GroupSubgroup, GroupTopology, Subgroups
from kai_cp.workloads.items import (
    Item,
    Path,
    checked_integer,
    checked_object,
    object_in,
    spelled_integer,
    value_at,
)
from kai_cp.workloads.kinds import KindPart, Roles
from kai_cp.workloads.workload import Workload, group_name, inherited, placement


def by_row(workload: Workload) -> Grouped:
    """The group of a kind without a shape."""
    group = inherited(workload)
    if workload.kind.group_per == "pod":
        pod = workload.pod
        return Grouped(replace(group, name=group_name(pod), owner=pod.reference))
    least = minimum(workload)
    if not workload.kind.parts:
        return Grouped(replace(group, min_member=1 if least is None else least))
    subgroups = Subgroups(_subgroup(workload.owner, part) for part in workload.kind.parts)
    total = sum(subgroup.min_member or 0 for subgroup in subgroups)
    return Grouped(
        replace(group, min_member=total if least is None else least, subgroups=subgroups), _part_of(workload)
    )


def minimum(workload: Workload) -> int | None:
    """The value at the first existing path of the row, else the sum of its roles; None if it names
    neither.
    """
    kind, owner = workload.kind, workload.owner
    found = first_integer(owner, kind.min_member)
    if found is None and kind.roles is not None:
        found = sum(owner.once(replicas_by_role, kind.roles).values())
        if found <= 0:
            raise owner.bad(str(kind.roles.at), f"{found} replicas in all; at least 1 is needed")
    if found is None and kind.required:
        raise owner.bad(" or ".join(map(str, kind.min_member)), "is missing")
    return found


def first_integer(item: Item, paths: tuple[Path, ...]) -> int | None:
    """The integer at the first existing path. Labels and annotations have it as text."""
    for where in paths:
        value = value_at(item, where)
        if value is None:
            continue
        if where.keys[0] == "metadata" and isinstance(value, str):
            return spelled_integer(item, str(where), value)
        return checked_integer(item, str(where), value)
    return None


def replicas_by_role(owner: Item, roles: Roles) -> dict[str, int]:
    """Replicas of every role: at least one each. Required roles must exist."""
    found = object_in(owner, roles.at)
    if found is None:
        raise owner.bad(str(roles.at), "is missing")
    for role in roles.required:
        if role not in found:
            raise owner.bad(str(roles.at), f"the role {role} is missing")
    replicas: dict[str, int] = {}
    for role in found:
        where = roles.at.below(role, "replicas")
        count = checked_integer(owner, str(where), value_at(owner, where))
        if not count:
            raise owner.bad(str(where), "is missing" if count is None else "is 0; at least 1 is needed")
        replicas[role] = count
    return replicas


def template_annotations(item: Item, where: str, template: object) -> dict[str, str]:
    """Annotations of the pod template at ``where``. Raises ``GroupingError`` for one that is not a string."""
    found = checked_object(item, where, template) or {}
    for key in ("metadata", "annotations"):
        where = f"{where}.{key}"
        found = checked_object(item, where, found.get(key)) or {}
    for name, value in found.items():
        if not isinstance(value, str):
            raise item.bad(f"{where}[{name}]", f"{shown(value)} is not a string")
    return dict(found)


def template_placement(item: Item, where: str, template: object) -> GroupTopology:
    """The topology constraint of a pod template. A level without a topology name is an error."""
    wanted = placement(template_annotations(item, where, template))
    if not wanted.required and not wanted.preferred:
        return NOWHERE
    if not wanted.name:
        named = f"{where}.metadata.annotations[{keys.TOPOLOGY}]"
        raise item.bad(named, "is missing, though a level of it is asked for")
    return wanted


def _subgroup(owner: Item, part: KindPart) -> GroupSubgroup:
    least = first_integer(owner, part.min_member)
    found = GroupSubgroup(part.name, 1 if least is None else least)
    if part.template is None:
        return found
    template = value_at(owner, part.template)
    return replace(found, topology=template_placement(owner, str(part.template), template))


def _part_of(workload: Workload) -> str:
    labels = workload.pod.labels
    for part in workload.kind.parts:
        if all(labels.get(name) == value for name, value in part.pods.items()):
            return part.name
    return ""
