"""What is kept of a cluster's records from cycle to cycle."""

from __future__ import annotations

from dataclasses import replace

from kai_cp_models.ledger import Ledger
from kai_cp_models.policy import Policy
from kai_cp_models.snapshot import Snapshot, Topology
from tests.support.worlds import cluster, node

RACKS = Topology("racks", ("rack",))


def racks_of(snapshot: Snapshot) -> list[int]:
    """The rack of every node."""
    found: list[int] = Ledger.of(snapshot).fixed.table.trees["racks"].domain[1].tolist()
    return found


def test_trees_are_kept_only_while_nodes_and_topologies_are_the_same() -> None:
    """The second node is in rack b; then its label says a, or the topology asks for another label."""
    near, far = node("n1", labels={"rack": "a", "row": "x"}), node("n2", labels={"rack": "b", "row": "x"})
    first = cluster((), nodes=(near, far), topologies=(RACKS,))
    trees = Ledger.of(first).fixed.table.trees
    assert Ledger.of(replace(first, now=first.now + 1)).fixed.table.trees is trees
    assert racks_of(first) == [0, 1]
    assert racks_of(replace(first, nodes=(near, replace(far, labels={"rack": "a", "row": "x"})))) == [0, 0]
    assert racks_of(replace(first, topologies=(Topology("racks", ("row",)),))) == [0, 0]
    assert racks_of(first) == [0, 1]


def test_planned_starts_come_with_allocate_in_any_order() -> None:
    order = Policy(actions=("reclaim", "allocate", "preempt")).decision_order
    assert (
        order.index("reclaim") < order.index("reservation") < order.index("allocate") < order.index("preempt")
    )
