"""Which plans evict for a group that may not take the victim, as the checker judges it (4.7)."""

from __future__ import annotations

from typing import Any

import pytest

from kai_cp_models.plan import Decision
from kai_cp_models.pods import PodStatus
from kai_cp_models.policy import ActionName
from kai_cp_models.snapshot import Shares
from tests.support.worlds import (
    bind,
    cluster,
    evict,
    group,
    judged,
    named,
    node,
    nominate,
    pod,
    queue,
    spec,
)


def _judged(*decisions: Decision, later: dict[str, Any], **more: Any) -> list[str]:
    """v (10) is on n1; n2 empties by itself; t (90) and u, which is as ``later`` says, wait for 8 GPUs."""
    running = [pod("v-0", "n1", spec=spec(8)), pod("r-0", "n2", spec=spec(8), status=PodStatus.RELEASING)]
    waiting = [pod("t-0", spec=spec(8)), pod("u-0", spec=spec(8), **more)]
    groups = [group("v", priority=10), group("t", priority=90), group("u", **{"priority": 10, **later})]
    nodes, queues = [node(), node("n2")], [queue(), queue("other")]
    return judged(cluster([*running, *waiting], groups, nodes, queues), *decisions)


_FOR_T = (evict("v-0", "preempt", "t"), nominate("t-0", "n2", "preempt"))


@pytest.mark.parametrize(
    ("later", "fault"),
    [
        # t has n2, and v stops for u alone, which does not come before v.
        ({"priority": 10}, True),
        ({"priority": 5}, True),
        # u may take v: t takes n2 beside it.
        ({"priority": 20}, False),
        # In another queue u may have come first: then t took v's place, and both changed places.
        ({"queue": "other"}, False),
        # Its age brings u before t, though it gives no right: u got n2 first.
        ({"aged": 81}, False),
    ],
)
@pytest.mark.parametrize("action", ["preempt", "consolidation"])
def test_no_pod_stops_only_for_a_group_without_a_right(
    later: dict[str, Any], fault: bool, action: ActionName
) -> None:
    place = nominate("u-0", "n1", action)
    in_turn = (*_FOR_T, place) if action == "preempt" else (place, *_FOR_T)
    faults = _judged(*in_turn, later=later)
    assert named(faults, "rights", "ns/v-0", "ns/u") is fault
    assert bool(faults) is fault


def test_a_trigger_without_a_right_is_none() -> None:
    faults = _judged(
        evict("v-0", "preempt", "t", "u"),
        nominate("t-0", "n2", "preempt"),
        nominate("u-0", "n1", "preempt"),
        later={},
    )
    assert named(faults, "rights", "ns/v-0", "ns/u")


def test_a_promised_place_comes_first() -> None:
    """u was nominated before: it comes before t, so t may have taken v's place, and changed places with u."""
    assert _judged(*_FOR_T, nominate("u-0", "n1", "preempt"), later={}, nominated_node="n2") == []


@pytest.mark.parametrize(("left", "fault"), [(4, False), (8, True)])
def test_groups_without_a_right_get_what_is_left_over(left: int, fault: bool) -> None:
    """t takes 4 of v's GPUs and u what is left; where t lies elsewhere, v could run on."""
    snapshot = cluster(
        [pod("v-0", "n1", spec=spec(8)), pod("t-0", spec=spec(4)), pod("u-0", spec=spec(left))],
        [group("v", priority=10), group("t", priority=90), group("u", priority=10)],
        [node(), node("n2", gpus=4)],
    )
    target = "n2" if fault else "n1"
    places = nominate("t-0", target, "preempt"), nominate("u-0", "n1", "preempt")
    faults = judged(snapshot, evict("v-0", "preempt", "t"), *places)
    assert named(faults, "rights", "ns/v-0", "ns/u") is fault
    assert bool(faults) is fault


def test_a_gang_that_cannot_run_in_part_is_no_waste() -> None:
    """t takes the place of v-1; v-0 cannot run alone, so what it leaves is for u."""
    snapshot = cluster(
        [
            pod("v-0", "n1", spec=spec(8)),
            pod("v-1", "n2", spec=spec(8)),
            pod("t-0", spec=spec(8, node_selector=(("zone", "b"),))),
            pod("u-0", spec=spec(8)),
        ],
        [group("v", 2, priority=10), group("t", priority=90), group("u", priority=10)],
        [node(), node("n2", labels={"zone": "b"})],
    )
    evictions = evict("v-0", "preempt", "t"), evict("v-1", "preempt", "t", node="n2")
    places = nominate("t-0", "n2", "preempt"), nominate("u-0", "n1", "preempt")
    assert judged(snapshot, *evictions, *places) == []


@pytest.mark.parametrize("actions", [("preempt", "stalegangeviction"), ("stalegangeviction", "preempt")])
def test_pods_that_a_later_action_evicts_were_there(actions: tuple[ActionName, ...]) -> None:
    """t takes the place of v-1, and u that of v-0. If s, which runs below its minimum, has left before, t and
    v-1 fit on n2 together.
    """
    only = {"node_selector": (("zone", "b"),)}
    snapshot = cluster(
        [
            pod("v-0", "n1", spec=spec(4)),
            pod("v-1", "n2", spec=spec(4)),
            pod("s-0", "n2", spec=spec(4)),
            pod("t-0", spec=spec(4, **only)),
            pod("u-0", spec=spec(4)),
        ],
        [
            group("v", 2, priority=10),
            group("t", priority=90),
            group("u", priority=10),
            group("s", 2, stale_since=0.0),
        ],
        [node(gpus=4), node("n2", labels={"zone": "b"})],
        actions=actions,
    )
    ended = evict("s-0", "stalegangeviction", node="n2")
    taken = evict("v-0", "preempt", "t"), evict("v-1", "preempt", "t", node="n2")
    places = nominate("t-0", "n2", "preempt"), nominate("u-0", "n1", "preempt")
    later = actions[0] == "preempt"
    faults = judged(snapshot, *((*taken, *places, ended) if later else (ended, *taken, *places)))
    assert named(faults, "rights", "ns/u") is not later
    assert bool(faults) is not later


@pytest.mark.parametrize(
    ("served", "moves", "fault"),
    [
        # u's GPU was idle before anything left: r moves for t, and u keeps its place.
        ("allocate", True, False),
        # Preempt has no right to move r for u.
        ("preempt", True, True),
        # t may take back what u was given; r stops only because u keeps that.
        ("allocate", False, True),
    ],
)
def test_nothing_moves_for_a_place_that_was_idle(served: ActionName, moves: bool, fault: bool) -> None:
    """t gets n1 but for one GPU: r leaves, which would run on if u were not served."""
    snapshot = cluster(
        [pod("r-0", "n1", spec=spec(1)), pod("t-0", spec=spec(3)), pod("u-0", spec=spec(1))],
        [group("r", priority=50), group("t", priority=90), group("u", priority=10)],
        [node(gpus=4), node("n2", gpus=1)],
        actions=("allocate", "preempt"),
    )
    away = evict("r-0", "preempt", "t"), nominate("t-0", action="preempt")
    home = (nominate("r-0", "n2", "preempt"),) if moves else ()
    place = bind("u-0", "n1", served)
    decisions = (place, *away, *home) if served == "allocate" else (*away, *home, place)
    faults = judged(snapshot, *decisions)
    assert named(faults, "rights", "ns/r-0", "ns/u") is fault
    assert bool(faults) is fault


@pytest.mark.parametrize("reclaimed", [True, False])
def test_preempt_takes_back_no_place_on_which_reclaim_counted(reclaimed: bool) -> None:
    """Allocate gives u the half of n2 that empties by itself, so v leaves the other half for t. Preempt could
    take the place back from u instead, but not once reclaim has evicted x for y."""
    half = spec(4)
    running = [
        pod("v-0", "n2", spec=half),
        pod("r-0", "n2", spec=half, status=PodStatus.RELEASING),
        pod("x-0", "n1", spec=spec(8)),
    ]
    waiting = [pod("t-0", spec=half), pod("u-0", spec=half), pod("y-0", spec=spec(8))]
    groups = [
        *(group(name, priority=priority) for name, priority in (("v", 10), ("t", 90), ("u", 5))),
        group("x", queue="rich"),
        group("y", queue="poor"),
    ]
    queues = [queue(), queue("rich", quota=Shares(-1, -1, 0)), queue("poor", quota=Shares(-1, -1, 8))]
    reclaim = (evict("x-0", "reclaim", "y"), nominate("y-0", "n1", "reclaim"))
    faults = judged(
        cluster([*running, *waiting], groups, [node(), node("n2")], queues),
        nominate("u-0", "n2"),
        *(reclaim if reclaimed else ()),
        evict("v-0", "preempt", "t", node="n2"),
        nominate("t-0", "n2", "preempt"),
    )
    assert named(faults, "rights", "ns/v-0", "ns/u") is not reclaimed
    assert bool(faults) is not reclaimed
