"""Why and what if: ``explanation/1`` and ``whatif/1``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, NotRequired

from pydantic import Field, with_config
from typing_extensions import TypedDict

from kai_cp.documents.parts import CLOSED, Amount, CutDuring, ForWhom, Gpus, Group, Proved, Time
from kai_cp_models.policy import ActionName

Operation = Annotated[
    dict[str, Any],
    Field(description="A change of the snapshot: op, and its fields; see docs/explain-and-what-if.md."),
]
Name = Field(description="Name and number of the document.")
Engine = Annotated[str, Field(description="The program that wrote it.")]
Version = Annotated[str, Field(description="Version of kai-cp.")]
Sha256 = Annotated[
    str, Field(description="SHA-256 of the snapshot as it was read; empty: the snapshot of the last cycle.")
]
Family = Annotated[str, Field(description="A family of rules, such as room:gpu or limit:QUEUE.")]

EvictionRule = Literal[
    "fair-share",
    "priority",
    "consolidation",
    "stale",
    "max-runtime",
    "reservation",
    "defragmentation",
]
RULES_OF_ACTIONS: Final[Mapping[ActionName, EvictionRule]] = {
    "reclaim": "fair-share",
    "preempt": "priority",
    "consolidation": "consolidation",
    "stalegangeviction": "stale",
    "maxruntime": "max-runtime",
    "reservation": "reservation",
    "defrag": "defragmentation",
}
"""The rule by which each action evicts; ``allocate`` evicts nothing."""


@with_config(CLOSED)
class Needs(TypedDict):
    """What the next pods of a pod group ask for together."""

    pods: Annotated[
        int, Field(description="Pods that start together: what its minimum lacks, else one increment.")
    ]
    gpu: Gpus
    cpu: Annotated[float, Field(description="Millicores.")]
    memory: Annotated[float, Field(description="Bytes.")]


@with_config(CLOSED)
class Ahead(TypedDict):
    """A pod group that comes first, and by which comparison."""

    podGroup: Group
    queue: Annotated[str, Field(description="Its leaf queue.")]
    gpu: Gpus
    because: Annotated[
        str, Field(description="The first step of the order that puts it ahead, such as older.")
    ]


@with_config(CLOSED)
class Position(TypedDict):
    """Place in the fair order."""

    at: Annotated[int | None, Field(description="From 1; null: not considered.")]
    of: Annotated[int, Field(description="Pod groups that may be served.")]
    inQueue: Annotated[int | None, Field(description="Place among those of its queue.")]
    aheadGpus: Gpus
    ahead: Annotated[
        list[Ahead],
        Field(description="Those before it, in order; of more than 200 the first 199 and the last."),
    ]


@with_config(CLOSED)
class Fix(TypedDict):
    """A change with which it starts; it was applied and the cycle decided again."""

    kind: Annotated[
        str,
        Field(description="Kind of the change, such as move, stop or add-nodes; see explain.fix_order."),
    ]
    amount: Annotated[float, Field(description="How much is changed, in the unit.")]
    unit: Annotated[str, Field(description="What the amount counts.")]
    ops: Annotated[list[Operation], Field(description="What to change, in this order.")]
    least: Annotated[Proved, Field(description="proved: no smaller amount of this kind helps.")]
    starts: Annotated[str, Field(description="`now`, `when the room is free`, or a time.")]
    gain: Annotated[list[Group], Field(description="Others that get more pods placed.")]
    lose: Annotated[list[Group], Field(description="Others that get fewer.")]
    amounts: NotRequired[Annotated[dict[str, Any], Field(description="By kind, where two go together.")]]


@with_config(CLOSED)
class NoFix(TypedDict):
    """A kind of change that does not help."""

    kind: Annotated[str, Field(description="Kind of the change.")]
    because: Annotated[str, Field(description="Why it does not help, or was not tried.")]


@with_config(CLOSED)
class Start(TypedDict):
    """When it starts if nothing changes."""

    at: Annotated[
        Time | None,
        Field(description="Earliest known time at which a cycle admits it; null: there is no estimate."),
    ]
    openEnds: Annotated[int, Field(description="Running pod groups without a known end.")]
    because: Annotated[str, Field(description="What ends by then, or why there is no estimate.")]


@with_config(CLOSED)
class Alternative(TypedDict):
    """A goal by which the victims were chosen: a cost, and its bound."""

    name: Annotated[str, Field(description="Action and what was counted, with its unit.")]
    value: Annotated[float, Field(description="Cost of the plan that is carried out.")]
    bound: Annotated[float, Field(description="No permitted plan has less.")]
    proved: Annotated[bool, Field(description="Value and bound are equal.")]


@with_config(CLOSED)
class EvictedBy(ForWhom):
    """What took its place in this cycle."""

    action: Annotated[str, Field(description="The action that evicts it.")]
    rule: Annotated[EvictionRule, Field(description="The rule by which the action may evict it.")]
    pods: Annotated[list[str], Field(description="NAMESPACE/NAME.")]
    because: Annotated[str, Field(description="The rule with the numbers of both sides.")]
    alternatives: Annotated[
        list[Alternative], Field(description="What was counted when its victims were chosen.")
    ]


@with_config(CLOSED)
class Explained(TypedDict):
    """A pod group."""

    podGroup: Group
    queue: Annotated[str, Field(description="The queue that it names.")]
    state: Annotated[
        Literal["pending", "running", "admitted", "moved", "evicted"],
        Field(description="What this cycle does with it; see docs/my-job-is-pending.md."),
    ]
    waitingSeconds: Annotated[
        int, Field(description="Since it was created or last evicted; 0: no pod waits.")
    ]
    needs: Annotated[Needs, Field(description="What its next batch asks for.")]
    reason: Annotated[str, Field(description="One token of docs/reasons.md; empty: none.")]
    message: Annotated[str, Field(description="One sentence with numbers and names.")]
    proof: Annotated[Proved, Field(description="proved: every set of blocking was refuted.")]
    blocking: Annotated[
        list[list[Family]], Field(description="Sets of rules, each of which alone keeps it from starting.")
    ]
    minimal: Annotated[
        bool,
        Field(
            description="Every member of every set was tested: without it the model, which may allow more "
            "than the rules, has a plan."
        ),
    ]
    notInvolved: Annotated[list[Family], Field(description="In no set.")]
    corrections: Annotated[
        list[list[Family]], Field(description="Sets of rules without which it would start.")
    ]
    position: Annotated[Position, Field(description="Where it stands in the fair order.")]
    fixes: Annotated[list[Fix], Field(description="What helps, the cheapest kind first.")]
    noFix: Annotated[list[NoFix], Field(description="Kinds of changes that do not help, or were not tried.")]
    start: Annotated[
        Start | None, Field(description="When it starts if nothing changes; null: it does not wait.")
    ]
    evictedBy: Annotated[
        EvictedBy | None, Field(description="What takes its place in this cycle; null: nothing does.")
    ]


@with_config(CLOSED)
class Explanation(TypedDict):
    """Why pod groups wait and what would help: ``kai-cp explain -o json``, ``GET /explain``."""

    schema: Annotated[Literal["explanation/1"], Name]
    engine: Engine
    version: Version
    snapshotSha256: Sha256
    now: Time
    cutDuring: NotRequired[CutDuring]
    explanations: Annotated[
        list[Explained], Field(description="One entry for each pod group that was asked about.")
    ]
    timings: Annotated[dict[str, float], Field(description="Seconds by part of the work.")]


@with_config(CLOSED)
class StillPending(TypedDict):
    """A pod group that the cycle leaves waiting."""

    podGroup: Group
    reason: Annotated[str, Field(description="One token of docs/reasons.md.")]


@with_config(CLOSED)
class StageInShort(TypedDict):
    """One question of an action."""

    name: Annotated[str, Field(description="Action and what it decides.")]
    status: Annotated[
        Literal["OPTIMAL", "FEASIBLE", "GREEDY"], Field(description="OPTIMAL: proved to be the best.")
    ]
    objective: Annotated[float | None, Field(description="What the answer costs; null: nothing was counted.")]
    bound: Annotated[float | None, Field(description="No answer costs less; null: not known.")]


@with_config(CLOSED)
class FairShare(TypedDict):
    """What a queue is owed."""

    gpu: Amount
    cpu: Amount
    memory: Amount


@with_config(CLOSED)
class CycleInShort(TypedDict):
    """A cycle in figures."""

    bound: Annotated[int, Field(description="Pods that are bound.")]
    nominated: Annotated[int, Field(description="Pods that get a place which is not free yet.")]
    evicted: Annotated[int, Field(description="Pods that are evicted, to stop or to move.")]
    gpus: Annotated[Gpus, Field(description="In use when it has been carried out.")]
    pending: Annotated[
        list[StillPending],
        Field(description="Pod groups that it refuses a place, without those that it evicts."),
    ]
    stages: Annotated[list[StageInShort], Field(description="What the cycle decided, question by question.")]
    fairShares: Annotated[dict[str, FairShare], Field(description="By queue.")]


@with_config(CLOSED)
class Difference(TypedDict):
    """What the change does."""

    gain: Annotated[list[Group], Field(description="They hold more pods.")]
    lose: Annotated[list[Group], Field(description="They hold fewer.")]
    addedPlaced: Annotated[list[Group], Field(description="New pod groups that are placed.")]
    gpusBefore: Gpus
    gpusAfter: Gpus
    lostBefore: Annotated[int, Field(description="Pods that are stopped without the change.")]
    lostAfter: Annotated[int, Field(description="Pods that are stopped with the change.")]
    movedBefore: Annotated[int, Field(description="Pods that restart elsewhere without it.")]
    movedAfter: Annotated[int, Field(description="Pods that restart elsewhere with the change.")]
    cycles: NotRequired[Annotated[int, Field(description="Until nothing changed (--until-settled).")]]
    settled: NotRequired[
        Annotated[
            bool, Field(description="Both clusters came to a cycle that decides nothing (--until-settled).")
        ]
    ]


@with_config(CLOSED)
class Least(TypedDict):
    """The least change of a kind (--least)."""

    kind: Annotated[str, Field(description="Kind of the change.")]
    amount: Annotated[float | None, Field(description="null: no amount helps.")]
    ops: Annotated[list[Operation], Field(description="The change itself.")]
    proof: Annotated[Proved, Field(description="proved: no smaller amount helps; null: none at all.")]
    below: Annotated[
        dict[str, Any] | None, Field(description="The next smaller amount, and what waits with it.")
    ]
    because: NotRequired[Annotated[str, Field(description="Why no amount helps.")]]


@with_config(CLOSED)
class Bound(TypedDict):
    """The most GPUs that any scheduler could have in use (--bound)."""

    gpus: Gpus
    inUse: Gpus
    gap: Gpus
    proof: Annotated[
        Proved, Field(description="proved: the bound was found by a model that was solved to its end.")
    ]
    note: NotRequired[Annotated[str, Field(description="Why the bound is not proved.")]]


@with_config(CLOSED)
class WhatIf(TypedDict):
    """What a change would do: ``kai-cp what-if -o json``, ``POST /what-if``."""

    schema: Annotated[Literal["whatif/1"], Name]
    engine: Engine
    version: Version
    snapshotSha256: Sha256
    now: Time
    ops: Annotated[list[Operation], Field(description="What was changed, in this order.")]
    before: Annotated[CycleInShort, Field(description="The cycle on the snapshot as it is.")]
    after: Annotated[CycleInShort, Field(description="The cycle on the changed snapshot.")]
    diff: Annotated[Difference, Field(description="What the change does to pod groups.")]
    least: NotRequired[
        Annotated[Least, Field(description="The least change with which the targets are admitted (--least).")]
    ]
    bound: NotRequired[
        Annotated[Bound, Field(description="How many GPUs could be in use at most (--bound).")]
    ]
