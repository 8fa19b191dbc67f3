"""Label and node selectors as the rules apply them; the checker states them independently."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from kai_cp_models.pods import LabelSelector, NodeTerms, Requirement

_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,18}")
"""What ``Gt`` and ``Lt`` compare: 64-bit integers without spaces or underscores, as in Go."""


def selects(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Whether a metav1.LabelSelector selects the labels: None selects nothing, an empty one all."""
    return selector is not None and all(holds(need, labels.get(need.key)) for need in selector.requirements)


def holds(need: Requirement, value: str | None) -> bool:
    """Whether a requirement holds for the value of its label; None: there is no such label."""
    match need.operator:
        case "In":
            return value in need.values
        case "NotIn":
            return value not in need.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
    numbers = [text for text in (value or "", *need.values) if _NUMBER.fullmatch(text)]
    if len(numbers) != 2 or len(need.values) != 1:
        return False
    have, bound = map(int, numbers)
    return have > bound if need.operator == "Gt" else need.operator == "Lt" and have < bound


def reaches(terms: NodeTerms | None, name: str, labels: Mapping[str, str]) -> bool:
    """Whether a node selector selects the node of this name and labels; None selects every node."""
    return terms is None or any(
        term and all(holds(need, name if need.field else labels.get(need.key)) for need in term)
        for term in terms
    )
