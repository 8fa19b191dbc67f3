"""Topology domains: candidates, order, scores and messages, argued by hand from 8.3 and 8.4."""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_cp_models.domains.choice import Candidates, candidates
from kai_cp_models.domains.tree import TopologyTree
from kai_cp_models.pods import GPU, GpuKind, GpuRequest, Pod
from kai_cp_models.snapshot import Node, Topology, TopologyConstraint
from tests.kai_cp_models.rules.build import node, pod

TREE = Topology("tree", ("zone", "rack"))


def cluster(*racks: tuple[str, list[int]]) -> SimpleNamespace:
    """Nodes of 8 GPUs by ``zone/rack``; the numbers are the free GPUs of each of its nodes."""
    nodes: list[Node] = []
    free: list[int] = []
    for place, gpus in racks:
        zone, rack = place.split("/")
        for count in gpus:
            nodes.append(node(f"n{len(nodes)}", labels={"zone": zone, "rack": rack} if zone else {}))
            free.append(count)
    idle = np.array([item.allocatable for item in nodes], dtype=np.int64)
    idle[:, GPU] = 1000 * np.array(free)
    return SimpleNamespace(nodes=nodes, tree=TopologyTree(TREE, nodes), idle=idle)


def find(
    world: SimpleNamespace,
    pods: list[Pod],
    required: str = "",
    preferred: str = "",
    *,
    active: tuple[int, ...] = (),
    usable: list[int] | None = None,
    shared: dict[int, float] | None = None,
) -> Candidates:
    count = len(world.nodes)
    mask = np.ones(count, dtype=bool)
    if usable is not None:
        mask = np.isin(np.arange(count), usable)
    shared_free = np.zeros(count)
    for index, portion in (shared or {}).items():
        shared_free[index] = portion
    return candidates(
        world.tree,
        TopologyConstraint("tree", required, preferred),
        pods,
        mask,
        world.idle,
        shared_free=shared_free,
        active_nodes=np.array(active, dtype=np.int64),
    )


def tried(found: Candidates) -> list[str]:
    """The node numbers of every candidate, in order."""
    return ["".join(map(str, np.flatnonzero(mask))) for mask in found.masks]


def gang(count: int, gpus: int = 8) -> list[Pod]:
    return [pod(f"p{i}", gpus=gpus) for i in range(count)]


TWO_ZONES = cluster(("a/r1", [8, 8]), ("a/r2", [8, 8, 8]), ("b/r1", [8, 8]), ("b/r3", [8]))


def test_ids_are_paths_so_equal_rack_names_of_two_zones_differ() -> None:
    tree = TWO_ZONES.tree
    assert tree.ids == [("",), ("a", "b"), ("a.r1", "a.r2", "b.r1", "b.r3")]
    assert tree.domain_at("rack").tolist() == [0, 0, 1, 1, 1, 2, 2, 3]
    assert tree.domain_at("").tolist() == [0] * 8
    assert tree.parent[2].tolist() == [0, 0, 1, 1]


def test_only_nodes_with_all_labels_belong() -> None:
    world = cluster(("a/r1", [8, 8]), ("/", [8]))
    assert world.tree.member.tolist() == [True, True, False]
    assert world.tree.domain_at("rack").tolist() == [0, 0, -1]
    assert tried(find(world, gang(1), preferred="rack")) == ["01"]


def test_required_tries_the_tightest_rack_that_fits_first() -> None:
    # Zone a offers 40 GPUs and zone b 24. b is tighter and comes first, and b.r1 alone takes two pods; then
    # come a.r1 (16 free) and a.r2 (24 free).
    assert tried(find(TWO_ZONES, gang(2), "rack")) == ["56", "01", "234"]


def test_preferred_widens_step_by_step_to_the_root() -> None:
    assert tried(find(TWO_ZONES, gang(3), preferred="rack")) == ["234", "567", "01234", "01234567"]


def test_preferred_stops_at_required() -> None:
    assert tried(find(TWO_ZONES, gang(3), "zone", "rack")) == ["234", "567", "01234"]


def test_a_required_level_below_the_preferred_one_still_holds() -> None:
    assert tried(find(TWO_ZONES, gang(3), "rack", "zone")) == ["234"]


def test_equal_siblings_go_by_id() -> None:
    world = cluster(("a/r2", [8]), ("a/r1", [8]))
    assert tried(find(world, gang(1), "rack")) == ["1", "0"]


def test_inside_one_rack_no_node_set_is_tried_twice() -> None:
    # The parent chose rack a.r2: rack, zone and root are the same set of nodes.
    assert tried(find(TWO_ZONES, gang(1), preferred="rack", usable=[2, 3, 4])) == ["234"]
    assert tried(find(TWO_ZONES, gang(1), "zone", usable=[2, 3, 4])) == ["234"]


def test_a_candidate_holds_only_the_nodes_that_came_in() -> None:
    assert tried(find(TWO_ZONES, gang(1), "rack", usable=[0, 4])) == ["0", "4"]


def test_running_pods_pin_the_required_domain() -> None:
    # A pod already runs in zone b, so only b and its racks are left, although r2 of zone a would fit, too.
    assert tried(find(TWO_ZONES, gang(2), "zone", "rack", active=(7,))) == ["56", "567"]


def test_running_pods_do_not_pin_a_preferred_domain() -> None:
    assert tried(find(TWO_ZONES, gang(3), preferred="rack", active=(7,)))[0] == "234"


def test_running_pods_outside_the_tree_leave_no_domain() -> None:
    world = cluster(("a/r1", [8]), ("/", [8]))
    assert find(world, gang(1), "rack", active=(1,)).message == (
        "rack: the domain of its running pods has no usable node"
    )


def test_free_gpus_that_no_node_can_give_to_one_pod_do_not_count() -> None:
    # a.r1 has 8 free GPUs, but four on each node: no pod with 8 GPUs fits.
    world = cluster(("a/r1", [4, 4]), ("a/r2", [8]))
    assert tried(find(world, gang(1), "rack")) == ["2"]


def test_different_sizes_are_judged_by_their_own_needs_after_kais_estimate() -> None:
    # Estimated with 8 GPUs for every pod, rack r1 takes one pod only, although 8 + 4 + 4 fit on its two
    # nodes. r2 fits by the estimate and comes first, although r1 is tighter.
    world = cluster(("a/r1", [8, 8]), ("a/r2", [8, 8, 8]))
    pods = [*gang(1), *gang(2, gpus=4)]
    assert tried(find(world, pods, "rack")) == ["234", "01"]


def test_gpu_and_cpu_pods_together_are_judged_by_their_sum() -> None:
    # Not homogeneous: 16 of 16 GPUs are a ratio of 1 in r1, and 16 of 8 are too many in r2.
    world = cluster(("a/r1", [8, 8]), ("a/r2", [8]))
    assert tried(find(world, [*gang(2), pod("launcher")], "rack")) == ["01"]


def test_shares_may_use_what_is_left_of_shared_gpus() -> None:
    half = [pod(f"p{i}", gpu=GpuRequest(GpuKind.FRACTION, 1, 500)) for i in range(2)]
    world = cluster(("a/r1", [0]), ("a/r2", [0]), ("a/r3", [1]))
    # r1 has half of a shared GPU left: one pod. r2 has two halves and r3 a whole GPU: two pods each.
    found = find(world, half, "rack", shared={0: 0.5, 1: 1.0})
    assert sorted(tried(found)) == ["1", "2"]


def test_shares_by_memory_ask_for_their_part_of_each_nodes_gpu() -> None:
    world = cluster(("a/r1", [1]), ("a/r2", [1]))
    small, large = (
        node(f"n{i}", labels=n.labels, gpu_memory_mib=m)
        for i, (n, m) in enumerate(zip(world.nodes, (40000, 80000), strict=True))
    )
    world.tree = TopologyTree(TREE, [small, large])
    pods = [pod(f"p{i}", gpu=GpuRequest(GpuKind.MEMORY, 1, 0, 40000)) for i in range(2)]
    assert tried(find(world, pods, "rack")) == ["1"]


@pytest.mark.parametrize(
    ("pods", "required", "message"),
    [
        (gang(4), "rack", "rack: needs 4 pods in one domain; the best takes 3 now"),
        (gang(6), "zone", "zone: needs 6 pods in one domain; the best takes 5 now"),
        ([*gang(4), pod("c")], "rack", "rack: needs 4 pods with 8 GPUs in one domain; the best takes 3 now"),
        # Each size fits alone: three pods with 8 GPUs, six with 4. Together they need 48 GPUs.
        (
            [*gang(3), *gang(6, gpus=4)],
            "rack",
            "rack: needs 48 GPUs for 9 pods in one domain; the best has 24 free",
        ),
        (gang(9), "", "topology tree: needs 9 pods in it; it takes 8 now"),
    ],
)
def test_messages_carry_numbers(pods: list[Pod], required: str, message: str) -> None:
    found = find(TWO_ZONES, pods, required, "" if required else "rack")
    assert (found.domains, found.message) == ((), message)


def test_a_constraint_that_cannot_be_read() -> None:
    assert find(TWO_ZONES, gang(1), "row").message == "topology tree has no level row"
    assert find(TWO_ZONES, gang(1)).message == "topology tree: the constraint names no level"
    assert find(TWO_ZONES, gang(1), "rack", usable=[]).message == (
        "topology tree: no usable node has the labels of all its levels"
    )


def test_preferred_domains_with_more_free_capacity_score_higher() -> None:
    # Tree order, tightest first: b (b.r3, b.r1), then a (a.r1, a.r2). 10 * (i + 1) / 4, floored: 2, 5, 7, 10.
    found = find(TWO_ZONES, gang(1), preferred="rack")
    assert found.score is not None
    assert (found.score / 100_000).tolist() == [7, 7, 10, 10, 10, 5, 5, 2]


def test_scores_stay_inside_the_common_domain() -> None:
    # All usable nodes are in zone b. Its two racks score 5 and 10; zone a has no score.
    found = find(TWO_ZONES, gang(1), preferred="rack", usable=[5, 6, 7])
    assert found.score is not None
    assert (found.score[5:] / 100_000).tolist() == [10, 10, 5]
    assert np.isnan(found.score[:5]).all()


def test_no_score_without_a_preferred_level() -> None:
    assert find(TWO_ZONES, gang(1), "rack").score is None


def packs(sizes: tuple[int, ...], free: tuple[int, ...]) -> bool:
    """Whether whole-GPU pods fit on nodes, by trying everything."""
    return any(
        all(
            sum(s for s, at in zip(sizes, places, strict=True) if at == i) <= room
            for i, room in enumerate(free)
        )
        for places in product(range(len(free)), repeat=len(sizes))
    )


@given(
    st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=2), min_size=1, max_size=3),
    st.lists(st.integers(1, 4), min_size=1, max_size=4),
)
def test_no_rack_that_can_take_the_gang_is_left_out(racks: list[list[int]], sizes: list[int]) -> None:
    world = cluster(*((f"a/r{i}", free) for i, free in enumerate(racks)))
    found = find(world, [pod(f"p{i}", gpus=size) for i, size in enumerate(sizes)], "rack")
    offered = {index for _, index in found.domains}
    assert {i for i, free in enumerate(racks) if packs(tuple(sizes), tuple(free))} <= offered
    assert bool(found.message) == (not offered)


SHARED_HALF = st.sampled_from([0, 300, 500])


@given(
    st.lists(st.tuples(st.integers(0, 2), SHARED_HALF), min_size=1, max_size=3),
    st.lists(st.sampled_from([200, 300, 500, 700, 1000]), min_size=1, max_size=4),
)
def test_no_rack_that_can_take_the_shares_is_left_out(
    racks: list[tuple[int, int]], portions: list[int]
) -> None:
    # Every rack is one node with free whole GPUs and one shared GPU that is partly free: bins to be filled.
    world = cluster(*((f"a/r{i}", [whole]) for i, (whole, _) in enumerate(racks)))
    pods = [pod(f"p{i}", gpu=GpuRequest(GpuKind.FRACTION, 1, portion)) for i, portion in enumerate(portions)]
    found = find(world, pods, "rack", shared={i: left / 1000 for i, (_, left) in enumerate(racks)})
    fitting = {
        i
        for i, (whole, left) in enumerate(racks)
        if packs(tuple(portions), (left, *(1000 for _ in range(whole))))
    }
    assert fitting <= {index for _, index in found.domains}
