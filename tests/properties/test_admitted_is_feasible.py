"""The model of an explanation calls feasible whatever the engine admits: its rows never refuse too much."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_cp.reader import parse
from kai_cp_models.engine import decide
from kai_cp_models.explain import cells
from kai_cp_models.explain.blocking import blocking_of, solver_for
from kai_cp_models.explain.feasibility import Feasibility
from kai_cp_models.explain.question import Question
from kai_cp_models.explain.situation import Situation
from kai_cp_models.pods import GroupKey
from kai_cp_models.snapshot import Snapshot
from kai_cp_models.solver import cp_model, run
from tests.support import objects as raw
from tests.support.brute import worlds
from tests.support.clusters import FEATURES, clusters, random_cluster
from tests.support.plans import UNHURRIED


def without(situation: Situation, key: GroupKey) -> Situation:
    """The cycle without what it did for one pod group."""
    plan = situation.plan
    gone = {one.pod for one in plan.decisions if one.kind == "Evict" and set(one.triggers) <= {key}}
    gone = {pod for pod in gone if situation.evicted[pod].triggers}
    kept = [one for one in plan.decisions if one.group != key and one.pod not in gone]
    return replace(situation, plan=replace(plan, decisions=tuple(kept)))


def blocked_though_admitted(snapshot: Snapshot) -> list[str]:
    """Pod groups that the cycle admits and the model refuses."""
    situation = Situation(snapshot, UNHURRIED, decide(snapshot, UNHURRIED))
    found = []
    for group in snapshot.waiting_groups:
        if situation.state(group.key) != "admitted":
            continue
        named = [one for one in situation.evicted.values() if group.key in one.triggers]
        if any(len(one.triggers) > 1 for one in named):
            continue  # An eviction for several pod groups cannot be undone for one of them.
        later = [p for p in situation.given.values() if p.group != group.key and p.action != "allocate"]
        if named and (later or len(named) < len(situation.evicted)):
            # What other groups took later, or took of the remaining capacity, counts as taken before.
            continue
        result = blocking_of(without(situation, group.key), group)
        if result.sets:
            found.append(f"{group.key}: {[sorted(families) for families in result.sets]}")
    return found


@worlds(25)
@given(clusters())
def test_an_admitted_group_is_never_blocked(cluster: raw.Object) -> None:
    snapshot = parse(cluster, now=raw.NOW.timestamp())
    assert blocked_though_admitted(snapshot) == []


@pytest.mark.parametrize("seed", range(6))
def test_every_feature_at_once(seed: int) -> None:
    snapshot = parse(random_cluster(seed), now=raw.NOW.timestamp())
    assert blocked_though_admitted(snapshot) == []


@worlds(25)
@given(clusters(FEATURES - {"actions"}))
def test_nor_where_nodes_and_pods_are_counted_together(cluster: raw.Object) -> None:
    snapshot = parse(cluster, now=raw.NOW.timestamp())
    with patch.object(cells, "MOST_NODES", 0):
        assert blocked_though_admitted(snapshot) == []


@worlds(10)
@given(st.integers(0, 2**32 - 1))
def test_a_set_refused_by_counts_is_refused_by_the_exact_model(seed: int) -> None:
    """In clusters of up to 12 nodes with shares, a set that blocks when counted blocks in the exact
    model, too.
    """
    features = frozenset(
        ("fractions", "memory", "taints", "priorities", "nonpreemptible", "limits", "topology")
    )
    snapshot = parse(random_cluster(seed, features), now=raw.NOW.timestamp())
    situation = Situation(snapshot, UNHURRIED, decide(snapshot, UNHURRIED))
    waiting = [group for group in snapshot.waiting_groups if situation.state(group.key) == "pending"]
    for group in waiting[:2]:
        with patch.object(cells, "MOST_NODES", 0):
            counted = blocking_of(situation, group)
        exact = Feasibility(Question(situation, group))
        for families in counted.sets:
            exact.enforce(families & exact.literals.keys(), one_action=True)
            assert run(solver_for(60.0), exact.cp) == cp_model.INFEASIBLE, (str(group.key), sorted(families))
