"""Random holders, late and early, among running and waiting jobs: the checker refuses no start."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as examples
from hypothesis import strategies as st

from kai_cp_models.engine import decide
from kai_cp_models.reservations.holders import outranks
from kai_cp_models.snapshot import Snapshot
from tests.support.times import holds, runs, settings, stored, waits, world
from tests.support.worlds import cluster, gpu_bound, node, queue

NAMES = ("n1", "n2", "n3")
MANY = ("n1", "n2", "n3", "n4")
PRIORITIES = st.sampled_from((50, 50, 60, 70))
Draw = Callable[..., Any]


@st.composite
def worlds(draw: Draw) -> Snapshot:
    """Three nodes with up to two jobs each, and two holders whose starts lie around now; some want a port."""
    ports = st.sampled_from(({}, {}, {"host_ports": (("", "TCP", 80),)}))
    members = []
    for name in NAMES:
        for k, gpus in enumerate(draw(st.sampled_from(((), (8,), (4,), (4, 4), (2, 2), (2, 6))))):
            lasts, since = draw(st.sampled_from(("20m", "1h", "90m"))), draw(st.sampled_from((0, 5, 10, 40)))
            may_go = draw(st.integers(0, 4)) > 0
            job = f"{name}-{k}"
            more = {"preemptible": may_go, "priority": 50, "needs": draw(ports)}
            members.append(runs(job, name, gpus, lasts, since=since, **more))
    for k in range(2):
        nodes = draw(st.lists(st.sampled_from(NAMES), min_size=1, unique=True))
        gpus, lasts = draw(st.sampled_from((2, 4, 8))), draw(st.sampled_from(("10m", "1h")))
        start, made = draw(st.sampled_from((-5, 0, 5, 10, 30))), draw(st.sampled_from((-30, -12, -8, -3)))
        held = stored(start, dict.fromkeys(nodes, gpus), made=made)
        more = {"stored": held, "priority": 50, "needs": draw(ports)}
        members.append(waits(f"h{k}", len(nodes), gpus, lasts, reserve=True, waited=60, **more))
    return cluster(nodes=[node(name) for name in NAMES], **world(*members))


@examples(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(worlds())
def test_allocate_evicts_with_a_right_and_holds_what_there_is(
    caplog: pytest.LogCaptureFixture, snapshot: Snapshot
) -> None:
    caplog.clear()
    with caplog.at_level(logging.ERROR):
        decide(snapshot, settings())
    assert [text for text in caplog.messages if text.startswith("allocate")] == []


@st.composite
def busy_worlds(draw: Draw) -> Snapshot:
    """Two queues that share four nodes: holders, rivals that may take their places, backfill."""
    few = draw(st.integers(1, 4))
    queues = [queue("q", quota=gpu_bound(8 * few)), queue("o", quota=gpu_bound(8 * (4 - few)))]
    owner = st.sampled_from(("q", "q", "o"))
    members = []
    for name in MANY:
        for k, gpus in enumerate(draw(st.sampled_from(((), (8,), (4,), (4, 4), (6,), (2,))))):
            preemptible = draw(st.integers(0, 4)) > 0
            more = {"queue": draw(owner), "preemptible": preemptible, "priority": draw(PRIORITIES)}
            lasts = draw(st.sampled_from(("20m", "1h", "90m", None)))
            since = draw(st.sampled_from((0, 5, 10, 40)))
            members.append(runs(f"{name}-{k}", name, gpus, lasts, since=since, **more))
    for k in range(draw(st.integers(1, 3))):
        nodes = draw(st.lists(st.sampled_from(MANY), min_size=1, max_size=3, unique=True))
        gpus, start = draw(st.sampled_from((4, 8))), draw(st.sampled_from((-5, 0, 10, 20)))
        held = stored(start, dict.fromkeys(nodes, gpus), made=-12) if draw(st.integers(0, 4)) else None
        more = {"queue": draw(owner), "priority": draw(st.sampled_from((50, 60))), "stored": held}
        members.append(waits(f"h{k}", len(nodes), gpus, "1h", reserve=True, waited=60, **more))
    for k in range(draw(st.integers(0, 3))):
        more = {"queue": draw(owner), "preemptible": draw(st.booleans()), "priority": draw(PRIORITIES)}
        count, gpus = draw(st.sampled_from(((1, 2), (1, 8), (2, 4))))
        lasts = draw(st.sampled_from(("5m", "20m", None)))
        members.append(waits(f"w{k}", count, gpus, lasts, waited=20 * k, **more))
    return cluster(nodes=[node(name) for name in MANY], queues=queues, **world(*members))


@examples(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(busy_worlds())
def test_no_action_leaves_a_start_without_its_place(
    caplog: pytest.LogCaptureFixture, snapshot: Snapshot
) -> None:
    """Pods move, are preempted and reclaimed, and any action starts holders. Each start that stands has
    its capacity, and ``HigherPriority`` is stated only if such a group runs or was placed.
    """
    caplog.clear()
    with caplog.at_level(logging.ERROR):
        plan = decide(snapshot, settings())
    assert [text for text in caplog.messages if "refused" in text] == []
    for entry in plan.reservations or ():
        assert entry.cause != "OptedOut"
        if entry.cause == "HigherPriority":
            holder = snapshot.group_by_key[entry.group]
            there = {pod.group for pod in snapshot.pods if pod.node} | {one.group for one in plan.decisions}
            assert any(outranks(snapshot.group_by_key[key], holder) for key in there if key is not None)


def test_holders_that_start_together_all_start_or_none_does(caplog: pytest.LogCaptureFixture) -> None:
    """s leaves n1 for h0 and h1. x keeps h0 out by a port, so s leaves for h1 alone."""
    port = {"host_ports": (("", "TCP", 80),)}
    backfill: dict[str, Any] = {"lasts": "1h", "preemptible": True, "priority": 50}
    held = {"reserve": True, "waited": 60, "priority": 50, "stored": stored(0, {"n1": 2}, made=-12)}
    members = world(
        runs("x", "n1", 2, needs=port),
        runs("s", "n1", 6, since=5, **backfill),
        waits("h0", 1, 2, "1h", needs=port, **held),
        waits("h1", 1, 2, "1h", **held),
    )
    with caplog.at_level(logging.ERROR):
        plan = decide(cluster(nodes=[node("n1")], **members), settings())
    assert caplog.messages == []
    assert [(d.pod.name, [one.name for one in d.triggers]) for d in plan.decisions if d.kind == "Evict"] == [
        ("s-0", ["h1"])
    ]
    assert {d.pod.name: d.node for d in plan.decisions if d.kind == "Nominate"} == {"h1-0": "n1"}


QUEUES = [queue("q", quota=gpu_bound(8)), queue("o", quota=gpu_bound(8))]
BACKFILL = {"since": 5, "preemptible": True, "priority": 50}


def test_reclaim_is_judged_on_what_a_start_has_left() -> None:
    """h of o begins on n1, where s of q is evicted. q then holds nothing and o holds 16 with a quota of
    8, so w of q reclaims n2.
    """
    held = stored(0, {"n1": 8}, made=-12)
    members = world(
        runs("s", "n1", queue="q", **BACKFILL),
        runs("x", "n2", queue="o", **{**BACKFILL, "since": 60}),
        waits("h", 1, lasts="1h", reserve=True, waited=60, queue="o", stored=held, priority=50),
        waits("w", 1, waited=5, queue="q", priority=60),
    )
    chosen = settings(reservations={"within": "limit"})
    nodes = [node("n1"), node("n2")]
    plan = decide(cluster(nodes=nodes, queues=QUEUES, **members), chosen)
    assert [(d.pod.name, d.action) for d in plan.decisions if d.kind == "Evict"] == [
        ("s-0", "reservation"),
        ("x-0", "reclaim"),
    ]
    assert {d.pod.name: d.node for d in plan.decisions if d.kind == "Nominate"} == {"h-0": "n1", "w-0": "n2"}


def test_a_start_that_has_come_is_not_withdrawn_by_another_queue(caplog: pytest.LogCaptureFixture) -> None:
    """h of q begins on three nodes, where s of q is evicted. w of o may take from it, but not at once."""
    held = stored(0, {"n1": 8, "n2": 8, "n4": 8}, made=-12)
    members = world(
        runs("s", "n1", lasts="20m", since=0, preemptible=True, priority=50),
        runs("x", "n3", 4, "20m", since=0, queue="o"),
        waits("h", 3, lasts="1h", reserve=True, waited=60, stored=held, priority=60),
        waits("w", 1, lasts="5m", waited=20, queue="o", preemptible=False, priority=70),
    )
    queues = [queue("q", quota=gpu_bound(16)), queue("o", quota=gpu_bound(16))]
    with caplog.at_level(logging.ERROR):
        plan = decide(cluster(nodes=[node(name) for name in MANY], queues=queues, **members), settings())
    assert caplog.messages == []
    assert holds(plan)["h"][0] == "started"
    assert [(d.pod.name, d.action) for d in plan.decisions if d.kind == "Evict"] == [("s-0", "reservation")]


def test_a_start_gives_way_to_a_higher_priority_of_its_queue() -> None:
    """The same with vip of h's own queue, which could preempt h if h ran: vip starts, and h starts later."""
    held = stored(0, {"n1": 8, "n2": 8}, made=-12)
    members = world(
        runs("s", "n1", queue="q", **BACKFILL),
        waits("h", 2, lasts="1h", reserve=True, waited=60, queue="q", stored=held, priority=50),
        waits("vip", 1, lasts="1h", waited=5, queue="q", priority=60),
    )
    plan = decide(cluster(nodes=[node("n1"), node("n2")], queues=[queue("q")], **members), settings())
    assert "vip-0" in {d.pod.name for d in plan.decisions if d.kind in ("Bind", "Nominate")}
