"""Which refusals hold for which asks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kai_cp_models.joint import admission
from kai_cp_models.ledger import Ledger
from kai_cp_models.limits import LIMITS
from kai_cp_models.pods import Pod
from kai_cp_models.refusal import Refusal
from tests.kai_cp_models.joint.build import asks_of
from tests.support.plans import bound, reasons, solved
from tests.support.worlds import cluster, gpu_bound, gpu_memory, group, node, pod, queue, spec


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


def test_a_quota_of_what_is_not_preemptible_refuses_no_preemptible_share_by_memory() -> None:
    """As above within one queue: its quota of 0.3 GPUs binds the first pod, which is not preemptible."""
    nodes = [node("n1", 2), node("n2", 1, gpu_memory_mib=80_000)]
    queues = [queue("a", quota=gpu_bound(0.3)), queue("f")]
    groups = [
        group("a", queue="a", priority=100, preemptible=False),
        group("b", queue="a"),
        group("f", queue="f"),
    ]
    some = [pod("a-0", spec=gpu_memory(20_000)), pod("b-0", spec=gpu_memory(20_000)), pod("f-0", "n2")]
    plan = solved(cluster(some, groups, nodes, queues))
    assert bound(plan) == {"b-0": "n1"}
    assert reasons(plan) == {"a": "NonPreemptibleOverQuota"}


def test_a_refused_kind_is_compared_once_with_each_of_the_first_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each kind asks for less of one thing and more of another, so none refuses another one."""
    monkeypatch.setattr(admission, "LIMITS", replace(LIMITS, compared_refusals=3))
    pairs, fits = list[str](), admission.fits_in_place_of

    def compared(ledger: Ledger, easier: Pod, harder: Pod) -> bool:
        pairs.append(easier.key.name[0])
        return fits(ledger, easier, harder)

    monkeypatch.setattr(admission, "fits_in_place_of", compared)
    some = [pod(f"{name}-0", spec=spec(9 - i, cpus=i + 1)) for i, name in enumerate("abcdx")]
    ledger = Ledger.of(cluster(some, [group(name) for name in "abcdx"], [node("n", 1)]))
    *asks, x = asks_of(ledger, *"abcdx")
    cache = admission.RefusalCache(ledger, None)
    for ask in asks:
        cache.add(ask, Refusal("NodeFragmented", "too large"))
        assert cache.find(x) is None
    assert pairs == ["a", "b", "c"]
