"""The master problem of the packing bound: a linear program over the patterns known so far."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ortools.linear_solver import pywraplp  # type: ignore[import-untyped]

from kai_cp_models.bounds.problem import Bin, BinItem


class Master:
    """The most milli-GPUs by fractional use of patterns, with no more pods of an item than exist."""

    def __init__(self, items: Sequence[BinItem], bins: Sequence[Bin]) -> None:
        self._items = items
        self._solver: Any = pywraplp.Solver.CreateSolver("GLOP")
        self._bins = [self._solver.Constraint(0.0, float(b.count)) for b in bins]
        self._rows = [self._solver.Constraint(0.0, float(i.count)) for i in items]
        self._objective = self._solver.Objective()
        self._objective.SetMaximization()

    def add(self, bin_: int, pattern: Sequence[int]) -> None:
        """Add a pattern for nodes of ``bin_``."""
        use = self._solver.NumVar(0.0, self._solver.infinity(), "")
        self._bins[bin_].SetCoefficient(use, 1.0)
        value = 0
        for i, count in enumerate(pattern):
            if count:
                self._rows[i].SetCoefficient(use, float(count))
                value += count * self._items[i].value
        self._objective.SetCoefficient(use, float(value))

    def solve(self) -> tuple[float, list[float]]:
        """Value, and the price of one more pod of each item (never negative).

        Raises ``RuntimeError`` if the solver does not reach the optimum.
        """
        if self._solver.NumVariables() == 0:
            return 0.0, [0.0] * len(self._rows)
        status = self._solver.Solve()
        if status != pywraplp.Solver.OPTIMAL:
            msg = f"the master problem ended with status {status}"
            raise RuntimeError(msg)
        return self._objective.Value(), [max(0.0, row.dual_value()) for row in self._rows]
