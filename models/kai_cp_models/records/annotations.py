"""Our own annotations of pod groups and queues: their names, and the form of their values."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import datetime
from functools import lru_cache
from typing import Final, TypeVar

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


class Unreadable(ValueError):
    """A value that cannot be used; the text says why."""


def duration(text: str) -> float:
    """Seconds of a positive Go duration such as ``1h30m``; anything else is ``Unreadable``."""
    if not _DURATION.fullmatch(text):
        raise Unreadable(f"{shown(text)} is not a duration such as 90m or 1h30m")
    seconds = sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(text))
    if not 0 < seconds < math.inf:
        raise Unreadable(f"{shown(text)} is not longer than nothing")
    return seconds


@lru_cache(maxsize=65536)
def instant(text: object) -> float:
    """Seconds since the epoch of an RFC 3339 time; anything else is ``Unreadable``."""
    if not isinstance(text, str) or not _INSTANT.fullmatch(text):
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
            field = f"metadata.annotations[{name}]"
            self._aside.append(SetAside(self._item, f"{field}: {problem}; treated as absent", field))
            return None
