"""Static node rules: conditions, taints, selectors, GPU kind and the like accept the pod (7.2, 7.3).

The rules themselves are the modules of ``kai_cp_models.rules``, each with its own plain-Python reading.
"""

from __future__ import annotations

from collections.abc import Iterator

from kai_cp_models import rules
from kai_cp_models.check.world import World
from kai_cp_models.snapshot import Node, Pod, Snapshot


def broken(world: World) -> Iterator[str]:
    """Pods placed on a node that refuses them."""
    for key, decision in world.placed.items():
        for fault in _refusals(world.snapshot, world.pod(key), world.node(decision.node)):
            yield f"nodes: pod {key} on node {decision.node}: {fault}"


def accepts(snapshot: Snapshot, pod: Pod, node: Node) -> bool:
    """Whether all static rules let a pod onto a node."""
    return not any(True for _ in _refusals(snapshot, pod, node))


def _refusals(snapshot: Snapshot, pod: Pod, node: Node) -> Iterator[str]:
    for rule in getattr(rules, "STATIC_RULES", ()):
        yield from rule.broken(snapshot, pod, node)
