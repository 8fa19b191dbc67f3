"""Allocate in worlds that no recorded case covers: taints, node pools, queue depth, backoff, usage, several
fabrics.
"""

from __future__ import annotations

from typing import Any

import pytest

from kai_cp_models.pods import PodStatus, Toleration
from kai_cp_models.snapshot import Shares, Snapshot, Taint, Topology, TopologyConstraint
from tests.support.plans import bound, evicted, nominated, placed, reasons, solved
from tests.support.worlds import cluster, fraction, gpu_bound, group, leaf, node, pod, pods, queue, spec, tree


def only_allocate(*args: Any, **more: Any) -> Snapshot:
    return cluster(*args, actions=("allocate",), **more)


# --- nodes ---------------------------------------------------------------------------------------

ML = Taint("dedicated", "ml", "NoSchedule")
OLD = Taint("old", "", "NoSchedule")
TAINTS = [
    # (taints of n1, tolerations of the pod, where it goes); n2 is plain but has no GPU.
    ("a taint refuses", (ML,), (), None),
    ("the right toleration is let in", (ML,), (Toleration("dedicated", "Equal", "ml", "NoSchedule"),), "n1"),
    ("the wrong value is not", (ML,), (Toleration("dedicated", "Equal", "web", "NoSchedule"),), None),
    ("Exists takes any value", (ML,), (Toleration("dedicated", "Exists", "", ""),), "n1"),
    ("an empty key tolerates everything", (ML,), (Toleration("", "Exists", "", ""),), "n1"),
    ("another effect is not tolerated", (ML,), (Toleration("dedicated", "Exists", "", "NoExecute"),), None),
    ("NoExecute refuses too", (Taint("x", "", "NoExecute"),), (), None),
    ("PreferNoSchedule does not", (Taint("x", "", "PreferNoSchedule"),), (), "n1"),
    ("all taints must be tolerated", (ML, OLD), (Toleration("old", "Exists", "", ""),), None),
]


@pytest.mark.parametrize(
    ("taints", "tolerations", "where"), [x[1:] for x in TAINTS], ids=[x[0] for x in TAINTS]
)
def test_taints(taints: tuple[Taint, ...], tolerations: tuple[Toleration, ...], where: str | None) -> None:
    waits = pod("a-0", spec=spec(1, tolerations=tolerations))
    plan = solved(only_allocate([waits], nodes=[node("n1", taints=taints), node("n2", gpus=0)]))
    assert bound(plan).get("a-0") == where
    assert ("a" in reasons(plan)) is (where is None)


def test_a_taint_keeps_a_whole_gang_off() -> None:
    """Two of the three pods fit on the plain node. The tainted node has free GPUs for the third one, which
    does not tolerate the taint.
    """
    nodes = [node("n1", gpus=2), node("n2", taints=(ML,))]
    assert placed(solved(only_allocate(pods("a", 3), [group("a", 3)], nodes))) == set()


# --- order ---------------------------------------------------------------------------------------


def test_queue_depth_caps_each_leaf_queue() -> None:
    """With a depth of 1 only the oldest of the three groups of q and the one of r take part, although all of
    them fit. No action that does not run is named.
    """
    snapshot = only_allocate(
        [pod(f"{x}-0") for x in "abcr"],
        [group(x, queue="r" if x == "r" else "q", created=float(i)) for i, x in enumerate("bacr")],
        queues=[queue("q"), queue("r")],
        queue_depth={"stalegangeviction": 1, "reclaim": 1, "allocate": 1},
    )
    plan = solved(snapshot)
    assert placed(plan) == {"b-0", "r-0"}
    words = "too many come before it in its queue (queueDepthPerAction: allocate 1)"
    assert {(row.group.name, row.reason, row.message) for row in plan.unscheduled} == {
        (name, "BeyondQueueDepth", words) for name in "ac"
    }


@pytest.mark.parametrize("others", [("reclaim",), ("preempt",)])
def test_a_group_beyond_the_depth_of_allocate_says_so_though_others_may_evict_nothing_for_it(
    others: tuple[str, ...],
) -> None:
    """big needs two GPUs and takes allocate's only turn; small, after it, fits into the idle one."""
    members = [pod("big-0", spec=spec(2)), pod("small-0"), pod("run-0", "n1")]
    groups = [group("big", created=0.0), group("small", created=1.0), group("run")]
    depth = {"allocate": 1}
    actions = ("allocate", *others)
    plan = solved(cluster(members, groups, [node("n1", gpus=2)], actions=actions, queue_depth=depth))
    assert (reasons(plan)["small"], reasons(plan)["big"]) == ("BeyondQueueDepth", "NoRoomInSum")


def test_queue_depth_is_per_action() -> None:
    snapshot = only_allocate(pods("a", 1) + pods("b", 1), queue_depth={"reclaim": 1})
    assert placed(solved(snapshot)) == {"a-0", "b-0"}


def test_with_a_depth_of_none_an_action_looks_at_no_group() -> None:
    """KAI's queue of an action holds at most so many groups, and -1 stands for no limit there."""
    snapshot = only_allocate(pods("a", 1), queue_depth={"allocate": 0})
    assert placed(solved(snapshot)) == set()


def test_a_backed_off_group_is_not_tried() -> None:
    snapshot = only_allocate([pod("a-0"), pod("b-0")], [group("a", backed_off=True)])
    plan = solved(snapshot)
    assert placed(plan) == {"b-0"}
    assert reasons(plan) == {"a": "SchedulingBackoff"}


def test_a_higher_priority_extra_precedes_a_lower_priority_minimum() -> None:
    """4.9: priority comes before elastic state; minimums come first only among equal priorities."""
    high = [*pods("a", 2), pod("b-0")]
    plan = solved(only_allocate(high, [group("a", 1, priority=60)], [node(gpus=2)]))
    assert placed(plan) == {"a-0", "a-1"}
    plan = solved(only_allocate(high, [group("a", 1), group("b", created=9.0)], [node(gpus=2)]))
    assert placed(plan) == {"a-0", "b-0"}


USAGE = [
    # (usage of q in GPUs, k, who gets the only GPU); r was created later and loses ties.
    ("no usage: the older queue", 0.0, 1.0, "q"),
    ("who used much waits", 0.9, 1.0, "r"),
    ("k = 0 ignores usage", 0.9, 0.0, "q"),
]


@pytest.mark.parametrize(("usage", "k", "winner"), [x[1:] for x in USAGE], ids=[x[0] for x in USAGE])
def test_usage_shifts_the_surplus(usage: float, k: float, winner: str) -> None:
    """3.2 step 2: no quota, equal weights, 3 GPUs; both queues ask for 3 and hold 1 (q) and 1 (r). Without
    usage each is due 1.5, cut to 1, and the third GPU goes to the older queue. With 2 to 1, q has the
    smaller share of its due. With usage 0.9 and k = 1, the weight of q is max(0, 0.5 + 0.5 - 0.9) = 0.1
    against 1.
    """
    zero = Shares(-1, -1, 0)
    queues = [
        queue("q", quota=zero, created=1.0, usage=Shares(0, 0, usage)),
        queue("r", quota=zero, created=2.0),
    ]
    members = [pod(f"{x}{i}-0", "n1" if i == 0 else None) for x in "qr" for i in range(3)]
    groups = [group(f"{x}{i}", queue=x, created=float(i)) for x in "qr" for i in range(3)]
    plan = solved(only_allocate(members, groups, [node(gpus=3)], queues, k_value=k))
    assert placed(plan) == {f"{winner}1-0"}


# --- gates ---------------------------------------------------------------------------------------


def test_limits_hold_on_every_ancestor() -> None:
    """The leaf queue may have 4 GPUs, its parent only 2."""
    queues = [queue("d", limit=gpu_bound(2)), queue("q", "d", limit=gpu_bound(4))]
    plan = solved(only_allocate(pods("a", 3), [group("a", 1)], queues=queues))
    assert placed(plan) == {"a-0", "a-1"}
    assert reasons(plan) == {"a": "OverLimit"}


def test_a_gang_over_the_limit_gets_nothing() -> None:
    plan = solved(only_allocate(pods("a", 3), [group("a", 3)], queues=[queue("q", limit=gpu_bound(2))]))
    assert placed(plan) == set()
    assert reasons(plan) == {"a": "OverLimit"}


def test_non_preemptible_pods_stay_within_quota() -> None:
    """With a quota of 1 the preemptible group may exceed it, the non-preemptible one may not."""
    queues = [queue("q", quota=gpu_bound(1))]
    groups = [group("a", 1, preemptible=False, priority=100), group("b", 1)]
    plan = solved(only_allocate(pods("a", 2) + pods("b", 2), groups, queues=queues))
    assert placed(plan) == {"a-0", "b-0", "b-1"}
    assert reasons(plan) == {"a": "NonPreemptibleOverQuota"}


# --- gangs ---------------------------------------------------------------------------------------


def test_an_incomplete_gang_is_nominated_as_a_whole() -> None:
    """4.2: one pod fits now, the other one waits for a pod that is leaving. Both are nominated."""
    members = [*pods("a", 2, spec=spec(4)), pod("r-0", "n1", spec=spec(4), status=PodStatus.RELEASING)]
    plan = solved(only_allocate(members, [group("a", 2)]))
    assert set(nominated(plan)) == {"a-0", "a-1"}
    assert bound(plan) == {}


def test_an_elastic_group_binds_what_it_can() -> None:
    """With a minimum of 1 the first pod is bound now and the second is nominated."""
    members = [*pods("a", 2, spec=spec(4)), pod("r-0", "n1", spec=spec(4), status=PodStatus.RELEASING)]
    plan = solved(only_allocate(members, [group("a", 1)]))
    assert set(bound(plan)) == {"a-0"}
    assert set(nominated(plan)) == {"a-1"}


def test_k_of_n_subgroups() -> None:
    """8 GPUs, K = 1 of two subgroups of 2 x 3 GPUs: the first subgroup is placed, the second does not fit."""
    root = tree(1, leaf("x", 2), leaf("y", 2))
    members = [pod(f"a-{s}{i}", subgroup=s, spec=spec(3)) for s in "xy" for i in range(2)]
    plan = solved(only_allocate(members, [group("a", root=root)]))
    assert placed(plan) == {"a-x0", "a-x1"}


def test_a_pod_of_an_unknown_subgroup_waits_and_says_so() -> None:
    plan = solved(only_allocate([pod("a-0"), pod("a-1", subgroup="nowhere")]))
    assert placed(plan) == {"a-0"}
    assert reasons(plan) == {"a": "UnknownSubgroup"}


# --- topologies ----------------------------------------------------------------------------------

TWO = (Topology("fabric", ("block", "rack")), Topology("power", ("feed",)))


def labelled(name: str, block: str, rack: str, feed: str) -> Any:
    return node(name, gpus=4, labels={"block": block, "rack": rack, "feed": feed})


def test_two_topologies_at_once() -> None:
    """Group a needs one rack and group b one power feed, and these cross: racks are n1+n2 and n3+n4, feeds
    n1+n3 and n2+n4. Each group is a gang of 2 x 4 GPUs. In any rack, a takes one node of each feed, so no
    feed has both nodes left.
    """
    nodes = [
        labelled("n1", "b", "r1", "f1"),
        labelled("n2", "b", "r1", "f2"),
        labelled("n3", "b", "r2", "f1"),
        labelled("n4", "b", "r2", "f2"),
    ]
    rack, feed = TopologyConstraint("fabric", "rack"), TopologyConstraint("power", "feed")
    members = [*pods("a", 2, spec=spec(4)), *pods("b", 2, spec=spec(4))]
    groups = [group("a", 2, created=1.0, constraint=rack), group("b", 2, created=2.0, constraint=feed)]
    plan = solved(only_allocate(members, groups, nodes, topologies=TWO))
    assert placed(plan) == {"a-0", "a-1"}
    assert {tuple(sorted(bound(plan).values()))} <= {("n1", "n2"), ("n3", "n4")}
    assert [(u.group.name, u.proved) for u in plan.unscheduled] == [("b", True)]
    # With a fifth and a sixth node on feed f1 both groups have a place.
    more = [*nodes, labelled("n5", "b", "r3", "f3"), labelled("n6", "b", "r4", "f3")]
    assert len(placed(solved(only_allocate(members, groups, more, topologies=TWO)))) == 4


def test_a_constraint_that_cannot_be_resolved_is_a_reason() -> None:
    error = TopologyConstraint("nowhere", "rack", error="topology nowhere does not exist")
    plan = solved(only_allocate([pod("a-0"), pod("b-0")], [group("a", constraint=error)]))
    assert placed(plan) == {"b-0"}
    assert "nowhere" in plan.unscheduled[0].message


def test_subgroups_in_racks_of_their_own_within_one_block() -> None:
    """The group needs one block and each subgroup one rack: block c has two racks of 4 + 4 GPUs, b
    only one.
    """
    rack = TopologyConstraint("fabric", "rack")
    root = tree(2, leaf("x", 2, rack), leaf("y", 2, rack), constraint=TopologyConstraint("fabric", "block"))
    members = [pod(f"a-{s}{i}", subgroup=s, spec=spec(4)) for s in "xy" for i in range(2)]
    nodes = [labelled(f"b{i}", "b", f"rb{i // 2}", "f") for i in range(3)]
    nodes += [labelled(f"c{i}", "c", f"rc{i // 2}", "f") for i in range(4)]
    plan = solved(only_allocate(members, [group("a", root=root)], nodes, topologies=TWO))
    where = bound(plan)
    assert set(where.values()) == {"c0", "c1", "c2", "c3"}
    assert {where["a-x0"], where["a-x1"]} in ({"c0", "c1"}, {"c2", "c3"})


# --- shares --------------------------------------------------------------------------------------


def test_shares_share_a_device_and_name_it() -> None:
    plan = solved(only_allocate(pods("a", 2, spec=fraction(500)), [group("a", 2)], [node(gpus=1)]))
    groups = {d.gpu_groups for d in plan.decisions}
    assert len(groups) == 1
    assert placed(plan) == {"a-0", "a-1"}


def test_nothing_that_runs_is_touched() -> None:
    members = [pod("v-0", "n1", spec=spec(8)), pod("a-0", spec=spec(8))]
    plan = solved(only_allocate(members, [group("v", priority=1), group("a", priority=90)]))
    assert plan.decisions == ()
    assert evicted(plan) == set()
    assert plan.unscheduled[0].proved
