"""Victims and what actions serve, as the checker judges them (4.1, 4.3)."""

from __future__ import annotations

import pytest

from kai_cp_models.policy import ActionName
from kai_cp_models.snapshot import PodGroup
from tests.support.worlds import (
    bind,
    cluster,
    evict,
    fraction,
    gpu_bound,
    group,
    judged,
    named,
    node,
    nominate,
    pod,
    queue,
    spec,
)


@pytest.mark.parametrize(("target", "fault"), [("n2", False), ("n1", True)])
def test_a_moved_pod_goes_elsewhere(target: str, fault: bool) -> None:
    """v runs on n1, what is on n2 terminates. v moved to n1 stops and starts for nothing."""
    snapshot = cluster(
        [pod("v-0", "n1", spec=spec(4)), pod("t-0", spec=spec(8))],
        [group("v"), group("t")],
        [node(), node("n2"), node("n3", gpus=4)],
    )
    other = "n1" if target == "n2" else "n2"
    faults = judged(
        snapshot,
        evict("v-0", "consolidation", "t"),
        nominate("v-0", target, "consolidation"),
        nominate("t-0", other, "consolidation"),
    )
    assert named(faults, "victims", "ns/v-0", "to where it runs") is fault
    assert bool(faults) is fault


@pytest.mark.parametrize(("device", "fault"), [("b", False), ("a", True)])
def test_a_share_moves_to_another_device_of_its_node(device: str, fault: bool) -> None:
    """v is moved out of the way of t, which needs all of device a, onto device b."""
    shares = [pod("v-0", "n1", spec=fraction(400), gpu_groups=["a"]), pod("t-0", spec=fraction(700))]
    snapshot = cluster(shares, [group("v"), group("t")], [node("n1", gpus=2)])
    faults = judged(
        snapshot,
        evict("v-0", "consolidation", "t"),
        nominate("v-0", "n1", "consolidation", gpu_groups=(device,)),
        nominate("t-0", "n1", "consolidation", gpu_groups=("c",)),
    )
    assert named(faults, "victims", "to where it runs") is fault


@pytest.mark.parametrize(
    ("depth", "actions", "served", "fault"),
    [
        ({}, ("allocate", "preempt"), 2, False),
        ({"allocate": 1}, ("allocate", "preempt"), 1, False),
        ({"allocate": 1}, ("allocate", "preempt"), 2, True),
        ({"preempt": 0}, ("allocate", "preempt"), 2, False),
        # What is left over at the end is offered to as many once more, by the last action.
        ({"allocate": 1}, ("preempt", "allocate"), 2, False),
        ({"allocate": 1}, ("allocate",), 2, False),
        ({"allocate": 1}, ("allocate",), 3, True),
        ({"allocate": 0}, ("allocate",), 1, True),
    ],
)
def test_allocate_serves_as_many_groups_as_the_queue_is_deep(
    depth: dict[str, int], actions: tuple[str, ...], served: int, fault: bool
) -> None:
    snapshot = cluster([pod(f"g{i}-0") for i in range(4)], queue_depth=depth, actions=actions)
    faults = judged(snapshot, *(bind(f"g{i}-0") for i in range(served)))
    assert named(faults, "victims", "depth") is fault
    assert bool(faults) is fault


@pytest.mark.parametrize(("depth", "fault"), [({"preempt": 1}, False), ({"preempt": 0}, True)])
def test_an_action_that_serves_none_evicts_none(depth: dict[str, int], fault: bool) -> None:
    snapshot = cluster(
        [pod("v-0", "n1", spec=spec(8)), pod("t-0", spec=spec(8))],
        [group("v", priority=10), group("t", priority=90)],
        queue_depth=depth,
    )
    faults = judged(snapshot, evict("v-0", "preempt", "t"), nominate("t-0", action="preempt"))
    assert named(faults, "victims", "depth of 0") is fault
    assert bool(faults) is fault


@pytest.mark.parametrize(("depth", "fault"), [({}, False), ({"preempt": 2}, False), ({"preempt": 1}, True)])
def test_an_action_evicts_for_as_many_groups_as_the_queue_is_deep(depth: dict[str, int], fault: bool) -> None:
    snapshot = cluster(
        [
            *(pod(f"{name}-0", "n1", spec=spec(4)) for name in "vw"),
            *(pod(f"{t}-0", spec=spec(4)) for t in "tu"),
        ],
        [group(name, priority=10) for name in "vw"] + [group(name, priority=90) for name in "tu"],
        queue_depth=depth,
    )
    faults = judged(
        snapshot,
        evict("v-0", "preempt", "t"),
        evict("w-0", "preempt", "u"),
        *(nominate(f"{name}-0", action="preempt") for name in "tu"),
    )
    assert named(faults, "victims", "preempt serves 2", "depth of 1") is fault
    assert bool(faults) is fault


@pytest.mark.parametrize(
    ("action", "other", "words"),
    [
        ("preempt", group("u", priority=90), ""),
        ("preempt", group("u", priority=10), "has priority 10"),
        ("preempt", group("u", priority=90, queue="r"), "is in queue r"),
        ("reclaim", group("u", priority=90), "is in the victim's queue q"),
        ("consolidation", group("u"), ""),
        ("consolidation", group("u", preemptible=False), "is not preemptible"),
    ],
)
def test_every_trigger_that_an_eviction_names_may_take_the_victim(
    action: ActionName, other: PodGroup, words: str
) -> None:
    trigger = group("t", priority=90, queue="r" if action == "reclaim" else "q")
    snapshot = cluster(
        [pod("v-0", "n1", spec=spec(8)), *(pod(f"{name}-0", spec=spec(4)) for name in "tu")],
        [group("v", priority=10), trigger, other],
        [node(), node("n2")],
        [queue("q", quota=gpu_bound(0)), queue("r", quota=gpu_bound(8))],
    )
    moves = [nominate("v-0", "n2", action)] if action == "consolidation" else []
    places = [nominate(f"{name}-0", "n1", action) for name in "tu"]
    faults = judged(snapshot, evict("v-0", action, "t", "u"), *moves, *places)
    assert named(faults, "victims", "ns/v-0", words) is bool(words)
    assert bool(faults) is bool(words)
