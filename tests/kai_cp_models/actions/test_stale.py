"""Stale gang eviction (4.8): when a gang that runs below its minimum is evicted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kai_cp_models.check.audit import SUBJECTS
from kai_cp_models.check.planned_cluster import PlannedCluster, Violation
from kai_cp_models.engine import decide
from kai_cp_models.pods import PodStatus
from kai_cp_models.settings import OptionalRules
from kai_cp_models.snapshot import Subgroup
from tests.support.plans import SETTINGS, bound, evicted, nominated, solved
from tests.support.rule_objects import objects_of
from tests.support.worlds import NOW, cluster, gpu_bound, group, leaf, node, pod, pods, queue, spec, tree

GRACE: list[tuple[str, dict[str, Any], dict[str, Any], bool]] = [
    ("after the default of 60 s", {"stale_since": NOW - 60}, {}, True),
    ("not a second before", {"stale_since": NOW - 59}, {}, False),
    ("the cluster's own default", {"stale_since": NOW - 59}, {"default_staleness_grace_seconds": 10.0}, True),
    ("the group's own grace", {"stale_since": NOW - 100, "staleness_grace_seconds": 600.0}, {}, False),
    ("the group's own grace is over", {"stale_since": NOW - 10, "staleness_grace_seconds": 5.0}, {}, True),
    ("a negative grace is forever", {"stale_since": NOW - 9e5, "staleness_grace_seconds": -1.0}, {}, False),
    ("a negative default too", {"stale_since": NOW - 9e5}, {"default_staleness_grace_seconds": -1.0}, False),
    ("first seen now", {}, {}, False),
    ("first seen now without grace", {"staleness_grace_seconds": 0.0}, {}, True),
]


@pytest.mark.parametrize(("more", "policy", "goes"), [x[1:] for x in GRACE], ids=[x[0] for x in GRACE])
def test_grace(more: dict[str, Any], policy: dict[str, Any], goes: bool) -> None:
    """Two of three pods run, and there is no third pod."""
    plan = solved(cluster(pods("a", 2, "n1"), [group("a", 3, **more)], **policy))
    assert evicted(plan) == ({"a-0", "a-1"} if goes else set())


OLD: dict[str, Any] = {"stale_since": NOW - 1000}
TREES: list[tuple[str, Subgroup, tuple[tuple[str, str], ...], bool]] = [
    # (gang tree, (pod, status letter) by leaf, whether the gang is evicted)
    ("complete", tree(1, leaf("a", 2)), (("a", "RR"),), False),
    ("one short", tree(1, leaf("a", 3)), (("a", "RR"),), True),
    ("a leaving pod still counts", tree(1, leaf("a", 2)), (("a", "RX"),), False),
    ("a succeeded pod exempts", tree(1, leaf("a", 3)), (("a", "RS"),), False),
    ("nothing runs", tree(1, leaf("a", 2)), (("a", "P"),), False),
    ("minimum zero", tree(1, leaf("a", 0)), (("a", "R"),), False),
    ("one subgroup short", tree(2, leaf("a", 1), leaf("b", 1)), (("a", "R"),), True),
    # Section 14: fix. Only K of N subgroups are needed, so b, which never started, does not make the gang
    # stale.
    ("K of N satisfied", tree(1, leaf("a", 1), leaf("b", 1)), (("a", "R"),), False),
    ("K of N, none satisfied", tree(1, leaf("a", 2), leaf("b", 2)), (("a", "R"), ("b", "R")), True),
]


@pytest.mark.parametrize(("root", "members", "goes"), [x[1:] for x in TREES], ids=[x[0] for x in TREES])
def test_trees(root: Subgroup, members: tuple[tuple[str, str], ...], goes: bool) -> None:
    """Only stalegangeviction runs, so no other action completes the gang."""
    status = {
        "R": PodStatus.RUNNING,
        "X": PodStatus.RELEASING,
        "S": PodStatus.SUCCEEDED,
        "P": PodStatus.PENDING,
    }
    made = [
        pod(f"g-{name}{i}", "n1" if x in "RX" else None, subgroup=name, status=status[x])
        for name, letters in members
        for i, x in enumerate(letters)
    ]
    plan = solved(cluster(made, [group("g", root=root, **OLD)], actions=("stalegangeviction",)))
    running = {p.key.name for p in made if p.status is PodStatus.RUNNING}
    assert evicted(plan) == (running if goes else set())


def test_a_gang_that_is_completed_in_this_cycle_stays() -> None:
    plan = solved(cluster([*pods("a", 2, "n1"), pod("a-2")], [group("a", 3, **OLD)]))
    assert evicted(plan) == set()
    assert set(bound(plan)) == {"a-2"}


def test_a_gang_that_cannot_be_completed_goes_as_a_whole() -> None:
    """The gang itself holds both GPUs, so its third pod has no place."""
    plan = solved(cluster([*pods("a", 2, "n1"), pod("a-2")], [group("a", 3, **OLD)], [node(gpus=2)]))
    assert evicted(plan) == {"a-0", "a-1"}


def test_non_preemptible_gangs_go_too() -> None:
    """Staleness does not depend on priority: an incomplete gang uses GPUs to no purpose."""
    snapshot = cluster(pods("a", 1, "n1"), [group("a", 2, preemptible=False, priority=120, **OLD)])
    assert evicted(solved(snapshot)) == {"a-0"}


@pytest.mark.parametrize("status", [PodStatus.RUNNING, PodStatus.SUCCEEDED])
def test_a_pod_of_an_unknown_subgroup_is_one_of_its_gang(
    status: PodStatus, caplog: pytest.LogCaptureFixture
) -> None:
    """a-1 names no subgroup of a. It leaves with a-0 where it runs, keeps a where it succeeded, and costs the
    stale gang b nothing.
    """
    there = None if status is PodStatus.SUCCEEDED else "n1"
    stray = pod("a-1", there, subgroup="zzz", status=status)
    snapshot = cluster(
        [pod("a-0", "n1"), stray, pod("b-0", "n1")],
        [group("a", 2, **OLD), group("b", 2, **OLD)],
        actions=("stalegangeviction",),
    )
    assert evicted(solved(snapshot)) == ({"b-0"} if there is None else {"a-0", "a-1", "b-0"})
    assert caplog.messages == []


def test_a_gang_that_the_action_fails_with_costs_no_other_gang(monkeypatch: pytest.MonkeyPatch) -> None:
    """The checker says that a may not leave; b, as stale as a, is evicted all the same."""

    def stays(world: PlannedCluster) -> Iterator[Violation]:
        """Nothing evicts a."""
        for one in world.disturbed_groups:
            if one.key.name == "a":
                yield Violation("test", "a stays", groups=(one.key,))

    monkeypatch.setitem(SUBJECTS, "test", stays)
    snapshot = cluster([pod("a-0", "n1"), pod("b-0", "n1")], [group("a", 2, **OLD), group("b", 2, **OLD)])
    assert evicted(decide(snapshot, SETTINGS)) == {"b-0"}


def test_only_when_the_action_is_on() -> None:
    snapshot = cluster(pods("a", 1, "n1"), [group("a", 2, **OLD)], actions=("allocate",))
    assert evicted(solved(snapshot)) == set()


@pytest.mark.parametrize(("allowed", "goes"), [(1, {"b-0", "b-1"}), (2, {"a-0", "a-1", "b-0", "b-1"})])
def test_a_gang_that_a_disruption_budget_protects_stays_as_a_whole(allowed: int, goes: set[str]) -> None:
    """The budget of gang a, which has two pods, allows one eviction; gang b has no budget."""
    protected = {
        "metadata": {"name": "a", "namespace": "ns"},
        "spec": {"selector": {"matchLabels": {"app": "a"}}},
        "status": {"disruptionsAllowed": allowed},
    }
    snapshot = cluster(
        [*pods("a", 2, "n1", labels={"app": "a"}), *pods("b", 2, "n1")],
        [group("a", 3, **OLD), group("b", 3, **OLD)],
        extras=objects_of({"podDisruptionBudgets": [protected]}),
    )
    settings = SETTINGS.model_copy(update={"rules": OptionalRules(pod_disruption_budgets=True)})
    assert evicted(solved(snapshot, settings)) == goes
    assert evicted(solved(snapshot)) == {"a-0", "a-1", "b-0", "b-1"}


@pytest.mark.parametrize("bounds", [{"limit": gpu_bound(8)}, {"quota": gpu_bound(8)}])
def test_a_bound_that_only_a_stale_gang_frees_binds_no_pod_yet(bounds: dict[str, Any]) -> None:
    """q holds all that its limit, or its quota of work that cannot be preempted, allows until a has left: w
    has its place on the idle n2 as soon as that is so, v within the rest at once.
    """
    members = [pod("a-0", "n1", spec=spec(6)), pod("v-0", spec=spec(2)), pod("w-0", spec=spec(4))]
    groups = [group("a", 2, preemptible=False, **OLD)]
    groups += [group("v", preemptible=False, created=1.0), group("w", preemptible=False, created=2.0)]
    actions = ("stalegangeviction", "allocate")
    nodes = [node("n1"), node("n2")]
    plan = solved(cluster(members, groups, nodes, [queue(**bounds)], actions=actions))
    assert (evicted(plan), set(bound(plan)), set(nominated(plan))) == ({"a-0"}, {"v-0"}, {"w-0"})


def test_a_stale_gang_does_not_return_into_its_own_capacity() -> None:
    """t preempts a-0. a-1 goes because a is stale, and no pod of a takes the capacity that this leaves."""
    stale = group("a", root=tree(2, leaf("x", 2), leaf("y", 1)), **OLD)
    sets = {"a-0": ("n1", "x"), "a-1": ("n1", "y"), "a-2": (None, "x")}
    members = [pod(name, at, spec=spec(4), subgroup=one) for name, (at, one) in sets.items()]
    actions = ("allocate", "preempt", "stalegangeviction")
    world = cluster([*members, pod("t-0", spec=spec(4))], [stale, group("t", priority=60)], actions=actions)
    plan = solved(world)
    assert evicted(plan) == {"a-0", "a-1"}
    assert nominated(plan) == {"t-0": "n1"}
