"""Locality of a gang: worst pair, hops, NVLink domains and segments, each argued by hand."""

from __future__ import annotations

from itertools import combinations

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_cp_topology.domains import trees
from kai_cp_topology.fabric import cluster_graph
from kai_cp_topology.locality import hops, locality
from kai_cp_topology.records import Locality, NodeFacts
from tests.kai_cp_topology.build import node, racks

# Two blocks of two GB200 racks with three nodes each: tree of block > rack > clique > node.
NVL = {item.name: item for item in racks(4, 3, blocks=2)}


def of(nodes: dict[str, NodeFacts], levels: tuple[str, ...], gang: dict[str, int]) -> Locality:
    (tree,) = trees(list(nodes.values()), {"dc": levels} if levels else {})
    return locality(cluster_graph(tree, nodes), nodes, gang)


@pytest.mark.parametrize(
    ("gang", "expected"),
    [
        ({"r00n00": 1}, Locality(None, 0, 1, 1)),
        ({"r00n00": 4}, Locality(1800, 0, 1, 4)),
        # Two nodes of one clique: NVLink reaches across, node - clique - node.
        ({"r00n00": 4, "r00n01": 4}, Locality(1800, 2, 1, 8)),
        # Two racks of one block: node - clique - rack - block - rack - clique - node.
        ({"r00n00": 4, "r01n00": 4}, Locality(100, 6, 2, 4)),
        # Two blocks: two edges more. 12 and 8 GPUs divide into segments of 4.
        ({"r00n00": 4, "r00n01": 4, "r00n02": 4, "r03n00": 4, "r03n01": 4}, Locality(100, 8, 2, 4)),
        # 4 and 2 GPUs: segments of 2.
        ({"r00n00": 4, "r01n00": 2, "r02n00": 0}, Locality(100, 6, 2, 2)),
        ({}, Locality(None, 0, 0, 0)),
    ],
)
def test_nvl72(gang: dict[str, int], expected: Locality) -> None:
    assert of(NVL, ("block", "rack"), gang) == expected


def test_hgx_nodes_are_nvlink_domains_of_their_own() -> None:
    nodes = {name: node(name) for name in "ab"}
    assert of(nodes, (), {"a": 8, "b": 8}) == Locality(100, 2, 2, 8)


def test_pairs_on_pcie() -> None:
    nodes = {"a": node("a", product="NVIDIA-H100-NVL")}
    assert of(nodes, (), {"a": 2}).worst_gbytes_per_second == 600
    assert of(nodes, (), {"a": 3}).worst_gbytes_per_second == 128


def test_the_slower_machine_sets_the_worst_pair() -> None:
    nodes = {"a": node("a"), "b": node("b", product="NVIDIA-L40S")}
    assert of(nodes, (), {"a": 1, "b": 1}).worst_gbytes_per_second == 25


def test_a_clique_of_an_unknown_product_counts_as_network() -> None:
    nodes = {name: node(name, product="", clique="c.0") for name in "ab"}
    (tree,) = trees(list(nodes.values()), {})
    assert locality(cluster_graph(tree, nodes), nodes, {"a": 1, "b": 1}).worst_gbytes_per_second == 25


PLACES = st.tuples(st.integers(0, 2), st.integers(0, 1), st.integers(0, 1))


@given(st.lists(PLACES, min_size=1, max_size=8))
def test_hops_are_the_longest_of_all_pairs(places: list[tuple[int, int, int]]) -> None:
    nodes = {
        f"n{i}": node(f"n{i}", zone=f"z{z}", block=f"b{b}", rack=f"r{r}")
        for i, (z, b, r) in enumerate(places)
    }
    (tree,) = trees(list(nodes.values()), {"dc": ("zone", "block", "rack")})
    graph = cluster_graph(tree, nodes)
    pairs = [nx.shortest_path_length(graph, a, b) for a, b in combinations(nodes, 2)]
    assert hops(graph, tuple(nodes)) == max(pairs, default=0)
