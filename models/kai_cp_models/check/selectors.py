"""Label and node selectors as the checker reads them: from the API's text, independently of the rules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Generic, TypeVar

from kai_cp_models.pods import LabelSelector, NodeTerms, Requirement
from kai_cp_models.snapshot import Node

Thing = TypeVar("Thing")


def selects(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Whether a label selector matches labels; no selector matches nothing, an empty one everything."""
    return selector is not None and not any(_refuses(need, labels) for need in selector.requirements)


class ByLabel(Generic[Thing]):
    """Things by the values of a label that their selector names: most need not be asked about a pod."""

    def __init__(self, things: Iterable[tuple[LabelSelector | None, Thing]]) -> None:
        self._things: dict[tuple[str, str] | None, list[Thing]] = {}
        for selector, thing in things:
            needs = selector.requirements if selector is not None else ()
            named = next((need for need in needs if need.operator == "In"), None)
            for label in [None] if named is None else {(named.key, value) for value in named.values}:
                self._things.setdefault(label, []).append(thing)

    def asked(self, labels: Mapping[str, str]) -> Iterator[Thing]:
        """Those whose selector may match the labels."""
        for label in (None, *sorted(labels.items())):
            yield from self._things.get(label, ())


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
        return value not in need.values
    if need.operator == "NotIn":
        return value in need.values
    if need.operator == "Exists":
        return value is None
    if need.operator == "DoesNotExist":
        return value is not None
    try:
        have, (bound,) = _whole(value or ""), map(_whole, need.values)
    except ValueError:
        return True
    return have <= bound if need.operator == "Gt" else have >= bound


def _whole(text: str) -> int:
    """An integer in decimal digits, with a sign or without. Raises ``ValueError`` for other text."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not digits.isascii() or not digits.isdigit():
        raise ValueError(text)
    return int(text)
