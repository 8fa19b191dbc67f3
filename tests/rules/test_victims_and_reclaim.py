"""Victims, min runtime, stale gangs, reclaim and waste: legal and illegal plans on tiny worlds."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from kai_cp.decisions import rfc3339
from kai_cp_models.check import waste
from kai_cp_models.pods import PodStatus
from kai_cp_models.records.notes import FAILURES
from kai_cp_models.snapshot import Shares, Snapshot
from tests.support.worlds import (
    NOW,
    bind,
    cluster,
    evict,
    gpu_bound,
    gpu_memory,
    group,
    judged,
    named,
    node,
    nominate,
    plan,
    pod,
    pods,
    queue,
    spec,
)

FAILED = (FAILURES, json.dumps({"uid": "t-0", "times": 3, "last": rfc3339(NOW - 15)}))


def contest(
    victim: dict[str, Any] | None = None, trigger: dict[str, Any] | None = None, **more: Any
) -> Snapshot:
    """A full node: v holds it and t needs it. By default both are in queue q, and t has the higher
    priority.
    """
    groups = [
        group("v", **{"priority": 10, **(victim or {})}),
        group("t", **{"priority": 90, **(trigger or {})}),
    ]
    running = pod("v-0", "n1", spec=spec(8))
    return cluster([running, pod("t-0", spec=spec(8))], groups, [node(), node("n2", gpus=0)], **more)


PREEMPT = (evict("v-0", "preempt", "t"), nominate("t-0", action="preempt"))


# --- which pods may be evicted ----------------------------------------------------------------------


def test_a_lower_priority_is_preempted() -> None:
    assert judged(contest(), *PREEMPT) == []


@pytest.mark.parametrize(
    ("victim", "trigger", "words"),
    [
        ({"preemptible": False}, {}, ["not preemptible"]),
        ({"priority": 90}, {}, ["has priority 90, the victim 90"]),
        ({"queue": "other"}, {}, ["is in queue q, the victim in other"]),
        ({}, {"preemption_delay_seconds": 60.0, "created": NOW - 59}, ["preemption delay of 60 s"]),
        (
            {},
            {"preemption_delay_seconds": 60.0, "last_eviction": NOW - 30},
            ["preemption delay", "after 30 s"],
        ),
        ({}, {"notes": [FAILED]}, ["lost what it was given 3 times in a row"]),
    ],
)
def test_preempt_needs_a_right(victim: dict[str, Any], trigger: dict[str, Any], words: list[str]) -> None:
    snapshot = contest(victim, trigger, queues=[queue(), queue("other")])
    assert named(judged(snapshot, *PREEMPT), "victims", *words)


def test_an_eviction_serves_a_group() -> None:
    assert named(judged(contest(), evict("v-0", "preempt")), "victims", "for no pod group")
    assert named(judged(contest(), evict("v-0", "preempt", "t")), "victims", "gets no place")
    assert named(judged(contest(), evict("v-0", "preempt", "x"), PREEMPT[1]), "victims", "does not exist")
    assert named(judged(contest(), evict("v-0", "preempt", "v"), PREEMPT[1]), "victims", "itself")


def test_a_trigger_gets_its_place_by_the_action_that_evicts_for_it() -> None:
    decisions = (evict("v-0", "preempt", "t"), nominate("t-0", action="allocate"))
    assert named(judged(contest(), *decisions), "victims", "gets no place by preempt")


def test_a_trigger_is_not_served_in_part_by_an_earlier_action() -> None:
    """What a gang asks reclaim for is all of its batch, so allocate places no part of it."""
    groups = [group("v", queue="rich"), group("t", 2, queue="poor")]
    members = [pod("v-0", "n1", spec=spec(8)), pod("t-0", spec=spec(4)), pod("t-1", spec=spec(4))]
    queues = [queue("rich", quota=Shares(-1, -1, 0)), queue("poor", quota=Shares(-1, -1, 8))]
    snapshot = cluster(members, groups, [node(), node("n2", gpus=4)], queues=queues)
    taken = evict("v-0", "reclaim", "t")
    both = nominate("t-0", "n2", "reclaim"), nominate("t-1", action="reclaim")
    assert judged(snapshot, taken, *both) == []
    parts = nominate("t-0", "n2"), taken, nominate("t-1", action="reclaim")
    assert named(judged(snapshot, *parts), "victims", "gets its pods in part by it")


def test_a_pod_of_an_unknown_subgroup_is_no_victim() -> None:
    snapshot = contest()
    strange = (replace(one, subgroup="strange" if one.group.name == "v" else None) for one in snapshot.pods)
    snapshot = replace(snapshot, pods=tuple(strange))
    assert named(judged(snapshot, *PREEMPT), "victims", "its subgroup is unknown")


def test_allocate_evicts_no_pod() -> None:
    decisions = (evict("v-0", "allocate", "t"), nominate("t-0"))
    assert named(judged(contest(), *decisions), "victims", "evicts nothing")


def test_consolidation_loses_no_pod() -> None:
    gone = (evict("v-0", "consolidation", "t"), nominate("t-0", action="consolidation"))
    assert named(judged(contest(), *gone), "victims", "without a new place")


def _moves(count: int, **policy: Any) -> list[str]:
    small = [pod(f"s{i}-0", f"n{i}", spec=spec(1)) for i in range(count)]
    nodes = [node(f"n{i}") for i in range(count)] + [node("spare", gpus=count)]
    groups = [group("t", count, **policy.pop("trigger", {}))]
    snapshot = cluster([*small, *pods("t", count, spec=spec(8))], groups, nodes, **policy)
    evictions = [evict(f"s{i}-0", "consolidation", "t", node=f"n{i}") for i in range(count)]
    moves = [nominate(f"s{i}-0", "spare", "consolidation") for i in range(count)]
    return judged(
        snapshot, *evictions, *moves, *(nominate(f"t-{i}", f"n{i}", "consolidation") for i in range(count))
    )


def test_consolidation_moves_a_limited_number_of_groups_for_preemptible_work() -> None:
    assert _moves(2, max_consolidation_preemptees=2) == []
    assert named(_moves(2, max_consolidation_preemptees=1), "moves 2 pod groups for ns/t, at most 1")
    assert _moves(2, max_consolidation_preemptees=-1) == []
    assert named(_moves(1, trigger={"preemptible": False}), "victims", "not preemptible")


# --- min runtime and stale gangs ---------------------------------------------------------------


def test_a_group_that_started_lately_is_protected() -> None:
    fresh, old = {"last_start": NOW - 60}, {"last_start": NOW - 400}
    dept = queue("dept", preempt_min_runtime_seconds=300.0)
    queues = [dept, queue("q", "dept")]
    assert judged(contest(old, queues=queues), *PREEMPT) == []
    assert judged(contest({}, queues=queues), *PREEMPT) == []
    assert named(judged(contest(fresh, queues=queues), *PREEMPT), "runtime", "60 s", "300 s")
    assert judged(contest(fresh), *PREEMPT) == []
    by_default = contest(fresh, default_preempt_min_runtime_seconds=61.0)
    assert named(judged(by_default, *PREEMPT), "runtime", "61 s")


def test_a_protected_elastic_group_keeps_its_minimum() -> None:
    groups = [group("v", 1, priority=10, last_start=NOW - 5), group("t", priority=90)]
    members = pods("v", 2, "n1", spec=spec(4))
    snapshot = cluster(
        [*members, *pods("t", 2, spec=spec(4))], groups, default_preempt_min_runtime_seconds=60.0
    )
    first = (evict("v-1", "preempt", "t"), nominate("t-0", action="preempt"))
    assert judged(snapshot, *first) == []
    both = (evict("v-0", "preempt", "t"), *first, nominate("t-1", action="preempt"))
    assert named(judged(snapshot, *both), "runtime", "protected")


@pytest.mark.parametrize(("method", "seconds"), [("lca", 100), ("queue", 500)])
def test_reclaim_runtime_is_resolved_by_method(method: str, seconds: int) -> None:
    """Top-level queues differ, so ``lca`` uses only the victim's top-level queue."""
    queues = [
        queue("a", quota=gpu_bound(8)),
        queue("b", quota=gpu_bound(0), reclaim_min_runtime_seconds=100.0),
        queue("leaf", "b", quota=gpu_bound(0), reclaim_min_runtime_seconds=500.0),
    ]
    victim = {"queue": "leaf", "last_start": NOW - 50}
    snapshot = contest(victim, {"queue": "a"}, queues=queues, reclaim_resolve_method=method)
    decisions = (evict("v-0", "reclaim", "t"), nominate("t-0", action="reclaim"))
    assert named(judged(snapshot, *decisions), "runtime", f"{seconds} s")


def _stale(count: int = 1, minimum: int = 2, **more: Any) -> list[str]:
    members = [*pods("g", count, "n1"), *more.pop("others", ())]
    snapshot = cluster(members, [group("g", minimum, **more)])
    return judged(snapshot, evict("g-0", "stalegangeviction"))


def test_a_stale_gang_is_evicted_after_its_grace() -> None:
    assert _stale(stale_since=NOW - 60) == []
    assert named(_stale(stale_since=NOW - 59), "stale", "59 s of 60 s")
    assert _stale(stale_since=NOW - 59, staleness_grace_seconds=30.0) == []
    assert named(_stale(stale_since=NOW - 999, staleness_grace_seconds=-1.0), "stale", "without end")
    assert named(_stale(minimum=1, stale_since=NOW - 999), "stale", "has its minimum")
    assert named(_stale(count=2, minimum=3, stale_since=NOW - 999), "stale", "g-1", "keeps")
    done = pod("g-8", status=PodStatus.SUCCEEDED)
    assert named(_stale(stale_since=NOW - 999, others=[done]), "stale", "succeeded")


# --- reclaim -----------------------------------------------------------------------------------


def _reclaim(
    have: int,
    take: int,
    ask: int,
    quota: tuple[int, int] = (4, 4),
    held: int = 0,
    trigger: dict[str, Any] | None = None,
    weight: int = 1,
    **policy: Any,
) -> list[str]:
    """Queue b runs ``have`` groups of one GPU and loses ``take``; t of queue a gets ``ask`` of 8 GPUs."""
    queues = [
        queue(name, quota=Shares(-1, -1, q), weight=Shares(1, 1, weight))
        for name, q in zip("ab", quota, strict=True)
    ]
    victims = [pod(f"v{i}-0", "n1") for i in range(have)]
    groups = [group(f"v{i}", queue="b") for i in range(have)]
    running = list(pods("r", held, "n1"))
    groups += [group("r", queue="a")] * bool(held) + [group("t", queue="a", **(trigger or {}))]
    snapshot = cluster([*victims, *running, pod("t-0", spec=spec(ask))], groups, queues=queues, **policy)
    evictions = [evict(f"v{i}-0", "reclaim", "t") for i in range(take)]
    return judged(snapshot, *evictions, nominate("t-0", action="reclaim"))


def test_a_queue_takes_back_its_quota() -> None:
    assert _reclaim(8, 4, 4) == []
    assert _reclaim(6, 2, 2, held=2) == []


def test_a_queue_does_not_reclaim_beyond_its_fair_share() -> None:
    assert named(_reclaim(8, 5, 5), "reclaim", "over its fair share", "fair share 4")


def test_the_last_unit_may_take_a_queue_below_its_share_but_no_further() -> None:
    """Shares are 4 and 4. From 5 GPUs one unit may be taken; then the queue is at its share and keeps
    the rest.
    """
    assert _reclaim(5, 1, 1, held=3) == []
    assert named(_reclaim(5, 2, 1, held=3), "reclaim", "takes too much from queue b")


def test_the_same_queue_is_no_victim_of_reclaim() -> None:
    groups = [group("v", priority=10), group("t", priority=90)]
    snapshot = cluster([pod("v-0", "n1", spec=spec(8)), pod("t-0", spec=spec(8))], groups)
    decisions = (evict("v-0", "reclaim", "t"), nominate("t-0", action="reclaim"))
    assert named(judged(snapshot, *decisions), "victims", "in the victim's queue q")


def test_non_preemptible_work_reclaims_within_quota_only() -> None:
    """The fair share is 6: the quota of 4 and half of what no queue is entitled to."""
    firm = {"preemptible": False}
    assert _reclaim(8, 4, 4, trigger=firm) == []
    assert _reclaim(8, 3, 3, quota=(2, 2)) == []
    assert named(
        _reclaim(8, 3, 3, quota=(2, 2), trigger=firm), "reclaim", "non-preemptible", "over the quota"
    )


def test_totals_follow_the_triggers_in_order() -> None:
    """Each trigger alone is within the fair share of 4, both together are not."""
    queues = [queue(n, quota=Shares(-1, -1, 4)) for n in "ab"]
    victims = [pod(f"v{i}-0", "n1") for i in range(8)]
    groups = [group(f"v{i}", queue="b") for i in range(8)] + [group(t, queue="a") for t in "st"]
    snapshot = cluster([*victims, pod("s-0", spec=spec(3)), pod("t-0", spec=spec(3))], groups, queues=queues)
    first = [*(evict(f"v{i}-0", "reclaim", "s") for i in range(3)), nominate("s-0", action="reclaim")]
    second = [*(evict(f"v{i}-0", "reclaim", "t") for i in range(3, 6)), nominate("t-0", action="reclaim")]
    assert judged(snapshot, *first) == []
    assert named(judged(snapshot, *first, *second), "reclaim", "ns/t", "over its fair share")


@pytest.mark.parametrize("first", ["s", "t"])
def test_a_trigger_that_takes_nothing_counts_from_when_it_gets_its_place(first: str) -> None:
    """Department d holds 4 GPUs, its fair share. With s, which gets the idle GPU, t would be the fifth.
    Evictions come before all places, so t is named before s in any case.
    """
    quota = {"a": 4, "d": 4, "b": 2, "c": 2}
    queues = [queue(n, "d" if n in "bc" else None, quota=gpu_bound(q)) for n, q in quota.items()]
    running = [*pods("r", 3, "n1"), *(pod(f"v{i}-0", "n1") for i in range(4))]
    groups = [*(group(f"v{i}", queue="b") for i in range(4)), group("s", queue="c")]
    groups += [group("r", queue="a"), group("t", queue="a")]
    snapshot = cluster([*running, pod("s-0"), pod("t-0")], groups, queues=queues)
    placed = [nominate(f"{name}-0", action="reclaim") for name in sorted("st", reverse=first == "t")]
    faults = judged(snapshot, evict("v0-0", "reclaim", "t"), *placed)
    assert faults == [] if first == "s" else named(faults, "ns/t", "takes too much from queue d")


@pytest.mark.parametrize(("small", "held"), [("n1", []), ("n2", ["ns/t", "over its fair share: ", "GPU 1 "])])
def test_a_share_by_memory_counts_as_where_an_earlier_action_moved_it(small: str, held: list[str]) -> None:
    """40,000 MiB are a GPU of the small node and half of one of the other. Consolidation moves the share from
    n1 to n2, and then its queue asks for three GPUs more; its fair share is 3.5.
    """
    queues = [
        queue(n, quota=gpu_bound(q), weight=Shares(0, 0, 0)) for n, q in zip("abc", (3.5, 5, 1), strict=True)
    ]
    nodes = [node(n, 1, gpu_memory_mib=40_000 if n == small else 80_000) for n in ("n1", "n2")]
    running = [pod("m-0", "n1", spec=gpu_memory(40_000), gpu_groups=("g",))]
    running += [pod(f"v{i}-0", "n3") for i in range(8)]
    groups = [group("m", queue="a"), group("t", queue="a"), group("s", queue="c")]
    groups += [group(f"v{i}", queue="b") for i in range(8)]
    waiting = [pod("s-0"), pod("t-0", spec=spec(3))]
    snapshot = cluster([*running, *waiting], groups, [*nodes, node("n3")], queues)
    faults = judged(
        snapshot,
        evict("m-0", "consolidation", "s"),
        nominate("m-0", "n2", "consolidation", gpu_groups=("h",)),
        nominate("s-0", "n1", "consolidation"),
        *(evict(f"v{i}-0", "reclaim", "t", node="n3") for i in range(3)),
        nominate("t-0", "n3", "reclaim"),
    )
    assert named(faults, *held) if held else faults == []


def test_a_moved_victim_is_no_loss() -> None:
    queues = [queue(n, quota=Shares(-1, -1, 4)) for n in "ab"]
    groups = [group("v", queue="b"), group("w", queue="b"), group("t", queue="a")]
    members = [pod("v-0", "n1", spec=spec(4)), pod("w-0", "n2", spec=spec(1)), pod("t-0", spec=spec(8))]
    snapshot = cluster(members, groups, [node(), node("n2")], queues)
    move = (evict("v-0", "reclaim", "t"), nominate("v-0", "n2", "reclaim"), nominate("t-0", "n1", "reclaim"))
    assert not named(judged(snapshot, *move), "takes too much")


def test_a_department_over_its_share_does_not_take_from_a_less_saturated_one() -> None:
    """d1 has a share of 2 and would hold 4, twice its share; d2 would be left at 4 of 6."""
    queues = [
        queue("d1", quota=gpu_bound(2), weight=Shares(0, 0, 0)),
        queue("a", "d1", quota=gpu_bound(2)),
        queue("a2", "d1", quota=gpu_bound(0), weight=Shares(0, 0, 0)),
        queue("d2", quota=gpu_bound(6), weight=Shares(0, 0, 0)),
        queue("b", "d2", quota=gpu_bound(0), weight=Shares(0, 0, 0)),
    ]
    members = [*pods("x", 2, "n1"), *(pod(f"v{i}-0", "n1") for i in range(6)), pod("t-0", spec=spec(2))]
    groups = [group("x", queue="a2"), group("t", queue="a"), *(group(f"v{i}", queue="b") for i in range(6))]
    snapshot = cluster(members, groups, queues=queues)
    decisions = [
        evict("v0-0", "reclaim", "t"),
        evict("v1-0", "reclaim", "t"),
        nominate("t-0", action="reclaim"),
    ]
    faults = judged(snapshot, *decisions)
    assert named(faults, "reclaim", "queue d1 at 2 of its fair share of GPU")


# --- waste -------------------------------------------------------------------------------------


def test_a_victim_that_fits_where_it_was_is_waste() -> None:
    needless = cluster(
        [pod("v-0", "n1"), pod("t-0")], [group("v", priority=10), group("t", priority=90)], [node(gpus=2)]
    )
    assert waste(needless, plan(*PREEMPT)) == ["pod ns/v-0 is evicted, but its place on n1 stays free"]
    assert waste(contest(), plan(*PREEMPT)) == []
    assert waste(contest(), plan(bind("t-0"))) == []


def test_a_victim_that_fits_elsewhere_is_waste() -> None:
    groups = [group("v", priority=10), group("t", priority=90)]
    members = [pod("v-0", "n1", spec=spec(8)), pod("t-0", spec=spec(8))]
    assert waste(cluster(members, groups, [node(), node("n2")]), plan(*PREEMPT)) == [
        "pod ns/v-0 is lost, but would fit on n2"
    ]
    full = cluster([*members, pod("r-0", "n2")], groups, [node(), node("n2")])
    assert waste(full, plan(*PREEMPT)) == []
    closed = cluster(members, groups, [node(), node("n2", not_ready="unschedulable")])
    assert waste(closed, plan(*PREEMPT)) == []


def test_a_move_out_of_a_place_that_stays_free_is_waste() -> None:
    groups = [group("v"), group("t")]
    snapshot = cluster([pod("v-0", "n1"), pod("t-0")], groups, [node(), node("n2")])
    move = (evict("v-0", "consolidation", "t"), nominate("v-0", "n2", "consolidation"))
    wasted = waste(snapshot, plan(*move, nominate("t-0", "n2", "consolidation")))
    assert wasted == ["pod group ns/v is moved, but its old place stays free (ns/v-0 on n1)"]
