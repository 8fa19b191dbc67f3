"""Prices of scarce pods and CPUs from a fluid relaxation of the packing problem.

Here a bin is not a set of nodes but one pool: its devices are filled one by one with share patterns,
and only the pool's CPUs and memory are counted. That is weaker than the packing bound and thousands
of times cheaper, so a policy can ask for prices while pods arrive.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from ortools.linear_solver import pywraplp  # type: ignore[import-untyped]

WHOLE = 1000
STEP = 10
"""Requests are multiples of so many milli-GPUs."""
Floats = NDArray[np.float64]


class _Item(Protocol):
    @property
    def cpu(self) -> int: ...
    @property
    def memory(self) -> int: ...
    @property
    def gpus(self) -> int: ...
    @property
    def milli(self) -> int: ...
    @property
    def value(self) -> int: ...
    @property
    def allowed(self) -> tuple[bool, ...]: ...


class _Bin(Protocol):
    @property
    def cpu(self) -> int: ...
    @property
    def memory(self) -> int: ...
    @property
    def devices(self) -> int: ...
    @property
    def count(self) -> int: ...


@dataclass(frozen=True)
class Prices:
    """Milli-GPUs that one more unit would add: per pod of each item, milli-CPU of each bin, MiB of each bin.

    ``value``: milli-GPUs of the relaxation, an upper bound for every placement (infinite when the
    rounds did not suffice to solve it).
    """

    pods: Floats
    cpu: Floats
    memory: Floats
    value: float
    placed: Floats
    """Pods of each item that the relaxation places."""


def fluid_prices(
    items: Sequence[_Item], bins: Sequence[_Bin], demand: Sequence[float], *, rounds: int = 200
) -> Prices:
    """Solve the relaxation for ``demand`` pods of each item."""
    solver: Any = pywraplp.Solver.CreateSolver("GLOP")
    devices = [solver.Constraint(0.0, float(b.count * b.devices)) for b in bins]
    cpus = [solver.Constraint(0.0, float(b.count * b.cpu)) for b in bins]
    memory = [solver.Constraint(0.0, float(b.count * b.memory)) for b in bins]
    rows = [solver.Constraint(0.0, float(amount)) for amount in demand]
    objective = solver.Objective()
    objective.SetMaximization()

    def add(b: int, counts: dict[int, int], width: int) -> None:
        use = solver.NumVar(0.0, solver.infinity(), "")
        devices[b].SetCoefficient(use, float(width))
        cpus[b].SetCoefficient(use, float(sum(items[i].cpu * n for i, n in counts.items())))
        memory[b].SetCoefficient(use, float(sum(items[i].memory * n for i, n in counts.items())))
        for i, n in counts.items():
            rows[i].SetCoefficient(use, float(n))
        objective.SetCoefficient(use, float(sum(items[i].value * n for i, n in counts.items())))

    shared: list[list[int]] = []
    for b in range(len(bins)):
        here = [i for i, item in enumerate(items) if item.gpus and item.allowed[b]]
        shared.append([i for i in here if items[i].milli < WHOLE and items[i].gpus == 1])
        for i in here:
            if items[i].gpus <= bins[b].devices:
                add(b, {i: 1}, items[i].gpus)
    known: set[tuple[int, tuple[tuple[int, int], ...]]] = set()
    for _ in range(rounds):
        if solver.Solve() != pywraplp.Solver.OPTIMAL:
            msg = "the fluid relaxation has no optimum"
            raise RuntimeError(msg)
        # All prices are read before a column is added: an addition makes them unreadable.
        price, cpu, mem, device = (_duals(group) for group in (rows, cpus, memory, devices))
        value = float(objective.Value())
        activity = solver.ComputeConstraintActivities()
        placed = np.array([activity[row.index()] for row in rows])
        added = False
        for b in range(len(bins)):
            gains = {
                i: float(items[i].value - price[i] - cpu[b] * items[i].cpu - mem[b] * items[i].memory)
                for i in shared[b]
            }
            worth, counts = best_share(gains, {i: items[i].milli for i in shared[b]})
            key = (b, tuple(sorted(counts.items())))
            if worth > device[b] + 1e-6 and key not in known:
                known.add(key)
                add(b, counts, 1)
                added = True
        if not added:
            return Prices(price, cpu, mem, value, placed)
    return Prices(price, cpu, mem, math.inf, placed)


def _duals(constraints: Sequence[Any]) -> Floats:
    return np.array([max(0.0, row.dual_value()) for row in constraints])


def best_share(gains: dict[int, float], milli: dict[int, int]) -> tuple[float, dict[int, int]]:
    """The most valuable multiset for one whole device: unbounded knapsack over its room."""
    of_size: dict[int, int] = {}
    for i, gain in gains.items():
        if gain > 0 and (milli[i] not in of_size or gain > gains[of_size[milli[i]]]):
            of_size[milli[i]] = i
    width = WHOLE // STEP
    worth = [0.0] * (width + 1)
    taken = [-1] * (width + 1)
    for room in range(1, width + 1):
        worth[room], taken[room] = worth[room - 1], -1
        for size, i in of_size.items():
            need = -(-size // STEP)
            if need <= room and worth[room - need] + gains[i] > worth[room] + 1e-12:
                worth[room], taken[room] = worth[room - need] + gains[i], i
    counts: dict[int, int] = {}
    room = width
    while room > 0:
        if taken[room] < 0:
            room -= 1
            continue
        i = taken[room]
        counts[i] = counts.get(i, 0) + 1
        room -= -(-milli[i] // STEP)
    return worth[width], counts


def room_values(gains: Floats, milli: NDArray[np.int64]) -> Floats:
    """Most value in a device with 0, 10, … 1000 milli-GPUs free; ``gains``: [price level, item]."""
    width = WHOLE // STEP
    worth = np.zeros((gains.shape[0], width + 1))
    sizes = np.unique(milli)
    best = np.stack([gains[:, milli == size].max(axis=1) for size in sizes], axis=1)
    for room in range(1, width + 1):
        worth[:, room] = worth[:, room - 1]
        for s, size in enumerate(sizes):
            need = -(-int(size) // STEP)
            if need <= room:
                np.maximum(worth[:, room], worth[:, room - need] + best[:, s], out=worth[:, room])
    return worth
