"""``config`` and ``schedulerParams`` (1.5, 11.1, snapshot-format 2)."""

from __future__ import annotations

from typing import Any

import pytest

from kai_cp.reader import parse
from kai_cp.reader.notes import IGNORED
from kai_cp.reader.policy import DEFAULT_PLUGINS
from kai_cp_models.policy import Policy
from kai_cp_models.snapshot import Snapshot
from tests.kai_cp.reader.raw import NOW, snapshot

Raw = dict[str, Any]


def plugins(**arguments: Raw) -> Raw:
    rows = [{"name": name, "arguments": values} for name, values in arguments.items()]
    return {"actions": "allocate", "tiers": [{"plugins": rows}]}


def read(**fields: Any) -> Snapshot:
    return parse(snapshot(**fields), now=NOW)


def test_plugin_arguments() -> None:
    found = read(
        config=plugins(
            proportion={"kValue": "2.5", "relcaimerSaturationMultiplier": "1.2"},
            nodeplacement={"gpu": "spread", "cpu": "binpack"},
            minruntime={
                "defaultPreemptMinRuntime": "1d",
                "defaultReclaimMinRuntime": "-5s",
                "reclaimResolveMethod": "queue",
            },
            numa={"ignoreList": "cpu, memory", "reconstructAvailable": "false"},
        )
    )
    policy = found.policy
    assert found.set_aside == ()
    assert (policy.k_value, policy.saturation_multiplier) == (2.5, 1.2)
    assert (policy.gpu_strategy, policy.cpu_strategy) == ("spread", "binpack")
    assert policy.default_preempt_min_runtime_seconds == 86_400
    assert policy.default_reclaim_min_runtime_seconds == 0
    assert policy.reclaim_resolve_method == "queue"
    assert policy.numa_ignore == {"cpu", "memory"}
    assert not policy.numa_reconstruct
    assert policy.plugins == {"proportion", "nodeplacement", "minruntime", "numa"}


@pytest.mark.parametrize(
    ("plugin", "argument", "text"),
    [
        ("proportion", "kValue", "nan"),
        ("proportion", "kValue", "much"),
        ("proportion", "relcaimerSaturationMultiplier", "inf"),
        ("nodeplacement", "gpu", "pack"),
        ("minruntime", "defaultPreemptMinRuntime", "5"),
        ("minruntime", "reclaimResolveMethod", "any"),
        ("numa", "reconstructAvailable", "maybe"),
    ],
)
def test_a_malformed_argument_is_named_and_its_default_used(plugin: str, argument: str, text: str) -> None:
    found = read(config=plugins(**{plugin: {argument: text}}))
    default = Policy(actions=("allocate",), plugins=frozenset([plugin]))
    assert (found.policy.k_value, found.policy.numa_reconstruct) == (1.0, True)
    assert found.policy.gpu_strategy == default.gpu_strategy
    assert [row.item for row in found.set_aside] == ["snapshot"]
    assert argument in found.set_aside[0].reason


@pytest.mark.parametrize(
    ("text", "actions", "notes"),
    [
        ("allocate, consolidation,reclaim", ("allocate", "consolidation", "reclaim"), 0),
        ("preempt, allocate, preempt", ("preempt", "allocate"), 0),
        ("", (), 0),
        ("allocate, shuffle", ("allocate",), 1),
    ],
)
def test_actions(text: str, actions: tuple[str, ...], notes: int) -> None:
    found = read(config={"actions": text, "tiers": []})
    assert found.policy.actions == actions
    assert len(found.set_aside) == notes
    assert found.policy.plugins == frozenset()


def test_a_missing_scheduler_param_is_zero() -> None:
    policy = read(params={"fullHierarchyFairness": None}).policy
    assert policy.max_consolidation_preemptees == 0
    assert policy.default_staleness_grace_seconds == 0
    assert not policy.allow_consolidating_reclaim
    assert not policy.full_hierarchy_fairness


def test_scheduler_params() -> None:
    policy = read(
        params={
            "schedulerName": "mine",
            "restrictSchedulingNodes": True,
            "partitionParams": {"nodePoolLabelKey": "pool", "NODEPOOLLABELVALUE": "a"},
            "maxNumberConsolidationPreemptees": -1,
            "allowConsolidatingReclaim": True,
            "globalDefaultStalenessGracePeriod": 60_000_000_000,
            "scheduleCSIStorage": True,
            "queueLabelKey": "my/queue",
        },
        config={"queueDepthPerAction": {"Reclaim": 10, "preempt": 0, "consolidation": -1}},
    ).policy
    assert policy == Policy(
        plugins=DEFAULT_PLUGINS,
        scheduler_name="mine",
        restrict_node_scheduling=True,
        node_pool_label="pool",
        node_pool="a",
        max_consolidation_preemptees=-1,
        schedule_csi_storage=True,
        queue_label="my/queue",
        queue_depth={"reclaim": 10, "preempt": 0},
    )


def test_without_params_and_config_the_defaults_hold() -> None:
    raw = snapshot()
    del raw["schedulerParams"]
    assert parse(raw, now=NOW).policy == Policy(plugins=DEFAULT_PLUGINS)


@pytest.mark.parametrize("value", [7, "x", [], True])
def test_wrong_types_are_named(value: Any) -> None:
    raw = snapshot(params={"maxNumberConsolidationPreemptees": "many"})
    raw["config"] = value
    found = parse(raw, now=NOW)
    assert len(found.set_aside) == 2
    assert found.policy.actions == Policy().actions


def test_unknown_fields_are_counted() -> None:
    raw = snapshot(params={"newFlag": 1}, config={"actions": "allocate", "new": {}}, newObjects=[{}])
    raw["future"] = 1
    raw["rawObjects"]["queues"][0]["spec"]["colour"] = "red"
    found = parse(raw, now=NOW)
    assert found.set_aside == ()
    assert sum(found.extras[IGNORED].values()) == 5
    assert found.extras[IGNORED] == {
        "config.new": 1,
        "future": 1,
        "rawObjects.newObjects": 1,
        "rawObjects.queues[].spec.colour": 1,
        "schedulerParams.newFlag": 1,
    }
