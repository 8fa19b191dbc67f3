"""What a pod costs its queue, by kind of GPU request."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kai_cp_models.extras import CLAIM_MILLI_GPUS, extra
from kai_cp_models.fairness.amounts import (
    accepted,
    involved,
    optimistic,
    optimistic_batch,
    pessimistic,
    pessimistic_batch,
    total,
)
from kai_cp_models.pods import PodSpec
from tests.kai_cp_models.fairness.builders import GIB, cluster, group, node, pods, queue, request

SMALL = node("small", gpu_memory_mib=16_000, gpu_memory_synced=True)
LARGE = node("large", gpu_memory_mib=80_000, gpu_memory_synced=True)
TEAM = group("job", "team")
SNAPSHOT = cluster([SMALL, LARGE, node("unlabelled")], [queue("team")], [TEAM])


@pytest.mark.parametrize(
    ("spec", "milli_gpus"),
    [
        (request(gpus=2), 2000),
        (request(gpus=0.3), 300),
        # A portion on several devices is charged for each of them.
        (request(gpus=0.5, devices=3), 1500),
        # g numbers (2.4): 2 x 1g + 1 x 3g = 5; a "+me" instance is no quota at all.
        (request(mig=(2, 1, 4)), 5000),
        (request(), 0),
    ],
)
def test_sizes_that_no_node_changes(spec: PodSpec, milli_gpus: int) -> None:
    (pod,) = pods(TEAM, 1, replace(spec, requests=(250, 3 * GIB, *spec.requests[2:])))
    for amounts in (
        accepted(SNAPSHOT, pod, SMALL),
        accepted(SNAPSHOT, pod, LARGE),
        optimistic(SNAPSHOT, pod),
        pessimistic(SNAPSHOT, pod),
    ):
        assert amounts == (250, 3 * GIB, milli_gpus)


def test_a_memory_share_is_rounded_up_to_hundredths_of_the_node_it_is_on() -> None:
    # 5,000 MiB on each of 2 devices: 5/16 = 31.25 % -> 32 % each; 5/80 = 6.25 % -> 7 % each.
    (pod,) = pods(TEAM, 1, request(mib=5_000, devices=2))
    assert accepted(SNAPSHOT, pod, SMALL)[2] == 640
    assert accepted(SNAPSHOT, pod, LARGE)[2] == 140
    # Rounded to whole milli_gpus only: 2 x 312.5 and 2 x 62.5. The node without a label sets no bound.
    assert pessimistic(SNAPSHOT, pod)[2] == 625
    assert optimistic(SNAPSHOT, pod)[2] == 125


def test_an_exact_memory_share_is_not_rounded_up() -> None:
    # 160 / 16,000 is 1 %. In floats 100 x 0.07 exceeds 7, so 1,120 MiB would cost 8 %.
    for mib, milli in ((160, 10), (1_120, 70), (16_000, 1000)):
        (pod,) = pods(TEAM, 1, request(mib=mib))
        assert accepted(SNAPSHOT, pod, SMALL)[2] == milli


def test_three_thirds_are_one_gpu() -> None:
    snapshot = cluster([node(gpu_memory_mib=30_000)], [queue("team")], [TEAM])
    thirds = tuple(pods(TEAM, 3, request(mib=10_000)))
    assert pessimistic(snapshot, thirds[0])[2] == 334
    assert pessimistic_batch(snapshot, thirds)[2] == 1000
    assert optimistic_batch(snapshot, thirds)[2] == 1000


def test_claims_are_counted_beside_requests() -> None:
    (pod,) = pods(TEAM, 1, request(cpus=1))
    snapshot = cluster([SMALL], [queue("team")], [TEAM], extras=extra(CLAIM_MILLI_GPUS, {pod.key: 2000}))
    assert accepted(snapshot, pod, SMALL) == (1000, 0, 2000)
    assert involved(snapshot, [pod]) == (True, False, True)


def test_mig_instances_cost_gpus_but_do_not_involve_them() -> None:
    assert involved(SNAPSHOT, pods(TEAM, 1, request(mig=(1, 0, 0), gib=1))) == (False, True, False)
    assert involved(SNAPSHOT, pods(TEAM, 1, request(mib=100))) == (False, False, True)
    assert involved(SNAPSHOT, pods(TEAM, 1, request(gpus=1))) == (False, False, True)
    assert involved(SNAPSHOT, ()) == (False, False, False)


def test_total() -> None:
    assert total([(1, 2, 3), (10, 20, 30)]) == (11, 22, 33)
    assert total([]) == (0, 0, 0)
