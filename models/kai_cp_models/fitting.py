"""Which nodes a pod fits, and in which order they score. Kept for each spec, and updated node by node.

Only static node rules, requests and shared devices count here; ``Ledger.fits`` adds the stateful rules.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from operator import ge
from typing import TYPE_CHECKING, Final

import numpy as np

from kai_cp_models.arrays import Ints
from kai_cp_models.free_capacity import NodeAmounts
from kai_cp_models.limits import LIMITS
from kai_cp_models.pods import GPU, MILLI, PODS, GpuKind, Pod, PodSpec
from kai_cp_models.scores import Ranking
from kai_cp_models.sharing import share_mib

if TYPE_CHECKING:
    from kai_cp_models.ledger import Ledger


NOWHERE: Final = np.iinfo(np.int64).min
"""The rank of a node that the pod does not fit."""

_ALL: Final = slice(None)
_MOST: Final = np.iinfo(np.int64).max


class NodeView:
    """The nodes as pods of one spec see them; see the module.

    ``now``: [N] whether the pod fits what is idle. ``later``: [N] whether it fits once everything releasing
    is gone. ``shared``: [N] whether it fits a shared device. ``ranks``: [N] the order of the nodes,
    ``NOWHERE`` where the pod does not fit. ``exact``: False if more than ranks decides: the policy's scores,
    GPU memory, claims.
    """

    def __init__(self, ledger: Ledger, pod: Pod) -> None:
        self._pod = pod
        """An example of the pods of the spec."""
        self._accepted = ledger.fixed.table.accepting(pod)
        self._request = pod.spec.requests
        self._asked = np.flatnonzero(self._request)
        self._amounts = np.array(self._request)[self._asked]
        gpu = pod.spec.gpu
        self._shares = gpu.devices if gpu.shares else 0
        """Devices of which the pods take a share each."""
        self._alone = alone(pod.spec)
        """What they take of a node where they join no device."""
        self._may_join = gpu.kind is not GpuKind.MIG and (gpu.shares or not gpu.devices)
        """Whether they could join a shared device at all: shares, and pods without GPUs (6)."""
        self._ranking = Ranking(ledger.fixed.table, pod)
        self._owned = True
        count = len(self._accepted)
        self.now, self.later, self.shared = (np.zeros(count, dtype=bool) for _ in range(3))
        self.ranks: Ints = np.zeros(count, dtype=np.int64)
        self.exact = self._ranking.exact and gpu.kind is not GpuKind.MEMORY and not pod.spec.claims
        self.seen = 0
        """How many changes of nodes it has followed, see ``Ledger.view``."""
        self._slots: Mapping[bool, tuple[int, Ints]] = {}
        """What ``slots_of`` last found, after how many changes."""
        self._look_at(ledger, _ALL)

    def shared_copy(self) -> NodeView:
        """The same view for a copy of the ledger; whichever changes first takes arrays of its own."""
        self._owned = False
        return copy(self)

    def follow(self, ledger: Ledger, touched: Sequence[int]) -> None:
        """Look again at nodes that were touched."""
        nodes = set(touched)
        if not self._owned:
            self.now, self.later, self.shared = self.now.copy(), self.later.copy(), self.shared.copy()
            self.ranks = self.ranks.copy()
            self._owned = True
        if len(nodes) >= LIMITS.changed_nodes:
            self._look_at(ledger, list(nodes))
            return
        for node in nodes:
            self._look(ledger, node)

    def slots_of(self, ledger: Ledger, changed: Sequence[int], *, now: bool) -> Ints:
        """[N] how many pods of the spec each node takes, by requests alone. ``changed``: the nodes of all
        changes; the view has followed them."""
        seen, found = self._slots.get(now, (0, None))
        fits = self.now if now else self.later
        if found is None or len(changed) - seen > np.count_nonzero(fits):
            found, nodes = np.zeros(len(fits), dtype=np.int64), np.flatnonzero(fits)
        else:
            found, nodes = found.copy(), np.array(changed[seen:], dtype=np.int64)
        rows = (ledger.idle if now else ledger.free)[nodes][:, self._asked]
        most = np.maximum((rows // self._amounts).min(axis=1, initial=_MOST), 1)
        found[nodes] = np.where(fits[nodes], most, 0)
        self._slots = {**self._slots, now: (len(changed), found)}
        return found

    def _look_at(self, ledger: Ledger, nodes: slice | list[int]) -> None:
        idle, free = (column[nodes] for column in ledger.room.columns())
        accepted, alone = self._accepted[nodes], np.array(self._alone)
        shared, wanted = np.zeros(len(idle), dtype=bool), (alone, alone)
        if self._may_join and ledger.devices:
            devices = ledger.shared(None if isinstance(nodes, slice) else nodes)
            sizes, kinds = np.unique(devices.total, return_inverse=True)
            need = np.array([self._need(size) for size in sizes.tolist()], dtype=np.int64)[kinds]
            joined = [
                np.bincount(devices.node[free_mib >= need], minlength=len(self.now))[nodes]
                for free_mib in (devices.now, devices.later)
            ]
            shared, wanted = joined[1] > 0, (self._where_joined(joined[0]), self._where_joined(joined[1]))
        now = accepted & (idle >= wanted[0]).all(axis=1)
        later = accepted & (free >= wanted[1]).all(axis=1)
        self.now[nodes], self.later[nodes], self.shared[nodes] = now, later, shared
        self.ranks[nodes] = np.where(later, self._ranking.column(nodes, now, shared, free), NOWHERE)

    def _need(self, gpu_memory_mib: int) -> int:
        """MiB that a pod takes of a device that it joins."""
        return share_mib(self._pod, gpu_memory_mib) if self._shares else 0

    def _where_joined(self, joined: Ints) -> Ints:
        """[node, D] what the pods take of nodes where they can join ``joined`` devices."""
        # On a node beyond its capacity no one knows which devices exist: it has too few GPUs for any.
        new = np.maximum(self._shares - joined, 0)[:, None]
        found: Ints = np.array(self._request) + new * np.array(with_devices([0] * len(self._request), 1))
        return found

    def _look(self, ledger: Ledger, node: int) -> None:
        idle, free = ledger.room.idle_on[node], ledger.room.free_on[node]
        later = self.takes(ledger, node, now=False)
        # Mostly nothing releases, and without shared devices the rows say all.
        alike = idle == free and not (self._shares and node in ledger.devices)
        now = later if alike else self.takes(ledger, node, now=True)
        shared = self._may_join and self._joinable(ledger, node, now=False) > 0
        self.now[node], self.later[node], self.shared[node] = now, later, shared
        self.ranks[node] = self._ranking.one(node, now, shared, free) if later else NOWHERE

    def takes(self, ledger: Ledger, node: int, *, now: bool) -> bool:
        """Whether a pod fits the node at this moment, however far the view has followed."""
        if not self._accepted[node]:
            return False
        free = (ledger.room.idle_on if now else ledger.room.free_on)[node]
        if not self._shares or node not in ledger.devices:
            return all(map(ge, free, self._alone))
        new = max(self._shares - self._joinable(ledger, node, now=now), 0)
        return all(map(ge, free, with_devices(self._request, new)))

    def _joinable(self, ledger: Ledger, node: int, *, now: bool) -> int:
        """How many shared devices of the node fit the pod's GPU requirement (gpusharingorder, 6)."""
        total, there = ledger.fixed.mib_on[node], ledger.devices.get(node, {})
        need = self._need(total)
        return sum(device.free_mib(total, now=now) >= need for device in there.values())


def alone(spec: PodSpec) -> NodeAmounts:
    """What a pod of the spec takes of a node where it joins no device: of each share a whole GPU."""
    return with_devices(spec.requests, spec.gpu.devices if spec.gpu.shares else 0)


def with_devices(request: Sequence[int], new: int) -> NodeAmounts:
    """The request, and ``new`` shared devices with a reservation pod each (2.6)."""
    row = list(request)
    row[GPU] += new * MILLI
    row[PODS] += new
    return tuple(row)
