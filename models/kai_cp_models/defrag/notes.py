"""Restarts for defragmentation that pod groups note: the rate is counted from them (section 8)."""

from __future__ import annotations

from typing import Final

from kai_cp_models.records.notes import Moved
from kai_cp_models.snapshot import PodGroup

HOUR: Final = 3600.0


def moved(group: PodGroup, now: float) -> Moved | None:
    """The restarts of the last hour; None without any, or where the note cannot be read."""
    noted = group.notes.moved
    if noted is None:
        return None
    recent = tuple(at for at in noted.at if now - HOUR < at <= now)
    return Moved(noted.pods, recent) if recent else None
