"""Whether the free capacity is enough in sum. If it is not, neither fragmentation nor a rule is the
reason."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from kai_cp_models.ledger import Ledger
from kai_cp_models.pods import GPU, MILLI, GpuKind, Pod
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
        self._free: list[int] = ledger.free.clip(min=0).sum(axis=0).tolist()

    @cached_property
    def _shares(self) -> int:
        """Milli-GPUs that are free of GPUs that pods share."""
        return int(MILLI * self._ledger.shared_free().sum())

    def short(self, pods: Sequence[Pod]) -> list[Short]:
        """The dimensions in which less is free than all pods need.

        A share of a GPU may also come from what is free of GPUs that others share.
        """
        free = self._free
        asked = [sum(amounts) for amounts in zip(*(pod.spec.requests for pod in pods), strict=True)]
        if shares := sum(_least_share(self._ledger, pod) for pod in pods):
            asked[GPU] += shares
            free = [have + self._shares if d == GPU else have for d, have in enumerate(free)]
        pairs = enumerate(zip(asked, free, strict=True))
        return [Short(d, need, have) for d, (need, have) in pairs if need > have]

    def beyond(self, pods: Sequence[Pod]) -> bool:
        """Whether the pods need more than all nodes that accept one of them have together, even if empty."""
        table = self._ledger.fixed.table
        specs = {pod.spec: pod for pod in pods}.values()
        nodes = np.logical_or.reduce([table.accepting(pod) for pod in specs])
        owned = table.allocatable[nodes].sum(axis=0)
        return any(asked > owned[d] for d, asked, _ in self.short(pods))

    def words(self, pods: Sequence[Pod]) -> str:
        """What all pods that must start together need and what is free, for each dimension with too little;
        for a dimension in which all nodes together have too little even if empty, how much they have and
        lack."""
        names = self._ledger.snapshot.dimensions
        owned = self._ledger.fixed.table.owned
        several = f" for {len(pods)} pods" if len(pods) > 1 else ""
        return "; ".join(
            f"needs {quantity(names[d], asked)}{several}; "
            + (
                f"all nodes together have {amount(names[d], owned[d])}, "
                f"{amount(names[d], asked - owned[d])} too few"
                if asked > owned[d]
                else f"{amount(names[d], free)} free in all"
            )
            for d, asked, free in self.short(pods)
        )


def _least_share(ledger: Ledger, pod: Pod) -> int:
    """Milli-GPUs that a share takes at least; 0 for other pods."""
    gpu = pod.spec.gpu
    if gpu.kind is GpuKind.MEMORY:
        return gpu.devices * (MILLI * gpu.memory_mib // max((1, *ledger.fixed.mib_on)))
    return gpu.devices * gpu.milli_portion if gpu.shares else 0
