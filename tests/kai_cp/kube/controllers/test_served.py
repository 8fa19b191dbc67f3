"""Discovery of kinds: asked for once in a while, and nothing waits for the API of another kind."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from kai_cp.kube.api.errors import ApiError
from kai_cp.kube.controllers.base import NotYet
from kai_cp.kube.controllers.served import LOOK_SECONDS, REMEMBERED, Served
from tests.kai_cp.kube.conftest import PATIENCE_SECONDS

JOBS = {"resources": [{"kind": "Job", "name": "jobs", "namespaced": True}]}


class Discovery:
    """A server that serves Jobs, and asks that are counted; ``slow`` waits, ``down`` refuses."""

    def __init__(self) -> None:
        self.now = 0.0
        self.asked: list[str] = []
        self.down = False
        self.waits, self.goes_on = threading.Event(), threading.Event()
        self.served = Served(self.raw, monotonic=lambda: self.now)

    def raw(self, path: str) -> Any:
        self.asked.append(path)
        if path == "/apis/slow/v1":
            self.waits.set()
            self.goes_on.wait(PATIENCE_SECONDS)
        if self.down or path == "/apis/down/v1":
            raise ApiError(503, "ServiceUnavailable", "no endpoints")
        return JOBS if path == "/apis/batch/v1" else None


def test_nothing_waits_for_the_api_of_another_kind() -> None:
    found = Discovery()
    other = threading.Thread(target=found.served.resource, args=("slow/v1", "X"))
    other.start()
    assert found.waits.wait(PATIENCE_SECONDS)
    answers = []
    ours = threading.Thread(target=lambda: answers.append(found.served.resource("batch/v1", "Job")))
    ours.start()
    ours.join(PATIENCE_SECONDS / 10)
    found.goes_on.set()
    other.join(PATIENCE_SECONDS)
    assert [one.plural for one in answers if one is not None] == ["jobs"]


def test_an_api_that_does_not_answer_is_asked_once_in_a_while() -> None:
    """Any pod may name it as its owner's, and each request takes as long as all its repetitions."""
    found = Discovery()
    for _ in range(3):
        with pytest.raises(NotYet, match="no endpoints"):
            found.served.resource("down/v1", "X")
    assert found.asked == ["/apis/down/v1"]
    found.now += LOOK_SECONDS
    with pytest.raises(NotYet):
        found.served.resource("down/v1", "X")
    assert len(found.asked) == 2


def test_known_kinds_stay_while_an_api_does_not_answer() -> None:
    found = Discovery()
    assert found.served.resource("batch/v1", "CronJob") is None
    found.down = True
    found.now += LOOK_SECONDS
    with pytest.raises(NotYet):
        found.served.resource("batch/v1", "CronJob")
    assert found.served.resource("batch/v1", "Job") is not None
    found.down = False
    found.now += LOOK_SECONDS
    assert found.served.resource("batch/v1", "CronJob") is None
    assert len(found.asked) == 3


@pytest.mark.parametrize(
    "version", ["", "/v1", "a/b/c", "batch/v1?x=1", "../api/v1", "B/v1", f"{'g' * 254}/v1"]
)
def test_other_texts_than_versions_are_not_asked_for(version: str) -> None:
    found = Discovery()
    assert found.served.resource(version, "X") is None
    assert found.asked == []


@pytest.mark.parametrize("version", ["v1", "apps/v1", "x/v1", "scheduling.run.ai/v2alpha2", "a-b.c/v1-x"])
def test_a_version_is_asked_for(version: str) -> None:
    found = Discovery()
    assert found.served.resource(version, "X") is None
    assert found.asked == [f"/apis/{version}" if "/" in version else f"/api/{version}"]


def test_invented_versions_take_no_more_memory_than_some_real_ones() -> None:
    found = Discovery()
    for i in range(REMEMBERED + 9):
        assert found.served.resource(f"g{i}/v1", "X") is None
    assert len(found.served._looks) == REMEMBERED  # noqa: SLF001
