"""Jobs for a worker, importable by its process."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

from kai_cp.worker import Channel


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
    """One answer, then what a crash inside the solver looks like."""
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
