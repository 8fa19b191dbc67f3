"""When defragmentation may act: windows of the week in UTC, such as ``Mon-Fri 02:00-05:00``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from kai_cp_models.shown import moment

DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_DAYS: Final = "|".join(DAYS)
PATTERN: Final = rf"(?:({_DAYS})(?:-({_DAYS}))? )?([0-2][0-9]):([0-5][0-9])-([0-2][0-9]):([0-5][0-9])"
_WINDOW: Final = re.compile(PATTERN)
_DAY: Final = 86_400
_WEEK: Final = 7 * _DAY


@dataclass(frozen=True, slots=True)
class Window:
    """Opens on ``days`` (0: Monday) at ``opens`` seconds after midnight, for ``lasts`` seconds."""

    days: frozenset[int]
    opens: int
    lasts: int


def window(text: str) -> Window:
    """A window as settings state it; one that ends before it begins ends on the next day.

    Raises ``ValueError`` for a text that is not a window.
    """
    found = _WINDOW.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not a window such as 'Mon-Fri 02:00-05:00'")
    first, last = found[1], found[2] or found[1]
    opens, closes = (60 * (60 * int(found[i]) + int(found[i + 1])) for i in (3, 5))
    if opens >= _DAY or closes > _DAY or opens == closes:
        raise ValueError(f"{text!r}: hours go from 00:00 to 24:00, and a window has a length")
    if first is None:
        days = frozenset(range(7))
    else:
        begin, end = DAYS.index(first), DAYS.index(last)
        days = frozenset((begin + i) % 7 for i in range((end - begin) % 7 + 1))
    return Window(days, opens, closes - opens if closes > opens else closes - opens + _DAY)


def opening(windows: Iterable[str], instant: float) -> float | None:
    """The instant itself while a window is open, else when the next window opens; None: no window."""
    when = moment(instant)
    midnight = instant - (when.hour * 3600 + when.minute * 60 + when.second + when.microsecond / 1e6)
    monday = midnight - when.weekday() * _DAY
    found: list[float] = []
    for one in map(window, windows):
        for day in one.days:
            for week in (-_WEEK, 0, _WEEK):
                opens = monday + week + day * _DAY + one.opens
                if opens + one.lasts > instant:
                    found.append(max(opens, instant))
    return min(found, default=None)
