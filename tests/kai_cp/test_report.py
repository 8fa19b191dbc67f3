"""Reports: complete at any width, and grouped as a person would group them."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest
from rich.console import Console, RenderableType

from kai_cp.report.decisions import report
from kai_cp.report.headline import Counts, batch
from kai_cp.report.terminal import amount
from tests.kai_cp import golden

EMPTY: dict[str, Any] = {
    "decisions": [],
    "unscheduled": [],
    "setAside": [],
    "stages": [],
    "timings": {"read": 0.1, "solve": 0.4},
    "queues": {},
}


def shown(what: RenderableType, width: int = 160) -> str:
    out = io.StringIO()
    Console(file=out, width=width, highlight=False, markup=False).print(what)
    return out.getvalue()


def decision(kind: str, pod: str, node: str, **more: Any) -> dict[str, Any]:
    base = {"kind": kind, "namespace": "default", "pod": pod, "podGroup": pod.rsplit("-", 1)[0]}
    return {**base, "node": node, "action": "allocate", "message": "", **more}


def stage(name: str, status: str, gap: float = 0.0) -> dict[str, Any]:
    amounts = {"objective": 10, "bound": 9, "variables": 3, "constraints": 4, "seconds": 0.5}
    return {"name": name, "status": status, "gap": gap, **amounts}


def test_an_empty_plan_says_so() -> None:
    text = shown(report("quiet", {**EMPTY, "stages": [stage("allocate", "OPTIMAL")]}))
    assert text.splitlines()[0].startswith("quiet: nothing to change. Proved optimal, 0.50 s.")


@pytest.mark.parametrize(
    ("statuses", "words"),
    [
        (("OPTIMAL", "OPTIMAL"), "Proved optimal"),
        (("OPTIMAL", "FEASIBLE"), "1 of 2 stages proved"),
        (("GREEDY", "GREEDY"), "Greedy answer only"),
    ],
)
def test_first_line_says_how_good_the_answer_is(statuses: tuple[str, ...], words: str) -> None:
    document = {**EMPTY, "stages": [stage(f"s{i}", status) for i, status in enumerate(statuses)]}
    assert words in shown(report("x", document)).splitlines()[0]
    assert "Stopped at the end of the budget" in shown(report("x", document, end="late")).splitlines()[0]


def test_pods_of_a_gang_are_one_row() -> None:
    document = {**EMPTY, "decisions": [decision("Bind", f"train-{i}", f"n{i // 8}") for i in range(64)]}
    text = shown(report("x", document))
    (row,) = [line for line in text.splitlines() if "train" in line and "64" in line]
    assert row.split()[1] == "64"
    assert "n0 ×8" in row
    assert "more" in row


def test_gangs_on_several_nodes_say_how_close_they_are() -> None:
    gang = {"podGroup": "default/train", "level": "topology/rack", "hops": 4, "nvlinkDomains": 2}
    gang |= {"worstPairGBytesPerSecond": 100, "segmentGpus": 36}
    text = shown(
        report("x", {**EMPTY, "localities": [gang, {**gang, "podGroup": "default/far", "level": ""}]})
    )
    near, far = (
        next(line.split() for line in text.splitlines() if name in line) for name in ("train", "far")
    )
    assert near == ["default/train", "rack", "4", "100", "2", "36"]
    assert far[1:3] == ["no", "level"]


@pytest.mark.parametrize(
    ("places", "words"),
    [
        ({"web-0": "n0", "web-1": "n0"}, "restarts in place"),
        ({"web-0": "n0", "web-1": "n7"}, "moves to n7; 1 restarts in place"),
        ({"web-0": "n0"}, "1 restarts in place; 1 back to pending"),
    ],
)
def test_a_pod_that_stays_on_its_node_restarts_in_place(places: dict[str, str], words: str) -> None:
    moves = [decision("Evict", pod, "n0", action="consolidation") for pod in ("web-0", "web-1")]
    moves += [decision("Nominate", pod, node, action="consolidation") for pod, node in places.items()]
    assert words in " ".join(shown(report("x", {**EMPTY, "decisions": moves})).split())


def test_moved_and_lost_pods_are_told_apart() -> None:
    document = {
        **EMPTY,
        "decisions": [
            decision("Evict", "web-0", "n0", action="reclaim", **{"for": ["default/train"]}),
            decision("Evict", "web-1", "n0", action="reclaim", **{"for": ["default/train"]}),
            decision("Nominate", "web-0", "n7", action="reclaim"),
            decision("Nominate", "train-0", "n0", action="reclaim"),
        ],
    }
    assert Counts.of(document) == Counts(bound=0, nominated=1, evicted=1, moved=1, waiting=0)
    text = shown(report("x", document))
    assert "moves to n7; 1 back to pending" in text
    assert "train" in text[text.index("Start") :]
    assert "web" not in text[text.index("Start") :]


@pytest.mark.parametrize("width", [80, 100, 120, 160])
def test_real_names_on_a_terminal(width: int) -> None:
    """A person looks at them; ``python -m tests.kai_cp.golden`` writes them anew."""
    text = golden.terminal(width)
    assert max(map(len, text.splitlines())) <= width
    assert text == golden.path(width).read_text("utf-8")


def test_in_a_pipe_a_row_is_a_line_and_names_are_whole() -> None:
    text = golden.terminal(None)
    assert text == golden.path(None).read_text("utf-8")
    document = golden.document()
    for decision in document["decisions"]:
        lines = [line for line in text.splitlines() if decision["node"] in line]
        assert any(f"{decision['namespace']}/{decision['podGroup']}" in line for line in lines)
    for entry in document["unscheduled"]:
        assert any(
            entry["podGroup"] in line and entry["message"] in line and entry["queue"] in line
            for line in text.splitlines()
        )
    assert not [line for line in text.splitlines() if line != line.rstrip() or "…" in line]


def test_columns_are_left_out_before_names_are_unreadable() -> None:
    text = golden.terminal(80)
    assert "Not shown at this width: By, From, Pods, Queue (-o wide)." in text
    assert re.search(r"\S{13}…\S{13}", text)


@pytest.mark.parametrize("width", [1, 20, 40])
def test_a_window_too_narrow_for_anything_is_no_error(width: int) -> None:
    assert shown(report("x", golden.document()), width)


def test_long_tables_are_cut_and_say_so() -> None:
    document = {**EMPTY, "setAside": [{"object": f"Pod default/{i}", "reason": "bad"} for i in range(500)]}
    assert "480 more; --all shows them" in shown(report("x", document))
    assert "Pod default/499" in shown(report("x", document, everything=True))


def test_batch_has_a_row_for_every_input() -> None:
    text = shown(batch([("good", EMPTY, False), ("broken", EMPTY, True), ("bad", None, True)]).render(None))
    rows = {line.split()[0]: line for line in text.splitlines() if line.strip()}
    assert "proved optimal" in rows["good"]
    assert "engine failed" in rows["broken"]
    assert "bad input" in rows["bad"]


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "∞"), (-1, "∞"), (0, "0"), (2.5, "2.5"), (1234567, "1,234,567"), (0.25, "0.25")],
)
def test_amounts(value: float | None, text: str) -> None:
    assert amount(value) == text
