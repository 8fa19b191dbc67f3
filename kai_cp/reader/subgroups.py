"""The gang tree of a pod group: minMember, minSubGroup, parents (1.2, 5.1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from kai_cp.json_types import Json
from kai_cp.reader.fields import Malformed, int_at, objects_at, shown, text_at
from kai_cp.reader.topologies import TopologyDraft, read_constraint
from kai_cp_models.snapshot import Subgroup, TopologyConstraint

DEFAULT: Final = "default"
"""The pod set of a pod group without subgroups, and of pods without a subgroup label."""
DEEPEST: Final = 100
"""Most levels of subgroups."""


@dataclass(frozen=True, slots=True)
class _Member:
    name: str
    parent: str
    min_member: int | None
    min_sub_group: int | None
    constraint: TopologyConstraint | None
    where: str


def read_tree(spec: Json, fabrics: Mapping[str, TopologyDraft]) -> Subgroup:
    """The root of the tree of subgroups, which has the name "". Raises ``Malformed``."""
    constraint = read_constraint(spec, "spec", fabrics)
    subgroups = objects_at(spec, "subGroups", "spec") if "subGroups" in spec else ()
    members = [_member(raw, f"spec.subGroups[{i}]", fabrics) for i, raw in enumerate(subgroups)]
    min_member = int_at(spec, "minMember", "spec", minimum=0)
    min_sub_group = int_at(spec, "minSubGroup", "spec", minimum=0)
    if not members:
        return _without_subgroups(1 if min_member is None else min_member, constraint)
    by_name: dict[str, _Member] = {}
    for member in members:
        if member.name in by_name:
            raise Malformed(f"{member.where}.name", f"{shown(member.name)} names two subgroups")
        by_name[member.name] = member
    children: dict[str, list[_Member]] = {}
    for member in members:
        if member.parent and member.parent not in by_name:
            raise Malformed(f"{member.where}.parent", f"{shown(member.parent)} is not a subgroup")
        children.setdefault(member.parent, []).append(member)
    _refuse_cycles(by_name)
    roots = tuple(_subtree(member, children) for member in _by_name(children[""]))
    return Subgroup(
        "", len(roots) if min_sub_group is None else min_sub_group, roots, leaf=False, constraint=constraint
    )


@lru_cache(maxsize=1024)
def _without_subgroups(min_member: int, constraint: TopologyConstraint | None) -> Subgroup:
    """Most pod groups are alike; they share one tree."""
    leaf = Subgroup(DEFAULT, min_member)
    return Subgroup("", 1, (leaf,), leaf=False, constraint=constraint)


def _member(raw: Json, where: str, fabrics: Mapping[str, TopologyDraft]) -> _Member:
    name = text_at(raw, "name", where)
    if not name:
        raise Malformed(f"{where}.name", "is missing")
    return _Member(
        name,
        # KAI looks up parents in lower case (1.2).
        text_at(raw, "parent", where).lower(),
        int_at(raw, "minMember", where, minimum=0),
        int_at(raw, "minSubGroup", where, minimum=0),
        read_constraint(raw, where, fabrics),
        where,
    )


def _by_name(members: list[_Member]) -> list[_Member]:
    return sorted(members, key=lambda member: member.name)


def _refuse_cycles(by_name: Mapping[str, _Member]) -> None:
    for member in by_name.values():
        above, steps = member, 0
        while above.parent:
            above, steps = by_name[above.parent], steps + 1
            if steps > min(len(by_name), DEEPEST):
                raise Malformed(f"{member.where}.parent", "the parents form a cycle or go too deep")


def _subtree(member: _Member, children: Mapping[str, list[_Member]]) -> Subgroup:
    below = children.get(member.name)
    if below is None:
        # A leaf without minMember is optional: nil is 0 here, unlike in the pod group itself (1.2).
        return Subgroup(member.name, member.min_member or 0, constraint=member.constraint)
    subtrees = tuple(_subtree(child, children) for child in _by_name(below))
    minimum = len(subtrees) if member.min_sub_group is None else member.min_sub_group
    return Subgroup(member.name, minimum, subtrees, leaf=False, constraint=member.constraint)


def lowered(root: Subgroup, hidden: Mapping[str, int]) -> Subgroup:
    """The tree with leaf minimums reduced by running pods that the snapshot does not show."""
    if root.leaf:
        return replace(root, minimum=max(0, root.minimum - hidden.get(root.name, 0)))
    return replace(root, children=tuple(lowered(child, hidden) for child in root.children))
