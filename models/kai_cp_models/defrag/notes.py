"""The annotation that restarts for defragmentation leave on a pod group: the rate is counted from it (section
8)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kai_cp_models.records.annotations import NoteDocument, Unreadable, instant
from kai_cp_models.snapshot import PodGroup

MOVED: Final = "kai-cp/moved"
HOUR: Final = 3600.0
_MOST: Final = 10_000


@dataclass(frozen=True, slots=True)
class Moved:
    """Restarts of a group in the last hour. ``pods``: how many ran before; ``at``: one instant per pod."""

    pods: int
    at: tuple[float, ...]


def moved(group: PodGroup, now: float) -> Moved | None:
    """The restarts of the last hour; None without any, or where the note cannot be read."""
    text = dict(group.notes).get(MOVED)
    if text is None:
        return None
    try:
        document = NoteDocument.of(text, "restarts")
        at = [instant(one) for one in document.values("at")[:_MOST]]
        pods = int(document.number("pods", "is not a number of pods"))
    except Unreadable:
        return None
    recent = tuple(one for one in at if now - HOUR < one <= now)
    return Moved(pods, recent) if recent else None
