"""Trees of domains: which nodes belong to which domain, and at which level the NVLink domain lies."""

from __future__ import annotations

from kai_cp_topology.capacity import largest_gangs, usual_sizes
from kai_cp_topology.domains import clique_position, trees
from kai_cp_topology.records import CLIQUE_LABEL, NodeFacts, Tree
from tests.kai_cp_topology.build import node, racks


def paths(tree: Tree) -> list[str]:
    return [".".join(domain.path) for domain in tree.domains]


def facts(nodes: list[NodeFacts]) -> dict[str, NodeFacts]:
    return {item.name: item for item in nodes}


def test_a_clique_per_rack_nests_below_the_rack() -> None:
    (tree,) = trees(racks(2, 2), {"dc": ("block", "rack")})
    assert [level.label for level in tree.levels] == ["block", "rack", CLIQUE_LABEL]
    assert paths(tree) == ["", "b0", "b0.r00", "b0.r00.fabric.0", "b0.r01", "b0.r01.fabric.1"]
    assert tree.root.gpus == 16


def test_a_clique_over_two_racks_nests_above_them() -> None:
    nodes = [node(f"n{i}", clique=f"c.{i // 4}", block="b", rack=f"r{i // 2}") for i in range(8)]
    assert clique_position(nodes, ("block", "rack")) == 1
    (tree,) = trees(nodes, {"dc": ("block", "rack")})
    assert [level.label for level in tree.levels] == ["block", CLIQUE_LABEL, "rack"]


def test_a_clique_that_crosses_racks_gets_a_tree_of_its_own() -> None:
    # c.0 holds n0 and n2, c.1 holds n1 and n3: neither contains a rack nor lies in one.
    nodes = [node(f"n{i}", clique=f"c.{i % 2}", rack=f"r{i // 2}") for i in range(4)]
    found = trees(nodes, {"dc": ("rack",)})
    assert [tree.name for tree in found] == ["dc", "nvlink"]
    assert paths(found[0]) == ["", "r0", "r1"]
    assert paths(found[1]) == ["", "c.0", "c.1"]


def test_a_topology_that_names_the_clique_is_left_as_it_is() -> None:
    (tree,) = trees(racks(2, 1), {"dc": ("block", CLIQUE_LABEL)})
    assert [level.label for level in tree.levels] == ["block", CLIQUE_LABEL]


def test_a_node_without_a_clique_stays_in_its_rack() -> None:
    nodes = [*racks(1, 2), node("plain", block="b0", rack="r00")]
    (tree,) = trees(nodes, {"dc": ("block", "rack")})
    by_path = {domain.path: domain for domain in tree.domains}
    assert by_path[("b0", "r00")].nodes == ("plain", "r00n00", "r00n01")
    assert by_path[("b0", "r00", "fabric.0")].nodes == ("r00n00", "r00n01")


def test_below_a_missing_clique_the_parent_is_the_rack() -> None:
    nodes = [
        node("a", clique="c.0", rack="r0", host="a"),
        node("a2", clique="c.0", rack="r0", host="a2"),
        node("b", rack="r0", host="b"),
    ]
    (tree,) = trees(nodes, {"dc": ("rack", "host")})
    assert [level.label for level in tree.levels] == ["rack", CLIQUE_LABEL, "host"]
    lonely = next(domain for domain in tree.domains if domain.name == "b")
    assert lonely.parent == ("r0",)


def test_nodes_without_a_level_are_outside() -> None:
    (tree,) = trees([node("a", rack="r0"), node("b")], {"dc": ("rack",)})
    assert (tree.root.nodes, tree.outside) == (("a",), ("b",))


def test_a_cluster_without_levels_has_one_root() -> None:
    (tree,) = trees([node("a"), node("b")], {})
    assert (tree.name, tree.root.nodes, len(tree.domains)) == ("cluster", ("a", "b"), 1)


def test_equal_names_under_different_parents_are_different_domains() -> None:
    (tree,) = trees([node("a", zone="x", rack="1"), node("b", zone="y", rack="1")], {"dc": ("zone", "rack")})
    assert paths(tree) == ["", "x", "x.1", "y", "y.1"]


def test_every_topology_has_its_tree() -> None:
    nodes = [node("a", zone="x", rack="1")]
    assert [tree.name for tree in trees(nodes, {"b": ("zone",), "a": ("rack",)})] == ["a", "b"]


def test_largest_gangs_count_whole_pods_per_node() -> None:
    # r0: 3 + 3 free, r1: 4 + 1 free. Pods of 1: 6 and 5; of 2: 2 and 2; of 4: 0 and 1.
    nodes = [
        node("a", 4, 3, rack="r0"),
        node("b", 4, 3, rack="r0"),
        node("c", 4, 4, rack="r1"),
        node("d", 4, 1, rack="r1"),
    ]
    (tree,) = trees(nodes, {"dc": ("rack",)})
    found = {(c.level, c.pod_gpus): (c.pods, c.where) for c in largest_gangs(tree, facts(nodes), (1, 2, 4))}
    assert found == {
        ("", 1): (11, ()),
        ("", 2): (4, ()),
        ("", 4): (1, ()),
        ("rack", 1): (6, ("r0",)),
        ("rack", 2): (2, ("r0",)),
        ("rack", 4): (1, ("r1",)),
    }


def test_pod_sizes_end_at_the_largest_node() -> None:
    assert usual_sizes([node("a", 4), node("b", 0)]) == (1, 2, 4)
    assert usual_sizes([]) == ()
