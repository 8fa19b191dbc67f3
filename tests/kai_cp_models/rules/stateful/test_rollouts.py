"""Graceful rollouts: the rows of docs/inference.md, and plans that the checker refuses."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from kai_cp.inspection import inspection
from kai_cp.reader.annotations import OwnAnnotations
from kai_cp_models.check import violations
from kai_cp_models.engine import decide
from kai_cp_models.explain.blocking import blocking_of
from kai_cp_models.explain.situation import Situation
from kai_cp_models.ledger import Ledger
from kai_cp_models.plan import Plan
from kai_cp_models.pods import Pod, PodStatus, Revision
from kai_cp_models.queries.cluster import faults
from kai_cp_models.settings import Settings
from kai_cp_models.snapshot import PodGroup, Queue, Snapshot
from tests.support.plans import SETTINGS, bound, evicted, nominated, placed, reasons, solved
from tests.support.times import at, holds, runs, settings, stored, waits
from tests.support.worlds import (
    PLUGINS,
    bind,
    cluster,
    evict,
    gpu_bound,
    group,
    node,
    nominate,
    pod,
    queue,
    spec,
)

ON = Settings.model_validate({"solver": SETTINGS.solver, "rules": {"rollouts": True}})
HOUR: OwnAnnotations = (("kai-cp/rollout", "1h"),)
NEVER: OwnAnnotations = (("kai-cp/rollout", "never"),)
N1, N2 = node("n1"), node("n2")
Member = tuple[PodGroup, Pod]


def one(name: str, revision: str, on: str | None = None, *, created: float = 0,
        workload: str = "Deployment/web", queue: str = "q", gpus: int = 1,
        **more: Any) -> Member:  # fmt: skip
    """A pod with a group of its own, as the pod grouper makes it; ``created``: in minutes from now."""
    made = pod(name, on, name, spec=more.pop("spec", spec(gpus)), created=at(created),
               revision=Revision(workload, revision) if revision else None)  # fmt: skip
    values = {"preemptible": False, "priority": 100, "created": at(created), "queue": queue, **more}
    status = values.pop("status", made.status)
    return group(name, **values), replace(made, status=status)


def several(count: int, name: str, revision: str, on: str | None, **more: Any) -> list[Member]:
    return [one(f"{name}{i}", revision, on, **more) for i in range(count)]


def serving(
    name: str = "q", quota: float = 4, limit: float = 12, notes: OwnAnnotations = HOUR, **more: Any
) -> Queue:
    return queue(name, quota=gpu_bound(quota), limit=gpu_bound(limit), notes=notes, **more)


def world(members: Iterable[Member], queues: Sequence[Queue] = (serving(),), **more: Any) -> Snapshot:
    listed = list(members)
    nodes = more.pop("nodes", (N1, N2))
    return cluster([p for _, p in listed], [g for g, _ in listed], nodes, queues, **more)


def old(count: int, on: str = "n1", **more: Any) -> list[Member]:
    return several(count, "old", "r1", on, created=-900, **more)


def new(count: int, on: str = "n1", **more: Any) -> list[Member]:
    return several(count, "new", "r2", on, **{"created": -1, **more})


X = one("x", "r2")


@pytest.mark.parametrize(
    ("members", "starts"),
    [
        pytest.param([*old(4), X], True, id="surge"),
        pytest.param([*old(4), *new(1), one("x", "")], False, id="something else"),
        pytest.param([*old(3), *new(1), X], True, id="next"),
        pytest.param([*new(3), X], True, id="last"),
        pytest.param([*old(4), *new(4, "n2"), X], False, id="no more than is given back"),
        pytest.param([*old(4), *new(1, created=-61), X], False, id="time is over"),
        pytest.param(
            [*old(4), *several(4, "mid", "r2", "n2", created=-9), one("x", "r3")], False, id="third"
        ),
        pytest.param([*old(4), one("x", "r1")], False, id="old revision"),
        pytest.param([*old(4), one("x", "r2", workload="Deployment/other")], False, id="other workload"),
        pytest.param([*old(4, workload="Deployment/other"), X], False, id="pods of another workload"),
        pytest.param([*old(4, gpus=1), one("x", "r2", gpus=4)], True, id="larger pods"),
        pytest.param([*old(4), one("x", "r2", gpus=5)], False, id="too large pods"),
        pytest.param([*old(3), one("x", "r2", gpus=4)], True, id="beyond the old within quota"),
        pytest.param(
            [*old(4), *several(2, "gone", "r2", None, created=-61, status=PodStatus.PENDING), X], False,
            id="time counts from the first pod, waiting or not",
        ),
    ],
)  # fmt: skip
def test_the_rows_of_the_page(members: list[Member], starts: bool) -> None:
    plan = solved(world(members), ON)
    assert ("x" in bound(plan)) == starts
    if not starts:
        assert reasons(plan)["x"] == "NonPreemptibleOverQuota"
        assert all(row.proved for row in plan.unscheduled if row.group.name == "x")


def test_off_means_off() -> None:
    assert reasons(solved(world([*old(4), X]))) == {"x": "NonPreemptibleOverQuota"}


@pytest.mark.parametrize(
    ("top", "leaf", "starts"),
    [
        (HOUR, (), True),
        ((), HOUR, True),
        ((), (), False),
        (NEVER, HOUR, False),
        (HOUR, NEVER, False),
        ((("kai-cp/rollout", "30s"),), HOUR, False),
        (HOUR, (("kai-cp/rollout", "soon"),), False),
    ],
)
def test_the_shortest_time_on_the_path_counts(
    top: OwnAnnotations, leaf: OwnAnnotations, starts: bool
) -> None:
    queues = (serving("top", notes=top), serving("q", parent="top", notes=leaf))
    plan = solved(world([*old(4), *new(1), X], queues), ON)
    assert ("x" in placed(plan)) == starts


def test_gpus_in_rollout_are_shown_before_and_after_the_plan() -> None:
    """Three old pods and one new one hold 4 of 4; one more starts: two GPUs are lent, for an hour in all."""
    found = world([*old(3), *new(1), X])
    shown = {
        "namespace": "ns",
        "workload": "Deployment/web",
        "queue": "q",
        "revision": "r2",
        "until": "1970-01-12T14:45:40Z",
        "oldGpus": 3,
        "newGpus": 1,
        "lentGpus": 1,
    }
    assert inspection(found, settings=ON)["rollouts"] == [shown]
    assert "rollouts" not in inspection(found, settings=SETTINGS)
    after = solved(found, ON).rollouts
    assert [(one.old_gpus, one.new_gpus, one.lent_gpus) for one in after] == [(3, 2, 2)]
    assert solved(found, SETTINGS).rollouts == ()


def test_unreadable_values_are_named() -> None:
    found = world([*old(4), X], (serving(notes=(("kai-cp/rollout", "soon"),)),))
    why = 'metadata.annotations[kai-cp/rollout]: "soon" is not a duration such as 90m or 1h30m; read as never'
    assert [(aside.item, aside.reason) for aside in solved(found, ON).set_aside] == [("Queue q", why)]
    assert inspection(found, settings=ON)["setAside"] == [{"object": "Queue q", "reason": why}]
    assert inspection(found, settings=SETTINGS)["setAside"] == []


def test_words_count_the_larger_revision() -> None:
    plan = solved(world([*old(4), *new(4, "n2"), X]), ON)
    message = "queue q: quota 4 GPUs, used by non-preemptible pods 4, needs 1"
    assert plan.unscheduled[0].message == message


def test_words_say_that_the_time_is_over() -> None:
    plan = solved(world([*old(4), *new(1, created=-61), X]), ON)
    assert plan.unscheduled[0].message == (
        "queue q: quota 4 GPUs, used by non-preemptible pods 5, needs 1; the rollout of Deployment/web "
        "began 3660 s ago, its queue lends quota for 3600 s (kai-cp/rollout)"
    )


def test_a_limit_holds() -> None:
    assert reasons(solved(world([*old(4), X], (serving(limit=4),)), ON)) == {"x": "OverLimit"}


def test_a_quota_above_counts_alike() -> None:
    queues = (serving("top"), serving("q", parent="top", notes=()))
    assert bound(solved(world([*old(4), X], queues), ON)) == {"x": "n1"}


def test_two_rollouts_in_a_queue() -> None:
    """Each new revision replaces its own old one: 2 + 2 GPUs, of which 4 count."""
    second = several(2, "b", "s1", "n2", workload="Deployment/b", created=-900)
    waiting = [*several(2, "x", "r2", None), *several(2, "y", "s2", None, workload="Deployment/b")]
    plan = solved(world([*old(2), *second, *waiting]), ON)
    assert placed(plan) == {"x0", "x1", "y0", "y1"}


def test_pods_outside_a_rollout_are_charged_the_plain_sum() -> None:
    """An older job has its place within the quota, and uses nothing that is lent."""
    job = one("job", "", created=-5)
    assert placed(solved(world([*old(3), X, job]), ON)) == {"job", "x"}
    assert placed(solved(world([*old(4), X, job]), ON)) == {"x"}


def test_old_nodes_come_first() -> None:
    """n2 is fuller, and packing would choose it; n3 will get back the GPUs of the old pods."""
    full = one("full", "", "n2", queue="other", gpus=6)
    queues = (serving(), queue("other"))
    nodes = (N1, N2, node("n3"))
    packs = PLUGINS | {"nodeplacement"}
    found = world([*old(2, "n3"), full, X], queues, nodes=nodes, plugins=packs)
    assert bound(solved(found, ON)) == {"x": "n3"}
    assert bound(solved(found)) == {"x": "n2"}


def test_a_new_pod_starts_elsewhere_where_the_old_nodes_are_full() -> None:
    full = one("full", "", "n1", queue="other", gpus=4)
    found = world([*old(4), full, X], (serving(), queue("other")))
    assert bound(solved(found, ON)) == {"x": "n2"}


def test_nothing_is_evicted_for_it() -> None:
    """A preemptible pod of lower priority holds the last free GPUs."""
    low = one("low", "", "n1", gpus=4, preemptible=True, priority=1)
    found = world([*old(4), low, X], nodes=(N1,))
    plan = solved(found, ON)
    assert evicted(plan) == set()
    assert placed(plan) == set()
    within = world([*old(4), low, X], (serving(quota=5),), nodes=(N1,))
    assert evicted(solved(within, ON)) == {"low"}


def test_a_new_pod_takes_devices_that_are_being_released() -> None:
    leaving = one("leaving", "", "n1", gpus=4, status=PodStatus.RELEASING)
    plan = solved(world([*old(4), leaving, X], nodes=(N1,)), ON)
    assert nominated(plan) == {"x": "n1"}


def test_old_pods_that_end_give_back_nothing() -> None:
    """Succeeded pods do not count either: 2 old pods stay, so 2 new ones fit and 2 more are lent."""
    ending = several(2, "end", "r1", "n1", created=-900, status=PodStatus.RELEASING)
    plan = solved(world([*old(2), *ending, *several(5, "x", "r2", None)]), ON)
    assert len(placed(plan)) == 4


def test_a_gang_of_a_new_revision_starts_whole_or_not() -> None:
    def gang(size: int) -> Snapshot:
        members = [*old(4, workload="LeaderWorkerSet/llm")]
        made = group("g", size, preemptible=False, priority=100)
        pods = [
            pod(f"g-{i}", created=at(-1), revision=Revision("LeaderWorkerSet/llm", "r2")) for i in range(size)
        ]
        nodes, queues = (N1, N2), (serving(),)
        return cluster([*(p for _, p in members), *pods], [*(g for g, _ in members), made], nodes, queues)

    assert len(placed(solved(gang(4), ON))) == 4
    assert placed(solved(gang(5), ON)) == set()


@pytest.mark.parametrize(("theirs", "starts"), [("other", True), ("q", False)])
def test_a_promised_place_is_not_lent(theirs: str, starts: bool) -> None:
    """At 30 minutes the 4 GPUs of busy belong to g. If g is in q, the old pods and g fill its quota of 8."""
    filler = several(2, "full", "", "n2", queue="other", gpus=2)
    busy, [theirs_now] = runs("busy", "n2", 4, "1h", since=30, queue=theirs)
    gang, [waits_for_it] = waits("g", 1, 4, reserve=True, waited=60, stored=stored(30, {"n2": 4}),
                                 queue=theirs, preemptible=False, priority=100)  # fmt: skip
    blocker = one("blocker", "", "n1", queue="other", gpus=3)
    members = [*old(4), X, *filler, blocker, (busy, theirs_now), (gang, waits_for_it)]
    found = world(members, (serving(quota=8 if theirs == "q" else 4), queue("other")))
    time_axis = settings(rules={"rollouts": True})
    plan = decide(found, time_axis)
    assert faults(found, plan, time_axis) == []
    assert holds(plan)["g"][0] in ("kept", "made")
    assert ("x" in bound(plan)) == starts


def sets_of(snapshot: Snapshot) -> list[list[str]]:
    """The minimal blocking sets of ``x`` after its cycle."""
    situation = Situation(snapshot, ON, solved(snapshot, ON))
    return [sorted(one) for one in blocking_of(situation, snapshot.group_by_key[X[0].key]).sets]


def test_the_blocking_sets_name_quota_and_gpus() -> None:
    """The quota, where no more is given back; beside it the GPUs, because no pod is evicted for
    what is lent.
    """
    beyond = sets_of(world([*old(4), *new(4, "n2"), X]))
    assert beyond == [["priority", "quota:q"], ["non-preemptible", "quota:q"]]
    low = one("low", "", "n1", gpus=4, preemptible=True, priority=1)
    full = sets_of(world([*old(4), low, X], nodes=(N1,)))
    assert full == [["priority", "quota:q", "room:gpu"], ["non-preemptible", "quota:q", "room:gpu"]]


def test_forged_labels_never_double_more_than_the_quota() -> None:
    """Cycle after cycle a user invents a revision: the queue never holds more than twice its quota."""
    members = [*old(4)]
    for turn in range(2, 6):
        asked = several(6, f"t{turn}-", f"r{turn}", None, created=-10 + turn)
        plan = solved(world([*members, *asked], (serving(limit=-1),), nodes=(N1, N2, node("n3"))), ON)
        on = bound(plan)
        members += [(g, replace(p, node=on[p.key.name], status=PodStatus.RUNNING))
                    for g, p in asked if p.key.name in on]  # fmt: skip
    assert len(members) == 8


def test_a_trial_that_is_taken_back_leaves_no_trace() -> None:
    found = world([*old(4), X])
    ledger = Ledger.of(found, ON.rules)
    asked = (1000, 2**30, 1000)
    waiting, running = X[1], found.pod_by_key[old(1)[0][1].key]
    before = ledger.lent((waiting,), asked)
    trial = ledger.copy()
    trial.place(waiting, 0, pipelined=False)
    trial.evict(running)
    assert trial.lent((waiting,), asked) != before
    trial.unevict(running)
    trial.unplace(waiting)
    assert trial.lent((waiting,), asked) == before == ledger.lent((waiting,), asked)


LOW = one("low", "", "n1", preemptible=True, priority=1)


@pytest.mark.parametrize(
    ("members", "decisions", "fault"),
    [
        ([*old(4), X], [bind("x", "n1", group="x")], ""),
        ([*old(4), X], [nominate("x", "n1", group="x")], ""),
        ([*old(4), one("x", "")], [bind("x", "n1", group="x")], "5 of 4 GPUs"),
        ([*old(4), one("x", "r1")], [bind("x", "n1", group="x")], "5 of 4 GPUs"),
        ([*old(4), one("x", "r2", gpus=5)], [bind("x", "n2", group="x")], "5 of 4 GPUs"),
        ([*old(4), *new(1, created=-61), X], [bind("x", "n1", group="x")], "6 of 4 GPUs"),
        (
            [*old(4), X, one("y", "")],
            [bind("x", "n1", group="x"), bind("y", "n1", group="y")],
            "5 of 4 GPUs",
        ),
        (
            [*old(3), X, one("y", "")],
            [bind("x", "n1", group="x"), bind("y", "n1", group="y")],
            "",
        ),
        (
            [*old(4), X, LOW],
            [
                evict("low", "preempt", "x", group="low"),
                nominate("x", "n1", "preempt", group="x"),
            ],
            "5 of 4 GPUs",
        ),
    ],
)
def test_the_checker_refuses_what_is_not_lent(
    members: list[Member], decisions: list[Any], fault: str
) -> None:
    found = world(members)
    said = [one for one in violations(found, Plan(tuple(decisions)), ON.rules) if one.startswith("queues")]
    assert bool(said) == bool(fault)
    assert all(fault in one for one in said), said


def test_the_checker_lends_nothing_when_it_is_off() -> None:
    assert violations(world([*old(4), X]), Plan((bind("x", "n1", group="x"),)))
