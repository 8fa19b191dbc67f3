"""What plans say of starts in the future, as the checker judges it (12.1, 12.2, 12.5)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import pytest

from kai_cp_models.check import violations
from kai_cp_models.plan import Decision, Plan, Reservation
from kai_cp_models.pods import GroupKey, Pod
from kai_cp_models.reservations.prepare import prepare
from kai_cp_models.settings import Settings
from kai_cp_models.snapshot import PodGroup
from tests.support.times import at, runs, settings, stored, waits, world
from tests.support.worlds import bind, cluster, gpu_bound, group, named, node, nominate, pods, queue, spec

Member = tuple[PodGroup, tuple[Pod, ...]]
ON: Final = settings()
HELD: Final = Reservation(GroupKey("ns", "big"), "q", "made", at(30), at(30), at(0), {"n1": 8.0, "n2": 8.0})
KEPT: Final = replace(HELD, state="kept", made=at(-30))


def _big(annotation: str | None = None, gpus: int = 8, **more: Any) -> Member:
    """A gang of two pods that wants a start."""
    values = {"lasts": "4h", "reserve": True, "waited": 60, **more}
    return waits("big", 2, gpus, stored=annotation, **values)


OLD: Final = _big(stored(30, {"n1": 8, "n2": 8}))
"""Its start was promised for +30 on n1 and n2, 30 minutes ago."""


def _faults(plan: Plan, *members: Member, chosen: Settings = ON, **more: Any) -> list[str]:
    values = {"nodes": [node("n1"), node("n2"), node("n3")], **more}
    return violations(prepare(cluster(**values, **world(*members)), chosen)[0], plan, chosen.rules)


def _of(entry: Reservation | None, *decisions: Decision) -> Plan:
    return Plan(decisions, reservations=() if entry is None else (entry,))


def test_holds_that_are_as_they_say_pass() -> None:
    assert _faults(_of(HELD), _big(), runs("a", "n2", lasts="30m")) == []
    assert _faults(_of(KEPT), OLD, runs("a", "n2", lasts="30m")) == []


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        ({"n1": 8.0}, "less than its gang needs"),
        ({}, "less than its gang needs"),
        ({"n1": 4.0, "n2": 4.0, "n3": 4.0, "n4": 4.0}, "which are not whole pods of it"),
        ({"n1": 8.0, "old": 8.0}, "which accepts none of its pods"),
    ],
)
def test_a_hold_is_of_whole_pods_and_of_all_of_them(nodes: dict[str, float], words: str) -> None:
    gang = _big(needs={"node_selector": (("kind", "new"),)})
    there = [node(name, labels={"kind": "new"}) for name in ("n1", "n2", "n3", "n4")]
    assert named(_faults(_of(replace(HELD, nodes=nodes)), gang, nodes=[*there, node("old")]), "holds", words)
    assert _faults(_of(HELD), gang, nodes=[*there, node("old")]) == []


def test_pods_of_several_sizes_are_held_as_they_add_up() -> None:
    """Pods of 2 and 6 GPUs: 8, or 2 and 6, but never 4 and 4."""
    one, two = waits("big", 2, reserve=True, waited=60)
    sizes = replace(two[0], spec=spec(2)), replace(two[1], spec=spec(6))
    for nodes, fine in (({"n1": 8.0}, True), ({"n1": 2.0, "n2": 6.0}, True), ({"n1": 4.0, "n2": 4.0}, False)):
        assert (_faults(_of(replace(HELD, nodes=nodes)), (one, sizes)) == []) is fine


def test_more_than_gpus_are_there_at_the_start() -> None:
    """a holds all CPUs of n2 for ever; pods that ask for other amounts than each other are judged by GPUs."""
    a = group("a", preemptible=False), pods("a", 1, "n2", spec=spec(0, cpus=64))
    assert named(_faults(_of(HELD), _big(), a), "starts", "n2", "65 of 64 CPUs")
    assert _faults(_of(replace(HELD, nodes={"n1": 8.0, "n3": 8.0})), _big(), a) == []


@pytest.mark.parametrize(("limit", "fault"), [(24, False), (16, True)])
def test_the_limit_of_the_queue_holds_at_the_start(limit: int, fault: bool) -> None:
    """a runs for ever on 8 GPUs of n3, and the gang needs 16; b will have ended by then."""
    others = runs("a", "n3"), runs("b", "n2", lasts="20m")
    faults = _faults(_of(HELD), _big(), *others, queues=[queue("q", limit=gpu_bound(limit))])
    assert named(faults, "holds", "queue q", "24 of 16 GPUs") is fault
    assert bool(faults) is fault


@pytest.mark.parametrize(
    ("gang", "words"),
    [
        (_big(reserve=False, waited=0), "asks for none"),
        ((_big()[0], (*_big()[1], *pods("big", 3, "n3")[2:])), "has places"),
        (_big(gpus=1), "fewer than 16 GPUs"),
    ],
)
def test_not_every_group_may_hold(gang: Member, words: str) -> None:
    few = settings(reservations={"min_gpus": 16})
    size = sum(pod.spec.requests[2] for pod in gang[1] if pod.node is None) / 2000
    entry = replace(HELD, nodes={"n1": size, "n2": size})
    assert named(_faults(_of(entry), gang, chosen=few), "holds", words)
    assert _faults(_of(HELD), _big(), chosen=few) == []


def test_no_more_groups_hold_than_the_settings_say() -> None:
    other = waits("far", 1, lasts="4h", reserve=True, waited=60)
    second = replace(HELD, group=GroupKey("ns", "far"), nodes={"n3": 8.0})
    plan = Plan(reservations=(HELD, second))
    assert _faults(plan, _big(), other) == []
    fewer = settings(reservations={"most": 1})
    assert named(_faults(plan, _big(), other, chosen=fewer), "holds", "2 pod groups hold capacity")


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (replace(KEPT, state="made"), "said to be made, it is kept"),
        (replace(KEPT, start=at(20), promised=at(20)), "said to be kept, it is earlier"),
        (replace(KEPT, promised=None), "says nothing of what it promised"),
        (replace(KEPT, made=at(-90)), "was made at another time"),
        (replace(KEPT, state="later", start=at(40), cause="Because"), "'Because' is not a cause"),
        (replace(KEPT, state="later", start=at(40), cause="Expired"), "'Expired' is not a cause"),
        (replace(KEPT, state="later", start=at(40), cause="NodeLost"), "of which nothing is to be seen"),
        (replace(KEPT, state="later", start=at(40), cause="HigherPriority"), "nothing is to be seen"),
        (replace(KEPT, state="dropped", nodes={}), "None is not a cause"),
        (replace(KEPT, state="dropped", nodes={}, cause="Expired"), "nothing is to be seen"),
        (replace(KEPT, state="dropped", cause="OptedOut"), "still holds nodes"),
        (replace(KEPT, beside=(GroupKey("ns", "nope"),)), "names ns/nope beside it"),
        (replace(KEPT, beside=(GroupKey("ns", "big"),)), "names ns/big beside it"),
        (replace(KEPT, beside=(GroupKey("ns", "a"),)), "names ns/a beside it"),
        (replace(KEPT, victims=(GroupKey("ns", "a"),)), "no price was accepted"),
        (replace(KEPT, promised=at(20)), "or something else"),
        (replace(KEPT, queue="other"), "is told of queue other, its pod group is in q"),
        (replace(KEPT, cause="Overrun"), "is kept, and 'Overrun' is not a cause"),
        (replace(KEPT, expired=at(0)), "says when it was given up"),
        (replace(KEPT, state="offered", nodes={}), "is offered, and was promised"),
        (replace(KEPT, state="draining"), "no setting lets it"),
    ],
)
def test_plans_say_true_things_of_starts(entry: Reservation, words: str) -> None:
    assert named(_faults(_of(entry), OLD, runs("a", "n3", priority=10)), "holds", words)


def test_causes_that_are_to_be_seen_pass() -> None:
    later = replace(KEPT, state="later", start=at(40), nodes={"n1": 8.0, "n3": 8.0})
    lost = [node("n1"), node("n2", not_ready="cordoned"), node("n3")]
    assert _faults(_of(replace(later, cause="NodeLost")), OLD, nodes=lost) == []
    above = runs("b", "n2", lasts="40m", priority=99)
    assert _faults(_of(replace(later, cause="HigherPriority")), OLD, above) == []


def test_a_promise_does_not_vanish() -> None:
    """s starts where nothing is held. A plan without any start says nothing of promises yet."""
    s = waits("s", 1, 8)
    assert named(_faults(_of(None, bind("s-0", "n3")), OLD, s), "holds", "says nothing of the start")
    assert _faults(_of(KEPT, bind("s-0", "n3")), OLD, s) == []
    assert _faults(_of(None, bind("s-0", "n3", "preempt")), OLD, s) == []
    begun = replace(KEPT, state="started", start=at(0), nodes={"n1": 8.0, "n2": 8.0})
    assert _faults(_of(begun, bind("big-0"), bind("big-1", "n2"), bind("s-0", "n3")), OLD, s) == []


def test_only_what_holds_starts_by_reservation() -> None:
    s = waits("s", 1, 8)
    assert named(
        _faults(_of(None, nominate("s-0", "n1", "reservation")), s), "starts", "ns/s-0", "holds none"
    )
    due = _big(stored(0, {"n1": 8, "n2": 8}))
    begun = replace(KEPT, state="started", start=at(0), promised=at(0))
    both = bind("big-0", "n1", "reservation"), bind("big-1", "n2", "reservation")
    assert _faults(_of(begun, *both), due) == []


@pytest.mark.parametrize(("target", "fault"), [("n2", False), ("n3", True)])
def test_backfill_leaves_only_where_its_place_is_used(target: str, fault: bool) -> None:
    due = _big(stored(0, {"n1": 8, "n2": 8}))
    b = group("b", last_start=at(-10)), pods("b", 1, "n2", spec=spec(8), started=at(-10))
    begun = replace(KEPT, state="started", start=at(0), promised=at(0))
    gone = Decision("Evict", b[1][0].key, b[0].key, "n2", "reservation", triggers=(GroupKey("ns", "big"),))
    both = nominate("big-0", "n1", "reservation"), nominate("big-1", target, "reservation")
    faults = _faults(_of(begun, gone, *both), due, b)
    assert named(faults, "starts", "ns/b-0", "nothing gets a place where ns/b was") is fault
    assert bool(faults) is fault
