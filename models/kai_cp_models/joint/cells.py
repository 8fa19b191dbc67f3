"""What a joint model counts: classes of equal pods, and cells of nodes that nothing tells apart.

Where GPUs alone bind and the sizes asked for divide each other (8, 4, 2, 1), a placement exists if and only
if for every size s the pods of size s and larger, measured in pieces of s, are no more than the pieces of s
that the nodes offer (formulation 2.1): sum over t >= s of (t/s) count_t <= sum over nodes of floor(free/s).
So such nodes are one cell as far as every class and every topology scope treats them alike. Every other node
is a cell of its own, with a row for each dimension.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice, pairwise
from typing import Final

import numpy as np

from kai_cp_models.arrays import Ints, Mask
from kai_cp_models.fairness.amounts import milli_gpus
from kai_cp_models.joint.search import Linear
from kai_cp_models.ledger import Ledger
from kai_cp_models.limits import LIMITS
from kai_cp_models.pods import GPU, MILLI, PODS, GpuKind, Pod
from kai_cp_models.solver import cp_model

POOL: Final = -1
"""Stands for a cell where a class of shares is counted over all nodes that are alike."""


@dataclass
class PodClass:
    """Pods that the model counts together; ``example`` stands for all of them."""

    example: Pod
    mask: Mask
    scoped: bool = False
    """Whether a topology constraint holds for the pods of one ask."""
    x: dict[int, cp_model.IntVar] = field(default_factory=dict)
    """Count of the class by cell; see also ``POOL``."""
    pods: list[tuple[Pod, Linear]] = field(default_factory=list)
    """Pods in placement order, each with 1 if it goes somewhere, 0 if not."""

    @property
    def most(self) -> int:
        """Pods of the class if everything is admitted and moved."""
        return len(self.pods)

    @property
    def shares(self) -> bool:
        """Whether the pods share devices."""
        return self.example.spec.gpu.shares

    @property
    def size(self) -> int:
        """Whole GPUs that one pod asks for; 0 for a share."""
        return self.example.spec.requests[GPU] // MILLI


@dataclass(frozen=True)
class NodeCells:
    """The nodes of every cell, by the first of them."""

    nodes: Mapping[int, Ints]
    alike: Mask
    """[N] nodes on which pieces of GPUs are counted; every other one is a cell of its own."""
    pooled: bool
    """Whether shares are counted over all such nodes together."""

    @staticmethod
    def of(classes: Collection[PodClass], alike: Mask, domains: Sequence[Ints], ledger: Ledger) -> NodeCells:
        """``alike`` [N]: see ``gpus_alone_bind``. ``domains``: [N] for every level a scope requires."""
        shares = [item for item in classes if item.shares]
        takes: Mask = alike & np.any([item.mask for item in shares], axis=0)
        pooled = bool(takes.any()) and _one_pool(shares, np.flatnonzero(takes), ledger)
        if not pooled:
            alike = alike & ~takes
        useful = np.any([item.mask for item in classes], axis=0)
        together, alone = np.flatnonzero(useful & alike), np.flatnonzero(useful & ~alike)
        parts = [alone[i : i + 1] for i in range(len(alone))]
        if len(together):
            # Most classes accept the same nodes.
            columns = [*{item.mask.tobytes(): item.mask for item in classes}.values(), *domains]
            matrix = np.stack([column[together].astype(np.int64) for column in columns], axis=1)
            order = np.lexsort(matrix.T[::-1])
            ends = np.flatnonzero((np.diff(matrix[order], axis=0) != 0).any(axis=1)) + 1
            parts += np.split(together[order], ends)
        return NodeCells({int(nodes[0]): nodes for nodes in parts}, alike, pooled)

    @cached_property
    def _in_turn(self) -> tuple[Ints, Ints]:
        """The nodes of all cells one after the other, and where each cell starts."""
        parts = list(self.nodes.values())
        starts = np.cumsum([0, *map(len, parts[:-1])])
        return np.concatenate(parts), starts

    def most(self, room: Ints) -> dict[int, int]:
        """By cell, the sum of an amount [N] over its nodes; without cells where it is not positive."""
        if not self.nodes:
            return {}
        nodes, starts = self._in_turn
        sums = np.add.reduceat(room[nodes], starts).tolist()
        return {cell: total for cell, total in zip(self.nodes, sums, strict=True) if total > 0}

    def fill(self, cell: int, free: Ints, size: int, count: int) -> list[int]:
        """The nodes of the cell for ``count`` pods of ``size`` GPUs: the fullest node that takes one comes
        first. The pods are taken from ``free`` [N]; those that find no room are on the last node."""
        nodes = self.nodes[cell]
        order = nodes[np.argsort(free[nodes], kind="stable")]
        room = np.cumsum(free[order] // max(size, 1))
        used = np.diff(np.minimum(room, count), prepend=0)
        used[-1] += count - used.sum()
        free[order] -= used * size
        return np.repeat(order, used).tolist()


def gpus_alone_bind(
    ledger: Ledger, classes: Collection[PodClass], leaving: Mapping[int, Sequence[Pod]]
) -> Mask:
    """[N] nodes that take pods of the classes as long as whole GPUs, or parts of one, are free.

    This holds whatever subset of ``leaving`` (by node) leaves. There is no such node where sizes do not
    divide each other or a stateful rule has a say.
    """
    free = ledger.free
    leavers = [pod for pods in leaving.values() for pod in pods]
    sizes = sorted({item.size or 1 for item in classes})
    if any(larger % smaller for smaller, larger in pairwise(sizes)) or any(
        rule.concerns(pod) for rule in ledger.rules for pod in (*(c.example for c in classes), *leavers)
    ):
        return np.zeros(len(free), dtype=bool)
    found = np.asarray((free >= 0).all(axis=1))
    others = [d for d in range(free.shape[1]) if d != GPU]
    ratios = np.zeros(len(others))
    for item in classes:
        gpu, requests = item.example.spec.gpu, item.example.spec.requests
        one_share = gpu.kind is GpuKind.FRACTION and gpu.devices == 1
        if not one_share and not (gpu.kind is GpuKind.REGULAR and item.size):
            found &= ~item.mask
            continue
        per_gpu = np.array([requests[d] for d in others], dtype=float)
        if item.shares:
            # As many pods as portions fit a device, and the slot of a new device's reservation.
            per_gpu *= MILLI // max(gpu.milli_portion, 1)
            per_gpu[others.index(PODS)] += 1
        else:
            per_gpu /= item.size
        ratios = np.maximum(ratios, per_gpu)
    slack = free[:, others] - (free[:, GPU] / MILLI + ledger.shared_free())[:, None] * ratios
    if leavers:
        # A pod may free fewer CPUs, say, than the pods need that then take its GPUs.
        less = {
            pod.spec: np.minimum(np.array(pod.spec.requests)[others] - milli_gpus(pod) / MILLI * ratios, 0)
            for pod in {pod.spec: pod for pod in leavers}.values()
        }
        nodes = np.repeat(list(leaving), [len(pods) for pods in leaving.values()])
        np.add.at(slack, nodes, np.array([less[pod.spec] for pod in leavers]))
    found &= (slack >= 0).all(axis=1)
    return found


def _one_pool(shares: Sequence[PodClass], nodes: Ints, ledger: Ledger) -> bool:
    """Whether the devices of these nodes, as shares see them, differ only in their free memory."""
    memory = set(ledger.fixed.table.gpu_memory_mib[nodes].tolist())
    if len(memory) > 1 or any(item.scoped or not item.mask[nodes].all() for item in shares):
        return False
    needs = [ledger.share_mib_on(item.example, int(nodes[0])) for item in shares]
    ways = islice(fillings(needs, memory.pop()), LIMITS.patterns + 1)
    return sum(1 for _ in ways) <= LIMITS.patterns


def fillings(needs: Sequence[int], free_mib: int) -> Iterator[tuple[int, ...]]:
    """Ways to fill ``free_mib`` of a device with portions of these sizes: of the last one as many as fit."""
    most = free_mib // max(needs[0], 1)
    if len(needs) == 1:
        yield (most,)
        return
    for count in range(most, -1, -1):
        for others in fillings(needs[1:], free_mib - count * needs[0]):
            yield (count, *others)
