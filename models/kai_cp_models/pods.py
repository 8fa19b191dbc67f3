"""Pods as the engine sees them: identity, status, requests and constraints, all parsed.

Quantities are integers; labels that mean something are fields. Units: ``milli_cpus``, ``memory_bytes``,
``milli_gpus`` (1000 = one device), ``*_mib`` (2**20 bytes), ``*_seconds`` since the epoch (float, UTC).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from kai_cp_models.frozen import record
from kai_cp_models.migs import MIG_PREFIX

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


def in_thousandths(name: str) -> bool:
    """Whether amounts of a dimension are thousandths (2.1): of CPUs, GPUs, extended resources, huge pages and
    attachable volumes. Memory and storage are bytes, pod slots and MIG instances whole numbers.
    """
    extended = "/" in name and not name.startswith(MIG_PREFIX)
    return extended or name in ("cpu", "gpu") or name.startswith(("hugepages-", "attachable-volumes-"))


def in_bytes(name: str) -> bool:
    """Whether a resource is measured in bytes."""
    return name in ("memory", "storage", "ephemeral-storage") or name.startswith("hugepages-")


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


class GpuKind(Enum):
    """How a pod asks for GPUs (2.2); exactly one kind per pod."""

    REGULAR = "Regular"
    """Whole GPUs, or none at all."""
    FRACTION = "Fraction"
    """A portion of each of ``devices`` GPUs."""
    MEMORY = "GpuMemory"
    """``memory_mib`` on each of ``devices`` GPUs."""
    MIG = "MigInstance"


_SHARING: Final = (GpuKind.FRACTION, GpuKind.MEMORY)


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
    shares: bool = field(init=False, repr=False, compare=False)
    """Whether the pod shares devices with others (FRACTION or MEMORY)."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "shares", self.kind in _SHARING)


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
    """A DoNotSchedule topology spread constraint (an option KAI lacks).

    ``least_domains``: while there are fewer, the smallest number counts as 0. Nodes count that the pod's node
    selector and affinity allow (``honors_affinity``), and whose taints it tolerates (``honors_taints``).
    """

    max_skew: int
    topology_key: str
    selector: LabelSelector | None
    least_domains: int = 1
    honors_affinity: bool = True
    honors_taints: bool = False


@dataclass(frozen=True, slots=True)
class ClaimRef:
    """A pod's ``spec.resourceClaims[]``: ``name`` inside the pod, and the ResourceClaim it means.

    ``claim`` is the object's name (from resourceClaimName, or status for a template), or "" while a
    template's claim does not exist yet; then ``template`` names it.
    """

    name: str
    claim: str
    template: str = ""


class _KeepsHash:
    """A slot for a hash, apart from the fields: another process hashes text in another way, so it must not
    get the hash."""

    __slots__ = ("_hash",)
    _hash: int


@dataclass(frozen=True, slots=True)
class PodSpec(_KeepsHash):
    """What a pod asks of a node. It is the key of whatever is equal for equal pods.

    The reader makes equal specs one object, so looking one up compares no fields.

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

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            object.__setattr__(self, "_hash", hash(tuple(getattr(self, name) for name in self.__slots__)))
            return self._hash

    @property
    def needs_gpu(self) -> bool:
        """Whether the pod asks for any GPU, share or MIG instance (DRA claims not included)."""
        return self.gpu.devices > 0 or self.gpu.kind is GpuKind.MIG


class Revision(NamedTuple):
    """A revision of a workload, such as ("Deployment/web", "6b7f"), inside the pod's namespace (3.8)."""

    workload: str
    name: str


@record(frozen=True, slots=True)
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
    """Of which revision of which workload it is; None where nothing says so."""

    @property
    def sort_key(self) -> tuple[object, ...]:
        """Task order (3.6): role, task priority, creation, uid."""
        return (*self.order, self.created, self.uid)
