"""Generated clusters are legal, equal for equal seeds, and of every kind."""

from __future__ import annotations

import json

import pytest

from kai_cp.reader import parse
from kai_cp_models.check import PlannedCluster, capacity, queues
from kai_cp_models.check.amounts import share_mib
from kai_cp_models.check.nodes import refusals
from kai_cp_models.plan import Plan
from kai_cp_models.pods import ACTIVE_ALLOCATED, GpuKind, PodStatus
from kai_cp_models.snapshot import Snapshot
from tests.support.clusters import FEATURES, random_cluster
from tests.support.objects import NOW

SEEDS = range(40)
LEGAL = FEATURES - {"overcommit", "unready"}


def read(seed: int, features: frozenset[str] | None = None) -> Snapshot:
    return parse(random_cluster(seed, features), now=NOW.timestamp())


@pytest.mark.parametrize("seed", SEEDS)
def test_running_pods_break_no_rule(seed: int) -> None:
    snapshot = read(seed, LEGAL)
    world = PlannedCluster(snapshot, Plan())
    for node in snapshot.nodes:
        there = world.before(node.name)
        taken = capacity.used(world, node, there)
        assert all(have <= room for have, room in zip(taken, node.allocatable, strict=True)), node.name
        for group in {g for r in there for g in r.gpu_groups}:
            held = sum(share_mib(r.pod, node) for r in there if group in r.gpu_groups)
            assert held <= node.gpu_memory_mib
        for resident in there:
            assert resident.pod.group is None or not refusals(snapshot, resident.pod, node)
    active = [p for p in snapshot.pods if p.status in ACTIVE_ALLOCATED]
    for firm, held in zip((False, True), queues.held(world, active), strict=True):
        for name, total in held.items():
            queue = snapshot.queue_by_name[name]
            bounds = queue.quota if firm else queue.limit
            for amount, bound, scale in zip(total, bounds, (1, 1, 1000), strict=True):
                assert bound == -1 or amount <= bound * scale + 1e-6


@pytest.mark.parametrize("seed", SEEDS)
def test_the_reader_leaves_out_only_what_is_meant_to_be_broken(seed: int) -> None:
    snapshot = read(seed, LEGAL)
    assert {item.item.rpartition("/")[2] for item in snapshot.set_aside} <= {
        "homeless",
        "lost-0",
        "homeless-0",
        "Topology fabric",
    }


def test_equal_seeds_give_equal_clusters() -> None:
    assert json.dumps(random_cluster(7)) == json.dumps(random_cluster(7))
    assert json.dumps(random_cluster(7)) != json.dumps(random_cluster(8))
    assert len(random_cluster(7, scale=30)["rawObjects"]["nodes"]) >= 30


def test_every_kind_of_pod_and_group_occurs() -> None:
    """Over all seeds: every status, every kind of GPU request, nested gangs, several devices, topologies."""
    snapshots = [read(seed) for seed in range(300)]
    pods = [pod for snapshot in snapshots for pod in snapshot.pods]
    in_cycle_only = {PodStatus.ALLOCATED, PodStatus.PIPELINED, PodStatus.UNKNOWN}
    assert {pod.status for pod in pods} == set(PodStatus) - in_cycle_only
    assert {pod.spec.gpu.kind for pod in pods if pod.node} == set(GpuKind)
    assert any(len(pod.gpu_groups) > 1 for pod in pods)
    groups = [group for snapshot in snapshots for group in snapshot.groups]
    assert any(not child.leaf for group in groups for child in group.root.children)
    assert any(group.root.constraint is not None for group in groups)
    assert {group.preemptible for group in groups} == {True, False}
    assert any(group.stale_since is not None for group in groups)
    assert max(len(path) for s in snapshots for path in s.queue_path.values()) == 4
