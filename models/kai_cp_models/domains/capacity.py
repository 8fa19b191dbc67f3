"""Free capacity of topology domains for one batch: KAI's estimate, a bound that never refuses what fits, and
the message if no domain has enough (8.3 steps 2, 3 and 6)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kai_cp_models.arrays import Floats, Ints, Mask
from kai_cp_models.domains.tree import TopologyTree
from kai_cp_models.pods import BASE_DIMENSIONS, GPU, MILLI, PODS, GpuKind, Pod, PodSpec
from kai_cp_models.shown import amount, plural, quantity

_MAGNITUDE: Final = 100_000
_STEPS: Final = 10
_NO_ROOM: Final = 1_000.0
"""Dominant ratio to a domain with nothing free (8.3 step 3)."""


@dataclass(frozen=True)
class Demand:
    """What a batch needs: [K, D] requests of its distinct specs and how often each occurs.

    GPU entries are milli-GPUs, shares included: ``portion * devices``; shares by memory count 0.
    """

    specs: tuple[PodSpec, ...]
    requests: Ints
    counts: Ints

    @classmethod
    def of(cls, pods: Sequence[Pod]) -> Demand:
        found = Counter(pod.spec for pod in pods)
        requests = np.array([spec.requests for spec in found], dtype=np.int64)
        for i, spec in enumerate(found):
            if spec.gpu.kind is GpuKind.FRACTION:
                requests[i, GPU] = spec.gpu.milli_portion * spec.gpu.devices
        return cls(tuple(found), requests, np.array(list(found.values()), dtype=np.int64))

    @property
    def pods(self) -> int:
        """Number of pods."""
        return int(self.counts.sum())

    @property
    def total(self) -> Ints:
        """[D] sum of the requests of all pods."""
        total: Ints = self.counts @ self.requests
        return total

    @property
    def largest(self) -> Ints:
        """[D] the largest request of any pod in each dimension."""
        largest: Ints = self.requests.max(axis=0)
        return largest

    @property
    def homogeneous(self) -> bool:
        """All or none of the pods use GPU, and each extended resource (8.3 step 2)."""
        gpu = {spec.needs_gpu for spec in self.specs}
        uses = self.requests[:, len(BASE_DIMENSIONS) :] > 0
        return len(gpu) == 1 and bool((uses == uses[0]).all())


class DomainCapacity:
    """Free capacity per domain, for one batch.

    Arrays over nodes are in the order of ``tree.order``; nodes that are not ``valid`` have no capacity.
    """

    def __init__(
        self,
        tree: TopologyTree,
        valid: Mask,
        demand: Demand,
        free: Ints,
        shared_free: NDArray[np.float64],
    ) -> None:
        self.tree = tree
        self.demand = demand
        self.valid: Mask = valid[tree.order]
        # Sums and quotients go dimension by dimension.
        self.free: Ints = free.T[:, tree.order].T
        # Rounded up: the bound may be too large, never too small.
        self.shared = np.ceil(shared_free[tree.order] * MILLI - 1e-6).astype(np.int64)
        if not self.valid.all():
            self.free[~self.valid], self.shared[~self.valid] = 0, 0
        self.total = demand.total
        self.homogeneous = demand.homogeneous
        self._most = [self._most_of(i) for i in range(len(demand.specs))]
        self._node_pods = self._pods_per_node(demand.largest) if self.homogeneous else None

    def common_level(self, deepest: int) -> int:
        """The deepest level, at most ``deepest``, at which all valid nodes share one domain."""
        level = 0
        while level < deepest and np.count_nonzero(self.present(level + 1)) == 1:
            level += 1
        return level

    def eligible(self, required: int, active_nodes: Ints) -> list[Mask]:
        """For each level, the domains [domain] that running pods allow (8.3).

        ``active_nodes``: positions of the nodes of these pods.
        """
        tree = self.tree
        found = [np.ones(tree.count(level), dtype=bool) for level in range(len(tree.ids))]
        if required and len(active_nodes):
            held = tree.domain[required, active_nodes]
            found[required][:] = False
            found[required][held[held >= 0]] = True
            for level in range(required + 1, len(tree.ids)):
                found[level] = found[level - 1][tree.parent[level]]
        return found

    def present(self, level: int) -> Mask:
        """[domain] whether the domain has at least one valid node."""
        found: Mask = self._summed(level, self.valid) > 0
        return found

    def ranks(self, deepest: int) -> list[Ints]:
        """Per level down to ``deepest``, the position of every domain in tree order (8.3 step 7).

        Siblings: largest dominant ratio first, then by id.
        """
        ranks: list[Ints] = [np.zeros(1, dtype=np.int64)]
        for level in range(1, deepest + 1):
            ratio = self.ratio(level)
            order = np.lexsort((np.arange(len(ratio)), -ratio, ranks[-1][self.tree.parent[level]]))
            rank = np.empty(len(ratio), dtype=np.int64)
            rank[order] = np.arange(len(ratio))
            ranks.append(rank)
        return ranks

    def ratio(self, level: int) -> Floats:
        """[domain] dominant ratio of the whole batch to the free capacity of each domain.

        Pod slots are ignored.
        """
        dominant: Floats = np.zeros(self.tree.count(level))
        for i in np.flatnonzero(self.total).tolist():
            if i != PODS:
                free = self._summed(level, self.free[:, i])
                ratio = np.where(free > 0, self.total[i] / np.maximum(free, 1), _NO_ROOM)
                np.maximum(dominant, ratio, out=dominant)
        return dominant

    def fits(self, level: int) -> Mask:
        """[domain] whether the domain has enough free capacity by KAI's estimate (8.3)."""
        if self._node_pods is None:
            fitting: Mask = self.ratio(level) <= 1
            return fitting
        room: Mask = self._summed(level, self._node_pods) >= self.demand.pods
        return room

    def may_fit(self, level: int) -> Mask:
        """[domain] domains that no count rules out: the count of each spec alone, and the sum of all
        requests."""
        result = np.ones(self.tree.count(level), dtype=bool)
        for i in range(len(self.demand.specs)):
            result &= self._summed(level, self._most[i]) >= self.demand.counts[i]
        for i in np.flatnonzero(self.total).tolist():
            # A share may also use free portions of shared GPUs.
            free: Ints = np.maximum(self.free[:, i], 0)
            if i == GPU:
                free = free + self.shared
            result &= self._summed(level, free) >= self.total[i]
        return result

    def score(self, rank: Ints, preferred: int, common: int) -> Floats:
        """[N] topology score (8.4): preferred domains later in the order score higher, because they have more
        free capacity."""
        tree = self.tree
        above = tree.domain[common, tree.order[np.argmax(self.valid)]]
        inside = tree.domain[common] == above
        below = np.flatnonzero(np.bincount(tree.domain[preferred, inside]))
        place = np.full(tree.count(preferred), -1, dtype=np.int64)
        place[below[np.argsort(rank[below], kind="stable")]] = np.arange(len(below))
        result = np.full(len(tree.member), np.nan)
        result[inside] = _STEPS * (place[tree.domain[preferred, inside]] + 1) // len(below) * _MAGNITUDE
        return result

    def failure(self, level: int, eligible: Mask, pinned: bool) -> str:
        """Why no domain [domain] of the level has enough free capacity, with figures."""
        allowed = self.present(level) & eligible
        name = self.tree.levels[level - 1] if level else f"topology {self.tree.name}"
        where = "the domain of its running pods" if pinned else "one domain" if level else "it"
        most = "it takes" if pinned or not level else "the best takes"
        if not allowed.any():
            return f"{name}: {where} has no usable node"
        for i, spec in enumerate(self.demand.specs):
            room = int(self._summed(level, self._most[i])[allowed].max())
            if room < self.demand.counts[i]:
                asked = int(self.demand.counts[i])
                kind = "" if asked == self.demand.pods else f" with {_gpus(spec)}"
                return f"{name}: needs {plural(asked, 'pod')}{kind} in {where}; {most} {room} now"
        total, columns = self.total, np.maximum(self.free, 0).T
        free = np.array([self._summed(level, column)[allowed].max() for column in columns])
        short = int(np.argmax(total / np.maximum(free, 1)))
        pods = f"{plural(self.demand.pods, 'pod')} in {where}"
        if total[short] <= free[short]:
            return f"{name}: {pods}: each has too little of something free"
        if short >= len(BASE_DIMENSIONS):
            return f"{name}: needs more of an extended resource for {pods} than any has free"
        what = BASE_DIMENSIONS[short]
        return (
            f"{name}: needs {quantity(what, int(total[short]))} for {pods}; "
            f"{'it' if pinned or not level else 'the best'} has {amount(what, int(free[short]))} free"
        )

    def _summed(self, level: int, values: Ints | Mask) -> Ints:
        """Sums over the valid nodes of every domain of a level."""
        tree = self.tree
        summed = np.empty(tree.count(level), dtype=np.int64)
        summed[tree.started[level]] = np.add.reduceat(values, tree.starts[level], dtype=np.int64)
        return summed

    def _pods_per_node(self, request: Ints) -> Ints:
        """KAI's estimate: how many pods of one request each node takes (8.3 step 2)."""
        free = self.free
        if 0 < request[GPU] < MILLI:
            free = free.copy()
            free[:, GPU] += self.shared
        elif len(self._most) == 1 and not self.demand.specs[0].gpu.shares:
            return self._most[0]
        return quotient(free, request.tolist())

    def _most_of(self, i: int) -> Ints:
        """Per node, an upper bound on the pods of the i-th spec if placed alone."""
        gpu = self.demand.specs[i].gpu
        if not gpu.shares:
            return quotient(self.free, self.demand.requests[i].tolist())
        request, free = self.demand.requests[i].copy(), self.free.copy()
        request[GPU] = 0
        # A share may join a shared GPU although the GPU account is overdrawn.
        free[:, GPU] = np.maximum(free[:, GPU], 0) + self.shared
        portion = gpu.milli_portion * np.ones(len(free), dtype=np.int64)
        if gpu.kind is GpuKind.MEMORY:
            # A request for several devices' worth of memory still takes one device (2.3).
            portion = np.minimum(MILLI * gpu.memory_mib // self.tree.gpu_memory_mib[self.tree.order], MILLI)
        by_gpu = free[:, GPU] // np.maximum(portion * gpu.devices, 1)
        most: Ints = np.minimum(quotient(free, request.tolist()), by_gpu)
        return most


def quotient(free: Ints, request: Iterable[int]) -> Ints:
    """[N] how many pods of one request each node takes; 0 where any dimension is overdrawn."""
    room: Ints = np.full(len(free), np.iinfo(np.int64).max)
    for have, asked in zip(free.T, request, strict=True):
        if asked:
            np.minimum(room, have // asked, out=room)
        if (overdrawn := have < 0).any():
            room[overdrawn] = 0
    return room


def _gpus(spec: PodSpec) -> str:
    """The size of a spec in a message."""
    if spec.gpu.shares:
        return f"a share of {spec.gpu.devices} GPU{'s' * (spec.gpu.devices != 1)}"
    return quantity("gpu", spec.requests[GPU])
