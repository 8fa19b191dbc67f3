"""What the page shows."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field, with_config
from typing_extensions import TypedDict

from kai_cp.documents.parts import CLOSED, FORMAT, Gpus, Group, Time

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
    queue: Annotated[str, Field(description="Its queue.")]
    priority: Annotated[int, Field(description="Its priority.")]
    preemptible: Annotated[bool, Field(description="Whether its pods may be evicted for others.")]
    pods: Annotated[int, Field(description="All its pods.")]
    running: Annotated[int, Field(description="Pods that run.")]
    created: Annotated[Time, Field(description="When it was created.")]


@with_config(CLOSED)
class QueueEntry(TypedDict):
    """A queue; parents come first."""

    name: Annotated[str, Field(description="Name of the queue.")]
    title: Annotated[str, Field(description="Its displayName.")]
    depth: Annotated[int, Field(description="Levels above it; 0: top level.")]
    priority: Annotated[int, Field(description="Higher is served first.")]
    quota: Annotated[Amounts, Field(description="Deserved amounts: millicores, bytes, GPUs; -1: unlimited.")]
    limit: Annotated[
        Amounts, Field(description="Most that it may hold: millicores, bytes, GPUs; -1: unlimited.")
    ]
    weight: Annotated[
        Amounts, Field(description="Weights for amounts above the quota: of CPU, memory, GPU; no unit.")
    ]
    fair: Annotated[Amounts, Field(description="Fair share.")]
    used: Annotated[Amounts, Field(description="What it holds: millicores, bytes, GPUs.")]
    after: Annotated[Amounts | None, Field(description="Used after the plan; null: nothing was decided.")]
    waiting: Annotated[int, Field(description="Pod groups pending in it and below it.")]
    starved: Annotated[int, Field(description="Pod groups of it that are owed and stay pending.")]


@with_config(CLOSED)
class PendingRow(TypedDict):
    """A pod group that stays pending, in fair order."""

    group: Number
    position: Annotated[int | None, Field(description="Place in the fair order, from 1; null: it has none.")]
    gpus: Annotated[Gpus, Field(description="GPUs that the next batch asks for.")]
    pods: Annotated[int, Field(description="Pods of its next batch.")]
    pending: Annotated[int, Field(description="All its pods that wait.")]
    seconds: Annotated[float, Field(description="Since its creation.")]
    reason: Annotated[str, Field(description="One token of docs/reasons.md.")]
    message: Annotated[str, Field(description="The reason as a sentence with its numbers.")]
    proved: Annotated[
        bool, Field(description="Whether no plan places it while everything ahead of it is served.")
    ]
    fixes: NotRequired[Annotated[list[str], Field(description="What would help; absent: not asked.")]]
    note: NotRequired[Annotated[str, Field(description="That nothing helps, or what was not tried.")]]


@with_config(CLOSED)
class Tree(TypedDict):
    """A topology."""

    name: Annotated[str, Field(description="Name of the Topology.")]
    levels: Annotated[list[str], Field(description="Node labels from the top.")]
    paths: Annotated[list[Place], Field(description="One for each node.")]


@with_config(CLOSED)
class NodeEntry(TypedDict):
    """A node."""

    name: Annotated[str, Field(description="Name of the node.")]
    gpus: Annotated[int, Field(description="GPUs of the node.")]
    closed: Annotated[str, Field(description="Why it takes no pods; empty: it does.")]
    domain: Annotated[str, Field(description="NVLink domain.")]
    product: Annotated[str, Field(description="Product name of its GPUs; empty: unknown.")]


@with_config(CLOSED)
class Start(TypedDict):
    """What a pod group is given by one action."""

    group: Number
    kind: Annotated[
        Literal["Bind", "Nominate"], Field(description="Bind: starts now; Nominate: its place is promised.")
    ]
    action: Annotated[str, Field(description="The action that decided it.")]
    pods: Annotated[int, Field(description="Pods that get a place.")]
    nodes: Annotated[list[str], Field(description="Names of their nodes.")]


_Ends = TypedDict(
    "_Ends",
    {
        "from": Annotated[str, Field(description="Node where it runs.")],
        "for": Annotated[list[Number], Field(description="Pod groups that it is evicted for.")],
    },
)
"""``from`` and ``for`` are not names that a class can have."""


@with_config(CLOSED)
class EvictionRow(_Ends):
    """A pod that is evicted."""

    pod: Annotated[str, Field(description="NAMESPACE/NAME.")]
    group: Number
    gpus: Annotated[Gpus, Field(description="GPUs that it frees.")]
    to: Annotated[str, Field(description="Where it moves; empty: back to pending.")]
    action: Annotated[str, Field(description="The action that evicts it.")]
    message: Annotated[str, Field(description="Why, in a sentence.")]


@with_config(CLOSED)
class StageEntry(TypedDict):
    """A stage of the solver."""

    name: Annotated[str, Field(description="Action and what it optimises, with the unit.")]
    status: Annotated[
        str,
        Field(
            description="OPTIMAL: proved; FEASIBLE: best found; "
            "GREEDY: the solver was not asked, or not in time."
        ),
    ]
    objective: Annotated[float | None, Field(description="A cost: smaller is better; null: no number.")]
    bound: Annotated[float | None, Field(description="No answer is below this; null: no number.")]
    gap: Annotated[float | None, Field(description="(objective - bound) / max(1, objective); 0 is proof.")]


@with_config(CLOSED)
class SkippedEntry(TypedDict):
    """An object that was left out."""

    item: Annotated[str, Field(description="Kind NAMESPACE/NAME.")]
    reason: Annotated[str, Field(description="What is wrong, with the field.")]


@with_config(CLOSED)
class StartLater(TypedDict):
    """A pod group with a start in the future. Instants are seconds from the document's ``now``."""

    group: Number
    state: Annotated[str, Field(description="What became of the promise; see docs/reservations.md.")]
    cause: Annotated[str, Field(description="Why it moved or was given up; empty: it did not.")]
    start: Annotated[int | None, Field(description="Seconds from now; null: none.")]
    promised: Annotated[
        int | None, Field(description="Seconds from now, as first promised; null: not promised.")
    ]
    gpus: Annotated[Gpus, Field(description="GPUs that are held for it.")]
    nodes: Annotated[list[str], Field(description="Names of the nodes.")]
    idleGpuHours: Annotated[float, Field(description="GPU-hours held and unused until the start.")]
    message: Annotated[str, Field(description="The promise in a sentence.")]


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
    starts: Annotated[list[StartLater], Field(description="Pod groups with a start in the future.")]


@with_config(CLOSED)
class View(TypedDict):
    """What the page shows: inside the file of ``kai-cp view``, and at ``/view/data`` of a scheduler."""

    schema: Annotated[Literal["view/1"], FORMAT]
    engine: Annotated[str, Field(description="Name and version of the engine.")]
    name: Annotated[str, Field(description="Name of the snapshot or cluster.")]
    mode: Annotated[str, Field(description="Mode of the scheduler that serves it; empty in a file.")]
    asks: Annotated[bool, Field(description="Its host says at /view/fixes what would help.")]
    now: Annotated[Time, Field(description="The time at which the snapshot was read.")]
    decided: Annotated[
        bool, Field(description="Whether there is a plan; false: the snapshot alone is shown.")
    ]
    broken: Annotated[
        list[str], Field(description="Rules that the given decisions break, a sentence each; empty: none.")
    ]
    groups: Annotated[
        list[GroupEntry], Field(description="All pod groups; others name them by their place here.")
    ]
    queues: Annotated[list[QueueEntry], Field(description="All queues; parents come first.")]
    pending: Annotated[list[PendingRow], Field(description="Pod groups that stay pending, in fair order.")]
    levels: Annotated[list[Tree], Field(description="The topologies.")]
    nodes: Annotated[list[NodeEntry], Field(description="All nodes.")]
    cells: Annotated[list[list[Cell]], Field(description="GPUs of each node before the plan.")]
    cellsAfter: Annotated[
        dict[str, list[Cell]],
        Field(description="By place of the node: its GPUs after the plan, where they differ."),
    ]
    starts: Annotated[list[Start], Field(description="What the plan places.")]
    evictions: Annotated[list[EvictionRow], Field(description="What the plan evicts.")]
    time: Annotated[OverTime | None, Field(description="null: nothing is planned ahead.")]
    stages: Annotated[list[StageEntry], Field(description="What each action asked the solver, in order.")]
    skipped: Annotated[list[SkippedEntry], Field(description="Objects that were left out.")]
    cycles: NotRequired[
        Annotated[list[Any], Field(description="Cycles as /debug/cycles lists them, in a live page.")]
    ]
