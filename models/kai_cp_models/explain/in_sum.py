"""Whether the free capacity is enough in sum. If it is not, neither fragmentation nor a rule is the
reason."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from kai_cp_models.ledger import Ledger
from kai_cp_models.pods import GPU, MILLI, GpuKind, Pod, PodSpec
from kai_cp_models.shown import amount, quantity


class Short(NamedTuple):
    """A dimension in which less is free than is asked for, and both amounts."""

    dimension: int
    asked: int
    free: int


class InSum:
    """What is free in a ledger on all nodes; computed once. Rules that keep pods off nodes do not count."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._names = ledger.snapshot.dimensions
        self._free: list[int] = ledger.free.clip(min=0).sum(axis=0).tolist()
        self._owned: dict[tuple[PodSpec, ...], tuple[list[int], str]] = {}
        """What the nodes have together that accept a pod of some specs, and which nodes these are."""

    @cached_property
    def _shares(self) -> int:
        """Milli-GPUs that are free of GPUs that pods share."""
        return int(MILLI * self._ledger.shared_free().sum())

    def short(self, pods: Sequence[Pod]) -> list[Short]:
        """The dimensions in which less is free than all pods need.

        A share of a GPU may also come from what is free of GPUs that others share.
        """
        free, asked = self._free, self._asked(pods)
        if any(pod.spec.gpu.shares for pod in pods):
            free = [have + self._shares if d == GPU else have for d, have in enumerate(free)]
        pairs = enumerate(zip(asked, free, strict=True))
        return [Short(d, need, have) for d, (need, have) in pairs if need > have]

    def _asked(self, pods: Sequence[Pod]) -> list[int]:
        """[D] what all pods take at least."""
        asked = [sum(amounts) for amounts in zip(*(pod.spec.requests for pod in pods), strict=True)]
        asked[GPU] += sum(_least_share(self._ledger, pod) for pod in pods)
        return asked

    def beyond(self, pods: Sequence[Pod]) -> str:
        """What the pods need that all nodes which accept one of them do not have together, even if empty;
        empty if there is nothing of the kind."""
        table, examples = self._ledger.fixed.table, {pod.spec: pod for pod in pods}
        if (specs := tuple(examples)) not in self._owned:
            nodes = np.logical_or.reduce([table.accepting(pod) for pod in examples.values()])
            where = "all nodes" if nodes.all() else "the nodes that accept them"
            self._owned[specs] = table.allocatable[nodes].sum(axis=0).tolist(), where
        owned, where = self._owned[specs]
        return "; ".join(
            f"{self._need(d, asked, pods)}; {where} together have {amount(self._names[d], has)}, "
            f"{amount(self._names[d], asked - has)} too few"
            for d, (asked, has) in enumerate(zip(self._asked(pods), owned, strict=True))
            if asked > has
        )

    def words(self, pods: Sequence[Pod]) -> str:
        """What all pods that must start together need and what is free, per dimension with too little."""
        return "; ".join(
            f"{self._need(d, asked, pods)}; {amount(self._names[d], free)} free in all"
            for d, asked, free in self.short(pods)
        )

    def _need(self, d: int, asked: int, pods: Sequence[Pod]) -> str:
        several = f" for {len(pods)} pods" if len(pods) > 1 else ""
        return f"needs {quantity(self._names[d], asked)}{several}"


def _least_share(ledger: Ledger, pod: Pod) -> int:
    """Milli-GPUs that a share takes at least; 0 for other pods."""
    gpu = pod.spec.gpu
    if gpu.kind is GpuKind.MEMORY:
        return gpu.devices * (MILLI * gpu.memory_mib // max((1, *ledger.fixed.mib_on)))
    return gpu.devices * gpu.milli_portion if gpu.shares else 0
