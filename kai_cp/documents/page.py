"""What the page shows."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field, with_config
from typing_extensions import TypedDict

from kai_cp.documents.parts import CLOSED, Gpus, Group, Time

Number = Annotated[
    int, Field(description="Place of the pod group in groups; -2: a pod of another scheduler.")
]
Amounts = Annotated[
    list[float], Field(description="Millicores, bytes and GPUs; -1: unlimited.", min_length=3, max_length=3)
]
Cell = Annotated[
    int | list[int],
    Field(description="A GPU: -1 free, -2 another scheduler's, else its pod group; a list: shared."),
]
Place = Annotated[
    list[str] | None, Field(description="Values of a node, highest level first; null: outside the tree.")
]


@with_config(CLOSED)
class GroupEntry(TypedDict):
    """A pod group; others name it by its place in the list."""

    name: Group
    queue: str
    priority: int
    preemptible: bool
    pods: int
    running: int
    created: Time


@with_config(CLOSED)
class QueueEntry(TypedDict):
    """A queue; parents come first."""

    name: str
    title: Annotated[str, Field(description="Its displayName.")]
    depth: int
    priority: int
    quota: Amounts
    limit: Amounts
    weight: Amounts
    fair: Annotated[Amounts, Field(description="Fair share.")]
    used: Amounts
    after: Annotated[Amounts | None, Field(description="Used after the plan; null: nothing was decided.")]
    waiting: Annotated[int, Field(description="Pod groups pending in it and below it.")]
    starved: Annotated[int, Field(description="Pod groups of it that are owed and stay pending.")]


@with_config(CLOSED)
class PendingRow(TypedDict):
    """A pod group that stays pending, in fair order."""

    group: Number
    gpus: Gpus
    pods: Annotated[int, Field(description="Pods of its next batch.")]
    pending: int
    seconds: Annotated[float, Field(description="Since its creation.")]
    reason: str
    message: str
    proved: bool
    fixes: NotRequired[Annotated[list[str], Field(description="What would help; absent: not asked.")]]


@with_config(CLOSED)
class Tree(TypedDict):
    """A topology."""

    name: str
    levels: list[str]
    paths: Annotated[list[Place], Field(description="One for each node.")]


@with_config(CLOSED)
class NodeEntry(TypedDict):
    """A node."""

    name: str
    gpus: int
    closed: Annotated[str, Field(description="Why it takes no pods; empty: it does.")]
    domain: Annotated[str, Field(description="NVLink domain.")]
    product: str


@with_config(CLOSED)
class Start(TypedDict):
    """What a pod group is given by one action."""

    group: Number
    kind: Literal["Bind", "Nominate"]
    action: str
    pods: int
    nodes: list[str]


_Ends = TypedDict("_Ends", {"from": str, "for": list[Number]})
"""``from`` and ``for`` are no names that a class can have."""


@with_config(CLOSED)
class EvictionRow(_Ends):
    """A pod that is evicted."""

    pod: str
    group: Number
    gpus: Gpus
    to: Annotated[str, Field(description="Where it moves; empty: back to pending.")]
    action: str
    message: str


@with_config(CLOSED)
class StageEntry(TypedDict):
    """A stage of the solver."""

    name: str
    status: str
    objective: float | None
    bound: float | None
    gap: float | None


@with_config(CLOSED)
class SkippedEntry(TypedDict):
    """An object that was left out."""

    item: str
    reason: str


@with_config(CLOSED)
class StartLater(TypedDict):
    """A pod group with a start in the future. Instants are seconds from the document's ``now``."""

    group: Number
    state: str
    cause: Annotated[str, Field(description="Why it moved or was given up; empty: it did not.")]
    start: int | None
    promised: int | None
    gpus: Gpus
    nodes: list[str]
    idleGpuHours: float
    message: str


@with_config(CLOSED)
class OverTime(TypedDict):
    """Nodes over time, where reservations are on."""

    bars: Annotated[
        list[list[int | float | None]],
        Field(
            description="Place of the node, pod group, GPUs, seconds from now at which it begins and ends "
            "(null: unknown), 0 runs, 1 starts now, 2 is reserved."
        ),
    ]
    starts: list[StartLater]


@with_config(CLOSED)
class View(TypedDict):
    """What the page shows: inside the file of ``kai-cp view``, and at ``/view/data`` of a scheduler."""

    schema: Literal["view/1"]
    engine: str
    name: str
    mode: Annotated[str, Field(description="Of the scheduler that serves it; empty in a file.")]
    asks: Annotated[bool, Field(description="Its host says at /view/fixes what would help.")]
    now: Time
    decided: bool
    groups: list[GroupEntry]
    queues: list[QueueEntry]
    pending: list[PendingRow]
    levels: list[Tree]
    nodes: list[NodeEntry]
    cells: Annotated[list[list[Cell]], Field(description="GPUs of each node before the plan.")]
    cellsAfter: Annotated[
        dict[str, list[Cell]],
        Field(description="By place of the node: its GPUs after the plan, where they differ."),
    ]
    starts: list[Start]
    evictions: list[EvictionRow]
    time: Annotated[OverTime | None, Field(description="null: nothing is planned ahead.")]
    stages: list[StageEntry]
    skipped: list[SkippedEntry]
    cycles: NotRequired[
        Annotated[list[Any], Field(description="Of a live page: as /debug/cycles lists them.")]
    ]
