"""How CP-SAT is run: Ctrl-C is raised, and is not the end of a search."""

from __future__ import annotations

import os
import signal
from itertools import combinations, pairwise
from types import SimpleNamespace

import pytest

from kai_cp_models.solver import cp_model, run, work_of


def ruler(marks: int) -> cp_model.CpModel:
    """The shortest ruler with all distances different, which takes very long to prove."""
    model = cp_model.CpModel()
    at = [model.new_int_var(0, marks**2, "") for _ in range(marks)]
    for before, after in pairwise(at):
        model.add(before < after)
    model.add_all_different([after - before for before, after in combinations(at, 2)])
    model.minimize(at[-1])
    return model


class Interrupting(cp_model.CpSolverSolutionCallback):
    """Presses Ctrl-C at each solution, until the search ends."""

    def on_solution_callback(self) -> None:
        os.kill(os.getpid(), signal.SIGINT)


def test_ctrl_c_ends_a_search_and_is_raised_each_time() -> None:
    for _ in range(2):
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1
        solver.parameters.max_time_in_seconds = 60
        with pytest.raises(KeyboardInterrupt):
            run(solver, ruler(14), Interrupting())


def test_a_search_without_ctrl_c_ends_by_itself() -> None:
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    assert run(solver, ruler(5)) == cp_model.OPTIMAL
    assert solver.objective_value == 11


def test_the_last_bits_of_work_do_not_count() -> None:
    """The deterministic times of two runs of one model, as they were seen."""
    found = {
        work_of(SimpleNamespace(response_proto=SimpleNamespace(deterministic_time=seen)))  # type: ignore[arg-type]
        for seen in (0.00297083829693239, 0.0029708382969323897)
    }
    assert found == {0.002970838}


def test_the_log_says_why_a_model_is_invalid(invalid_models: list[str]) -> None:
    model = ruler(5)
    model.proto.solution_hint.vars.append(9)
    model.proto.solution_hint.values.append(0)
    assert run(cp_model.CpSolver(), model) == cp_model.MODEL_INVALID
    (message,) = invalid_models
    assert "hint" in message
    invalid_models.clear()
