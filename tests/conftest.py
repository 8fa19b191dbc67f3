"""Fixtures and settings of all tests."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

import kai_cp_models
from kai_cp_models import solver

ROOT = Path(__file__).parents[1]

# Tests of one checkout say nothing about the code of another, which a copied environment would import.
if ROOT not in Path(kai_cp_models.__file__).parents:
    raise pytest.UsageError(
        f"the code is imported from {Path(kai_cp_models.__file__).parent}, not from {ROOT}: "
        f"mend the first lines of the scripts in {ROOT / '.venv/bin'}, or run python -m pytest"
    )

SIGNALS = {
    # Who runs the tests in the background (nohup, &) has them ignore Ctrl-C, and so would all they start.
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
}


def pytest_runtest_setup() -> None:
    """Programs that a test ran in this process, and CP-SAT, leave handlers of their own, or none."""
    signal.set_wakeup_fd(-1)
    for number, handler in SIGNALS.items():
        signal.signal(number, handler)


pytest_runtest_setup()

_END = os._exit


def _end(status: int) -> None:
    """End this process, but not from the timer of a program that a test ran in it: a program has 25 s to end,
    and the tests go on."""
    if not isinstance(threading.current_thread(), threading.Timer):
        _END(status)


os._exit = _end  # type: ignore[assignment]

# cel-python raises the limit when first used; Hypothesis objects when that happens inside a test.
sys.setrecursionlimit(2500)

# The same examples each time, so that a change is refused for its own faults only; who looks for others
# runs with --hypothesis-profile=search.
for name, fixed in (("kai_cp", True), ("search", False)):
    settings.register_profile(
        name,
        derandomize=fixed,
        deadline=None,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow],
    )
settings.load_profile("kai_cp")


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Bytes name no test: gzip writes the second into what it packs, and workers that began in different
    seconds would not find the same tests.
    """
    return argname if isinstance(val, bytes) else None


@pytest.fixture(scope="session")
def shared() -> Path:
    """The reference data beside the project; tests that need it skip where it is absent."""
    path = ROOT.parent / "shared"
    if not path.is_dir():
        pytest.skip("the reference data is not at ../shared")
    return path


@pytest.fixture(autouse=True)
def _programs_of_its_own() -> Iterator[None]:
    """A program run inside a test sends its log to that test's standard error, which is closed after it, and
    would end at signals that later tests send."""
    root = logging.getLogger()
    level = root.level
    yield
    signal.set_wakeup_fd(-1)
    root.handlers[:] = [handler for handler in root.handlers if type(handler) is not logging.StreamHandler]
    root.setLevel(level)


class _Kept(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the message."""
        self.messages.append(record.getMessage())


@pytest.fixture(autouse=True)
def invalid_models() -> Iterator[list[str]]:
    """What CP-SAT finds invalid in models, at the end nothing: such a model has no answer, as if its work had
    ended, so that tests of plans do not see it."""
    kept, log = _Kept(), logging.getLogger(solver.__name__)
    log.addHandler(kept)
    yield kept.messages
    log.removeHandler(kept)
    assert not kept.messages
