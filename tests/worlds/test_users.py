"""Users inside a queue: the worlds of docs/users.md, argued by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from kai_cp.inspection import inspection
from kai_cp_models.check import violations
from kai_cp_models.explain.position import FairLine
from kai_cp_models.explain.situation import Situation
from kai_cp_models.fairness.share import fair_shares
from kai_cp_models.plan import Plan
from kai_cp_models.pods import GroupKey
from kai_cp_models.settings import Settings
from kai_cp_models.snapshot import Snapshot
from tests.support.brute import named
from tests.support.objects import Object
from tests.support.plans import bound, evicted, placed, reasons, solved
from tests.support.tiny import NOTHING, node, pod, queue, world

FIRM = {"preemptibility": "non-preemptible"}


def users(
    jobs: Sequence[tuple[str, int]],
    running: Sequence[str] = (),
    *,
    gpus: int = 2,
    on: bool = True,
    terms: str = "",
    more: Mapping[str, Object] | None = None,
    queues: Sequence[Object] = (),
    **world_of: Any,
) -> Snapshot:
    """Jobs of one pod, as (name, GPUs), in order; the first letter of the name is the user."""
    made = list(queues) or [queue("q")]
    if terms:
        made[0]["metadata"]["annotations"] = {"kai-cp/users": terms}
    return world(
        [node("n0", gpus=gpus)],
        [pod(name, "n0" if name in running else "", gpus=size) for name, size in jobs],
        groups={name: {"labels": {"user": name[0]}} | dict((more or {}).get(name, {})) for name, _ in jobs},
        queues=made,
        user_label="user" if on else "",
        **world_of,
    )


THREE = [("a0", 1), ("a1", 1), ("a2", 1), ("b0", 1)]


def test_users_take_turns() -> None:
    assert set(bound(solved(users(THREE)))) == {"a0", "b0"}


def test_off_means_off() -> None:
    found = users(THREE, on=False, terms="no JSON")
    assert set(bound(solved(found))) == {"a0", "a1"}
    assert [one.name for one in found.queues] == ["q", "top"]
    assert not [one for one in found.set_aside if one.item == "Queue q"]


def gpus_of(found: Snapshot) -> dict[str, float]:
    return {name: share.gpu for name, share in fair_shares(found).items() if "/" in name}


def test_the_division_by_numbers() -> None:
    """Eight GPUs; a and b ask for eight, c for one. c gets all it asks for, and the rest is halved,
    because a came first.
    """
    found = users([("a0", 8), ("b0", 8), ("c0", 1)], gpus=8)
    assert gpus_of(found) == {"q/a": 4, "q/b": 3, "q/c": 1}


def test_a_weight_counts_double() -> None:
    found = users([("a0", 8), ("b0", 8)], gpus=6, terms='{"b": {"weight": 2}}')
    assert gpus_of(found) == {"q/a": 2, "q/b": 4}


def test_a_limit_for_each_and_one_for_a_name() -> None:
    terms = '{"*": {"gpuLimit": 1}, "b": {"gpuLimit": 2}}'
    jobs = [(f"{user}{i}", 1) for user in "ab" for i in range(3)]
    plan = solved(users(jobs, gpus=8, terms=terms))
    assert set(bound(plan)) == {"a0", "b0", "b1"}
    assert set(reasons(plan).values()) == {"OverLimit"}


def test_users_above_their_share_give_to_users_below_it() -> None:
    """a holds both GPUs and b none. Reclaim works between users as between queues; preempt could not do
    it.
    """
    jobs = [("a0", 1), ("a1", 1), ("b0", 1)]
    found = users(jobs, ["a0", "a1"], actions="allocate, reclaim")
    plan = solved(found)
    assert (placed(plan), evicted(plan)) == ({"b0"}, {"a1"})
    assert solved(users(jobs, ["a0", "a1"], on=False, actions="allocate, reclaim")).decisions == ()


def test_a_user_within_its_share_keeps_its_pods() -> None:
    found = users([("a0", 1), ("b0", 1), ("b1", 1)], ["a0", "b0"], actions="allocate, reclaim")
    assert solved(found).decisions == ()
    unfair = Plan(
        (
            named(found, "Evict", "a0", "n0", action="reclaim", triggers=(GroupKey("default", "b1"),)),
            named(found, "Nominate", "b1", "n0", action="reclaim"),
        )
    )
    assert any(fault.startswith("reclaim:") for fault in violations(found, unfair))


def test_priority_tells_a_users_own_jobs_apart() -> None:
    """Preempt takes from the same user only; the high priority of b gives it no right to the share of a."""
    high = {"b0": {"priorityClassName": "train"}, "a1": {"priorityClassName": "train"}}
    low = {"a0": {"priorityClassName": "low"}}
    taken = users([("a0", 2), ("b0", 2)], ["a0"], more={**high, **low}, actions="allocate, preempt")
    assert solved(taken).decisions == ()
    own = users([("a0", 2), ("a1", 2)], ["a0"], more={**high, **low}, actions="allocate, preempt")
    assert (placed(solved(own)), evicted(solved(own))) == ({"a1"}, {"a0"})


def test_quota_of_what_cannot_be_preempted_is_the_queues() -> None:
    """Users deserve nothing of their own, so a may have both GPUs of the queue's quota; those of b are
    too many.
    """
    jobs = [("a0", 2), ("b0", 2)]
    queues = [queue("q", quota={"gpu": 2, "cpu": 9000, "memory": 9999})]
    plan = solved(users(jobs, gpus=4, more={"a0": FIRM, "b0": FIRM}, queues=queues))
    assert set(bound(plan)) == {"a0"}
    assert reasons(plan) == {"b0": "NonPreemptibleOverQuota"}


def test_other_queues_see_one_queue() -> None:
    """q deserves one GPU and has three users; r deserves one and has one user. Each queue gets one."""
    one = {"gpu": 1, "cpu": 4000, "memory": 9999}
    queues = [queue("q", quota=one), queue("r", quota=one)]
    found = world(
        [node("n0", gpus=2)],
        [pod(name, gpus=1, queue=name[0]) for name in ("qa", "qb", "qc", "ra")],
        groups={name: {"labels": {"user": name[1]}} for name in ("qa", "qb", "qc", "ra")},
        queues=queues,
        user_label="user",
    )
    assert set(bound(solved(found))) == {"qa", "ra"}


def test_pods_without_a_label_are_one_user() -> None:
    found = users(THREE)
    plain = world(
        [node("n0", gpus=2)],
        [pod(name, gpus=1) for name in ("x", "y", "b")],
        groups={"b": {"labels": {"user": "b"}}},
        user_label="user",
    )
    assert set(bound(solved(plain))) == {"x", "b"}
    assert {one.user for one in (*found.queues, *plain.queues)} == {"", "a", "b", "(none)"}


def test_the_position_names_the_user() -> None:
    found = users(THREE)
    line = FairLine(Situation(found, Settings(), Plan()))
    position = line.position(GroupKey("default", "a1"))
    assert (position.at, position.in_queue) == (3, 2)
    assert [(one.group.name, one.because) for one in position.ahead] == [
        ("b0", "user b of queue q comes first among equals"),
        ("a0", "older"),
    ]


def test_inspect_shows_users_below_their_queue() -> None:
    rows = inspection(users(THREE, ["a0"]))["queues"]
    assert [(row["name"], row["parent"], row["gpu"]["allocated"]) for row in rows] == [
        ("top", None, 1),
        ("q", "top", 1),
        ("q/a", "q", 1),
        ("q/b", "q", 0),
    ]


def test_a_queue_with_children_has_no_users() -> None:
    found = users(THREE, queues=[queue("q"), queue("below", "q")])
    assert [one.name for one in found.queues] == ["below", "q", "top"]


@pytest.mark.parametrize(
    ("terms", "words"),
    [
        ("[1]", ": is not an object of users"),
        ("{", ": is not JSON"),
        ('{"a": 2}', ".a: 2 is not an object with weight or gpuLimit"),
        ('{"a": {"limit": 2}}', '.a: there is no "limit", only weight and gpuLimit'),
        ('{"a": {"weight": 0}}', ".a.weight: 0 is not a number above 0"),
        ('{"a": {"gpuLimit": true}}', ".a.gpuLimit: true is not a number of GPUs; -1 is any number"),
    ],
)
def test_unreadable_terms_are_reported_and_stop_no_group(terms: str, words: str) -> None:
    found = users(THREE, terms=terms)
    assert set(bound(solved(found))) == {"a0", "b0"}
    said = [one.reason for one in found.set_aside if one.item == "Queue q"]
    assert said == [f"metadata.annotations[kai-cp/users]{words}; treated as absent"]


def test_a_bad_entry_affects_itself_only() -> None:
    found = users(THREE, gpus=4, terms=json.dumps({"a": {"gpuLimit": 1}, "b": 3}))
    assert set(bound(solved(found))) == {"a0", "b0"}


def test_users_share_the_limits_of_their_queue() -> None:
    """Limits of the queue apply to all its users together."""
    plan = solved(users(THREE, gpus=8, queues=[queue("q", limit={"gpu": 3})]))
    assert set(bound(plan)) == {"a0", "a1", "b0"}
    assert solved(users(THREE, gpus=8, queues=[queue("q", limit=NOTHING)])).decisions == ()
