"""A gang as the time axis sees it: parts of equal pods, the nodes they may use, and the domains they must
share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from kai_cp_models.arrays import Ints, Mask
from kai_cp_models.fairness import amounts
from kai_cp_models.fairness.amounts import Amounts
from kai_cp_models.joint.problem import Ask
from kai_cp_models.ledger import Ledger
from kai_cp_models.pods import ACTIVE_ALLOCATED, GPU, GpuKind, Pod, PodKey, PodSpec
from kai_cp_models.reservations.vectors import demand
from kai_cp_models.snapshot import Subgroup


@dataclass(frozen=True, slots=True, eq=False)
class Scope:
    """Pods that share one domain of a required level. ``domain``: [N], -1 for nodes they may not use."""

    name: str
    level: str
    domain: Ints


@dataclass(frozen=True, slots=True, eq=False)
class GangPart:
    """Equal pods of one pod set. ``need``: [D] of one pod; ``mask``: [N]; ``scopes``: by position."""

    pods: tuple[Pod, ...]
    need: Ints
    mask: Mask
    scopes: tuple[int, ...]

    @property
    def gpus(self) -> int:
        """Milli-GPUs of one pod."""
        return int(self.need[GPU])

    def capacity(self, room: Ints) -> Ints:
        """[N] how many pods fit into ``room`` [N, D]."""
        asked = np.flatnonzero(self.need)
        most = np.full(len(room), len(self.pods), dtype=np.int64)
        for d in asked:
            most = np.minimum(most, room[:, d] // self.need[d])
        return np.where(self.mask, np.maximum(most, 0), 0)


@dataclass(frozen=True, eq=False)
class GangNeeds:
    """What an ask needs of nodes, and what it costs its queue."""

    parts: tuple[GangPart, ...]
    scopes: tuple[Scope, ...]
    cost: Amounts

    @property
    def simple(self) -> bool:
        """Whether its pods are equal and share at most one domain, so that counting decides whether they
        fit."""
        return len(self.parts) == 1 and len(self.parts[0].scopes) <= 1

    @cached_property
    def pods(self) -> tuple[Pod, ...]:
        """All pods, part by part."""
        return tuple(pod for part in self.parts for pod in part.pods)

    def fits(self, nodes: Mapping[PodKey, int], room: Ints) -> bool:
        """Whether the pods fit into ``room`` [N, D] on these nodes, in one domain of every scope."""
        left = room.copy()
        for part in self.parts:
            for pod in part.pods:
                node = nodes[pod.key]
                left[node] -= part.need
                if not part.mask[node] or (left[node][part.need > 0] < 0).any():
                    return False
        for s, scope in enumerate(self.scopes):
            together = [pod for part in self.parts if s in part.scopes for pod in part.pods]
            if len({int(scope.domain[nodes[pod.key]]) for pod in together}) > 1:
                return False
        return True

    @cached_property
    def milli_gpus(self) -> int:
        """Milli-GPUs of all pods."""
        return sum(part.gpus * len(part.pods) for part in self.parts)


def unsuited(ledger: Ledger, ask: Ask) -> str:
    """Why no capacity can be kept for the ask; "" if it can. Only whole GPUs are planned ahead (section
    12)."""
    for pod in ask.pods:
        if pod.spec.gpu.shares or pod.spec.gpu.kind is GpuKind.MIG:
            return "only gangs of whole GPUs hold reservations"
        if pod.spec.claims:
            return "gangs that ask for devices by claim hold no reservation"
    return ""


def shape_of(ledger: Ledger, ask: Ask) -> GangNeeds:
    """The shape of an ask."""
    scopes: list[Scope] = []
    known: dict[str, int] = {}
    grouped: dict[tuple[str, PodSpec], tuple[tuple[int, ...], list[Pod], Mask]] = {}
    for above, leaf in ask.batch.leaves:
        inside: Mask = np.ones(len(ledger.idle), dtype=bool)
        positions: list[int] = []
        for subgroup in above:
            member, domain = ledger.fixed.table.domains_of(subgroup)
            inside = inside & member
            if domain is not None:
                if subgroup.name not in known:
                    known[subgroup.name] = len(scopes)
                    scopes.append(_scope(ledger, ask, subgroup, domain))
                positions.append(known[subgroup.name])
        for pod in leaf.pods:
            key = (leaf.subgroup.name, pod.spec)
            if key not in grouped:
                grouped[key] = (tuple(positions), [], ledger.fixed.table.accepting(pod) & inside)
            grouped[key][1].append(pod)
    parts = tuple(
        GangPart(tuple(pods), demand(pods[0]), _within(mask, positions, scopes), positions)
        for positions, pods, mask in grouped.values()
    )
    cost = amounts.optimistic_batch(ledger.snapshot, [pod for part in parts for pod in part.pods])
    return GangNeeds(parts, tuple(scopes), cost)


def _within(mask: Mask, positions: Sequence[int], scopes: Sequence[Scope]) -> Mask:
    for position in positions:
        mask = mask & (scopes[position].domain >= 0)
    return mask


def _scope(ledger: Ledger, ask: Ask, subgroup: Subgroup, domain: Ints) -> Scope:
    """The scope of a subgroup, pinned to the domain of its running pods."""
    started = {
        int(domain[place[0]])
        for pod in ask.gang.pods_below(subgroup)
        if ledger.status(pod) in ACTIVE_ALLOCATED and (place := ledger.place_of(pod)) is not None
    }
    if started:
        domain = np.where(np.isin(domain, sorted(started)), domain, -1)
    assert subgroup.constraint is not None
    return Scope(subgroup.name, subgroup.constraint.required, domain)
