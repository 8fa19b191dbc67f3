"""When the present usage window began: tumbling windows, and resets by a cron expression (3.4)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

FIELDS: Final = (("minute", 0, 59), ("hour", 0, 23), ("day", 1, 31), ("month", 1, 12), ("weekday", 0, 7))
LONGEST_DAYS: Final = 366 * 8
"""Every date that exists comes again within eight years."""


def last_tumbling(start: float, length: float, now: float) -> float:
    """Begin of the window that ``now`` is in, of windows of ``length`` seconds since ``start``."""
    if length <= 0 or now < start:
        return min(start, now)
    return start + (now - start) // length * length


def last_cron(expression: str, now: float) -> float:
    """The latest instant (UTC) up to ``now`` that the five-field expression names; ValueError if bad."""
    minutes, hours, days, months, weekdays = parse_cron(expression)
    any_day, any_weekday = len(days) == 31, len(weekdays) == 7
    moment = datetime.fromtimestamp(now, UTC).replace(second=0, microsecond=0)
    for back in range(LONGEST_DAYS):
        date = moment.date() - timedelta(days=back)
        in_days, in_weekdays = date.day in days, date.isoweekday() % 7 in weekdays
        # As cron does: when both are restricted, either is enough.
        hit = (in_days and in_weekdays) if any_day or any_weekday else (in_days or in_weekdays)
        if date.month not in months or not hit:
            continue
        for hour in sorted(hours, reverse=True):
            for minute in sorted(minutes, reverse=True):
                found = datetime(date.year, date.month, date.day, hour, minute, tzinfo=UTC)
                if found <= moment:
                    return found.timestamp()
    raise ValueError(f"cron expression {expression!r} names no date")


def parse_cron(expression: str) -> tuple[set[int], set[int], set[int], set[int], set[int]]:
    """The values each field allows; Sunday is 0."""
    parts = expression.split()
    if len(parts) != len(FIELDS):
        raise ValueError(f"cron expression {expression!r} has not five fields")
    minutes, hours, days, months, weekdays = (
        _values(text, *bounds) for text, bounds in zip(parts, FIELDS, strict=True)
    )
    return minutes, hours, days, months, {value % 7 for value in weekdays}


def _values(text: str, name: str, low: int, high: int) -> set[int]:
    found: set[int] = set()
    for part in text.split(","):
        span, _, step = part.partition("/")
        first, _, last = span.partition("-")
        try:
            begin = low if span == "*" else int(first)
            end = high if span == "*" or (step and not last) else int(last or first)
            width = int(step or 1)
        except ValueError:
            raise ValueError(f"cron {name} {part!r} is not understood") from None
        if not low <= begin <= end <= high or width < 1:
            raise ValueError(f"cron {name} {part!r} is not between {low} and {high}")
        found |= set(range(begin, end + 1, width))
    return found
