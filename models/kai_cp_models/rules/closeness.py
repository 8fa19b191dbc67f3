"""Closeness: a gang of GPUs goes to the closest place that has room for all of it.

Places are those of ``kai_cp_topology.scales``: NVLink domains, racks, blocks. It is a preference and never a
reason to wait: where no place has the room now, any nodes will do, and few places are better than many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np

from kai_cp_models.rules.protocol import Mask
from kai_cp_models.rules.scores import Score
from kai_cp_models.rules.tree import Vector
from kai_cp_models.snapshot import GPU, MILLI, Pod, Snapshot
from kai_cp_topology.records import NodeFacts
from kai_cp_topology.scales import scales

_MOST_TRIED: Final = 3
"""Places of one scale that are tried for a batch."""

CLOSE: Final = 20
"""A node of the place that is filled now, per scale: above packing, below whether the room is free now."""


class Fabric:
    """The places of all nodes at every scale, from close to far.

    ``places[s]``: [N] number of the node's place at scale s, -1 for none. ``shared[s]``: the same, but
    -1 also where a place is a single node.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.nodes: tuple[NodeFacts, ...] = tuple(
            NodeFacts(node.name, node.labels, node.allocatable[GPU] // MILLI) for node in snapshot.nodes
        )
        self.scales = scales(self.nodes, {topology.name: topology.levels for topology in snapshot.topologies})
        self.places: list[Vector] = [np.array(scale.places, dtype=np.int64) for scale in self.scales]
        self.shared = [np.where(_tally(place)[place] > 1, place, -1) for place in self.places]

    def apart(self, nodes: Vector) -> int:
        """Position of the closest scale at which ``nodes`` share a place, counted from 1; 0 for one node."""
        if len(nodes) < 2:
            return 0
        for position, place in enumerate(self.places, 1):
            first = place[nodes[0]]
            if first >= 0 and (place[nodes] == first).all():
                return position
        return len(self.places) + 1

    def holding(
        self,
        pods: Sequence[Pod],
        fits: Callable[[Pod], Mask],
        free: Vector,
        within: Mask,
        present: Vector,
        *,
        single: bool = True,
    ) -> Iterator[Mask]:
        """[N] nodes of the places that may hold all of ``pods``, in the order to try.

        Closest first, then those with the fewest free GPUs ``within``; a gang that has pods on nodes
        (``present``) stays with them. ``fits``: nodes for a pod; ``free``: [N, D]; ``single``: whether one
        node may be a place.
        """
        kinds: dict[int, list[Pod]] = {}
        for pod in pods:
            kinds.setdefault(id(pod.spec), []).append(pod)
        wanted = [
            (len(alike), np.where(within & fits(alike[0]), _slots(free, alike[0]), 0))
            for alike in kinds.values()
        ]
        asked = sum(pod.spec.requests[GPU] for pod in pods)
        room = np.where(within, np.maximum(free[:, GPU], 0), 0)
        for place in self.places if single else self.shared:
            total = _tally(place, room)
            enough = total >= asked
            for count, slots in wanted:
                enough &= _tally(place, slots) >= count
            enough[-1] = False
            if len(present):
                held = np.unique(place[present])
                enough &= np.isin(np.arange(len(enough)), held) if len(held) == 1 else False
            order = sorted(np.flatnonzero(enough).tolist(), key=lambda k: (total[k], k))
            for number in order[:_MOST_TRIED]:
                yield place == number

    def filling(self, pod: Pod, free: Vector, usable: Mask, present: Vector) -> tuple[Score, Mask]:
        """[N] scores for a pod of a gang (``present``: where its pods are), and the nodes that score most.

        From far to close, the place that has pods of the gang already, or the most room: so a gang that
        spans places fills one before the next, the largest first, and lies in few.
        """
        score: Score = np.zeros(len(usable))
        inside = usable
        for place in reversed(self.shared):
            room = _tally(place, np.where(inside, _slots(free, pod), 0))
            room[-1] = 0
            if not room.any():
                continue
            begun = np.zeros(len(room), dtype=bool)
            begun[place[present]] = True
            number = int(np.argmax(np.where(begun, room, 0) if (room[begun] > 0).any() else room))
            score += CLOSE * (place == number)
            inside = inside & (place == number)
        return score, inside


def fabric_of(snapshot: Snapshot) -> Fabric | None:
    """The fabric of a snapshot; None when nothing is known of which nodes are close to each other."""
    found = Fabric(snapshot)
    return found if found.scales else None


def _tally(place: Vector, weights: Vector | None = None) -> Vector:
    """Sums by place, of the nodes or of ``weights``; the last entry is that of nodes without a place."""
    count = int(place.max(initial=-1)) + 2
    sums: Vector = np.bincount(place % count, weights=weights, minlength=count).astype(np.int64)
    return sums


def _slots(free: Vector, pod: Pod) -> Vector:
    """[N] pods of this kind that the free room takes; at least 1, for it is asked of nodes that fit."""
    found: Vector = np.full(len(free), np.iinfo(np.int64).max)
    for dimension, amount in enumerate(pod.spec.requests):
        if amount:
            np.minimum(found, free[:, dimension] // amount, out=found)
    return np.maximum(found, 1, out=found)
