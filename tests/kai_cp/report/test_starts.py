"""Starts in the future in the tables of ``solve`` and ``inspect``."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from kai_cp.decisions import to_json
from kai_cp.inspection import inspection
from kai_cp.report import decisions, inspect
from kai_cp_models.engine import decide
from kai_cp_models.settings import Settings
from tests.support.plans import UNHURRIED
from tests.support.times import runs, settings, stored, waits, world
from tests.support.worlds import cluster, node

ON = settings(aging={"step_seconds": 3600, "most_points": 10}, max_runtime={"enforce": True})


def shown(renderable: object) -> str:
    output = io.StringIO()
    Console(file=output, width=200).print(renderable)
    return output.getvalue()


def lines(chosen: Settings) -> tuple[str, str]:
    """The reports of a world in which hero holds two nodes from half an hour from now on."""
    notes = [("kai-cp/max-runtime", "4h")]
    members = world(
        runs("a", "n2", lasts="30m"),
        waits("hero", 2, reserve=True, waited=60, stored=stored(30, {"n1": 8, "n2": 8}), notes=notes),
        waits("late", 1, 8, waited=5, notes=notes),
    )
    snapshot = cluster(nodes=(node("n1"), node("n2")), **members)
    answer = shown(decisions.report("s", to_json(snapshot, decide(snapshot, chosen))))
    looked = shown(inspect.report("s", inspection(snapshot, settings=chosen), "gpu", everything=True))
    return answer, looked


def test_solve_and_inspect_show_which_group_starts_when() -> None:
    answer, looked = lines(ON)
    row = next(line for line in answer.splitlines() if "hero" in line and "kept" in line)
    assert row.split() == ["hero", "q", "kept", "14:16:40", "14:16:40", "n1", "×8,", "n2", "×8", "4.0"]
    assert "WaitingForReservation" in answer
    assert "≥ 13:46:40" in answer, "alone, late could start now"
    row = next(line for line in looked.splitlines() if "hero" in line and "14:16:40" in line)
    assert "n1 ×8, n2 ×8" in row
    waiting = next(line for line in looked.splitlines() if "late" in line)
    assert "no bound" in waiting
    assert "nothing limits the run time of a" in waiting


def test_kept_nodes_are_drawn_over_time() -> None:
    """Half an hour is 32 of 40 columns of a minute, and the start comes after 30 of them."""
    for text in lines(ON):
        assert "13:46:40 to 14:26:40 (UTC), 1m a column" in text
        bars = [line for line in text.splitlines() if "█" in line and "Kept" not in line]
        assert [line.split() for line in bars] == [
            ["n1", "×8", "hero", "·" * 30 + "█" * 10],
            ["n2", "×8", "hero", "·" * 30 + "█" * 10],
        ]


@pytest.mark.parametrize("words", ["Kept nodes", "Start later", "Waits at most", "14:16:40", "≥"])
def test_switched_off_nothing_of_it_is_shown(words: str) -> None:
    assert all(words not in text for text in lines(UNHURRIED))
