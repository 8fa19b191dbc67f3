"""Whether what is free is enough in sum; where it is not, neither fragmentation nor a rule is the reason."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from kai_cp_models.ledger import Ledger
from kai_cp_models.pods import GPU, MILLI, GpuKind, Pod
from kai_cp_models.shown import amount, quantity


class Short(NamedTuple):
    """A dimension of which less is free than is asked for, and both amounts."""

    dimension: int
    asked: int
    free: int


class InSum:
    """What is free in a ledger on the nodes that accept pods; computed once for each set of nodes."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._free: dict[bytes, list[int]] = {}
        self._shares: dict[bytes, int] = {}

    def short(self, pods: Sequence[Pod]) -> list[Short]:
        """The dimensions in which all nodes that accept one of the pods have less free than all pods need.

        A share of a GPU may also come from what is free of GPUs that others share.
        """
        masks = [self._ledger.fixed.table.accepting(pod) for pod in {pod.spec: pod for pod in pods}.values()]
        nodes = np.logical_or.reduce(masks)
        key = nodes.tobytes()
        if key not in self._free:
            self._free[key] = self._ledger.free[nodes].clip(min=0).sum(axis=0).tolist()
        free = self._free[key]
        asked = [sum(amounts) for amounts in zip(*(pod.spec.requests for pod in pods), strict=True)]
        shares = sum(_least_share(self._ledger, pod) for pod in pods)
        if shares:
            if key not in self._shares:
                self._shares[key] = int(MILLI * self._ledger.shared_free()[nodes].sum())
            asked[GPU] += shares
            free = [have + self._shares[key] if d == GPU else have for d, have in enumerate(free)]
        return [
            Short(d, need, have)
            for d, (need, have) in enumerate(zip(asked, free, strict=True))
            if need > have
        ]

    def words(self, pods: Sequence[Pod]) -> str:
        """What all pods that must start together need and what is free, where that is less."""
        names = self._ledger.snapshot.dimensions
        several = f" for {len(pods)} pods" if len(pods) > 1 else ""
        return "; ".join(
            f"needs {quantity(d, asked, names[d])}{several}; {amount(d, free)} free in all"
            for d, asked, free in self.short(pods)
        )


def _least_share(ledger: Ledger, pod: Pod) -> int:
    """Milli-GPUs that a share takes at least; 0 for other pods."""
    gpu = pod.spec.gpu
    if gpu.kind is GpuKind.MEMORY:
        return gpu.devices * (MILLI * gpu.memory_mib // max(1, *ledger.fixed.mib_on))
    return gpu.devices * gpu.milli_portion if gpu.shares else 0
