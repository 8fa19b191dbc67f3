"""The outcome of a search, argued by hand: GPUs admitted (more is better), GPUs lost, and noisy seconds."""

from __future__ import annotations

from typing import Any

import pytest

from kai_cp.tune.outcome import choose, knobs, table
from kai_cp.tune.search import TunedTrial, with_overrides
from kai_cp.tune.space import Space
from kai_cp_models.settings import Settings

SPACE = Space.model_validate(
    {
        "parameters": {"solver.patience": {"low": 0.1, "high": 9}},
        "objectives": ["admitted", "lost", "seconds"],
    }
)
PRESENT = {"admitted": (100.0, 0.0), "lost": (20.0, 0.0), "seconds": (1.0, 0.3)}


def trial(number: int, admitted: float, lost: float, seconds: float) -> TunedTrial:
    values = {"admitted": admitted, "lost": lost, "seconds": seconds}
    return TunedTrial(number, values, {"solver.patience": number})


def test_equal_results_are_no_front() -> None:
    choice = choose(SPACE, PRESENT, [trial(i, 100, 20, 1.0) for i in range(5)])
    assert (choice.front, choice.best) == ((), None)
    assert "Nothing better than the present settings was found in 5 trials" in choice.sentence("t.yaml")


def test_noise_is_not_better() -> None:
    """Equal runs of the present settings differ by 0.3 s: 0.8 s is no gain, 0.5 s is one."""
    assert choose(SPACE, PRESENT, [trial(0, 100, 20, 0.8)]).best is None
    better = choose(SPACE, PRESENT, [trial(0, 100, 20, 0.5)]).best
    assert better is not None
    assert better.number == 0


def test_the_first_objective_counts_most() -> None:
    """Trial 1 admits more and loses more; trial 2 only loses less; trial 3 is worse than 1 in everything."""
    trials = [trial(1, 110, 30, 1.0), trial(2, 100, 10, 1.0), trial(3, 105, 35, 1.0)]
    choice = choose(SPACE, PRESENT, trials)
    assert [found.number for found in choice.front] == [1, 2]
    assert choice.best is choice.front[0]


def test_a_trial_without_a_gain_is_not_chosen() -> None:
    """Fewer lost for fewer admitted: worth a look, but not better in the order of the objectives."""
    choice = choose(SPACE, PRESENT, [trial(1, 90, 0, 1.0)])
    assert [found.number for found in choice.front] == [1]
    assert choice.best is None


def test_the_present_settings_are_always_a_row() -> None:
    first = table(SPACE, choose(SPACE, PRESENT, [])).rows[0]
    assert first[:4] == ("present", "100.00", "20.00", "1.00 ±0.15")


@pytest.mark.parametrize(
    ("present", "searched", "traded"),
    [
        (None, {}, False),
        (("lost_work + moved_pods",), {}, True),
        (None, {"objective.goals": {"choices": ["threshold, lost_work", "lost_work + moved_pods"]}}, True),
        (("lost_work + moved_pods",), {"objective.goals": {"choices": ["threshold, lost_work"]}}, False),
    ],
)
def test_the_sentence_says_whether_goals_are_traded(
    present: tuple[str, ...] | None, searched: dict[str, Any], traded: bool
) -> None:
    space = Space.model_validate({"parameters": {"solver.seed": {"choices": [0, 1]}, **searched}})
    base = Settings() if present is None else with_overrides(Settings(), {"objective.goals": list(present)})
    said = knobs(space, base)
    assert ("traded" in said) is traded
    assert all(key in said for key in space.parameters)
