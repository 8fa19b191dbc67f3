"""Finds what the API server or the PodGroup webhook would refuse, before it is sent (1.2)."""

from __future__ import annotations

import re
from typing import Any, Final

import orjson

from kai_cp.json_types import Json
from kai_cp.object_names import LABEL, LONGEST_KEY, LONGEST_LABEL, LONGEST_NAME, SUBDOMAIN
from kai_cp.reader.fields import shown
from kai_cp.workloads.groups import Group, Subgroups
from kai_cp.workloads.items import GroupingError

LARGEST: Final = 512 * 1024
"""Bytes of JSON of an object in a namespace; one that all ``limits`` allow has less."""
WHY: Final = f"it has more than {LARGEST} bytes"
_SUBGROUP: Final = re.compile(LABEL)
_LABEL_VALUE: Final = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?")
_LABEL_NAME: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")


def refuse_invalid(body: Json, group: Group) -> None:
    """Raise ``GroupingError`` that names PodGroup and field if this PodGroup cannot be written."""
    if not group.owner.uid:
        raise GroupingError(
            f"{group.owner.kind} {group.namespace}/{group.owner.name}", "metadata.uid", "is missing"
        )
    problem = _metadata_problem(body["metadata"]) or _holder_problem(body["spec"], "spec")
    if not problem and len(orjson.dumps(body)) > LARGEST:
        problem = "", WHY  # It would not be scheduled, and be written again for each of its pods.
    _refuse(group, problem)


def refuse_tree(group: Group) -> None:
    """Raise ``GroupingError`` if its subgroups cannot be written."""
    _refuse(group, group.subgroups.answers.of(_tree_problem, group.subgroups))


def _refuse(group: Group, problem: tuple[str, str] | None) -> None:
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


def _tree_problem(subgroups: Subgroups) -> tuple[str, str] | None:
    """The first field of subgroups that would be refused, with the problem."""
    by_name: dict[str, Json] = {}
    made = subgroups.json()
    if len(orjson.dumps(made)) > LARGEST:
        return "spec.subGroups", f"{len(made)} have more than {LARGEST} bytes"
    for i, subgroup in enumerate(made):
        name = subgroup["name"]
        if len(name) > LONGEST_LABEL or not _SUBGROUP.fullmatch(name):
            return (
                f"spec.subGroups[{i}].name",
                f"{shown(name)} is not a name of a subgroup: a-z, 0-9 and - only",
            )
        if name in by_name:
            return f"spec.subGroups[{i}].name", f"{shown(name)} names two subgroups"
        by_name[name] = subgroup
    return _parents_problem(by_name)


def _parents_problem(by_name: dict[str, Json]) -> tuple[str, str] | None:
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
