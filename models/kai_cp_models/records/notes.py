"""What our own annotations (``kai-cp/…``) of pod groups and queues say, as records.

Instants are seconds since the epoch, durations are seconds. None: not stated, or not readable.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:  # pod groups and queues carry notes
    from kai_cp_models.plan import IdleSoFar
    from kai_cp_models.pods import GroupKey

EXPECTED: Final = "kai-cp/expected-runtime"
MAXIMUM: Final = "kai-cp/max-runtime"
DEFAULT: Final = "kai-cp/default-runtime"
RESERVE: Final = "kai-cp/reserve"
AFTER: Final = "kai-cp/reserve-after"
PRICE: Final = "kai-cp/hero-price-gpu-hours"
HERO: Final = "kai-cp/hero"
RESERVATION: Final = "kai-cp/reservation"
ENDED: Final = "kai-cp/ended"
DEFRAG: Final = "kai-cp/defrag"
MOVED: Final = "kai-cp/moved"
FAILURES: Final = "kai-cp/failures"
KINDS: Final = "kai-cp/gpu-kinds"
ROLLOUT: Final = "kai-cp/rollout"
USERS: Final = "kai-cp/users"

FIRST_DOUBT_SECONDS: Final = 8.0
"""After the second failure of a pod in a row; the first one may be an accident. It is four times the pause
before the next bind: what a disturbance costs is in proportion to how long it lasts."""
LONGEST_DOUBT_SECONDS: Final = 21_600.0
"""What fails for days disturbs others four times a day, and what was mended has its rights again on the same
day."""

TIME_NOTES: Final = frozenset((EXPECTED, MAXIMUM, DEFAULT, RESERVE, AFTER, PRICE, HERO, RESERVATION, ENDED))
"""Annotations of the time axis."""


class Unread(NamedTuple):
    """An annotation, or a part of it, that cannot be read. ``reason``: a sentence that names the field."""

    annotation: str
    field: str
    reason: str


@dataclass(frozen=True, slots=True)
class Stored:
    """A reservation as the pod group's annotation states it. ``nodes``: GPUs by node name. ``beside``: groups
    that it waits for, though they started after it was made (12.5)."""

    start: float
    promised: float
    made: float
    nodes: Mapping[str, float] = field(hash=False)
    beside: frozenset[GroupKey] = frozenset()


@dataclass(frozen=True, slots=True)
class Closed:
    """Closed places as the pod group's annotation states them. ``nodes``, ``beside``: see ``Stored``."""

    made: float
    nodes: Mapping[str, float] = field(hash=False)
    idle: IdleSoFar
    beside: frozenset[GroupKey] = frozenset()


@dataclass(frozen=True, slots=True)
class Expired:
    """A reservation that was given up at an instant."""

    at: float


@dataclass(frozen=True, slots=True)
class Moved:
    """Restarts for defragmentation. ``pods``: how many ran before; ``at``: one instant per pod."""

    pods: int
    at: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Failures:
    """How often in a row what the pod with this uid was given came to nothing, and when it did last: its bind
    failed, or its place was lost after others had been evicted for it."""

    uid: str
    times: int
    last: float

    @property
    def doubted_until(self) -> float:
        """Until when the next place is likely to come to nothing, too; the time doubles with each failure."""
        doubt = FIRST_DOUBT_SECONDS * 2.0 ** min(self.times - 2, 30) if self.times > 1 else 0.0
        return self.last + min(LONGEST_DOUBT_SECONDS, doubt)


@dataclass(frozen=True, slots=True)
class GroupNotes:
    """What the annotations of a pod group say."""

    expected: float | None = None
    maximum: float | None = None
    reserve: bool | None = None
    price: float | None = None
    """GPU-hours."""
    ended: float | None = None
    reservation: Stored | Closed | Expired | None = None
    reserved: bool = False
    """Whether the group carries a reservation at all, readable or not."""
    cause: str | None = None
    """Why the start is later than promised."""
    defrag: bool | None = None
    moved: Moved | None = None
    failures: Failures | None = None
    """Of the pod that failed most often."""
    unread: tuple[Unread, ...] = ()

    @property
    def stored(self) -> Stored | None:
        """The reservation of a start."""
        return self.reservation if isinstance(self.reservation, Stored) else None

    @property
    def closed(self) -> Closed | None:
        """The closed places."""
        return self.reservation if isinstance(self.reservation, Closed) else None

    @property
    def expired(self) -> float | None:
        """When the reservation was given up."""
        return self.reservation.at if isinstance(self.reservation, Expired) else None


@dataclass(frozen=True, slots=True)
class KindBounds:
    """What a queue may hold of a kind of GPU, in milli-GPUs; None: any number. ``quota``: not preemptible."""

    limit: int | None = None
    quota: int | None = None


@dataclass(frozen=True, slots=True)
class UserTerms:
    """What a queue grants a user: the weight beside other users, and the most GPUs (None: no limit)."""

    weight: float = 1.0
    gpu_limit: float | None = None


@dataclass(frozen=True, slots=True)
class QueueNotes:
    """What the annotations of a queue say."""

    maximum: float | None = None
    default: float | None = None
    after: float | None = None
    """Infinite: never."""
    hero: bool | None = None
    defrag: bool | None = None
    rollout: float | None = None
    """For how long it lends quota to a rollout; 0: never, also where the annotation cannot be read."""
    kinds: Mapping[str, KindBounds] | None = field(default=None, hash=False)
    """Bounds by kind of GPU."""
    users: Mapping[str, UserTerms] | None = field(default=None, hash=False)
    """Terms by user name."""
    unread: tuple[Unread, ...] = ()


NO_GROUP_NOTES: Final = GroupNotes()
NO_QUEUE_NOTES: Final = QueueNotes()


def unread_of(notes: GroupNotes | QueueNotes, annotations: Collection[str]) -> list[Unread]:
    """What could not be read of these annotations."""
    return [one for one in notes.unread if one.annotation in annotations]
