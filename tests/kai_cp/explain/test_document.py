"""``explain`` names the rule by which a pod was evicted, whichever action evicted it."""

from __future__ import annotations

from typing import get_args, get_type_hints

from kai_cp.documents.explained import RULES_OF_ACTIONS, EvictedBy
from kai_cp.explain.document import Explainer
from kai_cp.explain.draft import Draft
from kai_cp_models.pods import GroupKey
from kai_cp_models.policy import ActionName
from kai_cp_models.settings import MaxRuntimeSettings, Settings
from tests.kai_cp.explain.clusters import NOW, cluster
from tests.support.tiny import node, pod


def test_every_action_that_evicts_has_a_rule() -> None:
    assert set(RULES_OF_ACTIONS) == set(get_args(ActionName)) - {"allocate"}
    assert set(RULES_OF_ACTIONS.values()) == set(get_args(get_type_hints(EvictedBy)["rule"]))


def test_a_pod_group_that_ran_for_its_maximum() -> None:
    world = cluster([node("n0", gpus=4)], [pod("x", "n0", gpus=1)])
    (group,) = world["rawObjects"]["podGroups"]
    group["metadata"]["annotations"] = {
        "kai-cp/max-runtime": "1m",
        "kai.scheduler/last-start-timestamp": "2020-01-01T00:00:00Z",
    }
    settings = Settings(max_runtime=MaxRuntimeSettings(enforce=True))
    key = GroupKey("default", "x")
    by = Explainer(Draft(world, NOW), settings, kinds=()).explain(key)["evictedBy"]
    assert (by["action"], by["rule"]) == ("maxruntime", "max-runtime")
    assert by["because"]
