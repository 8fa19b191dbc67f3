"""Running CP-SAT: one solve within a share of the budget, and lexicographic sequences of solves."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from ortools.sat.python import cp_model

from kai_cp_models.settings import SolverSettings

Linear = cp_model.LinearExpr | int
"""A linear expression over the variables of a model; all coefficients are integers."""

_SMALL = 2_000


@dataclass(frozen=True, slots=True)
class Goal:
    """One stage of a lexicographic objective: minimise ``cost`` (an integer with a unit in ``name``).

    ``floor``: a value that no solution can beat; reaching it needs no proof.
    """

    name: str
    cost: Linear
    floor: int = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one solve found. ``proved``: the answer is optimal, or infeasibility is certain."""

    status: Literal["solved", "infeasible", "unknown"]
    proved: bool
    objective: float = 0.0
    bound: float = 0.0


@dataclass
class Clock:
    """Wall seconds spent inside CP-SAT by this process so far."""

    seconds: float = 0.0


SOLVING: Final = Clock()
"""Read before and after a decision by whoever wants to know the solver's part of it."""


def solver_for(model: cp_model.CpModel, settings: SolverSettings, seconds: float) -> cp_model.CpSolver:
    """A solver set up for the size of the model: small ones need no threads, large ones no probing."""
    solver = cp_model.CpSolver()
    parameters = solver.parameters
    parameters.max_time_in_seconds = max(seconds, 0.001)
    parameters.random_seed = settings.seed
    # The linear relaxation at the root settles most counting arguments (formulation 2.1).
    parameters.linearization_level = 2
    variables = len(model.proto.variables)
    parameters.num_workers = 1 if variables < _SMALL else settings.workers
    if variables >= _SMALL:
        parameters.cp_model_probing_level = 0
        parameters.symmetry_level = 0
        parameters.max_presolve_iterations = 1
    return solver


def solve(
    model: cp_model.CpModel, settings: SolverSettings, seconds: float, *, gap: float = 0.0
) -> tuple[Outcome, cp_model.CpSolver]:
    """Solve the model as it stands."""
    solver = solver_for(model, settings, seconds)
    solver.parameters.relative_gap_limit = gap
    started = time.monotonic()
    status = solver.solve(model)
    SOLVING.seconds += time.monotonic() - started
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        outcome = Outcome(
            "solved", status == cp_model.OPTIMAL, solver.objective_value, solver.best_objective_bound
        )
    elif status == cp_model.INFEASIBLE:
        outcome = Outcome("infeasible", True)
    else:
        outcome = Outcome("unknown", False)
    return outcome, solver


@dataclass(frozen=True, slots=True)
class StageResult:
    """One stage of a lexicographic sequence: its value, bound and whether it was proved."""

    name: str
    objective: float
    bound: float
    proved: bool
    seconds: float


def lexicographic(
    model: cp_model.CpModel,
    goals: list[Goal],
    settings: SolverSettings,
    seconds_left: Callable[[], float],
    *,
    gap: float = 0.0,
) -> tuple[cp_model.CpSolver | None, list[StageResult], Outcome]:
    """Minimise the goals in order; each value is pinned before the next stage (formulation 1.6).

    A stage whose present value is at its floor is skipped. ``gap``: relative gap that is good enough.
    Returns the solver that holds the last solution (None when there is none), one result per stage,
    and the first solve's outcome.
    """
    best: cp_model.CpSolver | None = None
    results: list[StageResult] = []
    first: Outcome | None = None
    for position, goal in enumerate(goals):
        started = time.monotonic()
        if best is not None:
            value = best.value(goal.cost)
            if value <= goal.floor:
                results.append(StageResult(goal.name, value, value, True, 0.0))
                model.add(goal.cost <= value)
                continue
            _hint(model, best)
        share = seconds_left() / max(1, min(3, len(goals) - position))
        model.minimize(goal.cost)
        outcome, solver = solve(model, settings, share, gap=gap)
        first = first or outcome
        if outcome.status == "infeasible" and best is None:
            return None, results, outcome
        if outcome.status == "solved":
            best = solver
            value = solver.value(goal.cost)
            results.append(
                StageResult(goal.name, value, outcome.bound, outcome.proved, time.monotonic() - started)
            )
        elif best is None:
            return None, results, outcome
        else:
            value = best.value(goal.cost)
            results.append(StageResult(goal.name, value, goal.floor, False, time.monotonic() - started))
        model.add(goal.cost <= value)
    return best, results, first or Outcome("unknown", False)


def _hint(model: cp_model.CpModel, solver: cp_model.CpSolver) -> None:
    model.clear_hints()  # type: ignore[no-untyped-call]
    for index in range(len(model.proto.variables)):
        variable = model.get_int_var_from_proto_index(index)
        model.add_hint(variable, solver.value(variable))
