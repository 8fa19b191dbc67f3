"""Capacity: how large a gang still fits into one domain, by level and pod size."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kai_cp_topology.fabric import cluster_graph, hops
from kai_cp_topology.records import Capacity, Domain, NodeFacts, Tree

POD_SIZES = (1, 2, 4, 8)
"""Usual GPUs per pod."""


def pods_that_fit(domain: Domain, nodes: Mapping[str, NodeFacts], pod_gpus: int) -> int:
    """Pods of ``pod_gpus`` free GPUs each that the nodes of a domain take; a pod stays on one node."""
    return sum(nodes[name].free_gpus // pod_gpus for name in domain.nodes)


def largest_gangs(
    tree: Tree, nodes: Mapping[str, NodeFacts], sizes: Iterable[int] = POD_SIZES
) -> tuple[Capacity, ...]:
    """The most pods that one domain takes now, for each level and pod size.

    The whole tree comes first, then its levels, widest first. ``sizes``: GPUs per pod.
    """
    found: list[Capacity] = []
    sizes = tuple(sizes)
    graph = cluster_graph(tree)
    for label in ("", *(level.label for level in tree.levels)):
        domains = [domain for domain in tree.domains if domain.level == label]
        for size in sizes:
            # Most pods; of equal domains the first by path.
            best = max(domains, key=lambda domain: pods_that_fit(domain, nodes, size), default=None)
            if best is not None:
                pods = pods_that_fit(best, nodes, size)
                found.append(Capacity(label, size, pods, best.path, hops(graph, best.nodes)))
    return tuple(found)


def usual_sizes(nodes: Iterable[NodeFacts]) -> tuple[int, ...]:
    """The pod sizes worth reporting: those that the largest node can take."""
    largest = max((node.gpus for node in nodes), default=0)
    return tuple(size for size in POD_SIZES if size <= largest)
