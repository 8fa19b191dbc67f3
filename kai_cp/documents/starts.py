"""Starts in the future: reservations and estimates, and ``reservations/1``."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired

from pydantic import Field, with_config
from typing_extensions import TypedDict

from kai_cp.documents.parts import CLOSED, FORMAT, CutDuring, Gpus, Group, Time


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
    start: Annotated[Time | None, Field(description="When; null: unknown.")]
    unknownEnds: Annotated[int, Field(description="Running pod groups without a known end.")]


@with_config(CLOSED)
class Domain(TypedDict):
    """A place of a topology."""

    level: Annotated[str, Field(description="Node label of the level.")]
    name: Annotated[str, Field(description="Value of that label.")]


@with_config(CLOSED)
class Offer(TypedDict):
    """Another start that could be had, and its price."""

    start: Annotated[Time, Field(description="When it could start.")]
    lostGpuHours: Annotated[float, Field(description="GPU-hours of running work that would be stopped.")]
    idleGpuHours: Annotated[float, Field(description="GPU-hours that would be held and unused until then.")]
    victims: Annotated[list[Group], Field(description="Pod groups that would be stopped.")]


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
    queue: Annotated[str, Field(description="Its queue.")]
    start: Annotated[Time, Field(description="When it starts, as of now.")]
    promised: Annotated[Time, Field(description="When it was first promised to start.")]
    made: Annotated[Time, Field(description="When the promise was given.")]
    nodes: Annotated[dict[str, Gpus], Field(description="GPUs by node.")]


@with_config(CLOSED)
class Goal(TypedDict):
    """How far `defrag.goal` is met."""

    goal: Annotated[str, Field(description="The setting `defrag.goal`.")]
    value: Annotated[int, Field(description="How much of it there is.")]
    wanted: Annotated[int, Field(description="How much there shall be.")]
    state: Annotated[
        Literal["met", "report", "closed", "waits", "rate", "moved", "stuck", "unknown"],
        Field(description="What was done for it in this cycle; see docs/defragmentation.md."),
    ]
    message: Annotated[str, Field(description="What was done and why, in a sentence.")]


@with_config(CLOSED)
class Reservation(TypedDict):
    """Nodes that are held for a pod group from a time on."""

    podGroup: Group
    queue: Annotated[str, Field(description="Its queue.")]
    state: Annotated[
        Literal["made", "kept", "earlier", "later", "started", "dropped", "offered", "draining"],
        Field(description="What became of the promise in this cycle; see docs/reservations.md."),
    ]
    start: Annotated[Time | None, Field(description="As of now.")]
    promised: Annotated[Time | None, Field(description="As it was first promised.")]
    made: Annotated[Time | None, Field(description="When the promise was given.")]
    nodes: Annotated[dict[str, Gpus], Field(description="GPUs by node.")]
    domain: Annotated[
        Domain | None, Field(description="Place of a topology that holds all its nodes; null: none.")
    ]
    waitsFor: Annotated[list[Group], Field(description="Pod groups that end first.")]
    drained: Annotated[list[str], Field(description="Nodes kept free of what would be in the way.")]
    idleGpuHours: Annotated[float, Field(description="Held and unused until the start.")]
    lostGpuHours: Annotated[float, Field(description="Running work that is stopped for it.")]
    victims: Annotated[list[Group], Field(description="Stopped at the start.")]
    cause: Annotated[str | None, Field(description="Why the start is not the promised one; null: it is.")]
    message: Annotated[str, Field(description="The promise in a sentence.")]
    expired: NotRequired[Annotated[Time | None, Field(description="When it lapsed.")]]
    offers: NotRequired[
        Annotated[list[Offer], Field(description="Other starts that it could have, and their prices.")]
    ]
    idle: NotRequired[
        Annotated[
            IdleSoFar,
            Field(description="GPUs that stand idle so far, in state draining, which has no start."),
        ]
    ]


@with_config(CLOSED)
class Waits(TypedDict):
    """A pod group without reservation."""

    podGroup: Group
    reason: Annotated[str, Field(description="One token of docs/reasons.md.")]
    message: Annotated[str, Field(description="The reason as a sentence with its numbers.")]
    estimate: Annotated[Estimate | None, Field(description="When it might start; null: not estimated.")]


@with_config(CLOSED)
class Reservations(TypedDict):
    """What is held from when: ``kai-cp reserve -o json``."""

    schema: Annotated[Literal["reservations/1"], FORMAT]
    now: Annotated[Time, Field(description="The time at which the snapshot was read.")]
    cutDuring: NotRequired[CutDuring]
    reservations: Annotated[list[Reservation], Field(description="Pod groups with a start in the future.")]
    waiting: Annotated[list[Waits], Field(description="Pod groups that wait without one.")]
    starts: Annotated[list[Group], Field(description="Pod groups that start in this cycle.")]
