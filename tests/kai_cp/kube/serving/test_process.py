"""How processes end: the reason, the status, and that they do end."""

from __future__ import annotations

import time

import pytest

from kai_cp.kube.serving.process import Lifecycle
from tests.kai_cp.kube.conftest import until


def test_the_first_reason_to_end_counts() -> None:
    called: list[int] = []
    life = Lifecycle()
    life.on_end(lambda: called.append(1))
    life.lease_lost()
    life.end(0)
    life.unauthorized()
    assert (life.status, called, life.over) == (3, [1], True)


def test_a_process_that_does_not_end_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kai_cp.kube.serving.process.HARD_SECONDS", 0.05)
    ended: list[int] = []
    Lifecycle(ended.append).unauthorized()
    until(lambda: ended == [4])
    calm: list[int] = []
    Lifecycle(calm.append).end(0)
    time.sleep(0.2)
    assert calm == []
