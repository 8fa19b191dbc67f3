"""Gangs, shrinking, queues and topology: legal and illegal plans on tiny worlds."""

from __future__ import annotations

import pytest

from kai_cp_models.pods import PodStatus
from kai_cp_models.snapshot import Shares, Topology, TopologyConstraint
from tests.support.worlds import (
    bind,
    cluster,
    evict,
    gpu_bound,
    gpu_memory,
    group,
    judged,
    leaf,
    named,
    node,
    nominate,
    pod,
    pods,
    queue,
    spec,
    tree,
)

# --- gangs -------------------------------------------------------------------------------------


def test_a_gang_is_placed_whole() -> None:
    snapshot = cluster(pods("g", 3), [group("g", 2)])
    assert judged(snapshot, bind("g-0"), bind("g-1")) == []
    assert judged(snapshot, bind("g-0"), bind("g-1"), bind("g-2")) == []
    assert named(judged(snapshot, bind("g-0")), "gangs", "in part", "1 of at least 2 pods")


def test_releasing_pods_do_not_make_up_a_gang() -> None:
    """Defect 6 of 14.1: one pod was nominated alone because two releasing ones were counted."""
    dying = [pod("g-0", "n1", status=PodStatus.RELEASING), pod("g-1", "n1", status=PodStatus.RELEASING)]
    snapshot = cluster([*dying, *pods("h", 1), pod("g-2")], [group("g", 3)])
    assert named(judged(snapshot, nominate("g-2")), "gangs", "not ready")
    assert named(judged(snapshot, nominate("g-2")), "gangs", "in part", "1 of at least 3")


def test_a_gang_starts_together() -> None:
    """Seven GPUs are free and one is being released: the second pod waits, so both wait."""
    rest = [*pods("r", 6, "n1"), pod("d-0", "n1", status=PodStatus.RELEASING)]
    snapshot = cluster([*rest, *pods("g", 2)], [group("g", 2)])
    assert judged(snapshot, nominate("g-0"), nominate("g-1")) == []
    assert named(judged(snapshot, bind("g-0"), nominate("g-1")), "gangs", "starts in part", "ns/g-0 is bound")


def test_extras_may_wait_while_the_gang_starts() -> None:
    rest = [*pods("r", 5, "n1"), pod("d-0", "n1", status=PodStatus.RELEASING)]
    snapshot = cluster([*rest, *pods("g", 3)], [group("g", 2)])
    assert judged(snapshot, bind("g-0"), bind("g-1"), nominate("g-2")) == []


def test_an_unknown_subgroup_gets_nothing() -> None:
    stranger = pod("g-1", subgroup="who")
    snapshot = cluster([pod("g-0"), stranger], [group("g", 1)])
    assert judged(snapshot, bind("g-0")) == []
    assert named(judged(snapshot, bind("g-0"), bind("g-1")), "gangs", "g-1", "subgroup who is unknown")


def test_a_gang_that_is_not_ready_gets_nothing() -> None:
    snapshot = cluster([pod("g-0"), pod("g-1", status=PodStatus.GATED)], [group("g", 2)])
    assert named(judged(snapshot, bind("g-0")), "gangs", "not ready", "1 of at least 2")


def test_every_subgroup_that_gets_a_pod_is_whole() -> None:
    """One of two subgroups is enough, but the second one may not start in part (14.1)."""
    two = tree(1, leaf("a", 2), leaf("b", 2))
    members = [pod(f"g-{x}{i}", subgroup=x) for x in "ab" for i in range(2)]
    snapshot = cluster(members, [group("g", root=two)])
    first = [bind("g-a0"), bind("g-a1")]
    assert judged(snapshot, *first) == []
    assert judged(snapshot, *first, bind("g-b0"), bind("g-b1")) == []
    assert named(judged(snapshot, *first, bind("g-b0")), "gangs", "subgroup b", "in part")
    both = cluster(members, [group("g", root=tree(2, leaf("a", 2), leaf("b", 2)))])
    assert named(
        judged(both, *first), "gangs", "pod group ns/g is placed in part", "1 of at least 2 subgroups"
    )


def test_a_subgroup_that_is_torn_already_keeps_no_other_waiting() -> None:
    """One of two subgroups is enough. A pod of b runs alone, and b gets none; a is whole."""
    two = tree(1, leaf("a", 1), leaf("b", 2))
    torn = pod("g-b0", "n1", subgroup="b")
    snapshot = cluster([pod("g-a0", subgroup="a"), torn], [group("g", root=two)])
    assert judged(snapshot, bind("g-a0")) == []


def test_waiting_pods_get_their_places_in_task_order() -> None:
    """The pods of a batch are the first ones that wait (5.3), not those that fit."""
    snapshot = cluster(pods("g", 3), [group("g", 2)])
    assert judged(snapshot, bind("g-0"), bind("g-1")) == []
    assert named(judged(snapshot, bind("g-0"), bind("g-2")), "gangs", "g-2 gets a place, but not ns/g-1")


def test_subgroups_get_their_places_in_their_order() -> None:
    """Those below their minimum come first, the first by name before the others; one that cannot be whole is
    passed over (14.1). A further pod of one that has its minimum comes after them."""
    two, members = tree(1, leaf("a", 1), leaf("b", 1)), [pod(f"g-{x}", subgroup=x) for x in "ab"]
    snapshot = cluster(members, [group("g", root=two)])
    assert judged(snapshot, bind("g-a")) == []
    assert named(judged(snapshot, bind("g-b")), "gangs", "subgroup b gets a place, but not subgroup a")
    lacking = tree(1, leaf("a", 2), leaf("b", 1))
    assert judged(cluster(members, [group("g", root=lacking)]), bind("g-b")) == []
    more = [pod("g-b", "n1", subgroup="b"), pod("g-a", subgroup="a"), pod("g-c", subgroup="b")]
    snapshot = cluster(more, [group("g", root=two)])
    assert judged(snapshot, bind("g-a")) == []
    assert named(judged(snapshot, bind("g-c")), "gangs", "subgroup b gets a place, but not subgroup a")


def test_backed_off_groups_get_nothing() -> None:
    assert named(judged(cluster([pod("g-0")], [group("g", backed_off=True)]), bind("g-0")), "backed off")


# --- shrinking ---------------------------------------------------------------------------------


def _preempted(victims: tuple[str, ...], minimum: int = 2, count: int = 4, **more: object) -> list[str]:
    members = [pod(f"v-{i}", "n1", created=float(i), spec=spec(2)) for i in range(count)]
    groups = [group("v", minimum, priority=10, **more), group("t", priority=90)]
    snapshot = cluster([*members, pod("t-0", spec=spec(2))], groups)
    evictions = [evict(name, "preempt", "t") for name in victims]
    return judged(snapshot, *evictions, nominate("t-0", action="preempt"))


def test_surplus_leaves_first_and_latest_first() -> None:
    assert _preempted(("v-3",)) == []
    assert _preempted(("v-3", "v-2")) == []
    assert named(_preempted(("v-2",)), "shrinking", "v-2", "v-3", "comes after it")


def test_a_gang_is_not_torn() -> None:
    assert named(_preempted(("v-3", "v-2", "v-1")), "shrinking", "in part", "1 of at least 2 pods")
    assert _preempted(("v-3", "v-2", "v-1", "v-0")) == []


def test_a_gang_that_was_below_its_minimum_is_not_judged() -> None:
    assert _preempted(("v-3",), minimum=6) == []


def test_pods_of_equal_age_stand_in_for_each_other() -> None:
    groups = [group("v", 1, priority=10), group("t", priority=90)]
    snapshot = cluster([*pods("v", 2, "n1", spec=spec(4)), pod("t-0", spec=spec(4))], groups)
    for name in ("v-0", "v-1"):
        assert judged(snapshot, evict(name, "preempt", "t"), nominate("t-0", action="preempt")) == []


def test_surplus_pods_leave_before_surplus_subgroups() -> None:
    root = tree(1, leaf("a", 1), leaf("b", 2))
    members = [pod(f"v-a{i}", "n1", subgroup="a", spec=spec(2)) for i in range(2)]
    members += [pod(f"v-b{i}", "n1", subgroup="b", spec=spec(2)) for i in range(2)]
    groups = [group("v", root=root, priority=10), group("t", priority=90)]
    snapshot = cluster([*members, pod("t-0", spec=spec(4))], groups)
    take = nominate("t-0", action="preempt")
    whole = [evict(f"v-b{i}", "preempt", "t") for i in range(2)]
    assert named(judged(snapshot, *whole, take), "shrinking", "subgroup b", "evicted whole", "subgroup a")
    assert judged(snapshot, evict("v-a1", "preempt", "t"), *whole, take) == []


# --- queues ------------------------------------------------------------------------------------


@pytest.mark.parametrize("holder", ["q", "dept"])
def test_limits_hold_at_every_level(holder: str) -> None:
    bound = {name: {"limit": gpu_bound(2)} if name == holder else {} for name in ("q", "dept")}
    queues = [queue("dept", **bound["dept"]), queue("q", "dept", **bound["q"])]
    snapshot = cluster([pod("r-0", "n1"), *pods("a", 2)], queues=queues)
    assert judged(snapshot, bind("a-0")) == []
    faults = judged(snapshot, bind("a-0"), bind("a-1"))
    assert named(faults, "queues", f"queue {holder} would hold 3 of 2 GPUs (limit)")


def test_a_zero_limit_lets_nothing_run() -> None:
    snapshot = cluster([pod("a-0"), pod("b-0", spec=spec(0))], queues=[queue(limit=gpu_bound(0))])
    assert judged(snapshot, bind("b-0")) == []
    assert named(judged(snapshot, bind("a-0")), "queues", "1 of 0 GPUs")


def test_non_preemptible_work_stays_within_quota() -> None:
    queues = [queue("dept", quota=gpu_bound(1)), queue("q", "dept")]
    firm = [group(name, preemptible=False) for name in ("a", "b")]
    snapshot = cluster([pod("r-0", "n1"), pod("a-0"), pod("b-0")], firm, queues=queues)
    assert judged(snapshot, bind("a-0")) == []
    faults = judged(snapshot, bind("a-0"), bind("b-0"))
    assert named(faults, "queues", "queue dept", "2 of 1 GPUs (quota")


def test_binds_hold_limits_while_the_victims_are_there() -> None:
    """One GPU of the node is idle, so capacity is not the obstacle."""
    groups = [group("v", priority=10), group("t", priority=90)]
    queues = [queue(limit=gpu_bound(4))]
    snapshot = cluster([pod("v-0", "n1", spec=spec(4)), pod("t-0", spec=spec(4))], groups, queues=queues)
    gone = evict("v-0", "preempt", "t")
    assert judged(snapshot, gone, nominate("t-0", action="preempt")) == []
    assert named(judged(snapshot, gone, bind("t-0", action="preempt")), "queues", "8 of 4 GPUs (limit) now")


def test_memory_shares_are_charged_by_their_node() -> None:
    """10,000 MiB of 40,000 are a quarter of a GPU."""
    queues = [queue(limit=Shares(-1, -1, 0.25))]
    assert (
        judged(cluster([pod("a-0", spec=gpu_memory(10_000))], queues=queues), bind("a-0", gpu_groups=("x",)))
        == []
    )
    faults = judged(
        cluster([pod("a-0", spec=gpu_memory(10_001))], queues=queues), bind("a-0", gpu_groups=("x",))
    )
    assert named(faults, "queues", "0.26 of 0.25 GPUs")


def test_only_leaf_queues_run_pods() -> None:
    queues = [queue("q"), queue("child", "q")]
    assert named(judged(cluster([pod("a-0")], queues=queues), bind("a-0")), "queues", "not a leaf")
    snapshot = cluster([pod("a-0")], [group("a", queue="gone")])
    assert named(judged(snapshot, bind("a-0")), "queues", "'gone' does not exist")


def test_a_queue_over_its_limit_is_no_fault_of_the_plan() -> None:
    snapshot = cluster([*pods("r", 4, "n1"), pod("a-0", spec=spec(0))], queues=[queue(limit=gpu_bound(2))])
    assert judged(snapshot, bind("a-0")) == []


@pytest.mark.parametrize("limit", [1, 2])
def test_a_pod_moves_only_within_the_limit_of_its_queue(limit: int) -> None:
    """r moves so that t gets n1; anew, it would start within 2 GPUs, and not within 1."""
    groups, queues = [group("r", queue="p"), group("t")], [queue("p", limit=gpu_bound(limit)), queue()]
    members = [pod("r-0", "n1", spec=spec(2)), pod("t-0", spec=spec(8))]
    snapshot = cluster(members, groups, [node("n1"), node("n2")], queues)
    moved = nominate("r-0", "n2", action="consolidation")
    faults = judged(
        snapshot, evict("r-0", "consolidation", "t"), nominate("t-0", action="consolidation"), moved
    )
    assert named(faults, "queues", "queue p would hold 2 of 1 GPUs (limit)") == (limit == 1)


# --- topology ----------------------------------------------------------------------------------

RACKS = Topology("t", ("block", "rack"))
NODES = [
    node(f"n{i}", labels={"block": "b", "rack": f"r{i // 2}"} if i < 4 else {"block": "b"}) for i in range(5)
]
RACK = TopologyConstraint("t", "rack")
BLOCK = TopologyConstraint("t", "", "block")


def test_a_required_level_holds_a_gang_together() -> None:
    snapshot = cluster(pods("g", 2), [group("g", 2, constraint=RACK)], NODES, topologies=(RACKS,))
    assert judged(snapshot, bind("g-0", "n0"), bind("g-1", "n1")) == []
    assert named(judged(snapshot, bind("g-0", "n1"), bind("g-1", "n2")), "topology", "b.r0, b.r1")


def test_a_required_level_is_pinned_by_running_pods_of_other_subgroups() -> None:
    """Defect 9 of 14.1."""
    root = tree(1, leaf("a", 1), leaf("b", 1), constraint=RACK)
    members = [pod("g-a", "n0", subgroup="a"), pod("g-b", subgroup="b")]
    snapshot = cluster(members, [group("g", root=root)], NODES, topologies=(RACKS,))
    assert judged(snapshot, bind("g-b", "n1")) == []
    assert named(judged(snapshot, bind("g-b", "n2")), "topology", "b.r0, b.r1")


def test_each_subgroup_has_its_own_domain() -> None:
    root = tree(2, leaf("a", 2, RACK), leaf("b", 1, RACK))
    members = [pod("g-a0", subgroup="a"), pod("g-a1", subgroup="a"), pod("g-b0", subgroup="b")]
    snapshot = cluster(members, [group("g", root=root)], NODES, topologies=(RACKS,))
    assert judged(snapshot, bind("g-a0", "n0"), bind("g-a1", "n1"), bind("g-b0", "n2")) == []
    faults = judged(snapshot, bind("g-a0", "n0"), bind("g-a1", "n2"), bind("g-b0", "n2"))
    assert named(faults, "topology", "subgroup a")


def test_even_a_preferred_level_stays_inside_the_topology() -> None:
    snapshot = cluster([pod("g-0")], [group("g", constraint=BLOCK)], NODES, topologies=(RACKS,))
    assert judged(snapshot, bind("g-0", "n3")) == []
    assert named(judged(snapshot, bind("g-0", "n4")), "topology", "n4", "has no rack")


def test_pods_that_were_spread_before_may_grow_where_they_are() -> None:
    members = [pod("g-0", "n0"), pod("g-1", "n2"), pod("g-2")]
    nodes = [*NODES, node("n5", labels={"block": "b", "rack": "r9"})]
    snapshot = cluster(members, [group("g", 1, constraint=RACK)], nodes, topologies=(RACKS,))
    assert judged(snapshot, bind("g-2", "n1")) == []
    assert named(judged(snapshot, bind("g-2", "n5")), "topology", "b.r9")


def test_an_unresolved_constraint_places_nothing() -> None:
    wrong = TopologyConstraint("t", error="level shelf is unknown")
    snapshot = cluster([pod("g-0")], [group("g", constraint=wrong)], NODES, topologies=(RACKS,))
    assert named(judged(snapshot, bind("g-0", "n0")), "topology", "level shelf is unknown")


def test_a_gang_below_its_minimum_is_not_moved() -> None:
    move = (evict("g-0", "consolidation", "t"), nominate("g-0", "n2", "consolidation"))
    take = nominate("t-0", "n1", "consolidation")
    for minimum, legal in ((1, True), (2, False)):
        members = [pod("g-0", "n1"), pod("t-0", spec=spec(8))]
        snapshot = cluster(members, [group("g", minimum)], [node(), node("n2")])
        faults = judged(snapshot, *move, take)
        assert legal is not named(faults, "gangs", "g-0 is moved", "below its minimum")
