"""GPU kind: the node can serve the way in which the pod asks for GPUs (2.3, 2.4, 2.5).

- A pod with a legacy MIG annotation runs nowhere.
- On a MIG-enabled node, strategy ``single`` takes only whole GPUs, ``mixed`` only MIG instances.
- MIG instances need a MIG-enabled node that holds no legacy MIG pod.
- A request by GPU memory needs a node whose GPU memory is known, and takes at most one device there
  or exactly a whole number of them.
- Shares of a GPU do not go to nodes whose GPUs are served by DRA.

CPU-only pods are exempt. This is the node model's own rule: it holds without the ``predicates`` plugin.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from kai_cp_models.arrays import Mask
from kai_cp_models.pods import ACTIVE_USED, GpuKind, Pod
from kai_cp_models.snapshot import Node, Snapshot

if TYPE_CHECKING:
    from kai_cp_models.rules.static.table import NodeTable

NAME: Final = "gpu_kind"
FAMILY: Final = "gpu-kind"

_HUNDREDTHS: Final = 100


def mask(table: NodeTable, pod: Pod) -> Mask | None:
    """[N] nodes that can serve the pod's kind of GPU request; None: all."""
    spec = pod.spec
    if spec.legacy_mig:
        return np.zeros(len(table), dtype=bool)
    if not spec.needs_gpu:
        return None
    kind = spec.gpu.kind
    if kind is GpuKind.MIG:
        return table.mig_enabled & ~table.mig_single & ~table.legacy_mig
    nodes = ~table.mig_mixed
    if spec.gpu.shares:
        nodes &= ~table.mig_single & ~table.dra_gpus
    if kind is GpuKind.MEMORY:
        hundredths = -(-_HUNDREDTHS * spec.gpu.memory_mib // table.gpu_memory_mib)
        nodes &= table.gpu_memory_synced & ((hundredths <= _HUNDREDTHS) | (hundredths % _HUNDREDTHS == 0))
    return nodes


def broken(snapshot: Snapshot, pod: Pod, node: Node) -> str | None:
    """Why the node cannot serve the pod's kind of GPU request, or None."""
    spec = pod.spec
    if spec.legacy_mig:
        return "legacy MIG annotation is not supported"
    if not spec.needs_gpu:
        return None
    mig = spec.gpu.kind is GpuKind.MIG
    if mig and not node.mig_enabled:
        return "MIG instance asked for, node is not MIG-enabled"
    if mig and node.mig_strategy == "single":
        return "MIG strategy single takes whole GPUs only"
    if mig and _holds_legacy_mig(snapshot, node):
        return "node holds a legacy MIG pod"
    if not mig and node.mig_enabled and node.mig_strategy == "mixed":
        return "MIG strategy mixed takes MIG instances only"
    if spec.gpu.shares and node.mig_enabled and node.mig_strategy == "single":
        return "MIG strategy single takes whole GPUs only"
    if spec.gpu.shares and node.dra_gpus:
        return "GPUs of the node are served by DRA, which cannot be shared by fraction"
    if spec.gpu.kind is GpuKind.MEMORY:
        if not node.gpu_memory_synced:
            return "GPU memory of the node is unknown"
        asked = spec.gpu.memory_mib
        devices, rest = divmod(asked, node.gpu_memory_mib)
        # Anything above 99 hundredths of a device rounds up to a whole device.
        whole = rest == 0 or _HUNDREDTHS * (node.gpu_memory_mib - rest) < node.gpu_memory_mib
        if devices >= 1 and not whole:
            return f"asks for {asked} MiB of one GPU, which has {node.gpu_memory_mib} MiB"
    return None


def _holds_legacy_mig(snapshot: Snapshot, node: Node) -> bool:
    return any(spec.legacy_mig for spec in snapshot.specs) and any(
        pod.spec.legacy_mig and pod.node == node.name and pod.status in ACTIVE_USED for pod in snapshot.pods
    )
