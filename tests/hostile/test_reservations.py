"""What users may write into annotations: no group holds or takes what the rules do not give.

No admission policy takes part: what it forbids exists already, and gives nothing.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from tests.support.plans import bound, evicted
from tests.support.times import at, entry, holds, runs, settings, stored, waits, world, written
from tests.support.worlds import cluster, gpu_bound, node, noted, pods, queue, spec
from tests.worlds.test_starts import TWO, solved

HOSTILE = [
    ("not JSON", "{"),
    ("a list", "[]"),
    ("another schema", json.dumps({"schema": "reservation/2"})),
    ("made in the future", stored(30, {"n1": 8, "n2": 8}, made=1)),
    ("made before the group came", stored(30, {"n1": 8, "n2": 8}, made=-61)),
    ("a start before made", stored(-31, {"n1": 8, "n2": 8})),
    ("more GPUs than the gang needs", stored(30, {"n1": 8, "n2": 16})),
    ("negative GPUs", stored(30, {"n1": -8, "n2": 8})),
    ("an unknown node", stored(30, {"n1": 8, "n9": 8})),
    ("expired in the future", json.dumps({"schema": "reservation/1", "expired": written(1)})),
    ("nodes are a list", json.dumps({**json.loads(stored(30, {})), "nodes": ["n1"]})),
    ("too deep", "[" * 100_000),
    ("a list as made", json.dumps({**json.loads(stored(30, {})), "made": []})),
    ("an object as start", json.dumps({**json.loads(stored(30, {})), "start": {}})),
    ("more GPUs than a float holds", json.dumps({**json.loads(stored(30, {})), "nodes": {"n1": 10**400}})),
    ("endless GPUs", stored(30, {"n1": math.inf}).replace("Infinity", "1e999")),
]


@pytest.mark.parametrize(("what", "text"), HOSTILE, ids=[what for what, _ in HOSTILE])
def test_an_unreadable_reservation_gives_nothing(what: str, text: str) -> None:
    """It is named and planned anew; the rules decide about capacity, whatever the annotation says."""
    members = world(
        runs("a", "n2", lasts="30m"), waits("big", 2, lasts="4h", reserve=True, waited=60, stored=text)
    )
    plan = solved(cluster(nodes=TWO, **members))
    assert holds(plan)["big"] == ("made", 30.0, ["n1", "n2"]), what
    assert [(one.item, "kai-cp/reservation" in one.field) for one in plan.set_aside] == [
        ("PodGroup ns/big", True)
    ]


def test_a_forged_start_evicts_no_pod_that_has_its_place_by_right() -> None:
    """big writes a start of now on nodes on which others have run since before it came: they stay."""
    forged = stored(0, {"n1": 8, "n2": 8}, made=-5)
    members = world(
        runs("a", "n1", since=30, preemptible=True, priority=50),
        runs("b", "n2", since=30, preemptible=True, priority=50),
        waits("big", 2, lasts="4h", reserve=True, waited=5, stored=forged),
    )
    assert evicted(solved(cluster(nodes=TWO, **members))) == set()


def test_a_reservation_of_a_group_that_may_not_hold_is_dropped() -> None:
    """big has waited five minutes and does not ask for a reservation: its annotation holds nothing, and
    w starts.
    """
    members = world(
        runs("a", "n2", lasts="30m"),
        waits("big", 2, lasts="4h", waited=5, stored=stored(30, {"n1": 8, "n2": 8}, made=-4)),
        waits("w", 1, 8, waited=1),
    )
    plan = solved(cluster(nodes=TWO, **members))
    assert (holds(plan)["big"][0], entry(plan, "big").cause) == ("dropped", "OptedOut")
    assert bound(plan) == {"w-0": "n1"}


NONSENSE = ["soon", "-5m", "0s", "", "1d", "90", "٣m", "1h30", "1h -5m", "1e3s"]


@pytest.mark.parametrize("text", NONSENSE)
def test_a_run_time_that_cannot_be_read_counts_as_missing(text: str) -> None:
    members = world(runs("a", "n1", lasts=text), waits("big", 1, reserve=True, waited=60))
    plan = solved(cluster(nodes=(node("n1"),), **members))
    assert holds(plan) == {}
    assert [one.item for one in plan.set_aside] == ["PodGroup ns/a"]


DAY = 24 * 60.0


def test_a_forged_start_beyond_the_horizon_holds_nothing() -> None:
    """n1 is busy for eight days, seven are planned: big may hold nothing, so w starts on n2."""
    forged = stored(9 * DAY, {"n1": 8, "n2": 8}, made=-5)
    members = world(
        runs("a", "n1", lasts="192h"),
        waits("big", 2, lasts="4h", reserve=True, waited=60, stored=forged),
        waits("w", 1, waited=1),
    )
    plan = solved(cluster(nodes=TWO, **members))
    assert holds(plan) == {}
    assert bound(plan) == {"w-0": "n2"}
    assert [one.item for one in plan.set_aside] == ["PodGroup ns/big"]


def test_a_forged_reservation_comes_after_those_that_were_made_before_its_group_came() -> None:
    """Both need both nodes; honest has held them for half an hour, forger came ten minutes ago."""
    members = world(
        runs("a", "n2", lasts="30m"),
        waits("honest", 2, lasts="1h", reserve=True, waited=60, stored=stored(30, {"n1": 8, "n2": 8})),
        waits(
            "forger", 2, lasts="1h", reserve=True, waited=10, stored=stored(30, {"n1": 8, "n2": 8}, made=-10)
        ),
    )
    plan = solved(cluster(nodes=TWO, **members))
    assert holds(plan)["honest"] == ("kept", 30.0, ["n1", "n2"])
    assert holds(plan)["forger"][1] == 90.0


def test_a_forged_reservation_comes_after_those_that_were_made_before_it_might_hold() -> None:
    """Both need both nodes. honest asks and has held them for 40 minutes. forger does not ask and has
    waited 90 minutes: it may hold for the last 30, and writes that it has held for 89.
    """
    room = {"n1": 8, "n2": 8}
    members = world(
        runs("a", "n2", lasts="30m"),
        waits("honest", 2, lasts="1h", reserve=True, waited=60, stored=stored(30, room, made=-40)),
        waits("forger", 2, lasts="1h", waited=90, stored=stored(30, room, made=-89)),
    )
    plan = solved(cluster(nodes=TWO, **members))
    assert holds(plan)["honest"] == ("kept", 30.0, ["n1", "n2"])
    assert holds(plan)["forger"][1] == 90.0
    one = solved(cluster(nodes=TWO, **members), settings(reservations={"most": 1}))
    assert holds(one)["honest"] == ("kept", 30.0, ["n1", "n2"])
    assert holds(one)["forger"][0] == "dropped"


def test_a_reservation_of_a_group_that_runs_holds_nothing() -> None:
    """a runs on n1 and writes a start on n2: w starts on n2."""
    notes = (("kai-cp/reservation", stored(30, {"n2": 8})), ("kai-cp/reserve", "true"))
    running, its_pods = runs("a", "n1", since=60)
    members = world(
        (noted(running, *notes), its_pods),
        waits("w", 1, waited=1),
    )
    plan = solved(cluster(nodes=TWO, **members))
    assert holds(plan) == {}
    assert bound(plan) == {"w-0": "n2"}


def test_a_node_that_the_gang_may_not_use_is_not_held() -> None:
    """big is for nodes of kind a and writes n2, which is of kind b: n2 is free for w, and big is
    planned on n1.
    """
    members = world(
        runs("a", "n1", lasts="30m"),
        waits(
            "big",
            1,
            lasts="1h",
            reserve=True,
            waited=60,
            stored=stored(20, {"n2": 8}),
            needs={"node_selector": (("kind", "a"),)},
        ),
        waits("w", 1, waited=1),
    )
    kinds = (node("n1", labels={"kind": "a"}), node("n2", labels={"kind": "b"}))
    plan = solved(cluster(nodes=kinds, **members))
    assert holds(plan)["big"] == ("later", 30.0, ["n1"])
    assert bound(plan) == {"w-0": "n2"}


def test_a_start_beyond_a_limit_is_dropped() -> None:
    """The queue may use 8 GPUs at most, and big writes 16: it holds nothing, and w of another queue
    starts.
    """
    queues = [queue("q"), queue("small", limit=gpu_bound(8))]
    members = world(
        runs("a", "n2", lasts="30m"),
        waits(
            "big",
            2,
            lasts="1h",
            reserve=True,
            waited=60,
            queue="small",
            stored=stored(30, {"n1": 8, "n2": 8}),
        ),
        waits("w", 1, waited=1),
    )
    plan = solved(cluster(nodes=TWO, queues=queues, **members))
    assert (holds(plan)["big"][0], entry(plan, "big").cause) == ("dropped", "LimitLowered")
    assert bound(plan) == {"w-0": "n1"}


def test_an_accepted_price_evicts_no_pod_where_the_queue_has_no_heroes() -> None:
    """big offers a thousand GPU-hours; its queue allows no heroes, whether or not the settings do."""
    price = (("kai-cp/hero-price-gpu-hours", "1000"),)
    members = world(
        runs("a", "n1", lasts="30m", since=10, preemptible=True, priority=10, queue="other"),
        runs("b", "n2", lasts="40m", since=10, preemptible=True, priority=10, queue="other"),
        waits("big", 2, lasts="1h", reserve=True, waited=60, notes=price),
    )
    for hero in (False, True):
        chosen = settings(reservations={"hero": hero})
        plan = solved(cluster(nodes=TWO, queues=[queue("q"), queue("other")], **members), chosen)
        assert evicted(plan) == set()
        assert holds(plan)["big"] == ("made", 30.0, ["n1", "n2"])


def test_backfill_that_says_it_was_there_before_leaves_all_the_same() -> None:
    """s came five minutes ago, and writes that it started an hour ago, before hero's places were promised."""
    running, its_pods = runs("s", "n2", lasts="2h", since=5, preemptible=True, priority=50)
    members = world(
        (replace(running, last_start=at(-60)), its_pods),
        waits("hero", 2, lasts="1h", reserve=True, waited=60, stored=stored(0, {"n1": 8, "n2": 8}, made=-30)),
    )
    assert evicted(solved(cluster(nodes=TWO, **members))) == {"s-0"}


@pytest.mark.parametrize("name", ["kai-cp/expected-runtime", "kai-cp/max-runtime"])
def test_a_run_time_of_a_second_gives_nothing_that_lasts(name: str) -> None:
    """liar declares a second. If it is preemptible, it starts and counts as gone at the start of the
    holder. If it is not preemptible, a declaration that no limit enforces lets it start nowhere.
    """
    held = stored(30, {"n1": 8, "n2": 8})
    for preemptible in (True, False):
        members = world(
            runs("a", "n2", lasts="30m"),
            waits("hero", 2, lasts="1h", reserve=True, waited=60, stored=held),
            waits("liar", 1, waited=90, preemptible=preemptible, notes=((name, "1s"),)),
        )
        plan = solved(cluster(nodes=TWO, **members))
        assert holds(plan)["hero"] == ("kept", 30.0, ["n1", "n2"])
        assert bound(plan) == ({"liar-0": "n1"} if preemptible else {})


def test_a_run_time_of_a_century_counts_for_no_more_than_the_longest() -> None:
    members = world(
        runs("a", "n1", lasts="900000h", since=0, preemptible=True),
        waits("hero", 1, lasts="1h", reserve=True, waited=60),
    )
    chosen = settings(time={"longest_runtime_seconds": 3600})
    assert holds(solved(cluster(nodes=(node("n1"),), **members), chosen))["hero"] == ("made", 60.0, ["n1"])


def test_asking_for_reservations_brings_no_more_than_the_settings_let_hold() -> None:
    """Five gangs ask at once: two hold, in the order in which they came."""
    gangs = [waits(f"g{k}", 1, lasts="1h", reserve=True, waited=50 - k) for k in range(5)]
    members = world(runs("a", "n1", lasts="30m"), runs("b", "n2", lasts="40m"), *gangs)
    plan = solved(cluster(nodes=TWO, **members), settings(reservations={"most": 2}))
    assert holds(plan) == {"g0": ("made", 30.0, ["n1"]), "g1": ("made", 40.0, ["n2"])}


def test_a_pod_group_cannot_set_the_annotations_of_its_queue() -> None:
    """Patience, heroes and default run times are for the owner of the queue to set."""
    notes = (
        ("kai-cp/default-runtime", "1m"),
        ("kai-cp/hero", "true"),
        ("kai-cp/hero-price-gpu-hours", "1000"),
        ("kai-cp/reserve-after", "1s"),
    )
    members = world(
        runs("a", "n1", lasts="30m", since=10, preemptible=True, priority=10),
        waits("big", 1, waited=5, notes=notes),
    )
    plan = solved(cluster(nodes=(node("n1"),), **members), settings(reservations={"hero": True}))
    assert (holds(plan), [d for d in plan.decisions if d.action == "reservation"]) == ({}, [])


@pytest.mark.parametrize(("deadlines", "starts"), [((60.0, None), False), ((60.0, 1500.0), True)])
def test_a_gang_ends_when_the_last_of_its_pods_must(
    deadlines: tuple[float | None, float | None], starts: bool
) -> None:
    """c cannot be evicted and wants places on n1, which hero holds from 12:30. A pod without a deadline may
    stay for ever, whatever the other one says; 25 minutes are short enough.
    """
    chosen, its_pods = waits("c", 2, 4, waited=1, preemptible=False)
    limited = tuple(replace(p, deadline_seconds=s) for p, s in zip(its_pods, deadlines, strict=True))
    members = world(
        runs("a", "n2", lasts="30m"),
        waits("hero", 2, lasts="1h", reserve=True, waited=60, stored=stored(30, {"n1": 8, "n2": 8})),
        (chosen, limited),
    )
    plan = solved(cluster(nodes=TWO, **members))
    assert bound(plan) == ({"c-0": "n1", "c-1": "n1"} if starts else {})
    assert holds(plan)["hero"] == ("kept", 30.0, ["n1", "n2"])


def test_a_deadline_of_one_pod_that_runs_promises_no_start_on_the_places_of_the_others() -> None:
    """The launcher of a has ten minutes left, its worker no deadline: no end of a is known."""
    running, (launcher, worker) = runs("a", "n1", 4)[0], pods("a", 2, "n1", spec=spec(4), started=at(0))
    limited = (replace(launcher, deadline_seconds=600.0), worker)
    members = world((running, limited), waits("big", 1, lasts="1h", reserve=True, waited=60))
    assert holds(solved(cluster(nodes=(node("n1"),), **members))) == {}
    both = tuple(replace(pod, deadline_seconds=s) for pod, s in zip(limited, (600.0, 1200.0), strict=True))
    members = world((running, both), waits("big", 1, lasts="1h", reserve=True, waited=60))
    assert holds(solved(cluster(nodes=(node("n1"),), **members))) == {"big": ("made", 20.0, ["n1"])}


def test_a_last_start_after_its_oldest_pod_gives_no_more_time() -> None:
    """a may run for an hour, and its first pod has run for two. It writes that it started just now, and a
    small pod of it did: it is ended.
    """
    running, (first, late) = runs("a", "n1", 4)[0], pods("a", 2, "n1", spec=spec(4), started=at(-1))
    forged = noted(replace(running, last_start=at(-1)), ("kai-cp/max-runtime", "1h"))
    members = world((forged, (replace(first, started=at(-120)), late)))
    plan = solved(cluster(nodes=TWO, **members), settings(max_runtime={"enforce": True}))
    assert {(d.pod.name, d.action) for d in plan.decisions} == {("a-0", "maxruntime"), ("a-1", "maxruntime")}
    assert {d.message for d in plan.decisions} == {"ns/a has run for 2h, which is its maximum"}
