"""SCIP and CP-SAT on the same model: equal optima, and no answer where the model has no linear form."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from ortools.sat.python import cp_model

from kai_cp_models.joint.packing import fits_floats, solve_packing

SECONDS = 60.0


def random_model(seed: int) -> tuple[cp_model.CpModel, int]:
    """Up to nine variables under rows of every kind that has a linear form, and the number of rows."""
    rng = Random(seed)
    model = cp_model.CpModel()
    flags = [model.new_bool_var(f"b{i}") for i in range(rng.randint(3, 6))]
    counts = [model.new_int_var(rng.randint(-2, 0), rng.randint(1, 4), f"x{i}") for i in range(3)]

    def literals(most: int) -> list[cp_model.LiteralT]:
        chosen = rng.sample(flags, rng.randint(1, min(most, len(flags))))
        return [~one if rng.random() < 0.4 else one for one in chosen]

    def linear() -> cp_model.LinearExprT:
        terms = rng.sample([*flags, *counts], rng.randint(2, 4))
        return sum(rng.randint(-3, 3) * one for one in terms) + rng.randint(-2, 2)

    def bounded(expression: cp_model.LinearExprT) -> cp_model.Constraint:
        low = rng.randint(-3, 1)
        kind = rng.randrange(4)
        if kind == 0:
            return model.add(expression <= rng.randint(0, 4))
        if kind == 1:
            return model.add(expression >= low)
        if kind == 2:
            return model.add(expression == rng.randint(0, 2))
        return model.add_linear_constraint(expression, low, low + rng.randint(0, 4))

    rows = rng.randint(3, 8)
    for _ in range(rows):
        kind = rng.randrange(6)
        if kind == 0:
            bounded(linear())
        elif kind == 1:
            bounded(linear()).only_enforce_if(*literals(2))
        elif kind == 2:
            model.add_bool_or(literals(3))
        elif kind == 3:
            model.add_bool_or(literals(2)).only_enforce_if(*literals(2))
        elif kind == 4:
            model.add_bool_and(literals(2)).only_enforce_if(*literals(2))
        else:
            model.add_at_most_one(literals(4))
    cost = sum(rng.randint(-4, 4) * one for one in (*flags, *counts)) + rng.randint(-5, 5)
    model.minimize(cost)
    return model, rows


def reference(model: cp_model.CpModel) -> int | None:
    """What CP-SAT proves; None: infeasible."""
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    status = solver.solve(model)
    assert status in (cp_model.OPTIMAL, cp_model.INFEASIBLE)
    return round(solver.objective_value) if status == cp_model.OPTIMAL else None


@pytest.mark.parametrize("seed", range(120))
def test_equal_optima(seed: int) -> None:
    """The bound equals the optimum, and CP-SAT accepts the values as a solution of that cost."""
    model, _ = random_model(seed)
    best = reference(model)
    found = solve_packing(model, SECONDS, 0.0)
    if best is None:
        assert found.values is None
        return
    assert found.values is not None
    assert found.bound == pytest.approx(best, abs=1e-4)
    for index, value in enumerate(found.values):
        model.add(model.get_int_var_from_proto_index(index) == value)
    assert reference(model) == best


def test_the_random_models_cover_the_cases() -> None:
    found = [reference(random_model(seed)[0]) for seed in range(120)]
    assert found.count(None) >= 10
    assert sum(value is not None for value in found) >= 40
    assert len(set(found)) >= 10


def test_a_knapsack_by_hand() -> None:
    """Units of 5, 4 and 3 GPUs for 7 that are needed: 4 + 3 leave, at a cost of 7 and an offset of 10."""
    model = cp_model.CpModel()
    lost = [model.new_bool_var(f"lost[{size}]") for size in (5, 4, 3)]
    gives = 5 * lost[0] + 4 * lost[1] + 3 * lost[2]
    model.add(gives >= 7)
    model.minimize(gives + 10)
    found = solve_packing(model, SECONDS, 0.0)
    assert found.values == (0, 1, 1)
    assert found.bound == pytest.approx(17)


def test_an_infeasible_model_is_reported() -> None:
    model = cp_model.CpModel()
    flag = model.new_bool_var("b")
    model.add(2 * flag == 1)
    model.minimize(flag)
    found = solve_packing(model, SECONDS, 0.0)
    assert found.values is None


@pytest.mark.parametrize(
    ("low", "high", "fits"), [(0, 10**9, True), (0, 10**9 + 1, False), (-(10**9) - 1, 0, False)]
)
def test_a_variable_beyond_the_precision_of_floats_is_found(low: int, high: int, fits: bool) -> None:
    model = cp_model.CpModel()
    model.new_bool_var("b")
    model.new_int_var(low, high, "bytes")
    assert fits_floats(model) == fits


Build = Callable[[cp_model.CpModel, cp_model.IntVar, cp_model.IntVar, cp_model.IntVar], object]
ODD: list[tuple[str, Build]] = [
    ("a sum with a hole", lambda m, x, y, b: m.add(x + y != 3)),
    ("a product", lambda m, x, y, b: m.add_multiplication_equality(x, [y, b])),
    ("exclusive or", lambda m, x, y, b: m.add_bool_xor([b, ~b, True])),
    ("all different", lambda m, x, y, b: m.add_all_different(x, y)),
    ("a table", lambda m, x, y, b: m.add_allowed_assignments([x, y], [(0, 1), (2, 3)])),
    ("an absolute value", lambda m, x, y, b: m.add_abs_equality(x, y - 2)),
    ("a largest number", lambda m, x, y, b: m.add_max_equality(x, [y, 2 * y - 3])),
    ("a smallest flag", lambda m, x, y, b: m.add_min_equality(b, [m.new_bool_var("c"), m.new_bool_var("d")])),
    ("a domain with a hole", lambda m, x, y, b: m.add(
        x >= m.new_int_var_from_domain(cp_model.Domain.from_values([0, 3]), "z"))),
]  # fmt: skip


@pytest.mark.parametrize("build", [x[1] for x in ODD], ids=[x[0] for x in ODD])
def test_a_constraint_without_a_linear_form_is_refused(build: Build) -> None:
    model = cp_model.CpModel()
    x, y = model.new_int_var(0, 4, "x"), model.new_int_var(0, 4, "y")
    build(model, x, y, model.new_bool_var("b"))
    model.minimize(x)
    with pytest.raises(ValueError, match=r"holes|linear form"):
        solve_packing(model, SECONDS, 0.0)
