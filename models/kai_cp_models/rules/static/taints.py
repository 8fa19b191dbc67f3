"""Taints: the pod tolerates every NoSchedule and NoExecute taint of the node (7.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from kai_cp_models.arrays import Mask
from kai_cp_models.pods import Pod, Toleration
from kai_cp_models.snapshot import Node, Snapshot, Taint

if TYPE_CHECKING:
    from kai_cp_models.rules.static.table import NodeTable

NAME: Final = "taints"
FAMILY: Final = "taint"

REFUSING: Final = ("NoSchedule", "NoExecute")
"""Effects that keep pods off the node; PreferNoSchedule has no effect (6)."""


def mask(table: NodeTable, pod: Pod) -> Mask | None:
    """[N] nodes without a taint that the pod does not tolerate; None: all."""
    if not table.predicates:
        return None
    refused = [
        nodes
        for taint, nodes in table.taints.items()
        if not any(tolerates(toleration, taint) for toleration in pod.spec.tolerations)
    ]
    return ~np.logical_or.reduce(refused) if refused else None


def broken(snapshot: Snapshot, pod: Pod, node: Node) -> str | None:
    """The first taint that the pod does not tolerate, or None."""
    if not snapshot.policy.plugin("predicates"):
        return None
    for taint in node.taints:
        if taint.effect not in REFUSING:
            continue
        if not any(tolerates(toleration, taint) for toleration in pod.spec.tolerations):
            value = f"={taint.value}" if taint.value else ""
            return f"taint {taint.key}{value}:{taint.effect} not tolerated"
    return None


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Whether a toleration covers a taint, by Kubernetes' rule.

    An empty effect or key matches every taint, and ``Exists`` ignores the value.
    """
    if toleration.effect not in ("", taint.effect) or toleration.key not in ("", taint.key):
        return False
    if toleration.operator in ("", "Equal"):
        return toleration.value == taint.value
    return toleration.operator == "Exists"
