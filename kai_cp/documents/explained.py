"""Why and what if: ``explanation/1`` and ``whatif/1``."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field, with_config
from typing_extensions import TypedDict

from kai_cp.documents.parts import CLOSED, Amount, ForWhom, Gpus, Group, Proved, Time

Operation = Annotated[
    dict[str, Any],
    Field(description="A change of the snapshot: op, and its fields; see docs/explain-and-what-if.md."),
]
Family = Annotated[str, Field(description="A family of rules, such as room:gpu or limit:QUEUE.")]


@with_config(CLOSED)
class Needs(TypedDict):
    """What the next pods of a pod group ask for together."""

    pods: int
    gpu: Gpus
    cpu: Annotated[float, Field(description="Millicores.")]
    memory: Annotated[float, Field(description="Bytes.")]


@with_config(CLOSED)
class Ahead(TypedDict):
    """A pod group that comes first, and by which comparison."""

    podGroup: Group
    queue: str
    gpu: Gpus
    because: str


@with_config(CLOSED)
class Position(TypedDict):
    """Place in the fair order."""

    at: Annotated[int | None, Field(description="From 1; null: not considered.")]
    of: int
    inQueue: Annotated[int | None, Field(description="Place among those of its queue.")]
    aheadGpus: Gpus
    ahead: list[Ahead]


@with_config(CLOSED)
class Fix(TypedDict):
    """A change with which it starts; it was applied and the cycle decided again."""

    kind: str
    amount: float
    unit: str
    ops: list[Operation]
    least: Annotated[Proved, Field(description="proved: no smaller amount of this kind helps.")]
    starts: Annotated[str, Field(description="`now`, `when the room is free`, or a time.")]
    gain: Annotated[list[Group], Field(description="Others that get more pods placed.")]
    lose: Annotated[list[Group], Field(description="Others that get fewer.")]
    amounts: NotRequired[Annotated[dict[str, Any], Field(description="By kind, where two go together.")]]


@with_config(CLOSED)
class NoFix(TypedDict):
    """A kind of change that does not help."""

    kind: str
    because: str


@with_config(CLOSED)
class Start(TypedDict):
    """When it starts if nothing changes."""

    at: Time | None
    openEnds: Annotated[int, Field(description="Running pod groups without a known end.")]
    because: str


@with_config(CLOSED)
class Alternative(TypedDict):
    """A goal by which the victims were chosen: a cost, and its bound."""

    name: str
    value: float
    bound: float
    proved: bool


@with_config(CLOSED)
class EvictedBy(ForWhom):
    """What took its place in this cycle."""

    action: str
    rule: Literal[
        "fair-share", "priority", "consolidation", "stale", "max-runtime", "reservation", "defragmentation"
    ]
    pods: Annotated[list[str], Field(description="NAMESPACE/NAME.")]
    because: Annotated[str, Field(description="The rule with the numbers of both sides.")]
    alternatives: list[Alternative]


@with_config(CLOSED)
class Explained(TypedDict):
    """A pod group."""

    podGroup: Group
    queue: str
    state: Literal["pending", "running", "admitted", "moved", "evicted"]
    waitingSeconds: int
    needs: Needs
    reason: Annotated[str, Field(description="One token of docs/reasons.md; empty: none.")]
    message: str
    proof: Proved
    blocking: Annotated[
        list[list[Family]], Field(description="Sets of rules, each of which alone keeps it from starting.")
    ]
    minimal: Annotated[bool, Field(description="Every member of every set was tested: none can be left out.")]
    notInvolved: Annotated[list[Family], Field(description="In no set.")]
    corrections: Annotated[
        list[list[Family]], Field(description="Sets of rules without which it would start.")
    ]
    position: Position
    fixes: list[Fix]
    noFix: list[NoFix]
    start: Start | None
    evictedBy: EvictedBy | None


@with_config(CLOSED)
class Explanation(TypedDict):
    """Why pod groups wait and what would help: ``kai-cp explain -o json``, ``GET /explain``."""

    schema: Literal["explanation/1"]
    engine: str
    version: str
    snapshotSha256: str
    now: Time
    explanations: list[Explained]
    timings: dict[str, float]


@with_config(CLOSED)
class StillPending(TypedDict):
    """A pod group that the cycle leaves waiting."""

    podGroup: Group
    reason: str


@with_config(CLOSED)
class StageInShort(TypedDict):
    """One question of an action."""

    name: str
    status: Literal["OPTIMAL", "FEASIBLE", "GREEDY"]
    objective: float | None
    bound: float | None


@with_config(CLOSED)
class FairShare(TypedDict):
    """What a queue is owed."""

    gpu: Amount
    cpu: Amount
    memory: Amount


@with_config(CLOSED)
class CycleInShort(TypedDict):
    """A cycle in figures."""

    bound: int
    nominated: int
    evicted: int
    gpus: Annotated[Gpus, Field(description="In use when it has been carried out.")]
    pending: list[StillPending]
    stages: list[StageInShort]
    fairShares: dict[str, FairShare]


@with_config(CLOSED)
class Difference(TypedDict):
    """What the change does."""

    gain: Annotated[list[Group], Field(description="They hold more pods.")]
    lose: Annotated[list[Group], Field(description="They hold fewer.")]
    addedPlaced: Annotated[list[Group], Field(description="New pod groups that are placed.")]
    gpusBefore: Gpus
    gpusAfter: Gpus
    lostBefore: Annotated[int, Field(description="Pods that are stopped.")]
    lostAfter: int
    movedBefore: Annotated[int, Field(description="Pods that restart elsewhere.")]
    movedAfter: int
    cycles: NotRequired[Annotated[int, Field(description="Until nothing changed (--until-settled).")]]
    settled: NotRequired[bool]


@with_config(CLOSED)
class Least(TypedDict):
    """The least change of a kind (--least)."""

    kind: str
    amount: Annotated[float | None, Field(description="null: no amount helps.")]
    ops: list[Operation]
    proof: Proved
    below: Annotated[
        dict[str, Any] | None, Field(description="The next smaller amount, and what waits with it.")
    ]
    because: NotRequired[str]


@with_config(CLOSED)
class Bound(TypedDict):
    """The most GPUs that any scheduler could have in use (--bound)."""

    gpus: Gpus
    inUse: Gpus
    gap: Gpus
    proof: Proved
    note: NotRequired[str]


@with_config(CLOSED)
class WhatIf(TypedDict):
    """What a change would do: ``kai-cp what-if -o json``, ``POST /what-if``."""

    schema: Literal["whatif/1"]
    engine: str
    version: str
    snapshotSha256: str
    now: Time
    ops: list[Operation]
    before: CycleInShort
    after: CycleInShort
    diff: Difference
    least: NotRequired[Least]
    bound: NotRequired[Bound]
