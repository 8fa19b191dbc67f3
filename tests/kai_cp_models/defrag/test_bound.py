"""Bounds of defragmentation, on a cluster argued by hand."""

from __future__ import annotations

from dataclasses import replace
from math import inf

from kai_cp_models.defrag.bound import domains_to_free, least_restarts
from kai_cp_models.defrag.frontier import frontier
from kai_cp_models.defrag.problem import DefragQuestion, Problem
from kai_cp_models.settings import Settings
from kai_cp_models.snapshot import Snapshot
from tests.support.times import at, runs, world
from tests.support.worlds import cluster, group, node, pods, spec

MAY = {"preemptible": True, "priority": 50, "since": 90}


def scattered() -> Snapshot:
    """n1 has one pod, n2 and n3 one pod each of gang g, n4 two pods, n5 one pod that cannot move, n6 none."""
    first, second = pods("g", 2, "n2", spec=spec(4), started=at(-90))
    members = world(
        runs("a", "n1", 2, **MAY),
        (group("g", 2, last_start=at(-90)), (first, replace(second, node="n3"))),
        runs("b", "n4", 2, **MAY),
        runs("c", "n4", 2, **MAY),
        runs("d", "n5", 2),
    )
    return cluster(nodes=[node(f"n{i}") for i in range(1, 7)], **members)


def test_nodes_cost_the_pods_that_are_there() -> None:
    """n6 is free already. A pod of the gang counts as one on its node and restarts two. n5 is never free."""
    problem = Problem(scattered(), Settings(), DefragQuestion())
    costs = {
        problem.snapshot.nodes[problem.domains[k][0]].name: (there, whole)
        for there, whole, k in domains_to_free(problem)
    }
    assert costs == {"n1": (1, 1), "n2": (1, 2), "n3": (1, 2), "n4": (2, 2), "n6": (0, 0)}
    assert least_restarts(problem, 6) == [0, 0, 1, 2, 3, 5, inf]


def test_the_frontier_keeps_the_bound_and_proves_its_points() -> None:
    """At the first point a goes to n2, n3, n4 or n5. No point restarts fewer pods than the bound says."""
    found = frontier(scattered(), Settings(), DefragQuestion())
    least = least_restarts(Problem(scattered(), Settings(), DefragQuestion()), 6)
    assert [point.proved for point in found.points] == [True] * len(found.points)
    assert all(point.moves >= least[point.value] for point in found.points)
    assert (found.points[0].value, found.points[0].moves) == (2, 1)
