"""The command bench: parts for many machines, merged results, and a sentence for every error."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from kai_cp.bench.cases import generated_cases
from kai_cp.bench.cli import _show
from kai_cp.bench.records import CaseResult, NetEffect, origin, read, write
from kai_cp.bench.run import RunPlan
from kai_cp.bench.table import tables, to_gain
from kai_cp.report import terminal


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kai_cp", "bench", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        ((), 2, "--suite: name one of kai"),
        (("--suite", "scale", "--nodes", "abc"), 2, "--nodes abc: 'abc' is not a whole number"),
        (("--suite", "scale", "--seeds", "3-1"), 2, "--seeds 3-1: '3-1' ends before it begins"),
        (
            ("--suite", "scale", "--shapes", "nope"),
            2,
            "--shapes nope: there is no such shape; there are fill",
        ),
        (
            ("--suite", "gangs", "--shapes", "nope"),
            2,
            "--shapes nope: there is no such shape; there are philly",
        ),
        (("--suite", "kai", "--shared", "/nowhere"), 3, "name their directory with --shared"),
        (("--suite", "openb", "--shared", "/nowhere"), 3, "github.com/alibaba/clusterdata"),
        (("--suite", "scale", "--part", "8/8"), 2, "--part: '8/8' is not a part such as 0/8"),
        (("--suite", "scale", "--out", "/nowhere/x.jsonl"), 2, "--out: /nowhere/x.jsonl: No such file"),
        (("merge", "/nowhere/x.jsonl"), 1, "/nowhere/x.jsonl: No such file"),
        (("merge", "/dev/null"), 1, "/dev/null: there is no result"),
        (("merge", __file__), 1, "it has lines that are no results"),
    ],
)
def test_bad_input_is_one_sentence_and_a_status(
    arguments: tuple[object, ...], status: int, words: str
) -> None:
    done = run(*arguments)
    assert done.returncode == status
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_no_process_at_all_is_wrong_usage() -> None:
    done = run("--suite", "openb", "--processes", "0")
    assert done.returncode == 2
    assert "Invalid value for '--processes': expected a number greater than or equal to 1" in done.stderr


def test_parts_are_equal_and_nothing_is_lost() -> None:
    cases = generated_cases((), (10,), (1, 2))
    parts = [RunPlan(("scale",), part=(i, 3)).mine(cases) for i in range(3)]
    assert sorted(case.name for part in parts for case in part) == sorted(case.name for case in cases)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def case(name: str, most: float | None = 20) -> CaseResult:
    return CaseResult(
        suite="scale",
        case=name,
        seed=1,
        stages=(),
        moments=(),
        pending_groups=3,
        nodes=10,
        running_pods=5,
        pending_pods=6,
        budget_seconds=1,
        seconds={"decide": 0.5, "read": 0.1},
        peak_memory_mib=80,
        status="FEASIBLE",
        gap=1.0,
        outcome=NetEffect(bound_gpus=15),
        most_gpus=most,
        origin=origin(),
    )


def test_results_of_several_machines_become_one(tmp_path: Path) -> None:
    write(tmp_path / "0.jsonl", [case("a"), case("b")])
    write(tmp_path / "1.jsonl", [case("b"), case("c")])
    done = run("merge", *tmp_path.glob("*.jsonl"), "--out", tmp_path / "all.jsonl")
    assert (done.returncode, done.stderr) == (0, "")
    assert [result.case for result in read(tmp_path / "all.jsonl")] == ["a", "b", "c"]
    assert "15 of 20  25.0%" in done.stdout


@pytest.mark.parametrize("width", [80, 100])
def test_the_table_fits_and_its_gap_is_what_could_still_be_gained(width: int) -> None:
    """A stage may have a gap of 100 %; what counts is 15 of at most 20 GPUs."""
    (section,) = tables([case("contended-of-a-certain-length-1000-s1"), case("unknown", None)])
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(section.render(None), crop=False)
    text = console.export_text()
    assert max(map(len, text.splitlines())) <= width
    assert "25.0%" in text
    assert "100.0%" not in text


def test_a_narrow_table_names_no_option_that_the_command_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    console = Console(width=60, record=True, file=io.StringIO())
    monkeypatch.setattr(terminal, "stdout", lambda **_: console)
    _show([case("contended-of-a-certain-length-1000-s1")], None)
    text = " ".join(console.export_text().split())
    assert "Not shown at this width" in text
    assert "(a pipe shows them)" in text


def test_a_plan_that_gives_gpus_up_has_no_gap() -> None:
    """Its purpose is another one than to have more GPUs in use: -10 of at most 10 would be a gap of 200 %."""
    given_up = case("reclaim", 10).model_copy(update={"outcome": NetEffect(bound_gpus=10, lost_gpus=20)})
    assert (given_up.outcome.gained_gpus, to_gain(given_up)) == (-10, "")
    assert to_gain(case("idle")) == "25.0%"
