"""Label selectors applied to labels (metav1.LabelSelector)."""

from __future__ import annotations

from collections.abc import Mapping

from kai_cp_models.snapshot import LabelSelector, Requirement


def matches(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Whether the labels meet every requirement; no selector matches nothing, an empty one all."""
    return selector is not None and all(_met(row, labels) for row in selector.requirements)


def _met(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value is not None and value in requirement.values
        case "NotIn":
            return value is None or value not in requirement.values
        case "Exists":
            return value is not None
        case _:
            return value is None
