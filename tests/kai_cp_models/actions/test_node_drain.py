"""Consolidation's plan without a solver: which pods leave which nodes, in worlds argued by hand and at
random.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from kai_cp_models.actions import admit, jointly
from kai_cp_models.actions.node_drain import NodeDrain
from kai_cp_models.joint.search import Outcome
from kai_cp_models.limits import LIMITS
from kai_cp_models.pods import UNLIMITED, Pod
from kai_cp_models.snapshot import Node, PodGroup, Snapshot, Topology, TopologyConstraint
from tests.support.plans import evicted, lost, nominated, placed, solved
from tests.support.worlds import PLUGINS, cluster, fraction, group, leaf, node, pod, pods, spec, tree

SEEDS = range(12)


@pytest.fixture
def speechless(monkeypatch: pytest.MonkeyPatch) -> None:
    """A solver that never finds a solution."""
    monkeypatch.setattr(jointly, "lexicographic", lambda *_, **__: (None, [], Outcome("unknown", False)))


def world(
    members: Sequence[Pod], groups: Sequence[PodGroup], nodes: Sequence[Node], **policy: Any
) -> Snapshot:
    """Only allocate and consolidation decide, and pods are packed."""
    plugins = PLUGINS | {"nodeplacement", "nodeavailability"}
    actions = ("allocate", "consolidation")
    return cluster(members, groups, nodes, actions=actions, plugins=plugins, **policy)


@pytest.mark.usefixtures("speechless")
class TestByHand:
    def test_the_node_where_least_has_to_move(self) -> None:
        members = [pod("a-0", "n1", spec=spec(3)), pod("b-0", "n2"), pod("last-0", "z", spec=spec(4))]
        plan = solved(world([*members, pod("t-0", spec=spec(8))], [], [node("n1"), node("n2"), node("z")]))
        assert evicted(plan) == {"b-0"}
        assert nominated(plan) == {"b-0": "z", "t-0": "n2"}

    def test_one_large_victim_comes_before_several_small_ones(self) -> None:
        """Two of six GPUs are needed and none is free. The pod with two GPUs leaves, and the pods with one
        stay.
        """
        members = [*pods("a", 2, "n1"), pod("b-0", "n1", spec=spec(2)), pod("c-0", "n1", spec=spec(4))]
        waiting = pod("t-0", spec=spec(2, node_selector=(("host", "n1"),)))
        nodes = [node("n1", labels={"host": "n1"}), node("n2", gpus=2)]
        plan = solved(world([*members, waiting], [group("c", preemptible=False)], nodes))
        assert evicted(plan) == {"b-0"}

    def test_all_members_of_a_shared_device_leave_together(self) -> None:
        shares = [pod(f"s{i}-0", "n1", spec=fraction(400), gpu_groups=("device",)) for i in range(2)]
        plan = solved(world([*shares, pod("t-0", spec=spec(8))], [], [node("n1"), node("n2", gpus=1)]))
        assert placed(plan) == {"t-0"}
        assert evicted(plan) == {"s0-0", "s1-0"}

    def test_a_shared_device_with_a_member_that_stays_gives_nothing(self) -> None:
        shares = [pod(f"s{i}-0", "n1", spec=fraction(400), gpu_groups=("device",)) for i in range(2)]
        fixed = group("s1", preemptible=False)
        plan = solved(world([*shares, pod("t-0", spec=spec(8))], [fixed], [node("n1"), node("n2", gpus=1)]))
        assert not plan.decisions

    def test_a_whole_device_is_cleared_for_a_share(self) -> None:
        """The share fits on n1 alone, whose GPU one pod holds."""
        share = replace(fraction(500), node_selector=(("host", "n1"),))
        nodes = [node("n1", gpus=1, labels={"host": "n1"}), node("n2", gpus=1)]
        plan = solved(world([pod("v-0", "n1"), pod("t-0", spec=share)], [], nodes))
        assert nominated(plan) == {"v-0": "n2", "t-0": "n1"}

    def test_a_group_that_asks_for_more_moves_for_an_earlier_one(self) -> None:
        """t needs all of n1, where a pod of e runs. Once that has moved, the other pod of e gets n3, because
        what runs there fits on n2, too.
        """
        fits = {"n1": "t", "n2": "r", "n3": "e"}
        nodes = [node(name, gpus=2, labels={who: ""}) for name, who in fits.items()]
        sizes = {"r": 1, "e": 2, "t": 2}
        runs, e1, t0 = (spec(size, node_selector=((who, ""),)) for who, size in sizes.items())
        running = [pod("e-0", "n1", spec=runs), pod("v-0", "n3", spec=runs)]
        members = [*running, pod("e-1", spec=e1), pod("t-0", spec=t0)]
        plan = solved(world(members, [group("e"), group("t", priority=70)], nodes))
        assert nominated(plan) == {"e-0": "n2", "t-0": "n1", "v-0": "n2", "e-1": "n3"}

    def test_a_group_that_gets_a_place_gives_up_none_of_its_pods(self) -> None:
        """Each needs a whole node: e, which comes first, n1 or n3, and t only n1, where a pod of e runs.
        There is capacity on n2 for what runs on n1 and n3.
        """
        fits = {"n1": "et", "n2": "v", "n3": "ev"}
        nodes = [node(name, gpus=2, labels=dict.fromkeys(who, "")) for name, who in fits.items()]
        sizes = {"e-1": 2, "t-0": 2, "v-0": 1}
        e1, t0, v0 = (spec(size, node_selector=((who[0], ""),)) for who, size in sizes.items())
        members = [pod("e-0", "n1"), pod("v-0", "n3", spec=v0), pod("e-1", spec=e1), pod("t-0", spec=t0)]
        plan = solved(world(members, [group("e", priority=70)], nodes))
        assert nominated(plan) == {"v-0": "n2", "e-1": "n3"}

    def test_a_node_is_cleared_for_a_gang_that_needs_a_whole_one(self) -> None:
        """The gang needs rack r1, in which one pod holds a whole node. In the other rack one GPU of each node
        is used.
        """
        rack = TopologyConstraint("t", required="rack")
        gang = group("t", root=tree(1, leaf("w", 2, rack)))
        nodes = [
            *(node(f"a{i}", labels={"rack": "r1", "pool": "p"}) for i in range(2)),
            *(node(f"b{i}", labels={"rack": "r2", "pool": f"q{i}"}) for i in range(3)),
        ]
        members = [
            pod("big-0", "a0", spec=spec(8)),
            *(pod(f"small{i}-0", f"b{i}") for i in range(3)),
            *pods("t", 2, spec=spec(8, node_selector=(("pool", "p"),)), subgroup="w"),
        ]
        plan = solved(world(members, [gang], nodes, topologies=(Topology("t", ("rack",)),)))
        assert placed(plan) == {"t-0", "t-1"}
        moved = nominated(plan)
        assert moved["big-0"].startswith("b")
        assert len(evicted(plan)) == 2

    @pytest.mark.parametrize(("most", "served"), [(1, False), (2, True), (UNLIMITED, True)])
    def test_the_ceiling_counts_pods_that_leave_for_a_move(self, most: int, served: bool) -> None:
        """The pod that fills a1 can go to b only when the pod there goes to c."""
        nodes = [
            node("a", labels={"pool": "p"}),
            node("b"),
            node("c", gpus=1),
        ]
        members = [
            pod("big-0", "a", spec=spec(8)),
            pod("small-0", "b"),
            pod("t-0", spec=spec(8, node_selector=(("pool", "p"),))),
        ]
        plan = solved(world(members, [], nodes, max_consolidation_preemptees=most))
        assert (placed(plan) == {"t-0"}) is served
        assert len(evicted(plan)) == (2 if served else 0)


def first_fits(home: str) -> Snapshot:
    """Only consolidation decides. t1 comes first and fits n3. t2 needs both GPUs of n1, whose pod may go
    where ``home`` is a label: to n3, or to n2 as well.
    """
    groups = [group("t1", priority=70), group("t2", priority=60)]
    labels = {"n1": ("one", "any"), "n2": ("any",), "n3": ("one", "any", "t1")}
    nodes = [
        node(name, gpus=1 + (name == "n1"), labels=dict.fromkeys(keys, "")) for name, keys in labels.items()
    ]
    members = [
        pod("v-0", "n1", spec=spec(node_selector=((home, ""),))),
        pod("t1-0", spec=spec(node_selector=(("t1", ""),))),
        pod("t2-0", spec=spec(2)),
    ]
    return cluster(members, groups, nodes, actions=("consolidation",))


@pytest.mark.usefixtures("speechless")
def test_a_group_that_fits_comes_before_moves_for_later_ones() -> None:
    """n3 is the only place for the pod of n1, and t1 has it first."""
    plan = solved(first_fits("one"))
    assert placed(plan) == {"t1-0"}
    assert not evicted(plan)


def test_moves_are_looked_for_beside_groups_that_needed_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where draining only finds the place of t1, the model moves for t2."""
    monkeypatch.setattr(NodeDrain, "_plans", lambda *_: iter(()))
    monkeypatch.setattr(admit, "LIMITS", replace(LIMITS, optional_chunk=1))
    plan = solved(first_fits("any"))
    assert placed(plan) == {"t1-0", "t2-0"}
    assert nominated(plan)["v-0"] == "n2"


@pytest.mark.usefixtures("speechless")
def test_a_constraint_counts_only_with_its_plugin() -> None:
    """Without the plugin, t moves v1 and v2 though they are in no rack; its Topology is not looked for."""
    gone = TopologyConstraint("gone", "rack", error="topology gone does not exist")
    members = [*(pod(f"v{i}-0", f"n{i}", spec=spec(1)) for i in (1, 2, 3)), *pods("t", 2, spec=spec(8))]
    nodes = [*(node(f"n{i}") for i in (1, 2, 3)), node("z", gpus=2)]
    snapshot = world(members, [group("t", 2, constraint=gone)], nodes)
    assert not evicted(solved(snapshot))
    without = replace(snapshot.policy, plugins=snapshot.policy.plugins - {"topology"})
    plan = solved(replace(snapshot, policy=without))
    assert {"t-0", "t-1"} <= placed(plan)
    assert len(evicted(plan)) == 2


def scattered(seed: int) -> Snapshot:
    """Eight nodes, most of them with a few small pods, and groups that need whole nodes."""
    rng = random.Random(seed)
    nodes = [node(f"n{i}") for i in range(8)]
    members: list[Pod] = []
    for one in nodes:
        left = rng.choice((0, 2, 4, 6, 8))
        while left:
            size = rng.choice([size for size in (1, 2, 4) if size <= left])
            left -= size
            members.append(pod(f"v{len(members):02}-0", one.name, spec=spec(size)))
    groups = []
    for i in range(6):
        count = rng.choice((1, 1, 2))
        members += pods(f"t{i}", count, spec=spec(rng.choice((4, 8))))
        groups.append(group(f"t{i}", count, created=float(i)))
    return world(members, groups, nodes)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_solver_takes_nothing_away(seed: int, request: pytest.FixtureRequest) -> None:
    """``solved`` runs the checker. No pod is lost, and the solver serves no group whose refusal was proved
    before.
    """
    snapshot = scattered(seed)
    full = solved(snapshot)
    request.getfixturevalue("speechless")
    first = solved(snapshot)
    assert not lost(first)
    # In the fair order, the first group that only one of the plans serves is served by the plan with the
    # solver.
    order = sorted(key.name for key in snapshot.group_by_key if key.name.startswith("t"))
    served = [[f"{name}-0" in placed(plan) for name in order] for plan in (first, full)]
    assert served[0] <= served[1]
    impossible = {u.group.name for u in first.unscheduled if u.proved}
    assert not impossible & {name.rpartition("-")[0] for name in placed(full)}


def test_the_plan_without_a_solver_is_worth_having(request: pytest.FixtureRequest) -> None:
    """The plan without a solver serves nearly all groups that consolidation serves with the solver."""
    full = [len(placed(solved(scattered(seed)))) for seed in SEEDS]
    request.getfixturevalue("speechless")
    first = [len(placed(solved(scattered(seed)))) for seed in SEEDS]
    assert any(evicted(solved(scattered(seed))) for seed in SEEDS)
    assert sum(first) > 0.9 * sum(full)
