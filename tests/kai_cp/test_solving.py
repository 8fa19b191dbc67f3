"""One snapshot, one budget: the answer when the engine is fine, hangs or fails."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from dataclasses import replace
from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock, call

import pytest

from kai_cp.reader.container import Source
from kai_cp.reading import read
from kai_cp.report.progress import line
from kai_cp.settings import load
from kai_cp.solving import Progress, SolvingResult, SolvingTask, interim, job, progress, solve
from kai_cp.worker import Worker
from kai_cp_models.plan import Decision, Plan, Stage, Unscheduled
from kai_cp_models.pods import GroupKey, PodKey
from tests.support import worker_jobs

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "examples" / "demo-cluster.json"
NOW = 1_795_176_000.0
WAITING = {"ablation", "chat-api", "detector", "giant", "legacy", "notebook-bob", "notebook-eve", "replay"}


def task(budget: float, path: Path = DEMO) -> SolvingTask:
    settings = load(None, {"solver.budget_seconds": budget})
    return SolvingTask(Source(str(path), path.stem), None, NOW, settings, None)


def document(result: SolvingResult) -> dict[str, Any]:
    assert result.document is not None
    found = json.loads(result.document)
    assert isinstance(found, dict)
    return found


def test_answer_arrives_complete() -> None:
    with Worker(job) as worker:
        result = solve(worker, task(30))
    assert (result.problem, result.late) == ("", False)
    found = document(result)
    assert found["timings"]["solve"] > 0
    assert found["queues"]["vision"]["fairShare"]["gpu"] > 20


def test_hanging_engine_is_cut_off_and_its_last_plan_counts() -> None:
    with Worker(worker_jobs.solve_with_a_solver_that_hangs) as worker:
        result = solve(worker, task(2))
    assert result.late
    found = document(result)
    assert [decision["pod"] for decision in found["decisions"]] == ["p-0"]
    assert {entry["reason"] for entry in found["unscheduled"]} == {"NotDecidedInTime"}
    assert {entry["podGroup"].split("/")[1] for entry in found["unscheduled"]} == WAITING
    assert {stage["status"] for stage in found["stages"]} == {"GREEDY"}


def test_failing_engine_leaves_an_answer_and_a_line() -> None:
    with Worker(worker_jobs.solve_with_a_solver_that_fails) as worker:
        result = solve(worker, task(5))
    assert result.problem.startswith(str(DEMO))
    assert "RuntimeError: out of luck" in result.problem
    assert "\n" not in result.problem
    assert "Traceback" in result.details
    assert document(result)["decisions"] == []


def test_unreadable_input_has_no_answer(tmp_path: Path) -> None:
    bad = tmp_path / "bad.json"
    bad.write_text('{"rawObjects": {')
    with Worker(job) as worker:
        result = solve(worker, task(5, bad))
        assert solve(worker, task(30)).problem == ""
    assert result.document is None
    assert str(bad) in result.problem


@pytest.mark.parametrize("reading", [1, 9, 100])
def test_the_budget_begins_when_the_snapshot_is_read(monkeypatch: pytest.MonkeyPatch, reading: float) -> None:
    """By this clock the engine ends 9.5 s after ``reading``, the worker 12 s after it."""
    clock = [0.0]
    deadlines: list[float] = []

    def slow_read(*arguments: Any, **options: Any) -> Any:
        clock[0] += reading
        return read(*arguments, **options)

    def decide(snapshot: Any, settings: Any, *, deadline: float, emit: Any) -> Plan:
        deadlines.append(deadline)
        return Plan()

    monkeypatch.setattr("kai_cp.solving.time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr("kai_cp.reading.read", slow_read)
    monkeypatch.setattr("kai_cp_models.engine.decide", decide)
    channel = Mock()
    job(task(10), channel)
    assert deadlines == pytest.approx([reading + 9.5])
    assert channel.until.call_args_list == [call(120), call(reading + 12)]


def test_a_file_that_cannot_be_read_in_time_is_named() -> None:
    limited = load(None, {"limits.read_seconds": 0.1})
    with Worker(worker_jobs.solve_with_a_reader_that_hangs) as worker:
        result = solve(worker, replace(task(60), settings=limited))
    assert result.document is None
    assert result.problem == (
        f"{DEMO}: it could not be read in time; a larger limits.read_seconds allows more"
    )


def test_a_small_file_that_fills_the_memory_is_named(tmp_path: Path) -> None:
    """A zip of some kilobytes with four million empty objects is refused before the objects are made."""
    path = tmp_path / "bomb.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        entries = ",".join(["{}"] * 4_000_000)
        archive.writestr("snapshot.json", f'{{"rawObjects":{{"pods":[{entries}]}}}}')
    assert path.stat().st_size < 100_000
    bounded = load(None, {"limits.memory_bytes": 256 * 1024**2})
    with Worker(job) as worker:
        result = solve(worker, replace(task(60, path), settings=bounded))
        # The worker continues with the tasks of others.
        assert solve(worker, task(30)).problem == ""
    assert result.document is None
    assert "4000002 objects" in result.problem
    assert "limits.memory_bytes" in result.problem


def test_a_file_that_takes_too_much_memory_is_named() -> None:
    with Worker(worker_jobs.solve_with_a_reader_that_takes_memory) as worker:
        result = solve(worker, task(60))
    assert result.problem == f"{DEMO}: it takes more memory than is allowed (limits.memory_bytes)"


def test_progress_is_reported_to_the_watcher() -> None:
    seen: list[Progress] = []
    with Worker(job) as worker:
        solve(worker, task(30), seen.append)
    assert seen[0].action == ""
    assert seen[-1].gpus_admitted > 0
    assert {step.action for step in seen} >= {"allocate", "reclaim"}


@pytest.mark.parametrize(
    ("action", "unproved", "expected"),
    [
        ("", None, "demo: deciding"),
        ("reclaim", None, "demo: reclaim: 12 GPUs admitted, 0.5 lost; proved"),
        (
            "reclaim",
            Stage("reclaim", "lost work [GPU-milliseconds]", "FEASIBLE", 4000, 3000, 0.25),
            "demo: reclaim: 12 GPUs admitted, 0.5 lost; gap 25% (lost work: 4,000, bound 3,000)",
        ),
        (
            "allocate",
            Stage("allocate", "", "GREEDY", 4, inf, 1.0),
            "demo: allocate: 12 GPUs admitted, 0.5 lost; gap 100% (goal: 4, bound inf)",
        ),
    ],
)
def test_progress_line_has_bound_and_gap(action: str, unproved: Stage | None, expected: str) -> None:
    assert line("demo", Progress(action, 12, 0.5, unproved)) == expected


def test_progress_names_the_first_goal_that_is_not_proved() -> None:
    snapshot, _ = read(str(DEMO), now=NOW, settings=load())
    proved, open_, late = (
        Stage("reclaim", "admission", "OPTIMAL", 4, 4),
        Stage("reclaim", "lost work", "FEASIBLE", 9, 6, 0.33),
        Stage("reclaim", "moved pods", "FEASIBLE", 1, 0, 1.0),
    )
    earlier = Stage("allocate", "", "FEASIBLE", 1, 2, 1.0)
    assert progress(snapshot, Plan(stages=(earlier, proved, open_, late))).unproved == open_
    assert progress(snapshot, Plan(stages=(earlier, proved))).unproved is None


_ONE_POD_ONE_NODE = """
import sys
import kai_cp.preload
from kai_cp.settings import load
from kai_cp_models.engine import decide
from tests.support.worlds import cluster, pod
print(len(decide(cluster([pod("a-0")]), load()).decisions))
print(*sorted({"pandas", "ortools.sat.python.cp_model_helper"} & set(sys.modules)))
"""


def _says(code: str, *arguments: str) -> list[str]:
    """The output of a process of its own, line by line."""
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.check_output(command, text=True, cwd=ROOT).splitlines()


def test_a_decision_without_a_model_loads_no_solver() -> None:
    """CP-SAT and what it imports take longer than everything else together."""
    assert _says(_ONE_POD_ONE_NODE) == ["1", ""]


def test_a_program_that_lives_long_loads_the_solver_at_its_start() -> None:
    code = "import sys, kai_cp_models.loaded; print(*(name in sys.modules for name in sys.argv[1:]))"
    names = ["ortools.sat.python.cp_model_helper", "pandas"]
    assert _says(code, *names) == ["True False"]


def test_the_solver_is_loaded_without_pandas_which_other_imports_get_whole() -> None:
    code = (
        "import sys; from kai_cp_models.solver import load; load(); print('pandas' in sys.modules); "
        "import pandas; print(pandas.Series([1, 2]).sum())"
    )
    assert _says(code) == ["False", "3"]


def test_ctrl_c_gives_the_best_checked_answer_so_far() -> None:
    """The watcher interrupts as the terminal does, once there is an answer."""

    def interrupt(step: Progress) -> None:
        if step.gpus_admitted:
            raise KeyboardInterrupt

    with Worker(job) as worker:
        result = solve(worker, task(30), interrupt)
    assert result.interrupted
    assert document(result)["decisions"]


def test_interim_plan_names_groups_not_looked_at_and_keeps_what_is_known() -> None:
    snapshot, _ = read(str(DEMO), now=NOW, settings=load())
    known = Unscheduled(GroupKey("default", "giant"), "NoNodeAccepts", "too large", True)
    plan = Plan(
        decisions=(
            Decision(
                "Bind", PodKey("default", "ablation-0"), GroupKey("default", "ablation"), "n", "allocate"
            ),
        ),
        unscheduled=(known,),
        stages=(Stage("allocate", "admission", "OPTIMAL"),),
    )
    found = interim(snapshot, plan)
    assert found.unscheduled[0] is known
    named = {entry.group.name for entry in found.unscheduled[1:]}
    assert named == WAITING - {"giant", "ablation"}
    assert [stage.name for stage in found.stages] == [
        "allocate: admission",
        "consolidation",
        "reclaim",
        "preempt",
        "stalegangeviction",
    ]
