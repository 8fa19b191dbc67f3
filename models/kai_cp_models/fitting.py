"""Which nodes have room for a pod, remembered by spec: only nodes that were touched are looked at again.

The room of static node rules, requests and shared devices only; device rules come on top (``Ledger.fits``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from kai_cp_models.rules.table import accepting
from kai_cp_models.snapshot import GPU, MILLI, PODS, GpuKind, Pod, PodSpec

if TYPE_CHECKING:
    from kai_cp_models.ledger import Ledger

Mask = NDArray[np.bool_]
Question = Literal["now", "later", "shared"]
"""Room that is idle; room once everything releasing is gone; a shared device that the pod fits."""

_LONGEST = 20_000
"""Touches after which everything is forgotten, so that copies stay cheap."""


class Fitting:
    """The answers for one ledger. Masks are never changed once known, so copies share them."""

    def __init__(self) -> None:
        self._touched: list[int] = []
        self._known: dict[tuple[int, Question], tuple[PodSpec, Mask, int]] = {}

    def copy(self) -> Fitting:
        """The same answers for a copy of the ledger."""
        result = Fitting()
        result._touched.extend(self._touched)
        result._known.update(self._known)
        return result

    def touch(self, node: int) -> None:
        """Room, devices or slots of the node have changed."""
        if len(self._touched) >= _LONGEST:
            self._touched.clear()
            self._known.clear()
        self._touched.append(node)

    def mask(self, ledger: Ledger, pod: Pod, question: Question) -> Mask:
        """[N] the answer for every node; the caller may change the array."""
        key = (id(pod.spec), question)
        known = self._known.get(key)
        if known is None:
            mask = _look(ledger, pod, question, None)
        elif known[2] == len(self._touched):
            return known[1].copy()
        else:
            mask = known[1].copy()
            rows = np.unique(np.array(self._touched[known[2] :], dtype=np.int64))
            mask[rows] = _look(ledger, pod, question, rows)
        # The spec is kept alive, so that no other one gets its id.
        self._known[key] = pod.spec, mask, len(self._touched)
        return mask.copy()


def _look(ledger: Ledger, pod: Pod, question: Question, rows: NDArray[np.int64] | None) -> Mask:
    """The answer for the nodes ``rows``, or for all."""
    if question == "shared":
        return _joinable(ledger, pod, rows)
    chosen: NDArray[np.int64] | slice = slice(None) if rows is None else rows
    mask: Mask = accepting(ledger.fixed.table, pod)[chosen].copy()
    free = ledger.idle[chosen]
    if question == "later":
        free = free + ledger.releasing[chosen]
    request = np.array(pod.spec.requests, dtype=np.int64)
    if not pod.spec.gpu.shares:
        mask &= (free >= request).all(axis=1)
        return mask
    others = np.arange(free.shape[1]) != GPU
    mask &= (free[:, others] >= request[others]).all(axis=1)
    if mask.any():
        mask &= _shares_fit(ledger, pod, free, mask, _nodes(ledger, rows), now=question == "now")
    return mask


def _shares_fit(
    ledger: Ledger,
    pod: Pod,
    free: NDArray[np.int64],
    mask: Mask,
    nodes: Sequence[int],
    *,
    now: bool,
) -> Mask:
    """Nodes with enough fitting shared devices and whole GPUs; the reservation of a new one takes a slot."""
    devices = pod.spec.gpu.devices
    fitting = np.zeros(len(mask), dtype=np.int64)
    for position, node in enumerate(nodes):
        if mask[position] and (names := ledger.groups_on.get(node)):
            need = ledger.share_mib_on(pod, node)
            fitting[position] = sum(ledger.device_free_mib(node, name, now=now) >= need for name in names)
    new = np.maximum(devices - fitting, 0)
    found: Mask = (free[:, GPU] // MILLI + fitting >= devices) & (free[:, PODS] >= 1 + new)
    return found


def _joinable(ledger: Ledger, pod: Pod, rows: NDArray[np.int64] | None) -> Mask:
    """Nodes with a shared device that the pod's GPU requirement fits (gpusharingorder, 6)."""
    nodes = _nodes(ledger, rows)
    mask = np.zeros(len(nodes), dtype=bool)
    gpu = pod.spec.gpu
    if gpu.kind is GpuKind.MIG or (gpu.devices and not gpu.shares):
        return mask
    for position, node in enumerate(nodes):
        if names := ledger.groups_on.get(node):
            need = ledger.share_mib_on(pod, node) if gpu.shares else 0
            mask[position] = any(ledger.device_free_mib(node, name, now=False) >= need for name in names)
    return mask


def _nodes(ledger: Ledger, rows: NDArray[np.int64] | None) -> Sequence[int]:
    return range(len(ledger.idle)) if rows is None else rows.tolist()
