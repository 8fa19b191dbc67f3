"""Which refusals hold for which asks."""

from __future__ import annotations

from tests.support.plans import bound, reasons, solved
from tests.support.worlds import cluster, gpu_bound, gpu_memory, group, node, pod, queue


def test_the_limit_of_a_queue_refuses_no_share_by_memory_of_another_queue() -> None:
    """20,000 MiB are half of a GPU that is idle, and a quarter of the one in use. The limit of queue a allows
    0.3 GPUs, so its pod, which comes first, waits. Queue b has no limit: its equal pod gets an idle GPU.
    """
    nodes = [node("n1", 2), node("n2", 1, gpu_memory_mib=80_000)]
    queues = [queue("a", limit=gpu_bound(0.3), priority=200), queue("b")]
    groups = [group("a", queue="a"), group("b", queue="b"), group("f", queue="b", preemptible=False)]
    some = [pod("a-0", spec=gpu_memory(20_000)), pod("b-0", spec=gpu_memory(20_000)), pod("f-0", "n2")]
    plan = solved(cluster(some, groups, nodes, queues))
    assert bound(plan) == {"b-0": "n1"}
    assert reasons(plan).keys() == {"a"}
