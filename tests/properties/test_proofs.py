"""Proved refusals are asked again: with all other refused groups made impossible, none is served after all.

``KAI_CP_PROOF_CLUSTERS`` sets how many clusters are tried, ``KAI_CP_PROOF_FIRST`` the first seed. A failing
seed is reproduced with ``random_cluster(seed)``.
"""

from __future__ import annotations

import copy
import os

import pytest

from kai_cp_models.engine import decide
from kai_cp_models.settings import Settings
from kai_cp_models.snapshot import GroupKey, Plan, PodKey, PodStatus, Snapshot
from tests.properties.test_audit import read
from tests.support import objects as raw
from tests.support.clusters import random_cluster

COUNT = int(os.environ.get("KAI_CP_PROOF_CLUSTERS", "25"))
FIRST = int(os.environ.get("KAI_CP_PROOF_FIRST", "0"))
SETTINGS = Settings.model_validate({"solver": {"budget_seconds": 20, "patience": 50}})
NOWHERE = {"example.org/nowhere": "x"}
MOST_ASKED_AGAIN = 6
"""Refusals of one cluster that are asked again."""


def gained(plan: Plan) -> set[PodKey]:
    """Waiting pods that get a place."""
    evicted = {d.pod for d in plan.decisions if d.kind == "Evict"}
    return {d.pod for d in plan.decisions if d.kind != "Evict"} - evicted


def waiting(snapshot: Snapshot, group: GroupKey) -> set[PodKey]:
    """Waiting pods of a group."""
    return {pod.key for pod in snapshot.members[group] if pod.status is PodStatus.PENDING}


def without(cluster: raw.Object, pods: set[PodKey]) -> raw.Object:
    """The cluster, but no node accepts these pods."""
    changed = copy.deepcopy(cluster)
    for pod in changed["rawObjects"]["pods"]:
        if PodKey(pod["metadata"].get("namespace", "default"), pod["metadata"]["name"]) in pods:
            pod["spec"]["nodeSelector"] = {**(pod["spec"].get("nodeSelector") or {}), **NOWHERE}
    return changed


@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT))
def test_a_proved_refusal_holds_when_it_is_asked_again(seed: int) -> None:
    cluster = random_cluster(seed)
    snapshot = read(cluster)
    plan = decide(snapshot, SETTINGS)
    got = gained(plan)
    refused = [u for u in plan.unscheduled if not waiting(snapshot, u.group) & got]
    proved = [u.group for u in refused if u.proved and waiting(snapshot, u.group)]
    for group in proved[:: max(1, len(proved) // MOST_ASKED_AGAIN)]:
        others = {key for u in refused if u.group != group for key in waiting(snapshot, u.group)}
        if not others:
            continue
        again = gained(decide(read(without(cluster, others)), SETTINGS))
        assert not (waiting(snapshot, group) <= again and got <= again), group
