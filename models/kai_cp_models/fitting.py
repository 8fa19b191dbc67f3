"""Which nodes have room for a pod, remembered by spec: only nodes that were touched are looked at again.

The room of static node rules, requests and shared devices only; device rules come on top (``Ledger.fits``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

import numpy as np
from numpy.typing import NDArray

from kai_cp_models.rules.scores import by_rank, ranks
from kai_cp_models.rules.table import accepting
from kai_cp_models.snapshot import GPU, MILLI, PODS, GpuKind, Pod, PodSpec

if TYPE_CHECKING:
    from kai_cp_models.ledger import Ledger

Mask = NDArray[np.bool_]
Question = Literal["now", "later", "shared"]
"""Room that is idle; room once everything releasing is gone; a shared device that the pod fits."""

NOWHERE: Final = np.iinfo(np.int64).min
"""The rank of a node without room."""

_LONGEST = 20_000
"""Touches after which everything is forgotten, so that copies stay cheap."""


@dataclass(frozen=True, slots=True)
class _Ranked:
    """The nodes in the order of their scores for pods of one spec; ``NOWHERE`` where there is no room.

    ``now``: the room is idle. ``exact``: False once a node was over its capacity: there ranks are no scores.
    """

    spec: PodSpec
    ranks: NDArray[np.int64]
    now: Mask
    exact: bool
    touches: int


class Fitting:
    """The answers for one ledger. Masks are never changed once known, so copies share them."""

    def __init__(self) -> None:
        self._touched: list[int] = []
        self._known: dict[tuple[int, Question], tuple[PodSpec, Mask, int]] = {}
        self._ranked: dict[int, _Ranked] = {}

    def copy(self) -> Fitting:
        """The same answers for a copy of the ledger."""
        result = Fitting()
        result._touched.extend(self._touched)
        result._known.update(self._known)
        result._ranked.update(self._ranked)
        return result

    def touch(self, node: int) -> None:
        """Room, devices or slots of the node have changed."""
        if len(self._touched) >= _LONGEST:
            self._touched.clear()
            self._known.clear()
            self._ranked.clear()
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
            rows = self._since(known[2])
            mask[rows] = _look(ledger, pod, question, rows)
        # The spec is kept alive, so that no other one gets its id.
        self._known[key] = pod.spec, mask, len(self._touched)
        return mask.copy()

    def best(self, ledger: Ledger, pod: Pod, within: Mask) -> tuple[int, bool] | None:
        """The best node by rank, and whether its room is idle; -1 where none has room.

        None where ranks are not exact. Of what a pod has only its spec counts here.
        """
        known = self._ranked.get(id(pod.spec))
        if known is not None and not known.exact:
            return None
        if known is None:
            known = self._ranked[id(pod.spec)] = _ranked(ledger, pod, None, len(self._touched), None)
        elif known.touches != len(self._touched):
            rows = self._since(known.touches)
            known = self._ranked[id(pod.spec)] = _ranked(ledger, pod, rows, len(self._touched), known)
        if not known.exact or not len(known.ranks):
            return None
        ranks = known.ranks if within.all() else np.where(within, known.ranks, NOWHERE)
        node = int(ranks.argmax())
        return (node, bool(known.now[node])) if ranks[node] != NOWHERE else (-1, False)

    def _since(self, touches: int) -> NDArray[np.int64]:
        """Nodes that were touched since then."""
        return np.array(sorted(set(self._touched[touches:])), dtype=np.int64)


def _ranked(
    ledger: Ledger, pod: Pod, rows: NDArray[np.int64] | None, touches: int, before: _Ranked | None
) -> _Ranked:
    """The order of all nodes, or that of ``before`` with ``rows`` looked at again."""
    chosen: NDArray[np.int64] | slice = slice(None) if rows is None else rows
    later = _look(ledger, pod, "later", rows)
    now = _look(ledger, pod, "now", rows)
    free = ledger.idle[chosen] + ledger.releasing[chosen]
    found = ranks(ledger.fixed.table, pod, chosen, now, _joinable(ledger, pod, rows), free)
    found[~later] = NOWHERE
    exact = not bool((free[later] < 0).any())
    if before is None:
        return _Ranked(pod.spec, found, now, exact and by_rank(ledger.fixed.table, pod), touches)
    everywhere, idle = before.ranks.copy(), before.now.copy()
    everywhere[chosen], idle[chosen] = found, now
    return _Ranked(pod.spec, everywhere, idle, exact and before.exact, touches)


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
    # Of a node beyond its capacity nobody knows which of the devices exist.
    found &= free[:, GPU] >= 0
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
