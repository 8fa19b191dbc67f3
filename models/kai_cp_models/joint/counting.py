"""Counting: sums that hold for every placement, so that an ask that exceeds one is refused without a model.

For every size s that is asked for, the pods of size s and larger, in pieces of s, are at most the pieces of s
that the nodes offer. No resource is promised beyond its sum (formulation 2.1, "cumulative rows"). The rows
are necessary. Where GPUs alone bind and sizes divide each other they nearly suffice, so they also show which
requests and how many victims are worth trying.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat

import numpy as np

from kai_cp_models.arrays import Ints, Mask
from kai_cp_models.fairness.amounts import milli_gpus
from kai_cp_models.joint.problem import Ask, Place
from kai_cp_models.joint.victim_candidates import VictimOrder
from kai_cp_models.ledger import Ledger
from kai_cp_models.pods import GPU, MILLI, PODS, Pod, PodSpec
from kai_cp_models.shapes import BatchShape
from kai_cp_models.sharing import share_mib


@dataclass(frozen=True, slots=True)
class Leaving:
    """Pods that leave one after the other. ``nodes``: [P] where they are. ``requests``: [P, D] what they hold
    there. ``shares``: those with a share of devices, by position."""

    nodes: Ints
    requests: Ints
    shares: Sequence[tuple[int, Pod, Place]]

    def part(self, some: Mask) -> Leaving:
        """Those of the pods for which ``some`` [P] holds."""
        at = (np.cumsum(some) - 1).tolist() if self.shares else []
        shares = [(at[i], pod, place) for i, pod, place in self.shares if some[i]]
        return Leaving(self.nodes[some], self.requests[some], shares)


class Counting:
    """Demand and free capacity of one state of the cluster, row by row."""

    def __init__(self, ledger: Ledger, asking: Iterable[Pod], *, everywhere: bool = False) -> None:
        """``asking``: all pods whose demand will be compared; their sizes and nodes shape the rows.
        ``everywhere``: count all nodes, also those that no such pod accepts."""
        examples = {pod.spec: pod for pod in asking}
        self.ledger = ledger
        self._sizes = sorted({size for pod in examples.values() if (size := pod.spec.requests[GPU] // MILLI)})
        self._nodes: Mask = np.full(len(ledger.idle), everywhere)
        for pod in examples.values():
            self._nodes |= ledger.fixed.table.accepting(pod)
        self._free = ledger.free.copy()
        self._demands: dict[PodSpec, Ints] = {}
        self._asked: dict[BatchShape, Ints] = {}

    @property
    def totals(self) -> slice:
        """The part of a row that sums up resources."""
        return slice(len(self._sizes), None)

    def demand(self, pods: Iterable[Pod]) -> Ints:
        """What the pods ask for together, as a row: pieces [size], then amounts [D]."""
        total = np.zeros(len(self._sizes) + self._free.shape[1], dtype=np.int64)
        for pod in pods:
            total += self._demand(pod)
        return total

    def asked(self, ask: Ask) -> Ints:
        """The demand of an ask: pieces [size], then amounts [D]. Read-only: equal asks share the row."""
        if (shape := ask.kind.shape) not in self._asked:
            self._asked[shape] = self.demand(ask.pods)
        return self._asked[shape]

    def exceeded(self, own: Ints, wanted: Ints, room: Ints, *, moved: bool = False) -> bool:
        """Whether there is too little of something that a batch asks for; True is a proof.

        Rows of pieces [size], then amounts [D]: what it asks for (``own``), what it and those beside it ask
        for, and the most that the nodes offer. ``moved``: pods only move, so the sums of whole resources
        alone count.
        """
        over = (wanted > room) & (own > 0)
        if moved:
            over = over[self.totals]
            # A shared GPU that moves empty needs no reservation pod any more.
            over[PODS] &= not self.ledger.devices
        return bool(over.any())

    def _demand(self, pod: Pod) -> Ints:
        if pod.spec not in self._demands:
            # Shares request no whole GPUs.
            amounts, whole = list(pod.spec.requests), pod.spec.requests[GPU] // MILLI
            if pod.spec.gpu.shares:
                # The least that it takes of a device: memory is given out in whole MiB (2.3).
                table = self.ledger.fixed.table
                memory = table.gpu_memory_mib[table.accepting(pod) & (table.gpu_memory_mib > 0)]
                parts = (MILLI * share_mib(pod, mib) // mib for mib in np.unique(memory).tolist())
                amounts[GPU] = pod.spec.gpu.devices * min(parts, default=0)
            row = [*(whole // size for size in self._sizes), *amounts]
            self._demands[pod.spec] = np.array(row, dtype=np.int64)
        return self._demands[pod.spec]

    @cached_property
    def overfull(self) -> Mask:
        """[N] nodes over their capacity, where the leaving of a pod may give nothing."""
        found: Mask = np.logical_or.reduce(self._free < 0, axis=1)
        return found

    def leaving(self, pods: Iterable[Pod]) -> Leaving:
        """What the pods hold at their places, as columns."""
        ledger, homes, some = self.ledger, self.ledger.fixed.homes, list(pods)
        found = map(homes.position.get, [pod.key for pod in some], repeat(-1))
        rows = homes.columns[np.fromiter(found, np.int64, len(some))]
        for i in [i for i, pod in enumerate(some) if pod.key in ledger.held] if ledger.held else ():
            spec = some[i].spec
            rows[i] = ledger.held[some[i].key].node, spec.gpu.shares, *spec.requests
        sharing = ((i, some[i], ledger.place_of(some[i])) for i in np.flatnonzero(rows[:, 1]).tolist())
        shares = [(i, pod, place) for i, pod, place in sharing if place is not None]
        return Leaving(rows[:, 0], rows[:, 2:], shares)

    @cached_property
    def _shared_free(self) -> float:
        """Free parts of shared devices on its nodes, in milli-GPUs."""
        return float((MILLI * self.ledger.shared_free())[self._nodes].sum())

    @cached_property
    def idle_room(self) -> Ints:
        """The most that all nodes together offer as they are, as a row: pieces [size], then amounts [D]."""
        return self.room(self.leaving(()))

    def room(self, leaving: Leaving) -> Ints:
        """[size, D] the same row when all of ``leaving`` are gone."""
        # Elsewhere nothing changes.
        nodes = np.zeros_like(self._nodes)
        nodes[leaving.nodes] = True
        nodes &= self._nodes
        total = self._offered + self._offer(self.free(leaving)[nodes]) - self._offer(self._free[nodes])
        # Free parts of shared devices, and what the leaving members hold of them, rounded up.
        there = ((pod, names) for _, pod, (node, names) in leaving.shares if self._nodes[node])
        parts = (len(names) * milli_gpus(pod) / max(pod.spec.gpu.devices, 1) for pod, names in there)
        total[len(self._sizes) + GPU] += int(np.ceil(sum(parts, start=self._shared_free)))
        return total

    @cached_property
    def _offered(self) -> Ints:
        """What the nodes offer as they are, without parts of shared devices, as a row."""
        return self._offer(self._free[self._nodes])

    def _offer(self, free: Ints) -> Ints:
        """What nodes with this free capacity offer in sum, as a row."""
        free = np.maximum(free, 0)
        gpus = free[:, GPU] // MILLI
        return np.array([*((gpus // size).sum() for size in self._sizes), *free.sum(axis=0)], dtype=np.int64)

    def free(self, leaving: Leaving) -> Ints:
        """[N, D] what nodes offer at most when ``leaving`` are gone; parts of shared GPUs not counted. A
        shared device whose members all leave is whole again."""
        free = self._free.copy()
        for column, amounts in zip(free.T, leaving.requests.T, strict=True):
            np.add.at(column, leaving.nodes, amounts)
        members = Counter((node, name) for _, _, (node, names) in leaving.shares for name in names)
        for (node, name), count in members.items():
            # The device's reservation pod has a pod slot of its own, which becomes free with the last member.
            free[node, PODS] += count
            device = self.ledger.devices.get(node, {}).get(name)
            if device is not None and count >= max(device.active + device.pipelined, 1):
                free[node, GPU] += MILLI
        return free


class CumulativeDemand:
    """Demand compared with free capacity, for asks that come one after the other and may take different
    units.

    All held asks together must fit when every unit is gone that one of them may take. Where an ask keeps
    units from being lost (``losable``), these may still move, but then they need a place again. A ``copy`` is
    added to by itself, and shares what is known of free capacity.
    """

    def __init__(self, counting: Counting, order: VictimOrder) -> None:
        """``order``: all units that any of the asks may take."""
        self._counting, self._order, self._lose = counting, order, order.reach.policy.may_lose
        self.leaving = counting.leaving(order.pods)
        self._rooms: dict[tuple[frozenset[int], frozenset[int] | None], Ints] = {}
        self._unions: dict[tuple[frozenset[int], frozenset[int]], frozenset[int]] = {}
        self._demand = counting.demand(())
        self._open: frozenset[int] = frozenset()
        self._losable: frozenset[frozenset[int]] = frozenset()

    def hold(self, ask: Ask, takes: frozenset[int], losable: frozenset[int] | None = None) -> None:
        """Add one more ask. ``takes``: ranks of the units that it may take. ``losable``: of those that may be
        lost while it has its place; None: all."""
        self._demand = self._demand + self._counting.asked(ask)
        self._open = self._opened(takes)
        if losable is not None:
            self._losable |= {losable}

    def exceeded(self, ask: Ask, takes: frozenset[int], losable: frozenset[int] | None = None) -> bool:
        """Whether there is too little for the ask beside everything held so far; see ``hold``."""
        own, open_ = self._counting.asked(ask), self._opened(takes)
        sets = self._losable if losable is None else self._losable | {losable}
        rooms = (self._room(open_, lost) for lost in (None, *sorted(sets, key=len)))
        wanted = self._demand + own
        return any(self._counting.exceeded(own, wanted, room) for room in rooms)

    def _opened(self, takes: frozenset[int]) -> frozenset[int]:
        """What may be taken with one more ask."""
        key = self._open, takes
        if key not in self._unions:
            # A set with nothing new is the old one, as comparing large ones takes long.
            self._unions[key] = self._open if takes <= self._open else takes | self._open
        return self._unions[key]

    def _room(self, open_: frozenset[int], lost: frozenset[int] | None) -> Ints:
        """Free capacity without the ``open_`` units; those not in ``lost`` need places again."""
        if (key := (open_, lost)) not in self._rooms:
            counting, order, units = self._counting, self._order, self._units(open_)
            gone = units & self._lose & (lost is None or self._units(lost))
            moved = units & ~gone & order.units["movable"]
            again = moved[order.unit_of] & ~counting.overfull[self.leaving.nodes]
            room = counting.room(self.leaving.part(gone[order.unit_of] | again))
            self._rooms[key] = room - counting.demand(order.pods[i] for i in np.flatnonzero(again).tolist())
        return self._rooms[key]

    def _units(self, ranks: frozenset[int]) -> Mask:
        found: Mask = np.zeros_like(self._order.units["movable"])
        found[list(ranks)] = True
        return found
