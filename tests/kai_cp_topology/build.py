"""Short builders for fabrics."""

from __future__ import annotations

from collections.abc import Collection
from itertools import combinations

import networkx as nx

from kai_cp_topology.records import CLIQUE_LABEL, PRODUCT_LABEL, NodeFacts


def node(
    name: str,
    gpus: int = 8,
    free: int | None = None,
    *,
    product: str = "NVIDIA-H100-80GB-HBM3",
    clique: str = "",
    **labels: str,
) -> NodeFacts:
    """A node; all its GPUs are free unless a test says otherwise."""
    known = {**labels, PRODUCT_LABEL: product}
    if clique:
        known[CLIQUE_LABEL] = clique
    return NodeFacts(name, known, gpus, gpus if free is None else free)


def racks(count: int, nodes: int = 18, *, blocks: int = 1, free: int = 4) -> list[NodeFacts]:
    """GB200 NVL72 racks of 4-GPU nodes, one clique each."""
    return [
        node(
            f"r{rack:02d}n{place:02d}",
            4,
            free,
            product="NVIDIA-GB200",
            clique=f"fabric.{rack}",
            block=f"b{rack * blocks // count}",
            rack=f"r{rack:02d}",
        )
        for rack in range(count)
        for place in range(nodes)
    ]


def worst_pair(graph: nx.Graph[int], chosen: Collection[int]) -> int | None:
    """Bandwidth of the worst pair among some GPUs of a node [GB/s]; None for fewer than two."""
    return min(
        (int(graph.edges[a, b]["gbytes_per_second"]) for a, b in combinations(chosen, 2)), default=None
    )
