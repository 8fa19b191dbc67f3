"""The one token of a group that waits, where several would be true."""

from __future__ import annotations

import math

import pytest

from kai_cp_models.cycle import Cycle, Refusal
from kai_cp_models.explain.waiting import unscheduled
from kai_cp_models.ledger import Ledger
from kai_cp_models.snapshot import GroupKey, PodKey, Topology, TopologyConstraint
from tests.support.plans import SETTINGS, evicted, placed, reasons, solved
from tests.support.worlds import cluster, group, node, pod, pods, spec

DC = (Topology("dc", ("rack",)),)
IN_ONE_RACK = TopologyConstraint("dc", required="rack")
NODES = [node(f"n{i}", 8, labels={"rack": "pq"[i // 2]}) for i in range(4)]


@pytest.mark.parametrize(
    ("whole_nodes", "running_priority", "token"),
    [
        (3, 50, "TopologyFragmented"),  # 24 GPUs are free, 16 of them in one rack.
        (4, 50, "NoRoomInSum"),  # 32 are not free in any number of racks, and nothing may go.
        (4, 10, "TopologyFragmented"),  # What runs may go: only the rack is too small.
    ],
)
def test_a_rack_is_not_to_blame_where_the_cluster_is_full(
    whole_nodes: int, running_priority: int, token: str
) -> None:
    members = [*pods("g", whole_nodes, spec=spec(8)), pod("r-0", "n0", spec=spec(8))]
    gang = group("g", whole_nodes, constraint=IN_ONE_RACK)
    running = group("r", priority=running_priority)
    snapshot = cluster(members, [gang, running], NODES, topologies=DC, actions=("allocate", "preempt"))
    assert reasons(solved(snapshot)) == {"g": token}


@pytest.mark.parametrize(
    ("evicting", "token", "words"),
    [
        # Nothing places what fits in the 4 free GPUs: action allocate is off.
        ((), "FitsAsItIs", "action allocate, which would place it, is off"),
        # h takes all 8; of 4 + 5 it leaves 3; of 4 + 4 it leaves what u asks for.
        ((8,), "Withdrawn", "other pod groups got that free capacity in this cycle"),
        ((5,), "Withdrawn", "other pod groups got that free capacity in this cycle"),
    ],
)
def test_what_needs_no_eviction_waits_for_allocate_or_lost_its_room(
    evicting: tuple[int, ...], token: str, words: str
) -> None:
    """n1 has 8 GPUs, low holds 4 of them, u asks for 4 and outranks h; preempt is the only action."""
    wanting = [pod("h-0", spec=spec(gpus)) for gpus in evicting]
    snapshot = cluster(
        [pod("low-0", "n1", spec=spec(4)), pod("u-0", spec=spec(4)), *wanting],
        [group("low", priority=10), group("u", priority=60), *[group("h", priority=50) for _ in evicting]],
        [node("n1", 8)],
        actions=("preempt",),
    )
    result = solved(snapshot)
    assert evicted(result) == ({"low-0"} if evicting else set())
    (refused,) = result.unscheduled
    assert (refused.group.name, refused.reason) == ("u", token)
    assert words in refused.message


@pytest.mark.parametrize(
    ("left_running", "token", "words"),
    [
        ((), "FitsAsItIs", "it fits in what this cycle leaves free, but got no place there"),
        # 7 GPUs are free on one node, so x still has no room.
        (("r-0",), "NoRoomInSum", "needs 8 gpu; 7 free in all"),
    ],
)
def test_what_an_action_freed_after_the_refusal(
    left_running: tuple[str, ...], token: str, words: str
) -> None:
    """Allocate refused x beside r, and the cycle ends with r gone or still there."""
    running = [pod(name, "n1") for name in left_running]
    snapshot = cluster(
        [*running, pod("x-0", spec=spec(8))],
        [*[group("r", preemptible=False) for _ in running], group("x")],
        [node("n1", 8)],
    )
    cycle = Cycle(snapshot, SETTINGS, Ledger.of(snapshot), math.inf)
    waiting = snapshot.pod_by_key[PodKey("ns", "x-0")]
    cycle.waiting[GroupKey("ns", "x")] = Refusal("NodeFragmented", pod=waiting)
    (refused,) = unscheduled(cycle)
    assert (refused.reason, refused.proved) == (token, False)
    assert words in refused.message


def test_a_place_that_went_to_a_higher_priority() -> None:
    """Allocate gives late the free GPU of two; h asks for both: early goes, and late has no place either."""
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
