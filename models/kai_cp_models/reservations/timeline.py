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
from kai_cp_models.pods import ACTIVE_ALLOCATED, GPU, MILLI, GroupKey, PodKey, PodStatus
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
    is free again when the last of its ``members`` has ended. ``bounds``: groups that leave before their own
    end (backfill and victims of accepted prices, which are evicted at a start).
    """

    times: Times
    bounds: Mapping[GroupKey, float]
    ends: NDArray[np.float64]
    nodes: Ints
    needs: Ints
    rows: Mapping[PodKey, int]
    devices: Mapping[SharedGpu, int]
    members: Mapping[SharedGpu, Mapping[PodKey, float]]

    @staticmethod
    def of(times: Times, bounds: Mapping[GroupKey, float] | None = None) -> Occupancy:
        """The occupancy of the snapshot of ``times``."""
        snapshot, earlier = times.snapshot, bounds or {}
        found: list[tuple[float, int, Ints, PodKey | SharedGpu]] = []
        members: dict[SharedGpu, dict[PodKey, float]] = {}
        advertised = [np.array(node.allocatable, dtype=np.int64) > 0 for node in snapshot.nodes]
        for pod in snapshot.pods:
            node = snapshot.node_index.get(pod.node or "")
            if node is None or pod.status not in _HOLDING or pod.reservation:
                continue
            end = min(times.end(pod.group), earlier.get(pod.group, NEVER)) if pod.group else NEVER
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

    def end(self, group: GroupKey | None) -> float:
        """When a running group leaves, by itself or by an eviction that is already decided."""
        end = self.times.end(group)
        return end if group is None else min(end, self.bounds.get(group, NEVER))


def occupancy_of(times: Times, bounds: Mapping[GroupKey, float]) -> Occupancy:
    """The occupancy of a snapshot; it changes with the bounds alone, so it is computed once for each."""
    key = frozenset(bounds.items())
    known = times.occupancies.get(key)
    if not isinstance(known, Occupancy):
        known = times.occupancies[key] = Occupancy.of(times, bounds)
    return known


@dataclass(frozen=True, slots=True)
class Ending:
    """A pod placed in this cycle, or a shared device that this cycle has changed: where, until when, and what
    it takes."""

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

    def __post_init__(self) -> None:
        ledger, occupancy = self.ledger, self.occupancy
        self.now = occupancy.times.now
        self._base: Ints = ledger.free.copy()
        for usage in self.closed:
            for node, taken in usage.items():
                self._base[node] -= taken
        self._gone = [row for key in ledger.evicted if (row := occupancy.rows.get(key)) is not None]
        self.placed: dict[PodKey, Ending] = {}
        self._endings: list[Ending] = []
        by_key = ledger.snapshot.pod_by_key
        joined: dict[SharedGpu, float] = {}
        for key, held in ledger.held.items():
            pod = by_key[key]
            end = NEVER if pod.group is None else self.until.get(pod.group, NEVER)
            need = demand(pod)
            if pod.spec.gpu.shares:
                need[GPU] = 0
                for name in held.gpu_groups:
                    device = SharedGpu(held.node, name)
                    joined[device] = max(end, joined.get(device, 0.0))
            self.placed[key] = Ending(held.node, end, need)
        self._change_devices(joined)
        self._endings += self.placed.values()

    def _change_devices(self, joined: Mapping[SharedGpu, float]) -> None:
        """Shared devices with pods that this cycle has placed or evicted: each is free again when the last
        pod that stays on it has ended.

        ``joined``: when the last of the pods placed on it ends. A device that all pods leave counts as
        releasing already.
        """
        occupancy, changed = self.occupancy, self.ledger.evicted
        left = {
            SharedGpu(node, name)
            for key in changed
            if (pod := self.ledger.snapshot.pod_by_key[key]).spec.gpu.shares
            and (node := self.ledger.snapshot.node_index.get(pod.node or "")) is not None
            for name in pod.gpu_groups
        }
        for device in sorted(left | joined.keys()):
            row = occupancy.devices.get(device)
            if row is not None:
                self._gone.append(row)
            stay = [end for key, end in occupancy.members.get(device, {}).items() if key not in changed]
            ends = [*stay, *([joined[device]] if device in joined else [])]
            if ends:
                self._endings.append(Ending(device.node, max(ends), _whole(self._base.shape[1])))

    def free(self, instant: float) -> Ints:
        """[N, D] free at an instant from now on; read-only."""
        known = self._free.get(instant)
        if known is not None:
            return known
        occupancy = self.occupancy
        free = self._base.copy()
        ended = int(np.searchsorted(occupancy.ends, instant, side="right"))
        np.add.at(free, occupancy.nodes[:ended], occupancy.needs[:ended])
        for row in self._gone:
            # A pod evicted in this cycle already counts as releasing.
            if row < ended:
                free[occupancy.nodes[row]] -= occupancy.needs[row]
        for ending in self._endings:
            if ending.until <= instant:
                free[ending.node] += ending.need
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

    def points(self, more: Iterable[float] = ()) -> list[float]:
        """Instants from now on at which a group ends: a new group can start only then."""
        ends = {float(end) for end in np.unique(self.occupancy.ends)}
        ends.update(ending.until for ending in self._endings)
        ends.update(more)
        return sorted({self.now, *(end for end in ends if self.now <= end < NEVER)})
