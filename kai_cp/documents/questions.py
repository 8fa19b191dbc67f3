"""Answers of ``pending``, ``queues``, ``evictions``, ``audit`` and ``diff``."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field, with_config
from typing_extensions import TypedDict

from kai_cp.documents.parts import CLOSED, FORMAT, ForWhom, Gpus, Group, KindAmounts, Proof, Time


@with_config(CLOSED)
class PendingEntry(TypedDict):
    """A pod group that stays pending."""

    position: Annotated[int | None, Field(description="Place in the fair order, from 1; null: it has none.")]
    podGroup: Group
    queue: Annotated[str, Field(description="Its queue.")]
    priority: Annotated[int | None, Field(description="Its priority; null: unknown.")]
    gpus: Annotated[Gpus, Field(description="GPUs that its waiting pods ask for.")]
    ageSeconds: Annotated[int | None, Field(description="Seconds since its creation; null: unknown.")]
    reason: Annotated[str, Field(description="One token of docs/reasons.md.")]
    proof: Proof
    message: Annotated[str, Field(description="The reason as a sentence with its numbers.")]


@with_config(CLOSED)
class Pending(TypedDict):
    """What waits, in fair order: ``kai-cp pending -o json``."""

    schema: Annotated[Literal["pending/1"], FORMAT]
    now: Annotated[Time, Field(description="The time at which the snapshot was read.")]
    pending: Annotated[list[PendingEntry], Field(description="In fair order.")]


@with_config(CLOSED)
class QueueLine(TypedDict):
    """A queue, in GPUs; -1 is unlimited."""

    queue: Annotated[str, Field(description="Name of the queue.")]
    parent: Annotated[str | None, Field(description="Its parent queue; null: top level.")]
    depth: Annotated[int, Field(description="Levels above it; 0: top level.")]
    quota: Annotated[float, Field(description="Deserved GPUs; -1: unlimited.")]
    fairShare: Annotated[float, Field(description="GPUs that it is due now.")]
    limit: Annotated[float, Field(description="Most GPUs that it may hold; -1: unlimited.")]
    used: Annotated[float, Field(description="GPUs that it holds.")]
    borrowed: Annotated[float, Field(description="GPUs that it holds above its quota.")]
    waitingPodGroups: Annotated[int, Field(description="Pod groups that wait in it.")]
    owedPodGroups: Annotated[
        int, Field(description="Those that wait after the plan although its fair share covers them.")
    ]
    gpuKinds: NotRequired[
        Annotated[dict[str, KindAmounts], Field(description="With rules.gpu_kinds, by kind of GPU.")]
    ]


@with_config(CLOSED)
class Queues(TypedDict):
    """What each queue has, borrows and is owed: ``kai-cp queues -o json``."""

    schema: Annotated[Literal["queues/1"], FORMAT]
    now: Annotated[Time, Field(description="The time at which the snapshot was read.")]
    queues: Annotated[list[QueueLine], Field(description="Parents stand before their children.")]


@with_config(CLOSED)
class ComparedQueue(TypedDict):
    """A queue on the path to the one that was asked about, or a peer of such a queue; -1 is unlimited."""

    queue: Annotated[str, Field(description="Name of the queue.")]
    parent: Annotated[str | None, Field(description="Its parent queue; null: top level.")]
    quota: Annotated[float, Field(description="Deserved GPUs; -1: unlimited.")]
    limit: Annotated[float, Field(description="Most GPUs that it may hold; -1: unlimited.")]
    priority: Annotated[int, Field(description="Its turn when GPUs above the quotas are divided.")]
    overQuotaWeight: Annotated[float, Field(description="Its part of GPUs above the quotas.")]
    fairShare: Annotated[float, Field(description="GPUs that it is due now.")]
    used: Annotated[float, Field(description="GPUs that it holds.")]
    asked: Annotated[float, Field(description="GPUs that it holds and that wait in it.")]
    borrowed: Annotated[float, Field(description="GPUs that it holds above its quota.")]
    because: Annotated[str, Field(description="Why it is due more than the queue on the path, if it is.")]


@with_config(CLOSED)
class QueueWhy(TypedDict):
    """Why a queue has what it has, and its peers more: ``kai-cp queues --why NAME -o json``."""

    schema: Annotated[Literal["queue-why/1"], FORMAT]
    now: Annotated[Time, Field(description="The time at which the snapshot was read.")]
    queue: Annotated[str, Field(description="The queue that was asked about.")]
    queues: Annotated[
        list[ComparedQueue],
        Field(description="By level from the top; on each the queue on the path stands first."),
    ]


@with_config(CLOSED)
class Eviction(TypedDict):
    """A pod that is deleted."""

    pod: Annotated[str, Field(description="NAMESPACE/NAME.")]
    podGroup: Annotated[str, Field(description="Its pod group: NAMESPACE/NAME; empty: none.")]
    queue: Annotated[str, Field(description="Its queue; empty: unknown.")]
    gpus: Annotated[Gpus, Field(description="GPUs that it frees.")]
    node: Annotated[str, Field(description="Where it runs.")]
    movesTo: Annotated[str | None, Field(description="Node of its replacement; null: back to pending.")]
    action: Annotated[str, Field(description="The action that evicts it.")]
    message: Annotated[str, Field(description="Why, in a sentence.")]


@with_config(CLOSED)
class EvictionFor(Eviction, ForWhom):
    """A pod that is deleted."""


@with_config(CLOSED)
class Evictions(TypedDict):
    """Which pods are evicted, and for which group: ``kai-cp evictions -o json``."""

    schema: Annotated[Literal["evictions/1"], FORMAT]
    now: Annotated[Time, Field(description="The time at which the snapshot was read.")]
    evictions: Annotated[list[EvictionFor], Field(description="In the order in which they are carried out.")]


@with_config(CLOSED)
class Owed(TypedDict):
    """A queue that is owed and one that could give, in GPUs."""

    owed: Annotated[str, Field(description="The queue below its fair share.")]
    podGroup: Annotated[str, Field(description="Its pod group with the smallest next batch: NAMESPACE/NAME.")]
    gpus: Annotated[float, Field(description="What that batch needs.")]
    borrows: Annotated[str, Field(description="The queue above its fair share.")]
    aboveFairShare: Annotated[
        float, Field(description="GPUs that the other queue holds above its fair share.")
    ]
    enough: Annotated[bool, Field(description="That is enough for the pod group.")]
    reason: Annotated[str, Field(description="Why the pod group waits: one token of docs/reasons.md.")]


@with_config(CLOSED)
class IdleQuota(TypedDict):
    """Quota that its queue neither uses nor waits to use, in GPUs."""

    queue: Annotated[str, Field(description="Name of the queue.")]
    quota: Annotated[float, Field(description="Deserved GPUs.")]
    used: Annotated[float, Field(description="GPUs that it holds.")]
    idle: Annotated[float, Field(description="GPUs of the quota that stay free.")]


@with_config(CLOSED)
class Audit(TypedDict):
    """Queues that the plan leaves owed while others are above their fair share: ``kai-cp audit -o json``."""

    schema: Annotated[Literal["audit/1"], FORMAT]
    now: Annotated[Time, Field(description="The time at which the snapshot was read.")]
    pairs: Annotated[list[Owed], Field(description="Each queue that is owed, with one above its fair share.")]
    idleQuota: Annotated[list[IdleQuota], Field(description="Queues whose quota is not used up.")]


@with_config(CLOSED)
class GroupDifference(TypedDict):
    """What the two answers give a pod group, in words."""

    podGroup: Group
    a: Annotated[str, Field(description="In the first answer.")]
    b: Annotated[str, Field(description="In the second answer.")]


@with_config(CLOSED)
class EvictionDifference(TypedDict):
    """What becomes of a pod in each answer."""

    pod: Annotated[str, Field(description="NAMESPACE/NAME.")]
    a: Annotated[Literal["stays", "moved", "evicted"], Field(description="In the first answer.")]
    b: Annotated[Literal["stays", "moved", "evicted"], Field(description="In the second answer.")]


@with_config(CLOSED)
class NodeDifference(TypedDict):
    """The nodes that the answers give a pod."""

    pod: Annotated[str, Field(description="NAMESPACE/NAME.")]
    a: Annotated[str, Field(description="In the first answer.")]
    b: Annotated[str, Field(description="In the second answer.")]


@with_config(CLOSED)
class Totals(TypedDict):
    """An answer in figures."""

    bound: Annotated[int, Field(description="Pods that start now.")]
    nominated: Annotated[int, Field(description="Pods with a promised place, without those that move.")]
    evicted: Annotated[int, Field(description="Pods that go back to pending.")]
    moved: Annotated[int, Field(description="Pods that restart elsewhere.")]
    pendingPodGroups: Annotated[
        int | None, Field(description="Pod groups that stay pending; null: the answer does not tell them.")
    ]


@with_config(CLOSED)
class DecisionDiff(TypedDict):
    """How two answers differ: ``kai-cp diff a.json b.json -o json``."""

    schema: Annotated[Literal["decision-diff/1"], FORMAT]
    podGroups: Annotated[
        list[GroupDifference], Field(description="Pod groups that the answers treat differently.")
    ]
    evictions: Annotated[
        list[EvictionDifference], Field(description="Pods that the answers treat differently.")
    ]
    places: Annotated[
        list[NodeDifference], Field(description="Pods to which both give a place, on different nodes.")
    ]
    a: Annotated[Totals, Field(description="The first answer in figures.")]
    b: Annotated[Totals, Field(description="The second answer in figures.")]


@with_config(CLOSED)
class FieldDifference(TypedDict):
    """A field that two snapshots do not have alike."""

    field: Annotated[str, Field(description="Its path, such as spec.unschedulable.")]
    a: Annotated[Any, Field(description="In the first snapshot; null: absent.")]
    b: Annotated[Any, Field(description="In the second snapshot; null: absent.")]


@with_config(CLOSED)
class ObjectDifference(TypedDict):
    """An object that two snapshots do not have alike."""

    kind: Annotated[str, Field(description="List of the snapshot, such as pods.")]
    object: Annotated[str, Field(description="NAMESPACE/NAME, or NAME.")]
    change: Annotated[
        Literal["added", "removed", "changed"], Field(description="What the second snapshot did with it.")
    ]
    fields: NotRequired[Annotated[list[str], Field(description="Paths that differ.")]]
    values: NotRequired[Annotated[list[FieldDifference], Field(description="The same with both values.")]]


@with_config(CLOSED)
class SnapshotDiff(TypedDict):
    """How two snapshots differ: ``kai-cp diff a.zip b.zip -o json``."""

    schema: Annotated[Literal["snapshot-diff/1"], FORMAT]
    objects: Annotated[list[ObjectDifference], Field(description="Objects that differ.")]


@with_config(CLOSED)
class BrokenRule(TypedDict):
    """A rule that decisions break."""

    rule: Annotated[str, Field(description="Its name in the checker, such as capacity.")]
    message: Annotated[str, Field(description="What is broken, in words.")]


@with_config(CLOSED)
class CheckResult(TypedDict):
    """The verdict about decisions: ``kai-cp check -o json``."""

    schema: Annotated[Literal["check/1"], FORMAT]
    snapshotSha256: Annotated[str, Field(description="SHA-256 of the JSON text of the snapshot.")]
    decisions: Annotated[int, Field(description="Number of decisions.")]
    violations: Annotated[list[BrokenRule], Field(description="Rules that they break; empty: none.")]
