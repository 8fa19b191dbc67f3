"""What two plans differ in first, on tiny worlds argued by hand; see ``comparing``."""

from __future__ import annotations

from kai_cp_models.plan import Plan
from kai_cp_models.policy import ActionName
from kai_cp_models.snapshot import Snapshot
from tests.properties.comparing import NONE, Difference, Stages, first_difference
from tests.properties.reasking import SETTINGS
from tests.support.worlds import (
    bind,
    cluster,
    evict,
    gpu_bound,
    group,
    node,
    nominate,
    plan,
    pods,
    queue,
    spec,
)


def both_ways(snapshot: Snapshot, one: Plan, other: Plan) -> Difference:
    """What they differ in first; the plans change places."""
    by, sign = first_difference(snapshot, one, other, SETTINGS)
    assert first_difference(snapshot, other, one, SETTINGS) == (by, -sign)
    return by, sign


def test_a_further_pod_has_its_own_turn() -> None:
    """Inside a queue the higher priority comes first, with its further pods, too."""
    snapshot = cluster(
        [*pods("first", 3), *pods("second", 1)],
        [group("first", priority=60), group("second")],
        [node(gpus=3)],
    )
    further = plan(*(bind(f"first-{i}") for i in range(3)))
    another = plan(bind("first-0"), bind("first-1"), bind("second-0"))
    assert both_ways(snapshot, further, another) == ("allocate: ns/first", -1)
    least = plan(bind("first-0"), bind("second-0"))
    assert both_ways(snapshot, another, least) == ("allocate: ns/first", -1)


def full(*waiting: str) -> Snapshot:
    """Groups wait in the queue ``a`` with a quota of 2 GPUs; ``b`` and ``c`` fill the node of 4."""
    held = [*pods("old", 1, "n1", spec=spec(2)), *pods("new", 1, "n1"), *pods("c", 1, "n1")]
    groups = [group("old", queue="b"), group("new", queue="b", created=1.0), group("c", queue="c")]
    asking = [group(name, queue=name[0], created=float(name[1:])) for name in waiting]
    none = {"quota": gpu_bound(0)}
    queues = [queue("a", quota=gpu_bound(2)), queue("b", **none), queue("c", **none)]
    members = [one for name in waiting for one in pods(name, 1)]
    return cluster([*held, *members], [*groups, *asking], [node(gpus=4)], queues)


def test_a_group_is_admitted_for_what_is_taken_though_no_eviction_names_it() -> None:
    """Both groups of ``a`` are within its quota; evictions name the first that they are for."""
    snapshot = full("a1", "a2")
    served = nominate("a1-0", action="reclaim")
    two = plan(evict("old-0", "reclaim", "a1"), served, nominate("a2-0", action="reclaim"))
    one = plan(evict("new-0", "reclaim", "a1"), served)
    assert both_ways(snapshot, two, one) == ("reclaim: ns/a2", -1)


def test_left_over_capacity_comes_after_the_goals() -> None:
    """Nothing may be taken for the group of ``c``, whose share is 1.5 GPUs; the newest goes first."""
    snapshot = full("a1", "c1")
    served = nominate("a1-0", action="reclaim")
    more = plan(evict("old-0", "reclaim", "a1"), served, nominate("c1-0", action="reclaim"))
    least = plan(evict("new-0", "reclaim", "a1"), served)
    assert both_ways(snapshot, least, more) == ("reclaim: goals", -1)
    wasted = plan(evict("old-0", "reclaim", "a1"), served)
    assert both_ways(snapshot, more, wasted) == ("reclaim: ns/c1", -1)


def test_a_group_served_from_what_is_left_over_hides_no_later_one() -> None:
    """The share of ``a`` is 3 GPUs: the first group asks for more, the second may reclaim."""
    groups = [group("a1", queue="a", created=1.0), group("a2", queue="a", created=2.0), group("c", queue="c")]
    members = [*pods("c", 5, "n1"), *pods("a1", 1, spec=spec(4)), *pods("a2", 1)]
    queues = [queue("a", quota=gpu_bound(1)), queue("c", quota=gpu_bound(0))]
    snapshot = cluster(members, groups, [node(gpus=5)], queues)
    gone = [evict(f"c-{i}", "reclaim", "a2") for i in range(5)]
    both = plan(*gone, *(nominate(f"{name}-0", action="reclaim") for name in ("a1", "a2")))
    assert both_ways(snapshot, both, plan()) == ("reclaim: ns/a2", -1)


def test_a_place_that_only_moves_was_given_before() -> None:
    """As the stages of the plan say, or, without these, because nothing was evicted for it."""
    snapshot = cluster(pods("g", 1), [group("g")])
    given, moved = plan(bind("g-0")), plan(nominate("g-0", action="reclaim"))
    assert both_ways(snapshot, given, moved) == NONE
    stages: dict[ActionName, Plan] = dict.fromkeys(snapshot.policy.actions, moved)
    after: Stages = {**stages, "allocate": given, "consolidation": given}.__getitem__
    assert first_difference(snapshot, moved, given, SETTINGS, after) == NONE
    late: Stages = {**stages, "allocate": plan(), "consolidation": plan()}.__getitem__
    assert first_difference(snapshot, moved, given, SETTINGS, late) == ("allocate: ns/g", 1)
