"""``kai-cp reserve`` and ``defrag`` on a terminal of 80 columns, and in every other format."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from kai_cp.report import fragmentation, starts
from kai_cp.report.section import Section
from kai_cp_models.defrag.frontier import Frontier, Move, Point
from kai_cp_models.pods import GroupKey, PodKey
from kai_cp_models.queries.moves import DefragQuestion
from tests.kai_cp.test_cli import run

DEMO = str(Path(__file__).parents[3] / "examples" / "demo-cluster.json")
LONG = "pretraining-of-a-very-large-model"
NODES = tuple(f"gpu-node-{n}.rack-{n}.example.org" for n in range(5))
DOCUMENT = {
    "now": "2026-11-20T12:00:00Z",
    "reservations": [
        {
            "podGroup": f"team-a/{LONG}-1",
            "queue": "research",
            "state": "later",
            "cause": "Overrun",
            "start": "2026-11-20T13:00:00Z",
            "promised": "2026-11-20T12:30:00Z",
            "nodes": dict.fromkeys(NODES, 8),
            "idleGpuHours": 4.0,
            "offers": [
                {"start": "2026-11-20T12:10:00Z", "lostGpuHours": 2.5, "victims": ["team-b/small"]},
                {"start": "2026-11-20T12:50:00Z", "lostGpuHours": 0.0, "victims": []},
            ],
        }
    ],
    "waiting": [
        {
            "podGroup": f"team-a/{LONG}-2",
            "reason": "WaitingForReservation",
            "message": "needs nodes that are kept",
            "estimate": {"kind": "bound", "start": "2026-11-20T14:00:00Z", "unknownEnds": 0},
        }
    ],
}


def printed(sections: list[Section], width: int = 80) -> list[str]:
    """The lines of the sections that have rows."""
    output = io.StringIO()
    console = Console(file=output, width=width)
    for section in sections:
        if section.rows:
            console.print(section.render(20), crop=False)
    return output.getvalue().splitlines()


def test_starts_fit_a_terminal_and_are_whole_in_a_pipe() -> None:
    sections = list(starts.sections(DOCUMENT))
    narrow = printed(sections)
    assert max(map(len, narrow)) <= 80
    assert any("team-a" in line and "…" in line and "-model-1" in line for line in narrow), "a long name"
    assert any("2.5" in line and "team-b/small" in line for line in narrow)
    assert any("0.0" in line and "nothing" in line for line in narrow)
    whole = printed(sections, 1_000_000)
    assert any(all(f"{name} ×8" in line for name in NODES) for line in whole)
    assert any(f"team-a/{LONG}-2" in line and "≥ 14:00" in line for line in whole)


@pytest.mark.parametrize(
    ("held", "waiting", "words"),
    [
        (0, 0, "no capacity is kept, and no pod group waits."),
        (0, 1, "no capacity is kept; after the plan 1 pod group waits."),
        (1, 2, "capacity is kept for 1 pod group; after the plan 2 pod groups wait."),
    ],
)
def test_the_headline_counts_what_is_kept_and_what_waits(held: int, waiting: int, words: str) -> None:
    assert starts.headline({"reservations": [{}] * held, "waiting": [{}] * waiting}) == words


def test_a_frontier_fits_a_terminal() -> None:
    moves = tuple(
        Move(1, GroupKey("team-a", LONG), PodKey("team-a", f"{LONG}-worker-{n}"), NODES[0], NODES[n])
        for n in range(1, 5)
    )
    point = Point(2, 4, 1, 12.5, False, 3, NODES, moves)
    found = Frontier(DefragQuestion(), 0.0, 1, (point,), 2, False, "budget", (), 0.1)
    lines = printed(list(fragmentation.sections(found)))
    assert max(map(len, lines)) <= 80
    assert any("at least 3" in line and "more" in line for line in lines), "a list of nodes is cut at its end"
    assert sum("…" in line and "worker" in line for line in lines) == len(moves)


def test_a_restart_on_the_same_node_is_no_move_to_it() -> None:
    """A pod set of a gang restarts with the pods that move, and one of its pods stays where it was."""
    moves = tuple(Move(1, GroupKey("a", "g"), PodKey("a", f"g-{n}"), "n0", f"n{n}") for n in range(2))
    point = Point(1, 2, 1, 0.0, True, 2, ("n9",), moves)
    lines = printed(
        list(fragmentation.sections(Frontier(DefragQuestion(), 0.0, 0, (point,), 1, True, "most", (), 0.1)))
    )
    assert [line.split()[-3:] for line in lines if "g-0" in line] == [["restarts", "in", "place"]]
    assert [line.split()[-2:] for line in lines if "g-1" in line] == [["n0", "n1"]]


@pytest.mark.parametrize("command", ["reserve", "defrag"])
@pytest.mark.parametrize("format", ["table", "wide", "json", "yaml", "name", "csv"])
def test_every_format_answers(command: str, format: str) -> None:
    result = run(command, DEMO, "-o", format)
    assert result.returncode == 0, result.stderr
    header = {"reserve": "podGroup,queue,state", "defrag": "step,podGroup,pod,from,to"}[command]
    assert result.stdout.startswith(header) == (format == "csv")
