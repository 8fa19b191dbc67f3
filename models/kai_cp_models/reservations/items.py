"""Gangs with their intervals, for which places are chosen, and the GPU time that stands idle before a start
(12.3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kai_cp_models.arrays import Ints
from kai_cp_models.pods import MILLI, GroupKey, PodKey
from kai_cp_models.reservations.gang import GangNeeds

TICKS_PER_SECOND: Final = 1000
"""Idle time is counted in GPU-milliseconds."""


@dataclass(frozen=True, eq=False)
class GangInterval:
    """A gang with its interval. ``stored``: GPUs by node of its present reservation.

    ``reserved``: it starts later, so the GPU time that stands idle for it counts. ``domains``: [N] per level
    at which its pods are drawn together, the closest level first.
    """

    key: GroupKey
    shape: GangNeeds
    start: float
    end: float
    reserved: bool = True
    stored: Mapping[int, float] = field(default_factory=dict)
    domains: tuple[Ints, ...] = ()

    def active(self, instant: float) -> bool:
        """Whether it runs at an instant."""
        return self.start <= instant < self.end


NodeOfPod = Mapping[PodKey, int]
"""The node of every pod of a gang."""


@dataclass(frozen=True, slots=True)
class PlacedGangs:
    """``places``: by gang. None: there are no places (``proved``), or none were found in time."""

    places: Mapping[GroupKey, NodeOfPod] | None
    proved: bool
    variables: int = 0
    constraints: int = 0


@dataclass(frozen=True, eq=False)
class Idle:
    """GPUs not in use, by time and node, before any start: what a reservation would keep idle.

    ``edges``: instants [K + 1] from now on; ``unused``: [K, N] whole GPUs between them.
    """

    edges: NDArray[np.float64]
    unused: Ints
    _costs: dict[tuple[int, float], Ints] = field(default_factory=dict)

    def _lengths(self, start: float, first: float = -np.inf) -> NDArray[np.float64]:
        """Seconds of every interval that lie between ``first`` and ``start``."""
        low = np.maximum(self.edges[:-1], first)
        found: NDArray[np.float64] = np.maximum(np.minimum(self.edges[1:], start) - low, 0.0)
        return found

    def cost(self, gpus: int, start: float) -> Ints:
        """[N] GPU-milliseconds that stand idle on a node if ``gpus`` are held there for a start at
        ``start``."""
        found = self._costs.get((gpus, start))
        if found is None:
            ticks = np.rint(self._lengths(start) * TICKS_PER_SECOND).astype(np.int64)
            found = (np.minimum(self.unused, gpus) * ticks[:, None]).sum(axis=0)
            self._costs[gpus, start] = found
        return found

    def saved(self, node: int, gpus: int, start: float, other: int, since: float, *, until: float) -> int:
        """GPU-milliseconds of ``cost`` that do not stand idle because another gang runs on the node
        meanwhile."""
        ticks = np.rint(self._lengths(min(start, until), since) * TICKS_PER_SECOND).astype(np.int64)
        unused = self.unused[:, node]
        less = np.minimum(unused, gpus) - np.minimum(np.maximum(unused - other, 0), gpus)
        return int((less * ticks).sum())


def stored_gpus(item: GangInterval, count: int) -> Ints:
    """[N] a number for what the item holds of every node so far; equal numbers mean equal amounts."""
    found = np.zeros(count, dtype=np.int64)
    for node, gpus in item.stored.items():
        found[node] = round(gpus * MILLI) + 1
    return found
