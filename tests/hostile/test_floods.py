"""Thousands of objects of one namespace that each cost an event: the reasons of others are among the
first.
"""

from __future__ import annotations

import threading
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kai_cp.kube.api import resources as r
from kai_cp.kube.api.background import MOST_WRITES, BackgroundWriter
from kai_cp.kube.api.event_quota import MOST_EVENTS, WINDOW_SECONDS, EventQuota
from kai_cp.kube.api.recorder import Recorder
from kai_cp.kube.api.resources import Resource
from kai_cp.kube.scheduler.api_cluster import ApiCluster
from kai_cp.kube.scheduler.backoff import BindBackoff
from kai_cp.kube.scheduler.cache import ClusterCache
from kai_cp.kube.scheduler.options import Mode, SchedulerOptions, default_config
from kai_cp.kube.scheduler.reports import REWRITE_SECONDS, Lately, Reporter
from kai_cp.reader import parse
from kai_cp_models.plan import Plan, Unscheduled
from kai_cp_models.pods import GroupKey
from tests.kai_cp.kube.conftest import PATIENCE_SECONDS, until
from tests.kai_cp.kube.samples import Object, group, node, pod, queue

NOW = 1_800_000_000.0
FLOOD = 3000


class Listener:
    """Replaces a transport: what is written, and in which namespace."""

    def __init__(self) -> None:
        self.written: list[tuple[str, str]] = []
        self.said: dict[str, str] = {}
        """The last messages by reason."""

    def create(self, _resource: Resource, namespace: str, body: Object, **_more: Any) -> None:
        self.written.append((namespace, body["reason"]))
        self.said[body["reason"]] = body["message"]

    def patch(self, resource: Resource, namespace: str, *_more: Any, **_options: Any) -> None:
        self.written.append((namespace, resource.kind))


class Clock:
    """A clock that stands still until it is moved."""

    now = NOW

    def __call__(self) -> float:
        return self.now


def test_a_clock_that_is_set_back_holds_nothing_for_longer() -> None:
    clock = Clock()
    backoff, quota, lately = BindBackoff(), EventQuota(clock), Lately(clock)
    for _ in range(5):
        backoff.failed("u", clock.now)
    for _ in range(MOST_EVENTS + 1):
        quota.admit(pod("p"), r.PODS)
    lately.put("early")
    assert backoff.held("u", clock.now + 1)
    assert lately.get("early") is not None
    clock.now -= 86_400.0
    assert not backoff.held("u", clock.now)
    assert backoff.next_release(clock.now) is None
    assert quota.admit(pod("p"), r.PODS) is None
    assert lately.get("early") is None
    lately.put("late")
    assert lately.get("late") is not None


def test_warnings_of_one_namespace_are_no_flood_in_any_process() -> None:
    """Binder and controllers meet a fault again, and say it when the namespace has its next turn."""
    api: Any = Listener()
    clock, writer = Clock(), BackgroundWriter(1)
    recorder = Recorder(api, writer, "test", clock=clock, quota=EventQuota(clock))

    def say_all(kind: str = "Warning") -> list[tuple[str, str]]:
        for i in range(FLOOD):
            recorder.say(pod(f"p{i}"), r.PODS, kind, "Bad", "no owner")
        other = pod("victim")
        other["metadata"]["namespace"] = "victim"
        recorder.say(other, r.PODS, "Warning", "Bad", "no owner")
        assert writer.drain(PATIENCE_SECONDS)
        return list(api.written)

    once = say_all()
    assert once.count(("ns", "Bad")) == MOST_EVENTS
    assert once.count(("ns", "EventsLeftOut")) == once.count(("victim", "Bad")) == 1
    assert say_all() == once
    clock.now += WINDOW_SECONDS
    assert say_all().count(("ns", "Bad")) == 2 * MOST_EVENTS
    assert say_all("Normal").count(("ns", "Bad")) == FLOOD, "what is no fault is told as it happens"
    writer.stop()


def test_messages_about_many_objects_take_little_memory() -> None:
    """Half a million messages of 2 KB, which quote what tenants wrote, were a gigabyte."""
    api: Any = Listener()
    writer = BackgroundWriter(1)
    recorder = Recorder(api, writer, "test")
    tracemalloc.start()
    try:
        for i in range(1000):
            recorder.say(pod(f"p{i}"), r.PODS, "Warning", "Bad", f"{i}" * 500)
        assert writer.drain(PATIENCE_SECONDS)
        api.written.clear()
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        writer.stop()
    assert kept < 1000 * 700
    assert recorder.has_said(pod("p7"), "Bad", "Bad", "7" * 500)


def within(namespace: str, item: Object, **spec: Any) -> Object:
    return {
        **item,
        "metadata": {**item["metadata"], "namespace": namespace},
        "spec": {**item["spec"], **spec},
    }


def waits_for_its_turn(namespace: str, name: str) -> Unscheduled:
    return Unscheduled(GroupKey(namespace, name), "WaitsForItsTurn", "others come first", False)


class Held:
    """A reporter whose writes wait until :meth:`written`; ``limit``: so many may."""

    def __init__(self, limit: int = MOST_WRITES) -> None:
        self.api: Any = Listener()
        self.clock = Clock()
        self.writer = BackgroundWriter(1, limit=limit)
        self._open_gate = threading.Event()
        self.writer.submit("held", lambda: self._open_gate.wait(PATIENCE_SECONDS))
        until(lambda: not self.writer.waiting())
        options = SchedulerOptions(mode=Mode.ENFORCE)
        self.cache = ClusterCache(self.api, options, default_config())
        self.recorder = Recorder(self.api, self.writer, "kai-scheduler")
        self.live = ApiCluster(
            self.api, self.cache, options, self.recorder, self.writer, backoff=BindBackoff()
        )
        self.cache.stores[r.NODES].put(node("n"))
        self.cache.stores[r.QUEUES].put(queue())
        self.reporter = Reporter(
            self.api, self.cache, self.live, options, self.recorder, writer=self.writer, clock=self.clock
        )

    def put(self, namespace: str, name: str, **spec: Any) -> None:
        self.cache.stores[r.POD_GROUPS].put(within(namespace, group(name), **spec))

    def report(self, *waits: Unscheduled) -> float | None:
        snapshot = parse(self.live.snapshot(), now=NOW)
        return self.reporter.report(snapshot, Plan(unscheduled=waits))

    def written(self) -> list[tuple[str, str]]:
        self._open_gate.set()
        assert self.writer.drain(PATIENCE_SECONDS)
        return list(self.api.written)


@pytest.fixture
def held() -> Iterator[Callable[..., Held]]:
    made: list[Held] = []

    def make(**options: int) -> Held:
        made.append(Held(**options))
        return made[-1]

    yield make
    for each in made:
        each.written()
        each.writer.stop()
        each.live.close()


def test_objects_that_each_cost_an_event_delay_no_other_namespace(held: Callable[..., Held]) -> None:
    made = held()
    for i in range(FLOOD):
        made.put("evil", f"g{i}", preemptibility="perhaps")
    made.put("victim", "gang")
    made.cache.stores[r.PODS].put(within("victim", pod("p", "gang")))
    waits = Unscheduled(GroupKey("victim", "gang"), "OverLimit", "needs 1, limit 0", True)
    assert made.report(waits) == NOW + WINDOW_SECONDS, "the others are told of then"
    made.report(waits)

    assert made.writer.waiting() >= MOST_EVENTS
    written = made.written()
    about_victim = [i for i, (namespace, _) in enumerate(written) if namespace == "victim"]
    assert sorted({what for namespace, what in written if namespace == "victim"}) == [
        "Pod",
        "PodGroup",
        "Unschedulable",
    ]
    assert max(about_victim) <= 2 * len(about_victim)
    assert written.count(("evil", "SetAside")) == MOST_EVENTS
    assert written.count(("evil", "EventsLeftOut")) == 1
    assert f"about {FLOOD - MOST_EVENTS} objects" in made.api.said["EventsLeftOut"]
    for _ in range(FLOOD // MOST_EVENTS):
        made.clock.now += WINDOW_SECONDS
        made.report(waits)
        written = made.written()
    assert written.count(("evil", "SetAside")) == FLOOD, "each is told of once"
    assert written.count(("evil", "EventsLeftOut")) == FLOOD // MOST_EVENTS - 1


def test_a_dropped_event_is_sent_again_while_it_is_true(held: Callable[..., Held]) -> None:
    made = held(limit=1)
    lost, kept = within("evil", group("lost")), within("evil", group("kept"))

    def say(about: Object) -> None:
        made.recorder.say(about, r.POD_GROUPS, "Warning", "SetAside", "it is odd")

    say(lost)
    say(kept)
    assert not made.recorder.has_said(lost, "SetAside", "SetAside", "it is odd")
    assert made.recorder.has_said(kept, "SetAside", "SetAside", "it is odd")
    assert made.written() == [("evil", "SetAside")]
    for about in (lost, kept, lost, kept):
        say(about)
        assert made.written() == [("evil", "SetAside")] * 2, "each once"
    assert made.writer.dropped == 1


def test_a_later_cycle_reports_a_dropped_reason(held: Callable[..., Held]) -> None:
    made = held(limit=6)
    for i in range(3):
        made.put("evil", f"odd{i}", preemptibility="perhaps")
        made.put("evil", f"g{i}")
    waits = [waits_for_its_turn("evil", f"g{i}") for i in range(3)]
    for _ in range(2):
        assert made.report(*waits) is None
    assert (made.writer.waiting(), made.writer.dropped) == (6, 0)
    for i in range(6):
        made.writer.submit(("other", i), lambda: None, namespace="evil")
    assert made.writer.dropped == 6, "the reasons are older"
    assert made.written() == []
    for _ in range(3):
        made.clock.now += REWRITE_SECONDS
        made.report(*waits)
        made.written()
    reasons = ["SetAside"] * 3 + ["WaitsForItsTurn"] * 3
    assert sorted(reason for _, reason in made.written()) == reasons, "each once"


def test_namespaces_with_few_reports_come_first(held: Callable[..., Held]) -> None:
    made = held()
    keys = [("evil", f"g{i}") for i in range(3)] + [("victim", "gang")]
    for key in keys:
        made.put(*key)
    made.report(*(waits_for_its_turn(*key) for key in keys))
    assert [namespace for namespace, _ in made.written()] == ["victim", "evil", "evil", "evil"]
