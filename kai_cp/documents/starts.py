"""Starts in the future: reservations and estimates, and ``reservations/1``."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired

from pydantic import Field, with_config
from typing_extensions import TypedDict

from kai_cp.documents.parts import CLOSED, Gpus, Group, Time


@with_config(CLOSED)
class Estimate(TypedDict):
    """When a pod group that waits might start."""

    kind: Annotated[
        Literal["reserved", "notBefore", "none"],
        Field(
            description="reserved: at start; notBefore: it would fit alone then; "
            "none: not even when all known ends have passed."
        ),
    ]
    start: Time | None
    unknownEnds: Annotated[int, Field(description="Running pod groups without a known end.")]


@with_config(CLOSED)
class Domain(TypedDict):
    """A place of a topology."""

    level: str
    name: str


@with_config(CLOSED)
class Offer(TypedDict):
    """Another start that could be had, and its price."""

    start: Time
    lostGpuHours: float
    idleGpuHours: float
    victims: list[Group]


@with_config(CLOSED)
class IdleSoFar(TypedDict):
    """What stands idle on closed places."""

    since: Annotated[Time, Field(description="When the number of idle GPUs changed last.")]
    gpus: Annotated[Gpus, Field(description="Idle since then.")]
    gpuHours: Annotated[float, Field(description="Idle before that.")]


@with_config(CLOSED)
class StoredReservation(TypedDict):
    """A reservation as the annotation of its pod group has it."""

    podGroup: Group
    queue: str
    start: Time
    promised: Time
    made: Time
    nodes: Annotated[dict[str, Gpus], Field(description="GPUs by node.")]


@with_config(CLOSED)
class Goal(TypedDict):
    """How far `defrag.goal` is met."""

    goal: str
    value: Annotated[int, Field(description="How much of it there is.")]
    wanted: Annotated[int, Field(description="How much there shall be.")]
    state: Annotated[
        Literal["met", "report", "closed", "waits", "rate", "moved", "stuck", "unknown"],
        Field(description="What was done for it in this cycle; see docs/defragmentation.md."),
    ]
    message: str


@with_config(CLOSED)
class Reservation(TypedDict):
    """Nodes that are held for a pod group from a time on."""

    podGroup: Group
    queue: str
    state: Annotated[
        Literal["made", "kept", "earlier", "later", "started", "dropped", "offered", "draining"],
        Field(description="What became of the promise in this cycle; see docs/reservations.md."),
    ]
    start: Annotated[Time | None, Field(description="As of now.")]
    promised: Annotated[Time | None, Field(description="As it was first promised.")]
    made: Annotated[Time | None, Field(description="When the promise was given.")]
    nodes: Annotated[dict[str, Gpus], Field(description="GPUs by node.")]
    domain: Domain | None
    waitsFor: Annotated[list[Group], Field(description="Pod groups that end first.")]
    drained: Annotated[list[str], Field(description="Nodes kept free of what would be in the way.")]
    idleGpuHours: Annotated[float, Field(description="Held and unused until the start.")]
    lostGpuHours: Annotated[float, Field(description="Running work that is stopped for it.")]
    victims: Annotated[list[Group], Field(description="Stopped at the start.")]
    cause: Annotated[str | None, Field(description="Why the start is not the promised one; null: it is.")]
    message: str
    expired: NotRequired[Annotated[Time | None, Field(description="When it lapsed.")]]
    offers: NotRequired[list[Offer]]
    idle: NotRequired[Annotated[IdleSoFar, Field(description="Of state draining, which has no start.")]]


@with_config(CLOSED)
class Waits(TypedDict):
    """A pod group without reservation."""

    podGroup: Group
    reason: Annotated[str, Field(description="One token of docs/reasons.md.")]
    message: str
    estimate: Estimate | None


@with_config(CLOSED)
class Reservations(TypedDict):
    """What is held from when: ``kai-cp reserve -o json``."""

    schema: Literal["reservations/1"]
    now: Time
    reservations: list[Reservation]
    waiting: list[Waits]
    starts: Annotated[list[Group], Field(description="Pod groups that start in this cycle.")]
