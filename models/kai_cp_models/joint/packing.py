"""A joint model as a mixed-integer program, for SCIP: where moves make it a packing problem.

When many pods of several sizes may go, CP-SAT finds almost no bound on how little has to move or be lost. A
solver with cutting planes proves the same rows in a fraction of the time (formulation 2.1). SCIP works in
floating point, so CP-SAT checks its solutions, and its claim that nothing is feasible is not taken as proof.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from math import inf
from typing import Any

from kai_cp_models.solver import cp_model

_INFINITE = 1 << 62
"""A bound of this size or more counts as no bound."""
_LARGEST = 1_000_000_000
"""SCIP takes numbers for equal that differ by less than a billionth. Where a variable takes larger values
(bytes), it may tighten bounds without end, even before the root of its search tree."""
_ROOT_WORK = 0.00005
"""Expected work at the root of the search tree, per row and per variable."""
_NODE_WORK = 0.000025
"""Expected work at every other node of the search tree."""
_TERM_WORK = 0.000008
"""Work of reading and presolving, per coefficient, as measured."""
_ITERATION_WORK = 0.0006
"""Work per iteration of the simplex, as measured: within a factor of 2.5 on the recorded clusters."""


@dataclass(frozen=True, slots=True)
class Packing:
    """Values of all variables in the order of the model, and a bound that no solution can beat.

    ``values``: None when SCIP found none. ``work`` and ``cut``: see ``Outcome``.
    """

    values: tuple[int, ...] | None
    bound: float
    work: float
    cut: bool


def fits_floats(model: cp_model.CpModel) -> bool:
    """Whether SCIP can tell the values of each variable apart."""
    # The solver's own sequence knows no negative index: it gives 0.
    domains = (list(variable.domain) for variable in model.proto.variables)
    return all(domain[0] >= -_LARGEST and domain[-1] <= _LARGEST for domain in domains)


def root_work(model: cp_model.CpModel) -> float:
    """Expected work at the root of the search tree: the least that a search takes."""
    return _ROOT_WORK * (len(model.proto.variables) + len(model.proto.constraints))


def solve_packing(
    model: cp_model.CpModel,
    work: float,
    gap: float,
    known: Sequence[int] | None = None,
    *,
    seconds: float = inf,
) -> Packing:
    """The best solution found within the work.

    ``gap``: the search ends at this relative gap. ``known``: a solution to start from. ``seconds``: until the
    deadline. Raises ``ValueError`` for constraints that have no linear form here; the joint models have none.
    """
    # The import takes a tenth of a second, and most snapshots never need it. ``loaded`` does it beforehand.
    from ortools.math_opt.python import mathopt  # type: ignore[import-untyped]

    proto = _translate(model)
    size = len(proto.variables.ids) + len(proto.linear_constraints.ids)
    program = mathopt.Model.from_model_proto(proto)
    start = mathopt.ModelSolveParameters()
    if known is not None:
        values = {program.get_variable(i): float(value) for i, value in enumerate(known)}
        start.solution_hints.append(mathopt.SolutionHint(variable_values=values))
    nodes = max(1, int((work - _ROOT_WORK * size) / (_NODE_WORK * size)))
    params = mathopt.SolveParameters(
        time_limit=timedelta(seconds=max(seconds, 0.001)) if seconds < inf else None,
        node_limit=nodes,
        relative_gap_tolerance=gap or None,
        random_seed=0,
    )
    if nodes == 1:
        # Which variable to branch on is not asked where no node follows: half a second on 1,000 nodes.
        params.gscip.int_params["branching/relpscost/initcand"] = 0
    result = mathopt.solve(program, mathopt.SolverType.GSCIP, params=params, model_params=start)
    terms = len(proto.linear_constraint_matrix.coefficients)
    done = _TERM_WORK * terms + _ITERATION_WORK * result.solve_stats.simplex_iterations
    cut = result.termination.limit == mathopt.Limit.TIME
    if not result.has_primal_feasible_solution():
        return Packing(None, inf, done, cut)
    by_id = {variable.id: round(value) for variable, value in result.variable_values().items()}
    return Packing(tuple(by_id[i] for i in range(len(by_id))), result.dual_bound(), done, cut)


class _Row:
    """low <= sum of coefficients times variables <= high."""

    def __init__(self, low: float, high: float, terms: Iterable[tuple[int, int]] = ()) -> None:
        found: dict[int, int] = {}
        for reference, coefficient in terms:
            if reference < 0:
                # The negation of a Boolean variable.
                reference, low, high = -reference - 1, low - coefficient, high - coefficient
                coefficient = -coefficient
            found[reference] = found.get(reference, 0) + coefficient
        self.low, self.high = low, high
        self.terms = {column: found[column] for column in sorted(found) if found[column]}


def _translate(model: cp_model.CpModel) -> Any:
    """The model in the solver's own form (``model_pb2.ModelProto``)."""
    from ortools.math_opt import model_pb2  # type: ignore[import-untyped]

    proto = model.proto
    domains = [list(variable.domain) for variable in proto.variables]
    if any(len(domain) != 2 for domain in domains):
        raise ValueError("a domain with holes")
    result = model_pb2.ModelProto()
    variables = result.variables
    variables.ids.extend(range(len(domains)))
    variables.lower_bounds.extend(float(domain[0]) for domain in domains)
    variables.upper_bounds.extend(float(domain[-1]) for domain in domains)
    variables.integers.extend([True] * len(domains))
    rows = [row for constraint in proto.constraints for row in _rows(constraint, domains)]
    linear, matrix = result.linear_constraints, result.linear_constraint_matrix
    linear.ids.extend(range(len(rows)))
    linear.lower_bounds.extend(row.low for row in rows)
    linear.upper_bounds.extend(row.high for row in rows)
    matrix.row_ids.extend([number for number, row in enumerate(rows) for _ in row.terms])
    matrix.column_ids.extend([column for row in rows for column in row.terms])
    matrix.coefficients.extend([float(coefficient) for row in rows for coefficient in row.terms.values()])
    cost = _Row(0, 0, zip(proto.objective.vars, proto.objective.coeffs, strict=True))
    result.objective.linear_coefficients.ids.extend(cost.terms)
    result.objective.linear_coefficients.values.extend(map(float, cost.terms.values()))
    result.objective.offset = proto.objective.offset - cost.low
    return result


def _rows(constraint: Any, domains: Sequence[Sequence[int]]) -> Iterator[_Row]:
    """The constraint as rows; where it is enforced by conditions, a row has room while one does not hold."""
    conditions = list(constraint.enforcement_literal)
    for plain in _sums(constraint):
        if not conditions:
            yield plain
            continue
        terms = plain.terms.items()
        largest = sum(c * domains[v][-1 if c > 0 else 0] for v, c in terms)
        smallest = sum(c * domains[v][0 if c > 0 else -1] for v, c in terms)
        # A side that holds in any case is no row.
        if largest > plain.high:
            room = int(largest - plain.high)
            yield _Row(-inf, plain.high, [*terms, *((-one - 1, -room) for one in conditions)])
        if smallest < plain.low:
            room = int(plain.low - smallest)
            yield _Row(plain.low, inf, [*terms, *((-one - 1, room) for one in conditions)])


def _sums(constraint: Any) -> Iterator[_Row]:
    """The constraint, as if nothing had to enforce it."""
    if constraint.has_linear():
        linear = constraint.linear
        bounds = list(linear.domain)
        if len(bounds) != 2:
            raise ValueError("a sum with holes")
        low = -inf if bounds[0] <= -_INFINITE else bounds[0]
        high = inf if bounds[1] >= _INFINITE else bounds[1]
        yield _Row(low, high, zip(linear.vars, linear.coeffs, strict=True))
    elif constraint.has_bool_or():
        yield _Row(1, inf, ((literal, 1) for literal in constraint.bool_or.literals))
    elif constraint.has_bool_and():
        yield from (_Row(1, inf, [(literal, 1)]) for literal in constraint.bool_and.literals)
    elif constraint.has_at_most_one():
        yield _Row(-inf, 1, ((literal, 1) for literal in constraint.at_most_one.literals))
    else:
        raise ValueError("a constraint without a linear form")
