"""Fixtures: a stub API server, and waiting."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from tests.kai_cp.kube.stub import StubServer

PATIENCE_SECONDS: Final = 60.0
"""How long a test waits for an event: on a busy machine it is late, and no test is about that."""


@pytest.fixture
def server() -> Iterator[StubServer]:
    made = StubServer()
    yield made
    made.close()


def until(met: Callable[[], Any], seconds: float = PATIENCE_SECONDS) -> Any:
    """Wait until ``met`` returns a true value."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        answer = met()
        if answer:
            return answer
        time.sleep(0.01)
    raise AssertionError("it did not come true")
