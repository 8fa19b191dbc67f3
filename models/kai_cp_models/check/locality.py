"""Locality: what a plan says about how close its gangs are is true.

The distance of two nodes is that of the first kind of place that they share: an NVLink domain (the clique
that both name, or one node whose GPUs NVLink joins), then the levels of all Topologies, those with the
smaller places first. A node is in a Topology when it carries all its labels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import gcd

from kai_cp_models.check import hardware
from kai_cp_models.check.planned_cluster import PlannedCluster, Violation
from kai_cp_models.pods import GPU, MILLI, GroupKey
from kai_cp_models.snapshot import Node, Topology
from kai_cp_topology.records import CLIQUE_LABEL, HOSTNAME_LABEL, PRODUCT_LABEL, Locality
from kai_cp_topology.systems import System, system_of_product

_Level = tuple[str, Mapping[str, object], int]
"""A node label, the place of every node that has one at this level, and the hops that the level adds."""


def broken(world: PlannedCluster) -> Iterator[Violation]:
    """Pod groups for which the plan does not say what the labels of their nodes say."""
    if not world.plan.localities:
        return
    told = hardware.labels_of(world.snapshot)
    nodes = {node.name: replace(node, labels=told[node.name]) for node in world.snapshot.nodes}
    levels = _levels(nodes.values(), world.snapshot.topologies)
    for key, said in world.plan.localities.items():
        if key not in world.snapshot.group_by_key:
            yield Violation("locality", f"pod group {key} is unknown", groups=(key,))
            continue
        found = _locality(world, key, nodes, levels)
        if said != found:
            yield Violation(
                "locality", f"pod group {key} is said to have {said}, it has {found}", groups=(key,)
            )


def _locality(
    world: PlannedCluster, key: GroupKey, nodes: Mapping[str, Node], levels: Sequence[_Level]
) -> Locality:
    gpus: Counter[str] = Counter()
    for pod in world.active_after(key):
        gpu = pod.spec.gpu
        gpus[world.node_after(pod) or ""] += gpu.devices if gpu.shares else pod.spec.requests[GPU] // MILLI
    held = [(nodes[name], count) for name, count in gpus.items() if count and name in nodes]
    domains: Counter[object] = Counter()
    for node, count in held:
        domains[_nvlink(node) or ("alone", node.name)] += count
    label, hops = _meeting([node.name for node, _ in held], levels)
    worst = _worst(held, joined=len(domains) == 1)
    return Locality(worst, hops, label, len(domains), gcd(*domains.values()))


def _meeting(names: Sequence[str], levels: Sequence[_Level]) -> tuple[str, int]:
    if len(names) < 2:
        return (HOSTNAME_LABEL, 0) if names else ("", 0)
    hops = 0
    for label, places, more in levels:
        hops += more
        shared = {places.get(name) for name in names}
        if len(shared) == 1 and None not in shared:
            return label, hops
    return "", hops + 2


def _worst(held: Sequence[tuple[Node, int]], *, joined: bool) -> int | None:
    """Bandwidth of the worst pair if each node gives GPUs that lie together."""
    pairs = []
    for node, count in held:
        system = _system(node)
        if count > 1:
            pairs.append(system.nvlink if count <= system.island else system.pcie)
        if len(held) > 1:
            pairs.append((system.nvlink if joined else 0) or system.network)
    return min(pairs, default=None)


def _levels(nodes: Collection[Node], topologies: Iterable[Topology]) -> list[_Level]:
    """Every kind of place, from close to far."""
    nvlink = {node.name: place for node in nodes if (place := _nvlink(node)) is not None}
    found: list[tuple[str, Mapping[str, object]]] = [(CLIQUE_LABEL, nvlink)] if nvlink else []
    wider = []
    for topology in topologies:
        inside = [node for node in nodes if all(x in node.labels for x in topology.levels)]
        for depth, label in enumerate(topology.levels, 1):
            places = {n.name: tuple(n.labels[x] for x in topology.levels[:depth]) for n in inside}
            count = len(set(places.values()))
            if label != CLIQUE_LABEL and len(places) > count:
                wider.append((len(places) / count, topology.name, -depth, label, places))
    known = {_groups(places) for _, places in found}
    for *_, label, places in sorted(wider, key=lambda level: level[:3]):
        if _groups(places) not in known:
            known.add(_groups(places))
            found.append((label, places))
    # A level at which every node is a place of its own adds no hops.
    return [(label, places, 2 if len(set(places.values())) < len(places) else 0) for label, places in found]


def _groups(places: Mapping[str, object]) -> frozenset[frozenset[str]]:
    """Which nodes are together."""
    members: dict[object, set[str]] = {}
    for name, place in places.items():
        members.setdefault(place, set()).add(name)
    return frozenset(map(frozenset, members.values()))


def _nvlink(node: Node) -> object:
    clique = node.labels.get(CLIQUE_LABEL)
    if clique:
        return clique
    system, gpus = _system(node), node.allocatable[GPU] // MILLI
    return ("joined", node.name) if system.nvlink and 1 < gpus <= system.island else None


def _system(node: Node) -> System:
    return system_of_product(node.labels.get(PRODUCT_LABEL) or "")
