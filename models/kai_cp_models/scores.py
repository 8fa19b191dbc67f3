"""Node scores of one pod (6): the sum of named terms, each active with its plugin; higher is better.

The magnitudes are KAI's. They order the terms: a promised node, the topology, sharing a GPU, capacity
that is free now, keeping GPU nodes for GPU pods, and packing. Of equal nodes the first by name wins, which
is the caller's ``argmax``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kai_cp_models.arrays import Floats, Mask
from kai_cp_models.pods import CPU, GPU, MILLI, Pod
from kai_cp_models.rules.static.protocol import asks_gpu
from kai_cp_models.rules.static.table import NodeTable

NOMINATED: Final = 10_000_000
"""``nominatednode``: the pod's status names the node."""
SHARING: Final = 10_000
"""``gpusharingorder``: the pod fits a shared GPU of the node; a CPU-only pod fits any."""
AVAILABLE: Final = 1_000
"""``nodeavailability``: the pod fits what is free now."""
CPU_NODE: Final = 10
"""``resourcetype``: a CPU-only pod on a node without GPUs."""
PACKED: Final = 9
"""``nodeplacement``: the fullest candidate under binpack; an empty node under spread scores 1."""
_ROOM: Final = 2**44
"""More milli-CPUs or milli-GPUs than any node has."""


def scores(
    table: NodeTable,
    pod: Pod,
    candidates: Mask,
    free: NDArray[np.int64],
    *,
    fits_now: Mask,
    fits_shared: Mask,
    topology_score: Floats | None = None,
    extra: Floats | float = 0.0,
) -> Floats:
    """[N] scores; entries outside ``candidates`` mean nothing.

    ``free``: [N, D] once everything releasing is gone. ``fits_now``: nodes where the pod fits what is
    idle. ``fits_shared``: nodes with a shared GPU that it fits.
    ``topology_score``: ``Candidates.score`` (NaN: not a candidate).
    ``extra``: other plugins' scores.
    """
    policy = table.snapshot.policy
    total = np.zeros(len(table))
    if pod.nominated_node is not None and policy.plugin("nominatednode"):
        node = table.snapshot.node_index.get(pod.nominated_node)
        if node is not None:
            total[node] += NOMINATED
    if topology_score is not None:
        total += topology_score
    if policy.plugin("gpusharingorder"):
        total += SHARING * fits_shared
    if policy.plugin("nodeavailability"):
        total += AVAILABLE * fits_now
    if policy.plugin("resourcetype") and not asks_gpu(table.snapshot, pod):
        total += CPU_NODE * table.cpu_only
    if policy.plugin("nodeplacement"):
        total += _placement(table, pod, candidates, free)
    return total + extra


class Ranking:
    """The terms of ``scores`` one above the other, as integers, for pods of one spec.

    Each term outweighs all below it together, so the order is the same; least free capacity is worth most.
    ``exact``: whether that orders nodes exactly as ``scores`` does, without a nominated node, topology score
    or extra terms.
    """

    def __init__(self, table: NodeTable, pod: Pod) -> None:
        policy = table.snapshot.policy
        gpu = asks_gpu(table.snapshot, pod)
        packs = policy.plugin("nodeplacement")
        strategy = policy.gpu_strategy if gpu else policy.cpu_strategy
        offered = table.allocatable[:, GPU if gpu else CPU] > 0
        self._shared = 4 * _ROOM if policy.plugin("gpusharingorder") else 0
        self._now = 2 * _ROOM if policy.plugin("nodeavailability") else 0
        cpu_only = table.cpu_only if policy.plugin("resourcetype") and not gpu else None
        self._cpu_only = None if cpu_only is None else np.where(cpu_only, _ROOM, 0)
        self._packed = (GPU if gpu else CPU) if packs else None
        self.exact = not packs or (strategy != "spread" and bool(offered[table.accepting(pod)].all()))

    def column(
        self, nodes: slice | list[int], now: Mask, shared: Mask, free: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """[node] ranks of some nodes; ``now``: where the pod fits what is idle; ``shared``: where it fits a
        shared device; ``free``: [node, D]."""
        total: NDArray[np.int64] = self._shared * shared.astype(np.int64) + self._now * now
        if self._cpu_only is not None:
            total += self._cpu_only[nodes]
        if self._packed is not None:
            total -= free[:, self._packed]
        return total

    def one(self, node: int, now: bool, shared: bool, free: Sequence[int]) -> int:
        """The rank of one node."""
        total = self._shared * shared + self._now * now
        if self._cpu_only is not None:
            total += int(self._cpu_only[node])
        return total - free[self._packed] if self._packed is not None else total


def _placement(table: NodeTable, pod: Pod, candidates: Mask, free: NDArray[np.int64]) -> Floats:
    """0 to 9 for packing, 0 to 1 for spreading, by CPU or GPU as the pod asks for (nodeplacement)."""
    gpu = asks_gpu(table.snapshot, pod)
    dimension = GPU if gpu else CPU
    strategy = table.snapshot.policy.gpu_strategy if gpu else table.snapshot.policy.cpu_strategy
    room = free[:, dimension]
    if strategy == "spread":
        total = table.gpu_count * MILLI if gpu else table.allocatable[:, CPU]
        return np.where(total > 0, room / np.maximum(total, 1), 0.0)
    offers: Mask = candidates & (table.allocatable[:, dimension] > 0)
    result = np.zeros(len(table))
    if not offers.any():
        return result
    least, most = int(room[offers].min()), int(room[offers].max())
    if most == 0:
        return result
    if least == most:
        result[offers] = PACKED
    else:
        result[offers] = PACKED * (1 - (room[offers] - least) / (most - least))
    return result
