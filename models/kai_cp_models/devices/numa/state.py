"""The NUMA rule's state: what the zones of every node have left (6, plugin ``numa``)."""

from __future__ import annotations

import copy
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kai_cp_models.devices.numa.spans import Amounts, first_set, spans, spread_over
from kai_cp_models.devices.numa.zones import NONE, RESTRICTED, SINGLE, dimension, in_milli, is_device, parse
from kai_cp_models.devices.protocol import Mask, Row, RuleState, Scores
from kai_cp_models.devices.remembered import Remembered
from kai_cp_models.devices.tally import holding
from kai_cp_models.snapshot import MILLI, Pod, PodKey, PodSpec, PodStatus, SetAside, Snapshot

NAME: Final = "numa"
SCORE: Final = 100.0
"""Score of a node on which the pod needs one zone (6)."""


class NumaState(RuleState):
    """Amounts in use per zone, staying and leaving, and where the cycle's pods are expected."""

    name = NAME

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        problems: list[SetAside] = []
        self.zones = parse(snapshot, problems)
        self.problems = tuple(problems)
        policy = snapshot.policy
        ignored = {dimension(name) for name in policy.numa_ignore}
        self._aligned = np.array([name not in ignored for name in snapshot.dimensions], dtype=np.bool_)
        self._device = np.array([is_device(name) for name in snapshot.dimensions], dtype=np.bool_)
        self._position = {name: i for i, name in enumerate(snapshot.dimensions)}
        self._refusing = (self.zones.policy == SINGLE) | (self.zones.policy == RESTRICTED)
        self._scored = (self.zones.policy != "") & (self.zones.policy != NONE)
        self._used = (np.zeros_like(self.zones.allocatable), np.zeros_like(self.zones.allocatable))
        self._any_refusing, self._all_refusing = bool(self._refusing.any()), bool(self._refusing.all())
        self._any_scored = bool(self._scored.any())
        self._remembered = Remembered(len(snapshot.nodes))
        self._asking: dict[int, bool] = {}
        self._fits_empty: dict[int, bool] = {}
        self._placed: dict[PodKey, tuple[int, Amounts]] = {}
        self._left: set[PodKey] = set()
        total = np.zeros_like(self.zones.allocatable)
        for pod, node, leaving in holding(snapshot):
            known = self._known(pod, node)
            if known is not None:
                self._used[leaving][node] += known
                total[node] += known
        # A reported availability already lacks what the known pods use.
        self._base = self.zones.allocatable if policy.numa_reconstruct else self.zones.available + total

    def copy(self) -> NumaState:
        twin = copy.copy(self)
        twin.detach()
        return twin

    def detach(self) -> None:
        """Own what changes, after a shallow copy."""
        self._used = (self._used[0].copy(), self._used[1].copy())
        self._remembered = self._remembered.copy()
        self._placed = dict(self._placed)
        self._left = set(self._left)

    # --- amounts -----------------------------------------------------------------------------------

    def _known(self, pod: Pod, node: int) -> Amounts | None:
        """[Z, D] what a pod is known to use on its node; None: nothing is known."""
        names = self.zones.names.get(node)
        if names is None or not pod.numa_zones:
            return None
        used: Amounts = np.zeros_like(self.zones.allocatable[node])
        for zone, amounts in pod.numa_zones:
            for name, amount in amounts:
                if zone in names and name in self._position:
                    used[names.index(zone), self._position[name]] += amount
        return used

    def _wanted(self, spec: PodSpec, requests: Sequence[int]) -> Amounts:
        """[D] what is aligned: everything of a Guaranteed pod, devices of any pod."""
        amounts = np.array(requests, dtype=np.int64)
        wanted: Amounts = np.where(
            self._aligned if spec.guaranteed else self._aligned & self._device, amounts, 0
        )
        return wanted

    def _free(self, nodes: int | NDArray[np.int64], *, now: bool) -> Amounts:
        """What the zones of some nodes have left."""
        free: Amounts = self._base[nodes] - self._used[0][nodes]
        return free - self._used[1][nodes] if now else free

    def _asks(self, spec: PodSpec) -> bool:
        """Whether anything of the pod is aligned."""
        if id(spec) not in self._asking:
            self._asking[id(spec)] = bool(self._wanted(spec, spec.requests).any())
        return self._asking[id(spec)]

    def concerns(self, pod: Pod) -> bool:
        return bool(pod.numa_zones) or self._asks(pod.spec)

    def identity(self, pod: Pod) -> Hashable:
        return None

    # --- which nodes -----------------------------------------------------------------------------

    def mask(self, pod: Pod, *, now: bool) -> Mask | None:
        back = self._own_node(pod)
        if back is None and not (self._any_refusing and self._asks(pod.spec)):
            return None
        mask: Mask = self._remembered.answer(
            (id(pod.spec), now), lambda nodes: self._accepting(pod.spec, nodes, self._free(nodes, now=now))
        )
        if back is not None:
            node, known = back
            mask = mask.copy()
            mask[node] = bool((known <= np.maximum(self._free(node, now=now), 0)).all())
        return mask

    def _own_node(self, pod: Pod) -> tuple[int, Amounts] | None:
        """Node and zones of an evicted pod: if it returns there its eviction is taken back, so that it
        keeps its zones."""
        if pod.key not in self._left or pod.node is None:
            return None
        node = self.snapshot.node_index[pod.node]
        known = self._known(pod, node)
        return None if known is None else (node, known)

    def _accepting(self, spec: PodSpec, nodes: NDArray[np.int64], free: Amounts) -> Mask:
        """Of some nodes those whose policy admits a pod, with so much free in their zones."""
        mask = np.ones(len(nodes), dtype=np.bool_)
        for scope, demands in self._parts(spec):
            chosen = np.flatnonzero((scope & self._refusing)[nodes])
            if chosen.size:
                mask[chosen] = self._align(nodes[chosen], free[chosen], demands)
        return mask

    def _parts(self, spec: PodSpec) -> Iterable[tuple[Mask, list[Amounts]]]:
        """Nodes by scope, with the demands that are aligned one after the other there."""
        containers = (
            self.zones.by_container if len(spec.container_requests) > 1 else np.zeros_like(self._refusing)
        )
        yield ~containers, [self._wanted(spec, spec.requests)]
        if containers.any():
            yield containers, [self._wanted(spec, row) for row in spec.container_requests]

    def _align(self, nodes: NDArray[np.int64], free: Amounts, demands: Sequence[Amounts]) -> Mask:
        exists, listed = self.zones.exists[nodes], self.zones.listed[nodes]
        if len(demands) == 1:
            demand = np.where(listed, demands[0], 0)
            return self._narrow_enough(nodes, free, demand)
        mask = np.ones(len(nodes), dtype=np.bool_)
        left = free.copy()
        for each in demands:
            demand = np.where(listed, each, 0)
            mask &= self._narrow_enough(nodes, left, demand)
            for i in np.flatnonzero(mask):
                chosen = first_set(left[i], demand[i], int(exists[i].sum()))
                left[i] -= spread_over(left[i], demand[i], chosen)
        return mask

    def _narrow_enough(self, nodes: NDArray[np.int64], free: Amounts, demand: Amounts) -> Mask:
        """Single: one zone holds the demand. Restricted: no more zones than an empty node would need."""
        exists = self.zones.exists[nodes]
        restricted = self.zones.policy[nodes] == RESTRICTED
        widest = free.shape[1] if restricted.any() else 1
        have = spans(free, demand, exists, widest=widest)
        if not restricted.any():
            single: Mask = have == 1
            return single
        least = spans(self.zones.allocatable[nodes], demand, exists, widest=widest)
        narrow: Mask = (have > 0) & (have == np.where(restricted, least, 1))
        return narrow

    def score(self, pod: Pod) -> Scores | None:
        if not self._any_scored or not self._asks(pod.spec):
            return None
        wanted = self._wanted(pod.spec, pod.spec.requests)
        worst = max(self.zones.exists.shape[1], 1)

        def compute(nodes: NDArray[np.int64]) -> Scores:
            demand = np.where(self.zones.listed[nodes], wanted, 0)
            found = spans(self._free(nodes, now=False), demand, self.zones.exists[nodes], widest=worst)
            score: Scores = SCORE / np.where(self._scored[nodes] & (found > 0), found, worst)
            return score

        return self._remembered.answer((id(pod.spec), "score"), compute)

    # --- pods come and go ----------------------------------------------------------------------

    def place(self, pod: Pod, node: int, *, pipelined: bool) -> Mapping[str, Any]:
        given = self._expected(pod, node, now=not pipelined)
        self._placed[pod.key] = (node, given)
        self._used[0][node] += given
        self._remembered.change(node)
        names, resources = self.zones.names.get(node, ()), self.zones.resources.get(node, {})
        zones = [
            {"zone": name, "amount": self._written(given[z], resources)}
            for z, name in enumerate(names)
            if given[z].any()
        ]
        return {"numaZones": zones} if zones else {}

    def _expected(self, pod: Pod, node: int, *, now: bool) -> Amounts:
        """[Z, D] where the kubelet is expected to put the pod: the lowest of the smallest zone sets."""
        given: Amounts = np.zeros_like(self.zones.allocatable[node])
        back = self._own_node(pod)
        if back is not None and back[0] == node:
            return back[1]
        if not self._scored[node]:
            return given
        free = self._free(node, now=now)
        zones = int(self.zones.exists[node].sum())
        for nodes, demands in self._parts(pod.spec):
            for each in demands if nodes[node] else ():
                demand = np.where(self.zones.listed[node], each, 0)
                if demand.any():
                    given += spread_over(free - given, demand, first_set(free - given, demand, zones))
        return given

    def _written(self, amounts: Amounts, resources: Mapping[str, str]) -> dict[str, str]:
        found = {}
        for name, amount in zip(self.snapshot.dimensions, amounts.tolist(), strict=True):
            if amount:
                whole, rest = divmod(amount, MILLI)
                milli = f"{amount}m" if rest else str(whole)
                found[resources.get(name, name)] = milli if in_milli(name) else str(amount)
        return found

    def remove(self, pod: Pod, node: int) -> None:
        place = self._placed.pop(pod.key, None)
        if place is not None:
            self._used[0][place[0]] -= place[1]
            self._remembered.change(place[0])

    def evict(self, pod: Pod) -> None:
        self._leave(pod, 1)
        self._left.add(pod.key)

    def unevict(self, pod: Pod) -> None:
        self._leave(pod, -1)
        self._left.discard(pod.key)

    def _leave(self, pod: Pod, sign: int) -> None:
        if pod.node is None or pod.status is PodStatus.RELEASING:
            return
        node = self.snapshot.node_index[pod.node]
        known = self._known(pod, node)
        if known is not None:
            self._used[0][node] -= sign * known
            self._used[1][node] += sign * known
            self._remembered.change(node)

    # --- words and rows ----------------------------------------------------------------------------

    def refusals(self, pod: Pod) -> str:
        mask = self.mask(pod, now=True)
        refused = 0 if mask is None else int(np.count_nonzero(~mask))
        if not refused:
            return ""
        return f"{refused} node(s) cannot NUMA-align the pod's resources under their Topology Manager policy"

    def dead_end(self, pod: Pod) -> str:
        if not self._all_refusing or not self._asks(pod.spec):
            return ""
        if id(pod.spec) not in self._fits_empty:
            every = np.arange(len(self.snapshot.nodes), dtype=np.int64)
            fits = self._accepting(pod.spec, every, self.zones.allocatable)
            self._fits_empty[id(pod.spec)] = bool(fits.any())
        if self._fits_empty[id(pod.spec)]:
            return ""
        return "no node could NUMA-align the pod's resources under its Topology Manager policy, even if empty"

    def rows(self, classes: Sequence[Pod], sizes: Sequence[int], nodes: Sequence[int]) -> Iterable[Row]:
        """Relaxed: per class, no more pods than its zones hold one class at a time; only on nodes with
        policy ``single-numa-node`` and pod scope. How classes share zones is left to ``place``."""
        free = np.maximum(self._base - self._used[0], 0)
        leaving = [
            (pod.key, node, known)
            for pod, node, gone in holding(self.snapshot)
            if not gone and pod.key not in self._left and (known := self._known(pod, node)) is not None
        ]
        for c, pod in enumerate(classes):
            wanted = self._wanted(pod.spec, pod.spec.requests)
            for node in nodes:
                if self.zones.policy[node] != SINGLE or self.zones.by_container[node]:
                    continue
                demand = np.where(self.zones.listed[node], wanted, 0)
                asked = demand > 0
                if asked.any():
                    hold = (free[node][:, asked] // demand[asked]).min(axis=1)
                    yield Row(
                        {(c, node): 1},
                        int(hold[self.zones.exists[node]].sum()),
                        {
                            key: int((-(-known[:, asked] // demand[asked])).max(axis=1).sum())
                            for key, where, known in leaving
                            if where == node
                        },
                        NAME,
                    )
