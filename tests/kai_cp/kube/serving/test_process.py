"""How processes end: the reason, the status, and that they do end."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from kai_cp.kube.serving.process import ENDING_SECONDS, HARD_SECONDS, Lifecycle
from tests.kai_cp.kube.conftest import PATIENCE_SECONDS

HOLDS_THE_LOCK = """
with wake._cond:  # As wait() and clear() do.
    for number in (signal.SIGTERM, signal.SIGINT) * 50:
        os.kill(os.getpid(), number)
life.event.wait()
"""
WAITS_AND_CLEARS = """
while not life.over:
    wake.wait(1e-5)
    wake.clear()
"""


def test_the_first_reason_to_end_counts_and_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    called: list[int] = []
    life = Lifecycle()
    life.lease = "ns/scheduler"
    life.on_end(lambda: called.append(1))
    life.lease_lost()
    life.lease_lost()
    life.end(0)
    life.unauthorized()
    assert (life.status, called, life.over) == (3, [1], True)
    (record,) = caplog.records
    assert (record.levelno, record.__dict__["lease"]) == (logging.ERROR, "ns/scheduler")
    life.on_end(lambda: called.append(2))
    assert called == [1, 2], "what begins while the process ends is ended, too"


def test_a_process_that_does_not_end_is_ended() -> None:
    made: list[tuple[Any, ...]] = []

    def timer(seconds: float, ends: Callable[[int], object], arguments: tuple[int]) -> threading.Timer:
        made.append((seconds, ends, *arguments))
        return threading.Timer(0.0, lambda: None)

    def ended(_status: int) -> None: ...

    Lifecycle(ended, timer).unauthorized()
    asked = Lifecycle(ended, timer)
    asked.end()
    asked.end()
    assert made == [(HARD_SECONDS, ended, 4), (ENDING_SECONDS, ended, 5)]
    assert asked.status == 0


@pytest.mark.parametrize("main", [HOLDS_THE_LOCK, WAITS_AND_CLEARS], ids=["in a lock", "anywhere"])
def test_signals_end_a_process_wherever_its_main_thread_is(main: str) -> None:
    """The main thread uses the event that the end sets, as the loop of the scheduler does."""
    code = "import os, signal, threading; from kai_cp.kube.serving.process import Lifecycle\n"
    code += (
        "wake, life = threading.Event(), Lifecycle(os._exit); life.on_end(wake.set); life.handle_signals()\n"
    )
    code += f"print('ready', flush=True)\n{main}\nprint('ended', life.status, flush=True)\nos._exit(0)\n"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        for number in (signal.SIGTERM, signal.SIGINT) * 500:
            process.send_signal(number)
        try:
            assert process.wait(PATIENCE_SECONDS) == 0
        finally:
            process.kill()
        # communicate() would pass over what readline() has in its buffer.
        assert process.stdout.read() == "ended 0\n"
