"""The input of the engine: one frozen picture of the cluster, ready to use.

Everything is parsed before it gets here (``kai_cp/reader``): quantities are integers, labels that
mean something are fields, references resolve. Sequences are sorted by name, so equal clusters give
equal models whatever order the API listed them in. Units: see :mod:`.pods`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from kai_cp_models.extras import CLAIM_MILLI_GPUS, Extras
from kai_cp_models.frozen import record
from kai_cp_models.pods import UNLIMITED, GroupKey, Pod, PodKey, PodSpec
from kai_cp_models.policy import Policy
from kai_cp_models.records.notes import NO_GROUP_NOTES, NO_QUEUE_NOTES, GroupNotes, QueueNotes

if TYPE_CHECKING:  # these are made of records
    from kai_cp_models.columns import Columns
    from kai_cp_models.running import Running
    from kai_cp_models.units import Gang


@dataclass(frozen=True, slots=True)
class Taint:
    """A node taint; only NoSchedule and NoExecute refuse pods."""

    key: str
    value: str
    effect: str


@record(frozen=True, slots=True)
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
    """Of a queue that represents a user of its parent (``users.label``); no queue object exists for it."""

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


class _KeepsScopes:
    """Slots for what a subgroup says of its pod sets."""

    __slots__ = ("_leaves", "_scopes")
    _leaves: tuple[Subgroup, ...]
    _scopes: Mapping[str, tuple[Subgroup, ...]]


@dataclass(frozen=True, slots=True)
class Subgroup(_KeepsScopes):
    """A node of the gang tree (1.2): with ``children`` a set, otherwise a pod set (leaf).

    ``minimum``: leaf: minMember; set: number K of members that must be satisfied. The root of a pod
    group is always a set named "". A group without subgroups has one leaf ``default`` under it.
    """

    name: str
    minimum: int
    children: tuple[Subgroup, ...] = ()
    leaf: bool = True
    constraint: TopologyConstraint | None = None

    @property
    def constrained(self) -> bool:
        """Whether a topology constraint holds for it or for a part of it."""
        return self.constraint is not None or any(self.scopes.values())

    @property
    def plain(self) -> bool:
        """Whether it is the root of a group without subgroups."""
        return len(self.children) == 1 and self.children[0].leaf and self.children[0].name == "default"

    def leaves(self) -> tuple[Subgroup, ...]:
        """All pod sets below (or itself), left to right."""
        try:
            return self._leaves
        except AttributeError:
            found, left = list[Subgroup](), [self]
            while left:
                one = left.pop()
                if one.leaf:
                    found.append(one)
                left.extend(reversed(one.children))
            object.__setattr__(self, "_leaves", tuple(found))
            return self._leaves

    @property
    def scopes(self) -> Mapping[str, tuple[Subgroup, ...]]:
        """By the name of every pod set below (or its own), the subgroups with a topology constraint, widest
        first, from this one down to the pod set."""
        try:
            return self._scopes
        except AttributeError:
            found: dict[str, tuple[Subgroup, ...]] = {}
            left: list[tuple[Subgroup, tuple[Subgroup, ...]]] = [(self, ())]
            while left:
                one, above = left.pop()
                here = above if one.constraint is None else (*above, one)
                if one.leaf:
                    found[one.name] = here
                left.extend((child, here) for child in reversed(one.children))
            object.__setattr__(self, "_scopes", found)
            return found

    def scopes_of(self, name: str) -> tuple[Subgroup, ...]:
        """The subgroups with a topology constraint, widest first, above the pod set ``name`` and itself."""
        return self.scopes.get(name, () if self.constraint is None else (self,))


@record(frozen=True, slots=True)
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
    whole: bool = True
    """False: its subgroups cannot be read, so the snapshot has its running pods alone, without subgroups."""
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


@dataclass(frozen=True, slots=True)
class SetAside:
    """An input object that was left out, and why; ``item`` like ``Pod default/x``.

    ``field``: where only one field of it is left out.
    """

    item: str
    reason: str
    field: str = ""


@dataclass(slots=True)
class Derived:
    """Values derived from the records of one cluster alone, kept from cycle to cycle: its gangs, and what
    nodes and topologies say.

    A value is used only for the records that it was derived from, so snapshots with other records may
    share it.
    """

    gangs: tuple[Columns | None, dict[GroupKey, Gang]] = None, {}
    """The gangs of the pod groups of these columns, as far as they were asked for."""
    running: Running | None = None
    _columns: Columns | None = None
    _known: dict[str, tuple[object, object]] = field(default_factory=dict)

    def __reduce__(self) -> tuple[type[Derived], tuple[()]]:
        # Another process knows nothing of the identities of these records.
        return Derived, ()

    def columns_of(self, snapshot: Snapshot) -> Columns:
        """The columns of a snapshot: those of the last one, as far as both have the same records."""
        from kai_cp_models.columns import Columns

        last = self._columns
        if last is None or not last.shows(snapshot):
            last = self._columns = Columns(snapshot, last)
        return last

    def of_records(self, name: str, records: object, make: Callable[[], Any]) -> Any:
        """What ``make`` says of ``records``; asked again only where they are others. ``name``: its own."""
        known = self._known.get(name)
        if known is None or known[0] != records:
            known = self._known[name] = records, make()
        return known[1]


@dataclass(frozen=True)
class Snapshot:
    """One frozen picture of the cluster.

    ``dimensions``: names of the entries of every resource vector; the first four are
    ``BASE_DIMENSIONS``. ``now``: the instant at which it is read. ``extras``: what rules
    and options add, under keys of their own. ``derived``: what is known already of its records.
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
    derived: Derived = field(default_factory=Derived, compare=False, repr=False)

    @cached_property
    def node_index(self) -> dict[str, int]:
        """Position of every node by name."""
        found: dict[str, int] = self.derived.of_records(
            "node index", self.nodes, lambda: {node.name: i for i, node in enumerate(self.nodes)}
        )
        return found

    @cached_property
    def nodes_by_label(self) -> Mapping[str, Mapping[str, Sequence[int]]]:
        """Positions of the nodes with a label, by its key and value."""

        def listed() -> dict[str, dict[str, list[int]]]:
            found: dict[str, dict[str, list[int]]] = {}
            for i, node in enumerate(self.nodes):
                for key, value in node.labels.items():
                    found.setdefault(key, {}).setdefault(value, []).append(i)
            return found

        result: Mapping[str, Mapping[str, Sequence[int]]] = self.derived.of_records(
            "nodes by label", self.nodes, listed
        )
        return result

    @cached_property
    def queue_index(self) -> dict[str, int]:
        """Position of every queue by name."""
        return {queue.name: i for i, queue in enumerate(self.queues)}

    @cached_property
    def queue_by_name(self) -> dict[str, Queue]:
        """Every queue by name."""
        return {queue.name: queue for queue in self.queues}

    @cached_property
    def columns(self) -> Columns:
        """Pods and pod groups as columns."""
        return self.derived.columns_of(self)

    @cached_property
    def group_by_key(self) -> dict[GroupKey, PodGroup]:
        """Every pod group by key."""
        return self.columns.of_groups.by_key

    @cached_property
    def pod_by_key(self) -> dict[PodKey, Pod]:
        """Every pod by key."""
        return self.columns.of_pods.by_key

    @cached_property
    def specs(self) -> tuple[PodSpec, ...]:
        """Every spec that pods have, once: there are many pods and few specs."""
        return self.columns.specs

    @cached_property
    def members(self) -> Mapping[GroupKey, tuple[Pod, ...]]:
        """Pods of every group in task order (3.6)."""
        from kai_cp_models.columns import PodsByGroup

        return PodsByGroup(self)

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
        """Pod groups with a Pending pod, in the order of ``groups``: the only ones that can ask for
        capacity."""
        return tuple(self.groups[at] for at in self.columns.waiting.tolist())

    @cached_property
    def alike(self) -> Mapping[GroupKey, int]:
        """For each of these a number that groups share which nothing tells apart but names, times and which
        nodes are promised, see ``Columns.alike``; where claims are counted (2.5), groups have no equals."""
        waiting = [group.key for group in self.waiting_groups]
        counted, columns = self.extras[CLAIM_MILLI_GPUS], self.columns
        numbers = range(len(waiting)) if counted else columns.alike[columns.waiting].tolist()
        return dict(zip(waiting, numbers, strict=True))

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

    @property
    def gpu_sizes_differ(self) -> bool:
        """Whether a share by memory may be charged more on one node than on another (2.3)."""
        return len(set(self.gpu_memory_bounds_mib or ())) > 1

    @cached_property
    def gpu_memory_bounds_mib(self) -> tuple[int, int] | None:
        """(min, max) GPU memory over nodes above the default 100 (2.3); None when there is none."""
        values = [node.gpu_memory_mib for node in self.nodes if node.gpu_memory_mib > 100]
        return (min(values), max(values)) if values else None
