"""What a plan is worth by the goals, whichever scheduler made it."""

from __future__ import annotations

from kai_cp_models.queries.goals import goal_values
from kai_cp_models.settings import Settings
from tests.support.worlds import (
    NOW,
    bind,
    cluster,
    evict,
    group,
    leaf,
    node,
    nominate,
    plan,
    pod,
    pods,
    spec,
    tree,
)

WORLD = cluster(
    (
        *pods("old", 2, "n1", spec=spec(4)),
        *pods("new", 4, "n2", spec=spec(2)),
        *pods("t", 1, spec=spec(8)),
        *pods("small", 1),
    ),
    [
        group("old", 2, last_start=NOW - 1000),
        group("new", 2, last_start=NOW - 10),
        group("t", priority=75),
        group("small"),
    ],
    [node("n1"), node("n2"), node("n3", gpus=2)],
)


def value(*decisions: object) -> dict[str, tuple[int, ...]]:
    return {one.goal: one.value for one in goal_values(WORLD, Settings(), plan(*decisions))}  # type: ignore[arg-type]


def test_plan_without_evictions_is_worth_nothing() -> None:
    assert not any(any(numbers) for numbers in value(bind("small-0", "n3", "allocate")).values())


def test_lost_gang_counts_its_work_and_reaches_deepest() -> None:
    gone = value(*(evict(f"old-{i}", "preempt", "t") for i in range(2)), nominate("t-0", "n1", "preempt"))
    assert gone["lost_work_by_priority"] == (2 * 4001 * 1000,)
    assert gone["stopped_groups"] == (1,)
    younger = value(
        *(evict(f"new-{i}", "preempt", "t", node="n2") for i in range(4)), nominate("t-0", "n2", "preempt")
    )
    assert younger["lost_work_by_priority"] == (4 * 2001 * 10,)
    assert younger["threshold_by_age"] < gone["threshold_by_age"]


def test_surplus_counts_as_policy_takes_it_whichever_pod_it_was() -> None:
    plans = [value(evict(f"new-{i}", "preempt", "t", node="n2")) for i in range(4)]
    assert plans[0] == plans[1] == plans[2] == plans[3]
    assert plans[0]["stopped_groups"] == (0,)


def test_gpus_beyond_those_admitted_count_in_steps() -> None:
    lost = [evict(f"old-{i}", "preempt", "small") for i in range(2)]
    lost += [evict(f"new-{i}", "preempt", "small", node="n2") for i in range(4)]
    assert value(*lost, nominate("small-0", "n1", "preempt"))["lost_beyond"] == (1,)
    assert value(*lost, nominate("t-0", "n1", "preempt"))["lost_beyond"] == (1,)


def test_moved_pod_is_not_lost() -> None:
    moved = value(evict("new-0", "preempt", "small", node="n2"), nominate("new-0", "n3", "preempt"))
    assert moved["moved_pods"] == (1,)
    assert moved["moved_groups"] == (1,)
    assert moved["lost_work_by_priority"] == (0,)


def test_a_pod_set_that_gets_nothing_asks_for_nothing() -> None:
    """Of two pod sets one is enough. It gets a GPU for a GPU that is lost, so nothing is lost beyond."""
    world = cluster(
        (*pods("old", 1, "n1"), pod("two-a", subgroup="a"), pod("two-b", subgroup="b")),
        [group("two", root=tree(1, leaf("a", 1), leaf("b", 1)))],
        [node("n1", gpus=1)],
    )
    served = plan(evict("old-0", "preempt", "two"), nominate("two-a", "n1", "preempt"))
    values = {one.goal: one.value for one in goal_values(world, Settings(), served)}
    assert values["lost_beyond"] == (0,)
