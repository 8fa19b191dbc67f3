"""Whatever one namespace sends, the gang of another one is bound in the first or second cycle that sees it.

Undisturbed it is bound in the first one. Cycles and steps are counted, so a busy machine changes nothing: the
deadline is far, and the budget decides what a cycle looks at.
"""

from __future__ import annotations

import copy
import sys
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kai_cp.reader import parse
from kai_cp_models.check import violations
from kai_cp_models.check.budgets import broken
from kai_cp_models.check.planned_cluster import PlannedCluster
from kai_cp_models.defrag.problem import DefragQuestion, Problem
from kai_cp_models.engine import decide
from kai_cp_models.pods import GroupKey
from kai_cp_models.rules.stateful.budgets import Budgets
from kai_cp_models.settings import OptionalRules, Settings, SolverSettings
from kai_cp_models.snapshot import Snapshot
from kai_cp_models.turns import STEPS_PER_SECOND, Turns, costs_of
from tests.hostile.test_reader import places
from tests.kai_cp.reader.rich import rich
from tests.support import hostile
from tests.support.hostile import EVIL, VICTIM
from tests.support.objects import NOW

Raw = dict[str, Any]
BUDGET = 0.2
SETTINGS = Settings(solver=SolverSettings(budget_seconds=BUDGET))
SPREAD = SETTINGS.model_copy(update={"rules": OptionalRules(topology_spread=True)})


def cycles_until_served(seen: Snapshot, most: int = 4) -> int:
    """Cycles until the whole gang of the victim is bound."""
    turns = Turns()
    for cycle in range(1, most + 1):
        left = turns.take(seen, BUDGET).snapshot
        looked_at = sum(costs_of(left).values())
        assert looked_at <= max(BUDGET * STEPS_PER_SECOND, max(costs_of(left).values()) + 1000)
        plan = decide(left, SETTINGS, deadline=time.monotonic() + 600)
        assert violations(left, plan) == []
        if sum(d.kind == "Bind" and d.pod.namespace == VICTIM for d in plan.decisions) == 4:
            return cycle
    return most + 1


def read(raw: Raw) -> Snapshot:
    return parse(raw, now=NOW.timestamp(), limits=SETTINGS.limits)


def test_undisturbed_it_takes_one_cycle() -> None:
    assert cycles_until_served(read(hostile.world(None, 0))) == 1


@pytest.mark.parametrize("attack", hostile.ATTACKS, ids=lambda attack: str(attack.__name__))
def test_a_victim_is_served_in_time(attack: hostile.Attack) -> None:
    assert cycles_until_served(read(hostile.world(attack, hostile.ATTACKS[attack] // 4))) <= 2


LARGE_GROUPS = [hostile.one_large_group, hostile.subgroups, hostile.elastic_sets]


@pytest.mark.parametrize("attack", LARGE_GROUPS, ids=lambda attack: str(attack.__name__))
def test_a_large_group_costs_no_more_than_its_size(attack: hostile.Attack) -> None:
    """Calls are counted: twice the pods take twice as many calls, not four times."""
    none, once, twice = (calls(read(hostile.world(attack, size))) for size in (0, 200, 400))
    assert twice - none < 2.5 * (once - none)


CHECKED = [hostile.elastic_claims, hostile.elastic_affinity, hostile.elastic_spread]


@pytest.mark.parametrize("attack", CHECKED, ids=lambda attack: str(attack.__name__))
def test_the_checker_costs_no_more_than_there_is_to_check(attack: hostile.Attack) -> None:
    """Each pod, claim and term is not compared with each other pod."""

    def checked(size: int) -> int:
        seen = read(hostile.world(attack, size, nodes=8))
        plan = decide(seen, SPREAD, deadline=time.monotonic() + 600)
        assert len(plan.decisions) >= 4 + size // 2
        return called(lambda: violations(seen, plan, SPREAD.rules))

    none, once, twice = map(checked, (0, 96, 192))
    assert twice - none < 2.5 * (once - none)


def test_scopes_of_all_pod_sets_of_a_deep_tree_are_found_in_one_walk() -> None:
    """97 sets above one another, and 400 pod sets below the last of them."""
    root = read(hostile.world(hostile.running_stem, 400)).group_by_key[GroupKey(EVIL, "stem")].root
    assert called(lambda: [root.scopes_of(f"e{i}") for i in range(400)]) < 2_000


def test_small_pods_that_run_cost_a_reclaim_no_more_than_there_are() -> None:
    """A comparison of each with each other one would be 640,000; the victim gets its four GPUs."""
    seen = read(hostile.world(hostile.running_beside_full, 800, nodes=4))
    assert calls(seen) < 400_000
    plan = decide(seen, SETTINGS, deadline=time.monotonic() + 600)
    assert sum(one.kind == "Nominate" and one.pod.namespace == VICTIM for one in plan.decisions) == 4
    assert all(one.pod.name.startswith("full") for one in plan.decisions if one.kind == "Evict")


def test_a_goal_of_defragmentation_costs_no_more_than_there_are_pods() -> None:
    """A comparison of each pod with each other one would be 2,560,000."""
    chosen = Settings.model_validate({"defrag": {"goal": "nodes=1", "mode": "report"}})
    seen = read(hostile.world(hostile.running_elastic, 1600))
    assert called(lambda: decide(seen, chosen, deadline=time.monotonic() + 600)) < 150_000


def test_budgets_cost_no_more_than_there_are() -> None:
    """Each of 640 pods has a budget of its own; a comparison of each with each other one would be 409,600."""
    chosen = SETTINGS.model_copy(update={"rules": OptionalRules(pod_disruption_budgets=True)})
    seen = read(hostile.world(hostile.running_budgets, 640, nodes=80))
    plan = decide(seen, chosen, deadline=time.monotonic() + 600)
    assert sum(one.kind == "Evict" for one in plan.decisions) == 4
    assert called(lambda: Budgets(seen)) < 100_000
    assert called(lambda: Problem(seen, chosen, DefragQuestion())) < 250_000
    assert called(lambda: list(broken(PlannedCluster(seen, plan, chosen.rules)))) < 100_000


def test_of_budgets_that_all_protect_the_same_pods_two_are_asked() -> None:
    """A comparison of each of 320 budgets with each of 320 pods would be 102,400."""
    raw = hostile.world(hostile.running_budgets, 320, nodes=40)
    for budget in raw["rawObjects"]["podDisruptionBudgets"]:
        other = {"key": budget["metadata"]["name"], "operator": "DoesNotExist"}
        budget["spec"]["selector"] = {"matchExpressions": [other]}
    assert called(lambda: Budgets(read(raw))) - called(lambda: read(raw)) < 20_000


@pytest.mark.parametrize(
    "attack", [*hostile.ATTACKS, hostile.running_stem], ids=lambda attack: str(attack.__name__)
)
def test_reading_costs_no_more_than_there_is_to_read(attack: hostile.Attack) -> None:
    """What one pod contains is not compared with the content of each other pod."""
    size = max(8, hostile.ATTACKS.get(attack, 5_000) // 100)
    none, once, twice = (called(partial(read, hostile.world(attack, n * size, nodes=2))) for n in range(3))
    assert twice - none < 2.5 * (once - none)


SEARCHES = [(hostile.device_claims, 3_000_000), (hostile.local_volumes, 2_500_000)]


@pytest.mark.parametrize(("attack", "most"), SEARCHES, ids=["devices", "volumes"])
def test_searches_of_a_namespace_share_a_purse(attack: hostile.Attack, most: int) -> None:
    """Each of 8 pods asks 20 nodes, of which none has what it wants; calls are counted."""
    assert calls(read(hostile.world(attack, 8))) - calls(read(hostile.world(None, 0))) < most


def test_an_empty_purse_costs_no_other_namespace_anything() -> None:
    """Of the devices of a node two are alike, which the other namespace finds only by going back."""
    raw = hostile.world(hostile.device_claims, 8)
    objects = raw["rawObjects"]
    for one in objects["resourceSlices"]:
        one["spec"]["devices"][7]["attributes"]["id"] = one["spec"]["devices"][6]["attributes"]["id"]
    for claim in objects["resourceClaims"]:
        claim["spec"]["devices"]["requests"].append(hostile.devices.exact(1, name="r8"))
        claim["spec"]["devices"]["constraints"] = [
            {"requests": ["r0", "r1"], "matchAttribute": f"{hostile.devices.DRIVER}/id"},
            {"requests": ["r7", "r8"], "matchAttribute": f"{hostile.devices.DRIVER}/id"},
        ]
    for pod in objects["pods"]:
        if pod["metadata"]["namespace"] == VICTIM:
            pod["spec"]["resourceClaims"] = hostile.devices.claims(f"v-{pod['metadata']['name']}")
    alike = {"requests": ["a", "b"], "matchAttribute": f"{hostile.devices.DRIVER}/id"}
    objects["resourceClaims"] += [
        hostile.devices.claim(
            f"v-gang-{i}",
            *(hostile.devices.exact(1, name=n) for n in "ab"),
            constraints=(alike,),
            namespace=VICTIM,
        )
        for i in range(4)
    ]
    plan = decide(read(raw), SETTINGS, deadline=time.monotonic() + 600)
    assert {decision.pod.namespace for decision in plan.decisions} == {VICTIM}
    assert len(plan.decisions) == 4


def test_terms_beyond_the_share_of_a_namespace_are_set_aside_with_a_sentence() -> None:
    for attack in (hostile.own_terms, hostile.gated_terms):
        seen = read(hostile.world(attack, 6))
        found = {one.item: one.reason for one in seen.set_aside if one.item.startswith("Pod ")}
        assert list(found) == ["Pod evil/p4", "Pod evil/p5"]
        assert all(
            "1000 different terms about other pods (limits.terms_per_namespace)" in why
            for why in found.values()
        )


def test_terms_of_running_pods_beyond_the_share_are_not_obeyed() -> None:
    """Four pods of 250 terms run; of the fifth the terms do not count, but the pod stays."""
    seen = read(hostile.world(hostile.running_terms, 5))
    assert {
        pod.key.name: len(pod.spec.pod_anti_affinity) for pod in seen.pods if pod.key.namespace == EVIL
    } == {
        **{f"p{i}": 250 for i in range(4)},
        "p4": 0,
    }
    assert [one.item for one in seen.set_aside if one.item.startswith("Pod ")] == ["Pod evil/p4"]


def test_terms_of_running_pods_are_not_compared_with_the_labels_of_each_pod() -> None:
    """4 pods of 250 terms and 20 others: a comparison takes some ten calls, 20,000 of them 200,000."""
    few, more = (calls(read(hostile.world(hostile.running_terms, size))) for size in (2, 4))
    assert more - few < 60_000


def calls(seen: Snapshot) -> int:
    """The number of Python functions that are called to decide."""
    return called(lambda: decide(seen, SETTINGS, deadline=time.monotonic() + 600))


def called(work: Callable[[], object]) -> int:
    """The number of Python functions that the work calls."""
    count = 0

    def noted(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(noted)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


def test_many_attackers_have_their_turns_too() -> None:
    """No namespace is shut out: one alone is looked at whole, and each group has a turn beside others."""
    seen = read(hostile.world(hostile.many_groups, 3000))
    turns = Turns()
    turns.take(seen, BUDGET)
    served: set[str] = set()
    for second in range(1, 21):
        turn = turns.take(replace(seen, now=seen.now + second), BUDGET)
        late = {entry.group for entry in turn.waiting}
        served |= {key.name for key in costs_of(turn.snapshot) if key not in late}
    assert len(served) == 3001


BAD = st.one_of(
    st.sampled_from(hostile.BAD_VALUES),
    st.text(max_size=8),
    st.integers(-(2**63), 2**64),
    st.floats(allow_nan=False),
)


def crowded() -> Raw:
    """The victim's world, an object of every kind that a tenant may make, and the objects that they
    refer to.
    """
    raw = hostile.world(None, 0)
    lists, theirs = raw["rawObjects"], rich()["rawObjects"]
    for kind in (
        *(
            "pods",
            "podGroups",
            "configMaps",
            "resourceClaims",
            "persistentVolumeClaims",
            "podDisruptionBudgets",
        ),
        *("deviceClasses", "resourceSlices", "storageClasses", "persistentVolumes", "csiDrivers"),
    ):
        for item in theirs[kind]:
            if "namespace" in item["metadata"]:
                item["metadata"]["namespace"] = EVIL
            if kind == "podGroups":
                item["spec"]["queue"] = EVIL
            if kind == "pods":
                item["spec"].pop("nodeName", None)
                item["metadata"].pop("deletionTimestamp", None)
                item["status"] = {"phase": "Pending"}
            lists.setdefault(kind, []).append(item)
    return raw


def spoil(raw: Raw, data: st.DataObject, most: int) -> None:
    """Put bad values into a tenant's objects; the fields that identify them and the victim's objects stay."""
    for _ in range(data.draw(st.integers(1, most))):
        items = [
            item
            for kind in sorted(raw["rawObjects"])
            for item in raw["rawObjects"][kind]
            if item["metadata"].get("namespace") == EVIL
        ]
        item = items[data.draw(st.integers(0, len(items) - 1))]
        spots = [spot for part in item.values() if isinstance(part, dict | list) for spot in places(part, [])]
        spots = [(holder, key) for holder, key in spots if key not in ("name", "namespace")]
        if spots:
            holder, key = spots[data.draw(st.integers(0, len(spots) - 1))]
            holder[key] = copy.deepcopy(data.draw(BAD))


@settings(max_examples=80, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.data())
def test_the_victim_is_served_whatever_a_tenants_objects_hold(data: st.DataObject) -> None:
    raw = crowded()
    spoil(raw, data, 5)
    seen = read(raw)
    assert all(entry.item.isprintable() and entry.reason.isprintable() for entry in seen.set_aside)
    assert cycles_until_served(seen) <= 2


@settings(max_examples=3, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.data())
def test_bad_values_take_no_memory(data: st.DataObject) -> None:
    """Reading takes less than twice the memory of an undisturbed reading, and the text that was put in."""
    before = peak(crowded())
    raw = crowded()
    spoil(raw, data, 5)
    assert peak(raw) < 2 * before + 1_000_000


def peak(raw: Raw) -> int:
    tracemalloc.start()
    try:
        read(raw)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
