"""Room by counting: sums that every placement obeys, so what breaks one is refused without a model.

For every size s that is asked for, the pods of size s and larger, in pieces of s, are no more than the
pieces of s that the nodes offer; and no resource is promised beyond its sum (formulation 2.1,
"cumulative rows"). The rows are necessary. Where GPUs alone bind and sizes divide each other they
nearly suffice, so they also tell which requests and how many victims are worth trying.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from kai_cp_models.joint.offers import Ranked, milli_gpus
from kai_cp_models.joint.problem import Ask
from kai_cp_models.ledger import Ledger, Mask
from kai_cp_models.rules.table import accepting
from kai_cp_models.snapshot import GPU, MILLI, PODS, Pod, PodSpec

Row = NDArray[np.int64]
"""One number per size, largest last, then one per dimension of the snapshot."""


class Counting:
    """Demand and room of one state of the cluster, row by row."""

    def __init__(self, ledger: Ledger, asks: Iterable[Ask], *, everywhere: bool = False) -> None:
        """``asks``: all whose demand will be compared; their sizes and nodes shape the rows.

        ``everywhere``: count all nodes, also those that no ask accepts.
        """
        pods = {id(pod.spec): pod for ask in asks for pod in ask.pods}
        self._ledger = ledger
        self._sizes = sorted({size for pod in pods.values() if (size := _whole_gpus(pod))})
        self._nodes: Mask = np.full(len(ledger.idle), everywhere)
        for pod in pods.values():
            self._nodes |= accepting(ledger.fixed.table, pod)
        self._free = ledger.idle + ledger.releasing
        self._shared = MILLI * ledger.shared_free()
        self._demands: dict[int, tuple[PodSpec, Row]] = {}

    def demand(self, pods: Iterable[Pod]) -> Row:
        """What the pods ask for."""
        total = np.zeros(len(self._sizes) + self._free.shape[1], dtype=np.int64)
        for pod in pods:
            total += self._demand(pod)
        return total

    def _demand(self, pod: Pod) -> Row:
        found = self._demands.get(id(pod.spec))
        if found is None:
            whole = _whole_gpus(pod)
            amounts = list(pod.spec.requests)
            amounts[GPU] = milli_gpus(pod)
            found = pod.spec, np.array([*(whole // size for size in self._sizes), *amounts], dtype=np.int64)
            self._demands[id(pod.spec)] = found
        return found[1]

    def room(self, leaving: Iterable[Pod] = ()) -> Row:
        """What the nodes offer at most when ``leaving`` are gone."""
        ledger, free, shared = self._ledger, self._free, self._shared
        places = [(pod, place) for pod in leaving if (place := ledger.place_of(pod)) is not None]
        if places:
            free = free.copy()
            nodes = np.array([place[0] for _, place in places])
            np.add.at(free, nodes, np.array([pod.spec.requests for pod, _ in places], dtype=np.int64))
            shares = [(pod, place) for pod, place in places if pod.spec.gpu.shares]
            if shares:
                shared = shared.copy()
                self._give_shares(shares, free, shared)
        free = np.maximum(free[self._nodes], 0)
        totals = free.sum(axis=0)
        totals[GPU] += int(np.ceil(shared[self._nodes].sum()))
        gpus = free[:, GPU] // MILLI
        return np.array([*(int((gpus // size).sum()) for size in self._sizes), *totals], dtype=np.int64)

    def _give_shares(
        self,
        shares: Sequence[tuple[Pod, tuple[int, tuple[str, ...]]]],
        free: NDArray[np.int64],
        shared: NDArray[np.float64],
    ) -> None:
        """A shared device whose members all leave is a whole one; else it gains what they held."""
        devices = self._ledger.devices
        members: dict[tuple[int, str], int] = {}
        for pod, (node, names) in shares:
            # The reservation of a new device takes a slot of its own, which goes with the last member.
            free[node, PODS] += len(names)
            for name in names:
                members[node, name] = members.get((node, name), 0) + 1
                shared[node] += milli_gpus(pod) / max(pod.spec.gpu.devices, 1)
        for (node, name), count in members.items():
            device = devices.get((node, name))
            if device is not None and count >= device.active + device.pipelined:
                free[node, GPU] += MILLI


class Families:
    """Demand against room for asks that may take different units.

    A family is a set of units; the asks that may take no others must fit into the room that all of them
    leave (Hall's condition). ``hold`` notes asks that have their place.
    """

    def __init__(
        self,
        counting: Counting,
        ranked: Sequence[Ranked],
        takes: Mapping[tuple[object, ...], Collection[int]],
        *,
        moved: bool,
    ) -> None:
        """``takes``: ranks of the units per entitlement. ``moved``: the units need a place again."""
        self._counting = counting
        families = {frozenset(ranks) for ranks in takes.values()}
        self._inside = {
            key: [family for family in families if family >= frozenset(ranks)] for key, ranks in takes.items()
        }
        self._left: dict[frozenset[int], Row] = {}
        for family in families:
            units = [item for item in ranked if item.rank in family and (item.offer.movable or not moved)]
            pods = [pod for item in units for pod in item.offer.pods]
            room = counting.room(pods)
            if moved:
                # A node over its capacity must not make the sums refuse what fits elsewhere.
                room = np.maximum(room - counting.demand(pods), counting.room())
            self._left[family] = room

    def copy(self) -> Families:
        """The same state, to try more asks on."""
        result = object.__new__(Families)
        result._counting = self._counting
        result._inside = self._inside
        result._left = dict(self._left)
        return result

    def fits(self, entitlement: tuple[object, ...], pods: Sequence[Pod]) -> bool:
        """Whether counting allows the pods beside everything held so far; False is a proof."""
        wanted = self._counting.demand(pods)
        asked = wanted > 0
        return all(
            bool((wanted[asked] <= self._left[family][asked]).all()) for family in self._inside[entitlement]
        )

    def hold(self, entitlement: tuple[object, ...], pods: Sequence[Pod]) -> None:
        """The pods have a place."""
        wanted = self._counting.demand(pods)
        for family in self._inside[entitlement]:
            self._left[family] = self._left[family] - wanted


def _whole_gpus(pod: Pod) -> int:
    """Whole GPUs that the pod needs on one node; 0 for shares."""
    return 0 if pod.spec.gpu.shares else pod.spec.requests[GPU] // MILLI
