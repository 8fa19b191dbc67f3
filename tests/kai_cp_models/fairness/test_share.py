"""Fair shares: worked values, then what must hold for any queues."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_cp_models.fairness.share import ShareClaim, cluster_total, divide_siblings, fair_shares
from kai_cp_models.pods import UNLIMITED, PodStatus
from kai_cp_models.policy import Policy
from kai_cp_models.snapshot import Shares
from tests.kai_cp_models.fairness.builders import GIB, cluster, group, node, pods, queue, request, running


def claim(request: float, quota: float = 0, weight: float = 1, **fields: float) -> ShareClaim:
    age = fields.get("created", 0.0)
    return ShareClaim(
        quota, request, weight, fields.get("usage", 0.0), int(fields.get("priority", 100)), (age, "")
    )


@pytest.mark.parametrize(
    ("total", "claims", "shares"),
    [
        # The worked example of 3.2: 10 GPUs, equal weights, requests 10 and 10.
        (10, [claim(10), claim(10)], [5, 5]),
        # Three queues: 3.33 each is cut to 3; the tenth GPU goes to the oldest queue, because all remainders
        # are equal.
        (10, [claim(10, created=2), claim(10, created=1), claim(10, created=3)], [3, 4, 3]),
        # Quota first: 6 and 2 are given; the other 2 go by weight, 1 each.
        (10, [claim(10, 6), claim(10, 2)], [7, 3]),
        # No queue gets more than it asks for: 2 of a quota of 6; the 8 GPUs left are surplus for the other
        # queue.
        (10, [claim(2, 6), claim(10, 0)], [2, 8]),
        # Quotas are not scaled: 8 + 8 on 10 GPUs stay 8 and 8.
        (10, [claim(9, 8), claim(9, 8)], [8, 8]),
        # An unlimited quota covers the whole cluster, as far as it is asked for; nothing is left for the
        # other queue.
        (10, [claim(20, UNLIMITED), claim(5, 0)], [10, 0]),
        # Weights 3 to 1 for 8 GPUs.
        (8, [claim(10, weight=3), claim(10, weight=1)], [6, 2]),
        # Weight 0: the quota and no surplus, although 6 GPUs stay unused.
        (10, [claim(10, 2, weight=0), claim(2, 0)], [2, 2]),
        # Round 1 offers 5 each. The first queue needs 2, so 3 are offered again, all to the second queue.
        (10, [claim(2), claim(20)], [2, 8]),
        # The higher tier takes all it wants of the surplus before the lower tier gets any.
        (10, [claim(7, priority=200), claim(10, priority=100)], [7, 3]),
        (10, [claim(20, priority=200), claim(10, quota=2, priority=100)], [8, 2]),
        # Weights 2 : 2 : 1 for 4 GPUs: 1.6, 1.6, 0.8 -> 1, 1, 0, and two are left; the largest remainder
        # comes first.
        (4, [claim(9, weight=2, created=5), claim(9, weight=2, created=4), claim(9, weight=1)], [1, 2, 1]),
        # Both ask for half a GPU. Offers are cut to whole devices, so 0.4 each is 0 with a remainder of 0.4,
        # and the whole 0.8 goes to the older queue, beyond its request (section 14: keep).
        (0.8, [claim(0.5, created=1), claim(0.5, created=0)], [0, 0.8]),
        # Needs below the offer are met exactly.
        (3, [claim(0.5), claim(0.3)], [0.5, 0.3]),
        # 3.33 each: the 1 is met, 3 + 3 are cut. The 3 left are offered again, 1.5 each: the 4 is met, the
        # other queue gets 1, and the last GPU goes in a third round.
        (10, [claim(1), claim(4), claim(10)], [1, 4, 5]),
        # 3.5 each: 1, 3, 3, 3. Then 1.33 each: the 4 is met and its remainder of 0.5 forgotten; 1 and 1. Then
        # 0.5 each, which is nothing. The last GPU goes to the older of the two, not to the oldest of all.
        (14, [claim(1), claim(4), claim(9, created=2), claim(9, created=1)], [1, 4, 4, 5]),
        # Needs that are met exactly do not start another round: 0.5, 0.5 and 4.5 are offered, 0 and 4 given,
        # and remainders are equal. (Another round would offer 0.1 and 0.9 of the last GPU.)
        (5.5, [claim(0.5), claim(9), claim(9, weight=9, created=1)], [0.5, 1, 4]),
    ],
)
def test_worked_division(total: float, claims: list[ShareClaim], shares: list[float]) -> None:
    assert divide_siblings(claims, total) == pytest.approx(shares)


@pytest.mark.parametrize(
    ("k_value", "shares"),
    [
        # Slices: n = 1/2 each; usage 0.75 and 0.25.
        # k = 1: 0.5 + (0.5 - 0.75) = 0.25 and 0.5 + 0.25 = 0.75 -> 2 and 6 of 8.
        (1.0, [2, 6]),
        # k = 2: 0 and 1, so everything goes to the queue that used less.
        (2.0, [0, 8]),
        # k <= 0: usage is ignored.
        (0.0, [4, 4]),
        (-3.0, [4, 4]),
    ],
)
def test_usage_moves_the_surplus(k_value: float, shares: list[float]) -> None:
    claims = [claim(10, usage=0.75), claim(10, usage=0.25)]
    assert divide_siblings(claims, 8, k_value) == pytest.approx(shares)


def test_usage_never_touches_quota() -> None:
    claims = [claim(4, quota=4, usage=1), claim(10)]
    assert divide_siblings(claims, 8, 5.0) == pytest.approx([4, 4])


def test_the_surplus_stays_unused_if_all_queues_over_used() -> None:
    # 0.5 + 2 x (0.5 - 1) < 0 for both: there is no slice and nothing to divide by.
    assert divide_siblings([claim(10, 1, usage=1), claim(10, usage=1)], 8, 2.0) == [1, 0]


def test_hierarchy_divides_the_parents_share() -> None:
    # Departments ask for 10 each and get 5 each. d0's teams have quotas 3 and 1 and share the fifth GPU as a
    # leftover (offer 0.5 each), the older one first; d1 has one team, which gets all 5.
    teams = {"a": ("d0", 3.0, 1.0), "b": ("d0", 1.0, 2.0), "c": ("d1", 0.0, 0.0)}
    queues = [queue("d0"), queue("d1")]
    queues += [queue(name, d, quota, created=age) for name, (d, quota, age) in teams.items()]
    jobs = {name: group(f"job-{name}", name) for name in teams}
    asks = {"a": 5, "b": 5, "c": 10}
    members = [pods(jobs[name], asks[name], request(1)) for name in teams]
    shares = fair_shares(cluster([node(gpus=10)], queues, jobs.values(), *members))
    assert {name: share.gpu for name, share in shares.items()} == {"d0": 5, "d1": 5, "a": 4, "b": 1, "c": 5}


def test_a_department_with_quota_divides_it_below() -> None:
    queues = [
        queue("d0", quota=6),
        queue("d1"),
        queue("a", "d0", weight=2),
        queue("b", "d0", weight=1),
        queue("c", "d1"),
    ]
    jobs = [group(f"job-{name}", name) for name in "abc"]
    shares = fair_shares(cluster([node(gpus=8)], queues, jobs, *(pods(job, 9, request(1)) for job in jobs)))
    # d0: 6 of quota + 1 of the surplus of 2. 2/3 (a) and 1/3 (b) of 7 are cut to 4 and 2; the remainder of b,
    # 0.33, is smaller than 0.67 of a.
    assert [shares[name].gpu for name in ("d0", "d1", "a", "b", "c")] == [7, 1, 5, 2, 1]


def test_requests_are_capped_by_the_limit_and_an_unset_limit_is_zero() -> None:
    queues = [queue("a", limit=2), queue("b", limit=0), queue("c")]
    jobs = [group(f"job-{name}", name) for name in "abc"]
    shares = fair_shares(cluster([node(gpus=8)], queues, jobs, *(pods(job, 9, request(1)) for job in jobs)))
    assert [shares[name].gpu for name in "abc"] == [2, 0, 6]


def test_only_allocated_and_pending_pods_ask() -> None:
    job = group("job", "a")
    members = [
        pods(job, 1, request(1), status)
        for status in PodStatus
        if status not in (PodStatus.ALLOCATED, PodStatus.PIPELINED)
    ]
    # Pending, Binding, Bound and Running: 4. Gated, Releasing, Stuck, Succeeded, Failed and Unknown do not
    # count.
    assert fair_shares(cluster([node()], [queue("a")], [job], *members))["a"].gpu == 4


def test_a_pod_of_an_unknown_subgroup_asks_for_nothing_but_pays_for_what_it_holds() -> None:
    job = group("job", "a")
    stranger: dict[str, Any] = {"subgroup": "nowhere"}
    waiting = pods(job, 2, request(1), **stranger)
    assert fair_shares(cluster([node()], [queue("a")], [job], waiting))["a"].gpu == 0
    holding = running(job, 2, **stranger)
    assert fair_shares(cluster([node()], [queue("a")], [job], holding))["a"].gpu == 2


def test_total_counts_healthy_nodes_less_what_others_use() -> None:
    nodes = [
        node("n0", gpus=4, cpus=10, gib=20),
        node("n1", gpus=8, healthy=False),
        node("n2", gpus=0, cpus=10, gib=20, mig=(2, 1, 9)),
    ]
    other: dict[str, Any] = {"ours": False}
    members = [
        pods(None, 1, request(1, cpus=2, gib=3), PodStatus.RUNNING, prefix="foreign", **other),
        pods(None, 1, request(8), PodStatus.RUNNING, "n1", prefix="on-a-sick-node", **other),
        pods(None, 1, request(1), PodStatus.SUCCEEDED, prefix="done", **other),
        pods(None, 1, request(1), PodStatus.RUNNING, prefix="reserve", reservation=True, **other),
        pods(None, 1, request(1), PodStatus.RUNNING, prefix="scale", scaling=True, **other),
        pods(None, 1, request(1), PodStatus.RUNNING, prefix="ours"),
    ]
    # GPUs: 4 + 2 x 1g + 1 x 3g - 1 foreign.
    assert cluster_total(cluster(nodes, [], [], *members)) == Shares(18_000, 37 * GIB, 8)


def test_restricted_scheduling_counts_gpus_of_gpu_workers_only() -> None:
    worker = {Policy().gpu_worker_label: ""}
    nodes = [node("n0", gpus=4, cpus=1, labels=worker), node("n1", gpus=8, cpus=1)]
    found = cluster_total(cluster(nodes, [], restrict_node_scheduling=True))
    assert (found.cpu, found.gpu) == (2000, 4)


def test_memory_shares_ask_by_the_smallest_gpu() -> None:
    nodes = [node("n0", gpu_memory_mib=10_000), node("n1", gpu_memory_mib=40_000)]
    job = group("job", "a")
    # 3 pods x 2 devices x 5,000 of 10,000 MiB = 3 GPUs.
    snapshot = cluster(nodes, [queue("a")], [job], pods(job, 3, request(mib=5_000, devices=2)))
    assert fair_shares(snapshot)["a"].gpu == 3


CLAIMS = st.lists(
    st.builds(
        lambda quota, asks, weight, usage, priority, age: claim(
            asks, quota, weight, usage=usage, priority=priority, created=age
        ),
        quota=st.sampled_from([0, 0, 1, 2, 3, UNLIMITED]),
        asks=st.sampled_from([0, 0.5, 1, 2, 3, 5, 8, 20]),
        weight=st.sampled_from([0, 1, 1, 2, 3]),
        usage=st.sampled_from([0, 0, 0.2, 0.5, 1]),
        priority=st.sampled_from([100, 100, 200]),
        age=st.integers(0, 3),
    ),
    min_size=1,
    max_size=6,
)


@given(claims=CLAIMS, amount=st.integers(0, 24), k_value=st.sampled_from([0.0, 1.0, 2.5]))
def test_division_never_gives_more_than_there_is(
    claims: list[ShareClaim], amount: int, k_value: float
) -> None:
    shares = divide_siblings(claims, amount, k_value)
    quotas = [min(amount if c.quota == UNLIMITED else c.quota, c.requestable) for c in claims]
    # What quotas promise is given whatever the cluster has; the surplus never exceeds what is left.
    assert all(share >= quota - 1e-9 for share, quota in zip(shares, quotas, strict=True))
    assert sum(shares) <= max(amount, sum(quotas)) + 1e-9
    # A leftover may exceed a request, by less than one device (section 14).
    assert all(share < max(c.requestable, 0) + 1 for share, c in zip(shares, claims, strict=True))
    # A queue without weight gets no surplus.
    assert all(
        share == quota for share, quota, c in zip(shares, quotas, claims, strict=True) if c.weight == 0
    )


@given(claims=CLAIMS, amount=st.integers(0, 24))
def test_nothing_useful_is_left_over_while_a_queue_with_weight_wants_it(
    claims: list[ShareClaim], amount: int
) -> None:
    shares = divide_siblings(claims, amount, k_value=0.0)
    wanting = [c for c, share in zip(claims, shares, strict=True) if c.weight > 0 and c.requestable > share]
    if wanting:
        assert sum(shares) >= amount - 1e-9


@given(claims=CLAIMS, amount=st.integers(0, 24), which=st.integers(0, 5))
def test_a_larger_quota_never_hurts_its_queue(claims: list[ShareClaim], amount: int, which: int) -> None:
    i = which % len(claims)
    before = claims[i]
    if before.quota == UNLIMITED:
        return
    raised = [*claims]
    raised[i] = ShareClaim(
        before.quota + 1, before.requestable, before.weight, 0, before.priority, before.seniority
    )
    plain = [ShareClaim(c.quota, c.requestable, c.weight, 0, c.priority, c.seniority) for c in claims]
    # Within one device, because leftovers go by remainder, and remainders may change their order.
    assert divide_siblings(raised, amount)[i] >= divide_siblings(plain, amount)[i] - 1


@given(claims=CLAIMS, amount=st.integers(0, 24), seed=st.randoms(use_true_random=False))
def test_division_does_not_depend_on_the_order_of_the_queues(
    claims: list[ShareClaim], amount: int, seed: object
) -> None:
    named = [
        ShareClaim(c.quota, c.requestable, c.weight, c.usage, c.priority, (c.seniority[0], str(i)))
        for i, c in enumerate(claims)
    ]
    shares = dict(zip((c.seniority for c in named), divide_siblings(named, amount), strict=True))
    backwards = dict(
        zip((c.seniority for c in named[::-1]), divide_siblings(named[::-1], amount), strict=True)
    )
    assert backwards == pytest.approx(shares)
