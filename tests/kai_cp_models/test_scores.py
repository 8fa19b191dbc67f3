"""Node scores, each value argued from the magnitudes of section 6."""

from __future__ import annotations

import numpy as np
import pytest

from kai_cp_models.arrays import Floats
from kai_cp_models.pods import GpuKind, GpuRequest, Pod
from kai_cp_models.rules.static.table import NodeTable
from kai_cp_models.scores import scores
from kai_cp_models.snapshot import Node, Snapshot
from tests.kai_cp_models.rules.build import ALL, node, pod, snapshot


def score(
    world: Snapshot,
    item: Pod,
    free_gpus: list[int] | None = None,
    *,
    now: list[bool] | None = None,
    shared: list[bool] | None = None,
    candidates: list[bool] | None = None,
    topology: Floats | None = None,
    extra: Floats | float = 0.0,
) -> list[float]:
    """Scores with some GPUs free on each node."""
    table = NodeTable(world)
    free = table.allocatable.copy()
    if free_gpus is not None:
        free[:, 2] = 1000 * np.array(free_gpus)
    count = len(table)
    return scores(
        table,
        item,
        np.array(candidates if candidates is not None else [True] * count),
        free,
        fits_now=np.array(now if now is not None else [False] * count),
        fits_shared=np.array(shared if shared is not None else [False] * count),
        topology_score=topology,
        extra=extra,
    ).tolist()


def plugins(*names: str) -> frozenset[str]:
    return frozenset(names)


THREE = (node("a"), node("b"), node("c"))


def test_binpack_scores_9_for_the_fullest_and_0_for_the_emptiest() -> None:
    # free 2, 5, 8: 9 * (1 - 0/6), 9 * (1 - 3/6), 9 * (1 - 6/6)
    world = snapshot(*THREE, plugins=plugins("nodeplacement"))
    assert score(world, pod(gpus=1), [2, 5, 8]) == [9.0, 4.5, 0.0]


def test_binpack_looks_at_candidates_only() -> None:
    # a is no candidate, so free 5 and 8 are the bounds.
    world = snapshot(*THREE, plugins=plugins("nodeplacement"))
    assert score(world, pod(gpus=1), [2, 5, 8], candidates=[False, True, True])[1:] == [9.0, 0.0]


@pytest.mark.parametrize(("free", "expected"), [([4, 4, 4], 9.0), ([0, 0, 0], 0.0)])
def test_binpack_on_equal_nodes(free: list[int], expected: float) -> None:
    assert score(snapshot(*THREE, plugins=plugins("nodeplacement")), pod(gpus=1), free) == [expected] * 3


def test_binpack_ignores_nodes_without_the_resource() -> None:
    # The node without GPUs scores 0 and does not set the minimum: 3 and 8 are the bounds.
    world = snapshot(node("a", gpus=0), node("b"), node("c"), plugins=plugins("nodeplacement"))
    assert score(world, pod(gpu=GpuRequest(GpuKind.FRACTION, 1, 500)), [0, 3, 8]) == [0.0, 9.0, 0.0]


def test_spread_is_the_free_part_of_the_labelled_count() -> None:
    # The label of b says 4 GPUs although 8 are allocatable; c has no label.
    nodes = (node("a"), node("b", gpu_count=4), node("c", gpus=0))
    world = snapshot(*nodes, plugins=plugins("nodeplacement"), gpu_strategy="spread")
    assert score(world, pod(gpus=1), [2, 2, 0]) == [0.25, 0.5, 0.0]


def test_cpu_only_pods_are_placed_by_cpu() -> None:
    world = snapshot(
        node("a", cpus=32), node("b", cpus=64), plugins=plugins("nodeplacement"), gpu_strategy="spread"
    )
    assert score(world, pod()) == [9.0, 0.0]
    assert score(snapshot(*world.nodes, plugins=plugins("nodeplacement"), cpu_strategy="spread"), pod()) == [
        1.0,
        1.0,
    ]


def test_cpu_only_pods_keep_away_from_gpu_nodes() -> None:
    mig: Node = node("c", gpus=0, extended=(7,))
    nodes = (
        node("a", gpus=0, extended=(0,)),
        node("b", extended=(0,)),
        mig,
        node("d", gpus=0, extended=(0,), dra_gpus=8),
    )
    world = snapshot(*nodes, extended=("nvidia.com/mig-1g.5gb",), plugins=plugins("resourcetype"))
    assert score(world, pod(extended=(0,))) == [10.0, 0.0, 0.0, 0.0]
    assert score(world, pod(gpus=1, extended=(0,))) == [0.0] * 4


def test_terms_outrank_each_other() -> None:
    # nominated > topology > sharing > free now > packing, on one node each.
    nodes = tuple(node(name) for name in "abcde")
    on = np.eye(5)
    found = score(
        snapshot(*nodes, plugins=ALL),
        pod(gpus=1, nominated="a"),
        [8, 8, 8, 8, 2],
        topology=on[1] * 100_000,
        shared=(on[2] > 0).tolist(),
        now=(on[3] > 0).tolist(),
    )
    assert found == [10_000_000.0, 100_000.0, 10_000.0, 1_000.0, 9.0]


def test_every_term_needs_its_plugin() -> None:
    found = score(
        snapshot(*THREE, plugins=plugins()),
        pod(nominated="a"),
        [1, 2, 3],
        shared=[True] * 3,
        now=[True] * 3,
    )
    assert found == [0.0] * 3


def test_nodes_outside_the_topology_score_map_are_marked() -> None:
    found = score(snapshot(*THREE), pod(), topology=np.array([1e5, np.nan, 2e5]), extra=np.array([5.0, 0, 0]))
    assert np.isnan(found[1])
    assert found[2] - found[0] == 1e5 - 5


def test_a_nominated_node_that_is_gone() -> None:
    assert score(snapshot(*THREE, plugins=plugins("nominatednode")), pod(nominated="z")) == [0.0] * 3
