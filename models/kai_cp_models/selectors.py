"""Label and node selectors as the rules apply them; the checker states them independently."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, Generic, TypeVar

from kai_cp_models.pods import LabelSelector, NodeTerms, Requirement

Thing = TypeVar("Thing")

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


class Selecting(Generic[Thing]):
    """Things with a label selector: which of them select some labels, without asking all of them.

    A selector that names values of a label is asked only for labels with one of these.
    """

    def __init__(self, things: Iterable[tuple[LabelSelector | None, Thing]]) -> None:
        self._things = [(selector, thing) for selector, thing in things if selector is not None]
        self._named: dict[tuple[str, str], list[int]] = {}
        self._others: list[int] = []
        for i, (selector, _) in enumerate(self._things):
            needs = [need for need in selector.requirements if need.operator == "In"]
            if needs:
                fewest = min(needs, key=lambda need: len(need.values))
                for value in fewest.values:
                    self._named.setdefault((fewest.key, value), []).append(i)
            else:
                self._others.append(i)

    def of(self, labels: Mapping[str, str]) -> list[Thing]:
        """The things that select the labels, in their order."""
        asked = {*self._others, *(i for item in labels.items() for i in self._named.get(item, ()))}
        found = (self._things[i] for i in sorted(asked))
        return [thing for selector, thing in found if selects(selector, labels)]
