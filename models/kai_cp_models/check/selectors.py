"""Label and node selectors as the checker reads them: from the API's text, independently of the rules."""

from __future__ import annotations

from collections.abc import Mapping

from kai_cp_models.pods import LabelSelector, NodeTerms, Requirement
from kai_cp_models.snapshot import Node


def selects(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Whether a label selector matches labels; no selector matches nothing, an empty one everything."""
    return selector is not None and not any(_refuses(need, labels) for need in selector.requirements)


def reaches(terms: NodeTerms | None, node: Node) -> bool:
    """Whether a node selector matches a node: all of one term holds. An empty term matches no node; no
    selector matches all.
    """
    if terms is None:
        return True
    fields = {"metadata.name": node.name}
    return any(
        term and not any(_refuses(need, fields if need.field else node.labels) for need in term)
        for term in terms
    )


def _refuses(need: Requirement, labels: Mapping[str, str]) -> bool:
    value = labels.get(need.key)
    if need.operator == "In":
        return value is None or value not in need.values
    if need.operator == "NotIn":
        return value is not None and value in need.values
    if need.operator == "Exists":
        return value is None
    if need.operator == "DoesNotExist":
        return value is not None
    numbers = [text for text in (value, *need.values) if text is not None and text.lstrip("+-").isdecimal()]
    if len(numbers) != 2 or len(need.values) != 1:
        return True
    have, bound = map(int, numbers)
    return have <= bound if need.operator == "Gt" else have >= bound
