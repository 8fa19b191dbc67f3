"""Instants and spans in words."""

from __future__ import annotations

from datetime import UTC, datetime


def clock(instant: float, now: float) -> str:
    """``12:30`` today (UTC), with the day on other days."""
    when, today = datetime.fromtimestamp(instant, UTC), datetime.fromtimestamp(now, UTC)
    text = when.strftime("%H:%M:%S" if when.second else "%H:%M")
    return text if when.date() == today.date() else f"{when:%Y-%m-%d} {text}"


def span(seconds: float) -> str:
    """``1h30m``, ``45s``."""
    left = max(0, round(seconds))
    hours, left = divmod(left, 3600)
    minutes, left = divmod(left, 60)
    parts = [f"{n}{unit}" for n, unit in ((hours, "h"), (minutes, "m"), (left, "s")) if n]
    return "".join(parts) or "0s"
