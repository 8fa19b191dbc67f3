"""The rows of shared devices in a joint model.

Devices that a pod may leave, and all devices of a node that is a cell of its own, have a count for every
class. Where shares are pooled, all other devices with equal free memory, and all new ones, are filled by
maximal patterns of portions.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeAlias

import numpy as np

from kai_cp_models.arrays import Ints
from kai_cp_models.joint.cells import POOL, NodeCells, PodClass, fillings
from kai_cp_models.joint.problem import GivenPlace
from kai_cp_models.joint.search import Linear, any_of
from kai_cp_models.ledger import Ledger
from kai_cp_models.pods import GPU, MILLI, Pod, PodKey
from kai_cp_models.solver import cp_model

Device: TypeAlias = tuple[int, str | int]
"""A shared device: its node and its GPU group; a number for one that is not shared yet."""


@dataclass(eq=False)
class ShareRows:
    """Counts and rows for all shared devices of a model, made at once."""

    _cp: cp_model.CpModel
    _ledger: Ledger
    _classes: Mapping[Hashable, PodClass]
    """Those that share devices."""
    _cells: NodeCells
    _members: Mapping[Device, Sequence[Pod]]
    """The pods that may leave, by device."""
    _gone: Mapping[PodKey, Linear]
    """1 for each of them that does."""

    def __post_init__(self) -> None:
        self.stays = {device: self._stays(device) for device in self._members}
        """1 while some pod stays on a device that pods may leave; 0 once all have left."""
        self.new: dict[int, list[cp_model.IntVar]] = {}
        """Devices that become shared, by cell; each takes a whole GPU and a pod slot."""
        self._counts: dict[Device, dict[Hashable, cp_model.IntVar]] = {}
        self._bins: list[tuple[Sequence[Device], Mapping[tuple[int, ...], cp_model.IntVar]]] = []
        """Devices with equal free memory (none: new ones), and how many are filled by each pattern."""
        for node in sorted({node for item in self._classes.values() for node in item.x} - {POOL}):
            self._node(node)
        if self._cells.pooled:
            self._pool()

    def _stays(self, device: Device) -> Linear:
        """See ``stays``. The device counts as a whole one at 0, and no pod joins it."""
        known, members = self._ledger.devices[device[0]][device[1]], self._members[device]  # type: ignore[index]
        if known.active + known.pipelined > len(members):
            return 1
        return any_of(self._cp, f"stays[{device}]", [1 - self._gone[pod.key] for pod in members])

    def _node(self, node: int) -> None:
        """Counts for every shared device of one node, and for new ones, which are used in order."""
        items = {key: item for key, item in self._classes.items() if node in item.x}
        total = self._ledger.fixed.mib_on[node]
        counts: list[dict[Hashable, cp_model.IntVar]] = []
        for name, device in self._ledger.devices.get(node, {}).items():
            if device.active or device.pipelined:
                counts.append(self._count((node, name), items, max(device.free_mib(total, now=False), 0)))
        demand = sum(item.most * item.example.spec.gpu.devices for item in items.values())
        gpus = int(self._ledger.fixed.table.allocatable[node, GPU]) // MILLI
        new = self.new[node] = [self._cp.new_bool_var(f"new[{node},{k}]") for k in range(min(gpus, demand))]
        for k, used in enumerate(new):
            if k:
                self._cp.add_implication(used, new[k - 1])
            counts.append(self._count((node, k), items, total * used, used))
        for key, item in items.items():
            held = [part[key] for part in counts if key in part]
            self._cp.add(sum(held) == item.example.spec.gpu.devices * item.x[node])

    def _pool(self) -> None:
        """Shares of one device each, over all nodes that take them."""
        items = list(self._classes.values())
        nodes = items[0].mask & self._cells.alike
        first = int(np.argmax(nodes))
        total = self._ledger.fixed.mib_on[first]
        needs = [self._ledger.share_mib_on(item.example, first) for item in items]
        by_free: dict[int, list[Device]] = {}
        joined: list[dict[Hashable, cp_model.IntVar]] = []
        shared = self._ledger.shared()
        devices = [(node, name) for node, there in self._ledger.devices.items() for name in there]
        least = min(needs) if not self._members else 0
        able = np.flatnonzero(nodes[shared.node] & (shared.later >= least)).tolist()
        for device, free in sorted((devices[i], int(shared.later[i])) for i in able):
            if device in self._members:
                joined.append(self._count(device, self._classes, free))
            elif free >= min(needs):
                by_free.setdefault(free, []).append(device)
        most = sum(item.most for item in items)
        for free, some in (*by_free.items(), (total, [])):
            used = {
                pattern: self._cp.new_int_var(0, min(most, len(some) or most), f"bin[{free},{pattern}]")
                for pattern in _patterns(needs, free)
            }
            if some:
                self._cp.add(sum(used.values()) <= len(some))
            self._bins.append((some, used))
        for position, (key, item) in enumerate(self._classes.items()):
            held: list[Linear] = [
                pattern[position] * used
                for _, filled in self._bins
                for pattern, used in filled.items()
                if pattern[position]
            ]
            held += [counts[key] for counts in joined if key in counts]
            self._cp.add(sum(held) >= item.x[POOL])
        new = {
            cell: self._cp.new_int_var(0, most, f"new[{cell}]") for cell in self._cells.nodes if nodes[cell]
        }
        self._cp.add(sum(new.values()) == sum(self._bins[-1][1].values()))
        self.new |= {cell: [var] for cell, var in new.items()}

    def _count(
        self, device: Device, items: Mapping[Hashable, PodClass], free_mib: Linear, used: Linear | None = None
    ) -> dict[Hashable, cp_model.IntVar]:
        """Counts of each class on the device; ``used``: 1 if it may hold any, for a new one."""
        node, total = device[0], self._ledger.fixed.mib_on[device[0]]
        there = self.stays.get(device, 1) if used is None else used
        counts = self._counts[device] = {}
        load: list[Linear] = []
        for key, item in items.items():
            need = self._ledger.share_mib_on(item.example, node)
            most = min(item.most, total // need if need else item.most)
            if most <= 0:
                continue
            count = counts[key] = self._cp.new_int_var(0, most, f"w[{device}]")
            self._cp.add(count <= most * there)
            if node in item.x:
                self._cp.add(count <= item.x[node])
            load.append(need * count)
        leaving = self._members.get(device, ())
        freed = [self._ledger.share_mib_on(pod, node) * self._gone[pod.key] for pod in leaving]
        if load:
            self._cp.add(sum(load) - sum(freed) <= free_mib)
        return counts

    def places(
        self, going: Mapping[Hashable, Sequence[Pod]], solver: cp_model.CpSolver, free: Ints
    ) -> dict[PodKey, GivenPlace]:
        """Node and device names of the shares that are ``going`` somewhere, by class. ``free`` [N]: whole
        GPUs that are left; those of new devices are taken from it."""
        held: dict[Hashable, dict[int, dict[str | int, int]]] = {key: {} for key in self._classes}
        for (node, name), counts in self._counts.items():
            for key, count in counts.items():
                held[key].setdefault(node, {})[name] = solver.value(count)
        for some, filled in self._bins:
            devices = iter(some or self._fresh(solver, free))
            for pattern, used in filled.items():
                for _ in range(solver.value(used)):
                    node, name = next(devices)
                    for key, pods in zip(self._classes, pattern, strict=True):
                        held[key].setdefault(node, {})[name] = pods
        found: dict[PodKey, GivenPlace] = {}
        for key, nodes in held.items():
            devices_of_one = self._classes[key].example.spec.gpu.devices
            # Patterns may hold more pods than there are.
            found |= zip((pod.key for pod in going[key]), _in_turn(nodes, devices_of_one), strict=False)
        return found

    def _fresh(self, solver: cp_model.CpSolver, free: Ints) -> Iterator[Device]:
        """New devices, each on the node of its cell where least is free."""
        pool = ((cell, solver.value(new[0])) for cell, new in self.new.items() if self._cells.alike[cell])
        nodes = (self._cells.fill(cell, free, 1, count) for cell, count in pool if count)
        yield from ((node, k) for k, node in enumerate(chain.from_iterable(nodes)))


def _in_turn(nodes: Mapping[int, dict[str | int, int]], devices: int) -> Iterator[GivenPlace]:
    """The places of one pod after the other, each on ``devices`` different devices: those that hold most."""
    for node, left in nodes.items():
        for _ in range(sum(left.values()) // devices):
            names = tuple(sorted(left, key=lambda name: (-left[name], isinstance(name, int), name))[:devices])
            for name in names:
                left[name] -= 1
            yield node, names


def _patterns(needs: Sequence[int], free_mib: int) -> Iterator[tuple[int, ...]]:
    """Ways to fill ``free_mib`` with portions of the given sizes, to which no portion can be added."""
    for way in fillings(needs, free_mib):
        left = free_mib - sum(need * count for need, count in zip(needs, way, strict=True))
        if any(way) and left < max(min(needs), 1):
            yield way
