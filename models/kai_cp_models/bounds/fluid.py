"""Prices of scarce pods and CPUs from a fluid relaxation of the packing problem.

A bin is one pool here instead of a set of nodes: its devices are filled one by one with share patterns, and
only the pool's CPUs and memory are counted. The result is weaker than the packing bound and thousands of
times cheaper, so a policy can ask for prices while pods arrive.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from ortools.linear_solver import pywraplp  # type: ignore[import-untyped]

from kai_cp_models.arrays import Floats
from kai_cp_models.bounds.problem import WHOLE, Bin, BinItem

STEP: Final = 10
"""Requests are multiples of this many milli-GPUs."""
MISSING: Final = 20.0 * WHOLE
"""Cost of a required pod that is not placed: more than any pod is worth."""


@dataclass(frozen=True)
class Prices:
    """Milli-GPUs that one more unit would add: per pod of each item, milli-CPU of each bin, MiB of each bin.

    ``value``: worth of what the relaxation places, an upper bound for every placement (infinite when the
    rounds did not suffice to solve it).
    """

    pods: Floats
    cpu: Floats
    memory: Floats
    value: float
    placed: Floats
    """Pods of each item that the relaxation places."""


class Fluid:
    """The relaxation of a problem; solved for other amounts, it continues from its last answer.

    ``worth`` of a pod of each item: its milli-GPUs by default. Items without worth are left out.
    """

    def __init__(
        self, items: Sequence[BinItem], bins: Sequence[Bin], worth: Sequence[float] | None = None
    ) -> None:
        self._items = items
        self._bins = bins
        self._worth = [float(item.value) for item in items] if worth is None else list(worth)
        solver: Any = pywraplp.Solver.CreateSolver("GLOP")
        self._solver = solver
        self._devices = [solver.Constraint(0.0, float(b.count * b.devices)) for b in bins]
        self._cpus = [solver.Constraint(0.0, float(b.count * b.cpu)) for b in bins]
        self._memory = [solver.Constraint(0.0, float(b.count * b.memory)) for b in bins]
        self._rows = [solver.Constraint(0.0, 0.0) for _ in items]
        self._objective = solver.Objective()
        self._objective.SetMaximization()
        self._afresh: Any = pywraplp.MPSolverParameters()
        self._afresh.SetIntegerParam(self._afresh.INCREMENTALITY, self._afresh.INCREMENTALITY_OFF)
        self._known: set[tuple[int, tuple[tuple[int, int], ...]]] = set()
        # The columns known so far may not place everything: a required pod may be missing, at a price.
        self._missing = [solver.NumVar(0.0, solver.infinity(), "") for _ in items]
        for row, missing in zip(self._rows, self._missing, strict=True):
            row.SetCoefficient(missing, 1.0)
            self._objective.SetCoefficient(missing, -MISSING)
        self._shared: list[list[int]] = []
        for b, bin_ in enumerate(bins):
            here = [i for i, item in enumerate(items) if self._worth[i] > 0 and item.allowed[b]]
            self._shared.append([i for i in here if items[i].shared])
            for i in here:
                if items[i].gpus <= bin_.devices:
                    self._add(b, {i: 1}, items[i].gpus)

    def _add(self, b: int, counts: dict[int, int], width: int) -> None:
        items = self._items
        use = self._solver.NumVar(0.0, self._solver.infinity(), "")
        self._devices[b].SetCoefficient(use, float(width))
        self._cpus[b].SetCoefficient(use, float(sum(items[i].cpu * n for i, n in counts.items())))
        self._memory[b].SetCoefficient(use, float(sum(items[i].memory * n for i, n in counts.items())))
        for i, n in counts.items():
            self._rows[i].SetCoefficient(use, float(n))
        self._objective.SetCoefficient(use, sum(self._worth[i] * n for i, n in counts.items()))

    def solve(
        self,
        most: Sequence[float],
        least: Sequence[float] | None = None,
        *,
        cpu: float = 1.0,
        rounds: int = 200,
    ) -> Prices:
        """Place at most ``most`` and at least ``least`` pods of each item (default 0; it must be possible).

        ``cpu``: part of the CPUs that may be used.
        """
        for row, bin_ in zip(self._cpus, self._bins, strict=True):
            row.SetBounds(0.0, cpu * bin_.count * bin_.cpu)
        for i, row in enumerate(self._rows):
            lowest = 0.0 if least is None else float(least[i])
            row.SetBounds(lowest, max(lowest, float(most[i])))
        for _ in range(rounds):
            found, added = self._round()
            if not added:
                return found
        return replace(found, value=math.inf)

    def _round(self) -> tuple[Prices, bool]:
        """Solve with the columns known so far; True when columns were added that could improve the answer."""
        status = self._solver.Solve()
        if status != pywraplp.Solver.OPTIMAL:  # The last basis may be a bad start for other amounts.
            status = self._solver.Solve(self._afresh)
        if status != pywraplp.Solver.OPTIMAL:
            msg = f"the fluid relaxation has no optimum (status {status})"
            raise RuntimeError(msg)
        # All prices are read before a column is added: an addition makes them unreadable.
        price = np.array([row.dual_value() for row in self._rows])
        cpu, memory, device = (_duals(group) for group in (self._cpus, self._memory, self._devices))
        activity = self._solver.ComputeConstraintActivities()
        missing = np.array([variable.solution_value() for variable in self._missing])
        placed = np.array([activity[row.index()] for row in self._rows]) - missing
        value = float(self._objective.Value() + MISSING * missing.sum())
        items, added = self._items, False
        for b, shared in enumerate(self._shared):
            gains = {
                i: float(self._worth[i] - price[i] - cpu[b] * items[i].cpu - memory[b] * items[i].memory)
                for i in shared
            }
            worth, counts = best_share(gains, {i: items[i].milli for i in shared})
            key = (b, tuple(sorted(counts.items())))
            if worth > device[b] + 1e-6 and key not in self._known:
                self._known.add(key)
                self._add(b, counts, 1)
                added = True
        return Prices(np.maximum(price, 0.0), cpu, memory, value, placed), added


def fluid_prices(items: Sequence[BinItem], bins: Sequence[Bin], demand: Sequence[float]) -> Prices:
    """Solve the relaxation once, for at most ``demand`` pods of each item."""
    return Fluid(items, bins).solve(demand)


def _duals(constraints: Sequence[Any]) -> Floats:
    return np.array([max(0.0, row.dual_value()) for row in constraints])


def best_share(gains: dict[int, float], milli: dict[int, int]) -> tuple[float, dict[int, int]]:
    """The most valuable multiset for one whole device: an unbounded knapsack over its capacity."""
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
    """The largest value in a device with 0, 10, … 1000 milli-GPUs free; ``gains``: [price level, item]."""
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
