"""A what-if that runs on: what all of its cycles stop and move."""

from __future__ import annotations

from kai_cp.explain.cycle import Cycles
from kai_cp.explain.draft import Draft
from kai_cp.explain.whatif import whatif
from kai_cp_models.settings import Settings
from tests.kai_cp.explain.clusters import NOW, cluster
from tests.support.tiny import node, pod


def test_pods_that_the_first_cycle_stops_count_when_the_cluster_has_settled() -> None:
    world = cluster([node("n0", gpus=1)], [pod("low", "n0", gpus=1), pod("x", gpus=1, priority="build")])
    found, _ = whatif(Cycles(Settings()), Draft(world, NOW), [], settle=5)
    diff = found["diff"]
    assert (diff["settled"], diff["lostBefore"], diff["lostAfter"]) == (True, 1, 1)
    assert (diff["movedBefore"], diff["gpusBefore"]) == (0, 1)
