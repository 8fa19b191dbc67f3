"""Scales of a cluster, and the locality of a gang: worst pair, hops, NVLink domains and segments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_cp_topology.domains import trees
from kai_cp_topology.fabric import cluster_graph, gpu_graph, hops
from kai_cp_topology.islands import pick
from kai_cp_topology.locality import locality
from kai_cp_topology.records import CLIQUE_LABEL, HOSTNAME_LABEL, Locality, NodeFacts
from kai_cp_topology.scales import Scale, scales
from tests.kai_cp_topology.build import node, racks, worst_pair

NVL = racks(4, 3, blocks=2)
"""Two blocks of two GB200 racks with three nodes each; a rack is one NVLink domain."""
DC = {"dc": ("block", "rack")}


def of(nodes: Sequence[NodeFacts], levels: Mapping[str, Sequence[str]], gang: Mapping[str, int]) -> Locality:
    position = {item.name: i for i, item in enumerate(nodes)}
    held = {position[name]: count for name, count in gang.items()}
    return locality(dict(enumerate(nodes)), ladder(nodes, levels), held)


def ladder(nodes: Sequence[NodeFacts], levels: Mapping[str, Sequence[str]]) -> tuple[Scale, ...]:
    return scales([item.labels for item in nodes], [item.gpus for item in nodes], levels)


@pytest.mark.parametrize(
    ("gang", "expected"),
    [
        ({"r00n00": 1}, Locality(None, 0, HOSTNAME_LABEL, 1, 1)),
        ({"r00n00": 4}, Locality(1800, 0, HOSTNAME_LABEL, 1, 4)),
        # Two nodes of one clique: NVLink reaches across, node - clique - node.
        ({"r00n00": 4, "r00n01": 4}, Locality(1800, 2, CLIQUE_LABEL, 1, 8)),
        # Two racks, which are the cliques, of one block: node - clique - block - clique - node.
        ({"r00n00": 4, "r01n00": 4}, Locality(100, 4, "block", 2, 4)),
        # Two blocks: two edges more. 12 and 8 GPUs divide into segments of 4.
        ({"r00n00": 4, "r00n01": 4, "r00n02": 4, "r03n00": 4, "r03n01": 4}, Locality(100, 6, "", 2, 4)),
        # 4 and 2 GPUs: segments of 2.
        ({"r00n00": 4, "r01n00": 2, "r02n00": 0}, Locality(100, 4, "block", 2, 2)),
        ({}, Locality(None, 0, "", 0, 0)),
    ],
)
def test_nvl72(gang: dict[str, int], expected: Locality) -> None:
    assert of(NVL, DC, gang) == expected


def test_hgx_nodes_are_nvlink_domains_of_their_own() -> None:
    nodes = [node("a"), node("b")]
    assert of(nodes, {}, {"a": 8, "b": 8}) == Locality(100, 2, "", 2, 8)
    assert of(nodes, {}, {"a": 8}) == Locality(900, 0, HOSTNAME_LABEL, 1, 8)


def test_pairs_on_pcie() -> None:
    nodes = [node("a", product="NVIDIA-H100-NVL")]
    assert of(nodes, {}, {"a": 2}).worst_gbytes_per_second == 600
    assert of(nodes, {}, {"a": 3}).worst_gbytes_per_second == 128


def test_the_slower_machine_sets_the_worst_pair() -> None:
    nodes = [node("a"), node("b", product="NVIDIA-L40S")]
    assert of(nodes, {}, {"a": 1, "b": 1}).worst_gbytes_per_second == 25


def test_a_clique_of_an_unknown_product_counts_as_network() -> None:
    nodes = [node(name, product="", clique="c.0") for name in "ab"]
    assert of(nodes, {}, {"a": 1, "b": 1}).worst_gbytes_per_second == 25


def test_a_node_without_a_label_is_far_from_all() -> None:
    """c has no rack label, so it is in no place of the Topology; it is known that a and b share a rack."""
    nodes = [node(name, product="", rack="r", block="x") for name in "ab"] + [
        node("c", product="", block="x")
    ]
    assert of(nodes, DC, {"a": 1, "b": 1}).level == "rack"
    assert of(nodes, DC, {"a": 1, "c": 1}).level == ""


def test_two_topologies_make_one_ladder() -> None:
    """The levels of both count, those with smaller places first: racks of 2, rows of 4, halls of 8."""
    nodes = [
        node(f"n{i}", product="", rack=f"r{i // 2}", hall=f"h{i // 8}", row=f"w{i // 4}") for i in range(16)
    ]
    topologies = {"power": ("row",), "network": ("hall", "rack")}
    found = [(scale.label, scale.hops) for scale in ladder(nodes, topologies)]
    assert found == [("rack", 2), ("row", 4), ("hall", 6)]
    # A node that NVLink joins comes first, and is no step of the path.
    joined = [node(n.name, **{k: v for k, v in n.labels.items() if "." not in k}) for n in nodes]
    found = [(scale.label, scale.hops) for scale in ladder(joined, topologies)]
    assert found == [(CLIQUE_LABEL, 0), ("rack", 2), ("row", 4), ("hall", 6)]
    assert [of(nodes, topologies, {"n0": 1, f"n{i}": 1}).level for i in (1, 2, 4, 8)] == [
        *("rack", "row", "hall", ""),
    ]


def test_levels_that_tell_nothing_new_are_no_scales() -> None:
    """Host names only tell nodes apart, and a rack that equals a clique divides nothing further."""
    labels = ("block", "rack", "host")
    named = [NodeFacts(n.name, {**n.labels, "host": n.name}, n.gpus) for n in NVL]
    assert [scale.label for scale in ladder(named, {"dc": labels})] == [CLIQUE_LABEL, "block"]


def test_a_cluster_without_labels_has_no_scales() -> None:
    assert ladder([node(name, product="") for name in "ab"], {"dc": ("rack",)}) == ()


def test_a_pod_of_two_bridged_cards_has_no_nvlink_domain_of_its_node() -> None:
    """Pairs of cards are joined, all eight are not."""
    assert ladder([node("a", product="NVIDIA-H100-NVL")], {}) == ()


PLACES = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1), st.integers(0, 1)), min_size=1, max_size=8)


@given(PLACES, st.sampled_from(["", "NVIDIA-H100-80GB-HBM3"]))
def test_hops_are_the_longest_of_all_pairs(places: list[tuple[int, int, int]], product: str) -> None:
    nodes = [
        node(f"n{i}", product=product, zone=f"z{z}", block=f"b{b}", rack=f"r{r}")
        for i, (z, b, r) in enumerate(places)
    ]
    levels = {"dc": ("zone", "block", "rack")}
    graph = cluster_graph(trees(nodes, levels)[0])
    names = [item.name for item in nodes]
    pairs = {(a, b): nx.shortest_path_length(graph, a, b) for a, b in combinations(names, 2)}
    assert hops(graph, names) == max(pairs.values(), default=0)
    for (a, b), way in pairs.items():
        assert of(nodes, levels, {a: 1, b: 1}).hops == way
    assert of(nodes, levels, dict.fromkeys(names, 1)).hops == max(pairs.values(), default=0)


@given(
    st.sampled_from(["NVIDIA-H100-80GB-HBM3", "NVIDIA-H100-NVL", "NVIDIA-H200-NVL", "NVIDIA-L40S", ""]),
    st.integers(1, 8),
    st.data(),
)
def test_gpus_of_one_node_are_as_close_as_its_islands(product: str, gpus: int, data: st.DataObject) -> None:
    here = node("a", gpus, product=product)
    count = data.draw(st.integers(1, gpus))
    graph = gpu_graph(here)
    expected = worst_pair(graph, pick(graph, range(gpus), count))
    assert of([here], {}, {"a": count}).worst_gbytes_per_second == expected
