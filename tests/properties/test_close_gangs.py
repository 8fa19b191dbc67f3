"""Close gangs against brute force on tiny clusters: the closest nodes are found, and no group waits for
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kai_cp_models.pods import GPU, MILLI
from kai_cp_models.settings import Settings
from kai_cp_models.snapshot import Node, Snapshot, Topology
from kai_cp_topology.locality import locality as hardware_locality
from kai_cp_topology.records import CLIQUE_LABEL, PRODUCT_LABEL, NodeFacts
from kai_cp_topology.scales import scales
from tests.support.plans import SETTINGS, bound, placed, solved
from tests.support.worlds import cluster, group, node, pods, spec

OFF = Settings.model_validate({"solver": SETTINGS.solver, "objective": {"close_gangs": False}})
LEVELS = st.sampled_from(
    [
        (Topology("dc", ("zone", "rack")),),
        (Topology("network", ("rack",)), Topology("power", ("zone",))),
        (),
    ]
)


@st.composite
def hardware(draw: st.DrawFn) -> list[Node]:
    """Up to six nodes with GPUs; some name no rack, no zone or no NVLink domain."""
    found = []
    for i in range(draw(st.integers(1, 6))):
        labels = {
            PRODUCT_LABEL: "NVIDIA-H100-80GB-HBM3",
            CLIQUE_LABEL: draw(st.sampled_from(["", "a", "b"])),
            "rack": draw(st.sampled_from(["", "r", "s", "t"])),
            "zone": draw(st.sampled_from(["", "x", "y", "y"])),
        }
        gpus = draw(st.sampled_from([1, 2, 4, 8]))
        found.append(node(f"n{i}", gpus, labels={key: value for key, value in labels.items() if value}))
    return found


def _cost(snapshot: Snapshot, used: Sequence[Node]) -> tuple[int, int]:
    """Bandwidth of the worst pair (less is worse), and how far apart the nodes are.

    A pair on one node is as good as any pair in its NVLink domain. So neither the number of GPUs on a node
    nor the number of nodes in one domain matters.
    """
    facts = [NodeFacts(n.name, n.labels, n.allocatable[GPU] // MILLI) for n in snapshot.nodes]
    ladder = scales(
        [n.labels for n in facts], [n.gpus for n in facts], {t.name: t.levels for t in snapshot.topologies}
    )
    found = hardware_locality(dict(enumerate(facts)), ladder, {snapshot.node_index[n.name]: 2 for n in used})
    return -(found.worst_gbytes_per_second or 0), max(found.hops, 2)


@settings(max_examples=120, deadline=None)
@given(hardware(), LEVELS, st.integers(2, 6), st.sampled_from([1, 2, 4]))
def test_one_gang_on_an_empty_cluster_is_as_close_as_can_be(
    nodes: list[Node], topologies: tuple[Topology, ...], count: int, size: int
) -> None:
    waiting = pods("g", count, spec=spec(size))
    snapshot = cluster(waiting, [group("g", count)], nodes, actions=("allocate",), topologies=topologies)
    room = {n.name: n.allocatable[GPU] // MILLI // size for n in nodes}
    choices = [
        chosen
        for many in range(1, count + 1)
        for chosen in combinations([n for n in nodes if room[n.name]], many)
        if sum(room[n.name] for n in chosen) >= count
    ]
    where = bound(solved(snapshot))
    assert bool(where) is bool(choices)
    if choices:
        used = [n for n in nodes if n.name in where.values()]
        assert _cost(snapshot, used) == min(_cost(snapshot, chosen) for chosen in choices)


@st.composite
def gangs(draw: st.DrawFn) -> tuple[list[Any], list[Any]]:
    """Up to four gangs of equal pods."""
    members: list[Any] = []
    groups = []
    for i in range(draw(st.integers(2, 4))):
        count = draw(st.integers(1, 4))
        members += pods(f"g{i}", count, spec=spec(draw(st.sampled_from([1, 2, 4, 8]))))
        groups.append(group(f"g{i}", count, created=float(i)))
    return members, groups


@settings(max_examples=60, deadline=None)
@given(hardware(), LEVELS, gangs())
def test_no_gang_waits_for_closeness(
    nodes: list[Node], topologies: tuple[Topology, ...], asking: tuple[list[Any], list[Any]]
) -> None:
    snapshot = cluster(*asking, nodes, actions=("allocate",), topologies=topologies)
    assert placed(solved(snapshot)) == placed(solved(snapshot, OFF))
