"""Promised places: a pod that waits with a nominated node is served there first, within all limits (4.2)."""

from __future__ import annotations

from typing import Any

import pytest

from kai_cp_models.explain.position import FairLine
from kai_cp_models.explain.situation import Situation
from kai_cp_models.plan import Plan
from kai_cp_models.pods import GroupKey, Pod, PodStatus
from kai_cp_models.queries.shares import waiting_line
from kai_cp_models.snapshot import Snapshot
from tests.support.plans import SETTINGS, bound, evicted, nominated, placed, solved
from tests.support.worlds import PLUGINS, cluster, gpu_bound, group, node, pod, pods, queue

RULED = PLUGINS | {"nominatednode"}
ONE = node("n1", gpus=1)
FULL = node("n2", gpus=0)


def world(*waiting: Pod, **more: Any) -> Snapshot:
    """Group t of queue a and group b of queue b wait; b comes first by the priority of its queue."""
    values: dict[str, Any] = {
        "groups": [group("t", queue="a"), group("b", queue="b")],
        "nodes": [ONE, FULL],
        "queues": [queue("a"), queue("b", priority=200)],
        "plugins": RULED,
    }
    return cluster([*waiting, pod("b-0")], **{**values, **more})


@pytest.mark.parametrize(
    ("node_name", "plugins", "first"),
    [
        (None, RULED, "b-0"),
        ("n1", RULED, "t-0"),
        # It names no node of the cluster, or one that does not take it: it waits in its turn.
        ("gone", RULED, "b-0"),
        ("n2", RULED, "b-0"),
        # The plugin is what reads the name.
        ("n1", PLUGINS, "b-0"),
    ],
)
def test_the_group_that_is_promised_the_place_gets_it(
    node_name: str | None, plugins: frozenset[str], first: str
) -> None:
    assert bound(solved(world(pod("t-0", nominated_node=node_name), plugins=plugins))) == {first: "n1"}


def test_a_promise_lasts_while_the_place_is_being_freed() -> None:
    """v is leaving. No pod is evicted again for t, and b does not get its place."""
    leaving = pod("v-0", "n1", status=PodStatus.RELEASING)
    plan = solved(world(leaving, pod("t-0", nominated_node="n1")))
    assert (nominated(plan), bound(plan), evicted(plan)) == ({"t-0": "n1"}, {}, set())


def test_a_gang_is_promised_its_places_when_each_of_its_pods_is() -> None:
    """b takes one of two GPUs first where only one pod of t has a promise; t waits, as it starts together."""
    two = {"nodes": [node("n1", gpus=2)], "groups": [group("t", 2, queue="a"), group("b", queue="b")]}
    half = world(pod("t-0", nominated_node="n1"), pod("t-1"), **two)
    assert placed(solved(half)) == {"b-0"}
    whole = world(*pods("t", 2, nominated_node="n1"), **two)
    assert placed(solved(whole)) == {"t-0", "t-1"}


def test_pods_beyond_the_minimum_need_no_promise() -> None:
    """t needs one pod and has one more. Its first pod comes first, its second one after b."""
    nodes = [node("n1", gpus=2)]
    plan = solved(world(pod("t-0", nominated_node="n1"), pod("t-1", created=1.0), nodes=nodes))
    assert placed(plan) == {"t-0", "b-0"}


def test_a_promise_is_kept_within_the_limits_of_queues() -> None:
    """The limit of a was lowered to nothing meanwhile."""
    queues = [queue("a", limit=gpu_bound(0)), queue("b", priority=200)]
    assert bound(solved(world(pod("t-0", nominated_node="n1"), queues=queues))) == {"b-0": "n1"}


@pytest.mark.parametrize(("preemptible", "first"), [(True, "h-0"), (False, "t-0")])
def test_a_promised_place_goes_to_a_group_that_may_preempt(preemptible: bool, first: str) -> None:
    """h came after t was promised the place, and has a higher priority in the same queue. Nothing runs in the
    place, so nothing is evicted."""
    groups = [
        group("t", queue="a", preemptible=preemptible),
        group("h", queue="a", priority=75),
        group("b", queue="b"),
    ]
    plan = solved(world(pod("t-0", nominated_node="n1"), pod("h-0"), groups=groups))
    assert (placed(plan), evicted(plan)) == ({first}, set())


def test_those_with_promises_are_served_in_the_fair_order() -> None:
    """One GPU is left of two that were promised."""
    promised = {"nominated_node": "n1"}
    snapshot = cluster(
        [pod("t-0", **promised), pod("b-0", **promised)],
        [group("t", queue="a"), group("b", queue="b")],
        [ONE],
        [queue("a"), queue("b", priority=200)],
        plugins=RULED,
    )
    assert bound(solved(snapshot)) == {"b-0": "n1"}


def test_explanations_name_the_promise() -> None:
    """b is behind t, whose queue is behind its own otherwise; u of the same queue has the higher priority."""
    groups = [group("t", queue="a"), group("u", queue="a", priority=75), group("b", queue="b")]
    snapshot = world(pod("t-0", nominated_node="n1"), pod("u-0"), groups=groups)
    assert [one.group.key.name for one in waiting_line(snapshot)] == ["t", "b", "u"]
    line = FairLine(Situation(snapshot, SETTINGS, Plan()))
    assert [key.name for key in line.order] == ["t", "b", "u"]
    ahead = {name: line.position(GroupKey("ns", name)).ahead[0] for name in ("b", "u")}
    assert [one.group.name for one in ahead.values()] == ["t", "t"]
    assert ahead["b"].because == "queue a has a group with promised places"
    assert ahead["u"].because == "its places are promised"
