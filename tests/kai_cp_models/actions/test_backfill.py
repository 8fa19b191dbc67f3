"""Room that evictions leave over is promised in the same cycle, in the fair order."""

from __future__ import annotations

import pytest

from kai_cp_models.snapshot import Snapshot
from tests.support.plans import evicted, lost, nominated, reasons, solved
from tests.support.worlds import cluster, gpu_bound, group, node, pod, pods, queue, spec


def world(*, victims: bool = True, limit: int = 8, waiting: int = 1) -> Snapshot:
    """Queue v holds a whole node with one gang and is due half of it; t of queue q takes that half.

    Queue r holds its share already, so its waiting pods reclaim nothing; they stand before a running pod
    of their queue, if there are ``victims``, and four GPUs are left over.
    """
    members = [*pods("v", 8, "n1"), pod("t-0", spec=spec(4)), pod("low-0", "n2")]
    members += [pod(f"u{i}-0") for i in range(waiting)]
    groups = [group("v", 8, queue="v"), group("t", queue="q")]
    groups += [group("low", queue="r", priority=10 if victims else 60)]
    groups += [group(f"u{i}", queue="r", priority=60, created=float(i)) for i in range(waiting)]
    queues = [
        queue("q", quota=gpu_bound(4)),
        queue("r", quota=gpu_bound(1), limit=gpu_bound(limit)),
        queue("v", quota=gpu_bound(4)),
    ]
    nodes = [node("n1"), node("n2", gpus=1)]
    return cluster(members, groups, nodes, queues, actions=("allocate", "reclaim", "preempt"))


def test_it_is_promised_without_a_further_eviction() -> None:
    plan = solved(world())
    assert lost(plan) == {f"v-{i}" for i in range(8)} == evicted(plan)
    assert nominated(plan) == {"t-0": "n1", "u0-0": "n1"}


@pytest.mark.parametrize(
    ("snapshot", "served", "low_goes"),
    [
        pytest.param(world(victims=False), 1, False, id="even where nobody may be disturbed for it"),
        pytest.param(world(limit=2), 1, False, id="within the queue's limit"),
        pytest.param(world(limit=1), 1, True, id="at the limit one gives way"),
        pytest.param(world(limit=3, waiting=4), 3, True, id="the fourth has to wait"),
        pytest.param(world(waiting=5), 5, True, id="four fit as they are, the fifth preempts"),
    ],
)
def test_who_gets_it(snapshot: Snapshot, served: int, low_goes: bool) -> None:
    plan = solved(snapshot)
    assert sum(name.startswith("u") for name in nominated(plan)) == served
    assert ("low-0" in lost(plan)) is low_goes
    # In the fair order: those that wait are the youngest.
    waiting = len([p for p in snapshot.pods if p.key.name.startswith("u")])
    assert sorted(name for name in reasons(plan) if name.startswith("u")) == [
        f"u{i}" for i in range(served, waiting)
    ]


def test_room_that_nobody_was_evicted_for_is_left_to_allocate() -> None:
    """Without an allocate action a pod that fits as it is waits: nothing else serves it."""
    snapshot = cluster(
        [pod("low-0", "n1"), pod("u-0")],
        [group("low", priority=10), group("u", priority=60)],
        [node("n1")],
        actions=("preempt",),
    )
    plan = solved(snapshot)
    assert not plan.decisions
    assert reasons(plan) == {"u": "FitsAsItIs"}
