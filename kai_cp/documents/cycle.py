"""A cycle, and the snapshot before it: ``decisions/1`` and ``inspection/1``."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field, with_config
from typing_extensions import TypedDict

from kai_cp.documents.parts import (
    CLOSED,
    FORMAT,
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
    namespace: Annotated[str, Field(description="Namespace of the pod.")]
    pod: Annotated[str, Field(description="Name of the pod.")]
    podGroup: Annotated[str | None, Field(description="Name of its pod group; null: it has none.")]
    queue: Annotated[str | None, Field(description="Queue of its pod group; null: unknown.")]
    gpus: Annotated[
        Gpus | None, Field(description="GPUs it asks for; a share counts as its part of one; null: unknown.")
    ]
    node: Annotated[str, Field(description="Where it goes, or (Evict) where it runs.")]
    action: Annotated[
        ActionName,
        Field(description="The last three: what settings of the time axis switch on."),
    ]
    gpuGroups: NotRequired[
        Annotated[list[str], Field(description="Groups of shared GPUs, one for each device.")]
    ]
    gpuDevices: NotRequired[Annotated[None, Field(description="Always null: the node picks the devices.")]]
    message: Annotated[str, Field(description="Why, in a sentence.")]
    numaZones: NotRequired[Annotated[list[Any], Field(description="Zones chosen, where a rule chose them.")]]
    resourceClaimAllocations: NotRequired[Annotated[Any, Field(description="Devices chosen for claims.")]]


@with_config(CLOSED)
class Unscheduled(TypedDict):
    """A pod group that stays pending."""

    podGroup: Group
    reason: Annotated[str, Field(description="One token of docs/reasons.md.")]
    message: Annotated[str, Field(description="The reason as a sentence with its numbers.")]
    proof: Proof
    queue: NotRequired[Annotated[str, Field(description="Its queue.")]]
    pods: NotRequired[Annotated[int, Field(description="Pods that wait.")]]
    gpus: NotRequired[Annotated[Gpus, Field(description="What its waiting pods ask for.")]]
    ageSeconds: NotRequired[Annotated[int, Field(description="Seconds since its creation.")]]
    position: NotRequired[
        Annotated[int | None, Field(description="Place in the fair order, from 1; null: not considered.")]
    ]
    details: Annotated[dict[str, Any], Field(description="Numbers behind the message, by reason.")]
    estimate: NotRequired[
        Annotated[Estimate, Field(description="When it might start; absent: not estimated.")]
    ]


@with_config(CLOSED)
class Stage(TypedDict):
    """One question of an action, or what became of it."""

    name: Annotated[
        str,
        Field(
            description="Action and what it optimises, with the unit; or action and `further goals`, "
            "`cut by the deadline`, `ended by the budget's work`, `failed`, `rejected by the checker`, which "
            "have no objective."
        ),
    ]
    status: Annotated[
        Literal["OPTIMAL", "FEASIBLE", "GREEDY"],
        Field(description="proved; best found; the solver was not asked, or not in time."),
    ]
    objective: Annotated[float | None, Field(description="A cost: smaller is better.")]
    bound: Annotated[float | None, Field(description="No answer is below this.")]
    gap: Annotated[float, Field(description="(objective - bound) / max(1, objective); 0 is proof.")]
    variables: Annotated[int, Field(description="Variables of the model; 0: no model.")]
    constraints: Annotated[int, Field(description="Constraints of the model; 0: no model.")]
    seconds: Annotated[float, Field(description="Seconds spent on it.")]


@with_config(CLOSED)
class QueueChange(TypedDict):
    """What a queue is owed and holds."""

    parent: Annotated[str | None, Field(description="Its parent queue; null: top level.")]
    fairShare: Annotated[Shares, Field(description="What it is due.")]
    allocatedBefore: Annotated[Shares, Field(description="What it holds before the cycle.")]
    allocatedAfter: Annotated[Shares, Field(description="What it holds after the cycle.")]


@with_config(OPEN)
class Locality(TypedDict):
    """How close the nodes of a gang are to each other."""

    podGroup: Group
    level: Annotated[str, Field(description="Closest kind of place that all share; empty: none.")]
    hops: Annotated[int, Field(description="Hops between the two nodes that are farthest apart.")]
    worstPairGBytesPerSecond: Annotated[
        int | None, Field(description="GB/s between the slowest pair of its GPUs; null: unknown.")
    ]
    nvlinkDomains: Annotated[int, Field(description="NVLink domains that its pods use.")]
    segmentGpus: Annotated[
        int,
        Field(
            description="Largest number of GPUs for which the gang divides into segments of that size, "
            "each inside one NVLink domain."
        ),
    ]


@with_config(CLOSED)
class Cluster(TypedDict):
    """The size of the question."""

    nodes: Annotated[int, Field(description="Nodes of the snapshot.")]
    gpus: Annotated[Gpus, Field(description="Allocatable GPUs of all nodes.")]
    pods: Annotated[int, Field(description="Pods of the snapshot.")]
    podGroups: Annotated[int, Field(description="Pod groups of the snapshot.")]
    waitingPodGroups: Annotated[int, Field(description="Pod groups with a pod that waits.")]


@with_config(CLOSED)
class RolledOut(TypedDict):
    """A workload in rollout: what its newest revision and all others hold."""

    namespace: Annotated[str, Field(description="Namespace of the workload.")]
    workload: Annotated[str, Field(description="Kind and name.")]
    queue: Annotated[str, Field(description="Its queue.")]
    revision: Annotated[str, Field(description="The newest.")]
    until: Annotated[Time, Field(description="When its queue stops lending.")]
    oldGpus: Annotated[Gpus, Field(description="GPUs that older revisions hold.")]
    newGpus: Annotated[Gpus, Field(description="GPUs that the newest revision holds.")]
    lentGpus: Annotated[Gpus, Field(description="What quotas do not count.")]


@with_config(CLOSED)
class Decisions(TypedDict):
    """What one cycle does: ``kai-cp solve -o json``, ``/debug/cycles``; ``kai-cp check`` reads it."""

    schema: Annotated[Literal["decisions/1"], FORMAT]
    engine: Annotated[str, Field(description="Name of the engine that decided.")]
    version: Annotated[str, Field(description="Version of kai-cp.")]
    snapshotSha256: Annotated[
        str, Field(description="SHA-256 of the snapshot's JSON text, however it was packed.")
    ]
    now: Annotated[Time, Field(description="The time at which the snapshot was read.")]
    cluster: Annotated[Cluster, Field(description="Size of the snapshot.")]
    decisions: Annotated[list[Decision], Field(description="In the order in which they are carried out.")]
    unscheduled: Annotated[
        list[Unscheduled], Field(description="Pod groups that stay pending, each with its reason.")
    ]
    setAside: Annotated[list[Skipped], Field(description="Objects that were skipped.")]
    stages: Annotated[list[Stage], Field(description="What each action asked the solver, in order.")]
    timings: Annotated[dict[str, float], Field(description="Seconds of read, prepare, solve, check, write.")]
    queues: Annotated[
        dict[str, QueueChange],
        Field(description="By name of the queue: its share and what it holds before and after."),
    ]
    localities: NotRequired[
        Annotated[
            list[Locality], Field(description="How close the gangs are that got places; absent: none did.")
        ]
    ]
    reservations: NotRequired[
        Annotated[list[Reservation], Field(description="Absent where nothing is planned beyond now.")]
    ]
    draining: NotRequired[
        Annotated[
            list[Reservation],
            Field(
                description="Places that are closed until they are empty; absent: none. They have no start."
            ),
        ]
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

    used: Annotated[float, Field(description="Amount that pods hold.")]
    allocatable: Annotated[float, Field(description="Amount that there is.")]


@with_config(CLOSED)
class InspectedNode(TypedDict):
    """A node."""

    name: Annotated[str, Field(description="Name of the node.")]
    gpus: Annotated[Used, Field(description="GPUs; a share counts as its part of one.")]
    sharedGpus: Annotated[int, Field(description="GPUs in use by shares.")]
    cpu: Annotated[Used, Field(description="Millicores.")]
    memory: Annotated[Used, Field(description="Bytes.")]
    pods: Annotated[Used, Field(description="Pods that run, and how many may.")]
    refuses: Annotated[list[str], Field(description="Why it takes no ordinary pods: not ready, taints.")]


@with_config(CLOSED)
class QueueAmounts(TypedDict):
    """One resource of a queue; -1 is unlimited."""

    quota: Annotated[float, Field(description="Deserved amount.")]
    limit: Annotated[float, Field(description="Most that it may hold.")]
    overQuotaWeight: Annotated[float, Field(description="Weight for amounts above the quota; no unit.")]
    fairShare: Annotated[float, Field(description="What it is due now.")]
    allocated: Annotated[float, Field(description="What it holds.")]


@with_config(CLOSED)
class InspectedQueue(TypedDict):
    """A queue; parents stand before their children."""

    name: Annotated[str, Field(description="Name of the queue.")]
    parent: Annotated[str | None, Field(description="Its parent queue; null: top level.")]
    depth: Annotated[int, Field(description="Levels above it; 0: top level.")]
    priority: Annotated[int, Field(description="Higher is served first.")]
    waitingPodGroups: Annotated[int, Field(description="Pod groups that wait in it.")]
    gpu: Annotated[QueueAmounts, Field(description="GPUs.")]
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
    queue: Annotated[str, Field(description="Its queue.")]
    priority: Annotated[int, Field(description="Its priority.")]
    nextPods: Annotated[int, Field(description="Pods that start together next.")]
    pendingPods: Annotated[int, Field(description="All its pods that wait.")]
    gpus: Annotated[Gpus, Field(description="GPUs that the next pods ask for.")]
    ageSeconds: Annotated[int, Field(description="Seconds since its creation.")]
    remark: Annotated[str, Field(description="Why it is not considered; empty: it is.")]
    waitAtMostSeconds: NotRequired[
        Annotated[
            int | None, Field(description="Since it came, with aging and reservations; null: no bound.")
        ]
    ]
    noBoundBecause: NotRequired[
        Annotated[str | None, Field(description="Why its wait has no bound; null: it has one.")]
    ]


@with_config(CLOSED)
class UsageRead(TypedDict):
    """How old the historic usage is."""

    fetchedAt: Annotated[Time, Field(description="When the usage was read.")]
    ageSeconds: Annotated[float, Field(description="Seconds between that and now.")]


@with_config(CLOSED)
class Inspection(TypedDict):
    """A first look at a snapshot: ``kai-cp inspect -o json``."""

    schema: Annotated[Literal["inspection/1"], FORMAT]
    version: Annotated[str, Field(description="Version of kai-cp.")]
    snapshotSha256: Annotated[
        str, Field(description="SHA-256 of the snapshot's JSON text, however it was packed.")
    ]
    now: Annotated[Time, Field(description="The time at which the snapshot was read.")]
    cluster: Annotated[
        dict[str, float], Field(description="Counts and amounts of the whole cluster, by name.")
    ]
    nodes: Annotated[list[InspectedNode], Field(description="All nodes.")]
    queues: Annotated[
        list[InspectedQueue], Field(description="All queues; parents stand before their children.")
    ]
    waiting: Annotated[list[InspectedWaiter], Field(description="Pod groups that wait, in fair order.")]
    setAside: Annotated[list[Skipped], Field(description="Objects that were skipped.")]
    reservations: NotRequired[
        Annotated[list[StoredReservation], Field(description="Absent where reservations are off.")]
    ]
    rollouts: NotRequired[
        Annotated[list[RolledOut], Field(description="Absent where nothing is in rollout.")]
    ]
    usage: NotRequired[
        Annotated[UsageRead, Field(description="How old the historic usage is; absent: there is none.")]
    ]
    migPartition: NotRequired[
        Annotated[dict[str, Any], Field(description="Advice on MIG partitions; absent: no node has any.")]
    ]
    ignoredFields: NotRequired[
        Annotated[dict[str, int], Field(description="How often the reader met each unknown field.")]
    ]
    selected: NotRequired[
        Annotated[
            dict[str, list[str]],
            Field(description="This is a part: the queues, namespaces and podGroups asked for."),
        ]
    ]
