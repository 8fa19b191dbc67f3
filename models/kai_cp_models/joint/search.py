"""Running CP-SAT: one solve within a share of the budget, and lexicographic sequences of solves."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, takewhile
from math import inf
from operator import mul
from typing import Final, Literal, TypeAlias

from kai_cp_models.budget import DETERMINISTIC_TIME_WORK, LEAST_SECONDS, LOAD_WORK, Allowance
from kai_cp_models.limits import LIMITS
from kai_cp_models.settings import SolverSettings
from kai_cp_models.solver import cp_model, run, work_of

Linear: TypeAlias = "cp_model.LinearExpr | int"
"""A linear expression over the variables of a model; all coefficients are integers."""


def any_of(model: cp_model.CpModel, name: str, terms: Sequence[Linear]) -> cp_model.IntVar:
    """A literal that holds if and only if one of these, each 0 or 1, is 1."""
    found = model.new_bool_var(name)
    for term in terms:
        model.add(term <= found)
    model.add(found <= sum(terms))
    return found


@dataclass(frozen=True, slots=True)
class Objective:
    """One stage of a lexicographic objective: minimise ``cost`` (an integer with a unit in ``name``), which
    is never negative.

    ``most``: the value of a known plan; where all earlier goals are as there, a solution above it is of no
    use.
    """

    name: str
    cost: Linear
    most: int | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one solve found. ``proved``: the answer is optimal, or infeasibility is certain. ``work``: what
    the solve used. ``cut``: the clock ended it, so that a less busy machine might find more."""

    status: Literal["solved", "infeasible", "unknown"]
    proved: bool
    bound: float = 0.0
    work: float = 0.0
    cut: bool = False


@dataclass
class Clock:
    """Wall seconds spent inside CP-SAT by this process so far."""

    seconds: float = 0.0


SOLVING: Final = Clock()
"""The difference before and after a decision is the solver's part of it."""


def solve(
    model: cp_model.CpModel,
    settings: SolverSettings,
    work: float,
    *,
    seconds: float = inf,
    gap: float = 0.0,
    known: bool = False,
) -> tuple[Outcome, cp_model.CpSolver]:
    """Solve the model as it is.

    ``known``: the hint is a solution, which one worker improves and proves two to five times as fast as
    several do. Where none is known for a large model, several look for one; they take turns, so that they
    always give the same answer. ``work``: the most it may use, see ``Budget``. ``seconds``: until the
    deadline.
    """
    solver = cp_model.CpSolver()
    parameters = solver.parameters
    parameters.max_deterministic_time = max(work, 0.0) / DETERMINISTIC_TIME_WORK
    parameters.random_seed = settings.seed
    # The linear relaxation at the root settles most counting arguments (formulation 2.1).
    parameters.linearization_level = 2
    large = len(model.proto.variables) >= LIMITS.small_variables
    # Several workers may end the process when the time is up (google/or-tools#5025), so they take turns.
    parameters.interleave_search = large and not known
    parameters.num_workers = settings.workers if parameters.interleave_search else 1
    if known or large:
        # Probing finds a solution, or that there is none; where one is known it costs a third of the time.
        parameters.cp_model_probing_level = 0
        parameters.symmetry_level = 0
        parameters.max_presolve_iterations = 1
    parameters.relative_gap_limit = gap
    if seconds < inf:
        parameters.max_time_in_seconds = max(seconds, LEAST_SECONDS)
    started = time.monotonic()
    status = run(solver, model)
    taken = time.monotonic() - started
    SOLVING.seconds += taken
    done = DETERMINISTIC_TIME_WORK * work_of(solver)
    done += LOAD_WORK * len(model.proto.variables)
    proved = status in (cp_model.OPTIMAL, cp_model.INFEASIBLE)
    cut = not proved and taken >= seconds
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return Outcome("infeasible" if proved else "unknown", proved, work=done, cut=cut), solver
    return Outcome("solved", proved, solver.best_objective_bound, done, cut), solver


@dataclass(frozen=True, slots=True)
class StageResult:
    """One stage of a lexicographic sequence: its value, bound and whether it was proved."""

    name: str
    objective: float
    bound: float
    proved: bool


def lexicographic(
    model: cp_model.CpModel,
    goals: list[Objective],
    allowance: Allowance,
    *,
    gap: float = 0.0,
    bettering: bool = False,
) -> tuple[cp_model.CpSolver | None, list[StageResult], Outcome]:
    """Minimise the goals in order; each value is pinned before the next stage (formulation 1.6).

    The first goal is alone, which finds a solution; later goals whose sum stays small are solved for
    together, and one by one where that proves nothing. ``gap``: relative gap that is good enough.
    ``bettering``: goals that follow one below ``most`` are left out. A stage that the clock or the budget's
    work cut off is not used: the solution of the last finished stage counts.
    Returns the solver that holds the last solution (None when there is none, or none as good as ``most``),
    one result per stage, and the outcome of the first solve, or of the one that found no solution.
    """
    best: cp_model.CpSolver | None = None
    results: list[StageResult] = []
    first: Outcome | None = None
    left = list(goals)
    singly, level = 1, True
    while left and (level or not bettering):
        part = left[:1] if singly else _together(model, left)
        if best is not None:
            _hint(model, best.response_proto.solution)
        if best is not None and len(part) == 1 and best.value(part[0].cost) == 0:
            outcome = Outcome("solved", True)
        else:
            _minimise(model, part, bounded=level)
            worth = allowance.left() / min(LIMITS.goals_ahead, len(left))
            outcome, solver = solve_within(model, allowance, worth, gap=gap, known=best is not None)
            first = first or outcome
            if outcome.status == "solved":
                best = solver
            elif best is None or outcome.status == "infeasible":
                return None, results, outcome
        if len(part) > 1 and not outcome.proved:
            singly = len(part)
            continue
        for goal in part:
            value, bound = best.value(goal.cost), 0.0
            if outcome.status == "solved":
                # In a sum, every part of a proved optimum is optimal in its turn.
                bound = outcome.bound if len(part) == 1 else value
            results.append(StageResult(goal.name, value, bound, outcome.proved))
            model.add(goal.cost <= value)
            level &= value == goal.most
        left, singly = left[len(part) :], max(0, singly - 1)
    return best, results, first or Outcome("unknown", False)


def _minimise(model: cp_model.CpModel, goals: Sequence[Objective], *, bounded: bool) -> None:
    """Let the next solve minimise one sum that orders solutions as the goals do: a unit of each weighs more
    than all later ones can change together. ``bounded``: at most as in the known plan."""
    cost, most = goals[0].cost, goals[0].most
    for goal in goals[1:]:
        weight = _span(model, goal.cost) + 1
        cost = weight * cost + goal.cost
        most = None if most is None or goal.most is None else weight * most + goal.most
    if bounded and most is not None:
        model.add(cost <= most)
    model.minimize(cost)


def solve_within(
    model: cp_model.CpModel, allowance: Allowance, worth: float, *, gap: float = 0.0, known: bool = False
) -> tuple[Outcome, cp_model.CpSolver]:
    """Solve with the work that it is worth, as far as it is left; what was cut off is unknown."""
    budget = allowance.budget
    work = min(worth, budget.work_left())
    seconds = budget.seconds_left()
    outcome, solver = solve(model, budget.settings, work, seconds=seconds, gap=gap, known=known)
    allowance.spend(outcome.work)
    budget.cut |= outcome.cut
    short = work < worth and not outcome.proved
    budget.short |= short
    if outcome.cut or short:
        outcome = Outcome("unknown", False, work=outcome.work, cut=outcome.cut)
    return outcome, solver


def _together(model: cp_model.CpModel, goals: Sequence[Objective]) -> Sequence[Objective]:
    """The first goals, as far as their sum in order stays small."""
    sizes = accumulate((_span(model, goal.cost) + 1 for goal in goals), mul)
    return goals[: max(1, sum(1 for _ in takewhile(LIMITS.sum_of_goals.__ge__, sizes)))]


def _span(model: cp_model.CpModel, cost: Linear) -> int:
    """The most that the cost can change within the bounds of its variables."""
    if isinstance(cost, int):
        return 0
    flat = cp_model.FlatIntExpr(cost)
    domains = [list(model.proto.variables[variable.index].domain) for variable in flat.vars]
    return sum(abs(c) * (domain[-1] - domain[0]) for c, domain in zip(flat.coeffs, domains, strict=True))


def _hint(model: cp_model.CpModel, values: Sequence[int]) -> None:
    """Let the next solve start from these values of all variables, in the order of the model."""
    model.clear_hints()  # type: ignore[no-untyped-call]
    # Variable by variable through the model's own methods this takes longer than many a solve.
    # A row without variables has added one since.
    model.proto.solution_hint.vars.extend(range(len(values)))
    model.proto.solution_hint.values.extend(values)
