"""The node table: what the static rules and scores read of all nodes, as arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property

import numpy as np

from kai_cp_models.arrays import Ints, Mask
from kai_cp_models.blame import for_group
from kai_cp_models.domains.tree import TopologyTree
from kai_cp_models.migs import MIG_PREFIX
from kai_cp_models.pods import ACTIVE_USED, GPU, Pod, PodSpec
from kai_cp_models.rules.static import STATIC_RULES, size
from kai_cp_models.rules.static.taints import REFUSING
from kai_cp_models.snapshot import Snapshot, Subgroup, Taint


class Column:
    """One label over all nodes: ``codes`` [N] is the position of the node's value, -1 without the label."""

    def __init__(self, values: Iterable[str | None]) -> None:
        self.code: dict[str, int] = {}
        self.codes: Ints = np.array(
            [-1 if value is None else self.code.setdefault(value, len(self.code)) for value in values],
            dtype=np.int64,
        )

    def among(self, values: Iterable[str]) -> Mask:
        """[N] nodes that carry one of the values."""
        return np.isin(self.codes, [self.code[value] for value in values if value in self.code])

    def where(self, holds: Callable[[str], bool]) -> Mask:
        """Nodes whose value satisfies ``holds``; it is called once per distinct value."""
        # Code -1 (no label) reads the last entry.
        truth: Mask = np.array([*map(holds, self.code), False], dtype=bool)[self.codes]
        return truth


class NodeTable:
    """Arrays over ``snapshot.nodes``, in their order. All are read-only for callers."""

    def __init__(self, snapshot: Snapshot) -> None:
        nodes = snapshot.nodes
        count, width = len(nodes), len(snapshot.dimensions)
        self.snapshot = snapshot
        self.predicates = snapshot.policy.plugin("predicates")
        """Whether Kubernetes' own node rules apply."""
        self.allocatable: Ints = np.array([node.allocatable for node in nodes], dtype=np.int64).reshape(
            count, width
        )
        self.gpu_memory_mib: Ints = np.array([node.gpu_memory_mib for node in nodes], dtype=np.int64)
        self.gpu_memory_synced: Mask = np.array([node.gpu_memory_synced for node in nodes], dtype=bool)
        self.gpu_count: Ints = np.array([node.gpu_count for node in nodes], dtype=np.int64)
        self.mig_enabled: Mask = np.array([node.mig_enabled for node in nodes], dtype=bool)
        strategies = [node.mig_strategy if node.mig_enabled else "" for node in nodes]
        self.mig_single: Mask = np.array([strategy == "single" for strategy in strategies], dtype=bool)
        self.mig_mixed: Mask = np.array([strategy == "mixed" for strategy in strategies], dtype=bool)
        self.dra_gpus: Mask = np.array([node.dra_gpus > 0 for node in nodes], dtype=bool)
        self.ready: Mask = np.array([not node.not_ready for node in nodes], dtype=bool)
        self._columns: dict[str, Column] = {}
        self._by_spec: dict[PodSpec, tuple[Mask, bool]] = {}
        self._when_empty: dict[PodSpec, bool] = {}

    def __len__(self) -> int:
        return len(self.snapshot.nodes)

    def label(self, key: str) -> Column:
        """The column of a node label."""
        column = self._columns.get(key)
        if column is None:
            column = self._columns[key] = Column(node.labels.get(key) for node in self.snapshot.nodes)
        return column

    @cached_property
    def name_column(self) -> Column:
        """Node names as a column."""
        return Column(node.name for node in self.snapshot.nodes)

    @cached_property
    def owned(self) -> list[int]:
        """[D] the capacity of all nodes together, even if empty."""
        found: list[int] = self.allocatable.sum(axis=0).tolist()
        return found

    @cached_property
    def largest(self) -> Ints:
        """[D] the largest allocatable amount of any node, per dimension."""
        largest: Ints = self.allocatable.max(axis=0, initial=0)
        return largest

    @cached_property
    def taints(self) -> Mapping[Taint, Mask]:
        """Every distinct taint that refuses pods, with the nodes [N] that carry it."""
        found: dict[Taint, Mask] = {}
        for i, node in enumerate(self.snapshot.nodes):
            for taint in node.taints:
                if taint.effect in REFUSING:
                    found.setdefault(taint, np.zeros(len(self), dtype=bool))[i] = True
        return found

    @cached_property
    def legacy_mig(self) -> Mask:
        """[N] nodes that hold a legacy MIG pod (2.4)."""
        found = np.zeros(len(self), dtype=bool)
        for pod in self.snapshot.pods:
            if pod.spec.legacy_mig and pod.status in ACTIVE_USED and pod.node in self.snapshot.node_index:
                found[self.snapshot.node_index[pod.node]] = True
        return found

    @cached_property
    def cpu_only(self) -> Mask:
        """[N] nodes without GPUs of any kind: whole, MIG or DRA (6, resourcetype)."""
        gpus = [
            i for i, name in enumerate(self.snapshot.dimensions) if i == GPU or name.startswith(MIG_PREFIX)
        ]
        found: Mask = (self.allocatable[:, gpus] <= 0).all(axis=1) & ~self.dra_gpus
        return found

    @cached_property
    def trees(self) -> dict[str, TopologyTree]:
        """The domain tree of every Topology, by name."""
        nodes, topologies = self.snapshot.nodes, self.snapshot.topologies
        found: dict[str, TopologyTree] = self.snapshot.derived.of_records(
            "trees", (nodes, topologies), lambda: {one.name: TopologyTree(one, nodes) for one in topologies}
        )
        return found

    def domains_of(self, scope: Subgroup) -> tuple[Mask, Ints | None]:
        """[N] nodes that a constrained subgroup may use, and [N] the domain of its required level (8.3)."""
        constraint = scope.constraint
        if constraint is None or not self.snapshot.policy.plugin("topology"):
            return np.ones(len(self), dtype=bool), None
        if constraint.error:
            return np.zeros(len(self), dtype=bool), None
        tree = self.trees[constraint.topology]
        return tree.member, tree.domain_at(constraint.required) if constraint.required else None

    def inside(self, scopes: Iterable[Subgroup], node: int) -> Mask:
        """[N] nodes to which a pod on ``node`` may move below these subgroups, which stay where they are."""
        mask = np.ones(len(self), dtype=bool)
        for scope in scopes:
            member, domain = self.domains_of(scope)
            mask &= member if domain is None else member & (domain == domain[node])
        return mask

    def accepted(self, pod: Pod) -> bool:
        """Whether every static rule accepts some node for the pod."""
        return self._accepted(pod)[1]

    def takes_when_empty(self, pod: Pod) -> bool:
        """Whether some node that every static rule accepts for the pod is large enough for it."""
        known = self._when_empty.get(pod.spec)
        if known is None:
            request = [0 if d == GPU and pod.spec.gpu.shares else x for d, x in enumerate(pod.spec.requests)]
            large = (self.allocatable >= request).all(axis=1)
            known = self._when_empty[pod.spec] = bool((self.accepting(pod) & large).any())
        return known

    def accepting(self, pod: Pod) -> Mask:
        """[N] nodes that every static rule lets the pod use; computed once per spec, read-only."""
        return self._accepted(pod)[0]

    @for_group(lambda _, pod: pod.group)
    def _accepted(self, pod: Pod) -> tuple[Mask, bool]:
        """``accepting``, and ``accepted``."""
        known = self._by_spec.get(pod.spec)
        if known is None:
            mask = np.ones(len(self), dtype=bool)
            for rule in STATIC_RULES:
                allowed = rule.mask(self, pod)
                if allowed is not None:
                    mask &= allowed
            mask.flags.writeable = False
            known = self._by_spec[pod.spec] = mask, bool(mask.any())
        return known


def refusing(table: NodeTable, pod: Pod) -> list[str]:
    """Why static rules refuse the pod, in words with the number of nodes, most nodes first."""
    if not len(table):
        policy = table.snapshot.policy
        pool = f" in node pool {policy.node_pool}" if policy.node_pool else ""
        labels = f"{policy.gpu_worker_label} or {policy.cpu_worker_label}"
        return [f"there is no node{pool}" + f" with the label {labels}" * policy.restrict_node_scheduling]
    counted = sorted(refusals(table, pod).items(), key=lambda item: (-item[1], item[0]))
    return [f"{count} of {len(table)} nodes: {why}" for why, count in counted]


def refusals(table: NodeTable, pod: Pod) -> dict[str, int]:
    """Why static rules refuse the pod, with the number of nodes; each node is counted once. A rule that
    refuses every node hides other rules that refuse some of them."""
    snapshot = table.snapshot
    masks = [(rule, allowed) for rule in STATIC_RULES if (allowed := rule.mask(table, pod)) is not None]
    enough = [(rule, allowed) for rule, allowed in masks if not allowed.any()]
    found: dict[str, int] = {}
    left = np.ones(len(table), dtype=bool)
    for rule, allowed in enough[:1] or masks:
        if rule is size and not allowed.all():
            # All nodes have one reason here; checking each node would cost a pass over all of them.
            return {size.too_large(snapshot, pod) or size.NAME: len(table)}
        for i in np.flatnonzero(left & ~allowed).tolist():
            why = rule.broken(snapshot, pod, snapshot.nodes[i]) or rule.NAME
            found[why] = found.get(why, 0) + 1
        left &= allowed
    return found
