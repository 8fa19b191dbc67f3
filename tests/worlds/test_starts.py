"""Starts in the future on tiny worlds, argued by hand: what the recorded cases do not cover."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest

from kai_cp_models import engine
from kai_cp_models.check import Violation, violations
from kai_cp_models.engine import decide
from kai_cp_models.plan import FAILED, REJECTED, Decision, Plan, Reservation
from kai_cp_models.pods import GroupKey, PodKey, PodStatus
from kai_cp_models.records.notes import Failures
from kai_cp_models.reservations import keeping, making, mending
from kai_cp_models.reservations.prepare import prepare
from kai_cp_models.settings import Settings
from kai_cp_models.snapshot import Shares, Snapshot, Topology, TopologyConstraint
from tests.support.plans import bound, evicted, nominated, placed, reasons
from tests.support.rule_objects import objects_of
from tests.support.times import at, entry, holds, runs, settings, stored, waits, world, written
from tests.support.worlds import (
    PLUGINS,
    cluster,
    fraction,
    gpu_bound,
    group,
    leaf,
    node,
    nominate,
    noted,
    pod,
    pods,
    queue,
    spec,
    tree,
)

TWO = (node("n1"), node("n2"))
KIND_A = {"node_selector": (("kind", "a"),)}
THREE = (node("n1", labels={"kind": "a"}), node("n2"), node("n3", labels={"kind": "a"}))
"""Nodes of which a gang that is ``KIND_A`` takes the outer ones."""
OUTER = stored(30, {"n1": 8, "n3": 8})


def solved(snapshot: Snapshot, chosen: Settings | None = None) -> Plan:
    """The plan, which breaks no rule, those of the time axis included, and from which nothing was dropped."""
    chosen = chosen or settings()
    plan = decide(snapshot, chosen)
    assert violations(prepare(snapshot, chosen)[0], plan, chosen.rules) == []
    assert not [stage.name for stage in plan.stages if stage.kind in (REJECTED, FAILED)]
    return plan


# --- which groups hold, and when that ends --------------------------------------------------------


def test_an_overdue_start_is_given_up_for_as_long_again() -> None:
    """Its start was promised for 70 minutes ago, and an hour is allowed: it holds nothing, and says so
    for an hour.
    """
    late = stored(-70, {"n1": 8, "n2": 8}, made=-100)
    members = world(
        runs("a", "n2", lasts="30m"), waits("big", 2, lasts="4h", reserve=True, waited=200, stored=late)
    )
    plan = solved(cluster(nodes=TWO, **members))
    assert holds(plan)["big"][0] == "dropped"
    assert entry(plan, "big").cause == "Expired"
    assert entry(plan, "big").expired == at(0)
    expired = json.dumps({"schema": "reservation/1", "expired": written(-10)})
    members = world(
        runs("a", "n2", lasts="30m"), waits("big", 2, lasts="4h", reserve=True, waited=200, stored=expired)
    )
    assert holds(solved(cluster(nodes=TWO, **members))) == {}
    gone = json.dumps({"schema": "reservation/1", "expired": written(-61)})
    members = world(
        runs("a", "n2", lasts="30m"), waits("big", 2, lasts="4h", reserve=True, waited=200, stored=gone)
    )
    assert holds(solved(cluster(nodes=TWO, **members)))["big"] == ("made", 30.0, ["n1", "n2"])


def test_a_share_that_sank_ends_the_reservation() -> None:
    """q has a quota of 8 GPUs and no weight: 16 are beyond its share."""
    small = queue("q", quota=gpu_bound(8), weight=Shares(0, 0, 0))
    members = world(
        runs("a", "n2", lasts="30m", queue="other"),
        waits("big", 2, lasts="4h", reserve=True, waited=60, stored=stored(30, {"n1": 8, "n2": 8})),
    )
    plan = solved(cluster(nodes=TWO, queues=[small, queue("other")], **members))
    assert (holds(plan)["big"][0], entry(plan, "big").cause) == ("dropped", "BeyondShare")


def test_a_job_that_overran_in_a_queue_with_the_whole_cluster_moves_the_start() -> None:
    """16 GPUs are the share and the cluster. a overran ten minutes ago: big starts when its doubled
    time is over.
    """
    whole = queue("q", quota=gpu_bound(16), weight=Shares(0, 0, 0))
    members = world(
        runs("a", "n2", lasts="30m", since=40),
        waits("big", 2, lasts="4h", reserve=True, waited=60, stored=stored(10, {"n1": 8, "n2": 8})),
    )
    plan = solved(cluster(nodes=TWO, queues=[whole], **members))
    assert holds(plan)["big"][:2] == ("later", 20.0)
    assert entry(plan, "big").cause == "Overrun"


def test_a_holder_that_begins_late_moves_the_next_one_and_ends_nothing() -> None:
    """16 GPUs are the share and the cluster. first was to run from 11:55, and runs from now to 13:00;
    next starts then.
    """
    whole = queue("q", quota=gpu_bound(16), weight=Shares(0, 0, 0))
    both = {"n1": 8, "n2": 8}
    first = waits("first", 2, lasts="1h", reserve=True, waited=60, stored=stored(-5, both, made=-20))
    following = stored(55, both, made=-10)
    members = world(first, waits("next", 2, lasts="4h", reserve=True, waited=30, stored=following))
    plan = solved(cluster(nodes=TWO, queues=[whole], **members))
    assert holds(plan)["first"][0] == "started"
    assert holds(plan)["next"][:2] == ("later", 60.0)
    assert entry(plan, "next").cause == "Overrun"


def test_a_holder_that_began_late_moves_the_next_one_and_ends_nothing() -> None:
    """The same five minutes later: first has run since 11:55 and ends at 12:55, where it was to end at
    12:50.
    """
    whole = queue("q", quota=gpu_bound(16), weight=Shares(0, 0, 0))
    members = world(
        runs("a", "n1", lasts="1h", since=5),
        runs("b", "n2", lasts="1h", since=5),
        waits(
            "next", 2, lasts="4h", reserve=True, waited=30, stored=stored(50, {"n1": 8, "n2": 8}, made=-10)
        ),
    )
    plan = solved(cluster(nodes=TWO, queues=[whole], **members))
    assert holds(plan)["next"][:2] == ("later", 55.0)
    assert entry(plan, "next").cause == "Overrun"


def test_a_limit_that_was_lowered_moves_the_start() -> None:
    """The limit is 16 GPUs now. c holds 8 of them for an hour, so big starts after it, not at its
    promised time.
    """
    limited = queue("q", limit=gpu_bound(16))
    members = world(
        runs("a", "n2", lasts="30m", queue="other"),
        runs("c", "n3", lasts="60m"),
        waits("big", 2, lasts="4h", reserve=True, waited=60, stored=stored(30, {"n1": 8, "n2": 8})),
    )
    nodes = (*TWO, node("n3"))
    plan = solved(cluster(nodes=nodes, queues=[limited, queue("other")], **members))
    assert holds(plan)["big"][:2] == ("later", 60.0)
    assert entry(plan, "big").cause == "LimitLowered"
    assert entry(plan, "big").promised == at(30)


def test_the_limit_of_holders_counts_those_that_hold_already() -> None:
    members = world(
        runs("a", "n1", lasts="30m"),
        runs("b", "n2", lasts="30m"),
        waits("new", 1, lasts="1h", reserve=True, waited=90, stored=stored(30, {"n2": 8}, made=-10)),
        waits("old", 1, lasts="1h", reserve=True, waited=80, stored=stored(30, {"n1": 8}, made=-20)),
    )
    found = holds(solved(cluster(nodes=TWO, **members), settings(reservations={"most": 1})))
    assert found["old"] == ("kept", 30.0, ["n1"])
    assert found["new"][0] == "dropped"


def test_a_share_that_is_on_no_device_gives_none_back() -> None:
    """a holds 4 of 8 GPUs for ever. The end of s in half an hour adds none to the 4 that are idle."""
    share = (runs("s", "n1", lasts="30m")[0], pods("s", 1, "n1", spec=fraction(500)))
    members = world(runs("a", "n1", 4), share, waits("big", 1, 5, lasts="1h", reserve=True, waited=60))
    assert "big" not in holds(solved(cluster(nodes=TWO[:1], **members)))


def test_reservations_are_checked_where_nothing_is_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    """The checker refuses that one of two pod groups holds capacity. The other holds; nothing is dropped."""
    judged: list[Plan] = []

    def picky(_: Snapshot, plan: Plan, *__: object, **___: object) -> list[Violation]:
        judged.append(plan)
        holders = {one.group for one in plan.reservations or ()}
        return [Violation("starts", "no", groups=(key,)) for key in holders if key.name == "one"]

    monkeypatch.setattr(engine, "audit", picky)
    long = {"lasts": "4h", "reserve": True, "waited": 60}
    members = world(
        *(runs(f"r{i}", f"n{i}", lasts="30m") for i in (1, 2)),
        *(waits(name, 1, **long) for name in ("one", "two")),
    )
    plan = solved(cluster(nodes=TWO, **members))
    assert (plan.decisions, list(holds(plan))) == ((), ["two"])
    assert judged[-1].reservations == plan.reservations


@pytest.mark.parametrize(
    ("where", "name"),
    [(making, "_least_start"), (keeping, "priced"), (keeping, "keep"), (mending, "_cause")],
)
def test_a_start_that_raises_costs_its_own_group(
    monkeypatch: pytest.MonkeyPatch, where: Any, name: str
) -> None:
    """new asks for a start, old was promised one that is kept or comes later, and small runs in any case."""

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("a bug")

    price = (("kai-cp/hero-price-gpu-hours", "8"),) if name == "priced" else ()
    when = 10 if name == "_cause" else 30
    members = world(
        runs("a", "n1", lasts="30m"),
        waits("old", 1, lasts="4h", reserve=True, waited=60, stored=stored(when, {"n1": 8}), notes=price),
        *([waits("new", 1, lasts="4h", reserve=True, waited=50)] if name == "_least_start" else []),
        waits("small", 1, 4, waited=10),
    )
    queues = [queue(notes=[("kai-cp/hero", "true")])]
    snapshot = cluster(nodes=(node("n1"), node("n2", gpus=4)), queues=queues, **members)
    monkeypatch.setattr(where, name, broken)
    plan = solved(snapshot, settings(reservations={"hero": True}))
    assert bound(plan) == {"small-0": "n2"}
    guilty = "new" if name == "_least_start" else "old"
    assert reasons(plan)[guilty] == "InternalError"


# --- what is held binds every action -------------------------------------------------------------


def test_a_holder_that_waits_for_evicted_pods_still_counts() -> None:
    """One group may hold. big starts when s has left. A start of next would be one too many in the next
    cycle.
    """
    members = world(
        runs("s", "n1", since=5, preemptible=True, priority=50),
        runs("a", "n2", lasts="30m"),
        waits("big", 1, lasts="1h", reserve=True, waited=90, stored=stored(0, {"n1": 8})),
        waits("next", 1, lasts="1h", reserve=True, waited=80),
    )
    plan = solved(cluster(nodes=TWO, **members), settings(reservations={"most": 1}))
    assert nominated(plan) == {"big-0": "n1"}
    assert {name: state for name, (state, _, _) in holds(plan).items()} == {"big": "started"}


def test_a_start_comes_after_a_consolidation_that_runs_before_allocate(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """s moves from n1 to n2, so that w gets all of n1; then allocate starts big, for which f leaves n3."""
    members = world(
        runs("s", "n1", 4, preemptible=True, priority=50),
        runs("r", "n2", 4),
        runs("f", "n3", since=5, preemptible=True, priority=50, needs=KIND_A),
        waits("big", 1, reserve=True, waited=90, stored=stored(0, {"n3": 8}), needs=KIND_A),
        waits("w", 1, 8, waited=5, needs={"node_selector": (("kind", "w"),)}),
    )
    nodes = (node("n1", labels={"kind": "w"}), node("n2"), node("n3", labels={"kind": "a"}))
    plan = solved(cluster(nodes=nodes, actions=("consolidation", "allocate"), **members))
    made = {d.pod.name: (d.node, d.action) for d in plan.decisions if d.kind != "Evict"}
    moved = {"s-0": ("n2", "consolidation"), "w-0": ("n1", "consolidation")}
    assert made == {**moved, "big-0": ("n3", "reservation")}
    assert caplog.messages == []


def test_a_move_of_consolidation_does_not_go_into_a_held_place() -> None:
    """s (no run time) could leave n2 for w only by moving to n1, which is held from 12:30."""
    members = world(
        runs("a", "n3", lasts="30m"),
        runs("s", "n2", 4, preemptible=True, priority=50),
        waits("big", 2, lasts="4h", reserve=True, waited=60, stored=OUTER, needs=KIND_A),
        waits("w", 1, 8, waited=5),
    )
    snapshot = cluster(nodes=THREE, **members)
    off = decide(snapshot, Settings.model_validate({"solver": {"budget_seconds": 20}}))
    assert evicted(off) or placed(off)
    plan = solved(snapshot)
    assert evicted(plan) == set()
    assert holds(plan)["big"] == ("kept", 30.0, ["n1", "n3"])
    assert reasons(plan)["w"] == "WaitingForReservation"


def test_a_move_of_a_short_job_may_go_into_a_held_place() -> None:
    """The same, but s needs 10 more minutes: it leaves n1 before the start, and w takes n2."""
    members = world(
        runs("a", "n3", lasts="30m"),
        runs("s", "n2", 4, lasts="10m", preemptible=True, priority=50),
        waits("big", 2, lasts="4h", reserve=True, waited=60, stored=OUTER, needs=KIND_A),
        waits("w", 1, 8, waited=5),
    )
    plan = solved(cluster(nodes=THREE, **members))
    assert evicted(plan) == {"s-0"}
    assert nominated(plan) == {"s-0": "n1", "w-0": "n2"}
    assert holds(plan)["big"][:2] == ("kept", 30.0)


def test_reclaim_takes_no_held_place() -> None:
    """w's queue deserves 8 GPUs; v borrows 4 on n2. Without v 4 are free there, and n1 is held."""
    queues = [
        queue("lend", quota=gpu_bound(8)),
        queue("q", quota=gpu_bound(16)),
        queue("w", quota=gpu_bound(8)),
    ]
    members = world(
        runs("a", "n3", lasts="30m", queue="q"),
        runs("u", "n2", 4, queue="lend"),
        runs("v", "n2", 4, preemptible=True, priority=50, queue="lend"),
        waits("big", 2, lasts="4h", reserve=True, waited=60, stored=OUTER, needs=KIND_A),
        waits("w", 1, 8, queue="w"),
    )
    plan = solved(cluster(nodes=THREE, queues=queues, **members))
    assert evicted(plan) == set()
    assert placed(plan) == set()
    assert holds(plan)["big"] == ("kept", 30.0, ["n1", "n3"])


def test_preempt_uses_a_held_place_only_with_the_right_to_it() -> None:
    """vip (priority 60, the same as hero) may preempt low (40) on n2, but not use n1, which hero holds."""
    members = world(
        runs("a", "n3", lasts="30m"),
        runs("low", "n2", 8, preemptible=True, priority=40),
        waits("hero", 2, lasts="4h", reserve=True, waited=60, stored=OUTER, needs=KIND_A, priority=60),
        waits("vip", 2, 8, waited=5, priority=60),
    )
    plan = solved(cluster(nodes=THREE, **members))
    assert evicted(plan) == set()
    assert holds(plan)["hero"] == ("kept", 30.0, ["n1", "n3"])


def test_a_holder_may_start_earlier_by_preempting() -> None:
    """hero (60) may preempt low (40), so it does not wait for its start."""
    members = world(
        runs("low", "n2", 8, lasts="30m", preemptible=True, priority=40),
        waits(
            "hero", 2, lasts="4h", reserve=True, waited=60, stored=stored(30, {"n1": 8, "n2": 8}), priority=60
        ),
    )
    plan = solved(cluster(nodes=TWO, **members))
    assert evicted(plan) == {"low-0"}
    assert holds(plan)["hero"][0] == "started"


# --- backfill ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("ends", "state"), [("40m", ("later", 40, ["n2"])), (None, ("dropped", 0, []))])
def test_a_start_that_preempt_takes_back_is_planned_anew(ends: str | None, state: Any) -> None:
    """big starts on n1 as promised; p of its queue outranks it and takes its place back in the same cycle."""
    members = world(
        runs("a", "n2", lasts=ends),
        waits("big", 1, lasts="4h", reserve=True, waited=60, stored=stored(0, {"n1": 8})),
        waits("p", 1, waited=5, priority=60),
    )
    plan = solved(cluster(nodes=TWO, actions=("allocate", "preempt"), **members))
    assert (bound(plan), evicted(plan)) == ({"p-0": "n1"}, set())
    assert (holds(plan)["big"], entry(plan, "big").cause) == (state, "HigherPriority")


@pytest.mark.parametrize(("beside", "grows"), [((), {"g-1"}), (("g",), set())])
def test_a_group_that_a_holder_waits_for_does_not_grow_onto_its_places(
    beside: tuple[str, ...], grows: set[str]
) -> None:
    """big needs 6 of 8 GPUs of n1, where g-0 has 2. As backfill g leaves at 12:30 with g-1. If it came before
    big got its places, big would wait for it."""
    big = stored(30, {"n1": 6, "n2": 6}, beside=beside)
    elastic = group("g", preemptible=True, last_start=at(-60), created=at(-70))
    members = world(
        runs("a", "n2", lasts="30m"),
        waits("big", 2, 6, lasts="4h", reserve=True, waited=60, stored=big),
        (elastic, (pod("g-0", "n1", spec=spec(2), started=at(-60)), pod("g-1", spec=spec(2)))),
    )
    plan = solved(cluster(nodes=TWO, **members), settings(reservations={"backfill": "preemptible"}))
    assert (placed(plan), holds(plan)["big"]) == (grows, ("kept", 30.0, ["n1", "n2"]))


@pytest.mark.parametrize(
    ("of_g", "minimum", "leave"),
    [
        # g-1 came to the held place later, g-0 runs elsewhere as before.
        ((("n2", -60), ("n1", -10)), 1, {"g-1"}),
        # Both are needed: what is left of g could not run.
        ((("n2", -60), ("n1", -10)), 2, {"g-0", "g-1"}),
        # g-2 is on another node, and stays although policy would take it first.
        ((("n2", -60), ("n1", -10), ("n2", -5)), 1, {"g-1"}),
        # Of both pods on the held place the last one is enough.
        ((("n2", -60), ("n1", -20), ("n1", -10)), 1, {"g-2"}),
        # g-1 came before the hold was made, and keeps running.
        ((("n2", -60), ("n1", -40), ("n1", -10)), 1, {"g-2"}),
    ],
)
def test_of_a_running_group_only_what_came_later_leaves(
    of_g: tuple[tuple[str, float], ...], minimum: int, leave: set[str]
) -> None:
    """big starts on n1, of which it was promised 4 of 6 GPUs half an hour ago; pods of g have 2 each."""
    one = group("g", minimum, preemptible=True, last_start=at(-60), created=at(-70))
    running = (
        pod(f"g-{i}", on, spec=spec(2), started=at(since), created=at(-70 + i))
        for i, (on, since) in enumerate(of_g)
    )
    beside = pod("a-0", "n1", spec=spec(2)) if len(of_g) < 3 or of_g[2][0] == "n2" else None
    hold = stored(0, {"n1": 4}, made=-30)
    members = world(
        (one, tuple(running)),
        *([(group("a", preemptible=False, last_start=at(-90)), (beside,))] if beside else []),
        waits("big", 1, 4, lasts="4h", reserve=True, waited=60, stored=hold, needs=KIND_A),
    )
    nodes = node("n1", gpus=6, labels={"kind": "a"}), node("n2")
    plan = solved(cluster(nodes=nodes, **members), settings(reservations={"backfill": "preemptible"}))
    assert (evicted(plan), placed(plan)) == (leave, {"big-0"})


def test_none_means_no_backfill() -> None:
    members = world(
        runs("a", "n2", lasts="30m"),
        waits("big", 2, lasts="4h", reserve=True, waited=60),
        waits("s", 1, 4, lasts="5m", waited=5),
    )
    plan = solved(cluster(nodes=TWO, **members), settings(reservations={"backfill": "none"}))
    assert placed(plan) == set()
    assert reasons(plan)["s"] == "WaitingForReservation"


def test_losses_of_backfill_are_bounded() -> None:
    """u has no run time. It would lose 4 GPUs x 30 minutes = 2 GPU-hours at the start."""
    members = world(
        runs("a", "n2", lasts="30m"),
        waits("big", 2, lasts="4h", reserve=True, waited=60),
        waits("u", 1, 4, waited=5),
    )
    modes = {"backfill": "preemptible"}
    for most, expected in ((2.0, {"u-0"}), (1.9, set())):
        more = {**modes, "max_backfill_loss_gpu_hours": most}
        assert placed(solved(cluster(nodes=TWO, **members), settings(reservations=more))) == expected


@pytest.mark.parametrize("names", list(permutations(("n0", "n1", "n2"))))
def test_a_victim_that_comes_home_ends_when_it_would_have(names: tuple[str, str, str]) -> None:
    """w would need the place of z, which comes back before it. m, which leaves with z in trials only, is over
    by the start of w, which holds its place. While it counted as one that starts anew, z lost 4 GPUs for w,
    if the name of the node with the place came first.
    """
    n0, n1, n2 = names

    def pair(name: str, other: str, gpus: int, priority: int, lasts: str | None) -> Any:
        values = {"queue": "x", "preemptible": True, "priority": priority}
        one, (first,) = runs(name, n2, gpus, lasts=lasts, since=10, **values)
        second = replace(first, key=PodKey("ns", f"{name}-1"), uid=f"{name}-1", node=other)
        return replace(one, root=group(name, 2).root), (first, second)

    members = world(
        runs("d", n1, 3, queue="d", since=120),
        pair("z", n0, 2, 50, None),
        pair("m", n1, 1, 75, "1h"),
        waits("w", 1, 1, queue="d", priority=10, preemptible=True),
        waits("v", 3, 2, queue="d", priority=50, preemptible=True),
    )
    queues = [queue(name, quota=gpu_bound(1)) for name in "dx"]
    snapshot = cluster(
        nodes=(node(n0, 2), node(n1, 4), node(n2, 3)),
        queues=queues,
        plugins=PLUGINS,
        actions=("allocate", "reclaim"),
        **members,
    )
    plan = solved(snapshot, settings(reservations={"after_seconds": 0, "backfill": "ends_before"}))
    assert (evicted(plan), holds(plan)["w"][:2]) == (set(), ("made", 50.0))


def test_at_the_start_only_pods_in_the_way_are_evicted() -> None:
    """hero holds 4 GPUs of n1, where x and y run by backfill with 4 each: evicting the newest is enough."""
    members = world(
        runs("x", "n1", 4, since=20, preemptible=True, priority=50),
        runs("y", "n1", 4, since=10, preemptible=True, priority=50),
        waits("hero", 1, 4, lasts="4h", reserve=True, waited=60, stored=stored(0, {"n1": 4}, made=-30)),
    )
    plan = solved(cluster(nodes=(node("n1"),), **members))
    assert evicted(plan) == {"y-0"}
    assert nominated(plan) == {"hero-0": "n1"}
    assert {d.action for d in plan.decisions} == {"reservation"}


def test_a_gang_that_starts_holds_nothing_for_its_further_pods() -> None:
    """g needs one pod and has two. What is told of g is that it starts."""
    ((g, (first,)), running) = (
        waits("g", 1, lasts="4h", reserve=True, waited=60, stored=stored(0, {"n1": 8})),
        runs("a", "n2", lasts="1h"),
    )
    members = world((g, (first, replace(first, key=PodKey("ns", "g-1"), uid="g-1", created=1.0))), running)
    plan = solved(cluster(nodes=TWO, **members))
    assert (bound(plan), holds(plan)) == ({"g-0": "n1"}, {"g": ("started", 0.0, ["n1"])})


@pytest.mark.parametrize(
    ("foreign", "shared", "gone"),
    [
        (2, "", set()),
        (3, "", {"x-0"}),
        (1, "yz", set()),
        # When y leaves, z still keeps the device that they share.
        (2, "yz", {"y-0", "z-0"}),
    ],
)
def test_backfill_in_the_way_of_a_start_is_counted_by_devices(
    foreign: int, shared: str, gone: set[str]
) -> None:
    """Of 8 GPUs hero needs 4, another scheduler has some, x has 2 by backfill, and two later groups one."""
    members = world(
        runs("x", "n1", 2, since=20, preemptible=True, priority=50),
        waits("hero", 1, 4, lasts="4h", reserve=True, waited=60, stored=stored(0, {"n1": 4}, made=-30)),
    )
    came = {name: at(-10 if name == "z" else -5) for name in shared}
    members["groups"] += [group(name, 1, last_start=since) for name, since in came.items()]
    members["pods"] += [pod("o-0", "n1", group=None, spec=spec(foreign), ours=False)]
    members["pods"] += [
        pod(f"{name}-0", "n1", spec=fraction(500), gpu_groups=["g"], started=since)
        for name, since in came.items()
    ]
    plan = solved(cluster(nodes=(node("n1"),), **members))
    assert (evicted(plan), placed(plan)) == (gone, {"hero-0"})


@pytest.mark.parametrize(
    ("times", "delay", "stops"), [(1, 0, True), (2, 0, False), (0, 3500, True), (0, 3700, False)]
)
def test_no_pod_stops_for_a_start_of_a_group_that_may_evict_no_others_yet(
    *, times: int, delay: int, stops: bool
) -> None:
    """Its places came to nothing in a row, or its preemption delay is longer than its hour of waiting: the
    start is given up."""
    members = world(
        runs("x", "n1", 4, since=20, preemptible=True, priority=50),
        runs("y", "n1", 4, since=10, preemptible=True, priority=50),
        waits("hero", 1, 4, lasts="4h", reserve=True, waited=60, stored=stored(0, {"n1": 4}, made=-30)),
    )
    sure = cluster(nodes=(node("n1"),), **members)
    (hero,) = (one for one in sure.groups if one.key.name == "hero")
    notes = replace(hero.notes, failures=Failures("hero-0", times, sure.now - 1))
    hero = replace(hero, notes=notes, preemption_delay_seconds=delay)
    found = replace(sure, groups=tuple(hero if one.key == hero.key else one for one in sure.groups))
    plan = solved(found)
    assert evicted(plan) == ({"y-0"} if stops else set())
    dropped = [one.cause for one in plan.reservations or () if one.state == "dropped"]
    assert dropped == ([] if stops else ["NotTaken"])
    seen = prepare(found, settings())[0]
    assert bool(violations(seen, solved(sure), settings().rules)) is not stops


def test_backfill_on_places_that_the_holder_left_stays() -> None:
    """big was to start on n1 and starts now on n2, which is free. s on n1 is in no group's way and runs
    on for 55 minutes. So next starts then, and not in ten minutes, when x ends on a node that next
    may not use.
    """
    kind = {"node_selector": (("kind", "a"),)}
    nodes = [node(name, labels={"kind": "a"}) for name in ("n1", "n2", "n3")]
    members = world(
        runs("s", "n1", lasts="1h", since=5, preemptible=True, priority=50),
        runs("r", "n3", lasts="2h"),
        runs("x", "n4", lasts="10m"),
        waits("big", 1, lasts="4h", reserve=True, waited=60, stored=stored(30, {"n1": 8}), needs=kind),
        waits("next", 1, lasts="4h", reserve=True, waited=50, needs=kind),
    )
    plan = solved(cluster(nodes=[*nodes, node("n4")], **members))
    assert bound(plan) == {"big-0": "n2"}
    assert evicted(plan) == set()
    assert holds(plan)["next"] == ("made", 55.0, ["n1"])


def test_a_pod_that_ran_there_before_is_no_backfill() -> None:
    """x is preemptible, but it started before the reservation was made: hero waits for it, and the
    cause says so.
    """
    members = world(
        runs("x", "n1", 8, lasts="30m", since=40, preemptible=True, priority=50),
        waits("hero", 1, 8, lasts="4h", reserve=True, waited=60, stored=stored(0, {"n1": 8}, made=-30)),
    )
    plan = solved(cluster(nodes=(node("n1"),), **members))
    assert evicted(plan) == set()
    assert holds(plan)["hero"] == ("later", 20.0, ["n1"])
    assert entry(plan, "hero").cause == "Overrun"


@pytest.mark.parametrize("beside", [(), ("x",)])
def test_a_group_that_the_reservation_was_made_beside_is_no_backfill(beside: tuple[str, ...]) -> None:
    """x began in the cycle that made the reservation, and before it: hero waits for its end, as for all that
    ran before, and may not evict it."""
    old = stored(0, {"n1": 8}, made=-20, beside=beside)
    members = world(
        runs("x", "n1", 8, lasts="30m", since=20, preemptible=True, priority=50),
        waits("hero", 1, 8, lasts="4h", reserve=True, waited=60, stored=old),
    )
    snapshot = cluster(nodes=(node("n1"),), **members)
    plan = solved(snapshot)
    assert evicted(plan) == (set() if beside else {"x-0"})
    assert entry(plan, "hero").state == ("later" if beside else "started")
    # What a plan notes is noted again as long as x runs.
    assert entry(plan, "hero").beside == tuple(GroupKey("ns", name) for name in beside)


def test_a_holder_notes_what_came_to_its_places_before_it() -> None:
    """x starts on n1, where big holds 10 minutes later. s comes after big, and leaves before its start."""
    members = world(
        waits("x", 1, 4, lasts="10m", priority=90),
        waits("big", 1, 8, lasts="4h", reserve=True, waited=60, priority=80),
        waits("s", 1, 4, lasts="5m", priority=50),
    )
    plan = solved(cluster(nodes=(node("n1"),), **members))
    assert bound(plan) == {"x-0": "n1", "s-0": "n1"}
    assert holds(plan)["big"] == ("made", 10.0, ["n1"])
    assert entry(plan, "big").beside == (GroupKey("ns", "x"),)


def test_a_holder_that_moves_notes_what_runs_on_its_new_places() -> None:
    """r stays on n1. On n2, y runs, which started after the reservation was made, but not as its backfill."""
    members = world(
        runs("r", "n1"),
        runs("y", "n2", 8, lasts="1h", since=10, preemptible=True, priority=50),
        waits("big", 1, 8, lasts="4h", reserve=True, waited=60, stored=stored(0, {"n1": 8})),
    )
    plan = solved(cluster(nodes=TWO, **members))
    assert evicted(plan) == set()
    assert holds(plan)["big"] == ("later", 50.0, ["n2"])
    assert entry(plan, "big").beside == (GroupKey("ns", "y"),)


@pytest.mark.parametrize("came", [10, 40])
def test_a_group_that_grew_onto_held_places_is_backfill(came: float) -> None:
    """b runs on n2 since an hour. b-1 came to n1 before the reservation of half an hour ago, or after it."""
    b = group("b", 1, last_start=at(-60), preemptible=True, priority=50)
    grown = tuple(
        pod(f"b-{i}", f"n{2 - i}", spec=spec(8), started=at(-since)) for i, since in ((0, 60), (1, came))
    )
    big = waits("big", 1, 8, lasts="4h", reserve=True, waited=60, stored=stored(0, {"n1": 8}))
    plan = solved(cluster(nodes=TWO, **world((b, grown), big)))
    assert nominated(plan) == ({"big-0": "n1"} if came < 30 else {})
    assert ("b-1" in evicted(plan)) is (came < 30)


def test_a_group_that_a_start_counts_on_to_leave_is_not_waited_for() -> None:
    """big holds n1 and n2, which is closed now. c runs by backfill on n1, and on n3, where big moves."""
    c = group("c", 2, last_start=at(-10), preemptible=True, priority=50)
    its_pods = tuple(
        pod(f"c-{i}", name, spec=spec(8), started=at(-10)) for i, name in enumerate(("n1", "n3"))
    )
    big = waits("big", 2, lasts="4h", reserve=True, waited=60, stored=stored(30, {"n1": 8, "n2": 8}))
    nodes = (node("n1"), node("n2", not_ready="cordoned"), node("n3"))
    chosen = settings(reservations={"backfill": "preemptible"})
    plan = solved(cluster(nodes=nodes, **world((c, its_pods), big)), chosen)
    assert holds(plan)["big"] == ("kept", 30.0, ["n1", "n3"])
    assert entry(plan, "big").beside == ()


def test_a_start_before_the_promise_evicts_no_pod(caplog: pytest.LogCaptureFixture) -> None:
    """s is backfill of both groups on n2. due may evict it now, early only in five minutes; both fit on
    n1.
    """
    members = world(
        runs("s", "n2", lasts="1h", since=5, preemptible=True, priority=50),
        waits(
            "due", 2, 4, lasts="1h", reserve=True, waited=60, stored=stored(-5, {"n1": 4, "n2": 4}, made=-8)
        ),
        waits("early", 1, 4, lasts="10m", reserve=True, waited=60, stored=stored(5, {"n2": 4}, made=-30)),
    )
    plan = solved(cluster(nodes=THREE, **members))
    assert caplog.messages == []
    assert placed(plan) == {"due-0", "due-1", "early-0"}
    assert {d.triggers[0].name for d in plan.decisions if d.kind == "Evict"} <= {"due"}


def test_a_holder_that_cannot_begin_before_its_promise_keeps_it(caplog: pytest.LogCaptureFixture) -> None:
    """GPUs are free now, but x has the port for another 50 minutes."""
    needs = {"host_ports": (("TCP", "", 80),)}
    members = world(
        runs("x", "n1", 2, lasts="1h", since=10, needs=needs),
        waits("hero", 1, 4, "1h", reserve=True, waited=60, stored=stored(50, {"n1": 4}), needs=needs),
    )
    plan = solved(cluster(nodes=(node("n1"),), **members))
    assert caplog.messages == []
    assert holds(plan)["hero"] == ("kept", 50.0, ["n1"])


def test_a_holder_stays_within_its_limit_beside_a_pod_stuck_in_releasing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The limit is 8 GPUs, and the stuck pod s-0 counts 4 of them for as long as it is there (3.7)."""
    members = world(
        runs("s", "n1", 4),
        waits("hero", 1, 8, "1h", reserve=True, waited=60, stored=stored(0, {"n2": 8})),
    )
    members["pods"] = [
        replace(one, status=PodStatus.STUCK_IN_RELEASING) if one.key.name == "s-0" else one
        for one in members["pods"]
    ]
    plan = solved(cluster(nodes=TWO, queues=[queue("q", limit=gpu_bound(8))], **members))
    assert caplog.messages == []
    assert (placed(plan), reasons(plan)["hero"]) == (set(), "OverLimit")


def test_backfill_leaves_for_its_own_holder(caplog: pytest.LogCaptureFixture) -> None:
    """s is backfill of small, not of hero, which had n2. r overran there, so hero needs n1, and small
    starts beside r. Then s is not in the way of small and owes hero nothing: it stays 30 minutes,
    and hero waits.
    """
    members = world(
        runs("s", "n1", lasts="30m", preemptible=True, priority=50),
        runs("r", "n2", 4, lasts="2h", since=40),
        waits("hero", 1, 8, lasts="10m", reserve=True, waited=60, stored=stored(0, {"n2": 8}, made=-30)),
        waits("small", 1, 4, lasts="10m", reserve=True, waited=60, stored=stored(0, {"n1": 4}, made=-8)),
    )
    plan = solved(cluster(nodes=TWO, **members))
    assert caplog.messages == []
    assert (bound(plan), evicted(plan)) == ({"small-0": "n2"}, set())
    assert holds(plan)["hero"] == ("later", 30.0, ["n1"])
    assert entry(plan, "hero").cause == "Overrun"


def test_missing_pods_of_a_gang_do_not_start_when_the_rest_of_it_goes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Half of torn runs by backfill on n1 and is evicted when big is due; n2 has enough for the other
    half alone.
    """
    torn = group("torn", 2, last_start=at(-10))
    parts = (
        pod("torn-0", "n1", spec=spec(8), started=at(-10)),
        pod("torn-1", spec=spec(8)),
    )
    held = stored(0, {"n1": 8}, made=-20)
    members = world((torn, parts), waits("big", 1, lasts="1h", reserve=True, waited=60, stored=held))
    plan = solved(cluster(nodes=TWO, **members))
    assert caplog.messages == []
    assert (placed(plan), evicted(plan)) == ({"big-0"}, {"torn-0"})


def test_a_start_that_counted_on_the_backfill_of_another_moves_with_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """s is backfill of big on n1. x overran, so big cannot start in ten minutes; it starts in 30, when
    next has left n1 and n3. But s leaves with the start of big, so next has no n1 in 20 minutes: it
    is last.
    """
    members = world(
        runs("s", "n1", lasts="2h", since=5, preemptible=True, priority=50),
        runs("x", "n2", lasts="1h", since=80),
        runs("y", "n3", lasts="1h", since=40),
        waits(
            "big", 2, lasts="10m", reserve=True, waited=60, stored=stored(10, {"n1": 8, "n2": 8}, made=-30)
        ),
        waits(
            "next", 2, lasts="10m", reserve=True, waited=50, stored=stored(20, {"n1": 8, "n3": 8}, made=-3)
        ),
    )
    plan = solved(cluster(nodes=THREE, **members))
    assert caplog.messages == []
    assert evicted(plan) == set()
    assert holds(plan)["big"] == ("later", 30.0, ["n1", "n3"])
    assert holds(plan)["next"][:2] == ("later", 40.0)
    assert entry(plan, "next").cause == "Overrun"


# --- off means off -------------------------------------------------------------------------------


def test_switched_off_nothing_is_read() -> None:
    members = world(
        runs("a", "n2", lasts="soon"),
        waits("big", 2, reserve=True, waited=60, stored="{"),
        waits("w", 1, 8, waited=1),
    )
    snapshot = cluster(nodes=TWO, **members)
    plain = replace(snapshot, groups=tuple(noted(one) for one in snapshot.groups))
    off = Settings.model_validate({"solver": {"budget_seconds": 20}})
    plan, without = decide(snapshot, off), decide(plain, off)
    assert plan.reservations is None
    assert plan.set_aside == ()
    assert plan.decisions == without.decisions
    assert plan.unscheduled == without.unscheduled


# --- the checker ---------------------------------------------------------------------------------


def faults(plan: Plan, *members: Any, chosen: Settings | None = None) -> list[str]:
    chosen = chosen or settings()
    snapshot = cluster(nodes=TWO, **world(*members))
    return violations(prepare(snapshot, chosen)[0], plan, chosen.rules)


BIG = waits("big", 2, lasts="4h", reserve=True, waited=60)
HELD = Reservation(GroupKey("ns", "big"), "q", "made", at(30), at(30), at(0), {"n1": 8.0, "n2": 8.0})


def test_the_checker_knows_free_capacity_over_time() -> None:
    assert faults(Plan(reservations=(HELD,)), BIG, runs("a", "n2", lasts="30m")) == []
    broken = faults(Plan(reservations=(HELD,)), BIG, runs("a", "n2", lasts="31m"))
    assert ["starts: node n2 would hold 16 of 8 GPUs" in line for line in broken] == [True]
    broken = faults(Plan(reservations=(HELD,)), BIG, runs("a", "n2"))
    assert len(broken) == 1
    late = replace(HELD, start=at(-1))
    assert any("starts in the past" in line for line in faults(Plan(reservations=(late,)), BIG))
    more = replace(HELD, nodes={"n1": 8.0, "n2": 9.0})
    assert any("more than its pods ask for" in line for line in faults(Plan(reservations=(more,)), BIG))


@pytest.mark.parametrize(
    ("decisions", "entry", "words"),
    [
        ((), HELD, ""),
        ((), replace(HELD, state="kept"), ""),
        ((), replace(HELD, nodes={"n1": 8.0, "n2": 0.0}), "holds 0 GPUs of node n2"),
        ((), replace(HELD, state="draining", group=GroupKey("ns", "none")), "is of no pod group"),
        ((nominate("big-0", "n1"),), HELD, "holds 16 GPUs, more than its pods ask for"),
    ],
)
def test_the_checker_knows_what_a_reservation_may_hold(
    decisions: tuple[Decision, ...], entry: Reservation, words: str
) -> None:
    """It is stored as it is; a pod that gets its place now needs none later."""
    old = waits("big", 2, lasts="4h", reserve=True, waited=60, stored=stored(30, {"n1": 8, "n2": 8}))
    found = [line for line in faults(Plan(decisions, reservations=(entry,)), old) if "starts" in line]
    assert any(words in line for line in found) is bool(words)


def test_a_reservation_may_hold_a_node_for_a_pod_without_gpus() -> None:
    """Only one of the two pods of big asks for GPUs."""
    big = waits("big", 2, lasts="4h", reserve=True, waited=60)
    snapshot = cluster(nodes=TWO, **world(big))
    bare = replace(snapshot.pods[0], spec=spec(0))
    snapshot = replace(snapshot, pods=(bare, *snapshot.pods[1:]))
    chosen = settings()
    for gpus, held in ((0.0, True), (-1.0, False)):
        plan = Plan(reservations=(replace(HELD, nodes={"n1": 8.0, "n2": gpus}),))
        found = violations(prepare(snapshot, chosen)[0], plan, chosen.rules)
        assert (found == []) is held


@pytest.mark.parametrize("on", [True, False])
def test_a_reservation_lies_in_one_domain_where_the_topology_counts(*, on: bool) -> None:
    """The only racks are single nodes, and big needs two: without the plugin it holds both."""
    nodes = [node(name, labels={"rack": name}) for name in ("n1", "n2")]
    rack = TopologyConstraint("dc", required="rack")
    members = world(waits("big", 2, lasts="4h", reserve=True, constraint=rack), runs("a", "n2", lasts="30m"))
    plugins = PLUGINS | {"topology"} if on else PLUGINS - {"topology"}
    snapshot = cluster(nodes=nodes, topologies=[Topology("dc", ("rack",))], plugins=plugins, **members)
    assert holds(solved(snapshot)).get("big") == (None if on else ("made", 30, ["n1", "n2"]))


def test_the_checker_counts_what_starts_now() -> None:
    plan = Plan((nominate("s-0", "n1"),), reservations=(HELD,))
    for lasts, count in (("30m", 0), ("31m", 1), (None, 1)):
        broken = faults(plan, BIG, runs("a", "n2", lasts="30m"), waits("s", 1, 4, lasts=lasts))
        assert len([line for line in broken if line.startswith("starts: node n1")]) == count


@pytest.mark.parametrize(("deadlines", "count"), [((60.0, None), 1), ((60.0, 60.0), 0)])
def test_the_checker_takes_a_pod_without_a_limit_to_stay(
    deadlines: tuple[float | None, float | None], count: int
) -> None:
    chosen, its_pods = waits("s", 2, 4, preemptible=False)
    limited = tuple(replace(p, deadline_seconds=s) for p, s in zip(its_pods, deadlines, strict=True))
    plan = Plan((nominate("s-0", "n1"), nominate("s-1", "n1")), reservations=(HELD,))
    broken = faults(plan, BIG, runs("a", "n2", lasts="30m"), (chosen, limited))
    assert len([line for line in broken if line.startswith("starts: node n1")]) == count


def test_the_checker_wants_a_cause_and_keeps_promises() -> None:
    moved = replace(HELD, state="later", start=at(40), promised=at(40), made=at(-30))
    old = waits("big", 2, lasts="4h", reserve=True, waited=60, stored=stored(30, {"n1": 8, "n2": 8}))
    broken = faults(Plan(reservations=(moved,)), old, runs("a", "n2", lasts="40m"))
    assert ["without a cause" in line or "or something else" in line for line in broken] == [True, True]


def test_the_checker_lets_none_but_holders_start_by_reservation() -> None:
    """A holder stays for its run time. s says how long it runs but may be there for longer, so it must not
    count as one.
    """
    begun = Reservation(GroupKey("ns", "s"), "q", "started", at(0), nodes={"n1": 4.0})
    s = waits("s", 1, 4, lasts="30m", preemptible=False)
    no_right = faults(Plan((nominate("s-0", "n1"),), reservations=(begun, HELD)), BIG, s)
    assert no_right == ["starts: ns/s is said to have started, but has no right to places"]
    nowhere = replace(begun, group=GroupKey("ns", "big"))
    old = waits("big", 2, lasts="4h", reserve=True, waited=60, stored=stored(0, {"n1": 8, "n2": 8}))
    no_place = faults(Plan(reservations=(nowhere,)), old, s)
    assert no_place == ["starts: ns/big is said to have started, but gets no place"]
    both = tuple(nominate(f"big-{i}", f"n{i + 1}", "reservation") for i in range(2))
    assert faults(Plan(both, reservations=(nowhere,)), old, s) == []


def test_the_checker_knows_no_reservations_where_they_are_off() -> None:
    for chosen in (Settings(), settings(reservations={"enabled": False}, max_runtime={"enforce": True})):
        found = faults(Plan(reservations=(HELD,)), BIG, chosen=chosen)
        assert "starts: 1 reservations, which no setting switches on" in found


def test_the_checker_asks_which_group_evicts_by_time() -> None:
    bind = nominate("a-0", "n2", "maxruntime")
    gone = replace(bind, kind="Evict", group=GroupKey("ns", "a"))
    plan = Plan((replace(gone, action="maxruntime", node="n2"),))
    chosen = settings(max_runtime={"enforce": True})
    running = runs("a", "n2", lasts="30m", since=10)
    assert any("its time is not over" in line for line in faults(plan, BIG, running, chosen=chosen))
    long = (noted(running[0], ("kai-cp/max-runtime", "5m")), running[1])
    assert faults(plan, BIG, long, chosen=chosen) == []


def test_the_checker_keeps_an_ended_group_waiting_until_its_delay_has_passed() -> None:
    """Its maximum ended it an hour ago."""
    s = waits("s", 1, 4)
    ended = replace(noted(s[0], ("kai-cp/ended", written(-60))), last_eviction=at(-60))
    plan = Plan((nominate("s-0", "n1"),))
    for delay, words in ((7_200, "it may start again in 3600 s"), (3_600, "")):
        chosen = settings(max_runtime={"enforce": True, "requeue_delay_seconds": delay})
        found = faults(plan, (ended, s[1]), chosen=chosen)
        assert [words in line for line in found] == ([True] if words else [])


def test_a_maximum_ends_no_group_that_a_disruption_budget_protects() -> None:
    """Both have run for an hour and may run for five minutes. The budget allows one eviction of the two pods
    of a, so a stays as a whole; b ends all the same.
    """
    limit = ("kai-cp/max-runtime", "5m")
    members = world(
        (noted(group("a", 2, last_start=at(-60)), limit), pods("a", 2, "n1", labels={"app": "a"})),
        (noted(group("b", 1, last_start=at(-60)), limit), pods("b", 1, "n2")),
    )
    protected = {
        "metadata": {"name": "a", "namespace": "ns"},
        "spec": {"selector": {"matchLabels": {"app": "a"}}},
        "status": {"disruptionsAllowed": 1},
    }
    snapshot = cluster(nodes=TWO, extras=objects_of({"podDisruptionBudgets": [protected]}), **members)
    enforced: dict[str, Any] = {"max_runtime": {"enforce": True}}
    budgets = settings(**enforced, rules={"pod_disruption_budgets": True})
    assert evicted(solved(snapshot, budgets)) == {"b-0"}
    assert evicted(solved(snapshot, settings(**enforced))) == {"a-0", "a-1", "b-0"}


def test_a_maximum_ends_pods_of_unknown_subgroups_too(caplog: pytest.LogCaptureFixture) -> None:
    """a-1 names no subgroup of a: it leaves with a-0, and b, which is over its maximum as well, ends too."""
    limit = ("kai-cp/max-runtime", "5m")
    members = world(
        (
            noted(group("a", 1, last_start=at(-60)), limit),
            (pod("a-0", "n1"), pod("a-1", "n1", subgroup="zzz")),
        ),
        (noted(group("b", 1, last_start=at(-60)), limit), pods("b", 1, "n2")),
    )
    plan = solved(cluster(nodes=TWO, **members), settings(max_runtime={"enforce": True}))
    assert evicted(plan) == {"a-0", "a-1", "b-0"}
    assert caplog.messages == []


def test_pods_that_wait_in_an_ended_group_wait_for_its_delay_and_keep_nothing_alive() -> None:
    """a may run for five minutes, and its s0 has for an hour. The two pods of s1 that wait would make a start
    anew: with a delay they wait, too; without one they get places, and are no surplus that had to go first.
    """
    root = tree(1, leaf("s0", 3), leaf("s1", 1))
    members = world(
        (
            noted(group("a", root=root, last_start=at(-60)), ("kai-cp/max-runtime", "5m")),
            pods("a", 3, "n1", subgroup="s0") + tuple(pod(f"a-{i}", subgroup="s1") for i in (3, 4)),
        )
    )
    for delay, started in ((600, set()), (0, {"a-3", "a-4"})):
        chosen = settings(max_runtime={"enforce": True, "requeue_delay_seconds": delay})
        plan = solved(cluster(nodes=TWO, **members), chosen)
        assert (evicted(plan), set(placed(plan))) == ({"a-0", "a-1", "a-2"}, started)
        assert set(reasons(plan).values()) == ({"RequeueDelay"} if delay else set())


def test_a_limit_that_only_a_maximum_frees_binds_no_pod_yet() -> None:
    """q may hold 8 GPUs, and holds them until a, which is over its maximum, has left: w has its place on the
    idle n2 as soon as that is so.
    """
    members = world(
        (
            noted(group("a", 1, last_start=at(-60)), ("kai-cp/max-runtime", "5m")),
            pods("a", 1, "n1", spec=spec(8)),
        ),
        waits("w", 1, 4),
    )
    snapshot = cluster(nodes=TWO, queues=[queue(limit=gpu_bound(8))], **members)
    plan = solved(snapshot, settings(max_runtime={"enforce": True}))
    assert (evicted(plan), bound(plan), set(nominated(plan))) == ({"a-0"}, {}, {"w-0"})


def test_the_price_of_a_start_counts_lost_work_up_to_its_cap() -> None:
    """a has run for three hours on 8 GPUs. Up to an hour counts, so its end costs 8 GPU-hours, which vip
    pays; if two count, it costs 16.
    """
    paying = (("kai-cp/hero-price-gpu-hours", "8"),)
    members = world(
        runs("a", "n1", since=180, preemptible=True, priority=40),
        waits("vip", 1, reserve=True, notes=paying, priority=60, queue="vips"),
    )
    queues = [queue(), queue("vips", notes=[("kai-cp/hero", "true")])]
    snapshot = cluster(nodes=TWO[:1], queues=queues, actions=("allocate",), **members)
    for cap, gone in ((3600, {"a-0"}), (7200, set())):
        chosen = settings(reservations={"hero": True}, objective={"lost_work_cap_seconds": cap})
        assert evicted(solved(snapshot, chosen)) == gone


def test_a_paid_start_ends_victims_that_also_wait_and_serves_further_pods() -> None:
    """vip pays for the place of a, of which one more pod waits and now waits for vip. The further pods of vip
    are asked for next: one fits beside b, one nowhere; last comes x, which takes what is left.
    """
    notes, paying = (("kai-cp/expected-runtime", "1h"),), (("kai-cp/hero-price-gpu-hours", "8"),)
    victim, (running,) = runs("a", "n1", since=60, preemptible=True, priority=40)
    hero, (first,) = waits("vip", 1, 8, reserve=True, notes=paying, priority=60, queue="vips")
    small = [replace(pod, spec=spec(2)) for pod in pods("vip", 3)[1:]]
    members = world(
        (victim, (running, pods("a", 2, spec=spec(8))[1])),
        runs("b", "n2", 5),
        (hero, (first, *small)),
        waits("x", 1, 1, notes=notes, waited=-1),
    )
    queues = [queue(), queue("vips", notes=[("kai-cp/hero", "true")])]
    snapshot = cluster(nodes=TWO, queues=queues, actions=("allocate",), **members)
    plan = solved(snapshot, settings(reservations={"hero": True}))
    assert evicted(plan) == {"a-0"}
    assert (nominated(plan), bound(plan)) == ({"vip-0": "n1"}, {"vip-1": "n2", "x-0": "n2"})
    assert reasons(plan) == {"a": "WaitingForReservation", "vip": "NextIncrement"}


def test_every_start_is_kept_when_the_plan_is_carried_out_again() -> None:
    """The same world with the annotations of the first plan: same starts, same nodes, state kept."""
    members = [
        runs("a", "n1", lasts="30m"),
        runs("b", "n2", lasts="50m"),
        waits("one", 1, lasts="1h", reserve=True, waited=80),
        waits("two", 2, lasts="1h", reserve=True, waited=70),
    ]
    first = solved(cluster(nodes=TWO, **world(*members)))
    again = []
    for one, many in members:
        found = next((e for e in first.reservations or () if e.group == one.key), None)
        if found is not None:
            document = {
                "schema": "reservation/1",
                "start": written(((found.start or 0) - at(0)) / 60),
                "promised": written(((found.promised or 0) - at(0)) / 60),
                "made": written(0),
                "nodes": dict(found.nodes),
            }
            stored = noted(one, ("kai-cp/reservation", json.dumps(document))).notes.reservation
            one = replace(one, notes=replace(one.notes, reservation=stored, reserved=True))
        again.append((one, many))
    second = solved(cluster(nodes=TWO, **world(*again)))
    assert {k: v[1:] for k, v in holds(second).items()} == {k: v[1:] for k, v in holds(first).items()}
    assert {v[0] for v in holds(second).values()} == {"kept"}
