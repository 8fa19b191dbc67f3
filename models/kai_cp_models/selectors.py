"""Label and node selectors as the rules apply them; the checker states them independently."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import chain, islice
from typing import Final, Generic, TypeVar

from kai_cp_models.pods import LabelSelector, NodeTerms, Requirement

Thing = TypeVar("Thing")
_Label = tuple[str, str | None]
"""Key and value; None: any value."""

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

    A selector that needs a label is asked only where the label is there, with a value that it names.
    """

    def __init__(self, things: Iterable[tuple[LabelSelector | None, Thing]]) -> None:
        self._things = [(selector, thing) for selector, thing in things if selector is not None]
        self._named: dict[_Label, list[int]] = {}
        self._others: list[int] = []
        named = [list(filter(None, map(_labels, selector.requirements))) for selector, _ in self._things]
        uses = Counter(label for found in named for labels in found for label in labels)
        for i, found in enumerate(named):
            # The rarest label, since many selectors may begin with the same one.
            rarest = min(found, key=lambda labels: sum(uses[label] for label in labels), default=None)
            for where in [self._others] if rarest is None else map(self._at, rarest):
                where.append(i)

    def _at(self, label: _Label) -> list[int]:
        return self._named.setdefault(label, [])

    def of(self, labels: Mapping[str, str], most: int | None = None) -> list[Thing]:
        """The things that select the labels, in their order; at most ``most`` of them, whichever."""
        known = chain.from_iterable(((key, value), (key, None)) for key, value in labels.items())
        asked = chain(self._others, chain.from_iterable(self._named.get(label, ()) for label in known))
        found = sorted(islice((i for i in asked if selects(self._things[i][0], labels)), most))
        return [self._things[i][1] for i in found]


def _labels(need: Requirement) -> tuple[_Label, ...]:
    """The labels of which the requirement needs one; none if it also holds without any."""
    values: Iterable[str | None] = {"In": need.values, "Exists": (None,)}.get(need.operator, ())
    return tuple((need.key, value) for value in dict.fromkeys(values))
