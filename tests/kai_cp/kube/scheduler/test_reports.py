"""Reasons are written only when they change; events are never repeated."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import pytest

from kai_cp import keys
from kai_cp.json_types import Object
from kai_cp.kube.api import resources as r
from kai_cp.kube.api.api_objects import rfc3339
from kai_cp.kube.scheduler.options import Mode
from kai_cp.kube.scheduler.reports import GROUPING_SECONDS, REWRITE_SECONDS, Lately, Reporter
from kai_cp.reader import parse
from kai_cp_models.plan import Plan, Reservation, Unscheduled
from kai_cp_models.pods import GroupKey
from tests.kai_cp.kube.conftest import PATIENCE_SECONDS, until
from tests.kai_cp.kube.samples import bind, group, node, pod, queue
from tests.kai_cp.kube.scheduler.conftest import Setup
from tests.kai_cp.kube.scheduler.test_group_annotations import held_writer
from tests.kai_cp.kube.stub import StubServer

WAITS = Plan(unscheduled=(Unscheduled(GroupKey("ns", "g"), "OverLimit", "needs 2, limit 1", True),))


class Reporting(Setup):
    def __init__(self, server: StubServer, **options: Any) -> None:
        super().__init__(server, **options)
        self.now = 1_800_000_000.0
        self.reporter = Reporter(
            server.transport(),
            self.cache,
            self.live,
            self.options,
            self.live._recorder,  # noqa: SLF001
            writer=self.writer,
            clock=lambda: self.now,
        )

    def report(self, plan: Plan) -> float | None:
        until(lambda: self.cache.stores[r.PODS].all())
        answer = self.reporter.report(parse(self.live.snapshot(), now=self.now), plan)
        assert self.writer.drain(PATIENCE_SECONDS)
        return answer

    def writes(self) -> int:
        return sum(method != "GET" for method, _, _ in self.server.log)

    def condition(self) -> Any:
        found = self.server.get(r.POD_GROUPS, "ns", "g")
        assert found is not None
        return (found.get("status") or {}).get("schedulingConditions")


@pytest.fixture
def reporting(server: StubServer) -> Iterator[Reporting]:
    for name in ("a", "b"):
        server.put(r.PODS, pod(name))
    server.put(r.NODES, node("n"))
    server.put(r.QUEUES, queue())
    server.put(r.POD_GROUPS, group("g", 2))
    made = Reporting(server)
    yield made
    made.close()


def test_a_later_object_of_the_name_is_told_nothing(reporting: Reporting) -> None:
    """No reason is written to a pod or a pod group that was made again since it was decided, or since it was
    to be written.
    """
    store, now = reporting.cache.stores[r.POD_GROUPS], reporting.now
    seen = parse(reporting.live.snapshot(), now=now)
    gate = held_writer(reporting)
    reporting.reporter.report(seen, WAITS)
    for name in ("a", "b"):
        reporting.server.put(
            r.PODS, {**pod(name), "metadata": {**pod(name)["metadata"], "uid": f"later-{name}"}}
        )
    fresh = group("g", 2)
    fresh["metadata"]["uid"] = "later"
    reporting.server.put(r.POD_GROUPS, fresh)
    until(lambda: (store.get(("ns", "g")) or {})["metadata"]["uid"] == "later")
    pods = reporting.cache.stores[r.PODS]
    until(lambda: {one["metadata"]["uid"] for one in pods.all()} == {"later-a", "later-b"})
    gate.set()
    assert reporting.writer.drain(PATIENCE_SECONDS)
    assert not reporting.condition()
    said = len(reporting.server.requests("POST", "events"))
    reporting.reporter.report(seen, WAITS)
    assert reporting.writer.drain(PATIENCE_SECONDS)
    assert len(reporting.server.requests("POST", "events")) == said
    assert not reporting.condition()
    for name in ("a", "b"):
        assert not ((reporting.server.get(r.PODS, "ns", name) or {})["status"].get("conditions"))


def test_a_waiting_gang_says_why_once(reporting: Reporting) -> None:
    reporting.report(WAITS)
    condition = reporting.condition()[0]
    assert condition["type"] == "UnschedulableOnNodePool"
    assert condition["nodePool"] == "default"
    assert condition["transitionID"] == "1"
    assert condition["reasons"] == [{"reason": "OverLimit", "message": "needs 2, limit 1"}]
    found = reporting.server.get(r.PODS, "ns", "a")
    assert found is not None
    assert found["status"]["conditions"][0]["reason"] == "Unschedulable"
    before = reporting.writes()
    for _ in range(3):
        reporting.report(WAITS)
    assert reporting.writes() == before


def test_another_reason_is_another_transition(reporting: Reporting) -> None:
    reporting.report(WAITS)
    reporting.report(Plan(unscheduled=(Unscheduled(GroupKey("ns", "g"), "NodeFragmented", "x", True),)))
    condition = reporting.condition()
    assert [entry["transitionID"] for entry in condition] == ["2"]
    assert condition[0]["reasons"][0]["reason"] == "NodeFragmented"


def test_a_message_that_flutters_is_written_seldom(reporting: Reporting) -> None:
    def waits(message: str) -> Plan:
        return Plan(unscheduled=(Unscheduled(GroupKey("ns", "g"), "OverLimit", message, True),))

    reporting.report(waits("1"))
    again = reporting.report(waits("2"))
    assert reporting.condition()[0]["message"] == "1"
    assert again == reporting.now + 30.0

    def told() -> set[tuple[str, str]]:
        events = reporting.server.requests("POST", "events")
        return {(body["involvedObject"]["name"], body["message"]) for body in events}

    assert told() == {("a", "1"), ("b", "1"), ("g", "1")}
    reporting.now += 31.0
    reporting.report(waits("2"))
    assert reporting.condition()[0]["message"] == "2"
    assert told() == {(name, words) for name in "abg" for words in "12"}


def test_all_writes_of_half_a_minute_are_known() -> None:
    """A large cluster has more pods that wait than any limit of a memory would keep."""
    now = 0.0
    lately = Lately(lambda: now)
    for i in range(60_000):
        lately.put(i, "OverLimit")
    now = REWRITE_SECONDS / 2
    lately.put("later", "OverLimit")
    assert lately.get(0) == ("OverLimit", REWRITE_SECONDS)
    now = REWRITE_SECONDS
    lately.put("last", "OverLimit")
    assert lately.get(0) is None
    assert list(lately._until) == ["later", "last"], "what is too old takes no memory"  # noqa: SLF001
    # A plain dict walks over all that left before it finds its first entry: 200,000 that left took 16 s.
    assert isinstance(lately._until, OrderedDict)  # noqa: SLF001


def test_a_changed_reason_is_reported_at_once(reporting: Reporting) -> None:
    reporting.report(Plan(unscheduled=(Unscheduled(GroupKey("ns", "g"), "NotReady", "1 of 2", True),)))
    assert reporting.report(Plan(unscheduled=(Unscheduled(GroupKey("ns", "g"), "NotReady", "2 of 3", True),)))
    reporting.report(WAITS)
    events = reporting.server.requests("POST", "events")
    about = [(e["reason"], e["message"]) for e in events if e["involvedObject"]["name"] == "g"]
    assert about == [("NotReady", "1 of 2"), ("Unschedulable", "needs 2, limit 1")]


def test_the_condition_goes_when_nothing_waits(reporting: Reporting) -> None:
    reporting.report(WAITS)
    reporting.report(Plan(decisions=(bind("a", "n"), bind("b", "n"))))
    assert reporting.condition(), "the pods are not bound yet"
    for name in ("a", "b"):
        reporting.server.put(r.PODS, pod(name, node="n", phase="Running"))
    until(lambda: all(p["spec"].get("nodeName") for p in reporting.cache.stores[r.PODS].all()))
    reporting.report(Plan())
    assert reporting.condition() == []


def test_an_unfinished_search_marks_no_group(reporting: Reporting) -> None:
    before = reporting.writes()
    reporting.report(Plan(unscheduled=(Unscheduled(GroupKey("ns", "g"), "NotDecidedInTime", "x", False),)))
    assert reporting.writes() == before


def test_a_gang_that_is_not_ready_has_an_event_only(reporting: Reporting) -> None:
    reporting.report(Plan(unscheduled=(Unscheduled(GroupKey("ns", "g"), "NotReady", "1 of 2", True),)))
    assert reporting.condition() is None
    assert [body["reason"] for body in reporting.server.requests("POST", "events")] == ["NotReady"]


def test_groups_that_want_no_marks(reporting: Reporting) -> None:
    item = group("g", 2)
    item["spec"]["markUnschedulable"] = False
    reporting.server.put(r.POD_GROUPS, item)
    until(lambda: "markUnschedulable" in reporting.cache.stores[r.POD_GROUPS].all()[0]["spec"])
    reporting.report(WAITS)
    found = reporting.server.get(r.PODS, "ns", "a")
    assert found is not None
    assert "conditions" not in found["status"]
    assert reporting.condition()


def test_a_stale_gang_is_timed_and_forgiven(reporting: Reporting) -> None:
    reporting.server.put(r.PODS, pod("a", node="n", phase="Running"))
    until(lambda: any(p["spec"].get("nodeName") for p in reporting.cache.stores[r.PODS].all()))
    reporting.report(WAITS)
    found = reporting.server.get(r.POD_GROUPS, "ns", "g")
    assert found is not None
    assert "kai.scheduler/stale-podgroup-timestamp" in found["metadata"]["annotations"]
    reporting.server.put(r.PODS, pod("b", node="n", phase="Running"))
    until(lambda: all(p["spec"].get("nodeName") for p in reporting.cache.stores[r.PODS].all()))
    reporting.report(Plan())
    found = reporting.server.get(r.POD_GROUPS, "ns", "g")
    assert found is not None
    assert "kai.scheduler/stale-podgroup-timestamp" not in found["metadata"]["annotations"]


def test_bad_objects_have_an_event(reporting: Reporting) -> None:
    bad = group("bad")
    bad["spec"]["preemptibility"] = "perhaps"
    reporting.server.put(r.POD_GROUPS, bad)
    until(lambda: len(reporting.cache.stores[r.POD_GROUPS]) == 2)
    for _ in range(2):
        reporting.report(Plan())
    events = [b for b in reporting.server.requests("POST", "events") if b["reason"] == "SetAside"]
    assert [event["involvedObject"]["name"] for event in events] == ["bad"]


def test_a_new_pod_may_wait_for_its_pod_group_in_silence(reporting: Reporting) -> None:
    """One of two gets its pod group, of which the cache knows before the next cycle; the other gets none."""

    def new(name: str, group: str) -> Object:
        made = pod(name, group)
        made["metadata"]["creationTimestamp"] = rfc3339(reporting.now)
        reporting.server.put(r.PODS, made)
        until(lambda: reporting.cache.stores[r.PODS].get(("ns", name)) is not None)
        return made

    def told() -> list[str]:
        events = [b for b in reporting.server.requests("POST", "events") if b["reason"] == "SetAside"]
        return [event["involvedObject"]["name"] for event in events]

    def group_of(name: str) -> str:
        found = reporting.cache.stores[r.PODS].get(("ns", name))
        return "" if found is None else found["metadata"]["annotations"][keys.POD_GROUP]

    new("late", "")
    new("lost", "")
    before = parse(reporting.live.snapshot(), now=reporting.now)
    new("late", "g")
    until(lambda: group_of("late") == "g")
    due = reporting.reporter.report(before, Plan())
    assert due == reporting.now + GROUPING_SECONDS
    assert told() == []
    reporting.now = due
    reporting.report(Plan())
    assert told() == ["lost"]


def test_observing_writes_nothing(server: StubServer) -> None:
    server.put(r.PODS, pod("a"))
    server.put(r.POD_GROUPS, group())
    server.put(r.QUEUES, queue())
    setup = Reporting(server, mode=Mode.OBSERVE)
    before = setup.writes()
    setup.report(WAITS)
    assert setup.writes() == before
    setup.close()


def held(state: str, start: float = 1_800_001_800.5, **more: Any) -> Plan:
    entry = Reservation(
        GroupKey("ns", "g"),
        "q",
        state,  # type: ignore[arg-type]
        start=start,
        promised=start,
        made=1_800_000_000.7,
        nodes={"n": 8.0},
        **more,
    )
    return Plan(reservations=(entry,))


def annotation(reporting: Reporting) -> Any:
    found = reporting.server.get(r.POD_GROUPS, "ns", "g")
    assert found is not None
    text = (found["metadata"].get("annotations") or {}).get("kai-cp/reservation")
    return None if text is None else json.loads(text)


def test_a_promise_is_written_on_change_only_and_goes_when_it_is_dropped(reporting: Reporting) -> None:
    reporting.report(held("made"))
    stored = annotation(reporting)
    assert stored == {
        "schema": "reservation/1",
        "start": "2027-01-15T08:30:01Z",  # Half a second after the start, never earlier.
        "promised": "2027-01-15T08:30:01Z",
        "made": "2027-01-15T08:00:00Z",
        "nodes": {"n": 8},
    }
    until(lambda: b"reservation/1" in str(reporting.live.snapshot()).encode())
    written = reporting.writes()
    reporting.report(held("kept"))
    assert reporting.writes() == written
    reporting.report(held("started"))
    assert annotation(reporting) is None
    reporting.report(held("dropped", expired=1_800_000_000.0))
    assert annotation(reporting) == {"schema": "reservation/1", "expired": "2027-01-15T08:00:00Z"}


def test_a_hold_that_a_user_edits_is_written_again_as_it_was_decided(reporting: Reporting) -> None:
    reporting.report(held("made"))
    group_ = reporting.server.get(r.POD_GROUPS, "ns", "g")
    assert group_ is not None
    group_["metadata"]["annotations"]["kai-cp/reservation"] = "{"
    reporting.server.put(r.POD_GROUPS, group_)
    until(lambda: "'{'" in str(reporting.live.snapshot()))
    reporting.report(held("made"))
    assert annotation(reporting)["nodes"] == {"n": 8}


def test_switched_off_no_annotation_is_touched(reporting: Reporting) -> None:
    group_ = reporting.server.get(r.POD_GROUPS, "ns", "g")
    assert group_ is not None
    group_["metadata"].setdefault("annotations", {})["kai-cp/reservation"] = "mine"
    reporting.server.put(r.POD_GROUPS, group_)
    until(lambda: "mine" in str(reporting.live.snapshot()))
    reporting.report(Plan())
    found = reporting.server.get(r.POD_GROUPS, "ns", "g")
    assert found is not None
    assert found["metadata"]["annotations"]["kai-cp/reservation"] == "mine"
