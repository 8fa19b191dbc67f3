"""The most valuable set of pods for one node at given prices, by CP-SAT.

A shared device carries a *share pattern*: a multiset of request sizes that fills one device and takes no
further one. Patterns, unlike pod-on-device booleans, leave no symmetry.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kai_cp_models.bounds.problem import WHOLE, Bin, BinItem
from kai_cp_models.solver import cp_model, run

SCALE = 16
"""Steps per milli-GPU of value in the integer objective."""


@dataclass(frozen=True, slots=True)
class PricedPatterns:
    """``bound``: no pattern gains more than this over its pods' prices; ``patterns``: good ones found."""

    bound: float
    patterns: tuple[tuple[int, ...], ...]


def share_patterns(sizes: Sequence[int]) -> list[dict[int, int]]:
    """Every maximal multiset of ``sizes`` (milli-GPUs) that fits one device: size -> how many."""
    order = sorted(set(sizes), reverse=True)
    found: list[dict[int, int]] = []

    def extend(at: int, room: int, counts: dict[int, int]) -> None:
        if at == len(order):
            if order and room < order[-1]:
                found.append(counts)
            return
        size = order[at]
        for many in range(room // size, -1, -1):
            extend(at + 1, room - many * size, {**counts, size: many} if many else counts)

    extend(0, WHOLE, {})
    # Maximal: no size fits any more. The recursion only checks the smallest size.
    return found


class Pricing:
    """The pricing problem of one bin; the rows are built once, the objective on each call."""

    def __init__(self, items: Sequence[BinItem], bin_: Bin, number: int, workers: int) -> None:
        self._items = items
        self._bin = bin_
        self._workers = workers
        self._fitting = [
            i
            for i, item in enumerate(items)
            if item.count > 0
            and item.allowed[number]
            and item.cpu <= bin_.cpu
            and item.memory <= bin_.memory
            and item.gpus <= bin_.devices
        ]
        shared = [i for i in self._fitting if items[i].shared]
        self._shared = shared
        self._sizes = sorted({items[i].milli for i in shared})
        self._patterns = share_patterns(self._sizes) if self._sizes else []

    def solve(self, prices: Sequence[float], seconds: float) -> PricedPatterns:
        """Solve for prices per item; an early stop gives a looser, still valid bound."""
        gains = {
            i: math.ceil((self._items[i].value - prices[i]) * SCALE)
            for i in self._fitting
            if self._items[i].value > prices[i]
        }
        if not gains:
            return PricedPatterns(0.0, ())
        model, counts = self._model(gains)
        solver = cp_model.CpSolver()
        solver.parameters.max_time_in_seconds = seconds
        solver.parameters.num_workers = self._workers
        solver.parameters.relative_gap_limit = 1e-4
        solver.parameters.random_seed = 0
        keep = _Patterns(counts, len(self._items))
        status = run(solver, model, keep)
        worst = float(self._bin.devices * WHOLE * SCALE)
        bound = worst if status == cp_model.UNKNOWN else min(worst, solver.best_objective_bound)
        return PricedPatterns(bound / SCALE, tuple(keep.found[-3:]))

    def _model(self, gains: dict[int, int]) -> tuple[cp_model.CpModel, dict[int, Any]]:
        model = cp_model.CpModel()
        items, bin_ = self._items, self._bin
        counts: dict[int, Any] = {}
        for i in gains:
            item = items[i]
            most = item.count
            for room, need in ((bin_.cpu, item.cpu), (bin_.memory, item.memory)):
                if need:
                    most = min(most, room // need)
            if item.gpus:
                most = min(most, bin_.devices * WHOLE // item.value)
            counts[i] = model.new_int_var(0, most, "")
        model.add(sum(items[i].cpu * x for i, x in counts.items()) <= bin_.cpu)
        model.add(sum(items[i].memory * x for i, x in counts.items()) <= bin_.memory)
        model.add(sum(items[i].value * x for i, x in counts.items()) <= bin_.devices * WHOLE)
        shared = [i for i in self._shared if i in counts]
        sizes = {items[i].milli for i in shared}
        chosen: list[tuple[dict[int, int], Any]] = []
        seen: set[tuple[tuple[int, int], ...]] = set()
        for pattern in self._patterns:
            usable = {size: many for size, many in pattern.items() if size in sizes}
            key = tuple(sorted(usable.items()))
            if usable and key not in seen:
                seen.add(key)
                chosen.append((usable, model.new_int_var(0, bin_.devices, "")))
        for size in sizes:
            wanted = sum(counts[i] for i in shared if items[i].milli == size)
            model.add(wanted <= sum(many.get(size, 0) * use for many, use in chosen if size in many))
        whole = sum(items[i].gpus * x for i, x in counts.items() if items[i].milli == WHOLE)
        model.add(whole + sum(use for _, use in chosen) <= bin_.devices)
        model.maximize(sum(gains[i] * x for i, x in counts.items()))
        return model, counts


class _Patterns(cp_model.CpSolverSolutionCallback):
    """Keeps each solution of a pricing problem as a pattern."""

    def __init__(self, counts: dict[int, Any], width: int) -> None:
        super().__init__()
        self._counts = counts
        self._width = width
        self.found: list[tuple[int, ...]] = []

    def on_solution_callback(self) -> None:
        """Record the solution (called by CP-SAT)."""
        pattern = [0] * self._width
        for i, variable in self._counts.items():
            pattern[i] = self.value(variable)
        self.found.append(tuple(pattern))
