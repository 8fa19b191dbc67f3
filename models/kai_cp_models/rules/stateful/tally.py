"""Counts per key and place with two layers: what stays and what is leaving.

Rules that count pods share this accounting: ports per node, matching pods per topology domain, volumes per
node. Arrays are copied when written, so a trial copy of a state is cheap.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator

import numpy as np

from kai_cp_models.arrays import Ints
from kai_cp_models.pods import ACTIVE_USED, Pod, PodStatus
from kai_cp_models.rules.stateful.protocol import LeavingState
from kai_cp_models.snapshot import Snapshot

Effect = tuple[Hashable, int]
"""A key and how much one pod adds to it."""


def holding(snapshot: Snapshot) -> Iterator[tuple[Pod, int, bool]]:
    """Pods that hold a place: pod, node position, whether it is leaving (0.1).

    A pod stuck in releasing promises nothing (2.6), so it counts as staying.
    """
    index = snapshot.node_index
    for pod in snapshot.pods:
        if pod.node is not None and pod.status in ACTIVE_USED and pod.node in index:
            yield pod, index[pod.node], pod.status is PodStatus.RELEASING


class Tally:
    """Integer counts by key; the length of a key's array comes from ``size``."""

    def __init__(self, size: Callable[[Hashable], int]) -> None:
        self._size = size
        self._layers: tuple[dict[Hashable, Ints], dict[Hashable, Ints]] = ({}, {})
        self._own: set[tuple[bool, Hashable]] = set()

    def copy(self) -> Tally:
        """An independent tally; arrays are shared until either side writes."""
        twin = Tally(self._size)
        twin._layers = (dict(self._layers[0]), dict(self._layers[1]))
        self._own.clear()
        return twin

    def add(self, key: Hashable, index: int, amount: int, *, leaving: bool) -> None:
        """Add ``amount`` (may be negative) at ``index``."""
        layer = self._layers[leaving]
        if (leaving, key) not in self._own:
            found = layer.get(key)
            layer[key] = np.zeros(self._size(key), dtype=np.int64) if found is None else found.copy()
            self._own.add((leaving, key))
        layer[key][index] += amount

    def counts(self, key: Hashable, *, now: bool) -> Ints | None:
        """Counts of a key, as long as the key's shape says; ``now`` adds what is leaving.

        None: zero everywhere.
        """
        stays = self._layers[False].get(key)
        leaves = self._layers[True].get(key) if now else None
        if stays is None or leaves is None:
            return stays if leaves is None else leaves
        total: Ints = stays + leaves
        return total

    def keys(self) -> Iterable[Hashable]:
        """Keys that were ever counted as staying."""
        return self._layers[False].keys()


class TalliedState(LeavingState):
    """A state that consists of a tally only; subclasses define what a pod adds and where."""

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__()
        self.snapshot = snapshot
        self.tally = Tally(self._size)
        self._running: tuple[tuple[Pod, int], ...] = ()

    def _load(self) -> None:
        """Account the pods that hold a place; call at the end of a subclass's ``__init__``."""
        running = []
        for pod, node, leaving in holding(self.snapshot):
            if self.concerns(pod):
                self._count(pod, node, 1, leaving=leaving)
                if not leaving:
                    running.append((pod, node))
        self._running = tuple(running)

    def _size(self, key: Hashable) -> int:
        """Length of the array of a key."""
        return len(self.snapshot.nodes)

    def _effects(self, pod: Pod) -> Iterable[Effect]:
        """What the pod adds to the counts where it runs."""
        raise NotImplementedError

    def _where(self, key: Hashable, node: int) -> int:
        """Position of a node in the array of a key; negative: the key does not count there."""
        return node

    def _count(self, pod: Pod, node: int, sign: int, *, leaving: bool) -> None:
        for key, amount in self._effects(pod):
            where = self._where(key, node)
            if where >= 0:
                self.tally.add(key, where, sign * amount, leaving=leaving)

    def _staying(self) -> Iterator[tuple[Pod, int]]:
        """Pods that held a place before the cycle, are not leaving, and could be evicted."""
        return ((pod, node) for pod, node in self._running if pod.key not in self.left)

    def detach(self) -> None:
        super().detach()
        self.tally = self.tally.copy()

    def concerns(self, pod: Pod) -> bool:
        return any(True for _ in self._effects(pod))

    def place(self, pod: Pod, node: int, *, pipelined: bool) -> None:
        self._count(pod, node, 1, leaving=False)

    def remove(self, pod: Pod, node: int) -> None:
        self._count(pod, node, -1, leaving=False)

    def _leave(self, pod: Pod, sign: int) -> None:
        if pod.node is None or pod.status is PodStatus.RELEASING:
            return
        node = self.snapshot.node_index[pod.node]
        self._count(pod, node, -sign, leaving=False)
        self._count(pod, node, sign, leaving=True)
