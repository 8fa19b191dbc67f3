"""What other packages ask of a snapshot: the fair order, the greedy plan, idle GPUs."""

from __future__ import annotations

from kai_cp_models.pods import Pod
from kai_cp_models.queries.cluster import greedy_plan, idle_gpus
from kai_cp_models.queries.shares import fair_line
from kai_cp_models.settings import Settings
from kai_cp_models.snapshot import PodGroup, Snapshot
from tests.support.worlds import cluster, gpu_bound, group, node, pod, queue


def two_queues(*more: Pod | PodGroup) -> Snapshot:
    """Two equal queues on one node of 4 GPUs, of which one is used; a1 and a2 wait in a, b1 in b."""
    return cluster(
        nodes=(node(gpus=4),),
        queues=(queue("a", quota=gpu_bound(2)), queue("b", quota=gpu_bound(2))),
        groups=(
            group("a1", queue="a", created=1.0),
            group("a2", queue="a", created=2.0),
            group("b1", queue="b", created=3.0),
            group("r", queue="b"),
            *(one for one in more if isinstance(one, PodGroup)),
        ),
        pods=(
            pod("a1-0"),
            pod("a2-0"),
            pod("b1-0"),
            pod("r-0", "n1"),
            *(one for one in more if isinstance(one, Pod)),
        ),
    )


def test_the_line_follows_the_fair_order() -> None:
    # b holds a GPU and a none; inside a the older group comes first.
    assert [key.name for key in fair_line(two_queues(), Settings())] == ["a1", "a2", "b1"]


def test_served_groups_count_for_the_next_turn() -> None:
    # Once both groups of a are served, a holds 2 GPUs and b one; a third group of a comes after b1.
    snapshot = two_queues(pod("a3-0"), group("a3", queue="a", created=2.5))
    keys = {group.key.name: group.key for group in snapshot.groups}
    line = [key.name for key in fair_line(snapshot, Settings())]
    assert line == ["a1", "a2", "a3", "b1"]
    served = frozenset({keys["a1"], keys["a2"]})
    assert [key.name for key in fair_line(snapshot, Settings(), served)] == ["a1", "a2", "b1", "a3"]


def test_the_greedy_plan_binds_what_fits() -> None:
    plan = greedy_plan(two_queues(), Settings())
    assert {(d.kind, d.pod.name) for d in plan.decisions} == {
        ("Bind", name) for name in ("a1-0", "a2-0", "b1-0")
    }


def test_idle_gpus_are_whole_and_free_now() -> None:
    assert idle_gpus(two_queues()) == [3]
