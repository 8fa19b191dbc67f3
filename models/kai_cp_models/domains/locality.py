"""Locality: a gang of GPUs goes to the closest place with enough free capacity for all of it.

Places are those of ``kai_cp_topology.scales``: NVLink domains, racks, blocks. Locality is a preference and
never a reason to wait: if no place has the capacity now, any nodes will do, and few places are better than
many.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from kai_cp_models.arrays import Floats, Ints, Mask
from kai_cp_models.limits import LIMITS
from kai_cp_models.pods import GPU, MILLI
from kai_cp_models.rules.stateful.dra.hardware import hardware_labels
from kai_cp_models.snapshot import Snapshot
from kai_cp_topology.scales import Scale, scales

_LAST: Final = np.iinfo(np.int64).max
_NO_NODES: Final = np.zeros(0, dtype=np.int64)

CLOSE: Final = 20
"""Score, per scale, of a node in the place that is being filled: above packing, below whether the capacity is
free now."""


FilledPlaces = list[tuple[Ints, int]]
"""Places of several scales: [N] the number of each node's place, and the number of the place that is
meant."""


@dataclass(frozen=True, slots=True)
class EqualPods:
    """Equal pods that want a place together; ``slots``: [N] how many of them each node takes."""

    count: int
    milli_gpus: int
    slots: Ints


class _Summing:
    """Sums by place, for many columns of weights: the nodes are sorted by place once."""

    def __init__(self, place: Ints) -> None:
        self.count = int(place.max()) + 1
        order = np.argsort(place, kind="stable")
        self.in_turn = not (np.diff(place) < 0).any()
        """Whether the nodes come in the order of their places."""
        self._order = None if self.in_turn else order
        self._numbers, self._starts = np.unique(place[order], return_index=True)
        self.single = len(self._numbers) == len(place)

    def of(self, weights: Ints) -> Ints:
        """[count] sums of ``weights`` [N] by place."""
        found = np.zeros(self.count, dtype=np.int64)
        weights = weights if self._order is None else weights[self._order]
        found[self._numbers] = weights if self.single else np.add.reduceat(weights, self._starts)
        return found


class Fabric:
    """The places of all nodes at every scale, from close to far.

    ``labels`` and ``gpus``: what is known of each node's hardware. ``places[s]``: [N] number of the node's
    place at scale s, 0 for none. ``shared[s]``: the same, but 0 also where a place is a single node.
    """

    def __init__(
        self, labels: Sequence[Mapping[str, str]], gpus: Sequence[int], found: Sequence[Scale]
    ) -> None:
        self.labels = labels
        self.gpus = gpus
        self.scales = tuple(found)
        self.places: list[Ints] = [scale.places for scale in found]
        self.shared = [np.where(np.bincount(place)[place] > 1, place, 0) for place in self.places]
        self._sums = list(map(_Summing, self.places))
        self._shared_sums = list(map(_Summing, self.shared))
        self.closest = next((s for s, place in enumerate(self.shared) if place.any()), len(self.shared))
        """Position of the closest scale at which nodes share places."""

    def distance(self, nodes: Ints) -> int:
        """Position of the closest scale at which all nodes share a place, counted from 1; 0 for one node.

        ``nodes``: their positions, one for each node.
        """
        if len(nodes) < 2:
            return 0
        for position, place in enumerate(self.places, 1):
            first = place[nodes[0]]
            if first and (place[nodes] == first).all():
                return position
        return len(self.places) + 1

    def holding(
        self,
        kinds: Sequence[EqualPods],
        gpus: Ints,
        within: Mask | None,
        present: Ints,
        *,
        begun: Ints | None = None,
        below: int,
        single: bool = True,
    ) -> Iterator[tuple[int, Mask]]:
        """Places that may hold all pods, in the order to try: position of the scale, [N] nodes.

        The closest scale comes first, then the place of the fullest node that takes all pods, then places
        with the fewest free GPUs ``within`` (None: everywhere). If other pods of the group are on nodes
        (``present``), the pods go there. ``begun``: the nodes of the gang, if the pods are a part of one:
        places there come first, then those with the most free capacity, so that the whole gang uses few
        places. ``gpus``: [N] free milli-GPUs. ``below``: scales from this position on are ignored;
        ``single``: whether one node may be a place.
        """
        free = np.maximum(gpus, 0)
        if within is not None:
            free = np.where(within, free, 0)
            kinds = [replace(kind, slots=np.where(within, kind.slots, 0)) for kind in kinds]
        if any(int(kind.slots.sum()) < kind.count for kind in kinds):
            return
        # Pods of one kind that fit on one node will be packed on the fullest such node.
        holders = np.flatnonzero(kinds[0].slots >= kinds[0].count) if len(kinds) == 1 else _NO_NODES
        asked = sum(kind.count * kind.milli_gpus for kind in kinds)
        places, sums = (self.places, self._sums) if single else (self.shared, self._shared_sums)
        for position, (place, summed) in enumerate(list(zip(places, sums, strict=True))[:below]):
            if summed.single and len(kinds) == 1 and begun is None and not len(present):
                # Every place is a node: no sums are needed.
                able = holders[(place[holders] > 0) & (free[holders] >= asked)]
                if not summed.in_turn:
                    able = able[np.argsort(place[able])]
                for number in _smallest(gpus[able], place[able], LIMITS.close_places):
                    yield position, place == number
                continue
            enough = np.logical_and.reduce([summed.of(kind.slots) >= kind.count for kind in kinds])
            enough[0] = False
            if len(present):
                held = np.unique(place[present])
                others = np.arange(summed.count) != held[0]
                enough &= ~others if len(held) == 1 else False
            if not enough.any():
                continue
            total = summed.of(free)
            enough &= total >= asked
            rank = total
            if begun is not None:
                rank = -total
                rank[place[begun]] -= int(total.sum())
            elif len(holders):
                rank = total + int(total.max())
                np.minimum.at(rank, place[holders], gpus[holders])
            able = np.flatnonzero(enough)
            for number in _smallest(rank[able], able, LIMITS.close_places):
                yield position, place == number

    def filling(self, slots: Ints, usable: Mask, present: Ints) -> tuple[FilledPlaces, Mask]:
        """The places that a pod of a gang prefers (``present``: where its pods are), and [N] the ``usable``
        nodes in all of them.

        ``slots``: [N] how many such pods each node takes.

        From far to close, it prefers the place that already has pods of the gang, or the one with the most
        free capacity. So a gang that spans places fills one before the next, the largest first, and uses few.
        """
        found: FilledPlaces = []
        nodes = np.flatnonzero(usable)
        for place, summed in zip(reversed(self.shared), reversed(self._shared_sums), strict=True):
            here = place[nodes]
            room = np.bincount(here, weights=slots[nodes], minlength=summed.count)
            room[0] = 0
            begun = sorted(place[present].tolist())
            best = max(begun, key=room.__getitem__, default=0)
            best = best if room[best] else int(room.argmax())
            if room[best]:
                found.append((place, best))
                nodes = nodes[here == best]
        inside = np.zeros(len(usable), dtype=bool)
        inside[nodes] = True
        return found, inside

    def closeness(self, filled: FilledPlaces) -> Floats:
        """[N] scores of the nodes for places from ``filling``."""
        score: Floats = np.zeros(len(self.gpus))
        for place, number in filled:
            score += CLOSE * (place == number)
        return score


def _smallest(ranks: Ints, numbers: Ints, most: int) -> Iterator[int]:
    """The first ``most`` of ``numbers``, which ascend, ordered by rank, then by number."""
    for _ in range(min(most, len(numbers))):
        first = int(ranks.argmin())
        yield int(numbers[first])
        ranks[first] = _LAST


def fabric_of(snapshot: Snapshot) -> Fabric | None:
    """The fabric of a snapshot; None if the snapshot does not show which nodes are close to each other."""
    labels = hardware_labels(snapshot)
    gpus = [node.allocatable[GPU] // MILLI for node in snapshot.nodes]
    found = scales(labels, gpus, {topology.name: topology.levels for topology in snapshot.topologies})
    return Fabric(labels, gpus, found) if found else None
