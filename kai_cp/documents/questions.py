"""Answers of ``pending``, ``queues``, ``evictions``, ``audit`` and ``diff``."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired

from pydantic import Field, with_config
from typing_extensions import TypedDict

from kai_cp.documents.parts import CLOSED, ForWhom, Gpus, Group, KindAmounts, Proof, Time


@with_config(CLOSED)
class PendingEntry(TypedDict):
    """A pod group that stays pending."""

    position: int
    podGroup: Group
    queue: str
    priority: int | None
    gpus: Gpus
    ageSeconds: int | None
    reason: str
    proof: Proof
    message: str


@with_config(CLOSED)
class Pending(TypedDict):
    """What waits, in fair order: ``kai-cp pending -o json``."""

    schema: Literal["pending/1"]
    now: Time
    pending: list[PendingEntry]


@with_config(CLOSED)
class QueueLine(TypedDict):
    """A queue, in GPUs; -1 is unlimited."""

    queue: str
    parent: str | None
    depth: int
    quota: float
    fairShare: float
    limit: float
    used: float
    borrowed: float
    waitingPodGroups: int
    owedPodGroups: int
    gpuKinds: NotRequired[
        Annotated[dict[str, KindAmounts], Field(description="With rules.gpu_kinds, by kind of GPU.")]
    ]


@with_config(CLOSED)
class Queues(TypedDict):
    """What each queue has, borrows and is owed: ``kai-cp queues -o json``."""

    schema: Literal["queues/1"]
    now: Time
    queues: list[QueueLine]


@with_config(CLOSED)
class Eviction(TypedDict):
    """A pod that is deleted."""

    pod: Annotated[str, Field(description="NAMESPACE/NAME.")]
    podGroup: str
    queue: str
    gpus: Gpus
    node: Annotated[str, Field(description="Where it runs.")]
    movesTo: Annotated[str | None, Field(description="Node of its replacement; null: back to pending.")]
    action: str
    message: str


@with_config(CLOSED)
class EvictionFor(Eviction, ForWhom):
    """A pod that is deleted."""


@with_config(CLOSED)
class Evictions(TypedDict):
    """Which pods are evicted, and for which group: ``kai-cp evictions -o json``."""

    schema: Literal["evictions/1"]
    now: Time
    evictions: list[EvictionFor]


@with_config(CLOSED)
class Owed(TypedDict):
    """A queue that is owed and one that could give, in GPUs."""

    owed: Annotated[str, Field(description="The queue below its fair share.")]
    podGroup: Annotated[str, Field(description="Its smallest pod group that waits: NAMESPACE/NAME.")]
    gpus: Annotated[float, Field(description="What that pod group needs.")]
    borrows: Annotated[str, Field(description="The queue above its fair share.")]
    aboveFairShare: float
    enough: Annotated[bool, Field(description="What it borrows is enough for the pod group.")]
    reason: Annotated[str, Field(description="Why the pod group waits: one token of docs/reasons.md.")]


@with_config(CLOSED)
class IdleQuota(TypedDict):
    """Quota that its queue neither uses nor waits to use, in GPUs."""

    queue: str
    quota: float
    used: float
    idle: float


@with_config(CLOSED)
class Audit(TypedDict):
    """Queues that are owed while others borrow: ``kai-cp audit -o json``."""

    schema: Literal["audit/1"]
    now: Time
    pairs: list[Owed]
    idleQuota: list[IdleQuota]


@with_config(CLOSED)
class GroupDifference(TypedDict):
    """What the two answers give a pod group, in words."""

    podGroup: Group
    a: str
    b: str


@with_config(CLOSED)
class EvictionDifference(TypedDict):
    """What becomes of a pod in each answer."""

    pod: Annotated[str, Field(description="NAMESPACE/NAME.")]
    a: Literal["stays", "moved", "evicted"]
    b: Literal["stays", "moved", "evicted"]


@with_config(CLOSED)
class Totals(TypedDict):
    """An answer in figures."""

    bound: Annotated[int, Field(description="Pods.")]
    nominated: Annotated[int, Field(description="Pods, without those that move.")]
    evicted: Annotated[int, Field(description="Pods, without those that move.")]
    moved: Annotated[int, Field(description="Pods.")]
    pendingPodGroups: int


@with_config(CLOSED)
class DecisionDiff(TypedDict):
    """How two answers differ: ``kai-cp diff a.json b.json -o json``."""

    schema: Literal["decision-diff/1"]
    podGroups: list[GroupDifference]
    evictions: list[EvictionDifference]
    a: Totals
    b: Totals


@with_config(CLOSED)
class ObjectDifference(TypedDict):
    """An object that two snapshots do not have alike."""

    kind: Annotated[str, Field(description="List of the snapshot, such as pods.")]
    object: Annotated[str, Field(description="NAMESPACE/NAME, or NAME.")]
    change: Literal["added", "removed", "changed"]
    fields: NotRequired[Annotated[list[str], Field(description="Paths that differ.")]]


@with_config(CLOSED)
class SnapshotDiff(TypedDict):
    """How two snapshots differ: ``kai-cp diff a.zip b.zip -o json``."""

    schema: Literal["snapshot-diff/1"]
    objects: list[ObjectDifference]
