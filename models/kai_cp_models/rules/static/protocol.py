"""The functions that every static node rule offers: one statement for the engine, one for the checker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from kai_cp_models.arrays import Mask
from kai_cp_models.extras import CLAIM_MILLI_GPUS
from kai_cp_models.pods import Pod
from kai_cp_models.snapshot import Node, Snapshot

if TYPE_CHECKING:  # the table applies the rules, so it cannot be imported by them
    from kai_cp_models.rules.static.table import NodeTable


class StaticRule(Protocol):
    """A module of this package. Its answers depend on the pod's ``spec`` alone, so equal pods share them."""

    NAME: str

    @property
    def FAMILY(self) -> str | None:
        """The family of rules that explanations name (``explain/families.py``); None: none of its own."""

    def mask(self, table: NodeTable, pod: Pod) -> Mask | None:
        """[N] nodes that accept the pod; None: all of them."""

    def broken(self, snapshot: Snapshot, pod: Pod, node: Node) -> str | None:
        """Why the node refuses the pod, or None.

        The text names no node, so that nodes with one reason are counted together.
        """


def asks_gpu(snapshot: Snapshot, pod: Pod) -> bool:
    """Whether the pod asks for a GPU in any way, claims included; otherwise it is CPU-only (2.2, 2.5)."""
    return pod.spec.needs_gpu or snapshot.extras[CLAIM_MILLI_GPUS].get(pod.key, 0) > 0
