"""What limits and quotas count, as the checker judges it (3.7)."""

from __future__ import annotations

import pytest

from kai_cp_models.pods import PodStatus
from kai_cp_models.policy import ActionName
from tests.support.worlds import (
    bind,
    cluster,
    evict,
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


@pytest.mark.parametrize("bound", ["limit", "quota"])
@pytest.mark.parametrize(
    ("status", "bound_now", "waiting"),
    [
        (PodStatus.RUNNING, True, True),
        (PodStatus.STUCK_IN_RELEASING, True, True),
        # It is gone by the time at which what is nominated starts.
        (PodStatus.RELEASING, True, False),
        (PodStatus.SUCCEEDED, False, False),
    ],
)
def test_a_terminating_pod_counts_until_it_is_gone(
    bound: str, status: PodStatus, bound_now: bool, waiting: bool
) -> None:
    """The queue may hold 8 GPUs, r is on 8, and g asks for 8 on another node. None of them can be
    preempted."""
    snapshot = cluster(
        [pod("r-0", "n1", spec=spec(8), status=status), pod("g-0", spec=spec(8))],
        [group(name, preemptible=False, priority=125) for name in ("r", "g")],
        [node(), node("n2")],
        [queue("q", **{bound: gpu_bound(8)})],
    )
    for faults, expected in (
        (judged(snapshot, bind("g-0", "n2")), bound_now),
        (judged(snapshot, nominate("g-0", "n2")), waiting),
    ):
        assert named(faults, "queues", "16 of 8 GPUs", bound) is expected
        assert bool(faults) is expected


@pytest.mark.parametrize(("action", "fault"), [("allocate", True), ("preempt", False)])
def test_allocate_counts_what_later_actions_evict(action: ActionName, fault: bool) -> None:
    """The queue may hold 8 GPUs, and v holds them until preempt evicts it for t."""
    snapshot = cluster(
        [pod("v-0", "n1", spec=spec(8)), *(pod(f"{name}-0", spec=spec(4)) for name in "tx")],
        [group("v", priority=10), group("t", priority=90), group("x", priority=50)],
        [node(), node("n2")],
        [queue("q", limit=gpu_bound(8))],
    )
    places = nominate("t-0", "n1", "preempt"), nominate("x-0", "n2", action)
    first, last = places if action == "preempt" else places[::-1]
    evicted = evict("v-0", "preempt", "t")
    faults = judged(snapshot, *((evicted, first) if action == "preempt" else (first, evicted)), last)
    assert named(faults, "queues", "12 of 8 GPUs (limit) after allocate") is fault
    assert bool(faults) is fault
