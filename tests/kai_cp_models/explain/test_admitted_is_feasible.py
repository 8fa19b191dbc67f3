"""Whatever the engine admits, the model of an explanation calls feasible: its rows never say too much."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given

from kai_cp.reader import parse
from kai_cp_models.engine import decide
from kai_cp_models.explain.blocking import blocking_of
from kai_cp_models.explain.situation import Situation
from kai_cp_models.snapshot import GroupKey, Snapshot
from tests.support import objects as raw
from tests.support.brute import worlds
from tests.support.clusters import clusters, random_cluster
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
            continue  # What is done for several cannot be taken back for one.
        later = [p for p in situation.given.values() if p.group != group.key and p.action != "allocate"]
        if named and (later or len(named) < len(situation.evicted)):
            continue  # What others took later, or of the room left over, counts as taken before.
        result = blocking_of(without(situation, group.key), group)
        if result.sets:
            found.append(f"{group.key}: {[sorted(families) for families in result.sets]}")
    return found


@worlds(25)
@given(clusters())
def test_what_is_admitted_is_never_blocked(cluster: raw.Object) -> None:
    snapshot = parse(cluster, now=raw.NOW.timestamp())
    assert blocked_though_admitted(snapshot) == []


@pytest.mark.parametrize("seed", range(6))
def test_every_feature_at_once(seed: int) -> None:
    snapshot = parse(random_cluster(seed), now=raw.NOW.timestamp())
    assert blocked_though_admitted(snapshot) == []
