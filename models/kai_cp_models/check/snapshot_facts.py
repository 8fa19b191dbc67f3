"""Facts of a snapshot alone, before any plan; made once for all audits of a cycle."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from kai_cp_models.arrays import Floats
from kai_cp_models.check import amounts
from kai_cp_models.extras import CLAIM_MILLI_GPUS
from kai_cp_models.fairness.share import fair_shares
from kai_cp_models.pods import ACTIVE_ALLOCATED, ACTIVE_USED, GpuKind, Pod, PodStatus
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

    @staticmethod
    def of(snapshot: Snapshot) -> SnapshotFacts:
        """The facts, with the fair shares computed anew."""
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
        claimed = self.snapshot.extras[CLAIM_MILLI_GPUS]
        where = node if pod.spec.gpu.kind is GpuKind.MEMORY else None
        kind = pod.spec, where, pod.key if claimed and pod.key in claimed else None
        known = self._charges.get(kind)
        if known is None:
            known = self._charges[kind] = amounts.charge(self.snapshot, pod, self.node(node))
        return known

    def add_up(self, sums: HeldByQueues, places: Iterable[tuple[Pod, str]], times: int = 1) -> None:
        """Charge the queues and all queues above them for pods on nodes, times a factor."""
        claimed, groups = self.snapshot.extras[CLAIM_MILLI_GPUS], self.snapshot.group_by_key
        alike: dict[tuple[str, bool, int, str, int], list[tuple[Pod, str]]] = {}
        for place in places:
            pod, node = place
            group = groups.get(pod.group) if pod.group else None
            if group is not None:
                where = node if pod.spec.gpu.kind is GpuKind.MEMORY else ""
                gpus = claimed.get(pod.key, 0) if claimed else 0
                kind = group.queue, group.preemptible, id(pod.spec), where, gpus
                alike.setdefault(kind, []).append(place)
        total, firm = sums
        for (leaf, preemptible, *_), there in alike.items():
            cost, count = self.charge(*there[0]), len(there)
            for queue in self.snapshot.queue_path.get(leaf, ()):
                total.add(queue, cost, times * count)
                if not preemptible:
                    firm.add(queue, cost, times * count)

    @cached_property
    def residents(self) -> Mapping[str, tuple[Pod, ...]]:
        """Pods that hold a place, by node."""
        found: dict[str, list[Pod]] = {}
        for pod in self.snapshot.pods:
            if pod.node is not None and pod.status in ACTIVE_USED:
                found.setdefault(pod.node, []).append(pod)
        return {name: tuple(pods) for name, pods in found.items()}

    def requests(self, places: Iterable[tuple[Pod, str]]) -> Floats:
        """[N, D] what pods request on each node; pods on unknown nodes are left out.

        Floats: they are exact up to the largest amount that a node can have, and never wrap around.
        """
        index, kinds = self.snapshot.node_index, dict[int, int]()
        rows: list[tuple[int, ...]] = []
        nodes: list[int] = []
        held: list[int] = []
        for pod, name in places:
            if name in index:
                kind = kinds.setdefault(id(pod.spec), len(rows))
                if kind == len(rows):
                    rows.append(pod.spec.requests)
                nodes.append(index[name])
                held.append(kind)
        found = np.zeros((len(index), len(self.snapshot.dimensions)))
        if nodes:
            np.add.at(found, nodes, np.array(rows, dtype=np.float64)[held])
        return found

    @cached_property
    def requested(self) -> Floats:
        """[N, D] what the pods that hold a place request; read-only."""
        return self.requests((pod, name) for name, pods in self.residents.items() for pod in pods)

    @cached_property
    def releasing(self) -> Floats:
        """[N, D] the part of ``requested`` that is being released; read-only."""
        pods = ((pod, pod.node) for pod in self.snapshot.pods if pod.status is PodStatus.RELEASING)
        return self.requests((pod, node) for pod, node in pods if node is not None)

    @cached_property
    def sharing(self) -> frozenset[str]:
        """Nodes with shared devices."""
        return frozenset(name for name, pods in self.residents.items() if any(p.gpu_groups for p in pods))

    @cached_property
    def homes(self) -> Mapping[str, str]:
        """The node of every GPU group; "" for an id that several nodes use.

        Ids of running pods may be small numbers that repeat per node; only uuids are unique.
        """
        found: dict[str, str] = {}
        for name, pods in self.residents.items():
            if name in self.snapshot.node_index:
                for group in {group for pod in pods for group in pod.gpu_groups}:
                    found[group] = name if found.get(group, name) == name else ""
        return found

    @cached_property
    def held(self) -> HeldByQueues:
        """What queues and their ancestors hold: in all, and by non-preemptible pod groups."""
        found = HeldByQueue(), HeldByQueue()
        pods = self.snapshot.pods
        self.add_up(found, ((p, p.node) for p in pods if p.status in ACTIVE_ALLOCATED and p.node is not None))
        return found
