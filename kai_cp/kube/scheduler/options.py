"""Flags of the scheduler (11.1) and its configuration file, as the snapshot format shows them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Final

import yaml
from typer import Option

from kai_cp import files, keys, yaml_text
from kai_cp.json_types import short_hash
from kai_cp.kube.serving.flags import Seconds
from kai_cp.object_names import SUBDOMAIN
from kai_cp_models.policy import KAI_ACTIONS, POLICY_ACTIONS

NANOSECONDS: Final = 1_000_000_000

ACTIONS: Final[Mapping[str, int]] = {name: 100 * (len(KAI_ACTIONS) - i) for i, name in enumerate(KAI_ACTIONS)}
"""Actions by priority (1.5)."""
PLUGINS: Final[Mapping[str, int]] = {
    "predicates": 1900,
    "proportion": 1800,
    "priority": 1700,
    "nodeavailability": 1600,
    "resourcetype": 1500,
    "podaffinity": 1400,
    "elastic": 1300,
    "kubeflow": 1200,
    "ray": 1100,
    "subgrouporder": 1000,
    "taskorder": 900,
    "nominatednode": 800,
    "dynamicresources": 700,
    "minruntime": 600,
    "topology": 500,
    "snapshot": 400,
    "sg-nodelocalgreedy": 360,
    "sg-multinodegang": 350,
    "gpupack": 300,
    "gpuspread": 300,
    "nodeplacement": 200,
    "gpusharingorder": 100,
}
"""Plugins by priority (1.5); which of gpupack, gpuspread and gpusharingorder run is the strategy's matter."""
BUDGETS: Final[Mapping[str, Any]] = {
    "maxActionSearchDuration": {"default": "5m0s"},
    "maxJobSearchDuration": "4m0s",
    "minJobSearchDuration": "0s",
    "maxGeneratorSearchDuration": {"default": "2m0s", "NodeLocalGreedy": "30s", "MultiNodeGang": "2m0s"},
}


class BadConfiguration(ValueError):
    """An unusable scheduler configuration; the text names the file or object, and the key."""


class Mode(Enum):
    """What the scheduler does with its plans."""

    OBSERVE = "observe"
    """Record them and compare them with what really happens; write nothing."""
    ADVISE = "advise"
    """Also write reasons to conditions and events."""
    ENFORCE = "enforce"
    """Also bind and evict."""


@dataclass(frozen=True, slots=True)
class SchedulerOptions:
    """The flags of KAI that have a meaning here, with KAI's names and defaults (11.1); times in seconds."""

    mode: Annotated[
        Mode,
        Option(help="observe: record plans; advise: also write reasons; enforce: also bind and evict."),
    ] = Mode.OBSERVE
    scheduler_name: Annotated[str, Option(help="schedulerName of the pods served.")] = "kai-scheduler"
    metrics_namespace: Annotated[str, Option(help="Prefix of KAI's metrics.")] = "kai"
    resource_reservation_namespace: Annotated[
        str, Option(help="Namespace of reservation pods; a pod elsewhere never counts as one.")
    ] = keys.RESERVATION_NAMESPACE
    scale_adjust_namespace: Annotated[str, Option(help="Namespace of scaling pods.")] = keys.SCALING_NAMESPACE
    resource_reservation_app_label: Annotated[str, Option(help="Label app of reservation pods.")] = (
        keys.RESERVATION_APP
    )
    restrict_node_scheduling: Annotated[bool, Option(help="Only nodes labelled as workers are used.")] = False
    nodepool_label_key: Annotated[str, Option(help="Label that divides the cluster.")] = keys.NODE_POOL
    partition_label_value: Annotated[
        str, Option(help="Value of that label that is served here; empty: nodes without the label.")
    ] = ""
    queue_label_key: Annotated[str, Option(help="Label that names the queue.")] = keys.QUEUE
    schedule_period: Annotated[float, Seconds("Longest pause between cycles while changes come.")] = 1.0
    max_consolidation_preemptees: Annotated[
        int, Option(help="Most pod groups moved for one that is admitted; -1: any number.")
    ] = 16
    detailed_fit_errors: Annotated[bool, Option(help="Give reasons node by node.")] = False
    update_pod_eviction_condition: Annotated[
        bool, Option(help="Write the condition DisruptionTarget to evicted pods.")
    ] = False
    schedule_csi_storage: Annotated[bool, Option(help="Count the capacity of CSI storage.")] = False
    use_scheduling_signatures: Annotated[bool, Option(help="Refuse equal pod groups together.")] = True
    full_hierarchy_fairness: Annotated[bool, Option(help="Compute fair shares on every level of queues.")] = (
        True
    )
    allow_consolidating_reclaim: Annotated[bool, Option(help="Moved victims of reclaim are not lost.")] = True
    num_of_status_recording_workers: Annotated[
        int, Option(help="Threads that write events and conditions.", min=1)
    ] = 5
    default_staleness_grace_period: Annotated[
        float, Seconds("How long a gang may run below its minimum before it is evicted; negative: forever.")
    ] = 60.0
    stuck_in_releasing_threshold: Annotated[
        float, Seconds("A pod that has been terminating for longer is no longer expected to free capacity.")
    ] = 120.0

    @property
    def lease_name(self) -> str:
        """Name of the leader lease (11.2); it differs where pools differ only in what no name may have."""
        pool = self.partition_label_value
        usual = f"{self.scheduler_name}-{pool}" if pool else self.scheduler_name
        if SUBDOMAIN.fullmatch(usual):
            return usual
        return f"{re.sub('[^a-z0-9]+', '-', usual.lower()).strip('-')}-{short_hash(usual)}"

    @property
    def pool_selector(self) -> str:
        """Label selector of the served nodes, queues and pod groups; an empty value means that the label is
        absent.
        """
        if not self.nodepool_label_key:
            return ""
        if not self.partition_label_value:
            return f"!{self.nodepool_label_key}"
        return f"{self.nodepool_label_key}={self.partition_label_value}"

    def params(self) -> dict[str, Any]:
        """``schedulerParams`` of a snapshot."""
        return {
            "schedulerName": self.scheduler_name,
            "restrictSchedulingNodes": self.restrict_node_scheduling,
            "partitionParams": {
                "NodePoolLabelKey": self.nodepool_label_key,
                "NodePoolLabelValue": self.partition_label_value,
            },
            "maxNumberConsolidationPreemptees": self.max_consolidation_preemptees,
            "scheduleCSIStorage": self.schedule_csi_storage,
            "useSchedulingSignatures": self.use_scheduling_signatures,
            "fullHierarchyFairness": self.full_hierarchy_fairness,
            "allowConsolidatingReclaim": self.allow_consolidating_reclaim,
            "numOfStatusRecordingWorkers": self.num_of_status_recording_workers,
            "globalDefaultStalenessGracePeriod": round(self.default_staleness_grace_period * NANOSECONDS),
            "schedulePeriod": round(self.schedule_period * NANOSECONDS),
            "stuckInReleasingThreshold": round(self.stuck_in_releasing_threshold * NANOSECONDS),
            "detailedFitErrors": self.detailed_fit_errors,
            "updatePodEvictionCondition": self.update_pod_eviction_condition,
            "queueLabelKey": self.queue_label_key,
            "resourceReservationNamespace": self.resource_reservation_namespace,
            "resourceReservationAppLabel": self.resource_reservation_app_label,
            "scaleAdjustNamespace": self.scale_adjust_namespace,
        }


def default_config() -> dict[str, Any]:
    """The configuration of an empty shard."""
    return shard_config({})


def shard_config(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The scheduler configuration of a SchedulingShard's ``spec`` (1.5)."""
    strategy = spec.get("placementStrategy") or {}
    gpu, cpu = strategy.get("gpu") or "binpack", strategy.get("cpu") or "binpack"
    actions = dict(ACTIONS)
    plugins = dict(PLUGINS)
    if "spread" in (gpu, cpu):
        del actions["consolidation"]
    for unused in ("gpupack", "gpusharingorder") if gpu == "spread" else ("gpuspread",):
        del plugins[unused]
    arguments: dict[str, dict[str, str]] = {"nodeplacement": {"cpu": cpu, "gpu": gpu}}
    runtime = spec.get("minRuntime") or {}
    defaults = {
        "preemptMinRuntime": "defaultPreemptMinRuntime",
        "reclaimMinRuntime": "defaultReclaimMinRuntime",
    }
    given = {name: str(runtime[key]) for key, name in defaults.items() if runtime.get(key)}
    if given:
        arguments["minruntime"] = given
    if spec.get("kValue") is not None:
        arguments["proportion"] = {"kValue": str(spec["kValue"])}
    _override(actions, spec.get("actions") or {})
    _override(plugins, spec.get("plugins") or {})
    for name, override in (spec.get("plugins") or {}).items():
        if override.get("arguments"):
            arguments[name] = {key: str(value) for key, value in override["arguments"].items()}
    listed = [
        {"name": name, "arguments": arguments[name]} if name in arguments else {"name": name}
        for name in _by_priority(plugins)
    ]
    config: dict[str, Any] = {
        "actions": ", ".join(_by_priority(actions)),
        "tiers": [{"plugins": listed}],
        "scenarioSearchBudgets": {**BUDGETS, **(spec.get("scenarioSearchBudgets") or {})},
    }
    for key in ("queueDepthPerAction", "usageDBConfig"):
        if spec.get(key):
            config[key] = spec[key]
    return config


def _override(table: dict[str, int], overrides: Mapping[str, Mapping[str, Any]]) -> None:
    for name, override in overrides.items():
        if override.get("enabled") is False:
            table.pop(name, None)
        elif override.get("enabled") or name in table or override.get("priority") is not None:
            table[name] = int(override.get("priority") or table.get(name, 0))


def _by_priority(table: Mapping[str, int]) -> list[str]:
    return sorted(table, key=lambda name: (-table[name], name))


def load_config(path: Path) -> dict[str, Any]:
    """Load the scheduler ConfigMap's file (11.1); missing values come from the default.

    Raises ``BadConfiguration``, which names the field.
    """
    try:
        document = yaml_text.load(files.read_text(path))
    except (OSError, yaml.YAMLError) as error:
        raise BadConfiguration(f"{path}: {yaml_text.why(error)}") from None
    if document is None:
        return default_config()
    if not isinstance(document, dict):
        raise BadConfiguration(f"{path}: expected keys and values")
    allowed = {"actions", "tiers", "queueDepthPerAction", "usageDBConfig", "scenarioSearchBudgets"}
    unknown = sorted(set(document) - allowed)
    if unknown:
        raise BadConfiguration(f"{path}: unknown key {unknown[0]!r}; known: {', '.join(sorted(allowed))}")
    actions = [name.strip() for name in str(document.get("actions") or "").split(",") if name.strip()]
    for name in actions:
        if name not in POLICY_ACTIONS:
            known = ", ".join(sorted(POLICY_ACTIONS))
            raise BadConfiguration(f"{path}: actions: unknown action {name!r}; known: {known}")
    return {**default_config(), **{key: value for key, value in document.items() if value is not None}}
