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
class Reservation(TypedDict):
    """Nodes that are held for a pod group from a time on."""

    podGroup: Group
    queue: str
    state: Annotated[
        Literal["made", "kept", "earlier", "later", "started", "dropped", "offered"],
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


@with_config(CLOSED)
class Waits(TypedDict):
    """A pod group without reservation."""

    podGroup: Group
    reason: Annotated[str, Field(description="One token of docs/reasons.md.")]
    message: str
    estimate: Estimate | None


@with_config(CLOSED)
class Reservations(TypedDict):
    """Who holds what from when: ``kai-cp reserve -o json``."""

    schema: Literal["reservations/1"]
    now: Time
    reservations: list[Reservation]
    waiting: list[Waits]
    starts: Annotated[list[Group], Field(description="Pod groups that start in this cycle.")]
