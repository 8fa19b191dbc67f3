"""One snapshot, one budget: what is answered when the engine is fine, hangs or fails."""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from kai_cp.reader.container import Source
from kai_cp.reading import read
from kai_cp.settings import load
from kai_cp.solving import Progress, Result, Task, interim, job, solve
from kai_cp.worker import Worker
from kai_cp_models.snapshot import Decision, GroupKey, Plan, PodKey, Stage, Unscheduled
from tests.support import worker_jobs

DEMO = Path(__file__).parents[2] / "examples" / "demo-cluster.json"
NOW = 1_795_176_000.0
WAITING = {"ablation", "chat-api", "detector", "giant", "legacy", "notebook-bob", "notebook-eve", "replay"}


def task(budget: float, path: Path = DEMO) -> Task:
    settings = load(None, {"solver.budget_seconds": budget})
    return Task(Source(str(path), path.stem), None, NOW, settings, None)


def document(result: Result) -> dict[str, Any]:
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
        began = time.monotonic()
        result = solve(worker, task(2))
        assert time.monotonic() - began < 60
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


def test_reading_is_not_charged_to_the_deciding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading takes 100 s by this clock: the whole budget begins afterwards."""
    clock = [0.0]
    deadlines: list[float] = []

    def slow_read(*arguments: Any, **options: Any) -> Any:
        clock[0] += 100
        return read(*arguments, **options)

    def decide(snapshot: Any, settings: Any, *, deadline: float, emit: Any) -> Plan:
        deadlines.append(deadline)
        return Plan()

    monkeypatch.setattr("kai_cp.solving.time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr("kai_cp.reading.read", slow_read)
    monkeypatch.setattr("kai_cp_models.engine.decide", decide)
    channel = Mock()
    job(task(10), channel)
    assert 109 < deadlines[0] <= 110
    assert channel.until.call_args[0][0] > 110


def test_progress_is_told_to_whoever_watches() -> None:
    seen: list[Progress] = []
    with Worker(job) as worker:
        solve(worker, task(30), seen.append)
    assert seen[0].action == "reading done"
    assert seen[-1].gpus_admitted > 0
    assert {step.action for step in seen} >= {"allocate", "reclaim"}


def test_ctrl_c_gives_the_best_checked_answer_so_far() -> None:
    """The watcher interrupts as the terminal would, once there is an answer."""

    def interrupt(step: Progress) -> None:
        if step.gpus_admitted:
            raise KeyboardInterrupt

    with Worker(job) as worker:
        result = solve(worker, task(30), interrupt)
    assert result.interrupted
    assert document(result)["decisions"]


def test_interim_plan_names_who_was_not_looked_at_and_keeps_what_is_known() -> None:
    snapshot, _ = read(str(DEMO), now=NOW, settings=load())
    known = Unscheduled(GroupKey("default", "giant"), "NoNodeAccepts", "too large", True)
    plan = Plan(
        decisions=(
            Decision(
                "Bind", PodKey("default", "ablation-0"), GroupKey("default", "ablation"), "n", "allocate"
            ),
        ),
        unscheduled=(known,),
        stages=(Stage("allocate: admission", "OPTIMAL"),),
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
