"""The NUMA rule's state: the free amounts of the zones of every node (6, plugin ``numa``)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kai_cp_models.arrays import Floats, Ints, Mask
from kai_cp_models.pods import MILLI, Pod, PodKey, PodSpec, PodStatus
from kai_cp_models.records.zones import NONE, RESTRICTED, SINGLE, dimension, in_milli
from kai_cp_models.rules.stateful.incremental_cache import IncrementalCache
from kai_cp_models.rules.stateful.numa.spans import first_set, left_out, spans, spread_over
from kai_cp_models.rules.stateful.numa.zones import is_device, zones_of
from kai_cp_models.rules.stateful.protocol import LeavingState, Row
from kai_cp_models.rules.stateful.tally import holding
from kai_cp_models.shown import plural
from kai_cp_models.snapshot import Snapshot

NAME: Final = "numa"
SCORE: Final = 100.0
"""Score of a node on which the pod needs one zone (6)."""


class NumaState(LeavingState):
    """Amounts in use per zone, of staying and leaving pods, and the expected zones of the cycle's pods.

    A node's answer depends only on its zones and the free amounts there. These states are numbered, and each
    is evaluated once per demand, because even a large cluster has few of them.
    """

    name = NAME
    family = "numa"
    dead_end_reason = "NoNodeAccepts"
    of_one_node = True

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__()
        self.snapshot = snapshot
        self.zones = zones_of(snapshot)
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
        self._remembered = IncrementalCache(len(snapshot.nodes))
        self._kinds = self.zones.kinds()
        self._states: dict[tuple[int, bytes], int] = {}
        self._answers: dict[Hashable, dict[int, Any]] = {}
        self._demands: dict[PodSpec, Hashable] = {}
        self._fits_empty: dict[Hashable, bool] = {}
        self._placed: dict[PodKey, tuple[int, Ints]] = {}
        total = np.zeros_like(self.zones.allocatable)
        for pod, node, leaving in holding(snapshot):
            known = self._known(pod, node)
            if known is not None:
                self._used[leaving][node] += known
                total[node] += known
        # A reported availability already lacks what the known pods use.
        self._base = self.zones.allocatable if policy.numa_reconstruct else self.zones.available + total
        self._more: tuple[dict[int, Ints], dict[int, Ints]] = ({}, {})
        """What the cycle adds to ``_used``, by node."""

    def detach(self) -> None:
        super().detach()
        self._more = (dict(self._more[0]), dict(self._more[1]))
        self._remembered = self._remembered.copy()
        self._placed = dict(self._placed)

    # --- amounts -----------------------------------------------------------------------------------

    def _known(self, pod: Pod, node: int) -> Ints | None:
        """[Z, D] the known use of a pod on its node; None if it is not known."""
        names = self.zones.names.get(node)
        if names is None or not pod.numa_zones:
            return None
        used: Ints = np.zeros_like(self.zones.allocatable[node])
        for zone, amounts in pod.numa_zones:
            for name, amount in amounts:
                if zone in names and name in self._position:
                    used[names.index(zone), self._position[name]] += amount
        # The pod's owner may write any amounts, so in all zones together it counts at most what it asks for.
        left = np.array(pod.spec.requests, dtype=np.int64) - (used.cumsum(axis=0) - used)
        return np.clip(used, 0, np.maximum(left, 0))

    def _wanted(self, spec: PodSpec, requests: Sequence[int]) -> Ints:
        """[D] the amounts to align: all requests of a Guaranteed pod, the devices of any pod."""
        amounts = np.array(requests, dtype=np.int64)
        wanted: Ints = np.where(
            self._aligned if spec.guaranteed else self._aligned & self._device, amounts, 0
        )
        return wanted

    def _free(self, nodes: NDArray[np.int64], *, now: bool) -> Ints:
        """[n, Z, D] the free amounts in the zones of some nodes."""
        free: Ints = self._base[nodes] - self._used[0][nodes]
        if now:
            free -= self._used[1][nodes]
        for more in self._more if now else self._more[:1]:
            if more:
                for i, node in enumerate(nodes.tolist()):
                    if node in more:
                        free[i] -= more[node]
        return free

    def _use(self, node: int, amounts: Ints, *, leaving: bool) -> None:
        """Add to the amounts in use on a node."""
        more = self._more[leaving]
        more[node] = more[node] + amounts if node in more else amounts
        self._remembered.change(node)

    def _asks(self, spec: PodSpec) -> bool:
        """Whether anything of the pod is aligned."""
        return self._demand(spec) is not None

    def _demand(self, spec: PodSpec) -> Hashable:
        """A key that is equal for pods that align the same amounts; None if nothing is aligned."""
        if spec not in self._demands:
            pod, containers = spec.requests, spec.container_requests
            parts = [self._wanted(spec, row).tobytes() for row in (pod, *containers)]
            self._demands[spec] = tuple(parts) if self._wanted(spec, pod).any() else None
        return self._demands[spec]

    def _numbers(self, *, now: bool) -> NDArray[np.int64]:
        """[N] the number of each node's state."""

        def numbered(nodes: NDArray[np.int64]) -> NDArray[np.int64]:
            states, kinds = self._states, self._kinds[nodes].tolist()
            rows = [row.tobytes() for row in self._free(nodes, now=now)]
            found = [states.setdefault(key, len(states)) for key in zip(kinds, rows, strict=True)]
            return np.array(found, dtype=np.int64)

        return self._remembered.answer(("state", now), numbered)

    def _answer(
        self, what: Hashable, now: bool, ask: Callable[[NDArray[np.int64]], NDArray[Any]]
    ) -> NDArray[Any]:
        """[N] the result of ``ask`` for every node; it is called for one node of every new state."""

        def compute(nodes: NDArray[np.int64]) -> NDArray[Any]:
            known = self._answers.setdefault(what, {})
            numbers = self._numbers(now=now)[nodes].tolist()
            new = {
                number: node
                for number, node in zip(numbers, nodes.tolist(), strict=True)
                if number not in known
            }
            if new:
                known |= zip(new, ask(np.array(list(new.values()), dtype=np.int64)).tolist(), strict=True)
            return np.array([known[number] for number in numbers])

        return self._remembered.answer((what, now), compute)

    def concerns(self, pod: Pod) -> bool:
        return bool(pod.numa_zones) or self._asks(pod.spec)

    def identity(self, pod: Pod) -> Hashable:
        return None

    # --- which nodes -----------------------------------------------------------------------------

    def mask(self, pod: Pod, *, now: bool) -> Mask | None:
        back = self._own_node(pod)
        if back is None and not (self._any_refusing and self._asks(pod.spec)):
            return None
        mask: Mask = self._answer(
            (self._demand(pod.spec), "fits"),
            now,
            lambda nodes: self._accepting(pod.spec, nodes, self._free(nodes, now=now)),
        )
        if back is not None:
            node, known = back
            mask = mask.copy()
            mask[node] = bool((known <= np.maximum(self._free(np.array([node]), now=now)[0], 0)).all())
        return mask

    def _own_node(self, pod: Pod) -> tuple[int, Ints] | None:
        """Node and zones of an evicted pod. If the pod returns there, its eviction is taken back, so it keeps
        its zones."""
        if pod.key not in self.left or pod.node is None:
            return None
        node = self.snapshot.node_index[pod.node]
        known = self._known(pod, node)
        return None if known is None else (node, known)

    def _accepting(self, spec: PodSpec, nodes: NDArray[np.int64], free: Ints) -> Mask:
        """Those of some nodes whose policy admits a pod, given the free amounts in their zones."""
        mask = np.ones(len(nodes), dtype=np.bool_)
        for scope, demands in self._parts(spec):
            chosen = np.flatnonzero((scope & self._refusing)[nodes])
            if chosen.size:
                mask[chosen] = self._align(nodes[chosen], free[chosen], demands)
        return mask

    def _parts(self, spec: PodSpec) -> Iterable[tuple[Mask, list[Ints]]]:
        """Nodes by scope, with the demands that are aligned one after the other there."""
        containers = (
            self.zones.by_container if len(spec.container_requests) > 1 else np.zeros_like(self._refusing)
        )
        yield ~containers, [self._wanted(spec, spec.requests)]
        if containers.any():
            yield containers, [self._wanted(spec, row) for row in spec.container_requests]

    def _align(self, nodes: NDArray[np.int64], free: Ints, demands: Sequence[Ints]) -> Mask:
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

    def _narrow_enough(self, nodes: NDArray[np.int64], free: Ints, demand: Ints) -> Mask:
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

    def score(self, pod: Pod) -> Floats | None:
        if not self._any_scored or not self._asks(pod.spec):
            return None
        wanted = self._wanted(pod.spec, pod.spec.requests)
        worst = max(self.zones.exists.shape[1], 1)

        def spanning(nodes: NDArray[np.int64]) -> Floats:
            demand = np.where(self.zones.listed[nodes], wanted, 0)
            found = spans(self._free(nodes, now=False), demand, self.zones.exists[nodes], widest=worst)
            score: Floats = SCORE / np.where(self._scored[nodes] & (found > 0), found, worst)
            return score

        return self._answer((self._demand(pod.spec), "score"), False, spanning)

    # --- pods come and go ----------------------------------------------------------------------

    def place(self, pod: Pod, node: int, *, pipelined: bool) -> None:
        given = self._expected(pod, node, now=not pipelined)
        self._placed[pod.key] = (node, given)
        if given.any():
            self._use(node, given, leaving=False)

    def details(self, pod: Pod, node: int) -> Mapping[str, Any]:
        """The zones that the kubelet is expected to choose, and what the pod takes of each."""
        given = self._placed[pod.key][1]
        names, resources = self.zones.names.get(node, ()), self.zones.resources.get(node, {})
        zones = [
            {"zone": name, "amount": self._written(given[z], resources)}
            for z, name in enumerate(names)
            if given[z].any()
        ]
        return {"numaZones": zones} if zones else {}

    def _expected(self, pod: Pod, node: int, *, now: bool) -> Ints:
        """[Z, D] where the kubelet is expected to put the pod: the lowest of the smallest zone sets."""
        given: Ints = np.zeros_like(self.zones.allocatable[node])
        back = self._own_node(pod)
        if back is not None and back[0] == node:
            return back[1]
        if not self._scored[node]:
            return given
        free = self._free(np.array([node]), now=now)[0]
        zones = int(self.zones.exists[node].sum())
        for nodes, demands in self._parts(pod.spec):
            for each in demands if nodes[node] else ():
                demand = np.where(self.zones.listed[node], each, 0)
                if demand.any():
                    given += spread_over(free - given, demand, first_set(free - given, demand, zones))
        return given

    def _written(self, amounts: Ints, resources: Mapping[str, str]) -> dict[str, str]:
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
            self._use(place[0], -place[1], leaving=False)

    def _leave(self, pod: Pod, sign: int) -> None:
        if pod.node is None or pod.status is PodStatus.RELEASING:
            return
        node = self.snapshot.node_index[pod.node]
        known = self._known(pod, node)
        if known is not None:
            self._use(node, -sign * known, leaving=False)
            self._use(node, sign * known, leaving=True)

    # --- words and rows ----------------------------------------------------------------------------

    def refusals(self, pod: Pod) -> str:
        mask = self.mask(pod, now=True)
        refused = 0 if mask is None else int(np.count_nonzero(~mask))
        if not refused:
            return ""
        their = "its" if refused == 1 else "their"
        where = plural(refused, "node")
        return f"{where} cannot NUMA-align the pod's resources under {their} Topology Manager policy"

    def dead_end(self, pod: Pod) -> str:
        if not self._all_refusing or not self._asks(pod.spec):
            return ""
        demand = self._demand(pod.spec)
        if demand not in self._fits_empty:
            _, some = np.unique(self._kinds, return_index=True)
            fits = self._accepting(pod.spec, some, self.zones.allocatable[some])
            self._fits_empty[demand] = bool(fits.any())
        if self._fits_empty[demand] or self.gave_up:
            return ""
        return "no node could NUMA-align the pod's resources under its Topology Manager policy, even if empty"

    @property
    def gave_up(self) -> bool:
        return left_out(self.zones.exists.shape[1])

    def rows(self, classes: Sequence[Pod], sizes: Sequence[int], nodes: Sequence[int]) -> Iterable[Row]:
        """Relaxed: per class, no more pods than the node's zones hold, one class at a time; only on nodes
        with policy ``single-numa-node`` and pod scope. ``place`` decides how classes share zones."""
        plain = (self.zones.policy == SINGLE) & ~self.zones.by_container
        chosen = np.array([node for node in nodes if plain[node]], dtype=np.int64)
        leaving: dict[int, list[tuple[PodKey, Ints]]] = {}
        for pod, node, gone in holding(self.snapshot):
            if plain[node] and not gone and pod.key not in self.left:
                known = self._known(pod, node)
                if known is not None:
                    leaving.setdefault(node, []).append((pod.key, known))
        free = np.maximum(self._free(chosen, now=False), 0)
        for c, pod in enumerate(classes):
            wanted = self._wanted(pod.spec, pod.spec.requests)
            for i, node in enumerate(chosen.tolist()):
                demand = np.where(self.zones.listed[node], wanted, 0)
                asked = demand > 0
                if asked.any():
                    hold = (free[i][:, asked] // demand[asked]).min(axis=1)
                    yield Row(
                        {(c, node): 1},
                        int(hold[self.zones.exists[node]].sum()),
                        {
                            key: int((-(-known[:, asked] // demand[asked])).max(axis=1).sum())
                            for key, known in leaving.get(node, ())
                        },
                        NAME,
                    )
