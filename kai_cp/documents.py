"""The JSON documents that commands write: what each key means. JSON Schemas are made from these types.

Within a number (``decisions/1``) a key is never removed and never changes meaning, unit or type; keys may be
added, so readers ignore what they do not know. A key that is not *required* may be absent. Anything else gets
the next number, and the old one is written on request for one minor version.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, NotRequired

from pydantic import ConfigDict, Field, TypeAdapter, with_config
from typing_extensions import TypedDict

Time = Annotated[str, Field(description="RFC 3339, UTC.")]
Gpus = Annotated[float, Field(description="GPUs; a share counts as its part of one.")]
Group = Annotated[str, Field(description="Pod group: NAMESPACE/NAME.")]
Proof = Annotated[
    Literal["proved", "not proved"],
    Field(description="proved: no plan gives it room, with everybody who is ahead of it served."),
]
Amount = Annotated[float | None, Field(description="-1: unlimited; null: no number.")]
_OPEN: Final = ConfigDict(extra="allow")
_CLOSED: Final = ConfigDict(extra="forbid")


@with_config(_CLOSED)
class Shares(TypedDict):
    """Amounts of a queue."""

    gpu: Amount
    cpu: Annotated[Amount, Field(description="Millicores; -1: unlimited.")]
    memory: Annotated[Amount, Field(description="Bytes; -1: unlimited.")]


_ForWhom = TypedDict(
    "_ForWhom",
    {"for": NotRequired[Annotated[list[str], Field(description="Evict: pod groups that it is for.")]]},
)
"""``for`` is no name that a class can have."""


@with_config(_OPEN)
class Decision(_ForWhom):
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
    action: Literal["allocate", "consolidation", "reclaim", "preempt", "stalegangeviction"]
    gpuGroups: NotRequired[
        Annotated[list[str], Field(description="Groups of shared GPUs, one for each device.")]
    ]
    gpuDevices: NotRequired[None]
    message: str
    numaZones: NotRequired[Annotated[list[Any], Field(description="Zones chosen, where a rule chose them.")]]
    resourceClaimAllocations: NotRequired[Annotated[Any, Field(description="Devices chosen for claims.")]]


@with_config(_CLOSED)
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


@with_config(_CLOSED)
class Skipped(TypedDict):
    """An object that was left out of the answer."""

    object: Annotated[str, Field(description="Kind NAMESPACE/NAME.")]
    reason: Annotated[str, Field(description="Field, and what is wrong with it.")]


@with_config(_CLOSED)
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


@with_config(_CLOSED)
class QueueChange(TypedDict):
    """What a queue is owed and holds."""

    parent: str | None
    fairShare: Shares
    allocatedBefore: Shares
    allocatedAfter: Shares


@with_config(_OPEN)
class Locality(TypedDict):
    """How close the nodes of a gang are to each other."""

    podGroup: Group
    level: Annotated[str, Field(description="Closest kind of place that all share; empty: none.")]
    hops: int
    worstPairGBytesPerSecond: int | None
    nvlinkDomains: int
    segmentGpus: int


@with_config(_CLOSED)
class Cluster(TypedDict):
    """The size of the question."""

    nodes: int
    gpus: Gpus
    pods: int
    podGroups: int
    waitingPodGroups: int


@with_config(_CLOSED)
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
    ignoredFields: NotRequired[Annotated[dict[str, int], Field(description="Unknown fields, counted.")]]
    selected: NotRequired[
        Annotated[
            dict[str, list[str]],
            Field(description="This is a part: the queues, namespaces and podGroups asked for."),
        ]
    ]


@with_config(_CLOSED)
class Used(TypedDict):
    """Used of allocatable."""

    used: float
    allocatable: float


@with_config(_CLOSED)
class InspectedNode(TypedDict):
    """A node."""

    name: str
    gpus: Used
    sharedGpus: Annotated[int, Field(description="GPUs in use by shares.")]
    cpu: Annotated[Used, Field(description="Millicores.")]
    memory: Annotated[Used, Field(description="Bytes.")]
    pods: Used
    refuses: Annotated[list[str], Field(description="Why it takes no ordinary pods: not ready, taints.")]


@with_config(_CLOSED)
class QueueAmounts(TypedDict):
    """One resource of a queue; -1 is unlimited."""

    quota: float
    limit: float
    overQuotaWeight: float
    fairShare: float
    allocated: float


@with_config(_CLOSED)
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


@with_config(_CLOSED)
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


@with_config(_CLOSED)
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
    setAside: list[Skipped]
    migPartition: NotRequired[dict[str, Any]]
    ignoredFields: NotRequired[dict[str, int]]
    selected: NotRequired[dict[str, list[str]]]


@with_config(_CLOSED)
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


@with_config(_CLOSED)
class Pending(TypedDict):
    """Who waits, in fair order: ``kai-cp pending -o json``."""

    schema: Literal["pending/1"]
    now: Time
    pending: list[PendingEntry]


@with_config(_CLOSED)
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


@with_config(_CLOSED)
class Queues(TypedDict):
    """Who has, borrows and is owed what: ``kai-cp queues -o json``."""

    schema: Literal["queues/1"]
    now: Time
    queues: list[QueueLine]


@with_config(_CLOSED)
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


@with_config(_CLOSED)
class EvictionFor(Eviction, _ForWhom):
    """A pod that is deleted."""


@with_config(_CLOSED)
class Evictions(TypedDict):
    """Who is evicted, for whom: ``kai-cp evictions -o json``."""

    schema: Literal["evictions/1"]
    now: Time
    evictions: list[EvictionFor]


@with_config(_OPEN)
class Explanation(TypedDict):
    """Why pod groups wait and what would help: ``kai-cp explain -o json``; entries by docs of explain."""

    schema: Literal["explanation/1"]
    engine: str
    version: str
    snapshotSha256: str
    now: Time
    explanations: list[dict[str, Any]]
    timings: dict[str, float]


@with_config(_OPEN)
class WhatIf(TypedDict):
    """What a change would do: ``kai-cp what-if -o json``."""

    schema: Literal["whatif/1"]
    engine: str
    version: str
    snapshotSha256: str
    now: Time
    ops: list[Any]
    before: dict[str, Any]
    after: dict[str, Any]
    diff: dict[str, Any]


DOCUMENTS: Final[dict[str, Any]] = {
    "decisions/1": Decisions,
    "inspection/1": Inspection,
    "pending/1": Pending,
    "queues/1": Queues,
    "evictions/1": Evictions,
    "explanation/1": Explanation,
    "whatif/1": WhatIf,
}
"""By name: the value of ``schema`` in each."""


def schema(name: str) -> dict[str, Any]:
    """The JSON Schema (2020-12) of a document; ``bench-result/1``: one line of ``kai-cp bench --out``."""
    if name == BENCH:
        from kai_cp.bench.records import LINE

        made = LINE.json_schema()
    else:
        made = TypeAdapter(DOCUMENTS[name]).json_schema()
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": f"kai-cp:{name}"}
    return {**head, **_lenient(made)}


def _lenient(part: Any) -> Any:
    """Without the ban on further keys, as keys may be added; our own tests keep it."""
    if isinstance(part, dict):
        return {k: _lenient(v) for k, v in part.items() if not (k == "additionalProperties" and v is False)}
    return [_lenient(entry) for entry in part] if isinstance(part, list) else part


BENCH: Final = "bench-result/1"
NAMES: Final = (*DOCUMENTS, BENCH)


def problems(name: str, document: Any) -> list[str]:
    """What of a document is not as its type says: path and sentence."""
    from pydantic import ValidationError

    try:
        TypeAdapter(DOCUMENTS[name]).validate_python(document)
    except ValidationError as error:
        return [f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors(include_url=False)]
    return []
