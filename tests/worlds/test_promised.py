"""Promised places: a pod that waits with a nominated node is served there first, within all limits (4.2)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from kai_cp_models.check import violations
from kai_cp_models.engine import decide
from kai_cp_models.explain.position import FairLine
from kai_cp_models.explain.situation import Situation
from kai_cp_models.plan import Plan
from kai_cp_models.pods import GroupKey, Pod, PodStatus
from kai_cp_models.queries.shares import waiting_line
from kai_cp_models.reservations.prepare import prepare
from kai_cp_models.snapshot import Queue, Shares, Snapshot
from tests.support.plans import SETTINGS, bound, evicted, nominated, placed, reasons, solved
from tests.support.times import holds, runs, settings, stored, waits, written
from tests.support.times import world as timed
from tests.support.worlds import (
    NOW,
    PLUGINS,
    cluster,
    fraction,
    gpu_bound,
    group,
    node,
    pod,
    pods,
    queue,
    spec,
)

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


@pytest.mark.parametrize(
    ("priority", "starts", "waits_on"),
    [(50, {"t-0": "n2"}, {"b-0": "n1"}), (200, {"b-0": "n2"}, {"t-0": "n1"})],
)
def test_a_promise_is_no_duty_to_wait_and_no_right_to_other_places(
    priority: int, starts: dict[str, str], waits_on: dict[str, str]
) -> None:
    """n2 is idle while v leaves n1: t starts there if it comes before b in the fair order without its
    promise; b takes over what is being freed."""
    leaving = pod("v-0", "n1", status=PodStatus.RELEASING)
    more = {"nodes": [ONE, node("n2", gpus=1)], "queues": [queue("a"), queue("b", priority=priority)]}
    plan = solved(world(leaving, pod("t-0", nominated_node="n1"), **more))
    assert (bound(plan), nominated(plan)) == (starts, waits_on)


def test_a_gang_that_cannot_start_elsewhere_as_a_whole_waits_for_its_places() -> None:
    nodes, queues = [node(name, gpus=1) for name in ("n1", "n2", "n3")], [queue("a"), queue("b", priority=50)]
    leaving = [pod(f"v-{i}", f"n{i}", status=PodStatus.RELEASING) for i in (1, 3)]
    both = (pod("t-0", nominated_node="n1"), pod("t-1", nominated_node="n3"))
    groups = [group("t", 2, queue="a"), group("b", queue="b")]
    plan = solved(world(*leaving, *both, nodes=nodes, groups=groups, queues=queues))
    assert (bound(plan), nominated(plan)) == ({"b-0": "n2"}, {"t-0": "n1", "t-1": "n3"})


def test_a_surplus_pod_waits_for_the_start_of_its_gang() -> None:
    """n2 is idle for t-2, but the two pods that t needs wait for n1."""
    nodes, groups = (
        [node("n1", gpus=2), node("n2", gpus=1)],
        [group("t", 2, queue="a"), group("b", queue="b")],
    )
    needed = pods("t", 2, nominated_node="n1")
    leaving = pods("v", 2, "n1", status=PodStatus.RELEASING)
    third = pod("t-2", nominated_node="n2", created=1.0)
    plan = solved(world(*leaving, *needed, third, nodes=nodes, groups=groups))
    assert (bound(plan), nominated(plan)) == ({}, {"t-0": "n1", "t-1": "n1", "t-2": "n2"})


def test_a_gang_is_promised_its_places_when_each_of_its_pods_is() -> None:
    """b takes one of two GPUs first where only one pod of t has a promise; t waits, as it starts together."""
    two = {"nodes": [node("n1", gpus=2)], "groups": [group("t", 2, queue="a"), group("b", queue="b")]}
    half = world(pod("t-0", nominated_node="n1"), pod("t-1"), **two)
    assert placed(solved(half)) == {"b-0"}
    whole = world(*pods("t", 2, nominated_node="n1"), **two)
    assert placed(solved(whole)) == {"t-0", "t-1"}


@pytest.mark.parametrize(("gpus", "first"), [(2, {"t-0", "t-1"}), (1, {"b-0"})])
def test_a_gang_is_promised_its_places_together(gpus: int, first: set[str]) -> None:
    """Each pod of t fits on n1. Where both do not, t has no promise, and its turn comes after b."""
    nodes = [node("n1", gpus=gpus), node("n2", gpus=1)]
    groups = [group("t", 2, queue="a"), group("b", queue="b")]
    plan = solved(world(*pods("t", 2, nominated_node="n1"), nodes=nodes, groups=groups))
    assert first <= placed(plan)
    assert ("t-0" in placed(plan)) == ("t-0" in first)


def test_pods_beyond_the_minimum_need_no_promise() -> None:
    """t needs one pod and has one more. Its first pod comes first, its second one after b."""
    nodes = [node("n1", gpus=2)]
    plan = solved(world(pod("t-0", nominated_node="n1"), pod("t-1", created=1.0), nodes=nodes))
    assert placed(plan) == {"t-0", "b-0"}


def test_a_promise_is_kept_within_the_limits_of_queues() -> None:
    """The limit of a was lowered to nothing meanwhile."""
    queues = [queue("a", limit=gpu_bound(0)), queue("b", priority=200)]
    assert bound(solved(world(pod("t-0", nominated_node="n1"), queues=queues))) == {"b-0": "n1"}


NONE = gpu_bound(0)


@pytest.mark.parametrize(
    ("quota", "minimum_seconds", "first"),
    [
        # a holds more than its quota with t, and b no more than its own: r-0 would be next, as it runs.
        (NONE, 0.0, "b-0"),
        # Within its quota a keeps what it is promised; and a promise protects as a start does.
        (gpu_bound(2), 0.0, "t-0"),
        (NONE, 60.0, "t-0"),
    ],
)
def test_reclaim_takes_a_promised_place_as_if_its_pod_ran(
    quota: Shares, minimum_seconds: float, first: str
) -> None:
    leaving = pod("v-0", "n1", status=PodStatus.RELEASING)
    queues = [
        queue("a", quota=quota, reclaim_min_runtime_seconds=minimum_seconds, priority=200),
        queue("b", quota=gpu_bound(1)),
    ]
    groups = [group("t", queue="a"), group("r", queue="a", last_start=NOW), group("b", queue="b")]
    running = pod("r-0", "n3", status=PodStatus.RUNNING)
    nodes = [ONE, node("n3", gpus=1)]
    members = leaving, pod("t-0", nominated_node="n1"), running
    plan = solved(world(*members, groups=groups, nodes=nodes, queues=queues))
    assert (nominated(plan), evicted(plan)) == ({first: "n1"}, set())


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


# --- with a time axis (12.2) ----------------------------------------------------------------------


def in_time(*members: Any, nodes: int = 2, queues: Sequence[Queue] = (), **reservations: Any) -> Plan:
    """The plan for ``members`` on so many nodes; with ``queues`` that of allocate alone."""
    there = [node(f"n{i + 1}", labels={"number": str(i + 1)}) for i in range(nodes)]
    chosen = settings(reservations=reservations)
    actions = {"actions": ("allocate",)} if queues else {}
    snapshot = cluster(nodes=there, plugins=RULED, queues=queues, **actions, **timed(*members))
    plan = decide(snapshot, chosen)
    assert violations(prepare(snapshot, chosen)[0], plan, chosen.rules) == []
    return plan


def leaves(name: str, node_name: str) -> Any:
    one, (running,) = runs(name, node_name)
    return one, (replace(running, status=PodStatus.RELEASING),)


def promised(waiting: Any, node_name: str) -> Any:
    one, members = waiting
    return one, tuple(replace(pod, nominated_node=node_name) for pod in members)


def test_no_start_becomes_earlier_on_a_place_that_is_promised() -> None:
    """n1 is freed for t. e, which waited for longer, keeps its start on n2, when a ends."""
    e = waits("e", lasts="1h", reserve=True, waited=90, stored=stored(60, {"n2": 8}))
    t = promised(waits("t", waited=5), "n1")
    plan = in_time(leaves("v", "n1"), runs("a", "n2", lasts="1h"), e, t)
    assert nominated(plan) == {"t-0": "n1"}
    assert holds(plan) == {"e": ("kept", 60.0, ["n2"])}
    free = in_time(leaves("v", "n1"), runs("a", "n2", lasts="1h"), e, waits("t", waited=5))
    assert nominated(free) == {"e-0": "n1"}


def test_of_holders_the_one_that_is_promised_a_place_gets_it() -> None:
    """Reclaim freed n1 for f, whose start comes after that of e."""
    e = waits("e", lasts="1h", reserve=True, waited=90, stored=stored(60, {"n2": 8}, made=-40))
    f = waits("f", lasts="1h", reserve=True, waited=90, stored=stored(120, {"n2": 8}))
    plan = in_time(leaves("v", "n1"), runs("a", "n2", lasts="1h"), e, promised(f, "n1"))
    assert nominated(plan) == {"f-0": "n1"}
    assert holds(plan) == {"e": ("kept", 60.0, ["n2"]), "f": ("started", 0.0, ["n1"])}


def test_a_holder_starts_on_the_place_that_it_is_promised() -> None:
    """Both nodes are being freed, n2 for t and n1 for e, whose reservation names n2."""
    e = waits("e", lasts="1h", reserve=True, waited=90, stored=stored(60, {"n2": 8}))
    t = promised(waits("t", waited=5), "n2")
    plan = in_time(leaves("v", "n1"), leaves("a", "n2"), promised(e, "n1"), t)
    assert nominated(plan) == {"e-0": "n1", "t-0": "n2"}


def test_a_start_that_has_come_is_kept_on_a_place_that_is_promised() -> None:
    """e was promised that it starts on n1 now, before t was promised n1."""
    e = waits("e", lasts="1h", reserve=True, waited=90, stored=stored(0, {"n1": 8}))
    plan = in_time(leaves("v", "n1"), runs("a", "n2", lasts="1h"), e, promised(waits("t", waited=5), "n1"))
    assert nominated(plan) == {"e-0": "n1"}


def test_no_gang_starts_on_closed_places_that_are_promised_to_another() -> None:
    """d keeps n1 closed until it is empty; what left n1 has left it for t."""
    idle = {"since": written(-30), "gpus": 0, "gpuHours": 0.0}
    note = {"schema": "reservation/1", "made": written(-30), "nodes": {"n1": 8}, "idle": idle}
    d = waits("d", reserve=True, waited=90, stored=json.dumps(note))
    drains = {"without_ends": "drain", "max_idle_gpu_hours": 100}
    t = waits("t", waited=5, preemptible=True)
    for waiting, starts in ((promised(t, "n1"), "t-0"), (t, "d-0")):
        assert nominated(in_time(leaves("v", "n1"), runs("a", "n2"), d, waiting, **drains)) == {starts: "n1"}


def test_promised_pods_beyond_the_minimum_come_before_earlier_starts() -> None:
    """t has a place for its minimum and one beyond it, and a third pod that is promised nothing."""
    one, (first, second, third) = group("t", 1), pods("t", 3, spec=spec(4))
    members = (*(replace(pod, nominated_node="n1") for pod in (first, second)), third)
    e = waits("e", gpus=4, lasts="1h", reserve=True, waited=90, stored=stored(60, {"n2": 4}))
    plan = in_time(leaves("v", "n1"), runs("a", "n2", lasts="1h"), e, (one, members))
    assert nominated(plan) == {"t-0": "n1", "t-1": "n1"}


def test_a_gang_that_starts_on_its_promised_place_is_served_once() -> None:
    """t takes both halves of n1, and b starts on n2. Placed again, t would be on both nodes."""
    one, members = group("t", 2), pods("t", 2, spec=spec(4))
    plan = in_time(promised((one, members), "n1"), waits("b", gpus=8, waited=5))
    assert bound(plan) == {"t-0": "n1", "t-1": "n1", "b-0": "n2"}
    assert [key.name for key in plan.turns] == ["t", "b"]


@pytest.mark.parametrize(
    ("waited", "starts", "waits_on"),
    [(5, {"t-0": "n2"}, {"b-0": "n1"}), (20, {"b-0": "n2"}, {"t-0": "n1"})],
)
def test_a_promised_group_starts_elsewhere_in_its_turn_in_time_too(
    waited: int, starts: dict[str, str], waits_on: dict[str, str]
) -> None:
    """n2 is idle while v leaves n1; b is younger than t, or older."""
    t, b = promised(waits("t", waited=10), "n1"), waits("b", waited=waited)
    plan = in_time(leaves("v", "n1"), t, b)
    assert (bound(plan), nominated(plan)) == (starts, waits_on)


@pytest.mark.parametrize(("lasts", "starts"), [("1h", {"t-0": "n2"}), ("2h", {})])
def test_a_promised_group_starts_on_no_held_place(lasts: str, starts: dict[str, str]) -> None:
    """e holds n2 for when a ends on n3; t may be there for as long."""
    e = waits("e", 2, lasts="1h", reserve=True, waited=90, stored=stored(60, {"n2": 8, "n3": 8}))
    t = promised(waits("t", waited=5, preemptible=True, lasts=lasts), "n1")
    plan = in_time(leaves("v", "n1"), runs("a", "n3", lasts="1h"), e, t, nodes=3)
    assert (bound(plan), nominated(plan)) == (starts, {} if starts else {"t-0": "n1"})
    assert holds(plan) == {"e": ("kept", 60.0, ["n2", "n3"])}


def test_a_promised_start_comes_before_a_promised_place_beyond_the_share() -> None:
    """a may hold one node of two when e starts, so t would let it hold too much then, and b gets n1."""
    second, start = {"node_selector": (("number", "2"),)}, stored(60, {"n2": 8})
    e = waits("e", lasts="1h", reserve=True, waited=90, stored=start, queue="a", needs=second)
    t = promised(waits("t", waited=10, queue="a"), "n1")
    b = waits("b", waited=5, queue="b")
    queues = [queue(name, quota=gpu_bound(8)) for name in ("a", "b")]
    running = [leaves("v", "n1"), runs("r", "n2", lasts="1h", queue="b")]
    plan = in_time(*running, e, t, b, queues=queues)
    assert (nominated(plan), holds(plan)) == ({"b-0": "n1"}, {"e": ("kept", 60.0, ["n2"])})
    assert not [one for one in plan.unscheduled if one.reason == "InternalError"]


@pytest.mark.parametrize("strategy", ["gpupack", "gpuspread"])
def test_a_promised_share_takes_no_device_that_it_was_not_promised(strategy: str) -> None:
    """y leaves a device, where t-0 fits beside x, and w leaves the other GPU, which is promised to u-0. Where
    t-0 opens a device there, none is left for u-0."""
    half, leaves = fraction(500), {"node": "n1", "status": PodStatus.RELEASING}
    there = [
        pod("x-0", "n1", spec=half, gpu_groups=("d",)),
        pod("y-0", spec=half, gpu_groups=("d",), **leaves),
        pod("w-0", **leaves),
    ]
    waiting = [pod("t-0", spec=half, nominated_node="n1"), pod("u-0", nominated_node="n1", created=1.0)]
    groups = [group("t", queue="a"), group("u", queue="a", created=1.0), group("b", queue="b")]
    groups += [group(name) for name in "xyw"]
    queues = [queue("a"), queue("b", priority=200), queue("q")]
    more = {"groups": groups, "nodes": [node("n1", gpus=2)], "queues": queues}
    plan = solved(world(*there, *waiting, plugins=RULED | {strategy}, **more))
    assert nominated(plan) == {"t-0": "n1", "u-0": "n1"}
    assert reasons(plan)["b"] != "InternalError"


def test_a_gang_of_shares_gets_its_promised_place_if_any_choice_of_devices_fits() -> None:
    """Half of two devices of n1 is taken, a third GPU is idle. t asks twice for halves of two devices: where
    t-0 joins both devices in use, t-1 has one only. Where each of them takes half of the third, both fit."""
    half, halves = fraction(500), fraction(500, devices=2)
    there = [pod(f"{name}-0", "n1", spec=half, gpu_groups=(name,)) for name in "xy"]
    waiting = [pod(f"t-{i}", spec=halves, nominated_node="n1") for i in range(2)]
    groups = [group("t", 2, queue="a"), group("b", queue="b"), group("x"), group("y")]
    queues = [queue("a"), queue("b", priority=200), queue("q")]
    plan = solved(world(*there, *waiting, groups=groups, nodes=[node("n1", gpus=3)], queues=queues))
    assert bound(plan) == {"t-0": "n1", "t-1": "n1"}


def test_a_promised_place_that_reclaim_takes_back_is_lost_like_a_pod_that_runs() -> None:
    """v has a quota of 2 and holds 5 GPUs with w-0, which is promised 4. t of q takes its 5: v may lose r-0
    while it holds 5, and then w-0 while it holds 4."""
    none = Shares(0, 0, 0)
    plan = solved(
        cluster(
            [pod("r-0", "n1"), pod("w-0", spec=spec(4), nominated_node="n1"), pod("t-0", spec=spec(5))],
            [group("r", queue="v", priority=10), group("w", queue="v"), group("t")],
            [node("n1", gpus=5), node("n2", gpus=3)],
            [
                queue("v", quota=gpu_bound(2), weight=none),
                queue("q", quota=gpu_bound(5), weight=none),
                queue("z", quota=gpu_bound(1), weight=none),
            ],
            actions=("allocate", "reclaim"),
            plugins=RULED,
        )
    )
    assert (evicted(plan), placed(plan)) == ({"r-0"}, {"t-0"})


def test_a_promise_kept_to_one_group_is_not_given_to_a_third_against_another() -> None:
    """n1 is promised to p and to m, and has GPUs for one of them. w, which comes before m, could start on n1
    only if p left for n2. Then m, which has a right to n1, would wait for w, which has none."""
    waiting = [
        pod("p-0", spec=spec(2), nominated_node="n1"),
        pod("m-0", spec=spec(2), nominated_node="n1"),
        pod("w-0", spec=spec(3)),
    ]
    snapshot = cluster(
        waiting,
        nodes=[node("n1", gpus=3), node("n2", gpus=2)],
        groups=[group("p", queue="a"), group("m", queue="c"), group("w", queue="b")],
        queues=[queue("a", priority=300), queue("b", priority=200), queue("c")],
        plugins=RULED,
    )
    plan = solved(snapshot)
    assert bound(plan) == {"p-0": "n1", "m-0": "n2"}
    assert reasons(plan) == {"w": "NoRoomInSum"}


def test_a_group_waits_in_places_that_another_misses() -> None:
    """p and m are promised n1, where a pod leaves and one of them fits. If p started on n2 in its turn, w
    would get n1, and m would wait, which has a right to it."""
    running = pod("r-0", "n1", spec=spec(3), status=PodStatus.RELEASING)
    waiting = [
        pod("p-0", spec=spec(2), nominated_node="n1"),
        pod("m-0", spec=spec(2), nominated_node="n1"),
        pod("w-0", spec=spec(3)),
    ]
    snapshot = cluster(
        [running, *waiting],
        nodes=[node("n1", gpus=3), node("n2", gpus=2)],
        groups=[group("p", queue="a"), group("m", queue="c"), group("w", queue="b"), group("r", queue="c")],
        queues=[queue("a", priority=300), queue("b", priority=200), queue("c")],
        plugins=RULED,
    )
    plan = solved(snapshot)
    assert (nominated(plan), bound(plan)) == ({"p-0": "n1"}, {"m-0": "n2"})
    assert reasons(plan) == {"w": "NoRoomInSum"}


def test_a_group_leaves_places_that_only_a_limit_keeps_from_another() -> None:
    """p and m are promised n1, where a pod leaves. The limit of m is 0, so p starts on n2 and w gets n1."""
    running = pod("r-0", "n1", spec=spec(3), status=PodStatus.RELEASING)
    waiting = [pod(f"{name}-0", spec=spec(2), nominated_node="n1") for name in "pm"]
    snapshot = cluster(
        [running, *waiting, pod("w-0", spec=spec(3))],
        nodes=[node("n1", gpus=3), node("n2", gpus=2)],
        groups=[group("p", queue="a"), group("m", queue="c"), group("w", queue="b"), group("r", queue="b")],
        queues=[queue("a", priority=300), queue("b", priority=200), queue("c", limit=gpu_bound(0))],
        plugins=RULED,
    )
    plan = solved(snapshot)
    assert (bound(plan), nominated(plan)) == ({"p-0": "n2"}, {"w-0": "n1"})


def test_a_group_that_starts_in_its_promised_place_asks_no_more() -> None:
    """Of 8 GPUs p, of queue a, gets 3. With x queue a holds its quota of 4, and with y queue b holds 5 of 4.
    So x comes first, and y waits. What p asked for counts no second time."""
    waiting = [
        pod("p-0", spec=spec(3), nominated_node="n1"),
        pod("x-0", spec=spec(1), created=1.0),
        pod("y-0", spec=spec(5)),
    ]
    snapshot = cluster(
        waiting,
        nodes=[node("n1", gpus=8)],
        groups=[group("p", queue="a"), group("x", queue="a", created=1.0), group("y", queue="b")],
        queues=[queue("a", quota=gpu_bound(4)), queue("b", quota=gpu_bound(4))],
        plugins=RULED,
    )
    plan = solved(snapshot)
    assert bound(plan) == {"p-0": "n1", "x-0": "n1"}
    assert {one.action for one in plan.decisions} == {"allocate"}, "nothing was given to y and withdrawn"
