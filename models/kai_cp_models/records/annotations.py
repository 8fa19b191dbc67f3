"""Our own annotations of pod groups and queues: their names, and the one reader of their values."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, Final, TypeVar

from kai_cp_models.shown import shown
from kai_cp_models.snapshot import DecisionNotes, SetAside

Value = TypeVar("Value")

EXPECTED: Final = "kai-cp/expected-runtime"
MAXIMUM: Final = "kai-cp/max-runtime"
DEFAULT: Final = "kai-cp/default-runtime"
RESERVE: Final = "kai-cp/reserve"
AFTER: Final = "kai-cp/reserve-after"
PRICE: Final = "kai-cp/hero-price-gpu-hours"
HERO: Final = "kai-cp/hero"
DEFRAG: Final = "kai-cp/defrag"
RESERVATION: Final = "kai-cp/reservation"
ENDED: Final = "kai-cp/ended"

SCHEMA: Final = "reservation/1"

_DURATION: Final = re.compile(r"(?:\d{1,12}(?:\.\d{1,9})?(?:h|ms|m|s))+", re.ASCII)
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(h|ms|m|s)", re.ASCII)
_INSTANT: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)", re.ASCII)
_SECONDS: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}


_MOST: Final = 1e9
"""Largest number that an annotation may hold: more GPUs and GPU-hours than there are."""


class Unreadable(ValueError):
    """A value that cannot be used; the text says why. ``field``: which part of it, "" for the whole."""

    def __init__(self, problem: str, field: str = "") -> None:
        super().__init__(problem)
        self.field = field


def duration(text: str) -> float:
    """Seconds of a positive Go duration such as ``1h30m``; anything else is ``Unreadable``."""
    if not _DURATION.fullmatch(text):
        raise Unreadable(f"{shown(text)} is not a duration such as 90m or 1h30m")
    seconds = sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(text))
    if not 0 < seconds < math.inf:
        raise Unreadable(f"{shown(text)} is not longer than nothing")
    return seconds


def instant(value: object) -> float:
    """Seconds since the epoch of an RFC 3339 time; anything else is ``Unreadable``."""
    if not isinstance(value, str):
        raise Unreadable(f"{shown(value)} is not an RFC 3339 time")
    return _instant(value)


@lru_cache(maxsize=65536)
def _instant(text: str) -> float:
    if not _INSTANT.fullmatch(text):
        raise Unreadable(f"{shown(text)} is not an RFC 3339 time")
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        raise Unreadable(f"{shown(text)} is not an RFC 3339 time") from None


def truth(text: str) -> bool:
    """Whether the text is ``true`` or ``false``; anything else is ``Unreadable``."""
    if text not in ("true", "false"):
        raise Unreadable(f"{shown(text)} is neither true nor false")
    return text == "true"


class NoteDocument:
    """A JSON object in an annotation; what cannot be read in it is ``Unreadable`` and names the field."""

    def __init__(self, values: Mapping[str, Any], where: str = "") -> None:
        self._values = values
        self.where = where
        """Where it is inside the annotation, "" for the whole."""

    @classmethod
    def of(cls, text: str, what: str) -> NoteDocument:
        """The document of an annotation, an object of ``what``; any other text is ``Unreadable``."""
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            raise Unreadable("is not JSON") from None
        if not isinstance(found, dict):
            raise Unreadable(f"is not an object of {what}")
        return cls(found)

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def refusal(self, problem: str, name: str = "") -> Unreadable:
        """What is wrong with a field, or with the whole."""
        return Unreadable(problem, ".".join(filter(None, (self.where, name))))

    def only(self, *names: str) -> None:
        """Refuse a document with other fields than these."""
        for name in self:
            if name not in names:
                raise self.refusal(f"there is no {shown(name)}, only {' and '.join(names)}")

    def inner(self, name: str, words: str = "is not an object") -> NoteDocument:
        """The object under a name. ``words`` say what it has to be."""
        found = self._values.get(name)
        if not isinstance(found, dict):
            raise self.refusal(f"{shown(found)} {words}", name)
        return NoteDocument(found, ".".join(filter(None, (self.where, name))))

    def text(self, name: str) -> str | None:
        """The string under a name; None where there is none."""
        found = self._values.get(name)
        return found if isinstance(found, str) else None

    def values(self, name: str) -> Sequence[Any]:
        """The list under a name."""
        found = self._values.get(name)
        if not isinstance(found, list):
            raise self.refusal(f"{shown(found)} is not a list", name)
        return found

    def instant(self, name: str) -> float:
        """Seconds since the epoch of the time under a name."""
        try:
            return instant(self._values.get(name))
        except Unreadable as problem:
            raise self.refusal(str(problem), name) from None

    def number(
        self, name: str, words: str, *, default: float | None = None, most: float = _MOST, above: bool = False
    ) -> float:
        """The number from 0 (``above``: beyond 0) to ``most``. ``words`` say what it has to be."""
        found = self._values.get(name, default)
        number = isinstance(found, int | float) and not isinstance(found, bool)
        if not number or not 0 <= found <= most or (above and not found):
            raise self.refusal(f"{shown(found)} {words}", name)
        return float(found)

    def bound(self, name: str) -> float | None:
        """The number of GPUs under a name; None where there is none, and for KAI's -1: any number."""
        if self._values.get(name, -1) == -1:
            return None
        return self.number(name, "is not a number of GPUs; -1 is any number")


class Fields:
    """The annotations of one object."""

    def __init__(self, item: str, notes: DecisionNotes, aside: list[SetAside]) -> None:
        self._item = item
        self._notes = dict(notes)
        self._aside = aside

    def has(self, name: str) -> bool:
        return name in self._notes

    def read(self, name: str, parse: Callable[[str], Value]) -> Value | None:
        """The value of an annotation; None when it is missing or skipped."""
        text = self._notes.get(name)
        if text is None:
            return None
        try:
            return parse(text)
        except Unreadable as problem:
            self._skip(name, problem)
            return None

    def entries(
        self, name: str, what: str, form: str, parse: Callable[[NoteDocument], Value]
    ) -> dict[str, Value]:
        """The entries of an annotation that is an object of ``what``, in order of their names.

        ``form``: what one that is no object is not. An entry that cannot be read costs itself.
        """
        document = self.read(name, lambda text: NoteDocument.of(text, what))
        found: dict[str, Value] = {}
        if document is None:
            return found
        for key in sorted(document):
            try:
                found[key] = parse(document.inner(key, form))
            except Unreadable as problem:
                self._skip(name, problem)
        return found

    def _skip(self, name: str, problem: Unreadable) -> None:
        field = f"metadata.annotations[{name}]" + (f".{problem.field}" if problem.field else "")
        self._aside.append(SetAside(self._item, f"{field}: {problem}; treated as absent", field))
