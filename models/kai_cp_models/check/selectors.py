"""Label and node selectors as the checker reads them: from the API's text, independently of the rules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from kai_cp_models.pods import LabelSelector, NodeTerms, Requirement
from kai_cp_models.snapshot import Node

Thing = TypeVar("Thing")
Label = tuple[str, ...]
"""A key and a value; a key with any value; or nothing, which every object has."""


def selects(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Whether a label selector matches labels; no selector matches nothing, an empty one everything."""
    return selector is not None and not any(_refuses(need, labels) for need in selector.requirements)


class ByLabel(Generic[Thing]):
    """Things by labels that their selector needs: most need not be asked about an object."""

    def __init__(self, things: Iterable[tuple[Iterable[Label], Thing]]) -> None:
        self._things: dict[Label, list[Thing]] = {}
        for labels, thing in things:
            for label in labels:
                self._things.setdefault(label, []).append(thing)

    def asked(self, labels: Iterable[Label]) -> Iterator[Thing]:
        """Those whose selector may match an object with these labels, see ``had``."""
        return chain.from_iterable(self._things.get(label, ()) for label in labels)


class ObjectLabels:
    """The labels of many objects. A selector is told of by where its labels stand, not asked about each."""

    def __init__(self, objects: Sequence[Mapping[str, str]]) -> None:
        places: dict[Label, list[int]] = {}
        for at, labels in enumerate(objects):
            for label in chain(zip(labels), labels.items()):
                places.setdefault(label, []).append(at)
        self._places = {label: np.array(found) for label, found in places.items()}
        self._count = len(objects)

    def selected(self, selector: LabelSelector) -> npt.NDArray[np.bool_]:
        """Of each object, whether the selector matches it, as ``selects`` says."""
        selected = np.ones(self._count, np.bool_)
        for need in selector.requirements:
            by_value = need.operator in ("In", "NotIn")
            having = np.zeros(self._count, np.bool_)
            for label in {(need.key, value) for value in need.values} if by_value else ((need.key,),):
                if label in self._places:
                    having[self._places[label]] = True
            selected &= having == (need.operator in ("In", "Exists"))
        return selected


def needed(selector: LabelSelector | None) -> list[Label]:
    """Labels of which every object that the selector matches has one, with named values if it names some."""
    needs = selector.requirements if selector is not None else ()
    for need in needs:
        if need.operator == "In":
            return [(need.key, value) for value in sorted(set(need.values))]
    return next(([(need.key,)] for need in needs if need.operator == "Exists"), [()])


def had(labels: Mapping[str, str]) -> list[Label]:
    """What ``needed`` may name of an object with these labels."""
    return [(), *((key,) for key in sorted(labels)), *sorted(labels.items())]


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
