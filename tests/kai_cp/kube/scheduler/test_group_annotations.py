"""Annotations of pod groups: they show at once, the latest value wins, and none is lost."""

from __future__ import annotations

import threading

import pytest

from kai_cp.kube.api import resources as r
from kai_cp_models.pods import GroupKey
from tests.kai_cp.kube.conftest import PATIENCE_SECONDS, until
from tests.kai_cp.kube.samples import Object, group
from tests.kai_cp.kube.scheduler.conftest import Setup


def held_writer(setup: Setup) -> threading.Event:
    """Background writes wait for the event."""
    gate = threading.Event()

    def hold() -> None:
        gate.wait(PATIENCE_SECONDS)

    for i in range(2):
        setup.writer.submit(("held", i), hold)
    until(lambda: not setup.writer.waiting())
    return gate


def test_annotations_show_before_they_are_written_and_the_latest_wins(setup: Setup) -> None:
    """No cycle waits until a promise is written, and none decides without it."""
    gate = held_writer(setup)
    key = GroupKey("ns", "g")
    setup.live.annotations.set(key, {"kai-cp/a": "1", "kai-cp/b": "1"})
    setup.live.annotations.set(key, {"kai-cp/a": "2", "kai-cp/b": None})

    def shown() -> Object:
        found: Object = setup.live.snapshot()["rawObjects"]["podGroups"][0]["metadata"]["annotations"]
        return found

    assert shown() == {"kai-cp/a": "2"}
    assert not setup.server.requests("PATCH", "podgroups")
    gate.set()
    until(lambda: setup.server.requests("PATCH", "podgroups"))
    assert setup.writer.drain(PATIENCE_SECONDS)
    assert len(setup.server.requests("PATCH", "podgroups")) == 1
    assert shown() == {"kai-cp/a": "2"}
    setup.live.annotations.set(key, {"kai-cp/a": None})
    assert not shown()


def test_a_later_group_of_the_name_gets_no_annotation(setup: Setup) -> None:
    """What was decided about a group that is gone neither shows on the next one nor is written to it."""
    gate, key = held_writer(setup), GroupKey("ns", "g")
    setup.live.annotations.set(key, {"kai-cp/a": "1"})
    fresh = group()
    fresh["metadata"]["uid"] = "later"
    setup.server.put(r.POD_GROUPS, fresh)
    until(lambda: (setup.cache.stores[r.POD_GROUPS].get(key) or {})["metadata"]["uid"] == "later")
    assert not setup.live.annotations.of(key)
    assert not setup.live.snapshot()["rawObjects"]["podGroups"][0]["metadata"].get("annotations")
    setup.live.annotations.set(key, {"kai-cp/b": "1"}, uid="uid-g")
    gate.set()
    assert setup.writer.drain(PATIENCE_SECONDS)
    assert not setup.server.requests("PATCH", "podgroups")
    setup.live.annotations.set(key, {"kai-cp/b": "1"}, uid="later")
    written = until(lambda: setup.server.requests("PATCH", "podgroups"))
    assert written == [{"metadata": {"uid": "later", "annotations": {"kai-cp/b": "1"}}}]


def test_an_annotation_that_the_writer_dropped_is_written_by_a_later_cycle(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as full:
        full.setattr(setup.writer, "submit", lambda *_args, **_more: None)
        setup.live.annotations.set(GroupKey("ns", "g"), {"kai-cp/a": "1"})
    setup.live.snapshot()
    until(lambda: setup.server.requests("PATCH", "podgroups"))
