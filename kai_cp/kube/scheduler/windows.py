"""Computes when the present usage window began: tumbling windows, and cron windows (3.4)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from cronsim import CronSim, CronSimError

FIELDS: Final = 5
"""Minute, hour, day, month and weekday; KAI's parser knows no seconds either."""


def last_tumbling(start: float, length: float, now: float) -> float:
    """The start of the window that contains ``now``, with windows of ``length`` seconds since ``start``."""
    if length <= 0 or now < start:
        return min(start, now)
    return start + (now - start) // length * length


def last_cron(expression: str, now: float) -> float:
    """The latest instant (UTC) up to ``now`` that the five-field expression matches. Raises
    ``ValueError``.
    """
    if len(expression.split()) != FIELDS:
        raise ValueError(f"cron expression {expression!r} has not five fields")
    after = datetime.fromtimestamp(int(now), UTC) + timedelta(seconds=1)
    try:
        return next(CronSim(expression, after, reverse=True)).timestamp()
    except CronSimError as problem:
        raise ValueError(f"cron expression {expression!r} is not understood: {problem}") from None
    except StopIteration:
        raise ValueError(f"cron expression {expression!r} names no date") from None
