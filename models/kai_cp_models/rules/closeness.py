"""Closeness: a gang of GPUs goes to the closest place that has room for all of it.

Places are those of ``kai_cp_topology.scales``: NVLink domains, racks, blocks. It is a preference and never a
reason to wait: where no place has the room now, any nodes will do, and few places are better than many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from kai_cp_models.devices.dra.hardware import hardware_labels
from kai_cp_models.rules.protocol import Mask
from kai_cp_models.rules.scores import Score
from kai_cp_models.rules.tree import Vector
from kai_cp_models.snapshot import GPU, MILLI, Pod, Snapshot
from kai_cp_topology.scales import Scale, scales

_MOST_TRIED: Final = 3
"""Places of one scale that are tried for a batch."""

CLOSE: Final = 20
"""A node of the place that is filled now, per scale: above packing, below whether the room is free now."""


class Fabric:
    """The places of all nodes at every scale, from close to far.

    ``labels`` and ``gpus``: what is known of each node's hardware.
    ``places[s]``: [N] number of the node's place at scale s, 0 for none. ``shared[s]``: the same, but
    0 also where a place is a single node.
    """

    def __init__(
        self, labels: Sequence[Mapping[str, str]], gpus: Sequence[int], found: Sequence[Scale]
    ) -> None:
        self.labels = labels
        self.gpus = gpus
        self.scales = tuple(found)
        self.places: list[Vector] = [scale.places for scale in found]
        self.shared = [np.where(np.bincount(place)[place] > 1, place, 0) for place in self.places]
        self.closest = next((s for s, place in enumerate(self.shared) if place.any()), len(self.shared))
        """Position of the closest scale at which nodes share places."""

    def apart(self, nodes: Vector) -> int:
        """Position of the closest scale at which ``nodes`` share a place, counted from 1; 0 for one node."""
        if len(nodes) < 2:
            return 0
        for position, place in enumerate(self.places, 1):
            first = place[nodes[0]]
            if first and (place[nodes] == first).all():
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
        begun: Vector | None = None,
        below: int,
        single: bool = True,
    ) -> Iterator[tuple[int, Mask]]:
        """The places that may hold all of ``pods``, in the order to try: position of the scale, [N] nodes.

        Closest first, then that of the fullest node which takes all, then those with the fewest free GPUs
        ``within``; pods that have others of theirs on nodes (``present``) go where these are. ``begun``: for
        a part of a gang, where the gang is: places there come first, then those with most room, so that the
        whole lies in few. ``fits``: nodes for a pod; ``free``: [N, D]; ``below``: scales from this position
        on are not looked at; ``single``: whether one node may be a place.
        """
        kinds: dict[int, list[Pod]] = {}
        for pod in pods:
            kinds.setdefault(id(pod.spec), []).append(pod)
        open_to = [np.flatnonzero(within & fits(alike[0])) for alike in kinds.values()]
        room = [_slots(free[nodes], alike[0]) for nodes, alike in zip(open_to, kinds.values(), strict=True)]
        wanted = [len(alike) for alike in kinds.values()]
        if any(slots.sum() < count for slots, count in zip(room, wanted, strict=True)):
            return
        # Where pods of one kind fit on one node, packing will put them on the fullest such one.
        holders = open_to[0][room[0] >= wanted[0]] if len(wanted) == 1 else open_to[0][:0]
        gpus = np.where(within, np.maximum(free[:, GPU], 0), 0)
        asked = sum(pod.spec.requests[GPU] for pod in pods)
        for position, place in enumerate((self.places if single else self.shared)[:below]):
            count = int(place.max()) + 1
            total = _sums(place, gpus, count)
            enough = total >= asked
            for nodes, slots, least in zip(open_to, room, wanted, strict=True):
                enough &= _sums(place[nodes], slots, count) >= least
            enough[0] = False
            if len(present):
                held = np.unique(place[present])
                others = np.arange(count) != held[0]
                enough &= ~others if len(held) == 1 else False
            rank = total.copy()
            if begun is not None:
                rank = -total
                rank[place[begun]] -= int(total.sum())
            elif len(holders):
                rank += int(total.max())
                np.minimum.at(rank, place[holders], free[holders, GPU])
            order = sorted(np.flatnonzero(enough).tolist(), key=lambda number: (rank[number], number))
            for number in order[:_MOST_TRIED]:
                yield position, place == number

    def filling(self, pod: Pod, free: Vector, usable: Mask, present: Vector) -> tuple[Score, Mask]:
        """[N] scores for a pod of a gang (``present``: where its pods are), and the nodes that score most.

        From far to close, the place that has pods of the gang already, or the most room: so a gang that
        spans places fills one before the next, the largest first, and lies in few.
        """
        score: Score = np.zeros(len(usable))
        inside = usable
        for place in reversed(self.shared):
            nodes = np.flatnonzero(inside)
            count = int(place.max()) + 1
            room = _sums(place[nodes], _slots(free[nodes], pod), count)
            room[0] = 0
            if not room.any():
                continue
            begun = np.zeros(count, dtype=bool)
            begun[place[present]] = True
            best = place == int(np.argmax(np.where(begun, room, 0) if room[begun].any() else room))
            score += CLOSE * best
            inside = inside & best
        return score, inside


def fabric_of(snapshot: Snapshot) -> Fabric | None:
    """The fabric of a snapshot; None when nothing is known of which nodes are close to each other."""
    labels = hardware_labels(snapshot)
    gpus = [node.allocatable[GPU] // MILLI for node in snapshot.nodes]
    found = scales(labels, gpus, {topology.name: topology.levels for topology in snapshot.topologies})
    return Fabric(labels, gpus, found) if found else None


def _sums(place: Vector, weights: Vector, count: int) -> Vector:
    """[count] sums of ``weights`` by place."""
    return np.bincount(place, weights=weights, minlength=count).astype(np.int64)


def _slots(free: Vector, pod: Pod) -> Vector:
    """Pods of this kind that the free room of each node takes; at least 1, for it is asked where one fits."""
    found: Vector = np.full(len(free), np.iinfo(np.int64).max)
    for dimension, amount in enumerate(pod.spec.requests):
        if amount:
            np.minimum(found, free[:, dimension] // amount, out=found)
    return np.maximum(found, 1, out=found)
