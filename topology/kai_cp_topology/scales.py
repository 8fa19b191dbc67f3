"""Scales: the kinds of places that nodes share, from close to far, and which node is in which place.

The closest scale is the NVLink domain; then come the levels of all Topologies, those with the smaller places
first. How far apart two nodes are is the first scale at which they share a place.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from kai_cp_topology.records import CLIQUE_LABEL, NodeFacts
from kai_cp_topology.systems import system_of_product


@dataclass(frozen=True, slots=True)
class Scale:
    """One kind of place.

    ``label``: the node label of the level. ``places``: for every node, in the order in which the nodes were
    given, the number of its place; -1: it is in none. ``hops``: the way between two nodes that share a place
    here and none that is closer, in edges of the tree.
    """

    label: str
    places: tuple[int, ...]
    hops: int


def scales(nodes: Sequence[NodeFacts], topologies: Mapping[str, Sequence[str]]) -> tuple[Scale, ...]:
    """All scales of a cluster; ``topologies``: level labels, widest first, by Topology name.

    A node belongs to a Topology when it carries all its labels. Levels that divide the nodes as a closer one
    does, or that only tell nodes apart, are no scales of their own. Where Topologies do not nest, the size of
    their places orders them.
    """
    nvlink = _numbered(map(_nvlink, nodes))
    found = {nvlink: CLIQUE_LABEL} if max(nvlink, default=-1) >= 0 else {}
    levels: list[tuple[float, str, int, str, tuple[int, ...]]] = []
    for name, labels in sorted(topologies.items()):
        paths = [tuple(node.labels.get(label) for label in labels) for node in nodes]
        for depth, label in enumerate(labels, 1):
            places = _numbered(None if None in path else path[:depth] for path in paths)
            size = _mean_nodes(places)
            if label != CLIQUE_LABEL and size > 1:
                levels.append((size, name, -depth, label, places))
    for *_, label, places in sorted(levels):
        found.setdefault(places, label)
    return tuple(Scale(label, places, 2 * i) for i, (places, label) in enumerate(found.items(), 1))


def _nvlink(node: NodeFacts) -> str | None:
    """The NVLink domain of a node: its clique, or the node by itself where NVLink joins all its GPUs."""
    if node.clique:
        return f"clique {node.clique}"
    if not node.product:
        return None
    system = system_of_product(node.product)
    return f"node {node.name}" if system.nvlink and system.island >= node.gpus > 1 else None


def _numbered(keys: Iterable[Hashable | None]) -> tuple[int, ...]:
    numbers: dict[Hashable, int] = {}
    return tuple(-1 if key is None else numbers.setdefault(key, len(numbers)) for key in keys)


def _mean_nodes(places: Sequence[int]) -> float:
    """Nodes per place; 0 without places."""
    inside = sum(place >= 0 for place in places)
    return inside / (max(places, default=-1) + 1) if inside else 0.0
