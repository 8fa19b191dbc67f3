"""Workers: under restricted node scheduling, GPU pods go to GPU workers, other pods to CPU workers (7.3).

A node is a worker if it carries the label, whatever its value; it may carry both labels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kai_cp_models.arrays import Mask
from kai_cp_models.pods import Pod
from kai_cp_models.rules.static.protocol import asks_gpu
from kai_cp_models.snapshot import Node, Snapshot

if TYPE_CHECKING:
    from kai_cp_models.rules.static.table import NodeTable

NAME: Final = "workers"
FAMILY: Final = "worker"


def mask(table: NodeTable, pod: Pod) -> Mask | None:
    """[N] nodes whose worker label fits the pod's kind; None: all."""
    policy = table.snapshot.policy
    if not policy.restrict_node_scheduling or not table.predicates:
        return None
    gpu = asks_gpu(table.snapshot, pod)
    label = table.label(policy.gpu_worker_label if gpu else policy.cpu_worker_label)
    present: Mask = label.codes >= 0
    return present


def broken(snapshot: Snapshot, pod: Pod, node: Node) -> str | None:
    """Which worker label the node lacks, or None."""
    policy = snapshot.policy
    if not policy.restrict_node_scheduling or not policy.plugin("predicates"):
        return None
    if asks_gpu(snapshot, pod):
        return None if policy.gpu_worker_label in node.labels else "not a GPU worker node"
    return None if policy.cpu_worker_label in node.labels else "not a CPU worker node"
