"""Instants as documents write them."""

from __future__ import annotations

from datetime import UTC, datetime

from kai_cp_models.shown import moment


def rfc3339(seconds: float) -> str:
    """An instant in UTC, ``Z`` at the end; a fraction only where there is one."""
    return moment(seconds).isoformat().replace("+00:00", "Z")


def from_rfc3339(text: str) -> float:
    """Seconds since the epoch; a time without zone is UTC. Raises ValueError."""
    when = datetime.fromisoformat(text)
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
