"""Settings side by side, as a settings file has them."""

from __future__ import annotations

from kai_cp.tune.compare import changed_settings, html
from kai_cp.tune.measure import Measured

SETTINGS = {
    "a": {"objective": {"goals": ("threshold", "moved_pods")}, "solver": {"seed": 1}},
    "b": {"objective": {"goals": ("threshold",)}, "solver": {"seed": 1}},
}


def test_a_list_is_told_by_its_entries() -> None:
    assert changed_settings(SETTINGS) == [("objective.goals", ["threshold, moved_pods", "threshold"])]
    results = {"small": {name: Measured({"admitted": 1.0}, {}) for name in SETTINGS}}
    made = html(results, list(SETTINGS), SETTINGS)
    assert '<td class="text">threshold, moved_pods</td>' in made
