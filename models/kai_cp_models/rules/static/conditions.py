"""Conditions: a node that is cordoned, not Ready or under pressure accepts no pod (7.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kai_cp_models.arrays import Mask
from kai_cp_models.pods import Pod
from kai_cp_models.snapshot import Node, Snapshot

if TYPE_CHECKING:
    from kai_cp_models.rules.static.table import NodeTable

NAME: Final = "conditions"
FAMILY: Final = "node-condition"


def mask(table: NodeTable, pod: Pod) -> Mask | None:
    """[N] nodes that accept pods; None: all."""
    return table.ready if table.predicates else None


def broken(snapshot: Snapshot, pod: Pod, node: Node) -> str | None:
    """Why the node accepts no pods, or None."""
    if snapshot.policy.plugin("predicates") and node.not_ready:
        return f"node takes no pods: {node.not_ready}"
    return None
