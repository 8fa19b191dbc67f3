"""A cycle, and the snapshot before it: ``decisions/1`` and ``inspection/1``."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field, with_config
from typing_extensions import TypedDict

from kai_cp.documents.parts import (
    CLOSED,
    OPEN,
    ForWhom,
    Gpus,
    Group,
    KindAmounts,
    Proof,
    Shares,
    Skipped,
    Time,
)
from kai_cp.documents.starts import Estimate, Goal, Reservation, StoredReservation
from kai_cp_models.policy import ActionName


@with_config(OPEN)
class Decision(ForWhom):
    """One decision; evictions stand before the nominations that need them."""

    kind: Annotated[
        Literal["Bind", "Nominate", "Evict"],
        Field(
            description="Bind: starts now; Nominate: its place is promised, pods that leave still hold it; "
            "Evict: is deleted."
        ),
    ]
    namespace: str
    pod: str
    podGroup: Annotated[str | None, Field(description="Name of its pod group; null: it has none.")]
    queue: str | None
    gpus: Gpus | None
    node: Annotated[str, Field(description="Where it goes, or (Evict) where it runs.")]
    action: Annotated[
        ActionName,
        Field(description="The last three: what settings of the time axis switch on."),
    ]
    gpuGroups: NotRequired[
        Annotated[list[str], Field(description="Groups of shared GPUs, one for each device.")]
    ]
    gpuDevices: NotRequired[None]
    message: str
    numaZones: NotRequired[Annotated[list[Any], Field(description="Zones chosen, where a rule chose them.")]]
    resourceClaimAllocations: NotRequired[Annotated[Any, Field(description="Devices chosen for claims.")]]


@with_config(CLOSED)
class Unscheduled(TypedDict):
    """A pod group that stays pending."""

    podGroup: Group
    reason: Annotated[str, Field(description="One token of docs/reasons.md.")]
    message: str
    proof: Proof
    queue: NotRequired[str]
    pods: NotRequired[Annotated[int, Field(description="Pods that wait.")]]
    gpus: NotRequired[Annotated[Gpus, Field(description="What its waiting pods ask for.")]]
    ageSeconds: NotRequired[int]
    position: NotRequired[
        Annotated[int | None, Field(description="Place in the fair order, from 1; null: not considered.")]
    ]
    details: Annotated[dict[str, Any], Field(description="Numbers behind the message, by reason.")]
    estimate: NotRequired[Estimate]


@with_config(CLOSED)
class Stage(TypedDict):
    """One question of an action."""

    name: str
    status: Annotated[
        Literal["OPTIMAL", "FEASIBLE", "GREEDY"],
        Field(description="proved; best found; the solver was not asked, or not in time."),
    ]
    objective: Annotated[float | None, Field(description="A cost: smaller is better.")]
    bound: Annotated[float | None, Field(description="No answer is below this.")]
    gap: Annotated[float, Field(description="(objective - bound) / max(1, objective); 0 is proof.")]
    variables: int
    constraints: int
    seconds: float


@with_config(CLOSED)
class QueueChange(TypedDict):
    """What a queue is owed and holds."""

    parent: str | None
    fairShare: Shares
    allocatedBefore: Shares
    allocatedAfter: Shares


@with_config(OPEN)
class Locality(TypedDict):
    """How close the nodes of a gang are to each other."""

    podGroup: Group
    level: Annotated[str, Field(description="Closest kind of place that all share; empty: none.")]
    hops: int
    worstPairGBytesPerSecond: int | None
    nvlinkDomains: int
    segmentGpus: int


@with_config(CLOSED)
class Cluster(TypedDict):
    """The size of the question."""

    nodes: int
    gpus: Gpus
    pods: int
    podGroups: int
    waitingPodGroups: int


@with_config(CLOSED)
class RolledOut(TypedDict):
    """A workload in rollout: what its newest revision and all others hold."""

    namespace: str
    workload: Annotated[str, Field(description="Kind and name.")]
    queue: str
    revision: Annotated[str, Field(description="The newest.")]
    until: Annotated[Time, Field(description="When its queue lends no more.")]
    oldGpus: Gpus
    newGpus: Gpus
    lentGpus: Annotated[Gpus, Field(description="What quotas do not count.")]


@with_config(CLOSED)
class Decisions(TypedDict):
    """What one cycle does: ``kai-cp solve -o json``, ``/debug/cycles``; ``kai-cp check`` reads it."""

    schema: Literal["decisions/1"]
    engine: str
    version: Annotated[str, Field(description="Of kai-cp.")]
    snapshotSha256: Annotated[str, Field(description="Of the snapshot's JSON text, however it was packed.")]
    now: Annotated[Time, Field(description="The time at which the snapshot was read.")]
    cluster: Cluster
    decisions: list[Decision]
    unscheduled: list[Unscheduled]
    setAside: Annotated[list[Skipped], Field(description="Objects that were skipped.")]
    stages: list[Stage]
    timings: Annotated[dict[str, float], Field(description="Seconds of read, prepare, solve, check, write.")]
    queues: dict[str, QueueChange]
    localities: NotRequired[list[Locality]]
    reservations: NotRequired[
        Annotated[list[Reservation], Field(description="Absent where nothing is planned beyond now.")]
    ]
    rollouts: NotRequired[
        Annotated[list[RolledOut], Field(description="Absent where nothing is in rollout.")]
    ]
    defrag: NotRequired[Annotated[Goal, Field(description="Absent without a goal.")]]
    ignoredFields: NotRequired[Annotated[dict[str, int], Field(description="Unknown fields, counted.")]]
    selected: NotRequired[
        Annotated[
            dict[str, list[str]],
            Field(description="This is a part: the queues, namespaces and podGroups asked for."),
        ]
    ]


@with_config(CLOSED)
class Used(TypedDict):
    """Used of allocatable."""

    used: float
    allocatable: float


@with_config(CLOSED)
class InspectedNode(TypedDict):
    """A node."""

    name: str
    gpus: Used
    sharedGpus: Annotated[int, Field(description="GPUs in use by shares.")]
    cpu: Annotated[Used, Field(description="Millicores.")]
    memory: Annotated[Used, Field(description="Bytes.")]
    pods: Used
    refuses: Annotated[list[str], Field(description="Why it takes no ordinary pods: not ready, taints.")]


@with_config(CLOSED)
class QueueAmounts(TypedDict):
    """One resource of a queue; -1 is unlimited."""

    quota: float
    limit: float
    overQuotaWeight: float
    fairShare: float
    allocated: float


@with_config(CLOSED)
class InspectedQueue(TypedDict):
    """A queue; parents stand before their children."""

    name: str
    parent: str | None
    depth: int
    priority: int
    waitingPodGroups: int
    gpu: QueueAmounts
    cpu: Annotated[QueueAmounts, Field(description="Millicores.")]
    memory: Annotated[QueueAmounts, Field(description="Bytes.")]
    gpuKinds: NotRequired[
        Annotated[dict[str, KindAmounts], Field(description="With rules.gpu_kinds, by kind of GPU.")]
    ]


@with_config(CLOSED)
class InspectedWaiter(TypedDict):
    """A pod group that waits, in fair order."""

    position: Annotated[int | None, Field(description="From 1; null: not considered.")]
    podGroup: Group
    queue: str
    priority: int
    nextPods: Annotated[int, Field(description="Pods that start together next.")]
    pendingPods: int
    gpus: Annotated[Gpus, Field(description="Of the next pods.")]
    ageSeconds: int
    remark: Annotated[str, Field(description="Why it is not considered; empty: it is.")]
    waitAtMostSeconds: NotRequired[
        Annotated[
            int | None, Field(description="Since it came, with aging and reservations; null: no bound.")
        ]
    ]
    noBoundBecause: NotRequired[str | None]


@with_config(CLOSED)
class UsageRead(TypedDict):
    """How old the historic usage is."""

    fetchedAt: Time
    ageSeconds: float


@with_config(CLOSED)
class Inspection(TypedDict):
    """A first look at a snapshot: ``kai-cp inspect -o json``."""

    schema: Literal["inspection/1"]
    version: str
    snapshotSha256: str
    now: Time
    cluster: dict[str, float]
    nodes: list[InspectedNode]
    queues: list[InspectedQueue]
    waiting: list[InspectedWaiter]
    setAside: Annotated[list[Skipped], Field(description="Objects that were skipped.")]
    reservations: NotRequired[
        Annotated[list[StoredReservation], Field(description="Absent where reservations are off.")]
    ]
    rollouts: NotRequired[
        Annotated[list[RolledOut], Field(description="Absent where nothing is in rollout.")]
    ]
    usage: NotRequired[UsageRead]
    migPartition: NotRequired[dict[str, Any]]
    ignoredFields: NotRequired[dict[str, int]]
    selected: NotRequired[dict[str, list[str]]]
