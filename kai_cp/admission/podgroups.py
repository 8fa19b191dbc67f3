"""Admission of pod groups: subgroups form a tree, every leaf has a minimum, durations can be read (1.2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kai_cp.admission.request import AdmissionRequest, Refused, Verdict
from kai_cp.json_types import Json
from kai_cp.reader.fields import Malformed, int_at, object_at, objects_at, text_at
from kai_cp.reader.times import duration_at

EITHER: Final = (
    "set minMember to schedule a fixed number of pods, or set minSubGroup to require a minimum number of "
    "child SubGroups, but not both"
)


def review(request: AdmissionRequest) -> Verdict:
    """Refuse subgroups that form no tree or lack a minimum, and times that are not durations; warn of a
    minimum that cannot be reached.
    """
    if request.operation == "DELETE":
        return Verdict(allowed=True)
    spec = object_at(request.object, "spec")
    try:
        warnings = _check(request, spec)
    except Refused as problem:
        if request.operation == "UPDATE" and request.old is not None and request.old.get("spec") == spec:
            # The spec was stored in this form, perhaps before admission ran; labels and finalizers may still
            # change.
            return Verdict(allowed=True, warnings=(*problem.warnings, str(problem)))
        raise
    return Verdict(allowed=True, warnings=warnings)


def _check(request: AdmissionRequest, spec: Json) -> tuple[str, ...]:
    member, most = int_at(spec, "minMember", "spec"), int_at(spec, "minSubGroup", "spec")
    if member is not None and most is not None:
        raise Refused(f"minMember ({member}) and minSubGroup are mutually exclusive: {EITHER}")
    for key in ("preemptionDelay", "stalenessGracePeriod"):
        try:
            duration_at(spec, key, "spec")
        except Malformed as problem:
            raise Refused(f"{problem} such as 90s or 1h30m") from None
    groups = _tree(spec)
    children: dict[str, list[str]] = {name: [] for name in groups}
    for name, group in groups.items():
        if group.get("parent") is not None:
            children[str(group["parent"])].append(name)
    errors: list[str] = []
    warnings: list[str] = []
    for name in sorted(groups):
        _check_minimums(request, name, groups[name], len(children[name]), errors, warnings=warnings)
    roots = sum(group.get("parent") is None for group in groups.values())
    if most is not None and most > roots:
        warnings.append(f"minSubGroup ({most}) exceeds the number of direct child SubGroups ({roots})")
    if errors:
        raise Refused("\n".join(errors), tuple(warnings))
    return tuple(warnings)


def _tree(spec: Json) -> Mapping[str, Json]:
    """Subgroups by name. Refuses duplicate names, and paths that do not end at the root."""
    groups: dict[str, Json] = {}
    for group in objects_at(spec, "subGroups", "spec"):
        name = text_at(group, "name", "spec.subGroups")
        if name in groups:
            raise Refused(f"duplicate subgroup name {name}")
        groups[name] = group
    parents = {name: _parent(group) for name, group in groups.items()}
    for name, parent in parents.items():
        if parent is not None and parent not in groups:
            raise Refused(f"parent {parent} of {name} was not found")
    rooted: set[str] = set()
    for name in groups:
        path: dict[str, None] = {}
        step: str | None = name
        while step is not None and step not in rooted:
            if step in path:
                below = list(path)
                cycle = [*below[below.index(step) :], step]
                raise Refused(f"cycle detected in subgroups: {' -> '.join(cycle)}")
            path[step] = None
            step = parents[step]
        rooted.update(path)
    for name in sorted(groups):
        if groups[name].get("minMember") is not None and groups[name].get("minSubGroup") is not None:
            raise Refused(f'subgroup "{name}": minMember and minSubGroup are mutually exclusive: {EITHER}')
    return groups


def _parent(group: Json) -> str | None:
    """The name of the subgroup above; None at the root."""
    return None if group.get("parent") is None else str(group["parent"])


def _check_minimums(
    request: AdmissionRequest,
    name: str,
    group: Json,
    children: int,
    errors: list[str],
    *,
    warnings: list[str],
) -> None:
    where = f"spec.subGroups[{name}]"
    member, most = int_at(group, "minMember", where), int_at(group, "minSubGroup", where)
    if not children:
        if most is not None:
            errors.append(
                f'subgroup "{name}": minSubGroup cannot be set on a leaf SubGroup (no child SubGroups)'
            )
        if member is None:
            errors.append(f"subgroup {name}: minMember is required")
        return
    if member is not None:
        (errors if request.operation == "CREATE" else warnings).append(
            f'subgroup "{name}": minMember cannot be set on a mid-level SubGroup (has child SubGroups); use '
            "minSubGroup instead"
        )
    if most is not None and most > children:
        warnings.append(
            f'subgroup "{name}": minSubGroup ({most}) exceeds the number of direct child SubGroups '
            f"({children})"
        )
