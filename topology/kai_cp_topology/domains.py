"""Domains: the trees that node labels describe.

Every Topology gives a tree over the nodes that carry all its level labels. The NVLink domain (clique) is
added as a level of its own where it nests between two levels; where it does not, it gets its own tree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kai_cp_topology.records import CLIQUE_LABEL, Domain, Level, NodeFacts, Tree

CLUSTER = "cluster"
"""Name of the tree of a cluster that names no levels at all."""
NVLINK = "nvlink"
"""Name of the tree of NVLink domains that nest in no Topology."""


def trees(nodes: Sequence[NodeFacts], topologies: Mapping[str, Sequence[str]]) -> tuple[Tree, ...]:
    """All trees of a cluster; ``topologies``: level labels, widest first, by Topology name."""
    found: list[Tree] = []
    cliques = any(node.clique for node in nodes)
    homeless = cliques
    for name, labels in sorted(topologies.items()):
        position = clique_position(nodes, labels) if cliques else None
        if CLIQUE_LABEL in labels:
            homeless = False
        elif position is not None:
            homeless = False
            labels = (*labels[:position], CLIQUE_LABEL, *labels[position:])
        found.append(tree(name, nodes, labels, optional=CLIQUE_LABEL if position is not None else ""))
    if homeless:
        found.append(tree(NVLINK, nodes, (CLIQUE_LABEL,)))
    return tuple(found) or (tree(CLUSTER, nodes, ()),)


def clique_position(nodes: Sequence[NodeFacts], labels: Sequence[str]) -> int | None:
    """The number of levels above the clique, at the deepest position where it nests; None: it nests
    nowhere."""
    if CLIQUE_LABEL in labels:
        return None
    members = [
        (tuple(node.labels[label] for label in labels), node.clique)
        for node in nodes
        if node.clique and all(label in node.labels for label in labels)
    ]
    if not members:
        return None
    for position in range(len(labels), -1, -1):
        around = {(path[:position], clique) for path, clique in members}
        inside = {(path[: position + 1], clique) for path, clique in members}
        contained = len({clique for _, clique in around}) == len(around)
        # Nodes come below the last level; each has one clique.
        contains = position == len(labels) or len({path for path, _ in inside}) == len(inside)
        if contained and contains:
            return position
    return None


def tree(name: str, nodes: Sequence[NodeFacts], labels: Sequence[str], *, optional: str = "") -> Tree:
    """The tree of some levels. A node without the ``optional`` level still belongs to it."""
    members: dict[tuple[str, ...], list[NodeFacts]] = {(): []}
    outside: list[str] = []
    for node in sorted(nodes, key=lambda n: n.name):
        values = [_value(node, label) for label in labels]
        if any(not value and label != optional for value, label in zip(values, labels, strict=True)):
            outside.append(node.name)
            continue
        members[()].append(node)
        for depth, value in enumerate(values, 1):
            if value:
                members.setdefault(tuple(values[:depth]), []).append(node)
    domains = tuple(
        Domain(
            labels[len(path) - 1] if path else "",
            path,
            tuple(node.name for node in inside),
            sum(node.gpus for node in inside),
            sum(node.free_gpus for node in inside),
        )
        for path, inside in sorted(members.items())
    )
    return Tree(name, tuple(Level(label) for label in labels), domains, tuple(outside))


def _value(node: NodeFacts, label: str) -> str:
    return node.clique if label == CLIQUE_LABEL else node.labels.get(label, "")
