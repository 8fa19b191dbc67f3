"""Minimum runtimes, and the delay before a group may disturb others."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import pytest

from kai_cp_models.fairness.runtime import (
    delayed,
    granted,
    preempt_min_runtime,
    protected,
    reclaim_min_runtime,
)
from kai_cp_models.pods import Pod
from kai_cp_models.policy import ActionName
from kai_cp_models.records.notes import Failures, GroupNotes
from kai_cp_models.snapshot import PodGroup, Queue, Snapshot
from tests.kai_cp_models.fairness.builders import NOW, cluster, group, node, queue
from tests.support.worlds import pod

Method = Literal["lca", "queue"]


def tree(method: Method = "lca", **runtimes: float) -> Snapshot:
    """company > (d0 > (a, b), d1 > c); other > x. Times of reclaim and preempt by queue name."""

    def one(name: str, parent: str | None = None) -> Queue:
        granted = runtimes.get(name)
        return queue(name, parent, reclaim_min_runtime_seconds=granted, preempt_min_runtime_seconds=granted)

    queues = [one("company"), one("d0", "company"), one("d1", "company"), one("a", "d0"), one("b", "d0")]
    queues += [one("c", "d1"), one("other"), one("x", "other")]
    return cluster(
        [node()],
        queues,
        reclaim_resolve_method=method,
        default_reclaim_min_runtime_seconds=7,
        default_preempt_min_runtime_seconds=9,
    )


def shielded(snapshot: Snapshot, one: PodGroup, action: ActionName, trigger_queue: str) -> bool:
    snapshot = replace(snapshot, groups=(one,))
    return protected(snapshot, one, granted(snapshot, one.queue, action, trigger_queue))


def test_preempt_time_is_the_nearest_above_the_victim() -> None:
    assert preempt_min_runtime(tree(), "c") == 9
    assert preempt_min_runtime(tree(company=50), "c") == 50
    assert preempt_min_runtime(tree(company=50, d1=40), "c") == 40
    assert preempt_min_runtime(tree(company=50, d1=40, c=0), "c") == 0


@pytest.mark.parametrize(
    ("trigger", "runtimes", "seconds"),
    [
        # The common ancestor is company. Its child on the path of c is d1, so the value of c itself does not
        # count.
        ("a", {"c": 30, "d1": 40, "company": 50}, 40),
        ("a", {"c": 30, "company": 50}, 50),
        ("a", {"c": 30}, 7),
        # No common ancestor: only the victim's top-level queue counts.
        ("x", {"c": 30, "d1": 40, "company": 50}, 50),
        ("x", {"c": 30, "d1": 40}, 7),
    ],
)
def test_reclaim_time_by_lowest_common_ancestor(
    trigger: str, runtimes: dict[str, float], seconds: float
) -> None:
    assert reclaim_min_runtime(tree("lca", **runtimes), "c", trigger) == seconds


def test_reclaim_time_between_siblings_is_the_victims_own() -> None:
    assert reclaim_min_runtime(tree(a=1, b=2, d0=3), "b", "a") == 2
    assert reclaim_min_runtime(tree(a=1, d0=3), "b", "a") == 3


def test_reclaim_time_by_queue_is_the_nearest_above_the_victim() -> None:
    assert reclaim_min_runtime(tree("queue", c=30, d1=40), "c", "x") == 30
    assert reclaim_min_runtime(tree("queue", d1=40), "c", "x") == 40


def test_protected_until_the_time_is_over() -> None:
    snapshot = tree(c=60)
    young, old = group("young", "c", last_start=NOW - 59), group("old", "c", last_start=NOW - 60)
    assert shielded(snapshot, young, "preempt", "c")
    assert not shielded(snapshot, old, "preempt", "c")
    # Reclaim from a: company sets nothing, and the default of 7 is over.
    assert not shielded(snapshot, young, "reclaim", "a")
    assert not shielded(snapshot, young, "consolidation", "a")
    assert not shielded(snapshot, group("unknown", "c"), "preempt", "c")
    assert not shielded(tree(c=-60), young, "preempt", "c")


def test_without_the_plugin_nothing_is_protected() -> None:
    snapshot = cluster([node()], [queue("a", preempt_min_runtime_seconds=1e6)], plugins=frozenset())
    assert not shielded(snapshot, group("job", "a", last_start=NOW), "preempt", "a")


def test_preemption_delay_counts_from_creation_or_the_last_eviction() -> None:
    snapshot = cluster([node()], [queue("a")])
    late = {"created": NOW - 10, "preemption_delay_seconds": 30.0}
    assert delayed(snapshot, group("new", "a", **late)) == 20
    assert delayed(snapshot, group("evicted", "a", last_eviction=NOW - 4, **late)) == 26
    assert delayed(snapshot, group("evicted-before", "a", last_eviction=NOW - 40, **late)) == 20
    assert delayed(snapshot, group("due", "a", created=NOW - 30, preemption_delay_seconds=30.0)) is None
    assert delayed(snapshot, group("plain", "a", created=NOW)) is None


@pytest.mark.parametrize(
    ("times", "ago", "left"),
    [
        (1, 0, None),  # an accident
        (2, 0, 8),
        (3, 0, 16),
        (3, 15.5, 0.5),
        (3, 16, None),  # it has been quiet for long enough
        (9, 0, 1024),
        (14, 0, 21_600),
        (10**9, 0, 21_600),
    ],
)
def test_a_group_that_fails_to_be_bound_evicts_less_and_less_often(
    times: int, ago: float, left: float | None
) -> None:
    noted = GroupNotes(failures=Failures("job-0", times, NOW - ago))
    failing = replace(group("job", "a"), notes=noted)

    def wait(*pods: Pod) -> float | None:
        return delayed(cluster([node("n")], [queue("a")], [failing], pods), failing)

    assert wait(pod("job-0"), pod("job-1", "n")) == left
    assert wait(pod("job-0", "n"), pod("job-1")) is None, "its bind succeeded"
    assert wait(pod("job-1")) is None, "the pod is another one"
