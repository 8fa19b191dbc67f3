"""MIG advice: ways to partition a GPU, and when another partition would admit more."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kai_cp_models.mig_advice import mig_report, patterns
from kai_cp_models.plan import Decision, Plan
from kai_cp_models.pods import BASE_DIMENSIONS, GpuKind, GpuRequest, Pod
from kai_cp_models.snapshot import Node, Snapshot
from tests.kai_cp_models.rules.stateful.build import pod, snapshot, spec

PROFILES = (
    "nvidia.com/mig-1g.10gb",
    "nvidia.com/mig-2g.20gb",
    "nvidia.com/mig-3g.40gb",
    "nvidia.com/mig-7g.80gb",
)
DIMENSIONS = (*BASE_DIMENSIONS, *PROFILES)
H100_MIB = 81_500


def mig_pod(name: str, profile: str, node: str | None = None) -> Pod:
    amounts = tuple(int(profile in p) for p in PROFILES)
    return pod(name, node, wants=spec((1000, 0, 0, 1, *amounts), gpu=GpuRequest(GpuKind.MIG)))


def cluster(pods: list[Pod], *instances: int, gpus: int = 1) -> Snapshot:
    node = Node(
        "n0",
        (64_000, 2**40, 0, 110, *instances),
        gpu_memory_mib=H100_MIB,
        gpu_memory_synced=True,
        gpu_count=gpus,
        mig_enabled=True,
        mig_strategy="mixed",
    )
    return snapshot(pods, [node], dimensions=DIMENSIONS)


def test_patterns_are_those_of_the_hardware() -> None:
    """NVIDIA's table for 1g, 2g, 3g and 7g: seven 1g, three 2g and a 1g, two 3g, …"""
    found = patterns(((1, 1), (2, 2), (3, 4), (7, 8)))
    assert set(found) == {
        (7, 0, 0, 0), (5, 1, 0, 0), (3, 2, 0, 0), (1, 3, 0, 0),
        (4, 0, 1, 0), (2, 1, 1, 0), (0, 2, 1, 0), (0, 0, 2, 0), (0, 0, 0, 1),
    }  # fmt: skip
    assert all(sum(n * g for n, g in zip(p, (1, 2, 3, 7), strict=True)) <= 7 for p in found)


def test_one_large_instance_could_be_seven_small_ones() -> None:
    found = cluster([mig_pod(f"p{i}", "1g") for i in range(9)], 0, 0, 0, 1)
    report = mig_report(found)
    assert report is not None
    assert (report.admitted_now, report.admitted_then) == (0, 7)
    (change,) = report.changes
    assert (change.now, change.then) == ({PROFILES[3]: 1}, {PROFILES[0]: 7})
    assert len(report.admitted["n0"]) == 7


def test_instances_in_use_remain() -> None:
    """A 3g in use leaves four 1g beside it; the 7g of another GPU could become two 3g."""
    pods = [mig_pod("runs", "3g", "n0"), *(mig_pod(f"p{i}", "1g") for i in range(5)), mig_pod("q", "7g")]
    report = mig_report(cluster(pods, 0, 0, 2, 0))
    assert report is not None
    assert (report.admitted_now, report.admitted_then) == (0, 4)
    assert report.changes[0].then[PROFILES[2]] == 1


@pytest.mark.parametrize("instances", [(7, 0, 0, 0), (0, 0, 0, 1)])
def test_no_report_where_nothing_is_gained(instances: tuple[int, ...]) -> None:
    wanted = "1g" if instances[0] else "7g"
    assert mig_report(cluster([mig_pod("p", wanted)], *instances)) is None
    assert mig_report(cluster([], *instances)) is None


def test_nodes_that_cannot_be_cut_are_left_alone() -> None:
    found = cluster([mig_pod("p", "1g")], 0, 0, 0, 1)
    for node in (
        replace(found.nodes[0], mig_strategy="single"),
        replace(found.nodes[0], gpu_memory_synced=False),
        replace(found.nodes[0], gpu_count=0),
    ):
        assert mig_report(replace(found, nodes=(node,))) is None


def test_the_plan_counts() -> None:
    found = cluster([mig_pod("p", "7g"), mig_pod("q", "1g")], 0, 0, 0, 1)
    bind = Decision("Bind", found.pods[0].key, None, "n0", "allocate")
    report = mig_report(found)
    assert report is None or report.admitted_then == 1
    assert mig_report(found, Plan((bind,))) is None
