"""The one reason of a waiting group where several would be true."""

from __future__ import annotations

import math
from typing import Any

import pytest

from kai_cp_models.actions.allocate import allocate
from kai_cp_models.actions.evict import evict
from kai_cp_models.actions.eviction_plan import OUT_OF_TIME
from kai_cp_models.cycle import Cycle
from kai_cp_models.explain import waiting
from kai_cp_models.explain.waiting import unscheduled
from kai_cp_models.joint.policy import RECLAIM
from kai_cp_models.ledger import Ledger
from kai_cp_models.pods import GroupKey, PodKey, PodStatus
from kai_cp_models.refusal import Proof, Refusal
from kai_cp_models.snapshot import Snapshot, Topology, TopologyConstraint
from tests.support import devices as dra
from tests.support import tiny
from tests.support.plans import SETTINGS, bound, evicted, placed, reasons, solved
from tests.support.worlds import (
    cluster,
    fraction,
    gpu_bound,
    gpu_memory,
    group,
    leaf,
    node,
    pod,
    pods,
    queue,
    spec,
    tree,
)

DC = (Topology("dc", ("rack",)),)
IN_ONE_RACK = TopologyConstraint("dc", required="rack")
NODES = [node(f"n{i}", 8, labels={"rack": "pq"[i // 2]}) for i in range(4)]


@pytest.mark.parametrize(
    ("whole_nodes", "running_priority", "token"),
    [
        (3, 50, "TopologyFragmented"),  # 24 GPUs are free, 16 of them in one rack.
        (4, 50, "NoRoomInSum"),  # 32 GPUs are not free in any number of racks, and nothing may be evicted.
        (4, 10, "TopologyFragmented"),  # The running pods may be evicted; only the rack is too small.
    ],
)
def test_a_rack_is_not_to_blame_where_the_cluster_is_full(
    whole_nodes: int, running_priority: int, token: str
) -> None:
    members = [*pods("g", whole_nodes, spec=spec(8)), pod("r-0", "n0", spec=spec(8))]
    gang = group("g", whole_nodes, constraint=IN_ONE_RACK)
    running = group("r", priority=running_priority)
    snapshot = cluster(members, [gang, running], NODES, topologies=DC, actions=("allocate", "preempt"))
    plan = solved(snapshot)
    assert reasons(plan) == {"g": token}
    words = "needs 32 GPUs for 4 pods; 24 free in all, and nothing may be evicted for it"
    assert [row.message == words for row in plan.unscheduled] == [token == "NoRoomInSum"]


# Beside u, h would need 12 or 9 of the 8 GPUs.
@pytest.mark.parametrize("wanted", [8, 5])
def test_a_group_that_needs_no_eviction_is_served_before_one_that_does(wanted: int) -> None:
    """n1 has 8 GPUs and low holds 4 of them; u asks for 4 and has a higher priority than h; preempt is the
    only action. u gets the free ones, so that no eviction serves h.
    """
    snapshot = cluster(
        [pod("low-0", "n1", spec=spec(4)), pod("u-0", spec=spec(4)), pod("h-0", spec=spec(wanted))],
        [group("low", priority=10), group("u", priority=60), group("h", priority=50)],
        [node("n1", 8)],
        actions=("preempt",),
    )
    result = solved(snapshot)
    assert (evicted(result), placed(result)) == (set(), {"u-0"})
    (refused,) = result.unscheduled
    assert (refused.group.name, refused.reason, refused.proved) == ("h", "NotPossible", True)
    free = f"needs {wanted} GPUs; 0 free in all"
    assert refused.message == f"{free}; all permitted victims together do not free enough capacity"


@pytest.mark.parametrize(
    ("gated", "runs", "words"),
    [
        (0, False, "the gang is not complete: b has 1 of 2 pods"),
        (
            1,
            True,
            "the gang is not complete: b has 1 of 2 pods; pods with scheduling gates, 1 here, do not count",
        ),
    ],
)
def test_pods_that_wait_for_others_of_their_subgroup_are_not_ready(
    gated: int, runs: bool, words: str
) -> None:
    """Subgroup a runs, and is enough for the gang, or waits like b, and both are needed; b lacks a pod."""
    root = tree(1 if runs else 2, leaf("a", 1), leaf("b", 2))
    members = [pod("g-a", "n1" if runs else None, subgroup="a"), pod("g-b", subgroup="b")]
    members += [pod("g-c", subgroup="b", status=PodStatus.GATED) for _ in range(gated)]
    plan = solved(cluster(members, [group("g", root=root)], [node("n1", 8)]))
    (row,) = plan.unscheduled
    assert (row.reason, row.message, row.proved) == ("NotReady", words, True)


def test_a_group_that_lost_a_pod_is_told_what_that_one_needs() -> None:
    """t stops e-0 and leaves 2 GPUs idle. e-1 would fit there, but e starts with e-0 again, which needs 4."""
    members = [
        pod("e-0", "n1", spec=spec(4)),
        pod("e-1", spec=spec(1)),
        pod("r-0", "n1", spec=spec(4)),
        pod("t-0", spec=spec(2)),
    ]
    groups = [group("e", priority=10), group("r", preemptible=False), group("t", priority=100)]
    plan = solved(cluster(members, groups, [node("n1", 8)]))
    assert evicted(plan) == {"e-0"}
    rows = {row.group.name: (row.reason, "needs 4 GPUs; 2 free" in row.message) for row in plan.unscheduled}
    assert rows == {"e": ("NodeFragmented", True)}


@pytest.mark.parametrize("sizes", [(8,), (4, 4)])
@pytest.mark.parametrize(
    ("left_running", "token", "words"),
    [
        ((), "FitsAsItIs", "it fits in what this cycle leaves free, but got no place there"),
        # One node has 7 free GPUs, so x still does not fit.
        (("r-0",), "NoRoomInSum", "7 free in all"),
    ],
)
def test_capacity_freed_after_the_refusal_changes_the_reason(
    left_running: tuple[str, ...], token: str, words: str, sizes: tuple[int, ...]
) -> None:
    """Allocate refused x, a pod or a gang, beside r, and at the end of the cycle r is gone or still there."""
    running = [pod(name, "n1") for name in left_running]
    snapshot = cluster(
        [*running, *(pod(f"x-{i}", spec=spec(size)) for i, size in enumerate(sizes))],
        [*[group("r", preemptible=False) for _ in running], group("x", len(sizes))],
        [node("n1", 8)],
    )
    cycle = Cycle(snapshot, SETTINGS, Ledger.of(snapshot), math.inf)
    waiting = snapshot.pod_by_key[PodKey("ns", "x-0")]
    cycle.waiting[GroupKey("ns", "x")] = Refusal("NodeFragmented", pod=waiting)
    (refused,) = unscheduled(cycle)
    assert (refused.reason, refused.proved) == (token, False)
    assert words in refused.message


def test_a_proof_leaves_nothing_undecided() -> None:
    """No search was made for x, and none is needed: its two pods ask for more than there is."""
    snapshot = cluster([*pods("x", 2, spec=spec(5))], [group("x", 2)], [node("n1", 8)])
    cycle, key = Cycle(snapshot, SETTINGS, Ledger.of(snapshot), math.inf), GroupKey("ns", "x")
    cycle.waiting[key] = OUT_OF_TIME
    (undecided,) = unscheduled(cycle)
    assert (undecided.reason, undecided.proved) == ("NotDecidedInTime", False)
    (refused,) = unscheduled(cycle, {key: Proof("")})
    assert (refused.reason, refused.proved) == ("NoNodeAccepts", True)


@pytest.mark.parametrize(
    ("left", "token", "words"),
    [(3, "OverFairShare", "used 6, needs 4"), (2, "NodeFragmented", "4 free in all, at most 2 on one node")],
)
def test_shares_with_what_queues_hold_in_the_end(left: int, token: str, words: str) -> None:
    """x was refused when q held eight GPUs, its fair share. In the end r keeps ``left`` pods on each node;
    the pod of another queue is on a node without GPUs."""
    running = [pod(f"r-{i}", f"n{1 + i // 4}") for i in range(8)]
    nodes = [node("n1", 4), node("n2", 4), node("n3", 0)]
    groups = [group("r"), group("x"), group("v", queue="q2")]
    others = [pod("x-0", spec=spec(4)), pod("v-0", "n3", spec=spec(0))]
    snapshot = cluster([*running, *others], groups, nodes, [queue(), queue("q2")])
    cycle, key = Cycle(snapshot, SETTINGS, Ledger.of(snapshot), math.inf), GroupKey("ns", "x")
    for i, one in enumerate(running):
        if i % 4 >= left:
            cycle.ledger.evict(one)
    cycle.waiting[key] = Refusal("OverFairShare", "queue q: fair share 8 GPUs, used 8, needs 4")
    (refused,) = unscheduled(cycle)
    assert refused.reason == token
    assert words in refused.message


def test_a_place_that_went_to_a_higher_priority() -> None:
    """Of two GPUs one is free, and allocate gives it to late. h asks for both, so early is evicted and late
    loses its place, too.
    """
    snapshot = cluster(
        [pod("early-0", "n1"), pod("late-0"), pod("h-0", spec=spec(2))],
        [group("early", priority=10), group("late", priority=20), group("h", priority=30)],
        [node("n1", 2)],
        actions=("allocate", "preempt"),
    )
    result = solved(snapshot)
    assert (placed(result), evicted(result)) == ({"h-0"}, {"early-0"})
    (refused,) = result.unscheduled
    assert (refused.reason, refused.proved) == ("Withdrawn", True)
    assert refused.message == "its place of this cycle went to ns/h (preempt)"


@pytest.mark.parametrize(
    ("first", "on_n1", "words"),
    [
        ("t", "t-0", "queue q: limit 1 GPU, used 0.5, needs 1 on node n2"),
        ("m", "m-0", "no node has 2 CPUs, 1 GiB memory, 1 GPU, 1 pod slot free at once"),
    ],
)
def test_memory_that_a_small_gpu_would_charge_as_a_whole_one(
    caplog: pytest.LogCaptureFixture, first: str, on_n1: str, words: str
) -> None:
    """m asks for 20,000 MiB: half a GPU of n1, a whole one of n2. Queue q may hold one GPU, half of which x
    has. t fits n1 only. So the first of both gets n1; m has no place on n2, and does not move there.
    """
    priority = {name: {"priority": 200} if name == first else {} for name in "mt"}
    half = gpu_memory(20_000)
    plan = solved(
        cluster(
            [
                *(pod(f"{name}-0", "n3", spec=half, gpu_groups=["g"]) for name in "xy"),
                pod("m-0", spec=half),
                pod("t-0", spec=spec(1, cpus=2)),
            ],
            [
                *(group(name, queue="q") for name in "xm"),
                group("y", queue="r", preemptible=False),
                group("t", queue="r"),
            ],
            [node("n1", 1), node("n2", 1, cpus=1, gpu_memory_mib=20_000), node("n3", 1)],
            queues=[queue("q", limit=gpu_bound(1), **priority["m"]), queue("r", **priority["t"])],
            actions=("allocate", "consolidation"),
        )
    )
    assert (bound(plan), caplog.text) == ({on_n1: "n1"}, "")
    assert [row.message for row in plan.unscheduled] == [words]


@pytest.mark.parametrize(
    ("due", "words"),
    [
        (0, ["queue q: limit 2 GPUs, used 2, needs 1", "queue q: limit 2 GPUs, used 2, needs 2"]),
        (
            2,
            [
                "needs 1 GPU; 0 free in all",
                "needs 2 GPUs; 0 free in all",
            ],
        ),
    ],
)
def test_limits_are_told_for_what_queues_hold_in_the_end(due: int, words: list[str]) -> None:
    """Queue q may hold two GPUs. v and then a get one each, so b and c are beyond the limit. Where t may
    reclaim both GPUs of the node, q holds nothing in the end, and there is no limit in the way.
    """
    snapshot = cluster(
        [pod("v-0", "n1"), pod("c-0", spec=spec(2)), pod("a-0"), pod("b-0"), pod("t-0", spec=spec(2))],
        [*(group(name, queue="q", created=float(i)) for i, name in enumerate("vcab")), group("t", queue="r")],
        [node(gpus=2)],
        queues=[
            queue("q", limit=gpu_bound(2), quota=gpu_bound(0)),
            queue("r", quota=gpu_bound(due), limit=gpu_bound(due)),
        ],
        actions=("allocate", "reclaim"),
    )
    plan = solved(snapshot)
    told = {row.group.name: row.message for row in plan.unscheduled}
    assert [told["b"], told["c"]] == words


def test_share_that_a_free_gpu_would_take_lacks_something_else() -> None:
    """n1 has a GPU free, but one CPU of the four that half of it asks for; n2 has CPUs, but no GPU."""
    pods_ = [pod("a-0", "n1", spec=spec(0, cpus=7)), pod("b-0", spec=fraction(500, cpus=4))]
    nodes = [node("n1", 1, cpus=8), node("n2", 0, cpus=8)]
    plan = solved(cluster(pods_, nodes=nodes, actions=("allocate",)))
    words = "no node has 4 CPUs, 1 GiB memory, 1 pod slot, 0.5 of a GPU free at once"
    assert [row.message for row in plan.unscheduled] == [words]


def test_node_outside_a_topology_has_no_place_for_its_pods() -> None:
    """g prefers a rack. n1 has a GPU that is large enough, but no label of the topology: g does not fit as it
    is.
    """
    g = group("g", constraint=TopologyConstraint("dc", preferred="rack"))
    nodes = [node("n1", 1), node("n2", 1, labels={"rack": "p"}, gpu_memory_mib=20_000)]
    plan = solved(
        cluster(
            [pod("g-0", spec=gpu_memory(30_000))],
            [g],
            nodes,
            topologies=DC,
            actions=("allocate", "consolidation"),
        )
    )
    assert reasons(plan)["g"] != "FitsAsItIs"
    assert "1 node with enough free capacity outside its topology" in plan.unscheduled[0].message


ALL = "allocate, consolidation, reclaim, preempt"
WEIGHTLESS = tiny.queue("q", quota={"gpu": 1})
WEIGHTLESS["spec"]["resources"]["gpu"]["overQuotaWeight"] = 0
TWO_QUEUES = [tiny.queue("q", quota={"gpu": 1}), tiny.queue("q2", quota={"gpu": 1})]


@pytest.mark.parametrize(
    ("snapshot", "token", "words"),
    [
        (  # The only node that t accepts is full; one of another kind is idle, so a rule is in the way.
            tiny.world(
                [tiny.node(kind, gpus=1, labels={"kind": kind}) for kind in "ab"],
                [
                    tiny.pod("v", on="a", gpus=1, nodeSelector={"kind": "a"}),
                    tiny.pod("t", gpus=1, nodeSelector={"kind": "a"}),
                ],
                actions=ALL,
            ),
            "NodeFragmented",
            "1 of 2 nodes: node selector kind=a not met; needs 1 GPU; 0 free on the others",
        ),
        (  # A share asks for less than a GPU, but none is free.
            tiny.world(
                [tiny.node("a", gpus=1)],
                [tiny.pod("v", on="a", gpus=1), tiny.pod("t", notes={"gpu-fraction": "0.5"})],
                actions=ALL,
            ),
            "NoRoomInSum",
            "needs 0.5 of a GPU; no GPU that pods share has that much free, and none is idle",
        ),
        (  # Of the two devices, 0.6 is free in all, and 0.3 on each.
            tiny.world(
                [tiny.node("a", gpus=2)],
                [
                    *(
                        tiny.pod(name, on="a", notes={"gpu-fraction": "0.7"}, shares=[name])
                        for name in ("v", "w")
                    ),
                    tiny.pod("t", notes={"gpu-fraction": "0.5"}),
                ],
                actions="allocate",
            ),
            "NodeFragmented",
            "needs 0.5 of a GPU; no GPU that pods share has that much free, and none is idle",
        ),
        (  # One GPU is free, and the gang needs two.
            tiny.world(
                [tiny.node("a", gpus=2)],
                [
                    tiny.pod("v", on="a", gpus=1),
                    *(tiny.pod(name, gpus=1, group="t") for name in ("t1", "t2")),
                ],
                groups={"t": {"minMember": 2}},
            ),
            "NoRoomInSum",
            "needs 2 GPUs for 2 pods; 1 free in all",
        ),
        (  # What one of the two asks for is not what the group asks for.
            tiny.world(
                [tiny.node("a", gpus=1)],
                [
                    tiny.pod("v", on="a", gpus=1),
                    *(tiny.pod(name, gpus=1, group="t") for name in ("t1", "t2")),
                ],
                groups={"t": {"minMember": 2}},
            ),
            "NoNodeAccepts",
            "needs 2 GPUs for 2 pods; all nodes together have 1, 1 too few",
        ),
        (  # Two GPUs are free in all, enough for one of the pods but not for both, and one on each node.
            tiny.world(
                [tiny.node("a", gpus=2), tiny.node("b", gpus=2)],
                [
                    *(tiny.pod(f"v{on}", on=on, gpus=1) for on in "ab"),
                    *(tiny.pod(name, gpus=2, group="t") for name in ("t1", "t2")),
                ],
                groups={"t": {"minMember": 2}},
            ),
            "NoRoomInSum",
            "needs 4 GPUs for 2 pods; 2 free in all; "
            "a pod needs 2 GPUs; 2 free in all, at most 1 on one node",
        ),
        (  # q holds its fair share, and q2 the rest.
            tiny.world(
                [tiny.node("a", gpus=2)],
                [
                    tiny.pod("v", on="a", gpus=1),
                    tiny.pod("w", on="a", gpus=1, queue="q2"),
                    tiny.pod("t", gpus=1),
                ],
                queues=TWO_QUEUES,
                actions=ALL,
            ),
            "OverFairShare",
            "queue q: fair share 1 GPU, used 1, needs 1; needs 1 GPU; 0 free in all",
        ),
        (  # q holds its fair share, but t needs two GPUs in zone z, where one exists.
            tiny.world(
                [tiny.node("a", gpus=2), tiny.node("b", gpus=1, labels={"zone": "z"})],
                [
                    tiny.pod("v", on="a", gpus=2),
                    tiny.pod("w", on="b", gpus=1, queue="q2"),
                    *(tiny.pod(f"t{i}", gpus=1, group="t", nodeSelector={"zone": "z"}) for i in range(2)),
                ],
                groups={"t": {"minMember": 2}},
                queues=TWO_QUEUES,
                actions=ALL,
            ),
            "NoNodeAccepts",
            "1 of 2 nodes: node selector zone=z not met; "
            "needs 2 GPUs for 2 pods; the nodes that accept them together have 1, 1 too few",
        ),
        (  # q holds more than its fair share, but no other queue holds anything to reclaim.
            tiny.world(
                [tiny.node("a", gpus=2)],
                [tiny.pod("v", on="a", gpus=2), tiny.pod("t", gpus=1)],
                queues=[WEIGHTLESS],
                actions=ALL,
            ),
            "NoRoomInSum",
            "needs 1 GPU; 0 free in all",
        ),
        (  # q may reclaim one GPU; t asks for more than there are.
            tiny.world(
                [tiny.node("a", gpus=1), tiny.node("b", gpus=1)],
                [
                    *(tiny.pod(name, on=on, gpus=1, queue="q2") for name, on in (("v", "a"), ("w", "b"))),
                    *(tiny.pod(f"t{i}", gpus=1, group="t") for i in range(3)),
                ],
                groups={"t": {"minMember": 3}},
                queues=TWO_QUEUES,
                actions=ALL,
            ),
            "NoNodeAccepts",
            "needs 3 GPUs for 3 pods; all nodes together have 2, 1 too few",
        ),
        (  # Allocate refused t for want of capacity; then v reclaimed a GPU, and took all of the quota.
            tiny.world(
                [tiny.node("a", gpus=2)],
                [
                    *(tiny.pod(name, on="a", gpus=1, queue="q2") for name in ("x", "w")),
                    *(tiny.pod(name, gpus=1, priority="build") for name in ("v", "t")),
                ],
                queues=TWO_QUEUES,
                actions=ALL,
            ),
            "NonPreemptibleOverQuota",
            "queue q: quota 1 GPU, used by non-preemptible pods 1, needs 1",
        ),
        (  # No action places anything, and t would not start in any other either.
            tiny.world(
                [tiny.node("a", gpus=2)],
                [tiny.pod("t", gpus=1)],
                groups={"t": {"minMember": 2}},
                actions="stalegangeviction",
            ),
            "NotReady",
            "the gang is not complete: it has 1 of 2 pods",
        ),
        (  # t would fit, but no action places anything.
            tiny.world([tiny.node("a", gpus=2)], [tiny.pod("t", gpus=1)], actions="stalegangeviction"),
            "NoAction",
            "no action of this policy serves it",
        ),
        (  # Scheduling is restricted to workers, and no node is labelled as one.
            tiny.world(
                [tiny.node("a", gpus=2)], [tiny.pod("t", gpus=1)], params={"restrictSchedulingNodes": True}
            ),
            "NoNodeAccepts",
            "there is no node with the label "
            "node-role.kubernetes.io/gpu-worker or node-role.kubernetes.io/cpu-worker",
        ),
        (  # Reclaim is first refused for the fair share; the limit would refuse t after any change of shares.
            tiny.world(
                [tiny.node("a", gpus=2)],
                [
                    tiny.pod("v", on="a", gpus=1),
                    tiny.pod("w", on="a", gpus=1, queue="q2"),
                    tiny.pod("t", gpus=1),
                ],
                queues=[tiny.queue("q", quota={"gpu": 1}, limit={"gpu": 1}), TWO_QUEUES[1]],
                actions="reclaim",
            ),
            "OverLimit",
            "queue q: limit 1 GPU, used 1, needs 1",
        ),
    ],
)
def test_the_reason_is_what_decides_in_the_end(snapshot: Snapshot, token: str, words: str) -> None:
    plan = solved(snapshot)
    assert [(row.reason, row.message) for row in plan.unscheduled] == [(token, words)]


@pytest.mark.parametrize(
    ("quota_of_v", "firm", "token"),
    [
        # v holds eight GPUs, and may lose no more than two or three of them; or none, as it is owed all.
        (6, 0, "OverFairShare"),
        (8, 0, "OverFairShare"),
        # Of what v holds, five or more GPUs could not be evicted in any case.
        (6, 5, "NoRoomInSum"),
        (8, 8, "NoRoomInSum"),
    ],
)
def test_shares_that_let_too_little_go_in_sum_are_the_reason(quota_of_v: int, firm: int, token: str) -> None:
    """x asks for four GPUs and is owed them; v runs on all eight."""
    snapshot = cluster(
        [*(pod(f"r{i}-0", "n1") for i in range(8)), pod("x-0", spec=spec(4))],
        [*(group(f"r{i}", queue="v", preemptible=i >= firm) for i in range(8)), group("x")],
        queues=[queue("v", quota=gpu_bound(quota_of_v)), queue(quota=gpu_bound(4))],
    )
    (refused,) = solved(snapshot).unscheduled
    assert (refused.reason, refused.proved) == (token, True)
    assert ("other queues lose only" in refused.message) is (token == "OverFairShare")
    assert "needs 4 GPUs; 0 free in all" in refused.message


@pytest.mark.parametrize(("seconds_left", "token"), [(-1.0, "NotDecidedInTime"), (math.inf, "OverFairShare")])
def test_a_group_at_which_the_clock_ended_an_action_is_not_decided(seconds_left: float, token: str) -> None:
    """Allocate has found no capacity for t; whether reclaim may take some is decided if there is time."""
    snapshot = tiny.world(
        [tiny.node("a", gpus=2)],
        [tiny.pod("v", on="a", gpus=1), tiny.pod("w", on="a", gpus=1, queue="q2"), tiny.pod("t", gpus=1)],
        queues=TWO_QUEUES,
        actions=ALL,
    )
    cycle = Cycle(snapshot, SETTINGS, Ledger.of(snapshot), math.inf)
    allocate(cycle)
    cycle.budget.deadline = seconds_left
    evict(cycle, RECLAIM)
    assert [row.reason for row in unscheduled(cycle)] == [token]


@pytest.mark.parametrize(
    ("gpus", "more", "token"),
    [
        (8, {}, "NoNodeAccepts"),
        (4, {"nodeSelector": {"kind": "none"}}, "NoNodeAccepts"),
        (
            4,
            {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "none"}}]},
            "DependencyMissing",
        ),
        (4, {}, "NoRoomInSum"),
    ],
)
@pytest.mark.parametrize("delay", ["", "2h"])
def test_a_group_that_can_never_start_is_told_so_beside_one_that_asks_for_less(
    gpus: int, more: dict[str, Any], token: str, delay: str
) -> None:
    """The node is full, and a waits for that. b is passed over, because it asks for no less; and a delay
    keeps it from evicting others."""
    snapshot = tiny.world(
        [tiny.node("n0", gpus=4)],
        [
            tiny.pod("r", "n0", gpus=4),
            tiny.pod("a", gpus=4),
            tiny.pod("b", gpus=gpus, **more),
        ],
        groups={"b": {"preemptionDelay": delay, "markUnschedulable": True}} if delay else {},
        actions="allocate, preempt",
    )
    told = reasons(solved(snapshot))
    waits = token == "NoRoomInSum" and delay
    assert told == {"a": "NoRoomInSum", "b": "PreemptionDelayNotElapsed" if waits else token}


def test_a_defect_met_while_a_group_is_explained_costs_its_words_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> str:
        raise ZeroDivisionError("none of it")

    monkeypatch.setattr(waiting, "explain_pod", broken)
    snapshot = tiny.world([tiny.node("n0", gpus=1)], [tiny.pod("a", gpus=1), tiny.pod("b", gpus=1)])
    plan = solved(snapshot)
    assert (bound(plan), reasons(plan)) == ({"a": "n0"}, {"b": "InternalError"})
    assert "report this defect" in caplog.text


def row_of(snapshot: Snapshot) -> tuple[str, str]:
    """Reason and message of the only group that waits."""
    (row,) = solved(snapshot).unscheduled
    return row.reason, row.message


def test_a_pod_that_no_node_holds_is_not_said_to_wait_for_a_rack() -> None:
    """One of the two pods asks for more GPUs than a node has, so no rack is at fault."""
    members = [pod("g-0", spec=spec(9)), pod("g-1", spec=spec(1))]
    snapshot = cluster(members, [group("g", 2, constraint=IN_ONE_RACK)], NODES, topologies=DC)
    assert row_of(snapshot) == ("NoNodeAccepts", "4 of 4 nodes: asks for 9 GPUs, the largest node has 8")


def test_a_pod_that_no_zone_holds_lacks_no_object() -> None:
    snapshot = tiny.world(
        [tiny.node("n0")],
        [tiny.pod("x", **dra.aligned(6))],
        plugins=["numa"],
        nodeResourceTopologies=[dra.zones("n0", 4, 4)],
    )
    words = "no node could NUMA-align the pod's resources under its Topology Manager policy, even if empty"
    assert row_of(snapshot) == ("NoNodeAccepts", words)


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (("",), "1 pod without a subgroup"),
        (("", ""), "2 pods without a subgroup"),
        (("b", ""), "pods name subgroups that the pod group lacks: b; 1 pod without a subgroup"),
    ],
)
def test_pods_without_a_subgroup_are_not_said_to_name_one(names: tuple[str, ...], words: str) -> None:
    members = [pod(f"g-{i}", subgroup=name) for i, name in enumerate(names)]
    snapshot = cluster(members, [group("g", root=tree(1, leaf("a", 0)))], [node("n1", 8)])
    assert row_of(snapshot) == ("UnknownSubgroup", words)


@pytest.mark.parametrize(
    ("zone", "words"),
    [
        ("", "no node has 40 CPUs, 1 GiB memory, 2 GPUs, 1 pod slot at once, even if empty"),
        (
            "a",
            "1 of 2 nodes: node selector zone=a not met; "
            "needs 40 CPUs; the largest node that accepts it has 8",
        ),
    ],
)
def test_a_pod_that_no_empty_node_holds_is_told_what_that_lacks(zone: str, words: str) -> None:
    """n0 has two GPUs, which r holds; n1 has 64 CPUs. What is free says nothing of why x never starts."""
    snapshot = tiny.world(
        [tiny.node("n0", gpus=2, labels={"zone": "a"}), tiny.node("n1", {"cpu": "64"})],
        [
            tiny.pod("r", "n0", gpus=2),
            tiny.pod(
                "x",
                requests={"cpu": "40", "memory": "1Gi"},
                gpus=2,
                nodeSelector={"zone": zone} if zone else {},
            ),
        ],
    )
    assert row_of(snapshot) == ("NoNodeAccepts", words)


def test_a_share_that_lacks_cpus_too_is_told_of_both() -> None:
    """r holds the only GPU, and with it three of eight CPUs."""
    snapshot = tiny.world(
        [tiny.node("n0", gpus=1)],
        [
            tiny.pod("r", "n0", requests={"cpu": "3"}, gpus=1),
            tiny.pod("x", requests={"cpu": "6"}, notes={"gpu-fraction": "0.5"}),
        ],
    )
    _, message = row_of(snapshot)
    assert "needs 0.5 of a GPU" in message
    assert "needs 6 CPUs; 5 free in all" in message
