"""The queue book and the quota checks that read it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_cp_models.extras import CLAIM_MILLI_GPUS, extra
from kai_cp_models.fairness.book import QueueBook, allocatable_share
from kai_cp_models.fairness.quota_checks import over_bounds, over_limit
from kai_cp_models.fairness.totals import QueueTotals
from kai_cp_models.pods import UNLIMITED, PodStatus
from kai_cp_models.snapshot import Shares, Snapshot
from tests.kai_cp_models.fairness.builders import GIB, cluster, group, node, pods, queue, request, running


def tree(**fields: object) -> Snapshot:
    """Department d0 (limit 6) with teams a (quota 2, limit 4) and b; department d1 with team c."""
    queues = [
        queue("d0", quota=4, limit=6),
        queue("d1", quota=4),
        queue("a", "d0", quota=2, limit=4),
        queue("b", "d0", quota=UNLIMITED),
        queue("c", "d1"),
    ]
    jobs = [group("ja", "a", preemptible=False), group("jb", "b"), group("jc", "c")]
    return cluster([node()], queues, jobs, running(jobs[0], 1), running(jobs[1], 2), running(jobs[2], 3))


def test_a_queue_holds_the_sum_of_the_queues_below_it() -> None:
    book = QueueBook.of(tree())
    held = {name: book.allocated_of(name)[2] for name in ("a", "b", "c", "d0", "d1")}
    assert held == {"a": 1000, "b": 2000, "c": 3000, "d0": 3000, "d1": 3000}
    assert [firm[2] for firm in book.firm] == [1000, 0, 0, 1000, 0]


def test_pipelined_and_leaving_pods_are_not_held_at_the_start() -> None:
    job = group("job", "a")
    members = [
        pods(job, 1, request(1), status)
        for status in PodStatus
        if status not in (PodStatus.ALLOCATED, PodStatus.PIPELINED)
    ]
    # Binding, Bound and Running.
    book = QueueBook.of(cluster([node()], [queue("a")], [job], *members))
    assert book.allocated_of("a")[2] == 3000


def test_equal_pods_count_by_node_and_by_claim() -> None:
    job = group("job", "a")
    share = request(mib=1_000)
    placed = [
        *pods(job, 2, share, PodStatus.RUNNING, "small", prefix="on-small"),
        *pods(job, 3, share, PodStatus.RUNNING, "large", prefix="on-large"),
    ]
    waiting = list(pods(job, 2, share))
    nodes = [node("small", gpu_memory_mib=10_000), node("large", gpu_memory_mib=40_000)]
    claims = {placed[0].key: 2000, waiting[1].key: 4000}
    snapshot = cluster(nodes, [queue("a")], [job], placed, waiting, extras=extra(CLAIM_MILLI_GPUS, claims))
    totals = QueueTotals.of(snapshot)
    # 2 x 10 % + 3 x 3 % (2.5 rounded up) + 2 claimed; asked for: 2 x 10 % (smallest GPU) + 4 claimed more.
    assert totals.allocated[0, 2] == 200 + 90 + 2000
    assert totals.requested[0, 2] == 2290 + 200 + 4000


def test_charge_reaches_the_ancestors_and_can_be_taken_back() -> None:
    book = QueueBook.of(tree())
    other = book.copy()
    other.charge("a", (5, 7, 1000), preemptible=True)
    other.charge("c", (0, 0, 500), preemptible=False)
    assert other.allocated_of("a") == (5, 7, 2000)
    assert other.allocated_of("d0") == (5, 7, 4000)
    assert other.allocated_of("b") == book.allocated_of("b")
    assert [firm[2] for firm in other.firm] == [1000, 0, 500, 1000, 500]
    other.charge("a", (5, 7, 1000), preemptible=True, sign=-1)
    other.charge("c", (0, 0, 500), preemptible=False, sign=-1)
    assert other.held == book.held
    assert other.firm == book.firm
    assert other.limit is book.limit


def test_bounds_in_whole_units() -> None:
    queues = [
        # 0.29 x 1000 is 289.99… in floats; a third of a device is cut; an odd negative stays below zero.
        queue("a", quota=0.29, limit=1 / 3),
        queue("b", quotas=Shares(500, 1e6, UNLIMITED), limit=-0.001),
    ]
    book = QueueBook.of(cluster([node()], queues))
    assert book.quota == [(-1, -1, 290), (500, 1_000_000, -1)]
    assert [limit[2] for limit in book.limit] == [333, -2]
    assert book.cluster == (64_000, 256 * GIB, 8000)


@pytest.mark.parametrize(
    ("quota", "limit", "fair", "share"),
    [
        (2, UNLIMITED, 5, 5),
        (5, UNLIMITED, 2, 5),
        (5, 3, 2, 3),
        (UNLIMITED, 7, 2, 7),
        (UNLIMITED, UNLIMITED, 2, UNLIMITED),
        (3, 0, 0, 0),
    ],
)
def test_allocatable_share(quota: float, limit: float, fair: float, share: float) -> None:
    found = allocatable_share(Shares(0, 0, quota), Shares(0, 0, limit), Shares(0, 0, fair))
    assert found.gpu == share


def test_limit_of_the_queue_itself_and_of_its_ancestors() -> None:
    book = QueueBook.of(tree())
    assert over_limit(book, "a", (0, 0, 3000)) is None
    refusal = over_limit(book, "a", (0, 0, 4000))
    assert refusal is not None
    assert refusal.message == "queue a: limit 4 GPUs, used 1, needs 4"
    # b has no limit, d0 holds 3 of 6.
    assert over_limit(book, "b", (0, 0, 3000)) is None
    refusal = over_limit(book, "b", (0, 0, 3250))
    assert refusal is not None
    assert (refusal.queue, refusal.message) == ("d0", "queue d0: limit 6 GPUs, used 3, needs 3.25")
    assert over_limit(book, "c", (0, 0, 10**6)) is None


def test_a_resource_that_is_not_asked_for_is_not_tested() -> None:
    limits = Shares(1000, 2 * GIB, 0)
    job = group("job", "a")
    holding = pods(job, 1, request(gpus=1, cpus=2, gib=3), PodStatus.RUNNING)
    book = QueueBook.of(cluster([node()], [queue("a", limits=limits)], [job], holding))
    assert over_limit(book, "a", (0, 0, 0)) is None
    messages = [over_limit(book, "a", amounts) for amounts in ((1, 0, 0), (0, GIB // 2, 0), (0, 0, 10))]
    assert [refusal.message if refusal else None for refusal in messages] == [
        "queue a: limit 1 CPU, used 2, needs 0.001",
        "queue a: limit 2 GiB memory, used 3, needs 0.5",
        "queue a: limit 0 GPUs, used 1, needs 0.01",
    ]


def test_quota_counts_non_preemptible_pods_only() -> None:
    book = QueueBook.of(tree())
    # a holds 1 of 2; d0 holds 1 non-preemptible GPU of 4 (the pods of b are preemptible); c has no quota, d1
    # has 4.
    assert over_bounds(book, "a", (0, 0, 1000), preemptible=False) is None
    refusal = over_bounds(book, "a", (0, 0, 1500), preemptible=False)
    assert refusal is not None
    assert refusal.message == "queue a: quota 2 GPUs, used by non-preemptible pods 1, needs 1.5"
    # The quota of b itself is unlimited, that of its department is not. Without its pods the limit would
    # allow this.
    assert over_bounds(book, "b", (0, 0, 3000), preemptible=False) is None
    refusal = over_bounds(book, "b", (0, 0, 4000), preemptible=False, held=book.firm)
    assert refusal is not None
    assert (refusal.queue, refusal.resource, refusal.limit, refusal.used) == ("d0", 2, 4000, 1000)


@given(gpus=st.lists(st.integers(0, 7000), min_size=5, max_size=5), amount=st.integers(0, 9000))
def test_a_refused_amount_breaks_a_limit_and_an_accepted_one_does_not(gpus: list[int], amount: int) -> None:
    book = QueueBook.of(tree())
    for name, gpu in zip(("a", "b", "c", "a", "b"), gpus, strict=True):
        book.charge(name, (0, 0, gpu), preemptible=True)
    for name in ("a", "b", "c"):
        after = book.copy()
        after.charge(name, (0, 0, amount), preemptible=True)
        broken = any(
            after.limit[i][2] != UNLIMITED and after.held[i][2] > after.limit[i][2] for i in after.line(name)
        )
        assert (over_limit(book, name, (0, 0, amount)) is not None) == (broken and amount > 0)
