"""Finds what the API server or the PodGroup webhook would refuse, before it is sent (1.2)."""

from __future__ import annotations

import re
from typing import Any, Final

from kai_cp.json_types import Json
from kai_cp.object_names import LABEL, LONGEST_KEY, LONGEST_LABEL, LONGEST_NAME, SUBDOMAIN
from kai_cp.reader.fields import shown
from kai_cp.workloads.groups import Group
from kai_cp.workloads.items import GroupingError

_SUBGROUP: Final = re.compile(LABEL)
_LABEL_VALUE: Final = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?")
_LABEL_NAME: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")


def refuse_invalid(body: Json, group: Group) -> None:
    """Raise ``GroupingError`` that names PodGroup and field if this PodGroup cannot be written."""
    if not group.owner.uid:
        raise GroupingError(
            f"{group.owner.kind} {group.namespace}/{group.owner.name}", "metadata.uid", "is missing"
        )
    problem = _metadata_problem(body["metadata"]) or spec_problem(body["spec"])
    if problem:
        raise GroupingError(f"PodGroup {group.namespace}/{group.name}", *problem)


def _metadata_problem(meta: Json) -> tuple[str, str] | None:
    name = meta["name"]
    if len(name) > LONGEST_NAME or not SUBDOMAIN.fullmatch(name):
        return "metadata.name", f"{shown(name)} is not a name of an object"
    for key, value in (meta.get("labels") or {}).items():
        prefix, _, short = key.rpartition("/")
        good = _LABEL_NAME.fullmatch(short) and len(short) <= LONGEST_LABEL
        if not good or (prefix and not SUBDOMAIN.fullmatch(prefix)):
            return f"metadata.labels[{key}]", "is not a name of a label"
        if len(value) > LONGEST_LABEL or not _LABEL_VALUE.fullmatch(value):
            return f"metadata.labels[{key}]", f"{shown(value)} is not a value of a label"
    return None


def spec_problem(spec: Json) -> tuple[str, str] | None:
    """The first field of a spec that would be refused, with the problem."""
    found = _holder_problem(spec, "spec")
    if found:
        return found
    by_name: dict[str, Json] = {}
    for i, subgroup in enumerate(spec.get("subGroups") or ()):
        name = subgroup["name"]
        if len(name) > LONGEST_LABEL or not _SUBGROUP.fullmatch(name):
            return (
                f"spec.subGroups[{i}].name",
                f"{shown(name)} is not a name of a subgroup: a-z, 0-9 and - only",
            )
        if name in by_name:
            return f"spec.subGroups[{i}].name", f"{shown(name)} names two subgroups"
        by_name[name] = subgroup
    return _tree_problem(by_name)


def _tree_problem(by_name: dict[str, Json]) -> tuple[str, str] | None:
    parents = {subgroup["parent"] for subgroup in by_name.values() if subgroup.get("parent")}
    for i, (name, subgroup) in enumerate(by_name.items()):
        where = f"spec.subGroups[{i}]"
        found = _holder_problem(subgroup, where)
        if found:
            return found
        above, seen = subgroup.get("parent"), {name}
        while above:
            if above not in by_name:
                return f"{where}.parent", f"{shown(above)} is not a subgroup"
            if above in seen:
                return f"{where}.parent", f"{shown(above)} is its own ancestor"
            seen.add(above)
            above = by_name[above].get("parent")
        key = "minMember" if name in parents else "minSubGroup"
        if subgroup.get(key) is not None:
            kind = "has subgroups" if name in parents else "has no subgroups"
            return f"{where}.{key}", f"{shown(name)} {kind}"
        if name not in parents and subgroup.get("minMember") is None:
            return f"{where}.minMember", "is missing"
    return None


def _holder_problem(holder: Json, where: str) -> tuple[str, str] | None:
    """The problem of the minimum or the topology of a group or subgroup."""
    for key, value in (holder.get("topologyConstraint") or {}).items():
        if len(value) > LONGEST_KEY:  # It may be in each of 10,000 subgroups.
            return f"{where}.topologyConstraint.{key}", f"{shown(value)} is too long"
    values: list[Any] = [holder.get("minMember"), holder.get("minSubGroup")]
    for key, value in zip(("minMember", "minSubGroup"), values, strict=True):
        if value is not None and value < 0:
            return f"{where}.{key}", f"{value} is negative"
        if value is not None and value >= 2**31:
            return f"{where}.{key}", f"{value} is above 32 bits"
    if None not in values:
        return where, "minMember and minSubGroup exclude each other"
    return None
