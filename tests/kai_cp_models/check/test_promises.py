"""Who may take promised places, as the checker judges it (4.2)."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import Any

import pytest

from kai_cp_models.check import audit
from kai_cp_models.plan import Decision, Unscheduled
from kai_cp_models.pods import GroupKey, PodStatus
from kai_cp_models.snapshot import Snapshot
from tests.support.worlds import (
    PLUGINS,
    bind,
    cluster,
    evict,
    gpu_bound,
    group,
    judged,
    named,
    node,
    nominate,
    plan,
    pod,
    queue,
    spec,
)

_ON = PLUGINS | {"nominatednode"}


def _world(g: dict[str, Any] | None = None, h: dict[str, Any] | None = None, **more: Any) -> Snapshot:
    """g is nominated to n1, and h waits for as much; all of n1 is idle unless ``more`` says so."""
    size = spec(8)
    waiting = [pod("g-0", spec=size, nominated_node="n1", created=5.0), pod("h-0", spec=size)]
    groups = [group("g", **{"priority": 50, "created": 5.0, **(g or {})}), group("h", **(h or {}))]
    return cluster([*waiting, *more.pop("pods", ())], groups, **{"plugins": _ON, **more})


_TAKEN = (bind("h-0"),)


@pytest.mark.parametrize(
    ("more", "fault"),
    [
        ({}, True),
        # The priority of h matters to preempt alone, and its queue to nothing.
        ({"h": {"priority": 90}}, True),
        ({"h": {"queue": "o"}, "queues": [queue(), queue("o")]}, True),
        # Nothing is promised: the plugin is off, the node takes no pods, g is beyond a limit, or not ready.
        ({"plugins": PLUGINS}, False),
        ({"g": {"queue": "o"}, "queues": [queue(), queue("o", limit=gpu_bound(4))]}, False),
        ({"g": {"minimum": 2}}, False),
        ({"g": {"backed_off": True}}, False),
        # h came at its turn, as preempt has its turn first and evicts for it.
        ({"actions": ("preempt", "allocate")}, False),
    ],
)
def test_promised_places_go_to_no_other_group(more: dict[str, Any], fault: bool) -> None:
    faults = judged(_world(**more), *_TAKEN)
    assert named(faults, "promises", "ns/g", "ns/h") is fault
    assert bool(faults) is fault


@pytest.mark.parametrize("limit", ["MOST_DECISIONS", "MOST_PLANS"])
def test_a_large_plan_is_compared_with_no_other(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each other plan is checked as a whole, so that many of them would outlast the cycle."""
    monkeypatch.setattr(import_module("kai_cp_models.check.audit"), limit, 0)
    assert judged(_world(), *_TAKEN) == []


@pytest.mark.parametrize(
    ("decisions", "fault"),
    [
        ([bind("g-0")], False),
        ([bind("g-0", "n2"), bind("h-0")], False),
        ([], False),
        ([bind("h-0", "n2")], False),
        ([bind("h-0")], True),
    ],
)
def test_the_group_may_get_other_places(decisions: list[Decision], fault: bool) -> None:
    faults = judged(_world(nodes=[node(), node("n2")]), *decisions)
    assert named(faults, "promises", "ns/g") is fault
    assert bool(faults) is fault


def test_a_node_that_takes_no_pods_promises_none() -> None:
    snapshot = _world(nodes=[node("n1", labels={"kind": "old"}), node("n2")])
    g = snapshot.pods[0]
    elsewhere = replace(g, spec=spec(8, node_selector=(("kind", "new"),)))
    assert judged(replace(snapshot, pods=(elsewhere, *snapshot.pods[1:])), *_TAKEN) == []


def test_a_promise_is_of_what_others_leave() -> None:
    """n1 empties by itself. h is nominated there, too, and g, which was promised it, gets nothing."""
    snapshot = _world(pods=[pod("r-0", "n1", spec=spec(8), status=PodStatus.RELEASING)])
    assert named(judged(snapshot, nominate("h-0")), "promises", "ns/g", "ns/h")
    assert judged(snapshot, nominate("g-0")) == []


def test_a_later_action_may_have_a_right_to_promised_places() -> None:
    """v leaves n1 for h, which preempts; its 4 GPUs with the 4 that g was promised are what h needs."""
    size = spec(4)
    snapshot = cluster(
        [
            pod("g-0", spec=size, nominated_node="n1", created=5.0),
            pod("h-0", spec=spec(8)),
            pod("v-0", "n1", spec=size),
        ],
        [group("g", created=5.0), group("h", priority=90), group("v", priority=10)],
        plugins=_ON,
    )
    assert judged(snapshot, evict("v-0", "preempt", "h"), nominate("h-0", action="preempt")) == []


@pytest.mark.parametrize(("gpus", "fault"), [(4, True), (8, False)])
def test_other_groups_keep_what_they_were_promised_too(gpus: int, fault: bool) -> None:
    """h has 4 of 8 GPUs of n1 that it was promised, and a pod beyond its minimum has the others: all that g
    may have there.
    """
    snapshot = cluster(
        [
            pod("g-0", spec=spec(gpus), nominated_node="n1"),
            pod("h-0", spec=spec(4), nominated_node="n1"),
            pod("h-1", spec=spec(4), created=1.0),
        ],
        [group("g"), group("h")],
        plugins=_ON,
    )
    faults = judged(snapshot, bind("h-0"), bind("h-1"))
    assert named(faults, "promises", "ns/g", "ns/h") is fault
    assert bool(faults) is fault


@pytest.mark.parametrize(("gpus", "fault"), [(4, True), (8, False)])
def test_a_later_action_may_take_back_other_places_of_the_group(gpus: int, fault: bool) -> None:
    """Allocate gives h what g was promised on n1, and reclaim gives w GPUs of n2. If these are all, they may
    be what g had instead.
    """
    size = spec(4)
    snapshot = cluster(
        [
            pod("g-0", spec=size, nominated_node="n1"),
            pod("h-0", spec=spec(8)),
            pod("w-0", spec=spec(gpus), created=1.0),
        ],
        [group("g"), group("h"), group("w", queue="o")],
        [node("n1"), node("n2")],
        [queue(), queue("o")],
        plugins=_ON,
    )
    faults = judged(snapshot, bind("h-0"), bind("w-0", "n2", "reclaim"))
    assert named(faults, "promises", "ns/g", "ns/h") is fault
    assert bool(faults) is fault


def test_a_group_that_was_left_alone_has_no_promise() -> None:
    """Plans with g failed: what it was promised is free, and no plan is refused for it."""
    snapshot, key = _world(), GroupKey("ns", "g")
    assert audit(snapshot, plan(*_TAKEN))
    assert audit(snapshot, plan(*_TAKEN), left_out=[key]) == []
    told = replace(plan(*_TAKEN), unscheduled=(Unscheduled(key, "InternalError", "", False),))
    assert audit(snapshot, told) == []
