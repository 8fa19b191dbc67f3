"""The oracle on worlds solved by hand, and the engine against the oracle on tiny random clusters."""

from __future__ import annotations

import os
from random import Random
from typing import Any

import pytest

from kai_cp_models.check import violations
from kai_cp_models.engine import decide
from kai_cp_models.pods import Pod, PodKey, PodStatus
from kai_cp_models.settings import Settings
from kai_cp_models.snapshot import Shares, Snapshot, Topology, TopologyConstraint
from tests.properties.oracle import best_allocate
from tests.support.worlds import (
    cluster,
    fraction,
    gpu_memory,
    group,
    leaf,
    node,
    pod,
    pods,
    queue,
    spec,
    tree,
)

COUNT = int(os.environ.get("KAI_CP_ORACLE_CLUSTERS", "60"))
SETTINGS = Settings.model_validate({"solver": {"budget_seconds": 20, "patience": 1000}})


def names(keys: frozenset[PodKey]) -> set[str]:
    return {key.name for key in keys}


def test_pods_that_fit_are_admitted() -> None:
    assert names(best_allocate(cluster(pods("a", 2), [group("a", 2)])).pods) == {"a-0", "a-1"}


def test_earlier_places_change_for_a_later_unit() -> None:
    """a and b fit on one node each in either way, but c needs a node of its own: a and b must share one."""
    snapshot = cluster(
        [pod("a-0", spec=spec(4)), pod("b-0", spec=spec(4)), pod("c-0", spec=spec(8))],
        [group(x, created=float(i)) for i, x in enumerate("abc")],
        [node("n1"), node("n2")],
    )
    assert names(best_allocate(snapshot).pods) == {"a-0", "b-0", "c-0"}


def test_the_fair_order_decides_what_does_not_fit_together() -> None:
    snapshot = cluster(
        [pod("a-0", spec=spec(5)), pod("b-0", spec=spec(4)), pod("c-0", spec=spec(3))],
        [group("a", created=2.0), group("b", created=1.0), group("c", created=3.0)],
    )
    assert [key.name for key, _ in best_allocate(snapshot).batches] == ["b", "c"]


def test_a_gang_is_admitted_whole_or_not_at_all() -> None:
    snapshot = cluster(pods("a", 3, spec=spec(4)), [group("a", 3)])
    assert best_allocate(snapshot).pods == frozenset()
    snapshot = cluster(pods("a", 3, spec=spec(4)), [group("a", 1)])
    assert len(best_allocate(snapshot).pods) == 2


def test_shares_are_packed_into_devices() -> None:
    snapshot = cluster([*pods("a", 4, spec=fraction(500))], [group("a", 4)], [node(gpus=2)])
    assert len(best_allocate(snapshot).pods) == 4
    snapshot = cluster([*pods("a", 4, spec=fraction(600))], [group("a", 1)], [node(gpus=2)])
    assert len(best_allocate(snapshot).pods) == 2


def _tiny(seed: int) -> Snapshot:
    """Up to three nodes, four groups and eight pods; two dimensions are scarce."""
    rng = Random(seed)
    nodes = [
        node(
            f"n{i}",
            gpus=rng.choice((1, 2, 4)),
            cpus=rng.choice((4, 8)),
            pods=rng.choice((110, 110, 3)),
            labels={"zone": rng.choice("ab"), "rack": rng.choice("rs")},
        )
        for i in range(rng.randint(1, 3))
    ]
    queues = [queue("d")]
    for name in "qr":
        quota, limit = Shares(-1, -1, rng.choice((0, 1, 4))), Shares(-1, -1, rng.choice((-1, 3)))
        queues.append(queue(name, "d", quota=quota, limit=limit))
    members: list[Pod] = []
    groups = []
    for i in range(rng.randint(1, 4)):
        gpus = rng.choice((0, 1, 1, 2))
        wants = spec(gpus, cpus=rng.choice((1, 2, 4)), node_selector=rng.choice(((), (), (("zone", "a"),))))
        kind = rng.random()
        if kind < 0.25:
            wants = fraction(rng.choice((300, 500, 700)), rng.choice((1, 1, 2)))
        elif kind < 0.35:
            wants = gpu_memory(rng.choice((10_000, 15_000, 40_000)))
        elif kind < 0.45:
            wants = spec(gpus, host_ports=(("", "TCP", 80),))
        name, owner = f"g{i}", rng.choice("qr")
        more: dict[str, Any] = {"created": float(rng.randint(0, 3)), "queue": owner}
        more |= {"priority": rng.choice((50, 60)), "preemptible": rng.random() < 0.8}
        rack = TopologyConstraint("t", "rack") if rng.random() < 0.3 else None
        if rng.random() < 0.25:
            members += [pod(f"{name}-{x}", spec=wants, subgroup=x) for x in "xy"]
            groups.append(
                group(
                    name, root=tree(rng.choice((1, 2)), leaf("x", 1), leaf("y", 1), constraint=rack), **more
                )
            )
        else:
            count = rng.randint(1, 2)
            members += pods(name, count, spec=wants)
            groups.append(group(name, rng.randint(1, count), constraint=rack, **more))
    if rng.random() < 0.5:
        status = rng.choice((PodStatus.RUNNING, PodStatus.RELEASING))
        share = rng.random() < 0.5
        wants = fraction(rng.choice((300, 500))) if share else spec(1)
        members.append(pod("r-0", nodes[0].name, spec=wants, status=status, gpu_groups=("x",) * share))
        groups.append(group("r", queue="q"))
    racks = (Topology("t", ("zone", "rack")),)
    return cluster(members, groups, nodes, queues, actions=("allocate",), topologies=racks)


@pytest.mark.parametrize("seed", range(COUNT))
def test_the_engine_admits_what_the_oracle_admits(seed: int) -> None:
    snapshot = _tiny(seed)
    best = best_allocate(snapshot)
    plan = decide(snapshot, SETTINGS)
    assert violations(snapshot, plan) == []
    assert names(frozenset(d.pod for d in plan.decisions)) == names(best.pods)
