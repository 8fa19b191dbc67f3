"""The fabric as graphs, at two scales: GPUs inside a node, and nodes inside domains.

A GPU graph is complete: its vertices are GPU indices (attribute ``island``), an edge carries the best
``kind`` of way between two GPUs and its ``gbytes_per_second``. The cluster graph is the tree of domains
with a vertex for every domain (its path) and node (its name); edges lead to what is inside.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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


def cluster_graph(tree: Tree, nodes: Mapping[str, NodeFacts]) -> nx.Graph[Vertex]:
    """Domains and nodes of one tree. Node vertices carry ``nvlink``, their NVLink domain."""
    graph: nx.Graph[Vertex] = nx.Graph(name=tree.name)
    deepest: dict[str, tuple[str, ...]] = {}
    for domain in tree.domains:
        graph.add_node(domain.path, level=domain.level, gpus=domain.gpus, free_gpus=domain.free_gpus)
        if domain.path:
            graph.add_edge(domain.parent, domain.path)
        for name in domain.nodes:
            deepest[name] = domain.path
    for name, path in deepest.items():
        graph.add_node(name, nvlink=nvlink_domain(nodes[name]))
        graph.add_edge(path, name)
    return graph


def nvlink_domain(node: NodeFacts) -> str:
    """Identity of the NVLink domain that a node is in: its clique, otherwise the node by itself."""
    return f"clique {node.clique}" if node.clique else f"node {node.name}"
