"""Facts of a snapshot alone, before any plan; made once for all audits of a cycle."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from kai_cp_models.arrays import Floats, Ints
from kai_cp_models.check import amounts
from kai_cp_models.extras import CLAIM_MILLI_GPUS
from kai_cp_models.fairness.share import fair_shares
from kai_cp_models.pods import ACTIVE_ALLOCATED, ACTIVE_USED, GPU, GpuKind, Pod, PodKey, PodSpec, PodStatus
from kai_cp_models.records.devices import ClaimAllocation
from kai_cp_models.rules.stateful.dra.refs import refs_of
from kai_cp_models.snapshot import Node, PodGroup, Shares, Snapshot


class HeldByQueue(dict[str, amounts.CheckedAmounts]):
    """What queues hold, by name; (0, 0, 0) where nothing is held."""

    def __missing__(self, queue: str) -> amounts.CheckedAmounts:
        return (0, 0, 0)

    def add(self, queue: str, cost: amounts.CheckedAmounts, times: int = 1) -> None:
        """Charge ``cost`` times a factor to a queue; -1 takes it back."""
        before = self[queue]
        self[queue] = (
            before[0] + times * cost[0],
            before[1] + times * cost[1],
            before[2] + times * cost[2],
        )

    def add_all(self, other: HeldByQueue, times: int = 1) -> None:
        """Charge every queue what it holds in ``other``, times a factor."""
        for queue, cost in other.items():
            self.add(queue, cost, times)


HeldByQueues = tuple[HeldByQueue, HeldByQueue]
"""What queues hold: in all, and by non-preemptible pod groups."""


@dataclass(frozen=True)
class SnapshotFacts:
    """A snapshot, and facts that several audits of it share."""

    snapshot: Snapshot
    fair_shares: Mapping[str, Shares]
    """The fair share of every queue; the only value here that comes from the engine."""
    _charges: dict[tuple[object, ...], amounts.CheckedAmounts] = field(default_factory=dict)
    _by_spec: dict[int, amounts.CheckedAmounts] = field(default_factory=dict)
    """The cost of pods whose spec alone determines it, by ``id`` of the spec."""
    refusals: dict[tuple[object, ...], Sequence[str]] = field(default_factory=dict)
    """The results of ``nodes``, by spec, node and claims of a pod."""
    domains: dict[tuple[str, str], tuple[tuple[str, ...], str]] = field(default_factory=dict)
    """The results of ``topology``, by Topology and node."""

    @staticmethod
    def of(snapshot: Snapshot) -> SnapshotFacts:
        """The facts, with the fair shares computed again."""
        return SnapshotFacts(snapshot, fair_shares(snapshot))

    def node(self, name: str) -> Node:
        """A node by name."""
        return self.snapshot.nodes[self.snapshot.node_index[name]]

    def group_of(self, pod: Pod) -> PodGroup | None:
        """The pod group of a pod."""
        return self.snapshot.group_by_key.get(pod.group) if pod.group is not None else None

    @cached_property
    def allocatable(self) -> Floats:
        """[N, D] what the nodes have; read-only."""
        return np.array([node.allocatable for node in self.snapshot.nodes], dtype=np.float64).clip(min=0)

    def charge(self, pod: Pod, node: str) -> amounts.CheckedAmounts:
        """What the pod counts in its queue on the node; computed once for pods that cost the same."""
        known = self._by_spec.get(id(pod.spec))
        if known is not None:
            return known
        claimed, memory = self.snapshot.extras[CLAIM_MILLI_GPUS], pod.spec.gpu.kind is GpuKind.MEMORY
        kind = id(pod.spec), node if memory else "", claimed.get(pod.key)
        known = self._charges.get(kind)
        if known is None:
            known = self._charges[kind] = amounts.charge(self.snapshot, pod, self.node(node))
            if not claimed and not memory:
                self._by_spec[id(pod.spec)] = known
        return known

    def add_up(self, sums: HeldByQueues, places: Iterable[tuple[Pod, str]], times: int = 1) -> None:
        """Charge the queues and all queues above them for pods on nodes, times a factor."""
        groups, by_spec = self.snapshot.group_by_key, self._by_spec
        counts: dict[tuple[str, bool, amounts.CheckedAmounts], int] = {}
        for pod, node in places:
            group = groups.get(pod.group) if pod.group else None
            if group is not None:
                cost = by_spec.get(id(pod.spec)) or self.charge(pod, node)
                alike = group.queue, group.preemptible, cost
                counts[alike] = counts.get(alike, 0) + 1
        total, firm = sums
        for (leaf, preemptible, cost), count in counts.items():
            for queue in self.snapshot.queue_path.get(leaf, ()):
                total.add(queue, cost, times * count)
                if not preemptible:
                    firm.add(queue, cost, times * count)

    def held_by(self, places: Iterable[tuple[Pod, str]]) -> HeldByQueues:
        """What queues and their ancestors hold through pods on nodes: in all, and by non-preemptible pod
        groups."""
        found = HeldByQueue(), HeldByQueue()
        self.add_up(found, places)
        return found

    @cached_property
    def _holding(self) -> Sequence[tuple[Pod, str]]:
        """Pods that hold a place on a known node, with the node."""
        columns, pods = self.snapshot.columns, self.snapshot.pods
        rows = np.flatnonzero((columns.node >= 0) & columns.having(ACTIVE_USED)).tolist()
        return [(pod, pod.node or "") for pod in map(pods.__getitem__, rows)]

    @cached_property
    def terminating(self) -> tuple[HeldByQueues, HeldByQueues]:
        """What queues hold through pods that are being deleted, and through those that are stuck in it."""
        statuses = PodStatus.RELEASING, PodStatus.STUCK_IN_RELEASING
        one, other = ([p for p in self._holding if p[0].status is status] for status in statuses)
        return self.held_by(one), self.held_by(other)

    @cached_property
    def residents(self) -> Mapping[str, Sequence[Pod]]:
        """Pods that hold a place, by node."""
        found: dict[str, list[Pod]] = {}
        for pod, node in self._holding:
            found.setdefault(node, []).append(pod)
        return found

    @cached_property
    def stand_ins(self) -> frozenset[PodKey]:
        """Reservation pods of shared GPUs: those with the label, in the namespace of reservation pods."""
        policy = self.snapshot.policy
        there = (pod for pod in self.snapshot.pods if pod.key.namespace == policy.reservation_namespace)
        return frozenset(pod.key for pod in there if pod.labels.get("app") == policy.reservation_app)

    def requests(self, places: Iterable[tuple[Pod, str]], *, new: bool = False) -> Floats:
        """[N, D] what pods request on each node; pods on unknown nodes are left out.

        GPUs that stand for shares count only where the pods are ``new``: their groups are charged for them.
        Floats: they are exact up to the largest amount that a node can have, and never wrap around.
        """
        index, places = self.snapshot.node_index, list(places)
        specs = {id(pod.spec): pod.spec for pod, _ in places}
        position = {spec: row for row, spec in enumerate(specs)}
        held = np.array([position[id(pod.spec)] for pod, _ in places], dtype=np.int64)
        nodes = np.array([index.get(name, -1) for _, name in places], dtype=np.int64)
        stand_in = [pod.key in self.stand_ins for pod, _ in places] if self.stand_ins else []
        return self._summed(tuple(specs.values()), held, nodes, stand_in, new=new)

    def _summed(
        self, specs: Sequence[PodSpec], held: Ints, nodes: Ints, stand_in: Sequence[bool], *, new: bool
    ) -> Floats:
        """[N, D] what pods with these ``specs`` request on each node; -1 is not a node."""
        count, width = len(self.snapshot.nodes), len(self.snapshot.dimensions)
        rows = np.array([spec.requests for spec in specs], dtype=np.float64).reshape(-1, width)
        found = np.zeros((count, width))
        for d in range(width):
            taken = rows[held, d]
            if d == GPU and not new:
                taken = taken * np.array([not spec.gpu.shares for spec in specs], dtype=bool)[held]
                if stand_in:
                    taken[np.array(stand_in, dtype=bool)] = 0
            found[:, d] = np.bincount(nodes + 1, taken, count + 1)[1:]
        return found

    def _requested(self, statuses: Collection[PodStatus]) -> Floats:
        """[N, D] what the pods with these statuses request on their nodes; all pods are summed up at once."""
        columns = self.snapshot.columns
        rows = np.flatnonzero(columns.having(statuses))
        pods = self.snapshot.pods
        stand_in = [pods[row].key in self.stand_ins for row in rows.tolist()] if self.stand_ins else []
        return self._summed(columns.specs, columns.spec[rows], columns.node[rows], stand_in, new=False)

    @cached_property
    def requested(self) -> Floats:
        """[N, D] what the pods that hold a place request; read-only."""
        return self._requested(ACTIVE_USED)

    @cached_property
    def releasing(self) -> Floats:
        """[N, D] the part of ``requested`` that is being released; read-only."""
        return self._requested((PodStatus.RELEASING,))

    @cached_property
    def sharing(self) -> Sequence[tuple[Pod, str]]:
        """Pods that hold a place and use shared GPUs, with their nodes."""
        return [place for place in self._holding if place[0].gpu_groups]

    @cached_property
    def devices(self) -> tuple[Set[tuple[str, str]], Mapping[tuple[str, str], Set[PodKey]]]:
        """The shared GPUs by node and GPU group; and the pods that are not releasing, of those GPUs that have
        such pods."""
        members: dict[tuple[str, str], set[PodKey]] = {}
        for pod, name in self.sharing:
            if pod.status is not PodStatus.RELEASING:
                for group in pod.gpu_groups:
                    members.setdefault((name, group), set()).add(pod.key)
        return {(name, group) for pod, name in self.sharing for group in pod.gpu_groups}, members

    @cached_property
    def nominated_groups(self) -> Sequence[PodGroup]:
        """Pod groups of which a pod names a node that it waits for."""
        columns = self.snapshot.columns
        groups = columns.group[columns.nominated]
        return [self.snapshot.groups[at] for at in np.unique(groups[groups >= 0]).tolist()]

    @cached_property
    def by_uid(self) -> Mapping[str, Pod]:
        """The pods by UID."""
        return {pod.uid: pod for pod in self.snapshot.pods}

    def claims_of(self, pod: Pod) -> Set[tuple[str, str]]:
        """The claims that the pod uses: namespace and name."""
        return {(pod.key.namespace, ref.claim) for ref in refs_of(self.snapshot, pod) if ref.claim}

    @cached_property
    def users_of(self) -> Mapping[tuple[str, str], Set[str]]:
        """UIDs of the pods with a node that use a claim."""
        found: dict[tuple[str, str], set[str]] = {}
        for pod in self.snapshot.pods:
            for claim in self.claims_of(pod) if pod.node is not None else ():
                found.setdefault(claim, set()).add(pod.uid)
        return found

    @cached_property
    def promised(self) -> Mapping[tuple[str, str], ClaimAllocation]:
        """What BindRequests allocate to the claims of pods that have a node."""
        return {
            (pod.key.namespace, ref.claim): pod.claim_allocations[ref.name]
            for pod in self.snapshot.pods
            if pod.node is not None and pod.claim_allocations
            for ref in refs_of(self.snapshot, pod)
            if ref.name in pod.claim_allocations
        }

    @cached_property
    def homes(self) -> Mapping[str, str]:
        """The node of every GPU group; "" for an id that several nodes use.

        Ids of running pods may be small numbers that repeat per node; only uuids are unique.
        """
        found: dict[str, str] = {}
        for pod, name in self.sharing:
            for group in pod.gpu_groups:
                found[group] = name if found.get(group, name) == name else ""
        return found

    @cached_property
    def held(self) -> HeldByQueues:
        """What queues and their ancestors hold: in all, and by non-preemptible pod groups."""
        found = HeldByQueue(), HeldByQueue()
        columns, pods = self.snapshot.columns, self.snapshot.pods
        rows = np.flatnonzero((columns.node >= 0) & (columns.group >= 0) & columns.having(ACTIVE_ALLOCATED))
        # Pods with one spec in groups of one kind cost the same, unless node or claims decide.
        single = columns.of_spec(lambda spec: spec.gpu.kind is GpuKind.MEMORY)[rows]
        if claimed := self.snapshot.extras[CLAIM_MILLI_GPUS]:
            single |= np.array([pods[row].key in claimed for row in rows.tolist()], dtype=bool)
        kinds = (columns.queue + 1) * 2 + columns.preemptible
        kinds = kinds[columns.group[rows]] * len(columns.specs) + columns.spec[rows]
        kinds[single] = -1 - rows[single]
        _, first, counts = np.unique(kinds, return_index=True, return_counts=True)
        for row, count in zip(rows[first].tolist(), counts.tolist(), strict=True):
            self.add_up(found, [(pods[row], pods[row].node or "")], count)
        return found
