"""The historic usage that a snapshot contains, and when it was fetched; KAI's snapshots have none (9)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kai_cp.reader.fields import Malformed, object_at, text_at
from kai_cp.reader.times import seconds_of
from kai_cp_models.extras import Key

KEY: Final = "usage"
FETCHED_AT: Final[Key[float | None]] = Key("usage_fetched_at", None)
"""When the figures were fetched, in seconds since the epoch."""


def recorded_usage(raw: Mapping[str, Any]) -> tuple[Mapping[str, Any] | None, float | None]:
    """Usage by queue and when it was fetched; nothing if there is none, or none that can be read."""
    try:
        found = object_at(raw, KEY)
        queues = object_at(found, "queues", KEY)
        return (queues or None), (seconds_of(text_at(found, "fetchedAt", KEY)) if queues else None)
    except (Malformed, ValueError):
        return None, None
