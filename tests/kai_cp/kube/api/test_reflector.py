"""Following a kind: resume, list again, back off."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

import pytest

from kai_cp.kube.api import resources as r
from kai_cp.kube.api.reflector import Reflector
from kai_cp.kube.api.retry import Backoff
from kai_cp.kube.api.store import Store
from tests.kai_cp.kube.conftest import PATIENCE_SECONDS, until
from tests.kai_cp.kube.samples import pod
from tests.kai_cp.kube.stub import StubServer


def follow(server: StubServer, **options: object) -> Reflector:
    quick = Backoff(first=0.01, longest=0.05)
    reflector = Reflector(server.transport(), r.PODS, Store(), backoff=quick, **options)  # type: ignore[arg-type]
    reflector.start()
    assert reflector.synced.wait(PATIENCE_SECONDS)
    return reflector


def known(reflector: Reflector) -> list[str]:
    return [item["metadata"]["name"] for item in reflector.store.all()]


def test_the_reflector_follows_changes(server: StubServer) -> None:
    server.put(r.PODS, pod("a"))
    reflector = follow(server)
    assert known(reflector) == ["a"]
    server.put(r.PODS, pod("b"))
    until(lambda: known(reflector) == ["a", "b"])
    server.remove(r.PODS, "ns", "a")
    until(lambda: known(reflector) == ["b"])
    reflector.stop()


def test_the_reflector_resumes_where_a_watch_ended(server: StubServer) -> None:
    reflector = follow(server, watch_seconds=1)
    for i in range(3):
        server.put(r.PODS, pod(f"p{i}"))
        until(lambda i=i: len(known(reflector)) == i + 1)
    until(lambda: len([p for _, p, _ in server.log if "watch=1" in p]) >= 3)
    assert reflector.lists == 1
    reflector.stop()


def test_expired_versions_lead_to_a_new_list(server: StubServer) -> None:
    reflector = follow(server, watch_seconds=1)
    server.expired_before = 100
    server.put(r.PODS, pod("late"))
    until(lambda: reflector.lists >= 2)
    server.expired_before = 0
    server.put(r.PODS, pod("later"))
    until(lambda: known(reflector) == ["late", "later"])
    reflector.stop()


def test_a_page_is_stored_as_what_is_kept_of_it_before_the_next_is_read(
    server: StubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Objects as the server sends them take several times the memory of what is kept of them."""
    monkeypatch.setattr("kai_cp.kube.api.transport.PAGE", 2)
    for i in range(5):
        server.put(r.PODS, pod(f"p{i}"))
    pages: list[int] = []

    def kept(item: dict[str, Any]) -> dict[str, Any]:
        pages.append(len(server.requests("GET", "limit=2")))
        return item

    reflector = Reflector(server.transport(), r.PODS, Store(transform=kept))
    reflector.start()
    assert reflector.synced.wait(PATIENCE_SECONDS)
    reflector.stop()
    assert pages == [1, 1, 2, 2, 3]
    assert len(known(reflector)) == 5


def test_failures_are_tried_again(server: StubServer) -> None:
    number = itertools.count()
    server.put(r.PODS, pod("a"))
    server.faults = lambda _m, p: (500, {}) if next(number) < 6 else None
    reflector = follow(server)
    assert known(reflector) == ["a"]
    reflector.stop()


@dataclass(frozen=True, slots=True)
class Counted(Backoff):
    """Pauses of 10 ms, and of which try each was."""

    tries: list[int] = field(default_factory=list)

    def pause(self, attempt: int) -> float:
        self.tries.append(attempt)
        return 0.01


def test_watches_that_end_at_once_are_opened_at_longer_and_longer_intervals(server: StubServer) -> None:
    counted = Counted()
    server.faults = lambda _m, path: (200, {}) if "watch=1" in path else None
    reflector = Reflector(server.transport(), r.PODS, Store(), backoff=counted)
    reflector.start()
    until(lambda: counted.tries[:4] == [0, 1, 2, 3])
    reflector.stop()
    assert reflector.lists == 1


def test_a_watch_that_is_refused_waits_as_long_as_the_server_asks(server: StubServer) -> None:
    refusal = (429, {"Retry-After": "60"})
    server.faults = lambda _m, path: refusal if "watch=1" in path else None
    counted = Counted(patience=30.0)
    reflector = Reflector(server.transport(), r.PODS, Store(), backoff=counted)
    reflector.start()
    until(lambda: counted.tries == [0])
    reflector.join(0.3)
    assert counted.tries == [0], "it waits for 30 s, and not for 10 ms"
    reflector.stop()


def test_bookmarks_move_the_version_on(server: StubServer) -> None:
    server.bookmarks = True
    server.put(r.NODES, {"metadata": {"name": "n"}})
    reflector = follow(server, watch_seconds=1)
    server.put(r.NODES, {"metadata": {"name": "n"}})
    until(lambda: any("watch=1" in p and "resourceVersion=2" in p for _, p, _ in server.log))
    reflector.stop()


def test_an_optional_kind_that_is_not_served(server: StubServer) -> None:
    server.absent.add("pods")
    reflector = follow(server, optional=True)
    assert not reflector.served
    reflector.stop()
