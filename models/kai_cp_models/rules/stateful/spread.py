"""Topology spread (``DoNotSchedule``), an option that KAI lacks: hard when on.

A pod may enter a domain if the number of matching pods there, the pod included, exceeds the smallest number
in any eligible domain by at most ``maxSkew``. If there are fewer eligible domains than ``minDomains``, the
smallest number is taken as 0. A node counts if it has all topology labels of the pod; if the pod's node
selector and affinity allow it, unless ``nodeAffinityPolicy`` is Ignore; and if the pod tolerates its taints,
where ``nodeTaintsPolicy`` is Honor. The domains of these nodes are eligible. Matching pods are those on such
nodes, in the pod's namespace, that the constraint's selector selects.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kai_cp_models.arrays import Ints, Mask
from kai_cp_models.pods import LabelSelector, Pod, PodKey, PodSpec, SpreadConstraint
from kai_cp_models.rules.stateful.protocol import Row, RuleState
from kai_cp_models.rules.stateful.tally import Effect, TalliedState
from kai_cp_models.rules.stateful.terms import Domains
from kai_cp_models.rules.static import selector, taints
from kai_cp_models.rules.static.table import NodeTable
from kai_cp_models.selectors import selects
from kai_cp_models.settings import OptionalRules
from kai_cp_models.shown import plural
from kai_cp_models.snapshot import SetAside, Snapshot

NAME: Final = "spread"
MOST_DOMAINS: Final = 24
"""The most domains of a topology key for which the rule is stated as rows (one for each pair)."""


@dataclass(frozen=True, slots=True)
class SelectedCount:
    """Counts the pods of a namespace that a selector selects, by domain; ``nodes``: the number of the set of
    nodes that count."""

    namespace: str
    selector: LabelSelector | None
    topology_key: str
    nodes: int


def active(snapshot: Snapshot, options: OptionalRules) -> bool:
    """Whether the option is on and any pod has a constraint."""
    return options.topology_spread and any(spec.spread for spec in snapshot.specs)


def open(snapshot: Snapshot) -> RuleState:
    """Matching pods per domain."""
    return SpreadState(snapshot)


def set_aside(snapshot: Snapshot) -> Iterator[SetAside]:
    """Spread constraints have no objects of their own."""
    yield from ()


class SpreadState(TalliedState):
    """Matching pods per domain of every constraint."""

    name = NAME
    family = "spread"

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__(snapshot)
        self.domains = Domains(snapshot)
        self._table = NodeTable(snapshot)
        self._counted: dict[bytes, int] = {}
        """A number for each set of nodes on which pods count: the domains of these nodes, -1 on all
        others."""
        self._domains: list[Ints] = []
        """[N] by that number."""
        self._key_of: dict[tuple[str, PodSpec, SpreadConstraint], SelectedCount] = {}
        self._keys = tuple({self._key(p, c): None for p in snapshot.pods for c in p.spec.spread})
        self._effects_of: dict[tuple[object, ...], tuple[Effect, ...]] = {}
        self.placed: dict[PodKey, tuple[Pod, int]] = {}
        """Pods with constraints that this cycle places, and their nodes."""
        self._load()

    def _size(self, key: Hashable) -> int:
        assert isinstance(key, SelectedCount)
        return self.domains.count(key.topology_key)

    def _where(self, key: Hashable, node: int) -> int:
        assert isinstance(key, SelectedCount)
        return int(self._domains[key.nodes][node])

    def _key(self, pod: Pod, constraint: SpreadConstraint) -> SelectedCount:
        """What a constraint of the pod counts."""
        one = pod.key.namespace, pod.spec, constraint
        if one not in self._key_of:
            domains = self._of_counted(pod, constraint)
            number = self._counted.setdefault(domains.tobytes(), len(self._domains))
            if number == len(self._domains):
                self._domains.append(domains)
            self._key_of[one] = SelectedCount(
                pod.key.namespace, constraint.selector, constraint.topology_key, number
            )
        return self._key_of[one]

    def _of_counted(self, pod: Pod, constraint: SpreadConstraint) -> Ints:
        """[N] the domain of each node that counts for the constraint; -1: it does not."""
        domains = self.domains.of(constraint.topology_key)
        nodes = np.all([self.domains.of(c.topology_key) >= 0 for c in pod.spec.spread], axis=0)
        if constraint.honors_affinity and (allowed := selector.mask(self._table, pod)) is not None:
            nodes = nodes & allowed
        if constraint.honors_taints and (tolerated := taints.mask(self._table, pod)) is not None:
            nodes = nodes & tolerated
        found: Ints = np.where(nodes, domains, -1)
        return found

    def _effects(self, pod: Pod) -> Iterable[Effect]:
        identity = (pod.key.namespace, tuple(sorted(pod.labels.items())))
        if identity not in self._effects_of:
            self._effects_of[identity] = tuple(
                (key, 1)
                for key in self._keys
                if key.namespace == pod.key.namespace and selects(key.selector, pod.labels)
            )
        return self._effects_of[identity]

    def concerns(self, pod: Pod) -> bool:
        return bool(pod.spec.spread) or super().concerns(pod)

    def identity(self, pod: Pod) -> Hashable:
        return (tuple(self._effects(pod)), pod.key.namespace if pod.spec.spread else "")

    def opened_by(self, pod: Pod, other: Pod | None = None) -> bool:
        return any(
            other is None or (pod.key.namespace == other.key.namespace and selects(c.selector, other.labels))
            for c in pod.spec.spread
        )

    def mask(self, pod: Pod, *, now: bool) -> Mask | None:
        mask: Mask | None = None
        for constraint in pod.spec.spread:
            allowed = self._allowed(pod, constraint, now=now)
            mask = allowed if mask is None else mask & allowed
        if pod.key in self.left and pod.node is not None:
            mask = np.ones(len(self.snapshot.nodes), dtype=np.bool_) if mask is None else mask
            mask[self.snapshot.node_index[pod.node]] = self._may_stay(pod)
        return mask

    def _may_stay(self, pod: Pod) -> bool:
        """Whether an evicted pod can return to its node, which undoes the eviction.

        Then it never left: its own constraints are not checked, but those of pods placed meanwhile are.
        """
        assert pod.node is not None
        home = self.snapshot.node_index[pod.node]
        self._count(pod, home, 1, leaving=False)
        allowed = all(
            self._skew(other, constraint, node) <= constraint.max_skew
            for other, node in self.placed.values()
            for constraint in other.spec.spread
        )
        self._count(pod, home, -1, leaving=False)
        return allowed

    def _skew(self, pod: Pod, constraint: SpreadConstraint, node: int) -> int:
        """By how much the placed pod's domain exceeds the emptiest one."""
        counts = self._counts(pod, constraint, now=False)
        here = counts[self.domains.of(constraint.topology_key)[node]]
        return int(here - self._least(pod, constraint, counts))

    def detach(self) -> None:
        super().detach()
        self.placed = dict(self.placed)

    def place(self, pod: Pod, node: int, *, pipelined: bool) -> None:
        if pod.spec.spread:
            self.placed[pod.key] = (pod, node)
        super().place(pod, node, pipelined=pipelined)

    def remove(self, pod: Pod, node: int) -> None:
        self.placed.pop(pod.key, None)
        super().remove(pod, node)

    def _allowed(self, pod: Pod, constraint: SpreadConstraint, *, now: bool) -> Mask:
        domains = self.domains.of(constraint.topology_key)
        counts = self._counts(pod, constraint, now=now)
        most = self._least(pod, constraint, counts) + constraint.max_skew - self._own(pod, constraint)
        allowed: Mask = domains >= 0
        allowed[allowed] = counts[domains[allowed]] <= most
        return allowed

    def _counts(self, pod: Pod, constraint: SpreadConstraint, *, now: bool) -> NDArray[np.int64]:
        key = self._key(pod, constraint)
        found = self.tally.counts(key, now=now)
        return np.zeros(self._size(key), dtype=np.int64) if found is None else found

    def _own(self, pod: Pod, constraint: SpreadConstraint) -> int:
        """1 if the pod itself is counted."""
        return int(selects(constraint.selector, pod.labels))

    def _eligible(self, pod: Pod, constraint: SpreadConstraint) -> Ints:
        """The domains of the nodes that count; none where they are fewer than the constraint asks for."""
        domains = self._domains[self._key(pod, constraint).nodes]
        found: Ints = np.unique(domains[domains >= 0])
        return found if len(found) >= constraint.least_domains else found[:0]

    def _least(self, pod: Pod, constraint: SpreadConstraint, counts: Ints) -> int:
        """The smallest number in an eligible domain."""
        eligible = self._eligible(pod, constraint)
        return int(counts[eligible].min()) if len(eligible) else 0

    def refusals(self, pod: Pod) -> str:
        mask = self.mask(pod, now=True)
        refused = 0 if mask is None else int(np.count_nonzero(~mask))
        return f"pod topology spread constraints refuse {plural(refused, 'node')}" if refused else ""

    def rows(self, classes: Sequence[Pod], sizes: Sequence[int], nodes: Sequence[int]) -> Iterable[Row]:
        """Relaxed: for each class and pair of eligible domains, how the class's matching pods change the skew
        if no pod leaves the emptier domain; not for keys with many domains."""
        for c, pod in enumerate(classes):
            for constraint in pod.spec.spread:
                count = self.domains.count(constraint.topology_key)
                if count <= MOST_DOMAINS and self._own(pod, constraint):
                    yield from self._pairs(c, constraint, classes, sizes[c], nodes)

    def _pairs(
        self,
        c: int,
        constraint: SpreadConstraint,
        classes: Sequence[Pod],
        most: int,
        nodes: Sequence[int],
    ) -> Iterator[Row]:
        pod = classes[c]
        key = self._key(pod, constraint)
        domains = self._domains[key.nodes]
        counts = self._counts(pod, constraint, now=False)
        matching = [d for d, other in enumerate(classes) if any(k == key for k, _ in self._effects(other))]
        held: dict[int, list[PodKey]] = {}
        for other, node in self._staying():
            if domains[node] >= 0 and any(k == key for k, _ in self._effects(other)):
                held.setdefault(int(domains[node]), []).append(other.key)
        lows = self._eligible(pod, constraint).tolist()
        for full in np.unique(domains[list(nodes)][domains[list(nodes)] >= 0]).tolist():
            # No domain is -2: then 0 is the smallest number.
            for low in lows or (-2,):
                if full == low:
                    continue
                room = int(constraint.max_skew + (counts[low] if lows else 0) - counts[full])
                # For each pod that enters beyond ``room``, one leaves, or one enters the emptier domain.
                each, scale = (1, 1) if room >= 0 else (most - room, most)
                cells = {(c, node): each for node in nodes if domains[node] == full}
                cells |= {(d, node): -scale for d in matching for node in nodes if domains[node] == low}
                leaving = dict.fromkeys(held.get(full, ()), scale)
                yield Row(cells, max(room, 0), leaving, NAME)
