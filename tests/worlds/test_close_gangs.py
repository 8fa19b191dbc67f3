"""Gangs go to the closest place in which all of the gang fits, each world argued by hand."""

from __future__ import annotations

from typing import Any

import pytest

from kai_cp_models.pods import PodStatus
from kai_cp_models.settings import Settings
from kai_cp_models.snapshot import Node, Snapshot, Topology, TopologyConstraint
from kai_cp_topology.records import CLIQUE_LABEL, PRODUCT_LABEL
from tests.support.plans import SETTINGS, bound, nominated, placed, solved
from tests.support.worlds import PLUGINS, cluster, fraction, group, leaf, node, pod, pods, spec, tree

OFF = Settings.model_validate({"solver": SETTINGS.solver, "objective": {"close_gangs": False}})
DC = (Topology("dc", ("block", "rack")),)
PACKING = frozenset({*PLUGINS, "nodeplacement", "resourcetype"})


def only_allocate(*args: Any, **more: Any) -> Snapshot:
    return cluster(*args, actions=("allocate",), **more)


def at(name: str, clique: str = "", gpus: int = 8, cpus: int = 64, **labels: str) -> Node:
    """A node in an NVLink domain and in places of other levels."""
    return node(name, gpus, cpus, labels={**labels, CLIQUE_LABEL: clique} if clique else labels)


def racked(name: str, block: str, rack: str, gpus: int = 8) -> Node:
    return at(name, gpus=gpus, block=block, rack=rack)


# --- NVLink domains ------------------------------------------------------------------------------

DOMAIN = {"n1": "a", "n2": "b", "n3": "a", "n4": "b"}


def two_domains(count: int) -> Snapshot:
    """n1 and n2 are half full and lie in different domains. A gang of pods of 4 GPUs waits."""
    running = [pod("x-0", "n1", spec=spec(4)), pod("y-0", "n2", spec=spec(4))]
    nodes = [at(name, clique) for name, clique in DOMAIN.items()]
    return only_allocate([*running, *pods("g", count, spec=spec(4))], [group("g", count)], nodes)


def test_a_gang_prefers_one_nvlink_domain() -> None:
    """Without the preference the first nodes are chosen, which lie in different domains."""

    def used(settings: Settings) -> set[str]:
        return {DOMAIN[name] for name in bound(solved(two_domains(2), settings)).values()}

    assert (len(used(SETTINGS)), len(used(OFF))) == (1, 2)


def test_a_gang_that_fits_no_place_starts_all_the_same() -> None:
    assert len(bound(solved(two_domains(6)))) == 6


def test_a_growing_gang_stays_in_its_nvlink_domain() -> None:
    """The first pod runs in domain b; packing alone would choose n1, which has least free."""
    nodes = [at("n1", "a"), at("n2", "b")]
    running = [pod("x-0", "n1", spec=spec(6)), pod("g-0", "n2", spec=spec(2))]
    plan = solved(only_allocate([*running, pod("g-1", spec=spec(2))], [group("g", 1)], nodes))
    assert bound(plan) == {"g-1": "n2"}


def test_a_growing_gang_stays_in_its_rack_when_its_nvlink_domain_is_full() -> None:
    """Domain b is full. c is in the same rack, and a, which has least free, in another one."""
    nodes = [
        at("n1", "a", rack="x"),
        at("n2", "b", rack="y"),
        at("n3", "c", rack="y"),
        at("n4", "c", rack="y"),
    ]
    running = [pod("x-0", "n1", spec=spec(4)), pod("g-0", "n2", spec=spec(8))]
    snapshot = only_allocate(
        [*running, pod("g-1", spec=spec(4))], [group("g", 1)], nodes, topologies=(Topology("dc", ("rack",)),)
    )
    assert bound(solved(snapshot)) == {"g-1": "n3"}
    assert bound(solved(snapshot, OFF)) == {"g-1": "n1"}


def test_a_gang_that_fits_no_nvlink_domain_uses_few() -> None:
    """Two nodes of domain a and one each of b and c: by name alone each pod would lie in another domain."""
    cliques = {"n1": "b", "n2": "a", "n3": "c", "n4": "a"}
    nodes = [at(name, clique) for name, clique in cliques.items()]
    snapshot = only_allocate(pods("g", 3, spec=spec(8)), [group("g", 3)], nodes)
    used, without = (
        {cliques[name] for name in bound(solved(snapshot, settings)).values()} for settings in (SETTINGS, OFF)
    )
    assert used == {"a", "b"}
    assert without == {"a", "b", "c"}


def test_the_largest_place_is_filled_first() -> None:
    """a and b hold the 14 GPUs together. Packing alone would begin in c, where least is free."""
    nodes = [at(f"n{i}", "ccaabb"[i], gpus=(2, 2, 3, 8, 4, 4)[i]) for i in range(6)]
    snapshot = only_allocate(pods("g", 14), [group("g", 14)], nodes, plugins=PACKING)
    assert set(bound(solved(snapshot)).values()) == {"n2", "n3", "n4"}
    assert {"n0", "n1"} < set(bound(solved(snapshot, OFF)).values())


def test_wide_places_are_filled_before_close_ones() -> None:
    """Five nodes belong to no block. All four nodes of block b come first, although rack r has most."""
    nodes = [
        *(racked(f"n{i}", "c", "r") for i in range(3)),
        *(racked(f"o{i}", "b", "pq"[i // 2]) for i in range(4)),
    ]
    snapshot = only_allocate(pods("g", 5, spec=spec(8)), [group("g", 5)], nodes, topologies=DC)
    assert {f"o{i}" for i in range(4)} < set(bound(solved(snapshot)).values())


def test_places_where_the_gang_is_are_filled_first() -> None:
    """One node is free in each rack, and one of the gang's three pods runs in the last rack."""
    nodes = [at(f"n{i}", rack="qrpp"[i]) for i in range(4)]
    members = [pod("g-0", "n2", spec=spec(8)), *(pod(f"g-{i}", spec=spec(8)) for i in (1, 2))]
    snapshot = only_allocate(members, [group("g", 3)], nodes, topologies=(Topology("dc", ("rack",)),))
    assert set(bound(solved(snapshot)).values()) == {"n3", "n0"}


# --- one node ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("product", "together"), [("NVIDIA-H100-80GB-HBM3", True), ("NVIDIA-L40S", False)])
def test_a_node_joined_by_nvlink_is_a_place(product: str, together: bool) -> None:
    """One pod fits on n1, both fit on n2. Packing begins with n1; the cards on PCIe make no difference."""
    nodes = [node(f"n{i}", labels={PRODUCT_LABEL: product}) for i in (1, 2)]
    snapshot = only_allocate(
        [pod("x-0", "n1", spec=spec(4)), *pods("g", 2, spec=spec(4))], [group("g", 2)], nodes, plugins=PACKING
    )
    assert (set(bound(solved(snapshot)).values()) == {"n2"}) is together


def test_spreading_means_nodes_not_places() -> None:
    """Pods spread over the nodes of one NVLink domain, although one node could take both."""
    nodes = [at("n1", "a"), at("n2", "b"), at("n3", "b")]
    running = [pod("x-0", "n1", spec=spec(1)), pod("y-0", "n2", spec=spec(4)), pod("y-1", "n3", spec=spec(4))]
    snapshot = only_allocate(
        [*running, *pods("g", 2, spec=spec(1))],
        [group("g", 2)],
        nodes,
        plugins=PACKING,
        gpu_strategy="spread",
    )
    assert set(bound(solved(snapshot)).values()) == {"n2", "n3"}


# --- levels of topologies ------------------------------------------------------------------------


def test_one_rack_when_no_nvlink_domain_holds_the_gang() -> None:
    """Four pods need a node each; an NVLink domain has two nodes. Only rack r has four."""
    nodes = [at(f"n{i}", "abcdcdab"[i], rack="strrrrst"[i]) for i in range(8)]
    snapshot = only_allocate(
        pods("g", 4, spec=spec(8)), [group("g", 4)], nodes, topologies=(Topology("dc", ("rack",)),)
    )
    assert set(bound(solved(snapshot)).values()) == {"n2", "n3", "n4", "n5"}
    assert set(bound(solved(snapshot, OFF)).values()) == {"n0", "n1", "n2", "n3"}


def test_the_place_with_least_free_capacity_is_taken() -> None:
    """Racks q, r and s have 2, 3 and 2 free nodes; q is listed last, and s has a half-full node beside."""
    nodes = [
        *(racked(f"n{i}", "b", "r") for i in range(3)),
        *(racked(f"o{i}", "b", "s") for i in range(3)),
        *(racked(f"p{i}", "b", "q") for i in range(2)),
    ]
    running = [pod("x-0", "o0", spec=spec(4))]
    snapshot = only_allocate([*running, *pods("g", 2, spec=spec(8))], [group("g", 2)], nodes, topologies=DC)
    assert set(bound(solved(snapshot)).values()) == {"p0", "p1"}


def test_a_gang_that_one_node_can_take_goes_to_the_fullest() -> None:
    """Rack r has 8 free GPUs and rack s 12, but in s a node with 4 takes all three pods, as packing would."""
    nodes = [racked("n0", "b", "r"), racked("n1", "b", "s"), racked("n2", "b", "s", gpus=4)]
    waiting = pods("g", 3, spec=spec(1))
    snapshot = only_allocate(waiting, [group("g", 3)], nodes, topologies=DC, plugins=PACKING)
    assert set(bound(solved(snapshot)).values()) == {"n2"}


def test_nodes_without_labels_are_far_from_all() -> None:
    """n1 and n2 name no rack, so it is not known how close they are."""
    nodes = [at("n1", block="b"), at("n2"), racked("n3", "b", "r"), racked("n4", "b", "r")]
    snapshot = only_allocate(pods("g", 2, spec=spec(8)), [group("g", 2)], nodes, topologies=DC)
    assert set(bound(solved(snapshot)).values()) == {"n3", "n4"}
    both = only_allocate(pods("g", 3, spec=spec(8)), [group("g", 3)], nodes, topologies=DC)
    assert {"n3", "n4"} < set(bound(solved(both)).values())


def test_the_levels_of_all_topologies_count() -> None:
    """Racks of one Topology, rows of another: n2 and n3 share only a row, n3 and n4 a rack; n1 is apart."""
    nodes = [
        at("n1", gpus=4, rack="p", row="v"),
        at("n2", gpus=4, rack="q", row="w"),
        at("n3", gpus=4, rack="r", row="w"),
        at("n4", gpus=4, rack="r", row="w"),
    ]
    two = (Topology("network", ("rack",)), Topology("power", ("row",)))
    busy = [pod("x-0", "n4", spec=spec(4))]
    free = only_allocate(pods("g", 2, spec=spec(4)), [group("g", 2)], nodes, topologies=two)
    assert set(bound(solved(free)).values()) == {"n3", "n4"}
    row = only_allocate([*busy, *pods("g", 2, spec=spec(4))], [group("g", 2)], nodes, topologies=two)
    assert set(bound(solved(row)).values()) == {"n2", "n3"}


def test_below_a_required_level_the_gang_is_close_too() -> None:
    """Any block is allowed; inside block b rack s has exactly enough for the gang."""
    nodes = [*(racked(f"m{i}", "b", "r") for i in range(3)), racked("n2", "b", "s"), racked("n3", "b", "s")]
    wants = group("g", 2, constraint=TopologyConstraint("dc", required="block"))
    snapshot = only_allocate(pods("g", 2, spec=spec(8)), [wants], nodes, topologies=DC)
    assert set(bound(solved(snapshot)).values()) == {"n2", "n3"}
    assert set(bound(solved(snapshot, OFF)).values()) == {"m0", "m1"}


def test_subgroups_are_close_where_the_gang_cannot_be() -> None:
    """No rack holds three subgroups of two. Each lies in one rack, two of them in rack p, which has most."""
    nodes = [at(f"n{i}", rack="qqrrpppp"[i]) for i in range(8)]
    root = tree(3, *(leaf(x, 2) for x in "xyz"))
    members = [pod(f"g-{x}{i}", spec=spec(8), subgroup=x) for i in range(2) for x in "xyz"]
    snapshot = only_allocate(members, [group("g", root=root)], nodes, topologies=(Topology("dc", ("rack",)),))
    where = bound(solved(snapshot))
    racks = [{nodes[int(where[f"g-{x}{i}"][1:])].labels["rack"] for i in range(2)} for x in "xyz"]
    assert racks == [{"p"}, {"p"}, {"q"}]


def test_subgroups_are_closer_inside_the_place_of_the_gang() -> None:
    """The gang lies in rack r and each of its two subgroups in one NVLink domain, whatever the order of
    the pods.
    """
    nodes = [at(f"n{i}", "abab"[i], gpus=4, rack="r") for i in range(4)]
    root = tree(2, leaf("x", 2), leaf("y", 2))
    members = [pod(f"g-{x}{i}", spec=spec(4), subgroup=x) for i in range(2) for x in "xy"]
    snapshot = only_allocate(members, [group("g", root=root)], nodes, topologies=(Topology("dc", ("rack",)),))
    where = bound(solved(snapshot))
    assert {where["g-x0"], where["g-x1"]} in ({"n0", "n2"}, {"n1", "n3"})


def test_a_preferred_level_comes_first() -> None:
    """The gang prefers one feed, although rack r would be closer: KAI's rule decides."""
    topologies = (Topology("net", ("rack",)), Topology("power", ("feed",)))
    nodes = [
        at("n1", rack="r", feed="x"),
        at("n2", rack="r", feed="y"),
        at("n3", rack="s", feed="z"),
        at("n4", rack="t", feed="z"),
    ]
    wants = group("g", 2, constraint=TopologyConstraint("power", preferred="feed"))
    snapshot = only_allocate(pods("g", 2, spec=spec(8)), [wants], nodes, topologies=topologies)
    assert set(bound(solved(snapshot)).values()) == {"n3", "n4"}
    plain = only_allocate(pods("g", 2, spec=spec(8)), [group("g", 2)], nodes, topologies=topologies)
    assert set(bound(solved(plain)).values()) == {"n1", "n2"}


def test_segments_of_a_required_level_lie_in_one_wider_place() -> None:
    """Two segments, each in one rack: blocks c and d have one free rack each, block b has two."""
    segment = TopologyConstraint("dc", required="rack")
    root = tree(2, leaf("x", 2, segment), leaf("y", 2, segment))
    nodes = [
        *(racked(f"n{i}", "c", "p") for i in range(2)),
        *(racked(f"o{i}", "d", "q") for i in range(2)),
        *(racked(f"p{i}", "b", "rs"[i // 2]) for i in range(4)),
    ]
    members = [pod(f"g-{x}{i}", spec=spec(8), subgroup=x) for x in "xy" for i in range(2)]
    snapshot = only_allocate(members, [group("g", root=root)], nodes, topologies=DC)
    assert set(bound(solved(snapshot)).values()) == {"p0", "p1", "p2", "p3"}


# --- pods of a gang that hold no whole GPU -------------------------------------------------------


def test_a_launcher_without_gpus_is_not_bound_to_the_place() -> None:
    """The workers take domain b; the launcher goes where KAI places pods without GPUs."""
    nodes = [at("n1", "a", gpus=4), at("n2", "b"), node("n3", gpus=0)]
    members = [pod("g-0", spec=spec(0)), *(pod(f"g-{i}", spec=spec(4)) for i in (1, 2))]
    plan = solved(only_allocate(members, [group("g", 3)], nodes, plugins=PACKING))
    assert bound(plan) == {"g-0": "n3", "g-1": "n2", "g-2": "n2"}


def test_shares_of_gpus_are_left_to_kai() -> None:
    """Two halves fill the device that is shared already, wherever it is."""
    nodes = [at("n1", "a", gpus=1), at("n2", "b", gpus=2)]
    running = [pod("x-0", "n1", spec=fraction(500), gpu_groups=["s"])]
    waiting = pods("g", 2, spec=fraction(500))
    snapshot = only_allocate(
        [*running, *waiting], [group("g", 2)], nodes, plugins=PLUGINS | {"gpusharingorder"}
    )
    assert set(bound(solved(snapshot)).values()) == {"n1", "n2"}


# --- beside others -------------------------------------------------------------------------------


def test_groups_that_the_solver_placed_are_drawn_together() -> None:
    """Three pods of 2 GPUs come first, one on each node: then a pod of 8 fits on no node. The solver
    packs them, and the gang of whole nodes ends in one rack.
    """
    nodes = [racked(f"n{i}", "b", "pqrr"[i]) for i in range(4)]
    first = [pod(f"{x}-0", spec=spec(2)) for x in "abc"]
    groups = [*(group(x, created=float(i)) for i, x in enumerate("abc")), group("g", 2, created=9.0)]
    snapshot = only_allocate(
        [*first, *pods("g", 2, spec=spec(8))],
        groups,
        nodes,
        topologies=DC,
        gpu_strategy="spread",
        plugins=PACKING,
    )
    plan = solved(snapshot)
    assert plan.stages[0].variables > 0
    where = bound(plan)
    assert len(where) == 5
    assert {where["g-0"], where["g-1"]} == {"n2", "n3"}


def test_all_gangs_are_placed_before_any_is_placed_close() -> None:
    """If the first gang lay together, no rack would be left for the second gang, which needs one."""
    nodes = [racked("n1", "b", "p"), racked("n2", "b", "p"), racked("n3", "b", "q"), racked("n4", "c", "r")]
    needs = group("h", 2, created=2.0, constraint=TopologyConstraint("dc", required="rack"))
    waiting = [*pods("g", 2, spec=spec(8)), *pods("h", 2, spec=spec(8))]
    plan = solved(only_allocate(waiting, [group("g", 2, created=1.0), needs], nodes, topologies=DC))
    where = bound(plan)
    assert {where["h-0"], where["h-1"]} == {"n1", "n2"}
    assert len(where) == 4


def test_capacity_that_is_free_now_comes_before_closeness() -> None:
    """Rack p becomes free later; the gang starts now, in two racks."""
    nodes = [racked("n1", "b", "p"), racked("n2", "b", "p"), racked("n3", "b", "q"), racked("n4", "c", "r")]
    leaving = [pod(f"x-{i}", f"n{i + 1}", spec=spec(8), status=PodStatus.RELEASING) for i in range(2)]
    waiting = pods("g", 2, spec=spec(8))
    plugins = PLUGINS | {"nodeavailability"}
    snapshot = only_allocate([*leaving, *waiting], [group("g", 2)], nodes, topologies=DC, plugins=plugins)
    assert set(bound(solved(snapshot)).values()) == {"n3", "n4"}


def test_a_gang_that_evicts_is_close_in_what_it_gets() -> None:
    """All nodes become free for the gang, which is nominated in one rack."""
    nodes = [racked("n1", "b", "p"), racked("n2", "b", "q"), racked("n3", "c", "r"), racked("n4", "c", "r")]
    running = [pod("x-0", "n3", spec=spec(8)), pod("y-0", "n4", spec=spec(8))]
    fixed = [pod("v-0", "n1", spec=spec(8)), pod("w-0", "n2", spec=spec(8))]
    groups = [
        *(group(x, priority=1) for x in "xy"),
        *(group(x, priority=100, preemptible=False) for x in "vw"),
        group("g", 2, priority=60),
    ]
    snapshot = cluster([*running, *fixed, *pods("g", 2, spec=spec(8))], groups, nodes, topologies=DC)
    plan = solved(snapshot)
    assert placed(plan) == {"g-0", "g-1"}
    assert set(nominated(plan).values()) == {"n3", "n4"}
