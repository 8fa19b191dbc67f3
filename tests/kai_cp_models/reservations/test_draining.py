"""Places that are closed until they are empty, where no run times are known: argued by hand on
tiny worlds.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from kai_cp.decisions import from_json, to_json
from kai_cp.kube.api.promises import promises
from kai_cp_models.check import violations
from kai_cp_models.engine import decide
from kai_cp_models.plan import IdleSoFar, Plan, Reservation
from kai_cp_models.pods import GroupKey
from kai_cp_models.reservations.prepare import prepare
from kai_cp_models.settings import Settings
from kai_cp_models.snapshot import Snapshot
from tests.support.plans import bound, evicted, nominated, placed, reasons
from tests.support.times import at, entry, holds, runs, settings, waits, world, written
from tests.support.worlds import cluster, gpu_bound, node, nominate, queue

THREE = (node("n1"), node("n2"), node("n3"))
DRAIN = settings(reservations={"without_ends": "drain", "max_idle_gpu_hours": 4})
BIG = GroupKey("ns", "big")


def closed(
    nodes: dict[str, int], gpus: float, hours: float = 0, since: float = -30, made: float = -30
) -> str:
    """Closed places as an annotation: ``gpus`` idle for so many minutes, ``hours`` before."""
    idle = {"since": written(since), "gpus": gpus, "gpuHours": hours}
    return json.dumps({"schema": "reservation/1", "made": written(made), "nodes": nodes, "idle": idle})


def solved(snapshot: Snapshot, chosen: Settings = DRAIN) -> Plan:
    plan = decide(snapshot, chosen)
    assert violations(prepare(snapshot, chosen)[0], plan, chosen.rules) == []
    assert not [stage.name for stage in plan.stages if ":" in stage.name and "admission" not in stage.name]
    return plan


def big(text: str | None = None, **more: Any) -> Any:
    return waits("big", 2, lasts="4h", reserve=True, waited=60, stored=text, **more)


def test_a_drain_is_no_reservation_of_the_document() -> None:
    """Its state is none of those that the format has for reservations; it has no start."""
    snapshot = cluster(nodes=THREE, **world(*(runs(f"r{n}", f"n{n}", 6) for n in (1, 2, 3)), big()))
    plan = solved(snapshot)
    document = to_json(snapshot, plan)
    assert document["reservations"] == []
    assert [(one["podGroup"], one["state"]) for one in document["draining"]] == [("ns/big", "draining")]
    read = from_json(document).reservations or ()
    assert [(one.group, one.state) for one in read] == [(BIG, "draining")]


def test_the_places_with_the_fewest_busy_gpus_are_closed() -> None:
    """n1 has 6 busy GPUs, n2 2 and n3 4, and no end is known. n2 and n3 are closed, and there is no start."""
    members = world(runs("a", "n1", 6), runs("b", "n2", 2), runs("c", "n3", 4), big())
    plan = solved(cluster(nodes=THREE, **members))
    found = entry(plan, "big")
    assert (found.state, found.start, found.promised) == ("draining", None, None)
    assert found.nodes == {"n2": 8.0, "n3": 8.0}
    assert found.idle == IdleSoFar(at(0), 10.0, 0.0)
    waiting = next(row for row in plan.unscheduled if row.group == BIG)
    assert waiting.estimate is not None
    assert waiting.estimate.kind == "none"


def test_none_is_the_default() -> None:
    members = world(runs("a", "n1", 6), runs("b", "n2", 2), runs("c", "n3", 4), big())
    assert holds(solved(cluster(nodes=THREE, **members), settings())) == {}


def test_only_pods_that_can_be_evicted_at_any_time_start_there() -> None:
    """f is non-preemptible and fits on n1 only. A second one would have to go to n2, so it waits."""
    members = world(
        runs("a", "n1", 6),
        runs("b", "n2", 2),
        runs("c", "n3", 4),
        big(),
        waits("f", 1, 2, waited=5, preemptible=False),
        waits("g", 1, 2, waited=4, preemptible=False),
        waits("p", 1, 2, waited=3),
    )
    plan = solved(cluster(nodes=THREE, **members))
    assert bound(plan)["f-0"] == "n1"
    assert reasons(plan)["g"] == "WaitingForReservation"
    assert bound(plan)["p-0"] in ("n2", "n3")


def test_an_earlier_start_opens_no_closed_places() -> None:
    """e starts before big closes n2 and n3, and takes the last idle GPUs of n1. No other arrangement has a
    place for g either: only the closed nodes have one."""
    members = world(
        runs("a", "n1", 6),
        runs("b", "n2", 2),
        runs("c", "n3", 4),
        waits("e", 1, 2, waited=90, preemptible=False),
        big(),
        waits("g", 1, 2, waited=4, preemptible=False),
    )
    plan = solved(cluster(nodes=THREE, **members))
    assert bound(plan) == {"e-0": "n1"}
    assert reasons(plan)["g"] == "WaitingForReservation"


def test_a_part_of_a_node_leaves_the_rest_open() -> None:
    """big needs 4 GPUs of n1, where a uses 2. Of the 6 idle GPUs 2 are open to other groups."""
    members = world(
        runs("a", "n1", 5),
        waits("big", 1, 4, reserve=True, waited=60),
        waits("f", 1, 1, waited=4, preemptible=False),
    )
    plan = solved(cluster(nodes=(node("n1"),), **members))
    assert holds(plan)["big"][0] == "draining"
    assert reasons(plan)["f"] == "WaitingForReservation"
    members = world(
        runs("a", "n1", 2),
        runs("b", "n1", 1),
        waits("big", 1, 6, reserve=True, waited=60),
        waits("f", 1, 1, waited=4, preemptible=False),
    )
    assert placed(solved(cluster(nodes=(node("n1"),), **members))) == set()


def test_when_only_backfill_is_left_the_gang_starts() -> None:
    """a has ended on n1. p came to n2 after the places were closed: it is evicted, and big starts."""
    text = closed({"n1": 8, "n2": 8}, 4)
    members = world(
        runs("p", "n2", 2, since=10, preemptible=True, priority=50), runs("c", "n3", 8), big(text)
    )
    plan = solved(cluster(nodes=THREE, **members))
    assert evicted(plan) == {"p-0"}
    assert {d.action for d in plan.decisions if d.kind == "Evict"} == {"reservation"}
    assert nominated(plan) | bound(plan) == {"big-0": "n1", "big-1": "n2"}
    assert holds(plan)["big"][0] == "started"


def test_a_holder_waits_for_pods_that_ran_before() -> None:
    """p has run on n2 since before the places were closed, so it is not evicted."""
    text = closed({"n1": 8, "n2": 8}, 4)
    members = world(
        runs("p", "n2", 2, since=40, preemptible=True, priority=50), runs("c", "n3", 8), big(text)
    )
    plan = solved(cluster(nodes=THREE, **members))
    assert evicted(plan) == set()
    assert holds(plan)["big"] == ("draining", 0.0, ["n1", "n2"])


@pytest.mark.parametrize(("hours", "state"), [(0.9, "draining"), (1.1, "dropped")])
def test_closed_places_are_given_up_when_too_much_stood_idle(hours: float, state: str) -> None:
    """6 GPUs for half an hour are 3 GPU-hours; 4 are allowed in all."""
    text = closed({"n1": 8, "n2": 8}, 6, hours, since=-30, made=-60)
    members = world(runs("a", "n1", 6), runs("b", "n2", 4), runs("c", "n3", 8), big(text))
    plan = solved(cluster(nodes=THREE, **members))
    found = entry(plan, "big")
    assert found.state == state
    assert found.cause == (None if state == "draining" else "Expired")
    assert (found.expired is None) == (state == "draining")


def test_the_note_changes_only_when_something_ends() -> None:
    """While 6 GPUs stand idle the note does not change. When b ends, 10 do, and the loss so far is added."""
    text = closed({"n1": 8, "n2": 8}, 6, 0.5, made=-60)
    first = cluster(nodes=THREE, **world(runs("a", "n1", 6), runs("b", "n2", 4), runs("c", "n3"), big(text)))
    plan = solved(first)
    assert json.loads(dict(promises(first, plan))[BIG]["kai-cp/reservation"] or "") == json.loads(text)
    assert plan.again_at == at(5) + 1
    second = cluster(nodes=THREE, **world(runs("a", "n1", 6), runs("c", "n3"), big(text)))
    idle = entry(solved(second), "big").idle
    assert idle == IdleSoFar(at(0), 10.0, 3.5)


def test_a_known_end_makes_a_reservation_of_it() -> None:
    """Both jobs on n1 and n2 now declare when they end, so there is a start and a promise."""
    text = closed({"n1": 8, "n2": 8}, 6)
    members = world(
        runs("a", "n1", 6, lasts="20m"), runs("b", "n2", 4, lasts="30m"), runs("c", "n3"), big(text)
    )
    chosen = settings(reservations={"without_ends": "drain", "max_idle_gpu_hours": 100})
    plan = solved(cluster(nodes=THREE, **members), chosen)
    assert holds(plan)["big"] == ("made", 30.0, ["n1", "n2"])


def test_a_lost_node_is_replaced() -> None:
    members = world(runs("a", "n1", 6), runs("c", "n3", 4), big(closed({"n1": 8, "n2": 8}, 2, since=-1)))
    nodes = (node("n1"), replace(node("n2"), not_ready=True), node("n3"))
    plan = solved(cluster(nodes=nodes, **members))
    assert holds(plan)["big"] == ("draining", 0.0, ["n1", "n3"])


def test_nothing_is_closed_beyond_a_limit() -> None:
    """q may hold 16 GPUs, and a holds 6 of them with no known end."""
    members = world(runs("a", "n1", 6), runs("b", "n2", 2, queue="other"), big())
    queues = [queue("q", limit=gpu_bound(16)), queue("other")]
    assert holds(solved(cluster(nodes=THREE[:2], queues=queues, **members))) == {}


def test_closed_places_open_when_the_setting_is_removed() -> None:
    members = world(runs("a", "n1", 6), runs("b", "n2", 2), big(closed({"n1": 8, "n2": 8}, 2)))
    plan = solved(cluster(nodes=THREE[:2], **members), settings())
    assert (entry(plan, "big").state, entry(plan, "big").cause) == ("dropped", "OptedOut")


@pytest.mark.parametrize(
    ("gpus", "hours", "since", "made"),
    [
        (17, 0, -1, -1),
        (-1, 0, -1, -1),
        (1, -1, -1, -1),
        (1, 9, -1, -1),
        (1, 0, 1, -1),
        (1, 0, -9, -1),
        (1, 0, 0, 1),
    ],
)
def test_a_note_that_cannot_be_is_set_aside(gpus: int, hours: int, since: int, made: int) -> None:
    text = closed({"n1": 8, "n2": 8}, gpus, hours, since, made)
    members = world(runs("a", "n1", 6), runs("b", "n2", 2), big(text))
    plan = solved(cluster(nodes=THREE[:2], **members))
    assert [one.item for one in plan.set_aside] == ["PodGroup ns/big"]
    assert entry(plan, "big").made == at(0)


def test_the_checker_knows_closed_places() -> None:
    held = Reservation(
        BIG, "q", "draining", made=at(0), nodes={"n1": 8.0, "n2": 8.0}, idle=IdleSoFar(at(0), 8, 0)
    )
    cases = ((True, True, 0), (True, False, 1), (False, False, 0))
    for stored, preemptible, faults in cases:
        text = closed({"n1": 8, "n2": 8}, 8) if stored else None
        members = world(runs("a", "n1", 6), big(text), waits("s", 1, 2, preemptible=preemptible))
        snapshot = prepare(cluster(nodes=THREE[:2], **members), DRAIN)[0]
        plan = Plan((nominate("s-0", "n2"),), reservations=(held,))
        found = [line for line in violations(snapshot, plan, DRAIN.rules) if "is closed for" in line]
        assert len(found) == faults


def test_without_nodes_nothing_is_closed() -> None:
    assert solved(cluster(nodes=(), **world(big()))).decisions == ()


@pytest.mark.parametrize("noted", [True, False])
def test_a_group_that_starts_before_the_places_are_closed_runs_on(*, noted: bool) -> None:
    """d starts on n1, and big closes n1 in the same cycle. A minute later the note of that is what
    tells d from backfill."""
    d, gang = waits("d", 1, waited=90, priority=50), waits("big", 1, reserve=True, waited=60, priority=50)
    made = entry(solved(cluster(nodes=(node("n1"),), **world(d, gang))), "big")
    assert (made.state, made.beside) == ("draining", (GroupKey("ns", "d"),))
    note = json.loads(closed({"n1": 8}, 0, made=-1, since=-1)) | ({"beside": made.beside} if noted else {})
    d = runs("d", "n1", since=0.9, preemptible=True, priority=50)
    gang = waits("big", 1, reserve=True, waited=60, priority=50, stored=json.dumps(note))
    plan = solved(cluster(nodes=(node("n1"),), **world(d, gang)))
    assert evicted(plan) == (set() if noted else {"d-0"})
    assert entry(plan, "big").state == ("draining" if noted else "started")


def test_a_group_that_outranks_the_gang_runs_on_where_it_came_by_preempt() -> None:
    """d could preempt big, if big ran there; it comes later than the places were closed."""
    note = closed({"n1": 8}, 0, made=-1, since=-1)
    d = runs("d", "n1", since=0.5, preemptible=True, priority=60)
    gang = waits("big", 1, reserve=True, waited=60, priority=50, stored=note)
    plan = solved(cluster(nodes=(node("n1"),), **world(d, gang)))
    assert evicted(plan) == set()
    assert entry(plan, "big").state == "draining"


@pytest.mark.parametrize("old", [None, {"n1": 8}])
def test_a_group_for_which_others_were_evicted_there_is_no_backfill(old: dict[str, int] | None) -> None:
    """r, in its quota, reclaims n1, which is closed for big of another queue, now or since a minute."""
    note = None if old is None else closed(old, 0, made=-1, since=-1)
    members = world(
        runs("v", "n1", since=30, queue="over", preemptible=True, priority=50),
        waits("big", 1, reserve=True, waited=60, stored=note, queue="over", priority=50),
        waits("r", 1, waited=5, queue="in", priority=50),
    )
    queues = [queue("over", quota=gpu_bound(0)), queue("in", quota=gpu_bound(8))]
    chosen = settings(reservations={"without_ends": "drain", "max_idle_gpu_hours": 4, "within": "limit"})
    plan = decide(cluster(nodes=(node("n1"),), queues=queues, **members), chosen)
    assert (evicted(plan), nominated(plan)) == ({"v-0"}, {"r-0": "n1"})
    assert entry(plan, "big").beside == (GroupKey("ns", "r"),)
