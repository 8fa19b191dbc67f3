"""Room by counting: sums that every placement obeys, so what breaks one is refused without a model.

For every size s that is asked for, the pods of size s and larger, in pieces of s, are no more than the
pieces of s that the nodes offer; and no resource is promised beyond its sum (formulation 2.1,
"cumulative rows"). The rows are necessary. Where GPUs alone bind and sizes divide each other they
nearly suffice, so they also tell which requests and how many victims are worth trying.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from kai_cp_models.joint.offers import Ranked, milli_gpus
from kai_cp_models.joint.problem import Ask
from kai_cp_models.ledger import Ledger, Mask
from kai_cp_models.rules.table import accepting
from kai_cp_models.snapshot import GPU, MILLI, PODS, Pod, PodKey, PodSpec

Row = NDArray[np.int64]
"""One number per size, largest last, then one per dimension of the snapshot."""


Entitlement = tuple[object, ...]
"""Asks with equal entitlement may take the same units."""


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
        self._places: dict[PodKey, tuple[int, tuple[str, ...]] | None] = {}

    @property
    def totals(self) -> slice:
        """The part of a row that sums up resources."""
        return slice(len(self._sizes), None)

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
        places = [(pod, place) for pod in leaving if (place := self._place(pod)) is not None]
        return self._room(places) if places else self.idle_room

    @cached_property
    def idle_room(self) -> Row:
        """What the nodes offer as they are."""
        return self._room(())

    def _room(self, places: Sequence[tuple[Pod, tuple[int, tuple[str, ...]]]]) -> Row:
        free, shared = self._free, self._shared
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

    def _place(self, pod: Pod) -> tuple[int, tuple[str, ...]] | None:
        if pod.key not in self._places:
            self._places[pod.key] = self._ledger.place_of(pod)
        return self._places[pod.key]

    def spare_milli_gpus(self, asks: Iterable[Ask], leaving: Iterable[Pod]) -> int:
        """Milli-GPUs left, by their sum alone, when ``leaving`` are gone and the asks have their places."""
        wanted = self.demand(pod for ask in asks for pod in ask.pods)
        return int((self.room(leaving) - wanted)[len(self._sizes) + GPU])

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
    leave (Hall's condition). Where an ask keeps units from being lost at all (``beside``), everything
    admitted must fit into what the others leave. ``hold`` notes asks that have their place.
    """

    def __init__(
        self,
        counting: Counting,
        ranked: Sequence[Ranked],
        takes: Mapping[Entitlement, frozenset[int]],
        *,
        moved: bool,
    ) -> None:
        """``takes``: ranks of the units per entitlement. ``moved``: the units need a place again."""
        self._counting = counting
        self._ranked = ranked
        self._moved = moved
        self._inside = {
            key: [family for family in set(takes.values()) if family >= ranks] for key, ranks in takes.items()
        }
        self._rooms: dict[frozenset[int], Row] = {}
        self._held: dict[frozenset[int], Row] = {}
        self._all = counting.demand(())
        self._beside: set[frozenset[int]] = set()

    def copy(self) -> Families:
        """The same state, to try more asks on."""
        result = copy(self)
        vars(result).update(_held=dict(self._held), _beside=set(self._beside))
        return result

    def fits(self, ask: Ask, entitlement: Entitlement, beside: frozenset[int] | None = None) -> bool:
        """Whether counting allows the ask beside everything held so far; False is a proof.

        ``beside``: ranks of the units that may be lost while the ask has its place; None: all.
        """
        wanted = self._counting.demand(ask.pods)
        asked = wanted > 0
        for family in self._inside[entitlement]:
            held = self._held.get(family, 0)
            if bool((held + wanted > self._room(family))[asked].any()):
                return False
        everything = self._all + wanted
        return all(
            bool((everything <= self._room(family))[everything > 0].all())
            for family in ({*self._beside, beside} if beside is not None else self._beside)
        )

    def hold(self, ask: Ask, entitlement: Entitlement, beside: frozenset[int] | None = None) -> None:
        """The ask has its place."""
        wanted = self._counting.demand(ask.pods)
        for family in self._inside[entitlement]:
            self._held[family] = self._held.get(family, 0) + wanted
        self._all = self._all + wanted
        if beside is not None:
            self._beside.add(beside)

    def _room(self, family: frozenset[int]) -> Row:
        room = self._rooms.get(family)
        if room is None:
            units = [
                item
                for item in self._ranked
                if item.rank in family and (item.offer.movable or not self._moved)
            ]
            pods = [pod for item in units for pod in item.offer.pods]
            room = self._counting.room(pods)
            if self._moved:
                # A node over its capacity must not make the sums refuse what fits elsewhere.
                room = np.maximum(room - self._counting.demand(pods), self._counting.idle_room)
            self._rooms[family] = room
        return room


def _whole_gpus(pod: Pod) -> int:
    """Whole GPUs that the pod needs on one node; 0 for shares."""
    return 0 if pod.spec.gpu.shares else pod.spec.requests[GPU] // MILLI
