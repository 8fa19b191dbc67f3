"""The domains of a Topology as arrays over all nodes (8.1).

A domain at a level is a set of nodes that agree on every label from the widest level down to it. Only nodes
with all labels of a Topology belong to its tree.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kai_cp_models.arrays import Ints, Mask
from kai_cp_models.snapshot import Node, Topology


class TopologyTree:
    """The domains of one Topology. Level 0 is the virtual root, level i the i-th level label.

    ``domain``: [levels + 1, N] position of the node's domain at every level, -1 for nodes outside the
    tree. Domains of a level are numbered in the order of their ids. ``parent[i]``: for every domain of
    level i its domain at level i - 1. ``ids[i]``: their label values joined with ".".
    """

    def __init__(self, topology: Topology, nodes: Sequence[Node]) -> None:
        self.name = topology.name
        self.levels = topology.levels
        keys = topology.levels
        self.member: Mask = np.array([all(key in node.labels for key in keys) for node in nodes], dtype=bool)
        members = np.flatnonzero(self.member)
        values = [tuple(nodes[i].labels[key] for key in keys) for i in members.tolist()]
        self.domain: Ints = np.full((len(self.levels) + 1, len(nodes)), -1, dtype=np.int64)
        self.domain[0, members] = 0
        self.ids: list[tuple[str, ...]] = [("",)]
        self.parent: list[Ints] = [np.zeros(1, dtype=np.int64)]
        above: dict[tuple[str, ...], int] = {(): 0}
        for level in range(1, len(self.levels) + 1):
            paths = [value[:level] for value in values]
            known = sorted(set(paths), key=lambda path: (".".join(path), path))
            here = {path: i for i, path in enumerate(known)}
            self.domain[level, members] = [here[path] for path in paths]
            self.ids.append(tuple(".".join(path) for path in known))
            self.parent.append(np.array([above[path[:-1]] for path in known], dtype=np.int64))
            above = here
        self.gpu_memory_mib: Ints = np.array([node.gpu_memory_mib for node in nodes], dtype=np.int64)
        self.order: Ints = members[np.lexsort(self.domain[::-1, members])]
        """Nodes of the tree, sorted so that the nodes of every domain stand together."""
        sorted_domain = self.domain[:, self.order]
        changed = np.diff(sorted_domain, axis=1, prepend=-1) != 0
        self.starts: list[Ints] = [np.flatnonzero(row) for row in changed]
        """Per level, where in ``order`` each domain begins."""
        self.started: list[Ints] = [row[start] for row, start in zip(sorted_domain, self.starts, strict=True)]
        """Per level, which domain begins there."""

    def level_of(self, label: str) -> int | None:
        """Position of a level label; "" is the root, None an unknown one."""
        if not label:
            return 0
        return self.levels.index(label) + 1 if label in self.levels else None

    def domain_at(self, label: str) -> Ints:
        """[N] domain of every node at a level label ("": the root), -1 outside the tree."""
        level = self.level_of(label)
        if level is None:
            return np.full(len(self.member), -1, dtype=np.int64)
        found: Ints = self.domain[level]
        return found

    def count(self, level: int) -> int:
        """Number of domains of a level."""
        return len(self.ids[level])
