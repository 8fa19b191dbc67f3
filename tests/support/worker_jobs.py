"""Jobs for a worker, importable by its process."""

from __future__ import annotations

import os
import signal
import time
from typing import Any
from weakref import ref

from kai_cp.solving import job
from kai_cp.worker import Channel
from kai_cp_models.plan import Decision, Plan
from kai_cp_models.pods import PodKey


def add_one(task: int, channel: Channel) -> None:
    """Answer at once."""
    channel.answer(task + 1)


def improve_then_hang(task: float, channel: Channel) -> None:
    """Two answers, a deadline ``task`` seconds away, and a solver that never returns."""
    channel.answer("greedy")
    channel.answer("better")
    channel.until(time.monotonic() + task)
    time.sleep(600)


def die(task: Any, channel: Channel) -> None:
    """One answer, and then an exit as after a crash inside the solver."""
    channel.answer("greedy")
    os.kill(os.getpid(), signal.SIGKILL)


def divide(task: int, channel: Channel) -> None:
    """Raise for zero."""
    channel.answer(10 // task)


def hang_on_even(task: int, channel: Channel) -> None:
    """Even tasks never end."""
    channel.answer(task)
    if task % 2 == 0:
        channel.until(time.monotonic() + 0.1)
        time.sleep(600)


def solve_with_a_solver_that_hangs(task: Any, channel: Channel) -> None:
    """``solve``'s own job on an engine that emits one plan and never returns."""
    from kai_cp_models import engine

    def decide(snapshot: Any, settings: Any, *, deadline: float, emit: Any) -> Any:
        emit(Plan(decisions=(Decision("Bind", PodKey("default", "p-0"), None, "n0", "allocate"),)))
        time.sleep(600)

    engine.decide = decide
    job(task, channel)


def solve_with_a_solver_that_fails(task: Any, channel: Channel) -> None:
    """``solve``'s own job on an engine that raises before it has any plan."""
    from kai_cp_models import engine

    def decide(snapshot: Any, settings: Any, *, deadline: float, emit: Any) -> Any:
        raise RuntimeError("out of luck")

    engine.decide = decide
    job(task, channel)


def solve_with_a_reader_that_hangs(task: Any, channel: Channel) -> None:
    """``solve``'s own job on a file whose reading never ends."""
    from kai_cp import reading

    def read(*arguments: Any, **options: Any) -> Any:
        time.sleep(600)

    reading.read = read
    job(task, channel)


def solve_with_a_reader_that_takes_memory(task: Any, channel: Channel) -> None:
    """``solve``'s own job on a file that grows without end."""
    from kai_cp import reading

    def read(*arguments: Any, **options: Any) -> Any:
        taken: list[bytearray] = []
        while len(taken) < 1000:
            taken.append(bytearray(100 * 1024**2))

    reading.read = read
    job(task, channel)


def leave_garbage(count: int, channel: Channel) -> None:
    """Make ``count`` objects that only a collection frees; answer how many there are before and after."""
    before = _circles()
    for _ in range(count):
        circle = _Circle()
        circle.itself = circle
        _MADE.append(ref(circle))
    channel.answer((before, _circles()))


class _Circle:
    itself: _Circle


_MADE: list[ref[_Circle]] = []


def _circles() -> int:
    return sum(one() is not None for one in _MADE)
