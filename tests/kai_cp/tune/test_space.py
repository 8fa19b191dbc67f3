"""A search space that cannot be used is refused before the first trial, in words that say what to write."""

from __future__ import annotations

from pathlib import Path

import pytest

from kai_cp.tune.space import read_space


@pytest.mark.parametrize(
    ("parameters", "objectives", "words"),
    [
        ("{solver.patiense: {low: 1, high: 2}}", "[lost]", "solver.patiense: no such setting; did you mean "),
        ("{solver.patience: 3}", "[lost]", "parameters.solver.patience: expected keys and values, not 3"),
        ("{solver.patience: {low: x, high: 3}}", "[lost]", "solver.patience.low: expected a number, not 'x'"),
        ("{}", "[lost]", "parameters: expected at least one entry, not {}"),
        ("{solver.patience: {low: 1, high: 2}}", "[]", "objectives: expected at least one entry, not []"),
        ("{solver.workers: {low: -2, high: 3}}", "[lost]", "solver.workers: expected a number greater than"),
        ("{solver.patience: {low: 0, high: 3}}", "[lost]", "solver.patience: expected a number greater than"),
        ("{solver.seed: {choices: [0, x]}}", "[lost]", "solver.seed: expected a whole number, not 'x'"),
        ("{objective.goals: {choices: [lost_wrok]}}", "[lost]", "objective.goals: no goal 'lost_wrok'"),
        ("{objective.close_gangs: {low: 0, high: 1}}", "[lost]", "objective.close_gangs: give choices"),
        ("{solver.seed: {low: 0, high: 9, log: true}}", "[lost]", "solver.seed: log needs a low above 0"),
    ],
)
def test_a_space_that_no_trial_could_use(
    tmp_path: Path, parameters: str, objectives: str, words: str
) -> None:
    file = tmp_path / "space.yaml"
    file.write_text(f"parameters: {parameters}\nobjectives: {objectives}\n")
    with pytest.raises(ValueError, match=r"space\.yaml: ") as raised:
        read_space(file)
    assert words in str(raised.value)


def test_ranges_of_whole_numbers_begin_at_the_integer_part(tmp_path: Path) -> None:
    file = tmp_path / "space.yaml"
    file.write_text(
        "parameters: {solver.workers: {low: 1.5, high: 3}, solver.patience: {low: 0.1, high: 1}}\n"
    )
    assert set(read_space(file).parameters) == {"solver.workers", "solver.patience"}
