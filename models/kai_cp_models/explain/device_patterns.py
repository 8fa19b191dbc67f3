"""Rows of ``feasibility`` about shared devices in large clusters (2.6).

The sum of free memory says little about shares: a pod cannot use memory that is free in small parts on many
devices. So equal devices form one kind. A pattern of a kind says which shares leave a device and how many of
each size may enter it afterwards, and the model counts how many devices follow each pattern.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice, product
from math import prod
from typing import Final

from kai_cp_models.explain.cells import request_of
from kai_cp_models.explain.variables import Variables
from kai_cp_models.joint.search import Linear
from kai_cp_models.pods import GPU, MILLI, Pod

_MOST_PATTERNS: Final = 2_000
"""Most patterns of one cell, and most fillings of one device, that are listed."""

Sizes = tuple[int, ...]
"""MiB of each size of share that may enter, on devices of one memory size."""


@dataclass(frozen=True, slots=True)
class DeviceKind:
    """Equal shared devices.

    ``total_mib`` and ``free_mib``: memory of each device. ``members``: (leaver, MiB) of each share on it that
    may leave. ``emptied``: whether the device is empty once all of them have left.
    """

    total_mib: int
    free_mib: int
    members: tuple[tuple[int, int], ...]
    emptied: bool


@dataclass(frozen=True, slots=True)
class DeviceChange:
    """A pattern: how one device may change.

    ``gone``: shares that leave, counted by leaver. ``entering``: shares that may enter afterwards, counted by
    size. ``whole``: 1 if the device becomes a free whole GPU, -1 if it was one, else 0.
    """

    gone: Counter[int]
    entering: tuple[int, ...]
    whole: int


def kinds_of(model: Variables) -> dict[int, Counter[DeviceKind]]:
    """The shared devices of each cell, counted by kind."""
    ledger, cells = model.ledger, model.cells
    members: dict[tuple[int, str], list[tuple[int, int]]] = {}
    for i, leaver in enumerate(cells.leavers):
        for pod in leaver.pods if leaver.pods[0].spec.gpu.shares else ():
            place = ledger.place_of(pod)
            for name in place[1] if place is not None else ():
                node = place[0] if place is not None else -1
                members.setdefault((node, name), []).append((i, ledger.share_mib_on(pod, node)))
    found: dict[int, Counter[DeviceKind]] = {}
    for node, there in ledger.devices.items():
        for name, device in there.items() if cells.of[node] >= 0 else ():
            held = device.active + device.pipelined
            mine = tuple(sorted(members.get((node, name), ())))
            total = int(ledger.fixed.table.gpu_memory_mib[node])
            free = max(0, device.free_mib(total, now=False))
            if held:
                kind = DeviceKind(total, free, mine, held == len(mine))
                found.setdefault(int(cells.of[node]), Counter())[kind] += 1
    return found


class DevicePatterns:
    """The shared devices of one cell. ``known``: whether its patterns are few enough to be listed."""

    def __init__(self, model: Variables, cell: int, kinds: Counter[DeviceKind]) -> None:
        self.m = model
        self._cell = cell
        ledger = model.ledger
        memory = ledger.fixed.table.gpu_memory_mib
        node_of = {int(memory[n]): n for n in model.cells.nodes[cell]}
        self._entering: dict[Sizes, list[Linear]] = {}
        """Number of parts that enter, by their MiB on devices of each memory size."""
        for pod, count in self._shares():
            sizes = tuple(max(1, ledger.share_mib_on(pod, n)) for n in node_of.values())
            self._entering.setdefault(sizes, []).append(pod.spec.gpu.devices * count)
        by_memory = dict(zip(node_of, zip(*self._entering, strict=True), strict=False))
        self._groups: list[tuple[int, list[DeviceChange]]] = []
        """Number of devices of each kind, and the patterns that each may follow."""
        self.known = self._tell_apart(kinds, {total: by_memory.get(total, ()) for total in node_of})

    def _shares(self) -> Iterator[tuple[Pod, Linear]]:
        """Shares that enter the cell: an example pod, and the number of such pods."""
        for item, x in zip(self.m.classes, self.m.x, strict=True):
            if item.example.spec.gpu.shares:
                yield item.example, x[self._cell]
        for mover, to in self.m.to.items():
            example = self.m.cells.movers[mover].example
            if self._cell in to and example.spec.gpu.shares:
                yield example, to[self._cell]

    def _tell_apart(self, kinds: Counter[DeviceKind], sizes: dict[int, Sizes]) -> bool:
        most = sum(leaver.count * leaver.pods[0].spec.gpu.devices for leaver in self.m.cells.leavers)
        most += sum(item.count * item.example.spec.gpu.devices for item in self.m.classes)
        left = _MOST_PATTERNS
        for total, mine in sizes.items():
            if prod(total // size + 1 for size in mine) > _MOST_PATTERNS:
                return False
            self._groups.append((most, [DeviceChange(Counter(), one, -1) for one in fillings(total, mine)]))
        for kind, count in kinds.items():
            found = list(islice(_patterns(kind, sizes[kind.total_mib]), left + 1))
            self._groups.append((count, found))
            left -= len(found)
            if left < 0:
                return False
        return True

    def add(self) -> None:
        """Add the rows of the cell to the model."""
        cp = self.m.cp
        gone: dict[int, list[Linear]] = {}
        room: list[list[Linear]] = [[] for _ in self._entering]
        whole: list[Linear] = []
        for count, patterns in self._groups:
            used = [cp.new_int_var(0, count, "") for _ in patterns]
            cp.add(sum(used) <= count)
            for pattern, var in zip(patterns, used, strict=True):
                whole.append(MILLI * pattern.whole * var)
                for leaver, times in pattern.gone.items():
                    gone.setdefault(leaver, []).append(times * var)
                for e, times in enumerate(pattern.entering):
                    room[e].append(times * var)
        for i, times_gone in gone.items():
            devices = self.m.cells.leavers[i].pods[0].spec.gpu.devices
            cp.add(sum(times_gone) <= devices * self.m.gone[i])
        families = (self.m.room(GPU), "fragmentation")
        for counts, places in zip(self._entering.values(), room, strict=True):
            self.m.under(cp.add(sum(counts) <= sum(places)), *families)
        free = int(self.m.free[list(self.m.cells.nodes[self._cell]), GPU].clip(min=0).sum())
        self.m.under(cp.add(self._whole_pods() - sum(whole) <= free), *families)

    def _whole_pods(self) -> Linear:
        """Milli-GPUs of whole devices that entering pods take, less those that leaving pods give back."""
        m, cell = self.m, self._cell
        entering = [
            y[GPU][cell]
            for y, item in zip(m.y, m.classes, strict=True)
            if GPU in y and not item.example.spec.gpu.shares
        ]
        moving = [
            request_of(m.cells.movers[k].example)[GPU] * to[cell] for k, to in m.to.items() if cell in to
        ]
        leaving = [
            request_of(leaver.pods[0])[GPU] * gone
            for leaver, gone in zip(m.cells.leavers, m.gone, strict=True)
            if leaver.cell == cell
        ]
        return sum(entering) + sum(moving) - sum(leaving)


def _patterns(kind: DeviceKind, sizes: Sizes) -> Iterator[DeviceChange]:
    """All patterns that a device of a kind may follow."""
    members = Counter(kind.members)
    for chosen in product(*(range(count + 1) for count in members.values())):
        gone: Counter[int] = Counter()
        free = kind.free_mib
        for (leaver, mib), times in zip(members, chosen, strict=True):
            gone[leaver] += times
            free += times * mib
        if kind.emptied and sum(chosen) == len(kind.members):
            yield DeviceChange(+gone, (0,) * len(sizes), 1)
        else:
            for entering in fillings(free, sizes):
                yield DeviceChange(+gone, entering, 0)


@lru_cache(maxsize=1024)
def fillings(free_mib: int, sizes: Sizes) -> tuple[tuple[int, ...], ...]:
    """All ways to fill ``free_mib``, as numbers of shares by size, to which no share can be added.

    The empty filling is left out.
    """
    found: list[tuple[tuple[int, ...], int]] = [((), free_mib)]
    for size in sizes:
        found = [
            ((*counts, times), rest - times * size)
            for counts, rest in found
            for times in range(rest // size + 1)
        ]
    smallest = min(sizes, default=0)
    return tuple(counts for counts, rest in found if any(counts) and rest < smallest)
