"""The level encoding: where GPUs alone bind and sizes divide each other, counts decide everything.

With sizes such as 8, 4, 2, 1 a placement exists if and only if for every size s the pods of size s and
larger, measured in pieces of s, are no more than the pieces of s that the nodes offer (formulation
2.1): sum over t >= s of (t/s) count_t <= sum over nodes of floor(free/s). No variable per node, except
``g[s,n]`` for nodes that may gain room. A new shared device is one piece of size 1; what is inside a
shared device is a pattern of portions. Largest-first filling turns the counts into places.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from kai_cp_models.arrays import Ints
from kai_cp_models.joint.model import JointModel, ModelTooLarge, PodClass
from kai_cp_models.joint.search import Linear
from kai_cp_models.limits import LIMITS
from kai_cp_models.pods import GPU, MILLI, GpuKind, Pod, PodKey
from kai_cp_models.solver import cp_model

Place = tuple[int, tuple[str, ...]]


@dataclass(frozen=True)
class _Bin:
    """Shared devices with equal free memory: existing ones (``names``), or new ones (``names`` empty)."""

    free_mib: int
    devices: tuple[tuple[int, str], ...]
    patterns: tuple[tuple[int, ...], ...]
    used: tuple[cp_model.IntVar, ...]


class LevelModel(JointModel):
    """See the module's docstring. Raises ``ModelTooLarge`` where the encoding would not be exact."""

    def _node_of(self, cell: int) -> int:
        return int(self._cells[cell][0])

    # --- cells and conditions --------------------------------------------------------------------

    def _cut_cells(self) -> None:
        classes = list(self._classes.values())
        self._sizes = _chain({self._size(item.example) for item in classes})
        self._require(classes)
        self._agreeing(classes)
        free = np.maximum(self._free[:, GPU], 0) // MILLI
        for node, pods in self._leaving.items():
            free[node] += sum(map(_most_given, pods))
        self._room = {
            size: np.array([int((free[nodes] // size).sum()) for nodes in self._cells])
            for size in self._sizes
        }

    def _room_for(self, item: PodClass) -> tuple[Ints, Ints] | None:
        if item.example.spec.gpu.shares:
            # Shares are placed by pattern over the whole cluster, see ``_shares``.
            return None
        most = np.minimum(self._room[self._size(item.example)], item.most)
        takes = np.array([item.mask[nodes[0]] for nodes in self._cells], dtype=bool)
        cells = np.flatnonzero((most > 0) & takes)
        return cells, most[cells]

    def _size(self, pod: Pod) -> int:
        return 1 if pod.spec.gpu.shares else pod.spec.requests[GPU] // MILLI

    def _require(self, classes: Sequence[PodClass]) -> None:
        """Raise unless GPUs alone bind on every node, whatever subset of the units leaves."""
        if (self._free < 0).any():
            raise ModelTooLarge("a node is over its capacity")
        if any(rule.concerns(item.example) for rule in self.ledger.rules for item in classes):
            raise ModelTooLarge("a stateful rule has a say")
        if any(rule.concerns(pod) for rule in self.ledger.rules for pod in self._leaver.values()):
            raise ModelTooLarge("a stateful rule has a say in what leaves")
        others = [d for d in range(self._free.shape[1]) if d != GPU]
        ratios = np.zeros(len(others))
        for item in classes:
            spec = item.example.spec
            simple = spec.gpu.kind is GpuKind.REGULAR or (
                spec.gpu.kind is GpuKind.FRACTION and spec.gpu.devices == 1
            )
            if not simple or spec.gpu.devices == 0:
                raise ModelTooLarge("a pod asks for something else than whole GPUs or one share")
            per_gpu = np.array([spec.requests[d] for d in others], dtype=float)
            if spec.gpu.shares:
                # As many pods as portions fit a device, and the slot of a new device's reservation.
                per_gpu *= MILLI // max(spec.gpu.milli_portion, 1)
                per_gpu[others.index(3)] += 1
            else:
                per_gpu /= self._size(item.example)
            ratios = np.maximum(ratios, per_gpu)
        free = self._free[:, others].astype(float)
        gpus = self._free[:, GPU] / MILLI
        shared = self.ledger.shared_free()
        if ((gpus + shared)[:, None] * ratios > free).any():
            raise ModelTooLarge("CPU, memory or slots may bind")
        for node, pods in self._leaving.items():
            given = np.array([pod.spec.requests for pod in pods], dtype=float)[:, others]
            gain = np.array([_devices_given(pod) for pod in pods])[:, None] * ratios
            slack = free[node] - (gpus[node] + shared[node]) * ratios
            if (slack + np.minimum(given - gain, 0).sum(axis=0) < 0).any():
                raise ModelTooLarge("CPU, memory or slots may bind after an eviction")

    def _agreeing(self, classes: Sequence[PodClass]) -> None:
        """Blocks of nodes that agree on every class's mask and every scope's domain."""
        columns = [item.mask.astype(np.int64) for item in classes]
        shares = [item for item in classes if item.example.spec.gpu.shares]
        if shares and any((item.mask != shares[0].mask).any() for item in shares):
            raise ModelTooLarge("shares accept different nodes")
        self._share_mask = shares[0].mask if shares else np.zeros(len(self._free), dtype=bool)
        if shares and not self._share_mask.any():
            raise ModelTooLarge("no node takes a share")
        memory = self.ledger.fixed.gpu_memory_mib
        if shares and len(np.unique(memory[self._share_mask])) > 1:
            raise ModelTooLarge("GPUs of different memory hold shares")
        levels: dict[tuple[str, str], NDArray[np.int64]] = {}
        for ask in self.asks:
            for scopes, leaf in ask.batch.leaves:
                if scopes and any(pod.spec.gpu.shares for pod in leaf.pods):
                    raise ModelTooLarge("a share has a topology constraint")
                for scope in scopes:
                    constraint = scope.constraint
                    if constraint is not None and constraint.required and not constraint.error:
                        levels[constraint.topology, constraint.required] = self._domain_of(scope)
        columns += levels.values()
        useful = np.flatnonzero(np.any([item.mask for item in classes], axis=0))
        if not len(useful):
            self._cells: list[NDArray[np.int64]] = []
            return
        matrix = np.stack([column[useful] for column in columns], axis=1)
        _, cell_of = np.unique(matrix, axis=0, return_inverse=True)
        order = np.argsort(cell_of, kind="stable")
        starts = np.flatnonzero(np.diff(cell_of[order])) + 1
        self._cells = [useful[part] for part in np.split(order, starts)]
        if len(self._cells) > LIMITS.level_cells:
            raise ModelTooLarge("too many kinds of nodes")

    # --- capacity --------------------------------------------------------------------------------

    def _capacity(self) -> None:
        self._staying = {device: self._stays(device) for device in self._members}
        self._new: dict[int, cp_model.IntVar] = {}
        self._bins: list[_Bin] = []
        share_keys = [key for key, item in self._classes.items() if item.example.spec.gpu.shares]
        if share_keys:
            self._shares(share_keys)
        for cell, nodes in enumerate(self._cells):
            self._cell_rows(cell, nodes)
        if self._may_lose:
            self._moves_into_idle_room()

    def _moves_into_idle_room(self) -> None:
        """Pods move into capacity that is idle before anything is lost, see ``_may_move``."""
        free = np.maximum(self._free[:, GPU], 0) // MILLI
        sizes: dict[int, list[Linear]] = {}
        for key, literal in self.moved.items():
            pod = self._leaver[key]
            if pod.spec.requests[GPU]:
                sizes.setdefault(self._size(pod), []).append(literal)
        for size in sizes:
            load = [
                (larger // size) * literal
                for larger, literals in sizes.items()
                if larger >= size
                for literal in literals
            ]
            self.cp.add(sum(load) <= int((free // size).sum()))

    def _cell_rows(self, cell: int, nodes: NDArray[np.int64]) -> None:
        gaining = [int(node) for node in nodes if int(node) in self._leaving]
        fixed = np.array([node for node in nodes if int(node) not in self._leaving], dtype=np.int64)
        free = self._free[:, GPU] // MILLI
        for size in self._sizes:
            load: list[Linear] = [
                (self._size(item.example) // size) * item.x[cell]
                for item in self._classes.values()
                if cell in item.x and self._size(item.example) >= size
            ]
            if size == 1 and cell in self._new:
                load.append(self._new[cell])
            if not load:
                continue
            pieces: list[Linear] = [self._pieces(node, size) for node in gaining]
            constant = int((free[fixed] // size).sum()) if len(fixed) else 0
            self.cp.add(sum(load) <= constant + sum(pieces))

    def _pieces(self, node: int, size: int) -> Linear:
        """How many pieces of ``size`` the node offers when some of its pods are gone."""
        gives: list[Linear] = [
            (pod.spec.requests[GPU] // MILLI) * self.gone[pod.key]
            for pod in self._leaving[node]
            if not pod.spec.gpu.shares
        ]
        gives += [1 - stays for (where, _), stays in self._staying.items() if where == node]
        room: Linear = int(self._free[node, GPU]) // MILLI + sum(gives)
        if size == 1:
            return room
        most = (int(self._free[node, GPU]) // MILLI + sum(map(_most_given, self._leaving[node]))) // size
        if most <= 0:
            return 0
        pieces = self.cp.new_int_var(0, most, f"g[{size},{node}]")
        self.cp.add(size * pieces <= room)
        return pieces

    # --- shares ----------------------------------------------------------------------------------

    def _shares(self, keys: Sequence[Hashable]) -> None:
        """Shares of one device each, placed by patterns over devices with equal free memory."""
        ledger = self.ledger
        node = int(np.argmax(self._share_mask))
        total = int(ledger.fixed.gpu_memory_mib[node])
        items = [self._classes[key] for key in keys]
        needs = [ledger.share_mib_on(item.example, node) for item in items]
        most = sum(item.most for item in items)
        by_free: dict[int, list[tuple[int, str]]] = {}
        self._joins: dict[tuple[int, str], list[cp_model.IntVar]] = {}
        for (where, name), device in sorted(ledger.devices.items()):
            free = device.future_free_mib(total)
            if not self._share_mask[where] or free < 0:
                continue
            if (where, name) in self._members:
                self._join((where, name), needs, free, total)
            elif free >= min(needs):
                by_free.setdefault(free, []).append((where, name))
        bins: list[_Bin] = []
        for free, devices in [*by_free.items(), (total, [])]:
            patterns = _patterns(needs, free)
            used = tuple(
                self.cp.new_int_var(0, min(most, len(devices)) if devices else most, f"bin[{free},{p}]")
                for p in range(len(patterns))
            )
            if devices:
                self.cp.add(sum(used) <= len(devices))
            bins.append(_Bin(free, tuple(devices), patterns, used))
        self._bins = bins
        self._share_keys = tuple(keys)
        for position, item in enumerate(items):
            held = [
                pattern[position] * used
                for one in bins
                for pattern, used in zip(one.patterns, one.used, strict=True)
                if pattern[position]
            ]
            held += [joins[position] for joins in self._joins.values()]
            self.cp.add(sum(held) >= sum(count * literal for count, literal in item.terms))
        for cell, nodes in enumerate(self._cells):
            if self._share_mask[nodes[0]]:
                self._new[cell] = self.cp.new_int_var(0, most, f"new[{cell}]")
        self.cp.add(sum(self._new.values()) == sum(bins[-1].used))

    def _join(self, device: tuple[int, str], needs: Sequence[int], free: int, total: int) -> None:
        """Counts per class on a device that members may leave."""
        members = self._members[device]
        counts = [self.cp.new_int_var(0, total // need, f"join[{device}]") for need in needs]
        for need, count in zip(needs, counts, strict=True):
            self.cp.add(count <= (total // need) * self._staying[device])
        gives = [self.ledger.share_mib_on(pod, device[0]) * self.gone[pod.key] for pod in members]
        self.cp.add(sum(need * count for need, count in zip(needs, counts, strict=True)) - sum(gives) <= free)
        self._joins[device] = counts

    # --- answers ---------------------------------------------------------------------------------

    def _places(
        self,
        going: Mapping[Hashable, Sequence[Pod]],
        counts: Mapping[Hashable, Mapping[int, int]],
        solver: cp_model.CpSolver,
        gone: frozenset[PodKey],
    ) -> dict[PodKey, Place]:
        free = self._free[:, GPU] // MILLI
        for leaver in gone:
            pod = self._leaver[leaver]
            place = self.ledger.place_of(pod)
            if place is not None and not pod.spec.gpu.shares:
                free[place[0]] += pod.spec.requests[GPU] // MILLI
        for (node, _), stays in self._staying.items():
            free[node] += 1 - int(solver.value(stays))
        found: dict[PodKey, Place] = {}
        whole = [key for key in going if not self._classes[key].example.spec.gpu.shares]
        whole.sort(key=lambda key: -self._size(self._classes[key].example))
        for key in whole:
            size = self._size(self._classes[key].example)
            pods = iter(going[key])
            for cell, count in counts[key].items():
                for _ in range(count):
                    node = _tightest(free, self._cells[cell], size)
                    free[node] -= size
                    found[next(pods).key] = (node, ())
        if self._bins:
            self._place_shares(going, solver, free, found)
        return found

    def _place_shares(
        self,
        going: Mapping[Hashable, Sequence[Pod]],
        solver: cp_model.CpSolver,
        free: NDArray[np.int64],
        found: dict[PodKey, Place],
    ) -> None:
        waiting = [list(going[key]) for key in self._share_keys]
        fresh: list[tuple[int, str]] = []
        for cell, variable in self._new.items():
            for _ in range(int(solver.value(variable))):
                node = _tightest(free, self._cells[cell], 1)
                free[node] -= 1
                fresh.append((node, f"new-{len(fresh)}"))
        for device, joins in self._joins.items():
            for kind, join in enumerate(joins):
                for _ in range(min(int(solver.value(join)), len(waiting[kind]))):
                    found[waiting[kind].pop(0).key] = (device[0], (device[1],))
        for one in self._bins:
            devices = list(one.devices) or fresh
            position = 0
            for pattern, used in zip(one.patterns, one.used, strict=True):
                for _ in range(int(solver.value(used))):
                    node, name = devices[position]
                    position += 1
                    for kind, count in enumerate(pattern):
                        for _ in range(min(count, len(waiting[kind]))):
                            found[waiting[kind].pop(0).key] = (node, (name,))


def _devices_given(pod: Pod) -> float:
    """Devices, as a fraction, that become free when the pod leaves."""
    gpu = pod.spec.gpu
    return gpu.devices * gpu.milli_portion / MILLI if gpu.shares else pod.spec.requests[GPU] / MILLI


def _most_given(pod: Pod) -> int:
    """Whole devices that become free when the pod leaves as the last one on the devices it shares."""
    return pod.spec.gpu.devices if pod.spec.gpu.shares else pod.spec.requests[GPU] // MILLI


def _chain(sizes: set[int]) -> list[int]:
    """The sizes, largest first; raises unless each divides the next larger one."""
    ordered = sorted(sizes, reverse=True)
    if not ordered or ordered[-1] < 1:
        raise ModelTooLarge("a pod asks for no GPU")
    if any(larger % smaller for larger, smaller in pairwise(ordered)):
        raise ModelTooLarge("sizes do not divide each other")
    return ordered


def _tightest(free: NDArray[np.int64], nodes: NDArray[np.int64], size: int) -> int:
    """The node with the least room that still takes ``size``."""
    room = np.where(free[nodes] >= size, free[nodes], np.iinfo(np.int64).max)
    return int(nodes[int(np.argmin(room))])


def _patterns(needs: Sequence[int], free_mib: int) -> tuple[tuple[int, ...], ...]:
    """Maximal ways to fill ``free_mib`` with portions of the given sizes."""
    found: list[tuple[int, ...]] = []

    def fill(kind: int, left: int, chosen: tuple[int, ...]) -> None:
        if len(found) > LIMITS.patterns:
            raise ModelTooLarge("too many ways to share a device")
        if kind == len(needs) - 1:
            found.append((*chosen, left // max(needs[kind], 1)))
            return
        for count in range(left // max(needs[kind], 1), -1, -1):
            fill(kind + 1, left - count * needs[kind], (*chosen, count))

    fill(0, free_mib, ())
    return tuple(
        pattern
        for pattern in found
        if any(pattern)
        and not any(
            other != pattern and all(o >= p for o, p in zip(other, pattern, strict=True)) for other in found
        )
    )
