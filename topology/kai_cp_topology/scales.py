"""Scales: the kinds of places that nodes share, from close to far, and which node is in which place.

The closest scale is the NVLink domain. The levels of all Topologies follow, levels with smaller places first.
The distance of two nodes is the first scale at which they share a place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kai_cp_topology.records import CLIQUE_LABEL, PRODUCT_LABEL
from kai_cp_topology.systems import system_of_product

Places = NDArray[np.int64]
Labels = Sequence[Mapping[str, str]]


@dataclass(frozen=True, slots=True, eq=False)
class Scale:
    """One kind of place.

    ``label``: the node label of the level. ``places``: [N] for every node, in the order in which the nodes
    were given, the number of its place, from 1; 0: it is in none. ``hops``: the way between two nodes that
    share a place here and none that is closer, in edges of the tree.
    """

    label: str
    places: Places
    hops: int


def scales(labels: Labels, gpus: Sequence[int], topologies: Mapping[str, Sequence[str]]) -> tuple[Scale, ...]:
    """All scales of a cluster of nodes with these labels and GPUs.

    ``topologies``: level labels, widest first, by Topology name; a node belongs to one when it carries all
    its labels. Levels that divide the nodes as a closer one does, or that only tell nodes apart, are no
    scales of their own. Where Topologies do not nest, the size of their places orders them.
    """
    nvlink = _nvlink(labels, np.array(gpus, dtype=np.int64))
    found = {nvlink.tobytes(): (CLIQUE_LABEL, nvlink)} if nvlink.any() else {}
    levels: list[tuple[float, str, int, str, Places]] = []
    for name, names in sorted(topologies.items()):
        for depth, places in enumerate(
            _paths([_numbered(node.get(label) for node in labels) for label in names])
        ):
            inside = np.count_nonzero(places)
            size = inside / places.max() if inside else 0.0
            if names[depth] != CLIQUE_LABEL and size > 1:
                levels.append((size, name, -depth, names[depth], places))
    for *_, label, places in sorted(levels, key=lambda level: level[:3]):
        found.setdefault(places.tobytes(), (label, places))
    # If every NVLink domain is one node, it is not a step between nodes.
    alone = int(np.bincount(nvlink)[1:].max(initial=0) == 1)
    return tuple(Scale(label, places, 2 * i) for i, (label, places) in enumerate(found.values(), 1 - alone))


def _nvlink(labels: Labels, gpus: Places) -> Places:
    """The NVLink domain of every node: its clique, or the node by itself where NVLink joins all its GPUs."""
    places = _numbered(node.get(CLIQUE_LABEL) or None for node in labels)
    products = [node.get(PRODUCT_LABEL) for node in labels]
    systems = {product: system_of_product(product) for product in set(products) if product}
    joined = {product: system.island for product, system in systems.items() if system.nvlink}
    islands = np.array([joined.get(product or "", 0) for product in products], dtype=np.int64)
    alone = (places == 0) & (gpus > 1) & (islands >= gpus)
    places[alone] = np.arange(np.count_nonzero(alone)) + places.max(initial=0) + 1
    return _renumbered(places)


def _paths(columns: Sequence[Places]) -> Iterable[Places]:
    """Per level the domains of nodes that carry all labels, by their values down to this level."""
    inside = np.logical_and.reduce([column > 0 for column in columns], axis=0)
    path = inside.astype(np.int64)
    for column in columns:
        path = _renumbered(np.where(inside, path * (column.max(initial=0) + 1) + column, 0))
        yield path


def _numbered(values: Iterable[str | None]) -> Places:
    """Numbers of equal values, from 1 in the order in which they come first; 0 for no value."""
    numbers: dict[str, int] = {}
    return np.array(
        [0 if value is None else numbers.setdefault(value, len(numbers) + 1) for value in values], np.int64
    )


def _renumbered(places: Places) -> Places:
    """The same places, numbered in the order of their first nodes."""
    values, first, number = np.unique(places, return_index=True, return_inverse=True)
    named = values > 0
    order = np.zeros(len(values), dtype=np.int64)
    order[np.flatnonzero(named)[np.argsort(first[named])]] = np.arange(np.count_nonzero(named)) + 1
    return order[number]
