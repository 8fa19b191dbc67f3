"""Topology: required levels hold for whole subtrees, and constrained pods stay inside the topology (8.2,
8.3).

A subtree with a required level is in one domain of that level. That holds for its new pods and all its active
pods, also those of other subgroups (14: pinned to the whole constrained subtree). A node without all the
level labels is not in the topology. Pods that were spread over several domains before may stay so, each in
its own.
"""

from __future__ import annotations

from collections.abc import Iterator

from kai_cp_models.check import tree
from kai_cp_models.check.planned_cluster import PlannedCluster, Violation
from kai_cp_models.snapshot import PodGroup, Subgroup, Topology, TopologyConstraint

DomainPath = tuple[str, ...]


def broken(world: PlannedCluster) -> Iterator[Violation]:
    """Constrained subtrees whose new pods leave their domain or the topology."""
    if not world.snapshot.policy.plugin("topology"):
        return
    for group in world.touched_groups:
        for subgroup in tree.walk(group.root):
            if subgroup.constraint is not None:
                yield from _constrained(world, group, subgroup, subgroup.constraint)


def _constrained(
    world: PlannedCluster, group: PodGroup, subgroup: Subgroup, constraint: TopologyConstraint
) -> Iterator[Violation]:
    leaves = {leaf.name for leaf in subgroup.leaves()}
    members = [p for p in world.active_after(group.key) if tree.leaf_name(p) in leaves]
    placed = [(p, world.placed[p.key].node) for p in members if p.key in world.placed]
    if not placed:
        return
    what = f"{tree.label(group, subgroup)}"
    topology = next((t for t in world.snapshot.topologies if t.name == constraint.topology), None)
    if constraint.error or topology is None:
        yield Violation(
            "topology",
            f"{what}: placed although {constraint.error or f'topology {constraint.topology} is unknown'}",
            groups=(group.key,),
        )
        return
    for pod, node in placed:
        missing = _place(world, topology, node)[1]
        if missing:
            yield Violation(
                "topology",
                f"{what}: pod {pod.key} is on node {node}, which has no {missing}",
                pods=(pod.key,),
            )
    if not constraint.required:
        return
    depth = topology.levels.index(constraint.required) + 1

    def domain(node: str | None) -> DomainPath | None:
        return None if node is None else _place(world, topology, node)[0][:depth]

    domains = [(domain(pod.node), domain(world.node_after(pod))) for pod in members]
    # A pod that moves inside its domain stays in it.
    held = {after for before, after in domains if after is not None and after == before}
    used = {after for before, after in domains if after is not None and after != before}
    if (held and not used <= held) or (not held and len(used) > 1):
        names = ", ".join(sorted(map(".".join, used | held)))
        yield Violation(
            "topology",
            f"{what}: spans several domains of {constraint.required}: {names}",
            groups=(group.key,),
        )


def _place(world: PlannedCluster, topology: Topology, node: str) -> tuple[DomainPath, str]:
    """The labels of a node at all levels, and the first that it lacks."""
    known = world.start.domains
    found = known.get((topology.name, node))
    if found is None:
        labels = world.node(node).labels
        path = tuple(labels.get(name, "") for name in topology.levels)
        missing = next((name for name in topology.levels if name not in labels), "")
        found = known[topology.name, node] = path, missing
    return found
