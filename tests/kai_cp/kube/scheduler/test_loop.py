"""The loop: a cycle at once after a change, none without one; rules that depend on time wake it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from kai_cp.kube.api import background
from kai_cp.kube.api import resources as r
from kai_cp.kube.api.background import BackgroundWriter
from kai_cp.kube.scheduler import loop
from kai_cp.kube.scheduler.api_cluster import LATER
from kai_cp.kube.scheduler.backoff import BindBackoff, gated
from kai_cp.kube.scheduler.clock import next_look, unproved_pause
from kai_cp.kube.scheduler.comparison import Comparison
from kai_cp.kube.scheduler.decider import Decided
from kai_cp.kube.scheduler.loop import FAILED_CYCLES, LONGEST_SLEEP_SECONDS, Scheduler
from kai_cp.kube.scheduler.routes import public_routes
from kai_cp.kube.telemetry.metrics import SchedulerMetrics
from kai_cp.reader import parse
from kai_cp_models.plan import Decision, Plan, Unscheduled
from kai_cp_models.pods import GroupKey, PodStatus
from kai_cp_models.records.notes import Failures, GroupNotes
from kai_cp_models.snapshot import Snapshot
from tests.kai_cp.kube.conftest import PATIENCE_SECONDS, until
from tests.kai_cp.kube.samples import bind, evict, group, node, pod, queue, snapshot
from tests.kai_cp.kube.scheduler.test_reports import Reporting
from tests.kai_cp.kube.scheduler.test_rivals import order
from tests.kai_cp.kube.stub import StubServer

NOW = 1_800_000_000.0


def first_fit(raw: Mapping[str, Any], now: float, _usage: Any) -> Decided:
    """Place every waiting pod on the first node."""
    parsed = parse(raw, now=now)
    waiting = [p for p in parsed.pods if p.status is PodStatus.PENDING]
    decisions = tuple(Decision("Bind", p.key, p.group, "n", "allocate") for p in waiting)
    return Decided(parsed, Plan(decisions=decisions))


class Looping(Reporting):
    clock = staticmethod(time.time)

    def __init__(self, server: StubServer, decide: Callable[..., Decided] = first_fit) -> None:
        super().__init__(server, schedule_period=0.05)
        self.registry = CollectorRegistry()
        self.scheduler = Scheduler(
            self.cache,
            self.live,
            decide,
            self.reporter,
            self.backoff,
            options=self.options,
            metrics=SchedulerMetrics(self.registry),
        )
        self.thread = threading.Thread(target=self.scheduler.run, daemon=True)
        self.thread.start()

    def close(self) -> None:
        self.scheduler.stop()
        self.thread.join(PATIENCE_SECONDS)
        super().close()


def fill(server: StubServer) -> None:
    server.put(r.NODES, node("n"))
    server.put(r.QUEUES, queue())
    server.put(r.POD_GROUPS, group())


def test_a_change_is_acted_on_at_once_and_silence_is_kept(server: StubServer) -> None:
    fill(server)
    looping = Looping(server)
    waits: list[tuple[int, float | None]] = []
    wait = looping.cache.wake.wait

    def cycles() -> int:
        return len(looping.scheduler.cycles.all())

    def waited(seconds: float | None = None) -> bool:
        waits.append((cycles(), seconds))
        return wait(seconds)

    def bound() -> float | None:
        return looping.registry.get_sample_value("kai_cp_binds_total", {"result": "done"})

    looping.cache.wake.wait = waited  # type: ignore[method-assign]
    until(cycles)
    server.put(r.PODS, pod("p"))
    until(lambda: bound() == 1.0 and waits[-1:] == [(cycles(), LONGEST_SLEEP_SECONDS)])
    assert server.get(r.BIND_REQUESTS, "ns", "p")
    assert not looping.scheduler.fault()
    text = generate_latest(looping.registry).decode()
    assert "kai_queue_fair_share_gpu" in text
    looping.close()


def test_a_stream_of_new_pods_hurries_for_four_cycles(server: StubServer) -> None:
    """A tenant that makes a pod every moment delays the orders of others, but only for four cycles."""
    looping = Looping(server)
    looping.close()
    scheduler = looping.scheduler
    scheduler._stopping.clear()  # noqa: SLF001

    def look(*, new: bool) -> bool:
        if new:
            scheduler._others.set()  # noqa: SLF001
        else:
            scheduler._others.clear()  # noqa: SLF001
        scheduler._wait(0.0)  # noqa: SLF001
        return scheduler.hurried()

    assert not look(new=False)
    assert [look(new=True) for _ in range(6)] == [True] * 4 + [False] * 2
    assert not look(new=False)
    assert look(new=True)


def test_a_decision_is_about_the_pod_that_was_decided(server: StubServer) -> None:
    """A pod that was made again meanwhile may ask for anything: no rule judged it, and nothing evicts it."""
    fill(server)
    server.put(r.PODS, pod("p"))
    server.put(r.PODS, {**pod("runs", node="n", phase="Running")})
    bound: list[str] = []

    def late(raw: Mapping[str, Any], now: float, usage: Any) -> Decided:
        decided = first_fit(raw, now, usage)
        if not bound and decided.plan.decisions:
            bound.append("p")
            for name in ("p", "runs"):
                server.remove(r.PODS, "ns", name)
                fresh = pod(name, gpus=8)
                fresh["metadata"]["uid"] = f"later-{name}"
                fresh["spec"]["schedulerName"] = "kai-scheduler" if name == "p" else "other"
                server.put(r.PODS, fresh)
            until(lambda: _uid(looping, "p") == "later-p" and _uid(looping, "runs") == "later-runs")
            gone = (evict("runs", "n"), *decided.plan.decisions)
            return replace(decided, plan=replace(decided.plan, decisions=gone))
        return decided

    looping = Looping(server, late)
    until(lambda: server.get(r.BIND_REQUESTS, "ns", "p"))
    looping.close()
    results = next(one.results for one in looping.scheduler.cycles.all() if len(one.results) == 2)
    assert [(one.outcome, one.message) for one in results] == [("gone", LATER)] * 2
    assert (server.get(r.BIND_REQUESTS, "ns", "p") or {})["spec"]["receivedGPU"]["count"] == 8
    assert server.get(r.PODS, "ns", "runs")


def _uid(looping: Looping, name: str) -> Any:
    return (looping.cache.stores[r.PODS].get(("ns", name)) or {"metadata": {}})["metadata"].get("uid")


def test_a_failing_engine_is_tried_again_later(server: StubServer) -> None:
    fill(server)
    asked: list[float] = []

    def broken(raw: Mapping[str, Any], now: float, usage: Any) -> Decided:
        asked.append(now)
        return Decided(parse(raw, now=now), Plan(), problem="engine: broke" if len(asked) < 2 else "")

    looping = Looping(server, broken)
    until(lambda: len(asked) >= 2)
    assert 'kai_cp_cycles_total{result="failed"} 1.0' in generate_latest(looping.registry).decode()
    looping.close()


def test_a_cycle_that_fails_stops_nothing(server: StubServer) -> None:
    fill(server)
    asked: list[float] = []

    def raises_once(raw: Mapping[str, Any], now: float, usage: Any) -> Decided:
        asked.append(now)
        if len(asked) == 1:
            raise RuntimeError("a defect")
        return first_fit(raw, now, usage)

    server.put(r.PODS, pod("p"))
    looping = Looping(server, raises_once)
    until(lambda: server.get(r.BIND_REQUESTS, "ns", "p"))
    assert 'kai_cp_cycles_total{result="failed"} 1.0' in generate_latest(looping.registry).decode()
    looping.close()


def test_a_scheduler_whose_every_cycle_fails_is_neither_alive_nor_ready(
    server: StubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "unproved_pause", lambda _failures: 0.0)
    fill(server)
    mended = threading.Event()
    faults: list[bool] = []
    made = threading.Event()

    def broken(raw: Mapping[str, Any], now: float, usage: Any) -> Decided:
        made.wait(PATIENCE_SECONDS)
        faults.append(bool(looping.scheduler.fault()))
        if mended.is_set():
            return first_fit(raw, now, usage)
        raise RuntimeError("a defect")

    looping = Looping(server, broken)
    made.set()
    routes = public_routes(looping.registry, looping.cache, looping.scheduler)

    def statuses() -> list[int]:
        return [answer.status for path in ("/healthz", "/readyz") if (answer := routes[path](""))]

    def last_success() -> float | None:
        return looping.registry.get_sample_value("kai_cp_last_cycle_success_timestamp_seconds")

    until(looping.scheduler.fault)
    assert (statuses(), last_success()) == ([500, 503], 0.0)
    until(lambda: len(faults) > FAILED_CYCLES)
    assert faults[: FAILED_CYCLES + 1] == [False] * FAILED_CYCLES + [True]
    mended.set()
    server.put(r.PODS, pod("p"))
    until(last_success)
    until(lambda: not looping.scheduler.fault())
    assert statuses() == [200, 200]
    looping.close()


def test_held_pods_come_back_by_themselves(server: StubServer) -> None:
    fill(server)
    server.put(r.PODS, pod("p"))
    server.faults = lambda m, p: (422, {}) if m == "POST" and "bindrequests" in p else None
    looping = Looping(server)
    looping.backoff._first = 0.2  # noqa: SLF001
    until(lambda: len(server.requests("POST", "bindrequests")) >= 2)
    server.faults = lambda _m, _p: None
    until(lambda: server.get(r.BIND_REQUESTS, "ns", "p"))
    looping.close()


def test_binding_goes_on_by_itself_once_another_scheduler_is_silent(server: StubServer) -> None:
    fill(server)
    looping = Looping(server)
    looping.live.rivals._hold_seconds = 0.5  # noqa: SLF001
    until(lambda: looping.scheduler.cycles.all())
    server.put(r.BIND_REQUESTS, order("other"))
    until(lambda: looping.live.rivals._text)  # noqa: SLF001
    server.put(r.PODS, pod("p"))
    until(lambda: server.get(r.BIND_REQUESTS, "ns", "p"))
    assert not looping.live.rivals.present()
    looping.close()


def test_the_end_of_a_place_that_is_held_wakes_it(server: StubServer) -> None:
    fill(server)
    looping = Looping(server, lambda raw, now, _: Decided(parse(raw, now=now), Plan()))
    server.put(r.PODS, pod("v", node="n", phase="Running"))
    until(lambda: looping.cache.stores[r.PODS].get(("ns", "v")))
    leaves = evict("v", "n", action="consolidation")
    looping.live.moved.follow(Plan(decisions=(leaves, replace(leaves, kind="Nominate"))), time.time())
    end = looping.live.moved.next_end(time.time())
    assert end is not None
    assert looping.scheduler.cycle() == end
    looping.close()


def test_backoff_doubles_and_is_forgotten() -> None:
    backoff = BindBackoff(first=2.0, longest=10.0)
    assert [backoff.failed("u", 100.0) - 100.0 for _ in range(5)] == [0.0, 2.0, 4.0, 8.0, 10.0]
    assert backoff.held("u", 109.9)
    assert not backoff.held("u", 110.0)
    assert backoff.next_release(105.0) == 110.0
    backoff.succeeded("u")
    assert not backoff.held("u", 101.0)
    assert backoff.next_release(0.0) is None


def test_a_held_pod_reads_as_gated() -> None:
    backoff = BindBackoff()
    backoff.failed("uid-a", NOW)
    assert not backoff.held("uid-a", NOW), "once is nothing"
    backoff.failed("uid-a", NOW)
    raw = snapshot(pods=[pod("a"), pod("b")], nodes=[node("n")], queues=[queue()], podGroups=[group()])
    parsed = parse(backoff.mask(raw, NOW), now=NOW)
    assert {p.key.name: p.status for p in parsed.pods} == {"a": PodStatus.GATED, "b": PodStatus.PENDING}
    assert "schedulingGates" not in gated(pod("c", node="n"))["spec"]


def test_when_time_alone_changes_something() -> None:
    item = group("g", 2)
    item["spec"] |= {"stalenessGracePeriod": "30s", "preemptionDelay": "2h"}
    item["metadata"]["creationTimestamp"] = "2027-01-15T07:00:00Z"
    raw = snapshot(
        pods=[pod("a", node="n", phase="Running"), pod("b")],
        nodes=[node("n")],
        queues=[queue()],
        podGroups=[item],
    )
    parsed = parse(raw, now=NOW)
    key = GroupKey("ns", "g")
    waits = Plan(unscheduled=(Unscheduled(key, "X", "x", True),))
    assert next_look(parsed, waits, 120.0) == NOW + 30.05
    whole = Plan(decisions=(bind("b", "n"),), unscheduled=waits.unscheduled)
    assert next_look(parsed, whole, 120.0) == parsed.group_by_key[key].created + 7200.0
    assert next_look(parsed, Plan(decisions=whole.decisions), 120.0) is None
    noted = GroupNotes(failures=Failures(uid_of(parsed, "b"), 3, NOW - 1.0))
    failing = replace(parsed.group_by_key[key], notes=noted, preemption_delay_seconds=0.0)
    assert next_look(replace(parsed, groups=(failing,)), whole, 120.0) == NOW + 15.0


def uid_of(snapshot: Snapshot, name: str) -> str:
    return next(pod.uid for pod in snapshot.pods if pod.key.name == name)


def test_an_unproved_plan_is_looked_at_less_and_less() -> None:
    pauses = [unproved_pause(i) for i in range(8)]
    assert pauses == sorted(pauses)
    assert pauses[0] == 1.0
    assert pauses[-1] == 60.0


def test_rivals_are_told_by_what_they_changed() -> None:
    def seen(**pods: Any) -> Any:
        items = [pod(name, **extra) for name, extra in pods.items()]
        raw = snapshot(pods=items, nodes=[node("n"), node("m")], queues=[queue()], podGroups=[group()])
        return parse(raw, now=NOW)

    comparison = Comparison()
    plan = Plan(decisions=(bind("a", "n"), bind("b", "n")))
    assert comparison.compare(seen(a={}, b={}, c={}), plan).counts == {}
    runs = {"phase": "Running"}
    after = seen(a={"node": "n", **runs}, b={"node": "m", **runs}, c={"node": "m", **runs})
    compared = comparison.compare(after, Plan())
    assert compared.counts == {"same_node": 1, "other_node": 1, "we_would_wait": 1}
    assert compared.differences == ("ns/b: is on m, and would be on n", "ns/c: is on m, and would wait")
    assert comparison.compare(after, Plan()).counts == {}


def test_evictions_of_others_are_compared_once_the_group_tells_of_them() -> None:
    def seen(told: str, *leaving: str) -> Snapshot:
        items = [pod(name, name, node="n", phase="Running") for name in "abc"]
        for item in items:
            if item["metadata"]["name"] in leaving:
                item["metadata"]["deletionTimestamp"] = "2027-01-15T08:00:30Z"
        groups = [group(name) for name in "abc"]
        for item in groups:
            if item["metadata"]["name"] in told:
                stamp = "2027-01-15T08:00:00Z"
                item["metadata"]["annotations"] = {"kai.scheduler/last-eviction-timestamp": stamp}
        return parse(snapshot(pods=items, nodes=[node("n")], queues=[queue()], podGroups=groups), now=NOW)

    comparison = Comparison()
    plan = Plan(decisions=(evict("a", "n", group="a"),))
    assert comparison.compare(seen(""), plan).counts == {}
    assert comparison.compare(seen("", "a", "b", "c"), Plan()).counts == {}
    compared = comparison.compare(seen("ab", "a", "b", "c"), Plan())
    assert compared.counts == {"evicted_too": 1, "we_would_keep": 1}, "c was deleted by its owner"
    assert compared.differences == ("ns/b: is evicted from n, and would stay",)
    assert comparison.compare(seen("ab", "a", "b", "c"), Plan()).counts == {}


class Busy:
    """Whether pods are decided or bound, and how often threads that could write have asked."""

    def __init__(self) -> None:
        self.value = True
        self.asked = 0

    def __call__(self) -> bool:
        self.asked += 1
        return self.value

    def heeded(self) -> None:
        """Wait until threads have asked again; a thread that did not heed the answer has taken a write."""
        before = self.asked
        until(lambda: self.asked > before + 2)


def test_one_report_at_a_time_while_pods_are_bound_and_the_newest_counts() -> None:
    busy = Busy()
    writer = BackgroundWriter(3, busy=busy)
    written: list[str] = []
    open_gate = threading.Event()

    def held() -> None:
        written.append("held")
        open_gate.wait(PATIENCE_SECONDS)

    writer.submit("first", held)
    until(lambda: written == ["held"])
    writer.submit("k", lambda: written.append("old"))
    writer.submit("k", lambda: written.append("new"))
    writer.submit("urgent", lambda: written.append("urgent"), urgent=True)
    until(lambda: "urgent" in written)
    busy.heeded()
    assert (written, writer.waiting()) == (["held", "urgent"], 1), "one thread writes, and what is urgent"
    busy.value = False
    until(lambda: "new" in written)
    open_gate.set()
    assert writer.drain(PATIENCE_SECONDS)
    assert written == ["held", "urgent", "new"]
    writer.stop()


def test_reports_pause_while_something_new_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "PAUSE_SECONDS", 1e9)
    busy = Busy()
    writer = BackgroundWriter(3, busy=busy)
    hurried = [True]
    writer.hurried = lambda: hurried[0]
    written: list[str] = []
    for name in ("first", "second", "third"):
        writer.submit(name, lambda name=name: written.append(name))  # type: ignore[misc]
    until(lambda: written)
    writer.submit("urgent", lambda: written.append("urgent"), urgent=True)
    until(lambda: "urgent" in written)
    busy.heeded()
    assert (written, writer.waiting()) == (["first", "urgent"], 2), "one in a pause, and what is urgent"
    hurried[0] = False
    assert writer.drain(PATIENCE_SECONDS)
    assert written == ["first", "urgent", "second", "third"]
    writer.stop()


def test_reports_come_even_while_pods_are_bound() -> None:
    writer = BackgroundWriter(2, busy=lambda: True)
    written: list[int] = []
    for i in range(20):
        writer.submit(i, lambda i=i: written.append(i))  # type: ignore[misc]
    assert writer.drain(PATIENCE_SECONDS)
    assert written == list(range(20))
    writer.stop()


def test_a_report_that_fails_harms_no_other() -> None:
    writer = BackgroundWriter(1)
    written: list[str] = []

    def fails() -> None:
        raise RuntimeError("inside")

    writer.submit("a", fails)
    writer.submit("b", lambda: written.append("b"))
    assert writer.drain(PATIENCE_SECONDS)
    assert written == ["b"]
    writer.stop()


def flooded(limit: int) -> tuple[BackgroundWriter, list[str]]:
    """A writer whose only thread is blocked while a flood of reports comes, and the victim's two."""
    writer = BackgroundWriter(1, limit=limit)
    written: list[str] = []
    open_gate = threading.Event()
    writer.submit("held", lambda: open_gate.wait(PATIENCE_SECONDS))
    until(lambda: not writer.waiting())
    for i in range(5000):
        writer.submit(i, lambda: written.append("evil"), namespace="evil")
    for i in range(2):
        writer.submit(i, lambda: written.append("victim"), namespace="victim")
    open_gate.set()
    assert writer.drain(PATIENCE_SECONDS)
    writer.stop()
    return writer, written


def test_a_flood_of_reports_of_one_namespace_delays_no_other() -> None:
    writer, written = flooded(20_000)
    assert written[:4] == ["evil", "victim", "evil", "victim"]
    assert (len(written), writer.dropped) == (5002, 0)


def test_the_namespace_that_floods_loses_its_own_reports() -> None:
    writer, written = flooded(10)
    assert sorted(written) == ["evil"] * 8 + ["victim"] * 2
    assert writer.dropped == 4992
