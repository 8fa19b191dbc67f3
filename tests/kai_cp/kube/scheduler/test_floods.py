"""Thousands of objects of one namespace that each cost an event: another's reasons are among the first."""

from __future__ import annotations

import threading
from typing import Any

from kai_cp.kube.api import resources as r
from kai_cp.kube.api.background import BackgroundWriter
from kai_cp.kube.api.recorder import Recorder
from kai_cp.kube.api.resources import Resource
from kai_cp.kube.scheduler.api_cluster import ApiCluster
from kai_cp.kube.scheduler.backoff import BindBackoff
from kai_cp.kube.scheduler.cache import ClusterCache
from kai_cp.kube.scheduler.event_quota import MOST_EVENTS, WINDOW_SECONDS
from kai_cp.kube.scheduler.options import Mode, SchedulerOptions, default_config
from kai_cp.kube.scheduler.reports import REWRITE_SECONDS, Reporter
from kai_cp.reader import parse
from kai_cp_models.snapshot import GroupKey, Plan, Unscheduled
from tests.kai_cp.kube.conftest import PATIENCE_SECONDS, until
from tests.kai_cp.kube.samples import Object, group, node, pod, queue

NOW = 1_800_000_000.0
FLOOD = 3000


class Listener:
    """In place of a transport: what is written, and in which namespace."""

    def __init__(self) -> None:
        self.written: list[tuple[str, str]] = []
        self.said: dict[str, str] = {}
        """The last words by reason."""

    def create(self, _resource: Resource, namespace: str, body: Object, **_more: Any) -> None:
        self.written.append((namespace, body["reason"]))
        self.said[body["reason"]] = body["message"]

    def patch(self, resource: Resource, namespace: str, *_more: Any, **_options: Any) -> None:
        self.written.append((namespace, resource.kind))


class Clock:
    """Stands still until it is moved."""

    now = NOW

    def __call__(self) -> float:
        return self.now


def within(namespace: str, item: Object, **spec: Any) -> Object:
    return {
        **item,
        "metadata": {**item["metadata"], "namespace": namespace},
        "spec": {**item["spec"], **spec},
    }


def test_objects_that_each_cost_an_event_delay_no_other_namespace() -> None:
    api: Any = Listener()
    writer = BackgroundWriter(1)
    open_gate = threading.Event()
    writer.submit("held", lambda: open_gate.wait(PATIENCE_SECONDS))
    until(lambda: not writer.waiting())

    options = SchedulerOptions(mode=Mode.ENFORCE)
    cache = ClusterCache(api, options, default_config())
    recorder = Recorder(api, writer, "kai-scheduler")
    live = ApiCluster(api, cache, options, recorder, writer, backoff=BindBackoff())
    cache.stores[r.NODES].put(node("n"))
    cache.stores[r.QUEUES].put(queue())
    for i in range(FLOOD):
        cache.stores[r.POD_GROUPS].put(within("evil", group(f"g{i}"), preemptibility="perhaps"))
    cache.stores[r.POD_GROUPS].put(within("victim", group("gang")))
    cache.stores[r.PODS].put(within("victim", pod("p", "gang")))
    snapshot = parse(live.snapshot(), now=NOW)
    waits = Unscheduled(GroupKey("victim", "gang"), "OverLimit", "needs 1, limit 0", True)
    clock = Clock()
    reporter = Reporter(api, cache, live, options, recorder, writer=writer, clock=clock)
    plan = Plan(unscheduled=(waits,))
    assert reporter.report(snapshot, plan) == NOW + WINDOW_SECONDS, "the others are told of then"
    reporter.report(snapshot, plan)

    assert writer.waiting() >= MOST_EVENTS
    open_gate.set()
    assert writer.drain(PATIENCE_SECONDS)
    about_victim = [i for i, (namespace, _) in enumerate(api.written) if namespace == "victim"]
    assert sorted({what for namespace, what in api.written if namespace == "victim"}) == [
        "Pod",
        "PodGroup",
        "Unschedulable",
    ]
    assert max(about_victim) <= 2 * len(about_victim)
    assert api.written.count(("evil", "SetAside")) == MOST_EVENTS
    assert api.written.count(("evil", "EventsLeftOut")) == 1
    assert f"about {FLOOD - MOST_EVENTS} objects" in api.said["EventsLeftOut"]
    for _ in range(FLOOD // MOST_EVENTS):
        clock.now += WINDOW_SECONDS
        reporter.report(snapshot, plan)
        assert writer.drain(PATIENCE_SECONDS)
    assert api.written.count(("evil", "SetAside")) == FLOOD, "each is told of once"
    assert api.written.count(("evil", "EventsLeftOut")) == FLOOD // MOST_EVENTS - 1
    writer.stop()
    live.close()


def test_what_was_dropped_is_said_again_while_it_is_true() -> None:
    api: Any = Listener()
    writer = BackgroundWriter(1, limit=1)
    open_gate = threading.Event()
    writer.submit("held", lambda: open_gate.wait(PATIENCE_SECONDS))
    until(lambda: not writer.waiting())
    recorder = Recorder(api, writer, "kai-scheduler")
    lost, kept = within("evil", group("lost")), within("evil", group("kept"))
    for about in (lost, kept):
        recorder.say(about, r.POD_GROUPS, "Warning", "SetAside", "it is odd")
    assert recorder.has_said(lost, "SetAside") is None
    assert recorder.has_said(kept, "SetAside") == ("SetAside", "it is odd")
    open_gate.set()
    assert writer.drain(PATIENCE_SECONDS)
    for _ in range(2):
        for about in (lost, kept):
            recorder.say(about, r.POD_GROUPS, "Warning", "SetAside", "it is odd")
            assert writer.drain(PATIENCE_SECONDS)
    assert (api.written, writer.dropped) == ([("evil", "SetAside")] * 2, 1), "each once"
    writer.stop()


def test_a_reason_that_was_dropped_is_told_by_a_later_cycle() -> None:
    api: Any = Listener()
    writer = BackgroundWriter(1, limit=6)
    open_gate = threading.Event()
    writer.submit("held", lambda: open_gate.wait(PATIENCE_SECONDS))
    until(lambda: not writer.waiting())
    options = SchedulerOptions(mode=Mode.ENFORCE)
    cache = ClusterCache(api, options, default_config())
    recorder = Recorder(api, writer, "kai-scheduler")
    live = ApiCluster(api, cache, options, recorder, writer, backoff=BindBackoff())
    for store, item in ((r.NODES, node("n")), (r.QUEUES, queue())):
        cache.stores[store].put(item)
    for i in range(3):
        cache.stores[r.POD_GROUPS].put(within("evil", group(f"odd{i}"), preemptibility="perhaps"))
        cache.stores[r.POD_GROUPS].put(within("evil", group(f"g{i}")))
    snapshot = parse(live.snapshot(), now=NOW)
    waits = tuple(
        Unscheduled(GroupKey("evil", f"g{i}"), "WaitsForItsTurn", "others come first", False)
        for i in range(3)
    )
    clock = Clock()
    reporter = Reporter(api, cache, live, options, recorder, writer=writer, clock=clock)
    for _ in range(2):
        assert reporter.report(snapshot, Plan(unscheduled=waits)) is None
    assert (writer.waiting(), writer.dropped) == (6, 0)
    for i in range(6):
        writer.submit(("other", i), lambda: None, namespace="evil")
    assert writer.dropped == 6, "the reasons are older"
    open_gate.set()
    assert writer.drain(PATIENCE_SECONDS)
    assert api.written == []
    for _ in range(3):
        clock.now += REWRITE_SECONDS
        reporter.report(snapshot, Plan(unscheduled=waits))
        assert writer.drain(PATIENCE_SECONDS)
    reasons = ["SetAside"] * 3 + ["WaitsForItsTurn"] * 3
    assert sorted(reason for _, reason in api.written) == reasons, "each once"
    writer.stop()
    live.close()
