"""A long-lived process that answers tasks in time: the deadline is enforced from outside the solver.

CP-SAT can overrun its own time limit (inside presolve, for one), so the parent never waits longer than
agreed: it keeps the last answer the worker sent, kills the worker when its time is up, and has another
for the next task. Workers are forked from a small server process that has imported the engine and has
no threads, so a new one is ready in milliseconds.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from types import TracebackType
from typing import Any, Final, Literal, Self

from kai_cp.errors import Unavailable
from kai_cp_models.collection import collector_held

ENGINE: Final = ("kai_cp.preload",)
"""Imported once, before any worker is forked: all that reads and decides, except CP-SAT."""
ENGINE_AND_SOLVER: Final = (*ENGINE, "kai_cp_models.loaded")
"""For a long-lived program; one that answers a single task starts faster without the solver."""

_STOP_SECONDS: Final = 5.0
_LONGEST_POLL_SECONDS: Final = 86_400.0
"""The system's poll counts milliseconds in 32 bits."""


End = Literal["done", "late", "interrupted", "failed"]


@dataclass(frozen=True, slots=True)
class Reply:
    """The result of a task.

    ``answer``: the last one sent, None if there was none. ``end``: *done* when the job returned, *late* when
    its time was up, *interrupted* by Ctrl-C, *failed* when it raised or its process died; then ``failure`` is
    one line and ``details`` the traceback.
    """

    answer: Any
    end: End
    failure: str = ""
    details: str = ""


class Channel:
    """The worker's line to its parent."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def until(self, deadline: float) -> None:
        """The parent waits until ``deadline`` (``time.monotonic()``: one clock for all processes)."""
        self._connection.send(("until", deadline))

    def answer(self, value: Any) -> None:
        """Send an answer; it replaces the one before."""
        self._connection.send(("answer", value))

    def progress(self, value: Any) -> None:
        """Say how far the task has come, to those that watch."""
        self._connection.send(("progress", value))


WorkerJob = Callable[[Any, Channel], None]


def warm_up(preload: Sequence[str] = ENGINE_AND_SOLVER) -> None:
    """Start the server process that imports the engine; returns at once, while the caller imports."""
    # A thread pool started by an import would make forking unsafe; our arrays need none.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    multiprocessing.get_context("forkserver").set_forkserver_preload(list(preload))
    resource_tracker.ensure_running()  # It would let interrupts through again.
    with _no_interrupts():
        forkserver.ensure_running()


@contextlib.contextmanager
def _no_interrupts() -> Iterator[None]:
    """Processes started in this block never get Ctrl-C; the parent gets it afterwards and decides what it
    means."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Worker:
    """One process that runs ``job(task, channel)`` for task after task. A context manager.

    ``job`` is a module's function, so that its name can be sent. ``decides_once``: garbage is looked for when
    the parent has the answer and not before, as a task leaves little.
    """

    def __init__(self, job: WorkerJob, *, decides_once: bool = False) -> None:
        self._job, self._decides_once = job, decides_once
        self._context = multiprocessing.get_context("forkserver")
        self._process: ForkServerProcess | None = None
        self._connection: Connection | None = None

    def __enter__(self) -> Self:
        try:
            self.start()
        except OSError as error:
            why = error.strerror or error
            raise Unavailable(
                f"the process that decides cannot be started ({why}): see whether {sys.executable} may be "
                "executed, and whether directories for temporary files can be written"
            ) from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start the process if none runs."""
        if self._process is not None:
            return
        warm_up()
        ours, theirs = self._context.Pipe()
        process = self._context.Process(
            target=_serve, args=(self._job, theirs, self._decides_once), daemon=True
        )
        process.start()
        theirs.close()
        self._process, self._connection = process, ours

    def stop(self) -> None:
        """Kill the process, whatever it does."""
        process, connection = self._process, self._connection
        self._process = self._connection = None
        if connection is not None:
            connection.close()
        if process is not None:
            process.kill()
            process.join(_STOP_SECONDS)

    def run(
        self, task: Any, deadline: float | None = None, watch: Callable[[Any], None] | None = None
    ) -> Reply:
        """Do ``task``; return when it is done, at the latest at the deadline (given here or by the job).

        ``watch`` gets the progress that the job reports.
        """
        answer: Any = None
        try:
            connection = self._send(task)
            while _message_before(deadline, connection):
                kind, value = connection.recv()
                if kind == "until":
                    deadline = value
                elif kind == "answer":
                    answer = value
                elif kind == "progress":
                    if watch is not None:
                        watch(value)
                elif kind == "done":
                    return Reply(answer, "done")
                else:
                    return Reply(answer, "failed", *value)
        except (EOFError, OSError):
            return Reply(answer, "failed", self._death())
        except KeyboardInterrupt:
            self.stop()
            return Reply(answer, "interrupted")
        except BaseException:
            self.stop()
            raise
        self.stop()
        return Reply(answer, "late")

    def _send(self, task: Any) -> Connection:
        self.start()
        assert self._connection is not None
        self._connection.send(task)
        return self._connection

    def _death(self) -> str:
        code = None
        if self._process is not None:
            self._process.join(_STOP_SECONDS)
            code = self._process.exitcode
        self.stop()
        if code is not None and code < 0:
            with contextlib.suppress(ValueError):
                return f"the worker process was ended by {signal.Signals(-code).name}"
        return f"the worker process ended with status {code}"


def _message_before(deadline: float | None, connection: Connection) -> bool:
    """Wait until there is a message (True) or the deadline has passed."""
    if deadline is None:
        return True  # Receiving waits by itself.
    while (left := deadline - time.monotonic()) > _LONGEST_POLL_SECONDS:
        if connection.poll(_LONGEST_POLL_SECONDS):
            return True
    return connection.poll(max(0.0, left))


def _serve(job: WorkerJob, connection: Connection, decides_once: bool) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=end_with_parent, daemon=True).start()
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        while True:
            task = connection.recv()
            with collector_held() if decides_once else contextlib.nullcontext():
                _answer(job, task, connection)


def _answer(job: WorkerJob, task: Any, connection: Connection) -> None:
    try:
        job(task, Channel(connection))
    except (BrokenPipeError, ConnectionResetError):
        raise
    except Exception as error:
        failure = "".join(traceback.format_exception_only(error)).strip()
        connection.send(("failed", (failure, traceback.format_exc())))
    else:
        connection.send(("done", None))


def end_with_parent() -> None:
    """End this process once its parent has ended, even inside a solve; for a thread of its own."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
