"""What annotations say about run times and reservations; an unreadable one counts as missing."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from kai_cp_models.records.annotations import (
    AFTER,
    DEFAULT,
    ENDED,
    EXPECTED,
    HERO,
    MAXIMUM,
    PRICE,
    RESERVATION,
    RESERVE,
    SCHEMA,
    Fields,
    NoteDocument,
    Unreadable,
    duration,
    instant,
    truth,
)
from kai_cp_models.shown import shown
from kai_cp_models.snapshot import GPU, MILLI, IdleSoFar, PodGroup, Queue, SetAside, Snapshot

Value = TypeVar("Value")

_MOST_PRICE: Final = 1e9


@dataclass(frozen=True, slots=True)
class Stored:
    """A reservation as the pod group's annotation states it. ``nodes``: GPUs by node name."""

    start: float
    promised: float
    made: float
    nodes: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Closed:
    """Closed places as the pod group's annotation states them. ``nodes``: GPUs by node name."""

    made: float
    nodes: Mapping[str, float]
    idle: IdleSoFar


@dataclass(frozen=True, slots=True)
class GroupNotes:
    """What the annotations of a pod group say. Durations in seconds; None: not stated, or not readable."""

    expected: float | None = None
    maximum: float | None = None
    reserve: bool | None = None
    price: float | None = None
    ended: float | None = None
    stored: Stored | None = None
    closed: Closed | None = None
    expired: float | None = None
    noted: bool = False
    """Whether the group carries a reservation at all, readable or not."""


@dataclass(frozen=True, slots=True)
class QueueNotes:
    """What the annotations of a queue say. ``after``: infinite for ``never``."""

    maximum: float | None = None
    default: float | None = None
    after: float | None = None
    hero: bool | None = None


def _price(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= _MOST_PRICE:
        raise Unreadable(f"{shown(text)} is not a number of GPU-hours")
    return value


def _after(text: str) -> float:
    return math.inf if text == "never" else duration(text)


class Reader:
    """Reads annotations; ``aside`` collects what could not be used. ``horizon``: of starts, in seconds."""

    def __init__(self, snapshot: Snapshot, horizon: float) -> None:
        self._snapshot = snapshot
        self._horizon = horizon
        self.aside: list[SetAside] = []

    def queue(self, queue: Queue) -> QueueNotes:
        """Read the annotations of the queue."""
        if not queue.notes:
            return QueueNotes()
        found = Fields(f"Queue {queue.name}", queue.notes, self.aside)
        return QueueNotes(
            maximum=found.read(MAXIMUM, duration),
            default=found.read(DEFAULT, duration),
            after=found.read(AFTER, _after),
            hero=found.read(HERO, truth),
        )

    def group(self, group: PodGroup) -> GroupNotes:
        """Read the annotations of the pod group."""
        if not group.notes:
            return GroupNotes()
        found = Fields(f"PodGroup {group.key}", group.notes, self.aside)
        stored = found.read(RESERVATION, lambda text: self._stored(group, text))
        return GroupNotes(
            expected=found.read(EXPECTED, duration),
            maximum=found.read(MAXIMUM, duration),
            reserve=found.read(RESERVE, truth),
            price=found.read(PRICE, _price),
            ended=found.read(ENDED, instant),
            stored=stored if isinstance(stored, Stored) else None,
            closed=stored if isinstance(stored, Closed) else None,
            expired=stored if isinstance(stored, float) else None,
            noted=found.has(RESERVATION),
        )

    def future_start(self, group: PodGroup) -> None:
        """Ignore and report the last start of a group if it lies in the future."""
        field = "metadata.annotations[kai.scheduler/last-start-timestamp]"
        self.aside.append(SetAside(f"PodGroup {group.key}", f"{field}: lies in the future", field))

    def _stored(self, group: PodGroup, text: str) -> Stored | Closed | float:
        """The reservation, the closed places, or when it expired."""
        document = NoteDocument.of(text, "a reservation")
        if document.text("schema") != SCHEMA:
            raise Unreadable(f"is not of schema {SCHEMA}")
        now = self._snapshot.now
        if "expired" in document:
            expired = document.instant("expired")
            if expired > now:
                raise document.refusal("lies in the future", "expired")
            return expired
        made = document.instant("made")
        if made > now:
            raise document.refusal("lies in the future", "made")
        if made < group.created:
            raise document.refusal("lies before the pod group's creation", "made")
        if "idle" in document:
            nodes = self._nodes(group, document.inner("nodes"))
            return Closed(made, nodes, _idle(document.inner("idle"), made, now, sum(nodes.values())))
        start, promised = document.instant("start"), document.instant("promised")
        if start < made:
            raise document.refusal("lies before made", "start")
        if start > now + self._horizon:
            # We never write such a start: time only brings a start closer.
            raise document.refusal("lies beyond the horizon", "start")
        return Stored(start, promised, made, self._nodes(group, document.inner("nodes")))

    def _nodes(self, group: PodGroup, nodes: NoteDocument) -> Mapping[str, float]:
        """GPUs by node, for nodes that exist, and no more than the gang needs."""
        for name in nodes:
            if name not in self._snapshot.node_index:
                raise nodes.refusal(f"there is no node {shown(name)}")
        found = {name: nodes.number(name, "is not a number of GPUs", above=True) for name in sorted(nodes)}
        total = sum(found.values())
        need = sum(pod.spec.requests[GPU] for pod in self._snapshot.members[group.key]) / MILLI
        if total > need:
            raise nodes.refusal(f"{total:g} GPUs are more than the gang's {need:g}")
        return found


def _idle(found: NoteDocument, made: float, now: float, most: float) -> IdleSoFar:
    """Idle time of closed places, which hold ``most`` GPUs since ``made``."""
    since = found.instant("since")
    if not made <= since <= now:
        raise found.refusal("lies before made or in the future", "since")
    limits = {"gpus": most, "gpuHours": most * (since - made) / 3600.0 + 0.01}
    amounts = [
        found.number(key, f"is not between 0 and {limit:g}", most=limit) for key, limit in limits.items()
    ]
    return IdleSoFar(since, *amounts)


def capped(seconds: float | None, longest: float) -> float | None:
    """A declared run time, cut to the longest that the settings accept."""
    return None if seconds is None else min(seconds, longest)
