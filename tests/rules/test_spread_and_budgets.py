"""Topology spread and disruption budgets: options that KAI lacks; if they are on, they are rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kai_cp_models.check import budgets as check_budgets
from kai_cp_models.check import spread as check_spread
from kai_cp_models.check.planned_cluster import PlannedCluster
from kai_cp_models.plan import Decision, Plan
from kai_cp_models.pods import LabelSelector, Pod, Requirement, SpreadConstraint, Toleration
from kai_cp_models.rules.stateful import budgets, open_rules, spread
from kai_cp_models.settings import OptionalRules
from kai_cp_models.snapshot import Node, Snapshot, Taint
from tests.kai_cp_models.rules.stateful.build import pod, snapshot, spec

ON = OptionalRules(topology_spread=True, pod_disruption_budgets=True)
NODES = [
    Node(f"n{i}", (64_000, 2**40, 0, 110), {"zone": zone} if zone else {})
    for i, zone in enumerate(["a", "a", "b", ""])
]


def spreading(name: str, node: str | None = None, skew: int = 1, app: str = "x", **fields: Any) -> Pod:
    selector = LabelSelector((Requirement("app", "In", ("x",)),))
    wants = spec(spread=(SpreadConstraint(skew, "zone", selector),), **fields)
    return pod(name, node, wants=wants, labels={"app": app})


def accepts(found: Snapshot, which: Pod, expected: list[int], nodes: Sequence[Node] = NODES) -> None:
    """State and checker give the same answer for every node."""
    mask = spread.open(found).mask(which, now=False)
    assert mask is not None
    assert [int(x) for x in mask] == expected
    for node, accepted in zip(nodes, expected, strict=True):
        decision = Decision("Nominate", which.key, which.group, node.name, "allocate")
        faults = list(check_spread.broken(PlannedCluster(found, Plan((decision,)), ON)))
        assert (not faults) is bool(accepted), (node.name, faults)


@pytest.mark.parametrize(
    ("standing", "x", "expected"),
    [
        ([], spreading("x"), [1, 1, 1, 0]),
        ([spreading("y", "n0")], spreading("x"), [0, 0, 1, 0]),
        ([spreading("y", "n0")], spreading("x", skew=2), [1, 1, 1, 0]),
        ([spreading("y", "n0"), spreading("z", "n2")], spreading("x"), [1, 1, 1, 0]),
        # It is not one of those that are counted.
        ([spreading("y", "n0")], spreading("x", app="y"), [1, 1, 1, 0]),
        # Zone b is not eligible, so its count of 0 does not matter.
        ([spreading("y", "n0")], spreading("x", node_selector=(("zone", "a"),)), [1, 1, 0, 0]),
    ],
)
def test_spread(standing: list[Pod], x: Pod, expected: list[int]) -> None:
    found = snapshot([*standing, x], NODES)
    if x.spec.node_selector:
        mask = spread.open(found).mask(x, now=False)
        assert mask is not None
        assert [int(m) for m in mask][:2] == expected[:2]
    else:
        accepts(found, x, expected)


def test_no_node_is_in_a_domain() -> None:
    nowhere = [replace(node, labels={}) for node in NODES]
    accepts(snapshot([spreading("x")], nowhere), spreading("x"), [0, 0, 0, 0], nowhere)


TAINTED = (Taint("k", "", "NoSchedule"),)
KINDS = [
    Node(f"n{i}", (64_000, 2**40, 0, 110), {"zone": zone, "kind": kind}, taints)
    for i, (zone, kind, taints) in enumerate([("a", "old", ()), ("a", "new", ()), ("b", "new", TAINTED)])
]


@pytest.mark.parametrize(
    ("constraint", "fields", "expected"),
    [
        # n0 and what is there does not count, or does.
        ({}, {"node_selector": (("kind", "new"),)}, [1, 1, 1]),
        ({"honors_affinity": False}, {"node_selector": (("kind", "new"),)}, [0, 0, 1]),
        # Zone b is empty, and counts or not.
        ({}, {}, [0, 0, 1]),
        ({"honors_taints": True}, {}, [1, 1, 1]),
        ({"honors_taints": True}, {"tolerations": (Toleration("k", "Exists", "", ""),)}, [0, 0, 1]),
        # There are two zones, or too few.
        ({"least_domains": 2}, {}, [0, 0, 1]),
        ({"least_domains": 3}, {}, [0, 0, 1]),
        ({"least_domains": 3, "max_skew": 2}, {}, [1, 1, 1]),
        ({"least_domains": 2, "honors_taints": True}, {}, [0, 0, 1]),
    ],
)
def test_nodes_that_count_and_domains_that_are_too_few(
    constraint: dict[str, Any], fields: dict[str, Any], expected: list[int]
) -> None:
    """y runs on n0. What else refuses a node is not asked."""
    y, x = spreading("y", "n0"), spreading("x", **fields)
    (plain,) = x.spec.spread
    x = replace(x, spec=replace(x.spec, spread=(replace(plain, **constraint),)))
    found = snapshot([y, x], KINDS)
    accepts(found, x, expected, KINDS)
    rows = list(spread.open(found).rows([x], [1], range(3)))
    for node, accepted in enumerate(expected):
        kept = all(row.entering.get((0, node), 0) <= row.bound for row in rows)
        assert kept or not accepted


def test_spread_counts_evicted_and_placed_pods_as_they_will_be() -> None:
    y, x = spreading("y", "n0"), spreading("x")
    state = spread.open(snapshot([y, x], NODES))
    state.evict(y)
    later, now = state.mask(x, now=False), state.mask(x, now=True)
    assert later is not None
    assert now is not None
    assert (list(later), list(now)) == ([True, True, True, False], [False, False, True, False])
    state.place(y, 2, pipelined=True)
    later = state.mask(x, now=False)
    assert later is not None
    assert list(later) == [True, True, False, False]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from([0, 2]), max_size=2), st.lists(st.integers(1, 2), min_size=1, max_size=3))
def test_spread_placements_satisfy_the_rows(standing: list[int], skews: list[int]) -> None:
    olds = [spreading(f"o{i}", NODES[n].name) for i, n in enumerate(standing)]
    news = [spreading(f"p{i}", skew=skew) for i, skew in enumerate(skews)]
    state = spread.open(snapshot([*olds, *news], NODES))
    rows = list(state.rows(news, [1] * len(news), range(len(NODES))))
    for places in product([None, 0, 1, 2], repeat=len(news)):
        trial = state.copy()
        for new, place in zip(news, places, strict=True):
            if place is not None:
                mask = trial.mask(new, now=False)
                if mask is None or not mask[place]:
                    break
                trial.place(new, place, pipelined=False)
        else:
            for row in rows:
                used = sum(row.entering.get((c, p), 0) for c, p in enumerate(places) if p is not None)
                assert used <= row.bound, (places, row)


def budget(name: str, *, status: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    body = {"selector": {"matchLabels": {"app": "x"}}, **fields}
    return {"metadata": {"name": name, "namespace": "ns"}, "spec": body, "status": status or {}}


@pytest.mark.parametrize(
    ("made", "allowed"),
    [
        (budget("b", status={"disruptionsAllowed": 2}), 2),
        (budget("b", maxUnavailable=1), 1),
        (budget("b", minAvailable=3), 1),
        (budget("b", minAvailable="60%"), 1),
        (budget("b", minAvailable="100%"), 0),
        (budget("b", maxUnavailable="30%"), 2),
        (budget("b", selector={"matchLabels": {"app": "y"}}, maxUnavailable=0), 4),
    ],
)
def test_budgets_bound_the_evictions(made: dict[str, Any], allowed: int) -> None:
    pods = [pod(f"p{i}", "n0", labels={"app": "x"}) for i in range(4)]
    found = snapshot(pods, raw={"podDisruptionBudgets": [made]})
    state = budgets.open(found)
    evicted = 0
    for victim in pods:
        if state.evictable(victim):
            state.evict(victim)
            evicted += 1
    assert evicted == allowed
    for row in budgets.open(found).rows([], [], []):
        assert (row.bound, len(row.leaving)) == (allowed, 4)
    for count in range(5):
        evictions = tuple(Decision("Evict", p.key, p.group, "n0", "reclaim") for p in pods[:count])
        faults = list(check_budgets.broken(PlannedCluster(found, Plan(evictions), ON)))
        assert (not faults) is (count <= allowed)


def test_a_pod_of_two_budgets_stays_whatever_they_allow() -> None:
    """The Eviction API refuses it. p1 has one budget."""
    pods = [pod(f"p{i}", "n0", labels={"app": "x", "one": str(i == 1)}) for i in range(2)]
    other = budget("c", selector={"matchLabels": {"one": "False"}}, maxUnavailable=2)
    found = snapshot(pods, raw={"podDisruptionBudgets": [budget("b", maxUnavailable=2), other]})
    state = budgets.open(found)
    assert [state.evictable(one) for one in pods] == [False, True]
    rows = {tuple(row.leaving): row.bound for row in state.rows([], [], [])}
    assert rows == {(pods[0].key,): 0, (pods[1].key,): 2}
    for one, allowed in zip(pods, (False, True), strict=True):
        evicted = Decision("Evict", one.key, one.group, "n0", "reclaim")
        faults = list(check_budgets.broken(PlannedCluster(found, Plan((evicted,)), ON)))
        assert (not faults) is allowed


def test_taking_an_eviction_back_frees_the_budget() -> None:
    pods = [pod(f"p{i}", "n0", labels={"app": "x"}) for i in range(2)]
    state = budgets.open(snapshot(pods, raw={"podDisruptionBudgets": [budget("b", maxUnavailable=1)]}))
    trial = state.copy()
    trial.evict(pods[0])
    assert not trial.evictable(pods[1])
    trial.unevict(pods[0])
    assert trial.evictable(pods[1])
    assert state.evictable(pods[1])


def test_off_unless_the_options_say_so() -> None:
    found = snapshot([spreading("x")], NODES, raw={"podDisruptionBudgets": [budget("b")]})
    assert open_rules(found) == ()
    assert [state.name for state in open_rules(found, ON)] == ["spread", "budgets"]


def test_unreadable_budgets_are_named() -> None:
    found = snapshot([], raw={"podDisruptionBudgets": [budget("b", minAvailable="many")]})
    (item,) = found.set_aside
    assert item.item == "PodDisruptionBudget ns/b"
    assert "neither a number nor a percentage" in item.reason
