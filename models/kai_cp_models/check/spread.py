"""Topology spread, when it is on: placed pods keep the skew of their DoNotSchedule constraints."""

from __future__ import annotations

from collections.abc import Iterator

from kai_cp_models.check.affinity import selects
from kai_cp_models.check.world import World
from kai_cp_models.rules import selector
from kai_cp_models.snapshot import Node, Pod, SpreadConstraint


def broken(world: World) -> Iterator[str]:
    """Placed pods in a domain that has too many more matching pods than another one."""
    if not world.options.topology_spread:
        return
    for key in sorted(world.placed):
        pod, node = world.pod(key), world.node(world.placed[key].node)
        for constraint in pod.spec.spread:
            fault = _skew(world, pod, node, constraint)
            if fault:
                yield f"spread: pod {key} on node {node.name}: {fault}"


def _skew(world: World, pod: Pod, node: Node, constraint: SpreadConstraint) -> str:
    label = constraint.topology_key
    home = node.labels.get(label)
    if home is None:
        return f"the node has no {label}"
    counts: dict[str, int] = {}
    for other in world.snapshot.nodes:
        keys = (c.topology_key for c in pod.spec.spread)
        if all(k in other.labels for k in keys) and selector.broken(world.snapshot, pod, other) is None:
            counts.setdefault(other.labels[label], 0)
    counts.setdefault(home, 0)
    for name, resident in world.occupants([n.name for n in world.snapshot.nodes], now=False):
        domain = world.node(name).labels.get(label)
        same = resident.pod.key.namespace == pod.key.namespace
        # A pod without the constraint may enter any domain, also after this one.
        bound = constraint in resident.pod.spec.spread or not resident.placed
        if domain in counts and same and selects(constraint.selector, resident.pod.labels):
            counts[domain] += bound or domain != home
    least = min(counts, key=lambda d: (counts[d], d))
    if counts[home] - counts[least] <= constraint.max_skew:
        return ""
    return f"{counts[home]} pods in {home}, {counts[least]} in {least}, skew at most {constraint.max_skew}"
