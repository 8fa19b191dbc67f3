"""Islands: groups of GPUs of one node that NVLink joins, and which GPUs to take."""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache

import networkx as nx

from kai_cp_topology.fabric import gpu_graph
from kai_cp_topology.records import PRODUCT_LABEL, NodeFacts


def islands(graph: nx.Graph[int]) -> tuple[tuple[int, ...], ...]:
    """GPUs that reach each other by NVLink alone, in index order."""
    joined: nx.Graph[int] = nx.Graph()
    joined.add_nodes_from(graph)
    joined.add_edges_from((a, b) for a, b in graph.edges if graph.edges[a, b]["kind"] == "nvlink")
    return tuple(sorted(tuple(sorted(part)) for part in nx.connected_components(joined)))


def pick(graph: nx.Graph[int], free: Collection[int], count: int) -> tuple[int, ...]:
    """``count`` of the free GPUs with the best worst pair; empty when too few are free.

    It takes the smallest sufficient set of free GPUs: the island with the fewest free GPUs that still holds
    all of them, so that larger islands stay whole. If no island does, it fills the islands with the most free
    GPUs first.
    """
    left = sorted(free)
    if count <= 0 or count > len(left):
        return ()
    groups = [[gpu for gpu in island if gpu in set(left)] for island in islands(graph)]
    enough = [group for group in groups if len(group) >= count]
    if enough:
        return tuple(min(enough, key=lambda group: (len(group), group))[:count])
    chosen: list[int] = []
    for group in sorted(groups, key=lambda group: (-len(group), group)):
        chosen += group[: count - len(chosen)]
    return tuple(sorted(chosen))


def nearest(product: str, gpus: int, free: Collection[int], count: int) -> tuple[int, ...]:
    """``pick`` on a node of a product with ``gpus`` GPUs."""
    return pick(_graph(product, gpus), free, count)


@lru_cache(maxsize=64)
def _graph(product: str, gpus: int) -> nx.Graph[int]:
    return gpu_graph(NodeFacts("", {PRODUCT_LABEL: product}, gpus))
