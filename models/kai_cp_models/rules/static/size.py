"""Size: no request of the pod exceeds the largest node in that dimension (MaxNodePoolResources, 7.1).

A pod that breaks it fits no node, empty or not: the refusal is a proof.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from kai_cp_models.arrays import Mask
from kai_cp_models.pods import Pod
from kai_cp_models.shown import amount, quantity
from kai_cp_models.snapshot import Node, Snapshot

if TYPE_CHECKING:
    from kai_cp_models.rules.static.table import NodeTable

NAME: Final = "size"
FAMILY: Final = None
"""A pod larger than the largest node lacks capacity; explanations need no rule of their own for it."""


def mask(table: NodeTable, pod: Pod) -> Mask | None:
    """[N] no node at all if a request exceeds the largest node; otherwise None: all."""
    if not table.predicates or (np.array(pod.spec.requests) <= table.largest).all():
        return None
    return np.zeros(len(table), dtype=bool)


def broken(snapshot: Snapshot, pod: Pod, node: Node) -> str | None:
    """The first dimension in which no node is large enough, or None."""
    fits_empty = all(asked <= has for asked, has in zip(pod.spec.requests, node.allocatable, strict=True))
    if fits_empty or not snapshot.policy.plugin("predicates"):
        return None
    return too_large(snapshot, pod)


def too_large(snapshot: Snapshot, pod: Pod) -> str | None:
    """The first dimension in which the pod asks for more than any node has, in words, or None."""
    for i, asked in enumerate(pod.spec.requests):
        largest = max((node.allocatable[i] for node in snapshot.nodes), default=0)
        if asked > largest:
            name = snapshot.dimensions[i]
            most = f"the largest node has {amount(name, largest)}" if largest else "no node has any"
            return f"asks for {quantity(name, asked)}, {most}"
    return None
