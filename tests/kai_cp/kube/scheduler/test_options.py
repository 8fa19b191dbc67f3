"""Flags, shards and configuration files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kai_cp.kube.scheduler.options import (
    BadConfiguration,
    SchedulerOptions,
    default_config,
    load_config,
    shard_config,
)
from kai_cp.reader import parse
from tests.kai_cp.kube.samples import snapshot


def plugins(config: dict[str, object]) -> list[str]:
    return [entry["name"] for tier in config["tiers"] for entry in tier["plugins"]]  # type: ignore[attr-defined]


def test_the_default_is_kais() -> None:
    config = default_config()
    assert config["actions"] == "allocate, consolidation, reclaim, preempt, stalegangeviction"
    assert plugins(config)[:4] == ["predicates", "proportion", "priority", "nodeavailability"]
    assert plugins(config)[-3:] == ["gpupack", "nodeplacement", "gpusharingorder"]


def test_spread_drops_consolidation_and_packing() -> None:
    config = shard_config({"placementStrategy": {"gpu": "spread"}})
    assert "consolidation" not in config["actions"]
    assert "gpuspread" in plugins(config)
    assert not {"gpupack", "gpusharingorder"} & set(plugins(config))
    assert "consolidation" not in shard_config({"placementStrategy": {"cpu": "spread"}})["actions"]


def test_a_shard_overrides_disables_and_adds() -> None:
    config = shard_config(
        {
            "plugins": {
                "numa": {"enabled": True, "priority": 1850, "arguments": {"ignoreList": "cpu"}},
                "ray": {"enabled": False},
                "minruntime": {"arguments": {"reclaimResolveMethod": "queue"}},
            },
            "actions": {"preempt": {"priority": 450}, "reclaim": {"enabled": False}},
            "minRuntime": {"preemptMinRuntime": "5m"},
            "kValue": 0.5,
            "queueDepthPerAction": {"reclaim": 3},
        }
    )
    assert config["actions"] == "allocate, preempt, consolidation, stalegangeviction"
    assert plugins(config)[1] == "numa"
    assert "ray" not in plugins(config)
    arguments = {e["name"]: e.get("arguments") for t in config["tiers"] for e in t["plugins"]}
    assert arguments["minruntime"] == {"reclaimResolveMethod": "queue"}, "user arguments replace"
    assert arguments["proportion"] == {"kValue": "0.5"}
    assert config["queueDepthPerAction"] == {"reclaim": 3}


def test_the_file_is_filled_from_the_default(tmp_path: Path) -> None:
    path = tmp_path / "conf.yaml"
    path.write_text("actions: allocate, reclaim\n")
    config = load_config(path)
    assert config["actions"] == "allocate, reclaim"
    assert config["tiers"] == default_config()["tiers"]


@pytest.mark.parametrize("text", ["actions: dance", "- a", "unknown: 1", "a: [", ""])
def test_bad_files(tmp_path: Path, text: str) -> None:
    path = tmp_path / "conf.yaml"
    path.write_text(text)
    if not text:
        assert load_config(path) == default_config()
        return
    with pytest.raises(BadConfiguration, match=r"conf\.yaml"):
        load_config(path)


@pytest.mark.parametrize(
    ("key", "value", "selector"),
    [("pool", "", "!pool"), ("pool", "a", "pool=a"), ("", "", "")],
)
def test_an_empty_value_means_label_absent(key: str, value: str, selector: str) -> None:
    assert SchedulerOptions(nodepool_label_key=key, partition_label_value=value).pool_selector == selector


def test_flags_reach_the_engines_policy() -> None:
    options = SchedulerOptions(
        max_consolidation_preemptees=7,
        default_staleness_grace_period=5.0,
        full_hierarchy_fairness=False,
        nodepool_label_key="pool",
        partition_label_value="a",
    )
    raw = {**snapshot(), "schedulerParams": options.params()}
    policy = parse(raw, now=0.0).policy
    assert policy.max_consolidation_preemptees == 7
    assert policy.default_staleness_grace_seconds == 5.0
    assert not policy.full_hierarchy_fairness
    assert (policy.node_pool_label, policy.node_pool) == ("pool", "a")


@pytest.mark.parametrize("pool", ["", "a100", "A100", "a100_80g", "A100_80G", "x.y", "x-.y"])
def test_the_lease_of_every_node_pool_has_a_name(pool: str) -> None:
    """Of a lease whose name has what only labels may have, the server makes none, and no process leads."""
    name = SchedulerOptions(partition_label_value=pool).lease_name
    assert all(re.fullmatch("[a-z0-9]([-a-z0-9]*[a-z0-9])?", part) for part in name.split("."))
    usual = f"kai-scheduler-{pool}".rstrip("-")
    assert (name == usual) == (pool in ("", "a100", "x.y")), "KAI's own name stays where it is one"


def test_node_pools_share_no_lease() -> None:
    pools = ["a100", "A100", "a-100", "a_100", "A_100"]
    assert len({SchedulerOptions(partition_label_value=pool).lease_name for pool in pools}) == len(pools)
