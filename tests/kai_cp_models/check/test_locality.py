"""What a plan says about how close its gangs are: it names the right pod groups, and a wrong statement is
refused.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from kai_cp_models.check import violations
from kai_cp_models.pods import GroupKey
from kai_cp_models.settings import Settings
from kai_cp_models.snapshot import Node, Snapshot, Topology
from kai_cp_topology.records import CLIQUE_LABEL, PRODUCT_LABEL, Locality
from tests.support.plans import SETTINGS, solved
from tests.support.worlds import cluster, fraction, group, node, pod, pods, spec

G = GroupKey("ns", "g")
DC = (Topology("dc", ("block", "rack")),)


def gb200(name: str, block: str, rack: str, clique: str) -> Node:
    labels = {"block": block, "rack": rack, CLIQUE_LABEL: clique, PRODUCT_LABEL: "NVIDIA-GB200"}
    return node(name, gpus=4, labels=labels)


NODES = [
    gb200("n1", "b", "r", "c1"),
    gb200("n2", "b", "r", "c1"),
    gb200("n3", "b", "r", "c2"),
    gb200("n4", "b", "s", "c3"),
    gb200("n5", "c", "t", "c4"),
]


def waiting(gpus: tuple[int, ...], *used: str) -> Snapshot:
    """A gang whose pods ask for so many GPUs each; all nodes but ``used`` are full."""
    others = [pod(f"{n.name}-0", n.name, spec=spec(4)) for n in NODES if n.name not in used]
    members = [pod(f"g-{i}", spec=spec(count)) for i, count in enumerate(gpus)]
    return cluster([*others, *members], [group("g", len(gpus))], NODES, actions=("allocate",), topologies=DC)


@pytest.mark.parametrize(
    ("gpus", "used", "expected"),
    [
        ((4, 4), ("n1", "n2"), Locality(1800, 2, CLIQUE_LABEL, 1, 8)),
        ((4, 4), ("n1", "n3"), Locality(100, 4, "rack", 2, 4)),
        ((4, 4), ("n1", "n4"), Locality(100, 6, "block", 2, 4)),
        ((4, 4), ("n1", "n5"), Locality(100, 8, "", 2, 4)),
        # 8 GPUs in one domain and 2 in another: segments of 2.
        ((4, 4, 2), ("n1", "n2", "n4"), Locality(100, 6, "block", 2, 2)),
    ],
)
def test_the_worst_pair_is_stated(gpus: tuple[int, ...], used: tuple[str, ...], expected: Locality) -> None:
    plan = solved(waiting(gpus, *used))
    assert plan.localities == {G: expected}
    off = Settings.model_validate({"solver": SETTINGS.solver, "objective": {"close_gangs": False}})
    assert solved(waiting(gpus, *used), off).localities == {G: expected}


def test_pods_that_ran_before_count() -> None:
    """One running pod lies in another block than the pod that joins it."""
    busy = [pod(f"{n.name}-0", n.name, spec=spec(4)) for n in NODES[1:4]]
    members = [pod("g-0", "n1", spec=spec(4)), pod("g-1", spec=spec(4))]
    plan = solved(cluster([*busy, *members], [group("g", 1)], NODES, actions=("allocate",), topologies=DC))
    assert plan.localities == {G: Locality(100, 8, "", 2, 4)}


def test_pods_of_unknown_subgroups_count() -> None:
    """Such a pod runs in another block than the pod of its group that gets a place."""
    busy = [pod(f"{n.name}-0", n.name, spec=spec(4)) for n in NODES[1:4]]
    members = [pod("g-0", "n1", spec=spec(4), subgroup="zzz"), pod("g-1", spec=spec(4))]
    plan = solved(cluster([*busy, *members], [group("g", 1)], NODES, actions=("allocate",), topologies=DC))
    assert plan.localities == {G: Locality(100, 8, "", 2, 4)}


def test_shares_count_as_devices_they_are_on() -> None:
    nodes = [node(f"n{i}", gpus=1, labels={"rack": "r"}) for i in (1, 2)]
    snapshot = cluster(
        pods("g", 2, spec=fraction(600)), [group("g", 2)], nodes, topologies=(Topology("dc", ("rack",)),)
    )
    assert solved(snapshot).localities == {G: Locality(25, 2, "rack", 2, 1)}


def test_nothing_is_stated_of_one_node_or_an_unknown_fabric() -> None:
    assert solved(waiting((2, 2), "n1")).localities == {}
    plain = cluster(pods("g", 2, spec=spec(8)), [group("g", 2)], [node("n1"), node("n2")])
    assert solved(plain).localities == {}


@pytest.mark.parametrize(
    "wrong",
    [
        {"worst_gbytes_per_second": 1800},
        {"hops": 2},
        {"level": "block"},
        {"nvlink_domains": 1},
        {"segment": 8},
    ],
)
def test_a_wrong_statement_is_refused(wrong: dict[str, object]) -> None:
    snapshot = waiting((4, 4), "n1", "n3")
    plan = solved(snapshot)
    lie = replace(plan, localities={G: replace(plan.localities[G], **wrong)})  # type: ignore[arg-type]
    (fault,) = violations(snapshot, lie)
    assert fault.startswith("locality: pod group ns/g is said to have")


def test_a_statement_about_no_group_is_refused() -> None:
    snapshot = waiting((4, 4), "n1", "n3")
    plan = solved(snapshot)
    unknown = {GroupKey("ns", "x"): plan.localities[G]}
    assert violations(snapshot, replace(plan, localities=unknown)) == ["locality: pod group ns/x is unknown"]
