"""The parent enforces the deadline, and no failure of the worker affects the parent."""

from __future__ import annotations

import os
import time

import pytest

from kai_cp import worker as module
from kai_cp.errors import Unavailable
from kai_cp.worker import Reply, Worker
from tests.support import worker_jobs as jobs


def test_answers_task_after_task_in_one_process() -> None:
    with Worker(jobs.add_one) as worker:
        assert [worker.run(task) for task in (1, 5)] == [Reply(2, "done"), Reply(6, "done")]


def test_hanging_solver_is_stopped_and_its_last_answer_counts() -> None:
    with Worker(jobs.improve_then_hang) as worker:
        reply = worker.run(0.2)
    assert reply == Reply("better", "late")


def test_deadline_holds_before_any_answer() -> None:
    with Worker(jobs.improve_then_hang) as worker:
        reply = worker.run(600.0, deadline=time.monotonic())
    assert reply.end == "late"


def test_deadline_years_away_is_no_overflow() -> None:
    with Worker(jobs.add_one) as worker:
        assert worker.run(1, deadline=time.monotonic() + 1e9) == Reply(2, "done")


def test_next_task_after_a_stopped_one_is_answered() -> None:
    with Worker(jobs.hang_on_even) as worker:
        replies = [worker.run(task) for task in (2, 3, 4, 5)]
    assert replies == [Reply(2, "late"), Reply(3, "done"), Reply(4, "late"), Reply(5, "done")]


def test_crash_keeps_the_last_answer_and_names_the_signal() -> None:
    with Worker(jobs.die) as worker:
        replies = [worker.run(None), worker.run(None)]
    assert [reply.answer for reply in replies] == ["greedy", "greedy"]
    assert all(reply.end == "failed" and "SIGKILL" in reply.failure for reply in replies)


def test_exception_is_one_line_with_the_traceback_beside_it() -> None:
    with Worker(jobs.divide) as worker:
        broken, fine = worker.run(0), worker.run(5)
    assert broken.answer is None
    assert broken.failure == "ZeroDivisionError: integer division or modulo by zero"
    assert "Traceback" in broken.details
    assert fine == Reply(2, "done")


def test_stopping_ends_the_process() -> None:
    worker = Worker(jobs.improve_then_hang)
    worker.start()
    process = worker._process  # noqa: SLF001
    assert process is not None
    assert process.pid is not None
    worker.stop()
    assert process.exitcode is not None
    assert not os.path.exists(f"/proc/{process.pid}")


def test_garbage_is_looked_for_after_the_answer() -> None:
    count = 10_000
    with Worker(jobs.leave_garbage, decides_once=True) as worker:
        assert [worker.run(count).answer for _ in range(2)] == [(0, count), (0, count)]
    with Worker(jobs.leave_garbage) as worker:
        before, after = worker.run(count).answer
        assert before == 0
        assert after < count


def test_a_process_that_cannot_be_started_is_told_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """``kai-cp: Connection refused`` named neither the process nor what to do."""

    def refused() -> None:
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr(module, "warm_up", refused)
    said = r"the process that decides cannot be started \(Connection refused\): see whether .*python"
    with pytest.raises(Unavailable, match=said), Worker(jobs.add_one):
        pass
