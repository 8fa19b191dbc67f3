"""Our own annotations (``kai-cp/…``) of pod groups and queues: the one reader of their values.

A value that cannot be read counts as absent. The records keep what is wrong with it, because it is reported
only if a setting uses the annotation.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, Final, TypeVar

from kai_cp.json_types import Json
from kai_cp.reader.fields import ours_at, shown
from kai_cp_models.plan import IdleSoFar
from kai_cp_models.pods import MILLI, GroupKey
from kai_cp_models.records.notes import (
    AFTER,
    DEFAULT,
    DEFRAG,
    ENDED,
    EXPECTED,
    FAILURES,
    HERO,
    KINDS,
    MAXIMUM,
    MOVED,
    NO_GROUP_NOTES,
    NO_QUEUE_NOTES,
    PRICE,
    RESERVATION,
    RESERVE,
    ROLLOUT,
    USERS,
    Closed,
    Expired,
    Failures,
    GroupNotes,
    KindBounds,
    Moved,
    QueueNotes,
    Stored,
    Unread,
    UserTerms,
)

Value = TypeVar("Value")
OwnAnnotations = tuple[tuple[str, str], ...]
"""Names and texts, by name."""

SCHEMA: Final = "reservation/1"
CAUSES: Final = frozenset(("NodeLost", "Overrun", "HigherPriority", "LimitLowered", "BeyondShare", "Expired"))
"""Why a start is later than promised."""
NEVER: Final = "never"

_DURATION: Final = re.compile(r"(?:\d{1,12}(?:\.\d{1,9})?(?:h|ms|m|s))+", re.ASCII)
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(h|ms|m|s)", re.ASCII)
_INSTANT: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)", re.ASCII)
_SECONDS: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_MOST: Final = 1e9
"""Largest number that an annotation may hold: more GPUs and GPU-hours than there are."""
_ABSENT: Final = "treated as absent"
_MOST_RESTARTS: Final = 10_000
_KIND_FORM: Final = "is not an object with limit or quota"
_KIND_FIELDS: Final = ("limit", "quota")


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
    """A JSON object in an annotation; a part of it that cannot be read is ``Unreadable`` and names the
    field."""

    def __init__(self, values: Mapping[str, Any], where: str = "") -> None:
        self._values = values
        self.where = where
        """Its position inside the annotation, "" for the whole."""

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
        """The object under a name. ``words`` say what it must be."""
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
        """The number from 0 (``above``: greater than 0) to ``most``. ``words`` say what it must be."""
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
    """The annotations of one object; ``unread`` collects what cannot be read."""

    def __init__(self, notes: OwnAnnotations) -> None:
        self._notes = dict(notes)
        self.unread: list[Unread] = []

    def __contains__(self, name: str) -> bool:
        return name in self._notes

    def text(self, name: str) -> str | None:
        """An annotation as it is written."""
        return self._notes.get(name)

    def read(self, name: str, parse: Callable[[str], Value], otherwise: str = _ABSENT) -> Value | None:
        """The value of an annotation; None if it is missing or skipped. ``otherwise``: what None then
        means."""
        text = self._notes.get(name)
        if text is None:
            return None
        try:
            return parse(text)
        except Unreadable as problem:
            self._skip(name, problem, otherwise)
            return None

    def entries(
        self, name: str, what: str, form: str, parse: Callable[[NoteDocument], Value]
    ) -> dict[str, Value] | None:
        """The entries of an annotation that is an object of ``what``, in order of their names; None: absent.

        ``form``: what is wrong with an entry that is not an object. A bad entry affects only itself.
        """
        if name not in self._notes:
            return None
        document = self.read(name, lambda text: NoteDocument.of(text, what))
        found: dict[str, Value] = {}
        for key in sorted(document or ()):
            assert document is not None
            try:
                found[key] = parse(document.inner(key, form))
            except Unreadable as problem:
                self._skip(name, problem)
        return found

    def _skip(self, name: str, problem: Unreadable, otherwise: str = _ABSENT) -> None:
        field = f"metadata.annotations[{name}]" + (f".{problem.field}" if problem.field else "")
        self.unread.append(Unread(name, field, f"{field}: {problem}; {otherwise}"))


def read_group_notes(metadata: Json) -> GroupNotes:
    """What our annotations of a pod group say."""
    return group_notes(ours_at(metadata))


def group_notes(annotations: OwnAnnotations) -> GroupNotes:
    """The same of the annotations."""
    if not annotations:
        return NO_GROUP_NOTES
    said = Fields(annotations)
    return GroupNotes(
        expected=said.read(EXPECTED, duration),
        maximum=said.read(MAXIMUM, duration),
        reserve=said.read(RESERVE, truth),
        price=said.read(PRICE, _price),
        ended=said.read(ENDED, instant),
        reservation=said.read(RESERVATION, _reservation),
        reserved=RESERVATION in said,
        cause=_cause(said.text(RESERVATION)),
        defrag=_consent(said.text(DEFRAG)),
        moved=_moved(said.text(MOVED)),
        failures=failures_noted(said.text(FAILURES)),
        unread=tuple(said.unread),
    )


def read_queue_notes(metadata: Json) -> QueueNotes:
    """What our annotations of a queue say."""
    return queue_notes(ours_at(metadata))


def queue_notes(annotations: OwnAnnotations) -> QueueNotes:
    """The same of the annotations."""
    if not annotations:
        return NO_QUEUE_NOTES
    said = Fields(annotations)
    rollout = said.read(ROLLOUT, lambda text: 0.0 if text == NEVER else duration(text), f"read as {NEVER}")
    return QueueNotes(
        maximum=said.read(MAXIMUM, duration),
        default=said.read(DEFAULT, duration),
        after=said.read(AFTER, lambda text: math.inf if text == NEVER else duration(text)),
        hero=said.read(HERO, truth),
        defrag=_consent(said.text(DEFRAG)),
        rollout=0.0 if rollout is None and ROLLOUT in said else rollout,
        kinds=said.entries(KINDS, "kinds", _KIND_FORM, _bounds),
        users=said.entries(USERS, "users", "is not an object with weight or gpuLimit", _terms),
        unread=tuple(said.unread),
    )


def _price(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= _MOST:
        raise Unreadable(f"{shown(text)} is not a number of GPU-hours")
    return value


def _reservation(text: str) -> Stored | Closed | Expired:
    """The reservation, the closed places, or when it expired."""
    document = NoteDocument.of(text, "a reservation")
    if document.text("schema") != SCHEMA:
        raise Unreadable(f"is not of schema {SCHEMA}")
    if "expired" in document:
        return Expired(document.instant("expired"))
    made = document.instant("made")
    if "idle" in document:
        nodes = _nodes(document.inner("nodes"))
        idle = _idle(document.inner("idle"), made, sum(nodes.values()))
        return Closed(made, nodes, idle, _beside(document))
    start, promised = document.instant("start"), document.instant("promised")
    if start < made:
        raise document.refusal("lies before made", "start")
    return Stored(start, promised, made, _nodes(document.inner("nodes")), _beside(document))


def _beside(document: NoteDocument) -> frozenset[GroupKey]:
    """Pod groups, each as its namespace and name."""
    found = document.values("beside") if "beside" in document else ()
    for one in found:
        if not isinstance(one, list) or len(one) != 2 or not all(isinstance(text, str) for text in one):
            raise document.refusal(f"{shown(one)} is not a namespace and a name", "beside")
    return frozenset(GroupKey(*one) for one in found)


def _nodes(nodes: NoteDocument) -> Mapping[str, float]:
    """GPUs by node."""
    return {name: nodes.number(name, "is not a number of GPUs", above=True) for name in sorted(nodes)}


def _idle(found: NoteDocument, made: float, most: float) -> IdleSoFar:
    """Idle time of closed places, which hold ``most`` GPUs since ``made``."""
    since = found.instant("since")
    if since < made:
        raise found.refusal("lies before made", "since")
    limits = {"gpus": most, "gpuHours": most * (since - made) / 3600.0 + 0.01}
    amounts = [
        found.number(key, f"is not between 0 and {limit:g}", most=limit) for key, limit in limits.items()
    ]
    return IdleSoFar(since, *amounts)


def _cause(text: str | None) -> str | None:
    """Why the start is later than promised."""
    try:
        cause = NoteDocument.of(text or "", "a reservation").text("cause")
    except Unreadable:
        return None
    return cause if cause in CAUSES else None


def _consent(text: str | None) -> bool | None:
    """Whether moves are allowed; None if nothing is written, or another word."""
    return {"true": True, "false": False}.get((text or "").lower())


def _moved(text: str | None) -> Moved | None:
    if text is None:
        return None
    try:
        document = NoteDocument.of(text, "restarts")
        at = tuple(instant(one) for one in document.values("at")[:_MOST_RESTARTS])
        return Moved(int(document.number("pods", "is not a number of pods")), at)
    except Unreadable:
        return None


def failures_noted(text: str | None) -> Failures | None:
    """The scheduler's notes about binds that failed and places that were lost."""
    try:
        document = NoteDocument.of(text or "", "failures")
        times = int(document.number("times", "is not a number of failures"))
        return Failures(document.text("uid") or "", times, document.instant("last"))
    except Unreadable:
        return None


def _bounds(entry: NoteDocument) -> KindBounds:
    """The bounds that an annotation states for one kind."""
    if not list(entry):
        raise entry.refusal(f"{{}} {_KIND_FORM}")
    entry.only(*_KIND_FIELDS)
    limit, quota = (
        None if gpus is None else int(gpus * MILLI + 1e-6) for gpus in map(entry.bound, _KIND_FIELDS)
    )
    return KindBounds(limit, quota)


def _terms(entry: NoteDocument) -> UserTerms:
    entry.only("weight", "gpuLimit")
    weight = entry.number("weight", "is not a number above 0", default=1.0, above=True)
    return UserTerms(weight, entry.bound("gpuLimit"))
