"""Goals in their order, solved for alone or together, against all solutions of tiny models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_cp_models.budget import Allowance, Budget
from kai_cp_models.joint import search
from kai_cp_models.joint.search import Objective, Outcome, StageResult, lexicographic
from kai_cp_models.limits import LIMITS
from kai_cp_models.settings import Settings
from kai_cp_models.solver import cp_model

SETTINGS = Settings().solver
MOST = 3
"""The largest value of a variable."""
NEVER_NEGATIVE = 100
"""What each cost has beside its factors."""
FACTORS = st.lists(st.integers(-4, 4), min_size=3, max_size=3)


def allowance() -> Allowance:
    return Allowance(Budget(inf, 1.0, 10.0), 10.0)


def modelled(least: int, goals: Sequence[Sequence[int]]) -> tuple[cp_model.CpModel, list[Objective]]:
    """Three variables whose sum is at least ``least``, and a goal for each row of factors."""
    model = cp_model.CpModel()
    x = [model.new_int_var(0, MOST, f"x{i}") for i in range(3)]
    model.add(sum(x) >= least)
    costs = [sum(c * one for c, one in zip(row, x, strict=True)) + NEVER_NEGATIVE for row in goals]
    return model, [Objective(f"goal {i}", cost) for i, cost in enumerate(costs)]


def best_of(least: int, goals: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """The best values of the goals in their order, by trying all values of the variables."""
    return min(
        tuple(sum(c * value for c, value in zip(row, values, strict=True)) + NEVER_NEGATIVE for row in goals)
        for values in product(range(MOST + 1), repeat=3)
        if sum(values) >= least
    )


def solved(
    model: cp_model.CpModel, objectives: list[Objective], *, together: bool
) -> tuple[cp_model.CpSolver | None, list[StageResult], Outcome]:
    """The goals pursued; all alone unless ``together``."""
    with pytest.MonkeyPatch.context() as patch:
        if not together:
            patch.setattr(search, "LIMITS", replace(LIMITS, sum_of_goals=1))
        return lexicographic(model, objectives, allowance())


@given(
    least=st.integers(0, 9),
    goals=st.lists(FACTORS, min_size=1, max_size=4),
    together=st.booleans(),
)
def test_goals_are_best_in_their_order(least: int, goals: list[list[int]], together: bool) -> None:
    model, objectives = modelled(least, goals)
    _, stages, first = solved(model, objectives, together=together)
    best = best_of(least, goals)
    assert first.status == "solved"
    assert tuple(stage.objective for stage in stages) == best
    assert all(stage.proved and stage.bound == stage.objective for stage in stages)
    assert [stage.name for stage in stages] == [goal.name for goal in objectives]


@given(
    least=st.integers(0, 9),
    goals=st.lists(FACTORS, min_size=1, max_size=4),
    known=st.lists(st.integers(88, 112), min_size=4, max_size=4),
    together=st.booleans(),
)
def test_nothing_worse_than_what_is_known_is_an_answer(
    least: int, goals: list[list[int]], known: list[int], together: bool
) -> None:
    """``known`` may be a plan that the model cannot make: then it is bettered, or there is no answer."""
    model, objectives = modelled(least, goals)
    objectives = [replace(goal, most=most) for goal, most in zip(objectives, known, strict=False)]
    solver, stages, _ = solved(model, objectives, together=together)
    best = best_of(least, goals)
    if best > tuple(known[: len(goals)]):
        assert solver is None
    else:
        assert tuple(stage.objective for stage in stages) == best


@pytest.mark.parametrize(("most", "solves"), [(10**12, 2), (1, 4)])
def test_goals_whose_sum_stays_small_take_one_solve(
    monkeypatch: pytest.MonkeyPatch, most: int, solves: int
) -> None:
    """The first goal is alone, because nothing is known before it."""
    asked: list[int] = []
    solve = search.solve

    def counted(*args: object, **kwargs: object) -> object:
        asked.append(1)
        return solve(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(search, "solve", counted)
    monkeypatch.setattr(search, "LIMITS", replace(LIMITS, sum_of_goals=most))
    model, objectives = modelled(4, [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 1]])
    _, stages, _ = lexicographic(model, objectives, allowance())
    assert [stage.objective for stage in stages] == [100, 101, 103, 104]
    assert len(asked) == solves


def test_goals_follow_one_by_one_where_their_sum_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    solve = search.solve

    def unproved(model: cp_model.CpModel, *args: object, **kwargs: object) -> object:
        outcome, solver = solve(model, *args, **kwargs)  # type: ignore[arg-type]
        largest = max(map(abs, model.proto.objective.coeffs))
        return replace(outcome, proved=outcome.proved and largest == 1), solver

    monkeypatch.setattr(search, "solve", unproved)
    model, objectives = modelled(4, [[1, 0, 0], [0, 1, 0], [0, 0, 1]])
    _, stages, _ = lexicographic(model, objectives, allowance())
    assert [(stage.objective, stage.proved) for stage in stages] == [(100, True), (101, True), (103, True)]


def test_a_goal_that_no_plan_can_change_hides_none_that_follow() -> None:
    """Such a goal is a row without variables, for which the model grows by a constant; with a solution for
    fewer variables than it has it was no model any more."""
    model, objectives = modelled(4, [[1, 0, 0], [0, 1, 0], [0, 0, 1]])
    objectives.insert(1, Objective("constant", 0))
    _, stages, _ = solved(model, objectives, together=False)
    assert [(stage.objective, stage.proved) for stage in stages] == [(n, True) for n in (100, 0, 101, 103)]


@pytest.mark.parametrize(("left", "used"), [(4.0, True), (1.0, False)], ids=["enough", "too little"])
def test_an_answer_that_more_work_would_change_is_not_used(
    left: float, used: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A solve that is worth 3 units finds a solution and proves nothing: with 1 left it was cut off."""
    model, objectives = modelled(2, [[1, 1, 1]])
    unproved = partial(replace, proved=False, work=0.5)
    real = search.solve
    monkeypatch.setattr(
        search, "solve", lambda *args, **options: (unproved((found := real(*args, **options))[0]), found[1])
    )
    solver, _, first = lexicographic(model, objectives, Allowance(Budget(inf, 1.0, left), 3.0))
    assert (solver is not None) == used
    assert first.status == ("solved" if used else "unknown")
    assert not first.cut
