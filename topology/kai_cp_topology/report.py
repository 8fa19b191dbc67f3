"""The report of a cluster's fabric: trees, systems and capacities, as values, text and JSON."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from kai_cp_topology import capacity, domains
from kai_cp_topology.records import CLIQUE_LABEL, HOSTNAME_LABEL, Capacity, Domain, Level, NodeFacts, Tree
from kai_cp_topology.systems import System, system_of

_MAX_LISTED_NODES: Final = 48
"""Up to this many nodes of a tree are listed one by one."""
_BAR: Final = 10
_SHORTEST: Final = 24
"""No name of the tree is cut to fewer columns."""
_WIDTH: Final = 80
"""Columns of a terminal; a wider table of capacities names its places below their rows."""


@dataclass(frozen=True)
class Report:
    """The fabric of one cluster: its nodes by name, and its trees."""

    nodes: Mapping[str, NodeFacts]
    trees: tuple[Tree, ...]

    @classmethod
    def of(cls, nodes: Sequence[NodeFacts], topologies: Mapping[str, Sequence[str]]) -> Report:
        """``topologies``: level labels, widest first, by Topology name."""
        return cls({node.name: node for node in nodes}, domains.trees(nodes, topologies))

    def sizes(self, tree: Tree) -> tuple[int, ...]:
        """GPUs per pod for which capacities of a tree are given."""
        return capacity.usual_sizes(self.nodes[name] for name in tree.root.nodes)

    @cached_property
    def systems(self) -> tuple[tuple[System, int, int], ...]:
        """(system, number of nodes, number of GPUs) of nodes with GPUs, most GPUs first."""
        count: Counter[System] = Counter()
        gpus: Counter[System] = Counter()
        for node in self.nodes.values():
            if node.gpus:
                count[system_of(node)] += 1
                gpus[system_of(node)] += node.gpus
        return tuple((s, count[s], gpus[s]) for s in sorted(gpus, key=lambda s: (-gpus[s], s.name)))

    def largest_gangs(self, tree: Tree) -> tuple[Capacity, ...]:
        """Capacities of a tree for the pod sizes that its nodes can take."""
        return capacity.largest_gangs(tree, self.nodes, self.sizes(tree))

    def largest_on_one_node(self, tree: Tree, size: int) -> int:
        """The most pods of a size that one node of the tree takes."""
        return max((self.nodes[name].free_gpus // size for name in tree.root.nodes), default=0)


def to_json(report: Report) -> dict[str, Any]:
    """The report as plain JSON values."""
    return {
        "schema": "topology/1",
        "systems": [
            {
                "name": system.name,
                "nodes": count,
                "gpus": gpus,
                "islandGpus": system.island,
                "nvlinkDomainGpus": system.domain,
                "gbytesPerSecond": {
                    "nvlink": system.nvlink,
                    "pcie": system.pcie,
                    "network": system.network,
                },
            }
            for system, count, gpus in report.systems
        ],
        "topologies": [
            {
                "name": tree.name,
                "levels": [level.label for level in tree.levels],
                "domains": [
                    {
                        "level": domain.level,
                        "path": list(domain.path),
                        "nodes": list(domain.nodes),
                        "gpus": domain.gpus,
                        "freeGpus": domain.free_gpus,
                    }
                    for domain in tree.domains
                ],
                "outside": list(tree.outside),
                "largestGangs": [
                    {
                        "level": c.level,
                        "podGpus": c.pod_gpus,
                        "pods": c.pods,
                        "domain": list(c.where),
                        "hops": c.hops,
                    }
                    for c in report.largest_gangs(tree)
                ],
            }
            for tree in report.trees
        ],
    }


def to_text(report: Report, columns: int | None = None, ending: str = "") -> str:
    """The report for a terminal of so many columns, on which long names are cut; None: nothing is cut.

    ``ending``: what all names of nodes end in; it is said once.
    """
    lines: list[str] = []
    for tree in report.trees:
        lines += [*_tree_lines(report, tree, columns, ending), "", *_capacity_lines(report, tree), ""]
    for line in _system_lines(report):
        lines += [line] if columns is None else textwrap.wrap(line, columns, subsequent_indent="  ")
    return "\n".join(lines) + "\n"


def _tree_lines(report: Report, tree: Tree, columns: int | None, ending: str) -> list[str]:
    levels = " > ".join(level.label for level in tree.levels)
    rows: list[tuple[str, str]] = [(tree.name, _numbers(report, tree.root))]
    children = tree.children()
    listed = len(tree.root.nodes) <= _MAX_LISTED_NODES
    single = _node_level(tree)

    def walk(domain: Domain, indent: str) -> None:
        below = [child for child in children.get(domain.path, ()) if child.level != single]
        items: list[tuple[str, str, Domain | None]] = []
        for child in below:
            name, last = f"{_level_name(child)} {child.name}", child
            # A level that holds the same nodes as the one above it shares its line.
            while len(inner := children.get(last.path, ())) == 1 and inner[0].nodes == last.nodes:
                if inner[0].level == single:
                    break
                last = inner[0]
                name += f" = {_level_name(last)} {last.name}"
            items.append((name, _numbers(report, last), last))
        named = {name for child in below for name in child.nodes}
        for name in domain.nodes if listed else ():
            if name not in named:
                node = report.nodes[name]
                items.append((name.removesuffix(ending), _amount(node.gpus, node.free_gpus), None))
        for i, (label, numbers, inside) in enumerate(items, 1):
            branch, deeper = ("└─ ", "   ") if i == len(items) else ("├─ ", "│  ")
            rows.append((f"{indent}{branch}{label}", numbers))
            if inside is not None:
                walk(inside, indent + deeper)

    walk(tree.root, "")
    width = max(len(label) for label, _ in rows)
    lines = [f"levels: {levels}"] if levels else []
    lines += [f"nodes end in {ending}"] if ending and listed else []
    if columns is not None:
        width = min(width, max(_SHORTEST, columns - 2 - max(len(numbers.rstrip()) for _, numbers in rows)))
    lines += [f"{_cut(label, width):<{width}}  {numbers}".rstrip() for label, numbers in rows]
    if tree.outside:
        some = ", ".join(tree.outside[:5]) + (", …" if len(tree.outside) > 5 else "")
        lines.append(f"outside: {_count(len(tree.outside), 'node')} without all level labels ({some})")
    return lines


def _cut(label: str, width: int) -> str:
    """A label without its middle where it is longer: both ends distinguish a name."""
    return label if len(label) <= width else f"{label[: width - width // 2 - 1]}…{label[-(width // 2) :]}"


def _capacity_lines(report: Report, tree: Tree) -> list[str]:
    sizes = report.sizes(tree)
    if not sizes:
        return ["no GPUs"]
    found = {(c.level, c.pod_gpus): c for c in report.largest_gangs(tree)}
    lines = _capacity_table(report, tree, sizes, found, named=True)
    if max(map(len, lines)) <= _WIDTH:
        return lines
    return _capacity_table(report, tree, sizes, found, named=False)


def _capacity_table(
    report: Report,
    tree: Tree,
    sizes: Sequence[int],
    found: Mapping[tuple[str, int], Capacity],
    *,
    named: bool,
) -> list[str]:
    """The table of capacities; the places stand beside the numbers, or below them if not ``named``."""
    below: dict[str, list[str]] = {}
    rows = [("largest gang that fits in", ["hops", *(f"{size} GPU{'s' * (size > 1)}/pod" for size in sizes)])]
    rows.append(("one node", ["0", *(_pods(report.largest_on_one_node(tree, size)) for size in sizes)]))
    for level in reversed(tree.levels):
        if level.label == _node_level(tree):
            continue
        best = [found[level.label, size] for size in sizes if (level.label, size) in found]
        cells = [_pods(c.pods, c.where[-1] if named else "") for c in best] or [_pods(0) for _ in sizes]
        label = f"one {level.name}"
        rows.append((label, [_hops(best), *cells]))
        below[label] = [] if named else _places(best)
    best = [found["", size] for size in sizes]
    rows.append((f"all of {tree.name}", [_hops(best), *(_pods(c.pods) for c in best)]))
    first = max(len(label) for label, _ in rows)
    widths = [max(map(len, column)) for column in zip(*(cells for _, cells in rows), strict=True)]
    return [
        line
        for label, cells in rows
        for line in (
            f"{label:<{first}}  "
            + "  ".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True)).rstrip(),
            *below.get(label, ()),
        )
    ]


def _places(best: Sequence[Capacity]) -> list[str]:
    """``  in rack-1: 2 and 4 GPUs/pod``: a line for each place that takes the most pods of some size."""
    sizes: dict[str, list[str]] = {}
    for one in best:
        if one.pods:
            sizes.setdefault(one.where[-1], []).append(str(one.pod_gpus))
    return [
        f"  in {place}: {', '.join(those)} GPU{'s' * (those != ['1'])}/pod" for place, those in sizes.items()
    ]


def _node_level(tree: Tree) -> str | None:
    """The level whose domains are the nodes themselves; it is shown as nodes."""
    if not tree.levels:
        return None
    label = tree.levels[-1].label
    own = all(
        len(domain.nodes) == 1 and (label == HOSTNAME_LABEL or domain.name == domain.nodes[0])
        for domain in tree.domains
        if domain.level == label
    )
    return label if own else None


def _system_lines(report: Report) -> list[str]:
    lines = []
    for system, count, gpus in report.systems:
        if system.nvlink:
            joined = f"NVLink {system.nvlink:,} GB/s in islands of {system.island}"
            if system.spans_nodes:
                joined = f"NVLink {system.nvlink:,} GB/s in domains of {system.domain}"
        else:
            joined = f"no NVLink known, PCIe {system.pcie} GB/s"
        lines.append(
            f"{system.name}: {_count(count, 'node')}, {_count(gpus, 'GPU')}; {joined}, "
            f"network {system.network} GB/s"
        )
    return lines


def _numbers(report: Report, domain: Domain) -> str:
    text = f"{_amount(domain.gpus, domain.free_gpus)}  {_count(len(domain.nodes), 'node')}"
    if domain.level == CLIQUE_LABEL:
        whole = max((system_of(report.nodes[name]).domain for name in domain.nodes), default=0)
        if domain.gpus < whole:
            text += f", {whole - domain.gpus} of {whole} GPUs missing"
    return text


def _amount(gpus: int, free: int) -> str:
    """GPUs in use as a bar, then numbers."""
    if not gpus:
        return f"{'':<{_BAR}}  {'no GPUs':>21}"
    # Rounded up, so that only an unused domain has an empty bar; rounded down from full while any GPU is
    # free.
    used = gpus - free
    full = _BAR if not free else min(_BAR - 1, -(-used * _BAR // gpus))
    return f"{'█' * full}{'░' * (_BAR - full)}  {free:>6,} free of {gpus:<6,}"


def _level_name(domain: Domain) -> str:
    return Level(domain.level).name


def _hops(best: Sequence[Capacity]) -> str:
    return str(max(c.hops for c in best)) if best else ""


def _pods(count: int, where: str = "") -> str:
    return (f"{count:,} ({where})" if where else f"{count:,}") if count else "none"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
