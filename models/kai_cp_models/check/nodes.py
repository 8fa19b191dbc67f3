"""Static node rules: the node accepts the pod by conditions, taints, selectors, GPU kind and the like (7.2,
7.3).

The rules themselves are the modules of ``kai_cp_models.rules``, each with its own plain-Python reading.
``size`` is left out: ``capacity`` finds a pod that is larger than every node.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kai_cp_models.check.planned_cluster import PlannedCluster, Violation
from kai_cp_models.extras import CLAIM_MILLI_GPUS
from kai_cp_models.pods import Pod
from kai_cp_models.rules.static import STATIC_RULES
from kai_cp_models.snapshot import Node, Snapshot

_RULES: Final = tuple(rule for rule in STATIC_RULES if rule.NAME != "size")


def broken(world: PlannedCluster) -> Iterator[Violation]:
    """Pods placed on a node that refuses them."""
    claimed, known = world.snapshot.extras[CLAIM_MILLI_GPUS], world.start.refusals
    for pod, decision in world.arrivals:
        alike = id(pod.spec), decision.node, claimed.get(pod.key) if claimed else None
        faults = known.get(alike)
        if faults is None:
            faults = known[alike] = refusals(world.snapshot, pod, world.node(decision.node))
        for fault in faults:
            yield Violation("nodes", f"pod {pod.key} on node {decision.node}: {fault}", pods=(pod.key,))


def refusals(snapshot: Snapshot, pod: Pod, node: Node) -> list[str]:
    """Why static rules keep a pod off a node."""
    return [fault for rule in _RULES if (fault := rule.broken(snapshot, pod, node)) is not None]
