"""The input of the engine: one frozen picture of the cluster, ready to use.

Everything is parsed before it gets here (``kai_cp/reader``): quantities are integers, labels that
mean something are fields, references resolve. Sequences are sorted by name, so equal clusters give
equal models whatever order the API listed them in.

Units: ``milli_cpus``, ``memory_bytes``, ``milli_gpus`` (1000 = one device), ``*_mib`` (2**20 bytes),
``*_seconds`` since the epoch (float, UTC). Section numbers refer to KAI's semantics.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, get_args

from kai_cp_models.extras import Extras
from kai_cp_models.records.notes import NO_GROUP_NOTES, NO_QUEUE_NOTES, GroupNotes, QueueNotes
from kai_cp_topology.records import Locality

if TYPE_CHECKING:  # the records of a rule name pods and nodes
    from kai_cp_models.records.devices import ClaimAllocation

EXTENDED_RESOURCES: Final = ""
"""Stands for a claim name where the extended resources of a pod are meant; no claim is called so."""

UNLIMITED: Final = -1
"""Quota, limit or count without bound, as KAI's objects and settings write it: records keep what they say."""

CPU: Final = 0
MEMORY: Final = 1
GPU: Final = 2
PODS: Final = 3
"""Index of the four base dimensions in every resource vector; named resources follow."""

BASE_DIMENSIONS: Final = ("cpu", "memory", "gpu", "pods")
MILLI: Final = 1000


class PodKey(NamedTuple):
    """Identity of a pod: namespace and name."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class GroupKey(NamedTuple):
    """Identity of a pod group: namespace and name (KAI uses the name alone; section 14: fix)."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class PodStatus(Enum):
    """Status of a pod at snapshot time (0.1). ``ALLOCATED`` and ``PIPELINED`` exist in a cycle only."""

    PENDING = "Pending"
    GATED = "Gated"
    BINDING = "Binding"
    BOUND = "Bound"
    RUNNING = "Running"
    RELEASING = "Releasing"
    STUCK_IN_RELEASING = "StuckInReleasing"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    UNKNOWN = "Unknown"
    ALLOCATED = "Allocated"
    PIPELINED = "Pipelined"

    # Members are single objects. Enum would hash their names, in Python code, at each "status in …".
    __hash__ = object.__hash__


ACTIVE_ALLOCATED: Final = frozenset(
    {PodStatus.ALLOCATED, PodStatus.PIPELINED, PodStatus.BINDING, PodStatus.BOUND, PodStatus.RUNNING}
)
"""Counts toward gang minimums (0.1)."""
ACTIVE_USED: Final = ACTIVE_ALLOCATED | {PodStatus.RELEASING, PodStatus.STUCK_IN_RELEASING}
"""Occupies node accounting (0.1)."""
ALLOCATED: Final = frozenset({PodStatus.ALLOCATED, PodStatus.BINDING, PodStatus.BOUND, PodStatus.RUNNING})
"""Counts toward queue usage at snapshot time (0.1)."""
ALIVE: Final = ACTIVE_ALLOCATED | {PodStatus.PENDING, PodStatus.GATED}


class GpuKind(Enum):
    """How a pod asks for GPUs (2.2); exactly one kind per pod."""

    REGULAR = "Regular"
    """Whole GPUs, or none at all."""
    FRACTION = "Fraction"
    """A portion of each of ``devices`` GPUs."""
    MEMORY = "GpuMemory"
    """``memory_mib`` on each of ``devices`` GPUs."""
    MIG = "MigInstance"


@dataclass(frozen=True, slots=True)
class GpuRequest:
    """A pod's GPU request (2.2).

    ``devices``: number of devices. ``milli_portion``: 1000 for whole GPUs, the portion in steps of
    10 for FRACTION, 0 for MEMORY. ``memory_mib``: per device, MEMORY only. MIG instances are named
    dimensions of the request vector.
    """

    kind: GpuKind = GpuKind.REGULAR
    devices: int = 0
    milli_portion: int = 1000
    memory_mib: int = 0

    @property
    def shares(self) -> bool:
        """Whether the pod shares devices with others (FRACTION or MEMORY)."""
        return self.kind in (GpuKind.FRACTION, GpuKind.MEMORY)


@dataclass(frozen=True, slots=True)
class Toleration:
    """A pod's toleration; ``effect`` or ``key`` empty matches all."""

    key: str
    operator: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True)
class Requirement:
    """One ``matchExpressions`` / ``matchFields`` entry. ``field`` is true for matchFields."""

    key: str
    operator: str
    values: tuple[str, ...]
    field: bool = False


NodeTerms = tuple[tuple[Requirement, ...], ...]
"""A core/v1 NodeSelector: all requirements of one of its terms hold; an empty term holds nowhere."""


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """A metav1.LabelSelector: all requirements hold (matchLabels become ``In`` requirements)."""

    requirements: tuple[Requirement, ...]


@dataclass(frozen=True, slots=True)
class PodAffinityTerm:
    """One (anti-)affinity term. ``namespaces`` is resolved: None means every namespace."""

    selector: LabelSelector | None
    topology_key: str
    namespaces: tuple[str, ...] | None
    weight: int = 0
    """0 for a required term, 1 to 100 for a preferred one."""


@dataclass(frozen=True, slots=True)
class SpreadConstraint:
    """A DoNotSchedule topology spread constraint (an option KAI lacks)."""

    max_skew: int
    topology_key: str
    selector: LabelSelector | None


@dataclass(frozen=True, slots=True)
class ClaimRef:
    """A pod's ``spec.resourceClaims[]``: ``name`` inside the pod, and the ResourceClaim it means.

    ``claim`` is the object's name (from resourceClaimName, or status for a template), or "" while a
    template's claim does not exist yet; then ``template`` names it.
    """

    name: str
    claim: str
    template: str = ""


@dataclass(frozen=True, slots=True)
class PodSpec:
    """What a pod asks of a node. Equal specs are one object, so pods of a class share it.

    ``requests``: vector aligned with ``Snapshot.dimensions`` (2.1); the GPU entry holds whole GPUs in
    milli_gpus for REGULAR requests and 0 for shares.
    """

    requests: tuple[int, ...]
    gpu: GpuRequest = GpuRequest()
    node_selector: tuple[tuple[str, str], ...] = ()
    node_affinity: tuple[tuple[Requirement, ...], ...] | None = None
    """Required terms: OR over terms of AND over requirements; None: no requirement."""
    tolerations: tuple[Toleration, ...] = ()
    host_ports: tuple[tuple[str, str, int], ...] = ()
    """(host IP, protocol, port); IP "" and "0.0.0.0" mean every address."""
    pod_affinity: tuple[PodAffinityTerm, ...] = ()
    pod_anti_affinity: tuple[PodAffinityTerm, ...] = ()
    spread: tuple[SpreadConstraint, ...] = ()
    claims: tuple[ClaimRef, ...] = ()
    volume_claims: tuple[str, ...] = ()
    """Names of PersistentVolumeClaims in the pod's namespace."""
    config_maps: tuple[str, ...] = ()
    """Names of ConfigMaps that must exist in the pod's namespace (7.1)."""
    legacy_mig: bool = False
    """An ``nvidia.com/mig-*`` annotation: never schedulable (2.4)."""
    guaranteed: bool = False
    """QoS class Guaranteed (NUMA policies look at it)."""
    container_requests: tuple[tuple[int, ...], ...] = ()
    """Per regular container, aligned with the dimensions; filled only when the numa plugin is on."""
    scheduling_key: str = ""
    """Extra identity of namespace-scoped needs (claims, volumes, affinity): pods that differ in it
    are different classes although their requests agree. "" when the pod has none."""

    @property
    def needs_gpu(self) -> bool:
        """Whether the pod asks for any GPU, share or MIG instance (DRA claims not included)."""
        return self.gpu.devices > 0 or self.gpu.kind is GpuKind.MIG


class Revision(NamedTuple):
    """A revision of a workload, such as ("Deployment/web", "6b7f"), inside the pod's namespace (3.8)."""

    workload: str
    name: str


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod. ``node`` is set while it holds a place (0.1) and is a name in ``Snapshot.nodes``."""

    key: PodKey
    uid: str
    spec: PodSpec
    status: PodStatus
    created: float
    group: GroupKey | None = None
    subgroup: str = ""
    """Value of the ``kai.scheduler/subgroup-name`` label; "" when absent (means ``default``)."""
    node: str | None = None
    gpu_groups: tuple[str, ...] = ()
    """Shared-GPU group ids, one per device, for a placed fractional pod (2.6)."""
    order: tuple[int, int, int, int] = (0, 0, 0, 0)
    """Task order (3.6), smaller first: (kubeflow rank, ray rank, label rank, -task priority)."""
    labels: Mapping[str, str] = field(default_factory=dict)
    nominated_node: str | None = None
    ours: bool = True
    """False for pods of other schedulers; they use nodes and reduce the fairness total."""
    reservation: bool = False
    """A KAI GPU reservation pod: charges everything except GPU (2.6)."""
    scaling: bool = False
    """A KAI scaling pod: does not reduce the fairness total (3.1)."""
    claim_allocations: Mapping[str, ClaimAllocation] = field(default_factory=dict)
    """DRA allocations promised in the pod's BindRequest, by claim name inside the pod; under
    ``EXTENDED_RESOURCES`` that of the synthetic claim for extended resources."""
    numa_zones: tuple[tuple[str, tuple[tuple[str, int], ...]], ...] = ()
    """Predicted or observed NUMA zones: (zone, ((dimension name, amount), ...))."""
    started: float | None = None
    """``status.startTime``."""
    deadline_seconds: float | None = None
    """``spec.activeDeadlineSeconds``: the kubelet ends the pod this long after ``started``."""
    revision: Revision | None = None
    """Of which revision of which workload it is; None where nothing tells it."""

    @property
    def sort_key(self) -> tuple[object, ...]:
        """Task order (3.6): role, task priority, creation, uid."""
        return (*self.order, self.created, self.uid)


@dataclass(frozen=True, slots=True)
class Taint:
    """A node taint; only NoSchedule and NoExecute refuse pods."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True)
class Node:
    """One node.

    ``gpu_memory_mib``: memory of each GPU, floored to a multiple of 100; 100 and ``gpu_memory_synced``
    False when the label is missing (2.3). ``gpu_count``: ``nvidia.com/gpu.count`` or allocatable.
    ``not_ready``: why the node takes no pods ("" when it does), from conditions and unschedulable.
    """

    name: str
    allocatable: tuple[int, ...]
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    gpu_memory_mib: int = 100
    gpu_memory_synced: bool = False
    gpu_count: int = 0
    mig_enabled: bool = False
    mig_strategy: str = ""
    not_ready: str = ""
    healthy: bool = True
    """Counts toward the fairness total (3.1): schedulable, Ready, no pressure."""
    dra_gpus: int = 0
    """Devices of gpu drivers in node-bound ResourceSlices (2.5); included in ``allocatable``."""


class Shares(NamedTuple):
    """An amount of the three fair resources: milli-CPUs, memory bytes, GPUs (as KAI's floats)."""

    cpu: float
    memory: float
    gpu: float


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue (1.1). Memory in bytes, CPU in milli-CPUs, GPU in devices; -1 is unlimited."""

    name: str
    parent: str | None
    created: float
    priority: int = 100
    quota: Shares = Shares(0, 0, 0)
    limit: Shares = Shares(0, 0, 0)
    weight: Shares = Shares(0, 0, 0)
    display_name: str = ""
    preempt_min_runtime_seconds: float | None = None
    reclaim_min_runtime_seconds: float | None = None
    usage: Shares = Shares(0, 0, 0)
    """Historic share of the cluster, 0 to 1 (3.4); from ``--usage``, a snapshot has none."""
    notes: QueueNotes = NO_QUEUE_NOTES
    user: str = ""
    """Of a queue that stands for a user of its parent (``users.label``) and is no object."""

    @property
    def title(self) -> str:
        """What sentences call it."""
        return f"user {self.user} of queue {self.parent}" if self.user else f"queue {self.name}"

    @property
    def firm_quota(self) -> Shares:
        """What its non-preemptible pods may hold (3.7); a user's queue has none of its own."""
        return Shares(UNLIMITED, UNLIMITED, UNLIMITED) if self.user else self.quota


@dataclass(frozen=True, slots=True)
class TopologyConstraint:
    """Required and preferred level (node label keys, aliases resolved) in a Topology; "" = none."""

    topology: str
    required: str = ""
    preferred: str = ""
    error: str = ""
    """Set when it cannot be resolved (unknown topology or level): the group is not placed (8.2)."""


@dataclass(frozen=True, slots=True)
class Subgroup:
    """A node of the gang tree (1.2): with ``children`` a set, otherwise a pod set (leaf).

    ``minimum``: leaf: minMember; set: number K of members that must be satisfied. The root of a pod
    group is always a set named "". A group without subgroups has one leaf ``default`` under it.
    """

    name: str
    minimum: int
    children: tuple[Subgroup, ...] = ()
    leaf: bool = True
    constraint: TopologyConstraint | None = None

    def leaves(self) -> tuple[Subgroup, ...]:
        """All pod sets below (or itself), left to right."""
        if self.leaf:
            return (self,)
        return tuple(leaf for child in self.children for leaf in child.leaves())


@dataclass(frozen=True, slots=True)
class PodGroup:
    """A pod group (1.2): KAI's job."""

    key: GroupKey
    uid: str
    queue: str
    priority: int
    preemptible: bool
    root: Subgroup
    created: float
    last_start: float | None = None
    last_eviction: float | None = None
    stale_since: float | None = None
    preemption_delay_seconds: float = 0.0
    staleness_grace_seconds: float | None = None
    """None: the cluster's default; negative: never stale."""
    backed_off: bool = False
    """schedulingBackoff=1 and the last condition names the present node pool (9.7): not tried."""
    mark_unschedulable: bool = True
    notes: GroupNotes = NO_GROUP_NOTES
    user: str = ""
    """Value of the label ``users.label``."""
    aged: int = 0
    """Points that waiting adds to the priority in the order of the queue (``aging``)."""
    aged_at_start: int = 0
    """Points with which the group started or would start now: as a victim of preempt it keeps them."""


@dataclass(frozen=True, slots=True)
class Topology:
    """Topology object (1.4): node label keys, widest level first; ``aliases``: (alias, label)."""

    name: str
    levels: tuple[str, ...]
    aliases: tuple[tuple[str, str], ...] = ()


EvictionAction = Literal["consolidation", "reclaim", "preempt"]
StateAction = Literal["stalegangeviction"]
PolicyAction = Literal["allocate", EvictionAction, StateAction]
TimeAction = Literal["maxruntime", "reservation", "defrag"]
ActionName = Literal[PolicyAction, TimeAction]
POLICY_ACTIONS: Final[tuple[PolicyAction, ...]] = get_args(PolicyAction)
"""Actions that a policy may name, in the order in which they run unless it says otherwise."""
EVICTION_ACTIONS: Final[tuple[EvictionAction, ...]] = get_args(EvictionAction)
"""Actions that evict or move pods for a waiting pod group (4.3)."""
STATE_ACTIONS: Final[frozenset[ActionName]] = frozenset(get_args(StateAction))
"""Actions that evict a pod group for its own state; no decision for another pod group relies on it."""
KAI_ACTIONS: Final[tuple[PolicyAction, ...]] = ("allocate", *EVICTION_ACTIONS, "stalegangeviction")
"""KAI's actions, in KAI's order: what runs where no policy is given."""
TIME_ACTIONS: Final[frozenset[ActionName]] = frozenset(get_args(TimeAction))
"""Actions of the time axis. No policy names them; settings switch them on."""
DECISION_ORDER: Final[tuple[ActionName, ...]] = (
    "maxruntime",
    "stalegangeviction",
    "reservation",
    "allocate",
    "consolidation",
    "reclaim",
    "preempt",
    "defrag",
)
"""In this order the decisions of a plan are named."""


@dataclass(frozen=True, slots=True)
class Policy:
    """What the snapshot's ``config`` and ``schedulerParams`` say (1.5, 11.1)."""

    actions: tuple[ActionName, ...] = KAI_ACTIONS
    plugins: frozenset[str] = frozenset()
    """Names of the active plugins; a missing one switches its rules or scores off."""
    gpu_strategy: Literal["binpack", "spread"] = "binpack"
    cpu_strategy: Literal["binpack", "spread"] = "binpack"
    k_value: float = 1.0
    saturation_multiplier: float = 1.0
    default_preempt_min_runtime_seconds: float = 0.0
    default_reclaim_min_runtime_seconds: float = 0.0
    reclaim_resolve_method: Literal["lca", "queue"] = "lca"
    max_consolidation_preemptees: int = 16
    restrict_node_scheduling: bool = False
    gpu_worker_label: str = "node-role.kubernetes.io/gpu-worker"
    cpu_worker_label: str = "node-role.kubernetes.io/cpu-worker"
    allow_consolidating_reclaim: bool = True
    full_hierarchy_fairness: bool = True
    default_staleness_grace_seconds: float = 60.0
    schedule_csi_storage: bool = False
    queue_depth: Mapping[str, int] = field(default_factory=dict)
    scheduler_name: str = "kai-scheduler"
    node_pool_label: str = ""
    node_pool: str = ""
    queue_label: str = "kai.scheduler/queue"
    numa_ignore: frozenset[str] = frozenset()
    numa_reconstruct: bool = True
    reservation_namespace: str = "kai-resource-reservation"
    reservation_app: str = "kai-resource-reservation"
    """A GPU reservation pod has this label ``app`` *and* lives there: every user may write a label (1.7)."""
    scaling_namespace: str = "kai-scale-adjust"
    """Likewise of scaling pods, whose label ``app`` is ``scaling-pod``."""

    def plugin(self, name: str) -> bool:
        """Whether the plugin ``name`` is active."""
        return name in self.plugins

    @property
    def consolidates(self) -> bool:
        """Whether consolidation may move pods; in spread mode it does not (1.5)."""
        spread = "spread" in (self.gpu_strategy, self.cpu_strategy)
        return self.max_consolidation_preemptees != 0 and not spread


@dataclass(frozen=True, slots=True)
class SetAside:
    """An input object that was left out, and why; ``item`` like ``Pod default/x``.

    ``field``: where only one field of it is left out.
    """

    item: str
    reason: str
    field: str = ""


@dataclass(frozen=True)
class Snapshot:
    """One frozen picture of the cluster.

    ``dimensions``: names of the entries of every resource vector; the first four are
    ``BASE_DIMENSIONS``. ``now``: the instant at which it is read. ``extras``: what rules
    and options add, under keys of their own.
    """

    now: float
    dimensions: tuple[str, ...]
    nodes: tuple[Node, ...]
    queues: tuple[Queue, ...]
    groups: tuple[PodGroup, ...]
    pods: tuple[Pod, ...]
    topologies: tuple[Topology, ...] = ()
    policy: Policy = Policy()
    set_aside: tuple[SetAside, ...] = ()
    config_maps: frozenset[tuple[str, str]] = frozenset()
    extras: Extras = field(default_factory=Extras)

    @cached_property
    def node_index(self) -> dict[str, int]:
        """Position of every node by name."""
        return {node.name: i for i, node in enumerate(self.nodes)}

    @cached_property
    def queue_by_name(self) -> dict[str, Queue]:
        """Every queue by name."""
        return {queue.name: queue for queue in self.queues}

    @cached_property
    def group_by_key(self) -> dict[GroupKey, PodGroup]:
        """Every pod group by key."""
        return {group.key: group for group in self.groups}

    @cached_property
    def pod_by_key(self) -> dict[PodKey, Pod]:
        """Every pod by key."""
        return {pod.key: pod for pod in self.pods}

    @cached_property
    def specs(self) -> tuple[PodSpec, ...]:
        """Every spec that pods have, once: there are many pods and few specs."""
        return tuple({id(pod.spec): pod.spec for pod in self.pods}.values())

    @cached_property
    def members(self) -> dict[GroupKey, tuple[Pod, ...]]:
        """Pods of every group in task order (3.6)."""
        found: dict[GroupKey, list[Pod]] = {group.key: [] for group in self.groups}
        for pod in self.pods:
            if pod.group is not None and pod.group in found:
                found[pod.group].append(pod)
        for pods in found.values():
            if len(pods) > 1:
                pods.sort(key=lambda pod: pod.sort_key)
        return {key: tuple(pods) for key, pods in found.items()}

    @cached_property
    def preemptible_groups(self) -> Mapping[str, tuple[PodGroup, ...]]:
        """Preemptible pod groups by queue: what may be disturbed at all."""
        found: dict[str, list[PodGroup]] = {}
        for group in self.groups:
            if group.preemptible:
                found.setdefault(group.queue, []).append(group)
        return {queue: tuple(groups) for queue, groups in found.items()}

    @cached_property
    def waiting_groups(self) -> tuple[PodGroup, ...]:
        """Pod groups with a Pending pod, in the order of ``groups``: the only ones that can ask for room."""
        waiting = {pod.group for pod in self.pods if pod.status is PodStatus.PENDING}
        return tuple(group for group in self.groups if group.key in waiting) if waiting else ()

    @cached_property
    def queue_path(self) -> dict[str, tuple[str, ...]]:
        """Queue names from each queue up to its root, itself first."""
        paths: dict[str, tuple[str, ...]] = {}
        for queue in self.queues:
            path = [queue.name]
            parent = queue.parent
            while parent is not None:
                path.append(parent)
                parent = self.queue_by_name[parent].parent
            paths[queue.name] = tuple(path)
        return paths

    @cached_property
    def leaf_queues(self) -> frozenset[str]:
        """Queues without children: the only ones that run pod groups."""
        parents = {queue.parent for queue in self.queues}
        return frozenset(queue.name for queue in self.queues if queue.name not in parents)

    @cached_property
    def gpu_memory_bounds_mib(self) -> tuple[int, int] | None:
        """(min, max) GPU memory over nodes above the default 100 (2.3); None when there is none."""
        values = [node.gpu_memory_mib for node in self.nodes if node.gpu_memory_mib > 100]
        return (min(values), max(values)) if values else None


class Placement(NamedTuple):
    """Where a pod goes: node name and, for a share, one GPU group id for each device."""

    node: str
    gpu_groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Decision:
    """One decision of a cycle; the list of them in order is the plan (``decisions/1``).

    ``kind`` Bind: the place is free now. Nominate: it is promised but not free yet. Evict: the pod is
    deleted. A moved pod has an Evict and a Nominate.
    """

    kind: Literal["Bind", "Nominate", "Evict"]
    pod: PodKey
    group: GroupKey | None
    node: str
    action: ActionName
    message: str = ""
    gpu_groups: tuple[str, ...] = ()
    triggers: tuple[GroupKey, ...] = ()
    """Evict only: the pod groups that the pod is evicted for."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """What the binder needs beyond the place: ``resourceClaimAllocations``, ``numaZones`` …"""


@dataclass(frozen=True, slots=True)
class Unscheduled:
    """Why a pod group waits. ``reason``: one token; ``proved``: see formulation 1.6."""

    group: GroupKey
    reason: str
    message: str
    proved: bool
    details: Mapping[str, Any] = field(default_factory=dict)
    estimate: Estimate | None = None
    """When it might start; None where that was not asked for."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """When a pod group that waits might start.

    ``reserved``: at ``start``. ``notBefore``: it would fit alone at ``start``, if all waiting groups and
    holders are ignored. ``none``: not even when all known ends have passed. ``unknown_ends``: running groups
    without one.
    """

    kind: Literal["reserved", "notBefore", "none"]
    start: float | None = None
    unknown_ends: int = 0


class Offer(NamedTuple):
    """A start that a hero could have, and what others would lose for it."""

    start: float
    lost_gpu_hours: float
    idle_gpu_hours: float
    victims: tuple[GroupKey, ...] = ()


HoldState = Literal["made", "kept", "earlier", "later", "started", "dropped", "offered", "draining"]


@dataclass(frozen=True, slots=True)
class IdleSoFar:
    """Idle time on closed places: ``gpu_hours`` until ``since``, and ``gpus`` that are idle since then."""

    since: float
    gpus: float
    gpu_hours: float

    def at(self, instant: float) -> float:
        """GPU-hours until an instant."""
        return self.gpu_hours + self.gpus * max(0.0, instant - self.since) / 3600.0


@dataclass(frozen=True, slots=True)
class RolloutHolding:
    """A workload in rollout (3.8): GPUs of its newest revision, of all others, and what quotas lend to it.

    ``until``: when that ends.
    """

    namespace: str
    workload: str
    queue: str
    revision: str
    until: float
    old_gpus: float
    new_gpus: float

    @property
    def lent_gpus(self) -> float:
        """What quotas do not count: the old revision gives it back."""
        return min(self.old_gpus, self.new_gpus)


@dataclass(frozen=True, slots=True)
class Reservation:
    """What became of a pod group's start in the future in this cycle.

    ``nodes``: GPUs held by node. ``domain``: (level, name) of the one it has to lie in. ``waits_for``: groups
    on its places that end at its start. ``drained``: held nodes that stand idle for it. ``victims``: what an
    accepted price evicts at the start. ``expired``: when an overdue one was given up. ``idle``: of
    closed places (``draining``), which have no start.
    """

    group: GroupKey
    queue: str
    state: HoldState
    start: float | None = None
    promised: float | None = None
    made: float | None = None
    nodes: Mapping[str, float] = field(default_factory=dict)
    domain: tuple[str, str] | None = None
    waits_for: tuple[GroupKey, ...] = ()
    drained: tuple[str, ...] = ()
    idle_gpu_hours: float = 0.0
    lost_gpu_hours: float = 0.0
    victims: tuple[GroupKey, ...] = ()
    cause: str | None = None
    message: str = ""
    offers: tuple[Offer, ...] = ()
    expired: float | None = None
    idle: IdleSoFar | None = None


DefragState = Literal["met", "report", "closed", "waits", "rate", "moved", "stuck", "unknown"]


@dataclass(frozen=True, slots=True)
class DefragReport:
    """How far the goal of defragmentation is met, and what was done for it in this cycle.

    ``value``: how much of ``goal`` (``defrag.goal`` in words) there is now, ``wanted``: how much is wanted.
    """

    goal: str
    value: int
    wanted: int
    state: DefragState
    message: str


REJECTED: Final = "rejected by the checker"
"""End of the name of a stage whose plan broke a rule: it was dropped (formulation 1.6)."""

FAILED: Final = "failed"
"""End of the name of a stage that raised; its traceback is in the log."""

CUT: Final = "cut by the deadline"
"""End of the name of a stage that says that the clock ended the action: a quieter machine may find more."""


@dataclass(frozen=True, slots=True)
class Stage:
    """What one stage of a cycle solved.

    ``gap`` = (objective - bound) / max(1, |objective|), 0 when proved.
    """

    name: str
    status: Literal["OPTIMAL", "FEASIBLE", "GREEDY"]
    objective: float = 0.0
    bound: float = 0.0
    gap: float = 0.0
    variables: int = 0
    constraints: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class QueueReport:
    """Fair share and allocation of a queue before and after the cycle."""

    fair_share: Shares
    allocated_before: Shares
    allocated_after: Shares


@dataclass(frozen=True, slots=True)
class Plan:
    """The answer of a cycle: decisions in order, and everything needed to explain them."""

    decisions: tuple[Decision, ...] = ()
    unscheduled: tuple[Unscheduled, ...] = ()
    stages: tuple[Stage, ...] = ()
    queues: Mapping[str, QueueReport] = field(default_factory=dict)
    timings: Mapping[str, float] = field(default_factory=dict)
    localities: Mapping[GroupKey, Locality] = field(default_factory=dict)
    """How close the GPUs of pod groups are that got places, where they are on several nodes."""
    turns: tuple[GroupKey, ...] = ()
    """Pod groups in the order in which allocate took them (3.5), served or refused."""
    reservations: tuple[Reservation, ...] | None = None
    """Starts in the future; None: they are switched off."""
    set_aside: tuple[SetAside, ...] = ()
    """What settings asked for and could not be read, beyond what the snapshot set aside."""
    again_at: float | None = None
    """The next time at which the decisions of the time axis may change although nothing else does."""
    defrag: DefragReport | None = None
    """Of a goal of defragmentation; None: there is none."""
    rollouts: tuple[RolloutHolding, ...] = ()
    """Workloads in rollout as the plan leaves them, where the rule is on."""
