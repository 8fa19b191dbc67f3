"""The one token of a group that waits, where several would be true."""

from __future__ import annotations

import pytest

from kai_cp_models.snapshot import Topology, TopologyConstraint
from tests.support.plans import reasons, solved
from tests.support.worlds import cluster, group, node, pod, pods, spec

DC = (Topology("dc", ("rack",)),)
IN_ONE_RACK = TopologyConstraint("dc", required="rack")
NODES = [node(f"n{i}", 8, labels={"rack": "pq"[i // 2]}) for i in range(4)]


@pytest.mark.parametrize(
    ("whole_nodes", "running_priority", "token"),
    [
        (3, 50, "TopologyFragmented"),  # 24 GPUs are free, 16 of them in one rack.
        (4, 50, "NoRoomInSum"),  # 32 are not free in any number of racks, and nothing may go.
        (4, 10, "TopologyFragmented"),  # What runs may go: only the rack is too small.
    ],
)
def test_a_rack_is_not_to_blame_where_the_cluster_is_full(
    whole_nodes: int, running_priority: int, token: str
) -> None:
    members = [*pods("g", whole_nodes, spec=spec(8)), pod("r-0", "n0", spec=spec(8))]
    gang = group("g", whole_nodes, constraint=IN_ONE_RACK)
    running = group("r", priority=running_priority)
    snapshot = cluster(members, [gang, running], NODES, topologies=DC, actions=("allocate", "preempt"))
    assert reasons(solved(snapshot)) == {"g": token}
