"""What is free on each node at each later instant: free(n, t) of section 2, seen from a ledger."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kai_cp_models.arrays import Ints
from kai_cp_models.ledger import Ledger
from kai_cp_models.limits import LIMITS
from kai_cp_models.pods import ACTIVE_ALLOCATED, GPU, MILLI, GroupKey, Pod, PodKey, PodStatus
from kai_cp_models.reservations.times import NEVER, Times
from kai_cp_models.reservations.vectors import demand

_HOLDING = ACTIVE_ALLOCATED | {PodStatus.STUCK_IN_RELEASING}


class SharedGpu(NamedTuple):
    """A GPU that pods share: the position of its node, and its GPU group."""

    node: int
    name: str


def _whole(dimensions: int) -> Ints:
    """[D] one whole GPU."""
    need: Ints = np.zeros(dimensions, dtype=np.int64)
    need[GPU] = MILLI
    return need


@dataclass(frozen=True, eq=False)
class Occupancy:
    """Running pods whose end is known, the earliest end first.

    ``needs``: [R, D]; ``rows``: row of each such pod. A shared device is a row of its own (``devices``): it
    is free again when the last of its ``members`` has ended. ``bounds``: pods that leave before their own
    end (backfill and victims of accepted prices, which are evicted at a start).
    """

    times: Times
    bounds: Mapping[PodKey, float]
    ends: NDArray[np.float64]
    nodes: Ints
    needs: Ints
    rows: Mapping[PodKey, int]
    devices: Mapping[SharedGpu, int]
    members: Mapping[SharedGpu, Mapping[PodKey, float]]

    @staticmethod
    def of(times: Times, bounds: Mapping[PodKey, float] | None = None) -> Occupancy:
        """The occupancy of the snapshot of ``times``."""
        snapshot, earlier = times.snapshot, bounds or {}
        found: list[tuple[float, int, Ints, PodKey | SharedGpu]] = []
        members: dict[SharedGpu, dict[PodKey, float]] = {}
        advertised = [np.array(node.allocatable, dtype=np.int64) > 0 for node in snapshot.nodes]
        for pod in snapshot.pods:
            node = snapshot.node_index.get(pod.node or "")
            if node is None or pod.status not in _HOLDING or pod.reservation:
                continue
            end = min(times.end(pod.group), earlier.get(pod.key, NEVER)) if pod.group else NEVER
            if pod.status is PodStatus.STUCK_IN_RELEASING:
                # Its end is unknown.
                end = NEVER
            need = demand(pod) * advertised[node]
            if pod.spec.gpu.shares:
                # Its devices come free; one that is on none takes none.
                need[GPU] = 0
                for name in pod.gpu_groups:
                    members.setdefault(SharedGpu(node, name), {})[pod.key] = end
            if end < NEVER:
                found.append((end, node, need, pod.key))
        width = len(snapshot.dimensions)
        for device, ends in members.items():
            if max(ends.values()) < NEVER:
                found.append((max(ends.values()), device.node, _whole(width), device))
        found.sort(key=lambda row: (row[0], row[1]))
        return Occupancy(
            times,
            earlier,
            np.array([row[0] for row in found], dtype=np.float64),
            np.array([row[1] for row in found], dtype=np.int64),
            np.array([row[2] for row in found], dtype=np.int64).reshape(-1, width),
            {row[3]: i for i, row in enumerate(found) if isinstance(row[3], PodKey)},
            {row[3]: i for i, row in enumerate(found) if isinstance(row[3], SharedGpu)},
            members,
        )

    @cached_property
    def ends_of_pods(self) -> Mapping[PodKey, float]:
        """When each such pod leaves."""
        return {key: float(self.ends[row]) for key, row in self.rows.items()}

    def end(self, pod: Pod) -> float:
        """When a running pod leaves, by itself or by an eviction that is already decided."""
        return min(self.times.end(pod.group), self.bounds.get(pod.key, NEVER))


def occupancy_of(times: Times, bounds: Mapping[PodKey, float]) -> Occupancy:
    """The occupancy of a snapshot; it changes with the bounds alone, so it is computed once for each."""
    key = frozenset(bounds.items())
    known = times.occupancies.get(key)
    if not isinstance(known, Occupancy):
        known = times.occupancies[key] = Occupancy.of(times, bounds)
    return known


@dataclass(frozen=True, slots=True)
class Ending:
    """From ``until`` on this much more is free on a node; negative: the capacity counts elsewhere."""

    node: int
    until: float
    need: Ints


@dataclass(eq=False)
class Timeline:
    """free(n, t) of a ledger's state: running pods leave at their end, pods placed now when they are due.

    ``until``: when a pod group that starts now ends. ``closed``: [D] by node, taken at all times.
    """

    ledger: Ledger
    occupancy: Occupancy
    until: Mapping[GroupKey, float]
    closed: Sequence[Mapping[int, Ints]] = ()
    _free: dict[float, Ints] = field(default_factory=dict)
    _gpus: dict[float, int] = field(default_factory=dict)
    _columns: tuple[NDArray[np.float64], Ints, Ints] | None = None
    _devices: dict[SharedGpu, float] = field(default_factory=dict)
    """Shared devices that pods leave or join in this cycle: when the last pod that stays ends; 0: none
    stays."""

    def __post_init__(self) -> None:
        ledger = self.ledger
        self.now = self.occupancy.times.now
        self._endings: list[Ending] = []
        self._base: Ints = ledger.free.copy()
        for usage in self.closed:
            for node, taken in usage.items():
                self._base[node] -= taken
        for key, pod in ledger.evicted.items():
            # A pod evicted in this cycle already counts as releasing.
            self._gone(self.occupancy.rows.get(key))
            for name in pod.gpu_groups if pod.spec.gpu.shares else ():
                self._on_device(SharedGpu(ledger.home(pod), name))
        self._enter(ledger.snapshot.pod_by_key[key] for key in ledger.held)

    def add(self, pods: Sequence[Pod]) -> None:
        """Follow the ledger, in which the pods have got their places; nothing else has changed there."""
        self._enter(pods)
        for node in {self.ledger.held[pod.key].node for pod in pods}:
            left = self.ledger.free[node] - sum(usage[node] for usage in self.closed if node in usage)
            for free in self._free.values():
                free[node] += left - self._base[node]
            self._base[node] = left
        self._gpus.clear()

    def _enter(self, pods: Iterable[Pod]) -> None:
        for pod in pods:
            held, need = self.ledger.held[pod.key], demand(pod)
            end = NEVER if pod.group is None else self.until.get(pod.group, NEVER)
            if pod.spec.gpu.shares:
                need[GPU] = 0
                for name in held.gpu_groups:
                    self._on_device(SharedGpu(held.node, name), end)
            self._ends(held.node, end, need)

    def _on_device(self, device: SharedGpu, end: float = 0.0) -> None:
        """Pods leave a shared device, or one joins that stays until ``end``: the device is free again when
        the last pod that stays on it has ended. A device that all pods leave already counts as releasing."""
        occupancy, last = self.occupancy, self._devices.get(device)
        whole = _whole(self._base.shape[1])
        if last is None:
            self._gone(occupancy.devices.get(device))
            there = occupancy.members.get(device, {})
            last = max((until for key, until in there.items() if key not in self.ledger.evicted), default=0.0)
        elif last:
            self._ends(device.node, last, -whole)
        last = self._devices[device] = max(last, end)
        if last:
            self._ends(device.node, last, whole)

    def _gone(self, row: int | None) -> None:
        """Cancel the capacity that a row of the occupancy would give back."""
        if row is not None:
            occupancy = self.occupancy
            self._ends(int(occupancy.nodes[row]), float(occupancy.ends[row]), -occupancy.needs[row])

    def _ends(self, node: int, until: float, need: Ints) -> None:
        if until == NEVER:
            return
        self._endings.append(Ending(node, until, need))
        self._columns = None
        for instant, free in self._free.items():
            if until <= instant:
                free[node] += need

    def _events(self) -> tuple[NDArray[np.float64], Ints, Ints]:
        """[E], [E], [E, D] when, on which nodes and how much becomes free."""
        if self._columns is None:
            occupancy, own = self.occupancy, self._endings
            needs = np.array([one.need for one in own], dtype=np.int64).reshape(-1, self._base.shape[1])
            self._columns = (
                np.concatenate([occupancy.ends, [one.until for one in own]]),
                np.concatenate([occupancy.nodes, np.array([one.node for one in own], dtype=np.int64)]),
                np.concatenate([occupancy.needs, needs]),
            )
        return self._columns

    def free(self, instant: float) -> Ints:
        """[N, D] free at an instant from now on; read-only, and as the ledger is at this moment."""
        known = self._free.get(instant)
        if known is not None:
            return known
        until, nodes, needs = self._events()
        free, ended = self._base.copy(), until <= instant
        np.add.at(free, nodes[ended], needs[ended])
        if len(self._free) >= LIMITS.kept_instants:
            self._free.pop(next(iter(self._free)))
        self._free[instant] = free
        return free

    def gpus(self, instant: float) -> int:
        """Milli-GPUs free on usable nodes at an instant."""
        found = self._gpus.get(instant)
        if found is None:
            free = self.free(instant)[:, GPU]
            found = self._gpus[instant] = int(np.maximum(free, 0).sum())
        return found

    def unused(self, last: float) -> tuple[NDArray[np.float64], Ints]:
        """[K + 1] instants from now to ``last`` between which no GPU becomes free; [K, N] whole GPUs not in
        use meanwhile."""
        until, nodes, needs = self._events()
        ends = (needs[:, GPU] != 0) & (self.now < until) & (until < last)
        edges = np.unique([self.now, max(last, self.now), *until[ends]])
        free: Ints = np.zeros((len(edges), len(self._base)), dtype=np.int64)
        free[0] = self.free(self.now)[:, GPU]
        np.add.at(free, (np.searchsorted(edges, until[ends]), nodes[ends]), needs[ends, GPU])
        return edges, np.maximum(free.cumsum(axis=0), 0)[:-1] // MILLI

    def points(self, more: Iterable[float] = ()) -> list[float]:
        """Instants from now on at which a group ends: a new group can start only then."""
        ends = {float(end) for end in np.unique(self.occupancy.ends)}
        ends.update(ending.until for ending in self._endings)
        ends.update(more)
        return sorted({self.now, *(end for end in ends if self.now <= end < NEVER)})
