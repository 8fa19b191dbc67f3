"""The simulation of an eviction plan: what the fair order makes of an answer of the joint model."""

from __future__ import annotations

from tests.support.plans import lost, nominated, solved
from tests.support.worlds import cluster, gpu_bound, group, node, pod, queue, spec


def test_pod_that_moves_does_not_come_home_to_the_place_of_the_trigger() -> None:
    """t needs both GPUs of n1: l is lost, and m moves to n2. Once both have left, the fair order puts m
    before t, and m would come home. It has a place elsewhere, so t gets its own: only l must come after t.
    """
    queues = [queue("a", quota=gpu_bound(1), priority=200), queue("b", quota=gpu_bound(2))]
    groups = [group("m", queue="a", priority=60), group("l", queue="a"), group("t", queue="b")]
    pods = [pod("m-0", "n1"), pod("l-0", "n1"), pod("t-0", spec=spec(2))]
    plan = solved(cluster(pods, groups, [node("n1", gpus=2), node("n2", gpus=1)], queues))
    assert (lost(plan), nominated(plan)) == ({"l-0"}, {"m-0": "n2", "t-0": "n1"})


def test_gang_below_its_minimum_does_not_return_before_the_trigger() -> None:
    """g runs below its minimum, and its other pod waits, so it asks for nothing that could be served: in
    the fair order it has no turn before that of t.
    """
    queues = [queue(name, quota=gpu_bound(2)) for name in "ab"]
    g, t = group("g", 2, queue="a", priority=100), group("t", queue="b")
    pods = [pod("g-0", "n1", spec=spec(4)), pod("g-1"), pod("t-0", spec=spec(2))]
    plan = solved(cluster(pods, [g, t], [node(gpus=4)], queues))
    assert (lost(plan), set(nominated(plan))) == ({"g-0"}, {"t-0"})
