"""The fabric as graphs, at two scales: GPUs inside a node, and nodes inside domains.

A GPU graph is complete: its vertices are GPU indices (attribute ``island``), an edge carries the best
``kind`` of way between two GPUs and its ``gbytes_per_second``. The cluster graph is the tree of domains
with a vertex for every domain (its path) and node (its name); edges lead to what is inside. A level that
holds the same nodes as the one above it, or only tells nodes apart, is not a step of a way and has no
vertices.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import networkx as nx

from kai_cp_topology.records import Gpu, Link, NodeFacts, Tree
from kai_cp_topology.systems import System, system_of

Vertex = str | tuple[str, ...]
"""A node's name or a domain's path."""


def gpus(count: int, system: System) -> tuple[Gpu, ...]:
    """The GPUs of a node; islands are runs of consecutive indices."""
    return tuple(Gpu(index, index // max(system.island, 1)) for index in range(count))


def links(devices: Sequence[Gpu], system: System) -> tuple[Link, ...]:
    """The best way between every two GPUs of a node."""
    return tuple(
        Link(a.index, b.index, "nvlink", system.nvlink)
        if a.island == b.island
        else Link(a.index, b.index, "pcie", system.pcie)
        for i, a in enumerate(devices)
        for b in devices[i + 1 :]
    )


def gpu_graph(node: NodeFacts) -> nx.Graph[int]:
    """GPUs of one node."""
    system = system_of(node)
    devices = gpus(node.gpus, system)
    graph: nx.Graph[int] = nx.Graph(name=node.name)
    for gpu in devices:
        graph.add_node(gpu.index, island=gpu.island)
    for link in links(devices, system):
        graph.add_edge(link.a, link.b, kind=link.kind, gbytes_per_second=link.gbytes_per_second)
    return graph


def cluster_graph(tree: Tree) -> nx.Graph[Vertex]:
    """Domains and nodes of one tree."""
    graph: nx.Graph[Vertex] = nx.Graph(name=tree.name)
    steps = _steps(tree)
    # Domains come before those inside them, so the last vertex that holds a node is the closest one.
    around: dict[str, Vertex] = {}
    for domain in tree.domains:
        if domain.level not in steps:
            continue
        graph.add_node(domain.path, level=domain.level, gpus=domain.gpus, free_gpus=domain.free_gpus)
        if domain.path:
            graph.add_edge(around[domain.nodes[0]], domain.path)
        around.update(dict.fromkeys(domain.nodes, domain.path))
    graph.add_edges_from((closest, name) for name, closest in around.items())
    return graph


def hops(graph: nx.Graph[Vertex], names: Collection[str]) -> int:
    """Longest way between two of the nodes in the tree, in edges; 0 for fewer than two.

    In a tree any start finds both ends of the longest way: take the farthest node, then the node farthest
    from that one.
    """
    if len(names) < 2:
        return 0
    end = min(names)
    longest = 0
    for _ in range(2):
        distance = nx.single_source_shortest_path_length(graph, end)
        longest, end = max((distance[name], name) for name in names)
    return longest


def _steps(tree: Tree) -> frozenset[str]:
    """Levels that are steps of a way; the root is always one."""
    steps = {""}
    above = {tree.root.nodes}
    for level in tree.levels:
        inside = {domain.nodes for domain in tree.domains if domain.level == level.label}
        if inside != above and any(len(nodes) > 1 for nodes in inside):
            steps.add(level.label)
            above = inside
    return frozenset(steps)
