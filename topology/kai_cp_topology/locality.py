"""Locality: how close the GPUs of a gang are to each other."""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd

import networkx as nx

from kai_cp_topology.fabric import Vertex, gpu_graph, nvlink_domain
from kai_cp_topology.islands import pick, worst_pair
from kai_cp_topology.records import Locality, NodeFacts
from kai_cp_topology.systems import system_of


def locality(graph: nx.Graph[Vertex], nodes: Mapping[str, NodeFacts], gang: Mapping[str, int]) -> Locality:
    """The locality of a gang that holds ``gang[node]`` GPUs on each node of the cluster graph.

    Which GPUs of a node it holds is taken to be the best choice of an empty node.
    """
    used = {name: count for name, count in gang.items() if count > 0}
    by_domain: dict[str, int] = {}
    for name, count in used.items():
        domain = nvlink_domain(nodes[name])
        by_domain[domain] = by_domain.get(domain, 0) + count
    return Locality(
        _worst(nodes, used, len(by_domain)),
        hops(graph, tuple(used)),
        len(by_domain),
        gcd(*by_domain.values()),
    )


def hops(graph: nx.Graph[Vertex], names: tuple[str, ...]) -> int:
    """Longest way between two of the nodes in the tree, in edges; 0 for fewer than two.

    In a tree the two ends of the longest way are found from any start: the farthest node, and the
    farthest from that one.
    """
    if len(names) < 2:
        return 0
    wanted = set(names)
    end = names[0]
    longest = 0
    for _ in range(2):
        distance = nx.single_source_shortest_path_length(graph, end)
        reached = {name: steps for name, steps in distance.items() if name in wanted}
        end = str(max(reached, key=lambda name: (reached[name], str(name))))
        longest = reached[end]
    return longest


def _worst(nodes: Mapping[str, NodeFacts], used: Mapping[str, int], domains: int) -> int | None:
    inside = []
    for name, count in used.items():
        graph = gpu_graph(nodes[name])
        bandwidth = worst_pair(graph, pick(graph, range(nodes[name].gpus), count))
        if bandwidth is not None:
            inside.append(bandwidth)
    between = []
    if len(used) > 1:
        systems = {system_of(nodes[name]) for name in used}
        # A clique of an unknown product has NVLink of unknown speed: at least the network's.
        between = [s.network if domains > 1 else s.nvlink or s.network for s in systems]
    return min((*inside, *between), default=None)
