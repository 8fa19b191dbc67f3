"""``config`` and ``schedulerParams`` as a :class:`Policy` (1.5, 11.1, snapshot-format 2)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, Literal, TypeVar

from kai_cp.json_types import Json
from kai_cp.reader.fields import (
    EMPTY,
    NOTHING,
    Malformed,
    bool_at,
    int_at,
    object_at,
    objects_at,
    shown,
    strings_at,
    text_at,
)
from kai_cp.reader.notes import Notes
from kai_cp.reader.times import duration
from kai_cp_models.pods import UNLIMITED
from kai_cp_models.policy import POLICY_ACTIONS, ActionName, Policy

Value = TypeVar("Value")

_ACTIONS: Final[Mapping[str, ActionName]] = {name: name for name in POLICY_ACTIONS}
DEFAULT_PLUGINS: Final = frozenset(
    (
        "predicates",
        "proportion",
        "priority",
        "nodeavailability",
        "resourcetype",
        "podaffinity",
        "elastic",
        "kubeflow",
        "ray",
        "subgrouporder",
        "taskorder",
        "nominatednode",
        "dynamicresources",
        "minruntime",
        "topology",
        "snapshot",
        "sg-nodelocalgreedy",
        "sg-multinodegang",
        "gpupack",
        "nodeplacement",
        "gpusharingorder",
    )
)
"""The operator's plugins of a binpack shard (1.5), for a snapshot without ``config.tiers``."""

_CONFIG: Final = frozenset(
    ("actions", "tiers", "queueDepthPerAction", "usageDBConfig", "scenarioSearchBudgets")
)
_PARAMS: Final = frozenset(
    (
        "schedulerName",
        "restrictSchedulingNodes",
        "partitionParams",
        "maxNumberConsolidationPreemptees",
        "scheduleCSIStorage",
        "useSchedulingSignatures",
        "fullHierarchyFairness",
        "allowConsolidatingReclaim",
        "numOfStatusRecordingWorkers",
        "globalDefaultStalenessGracePeriod",
        "schedulePeriod",
        "stuckInReleasingThreshold",
        "detailedFitErrors",
        "updatePodEvictionCondition",
        "queueLabelKey",
        # An addition to KAI, which ignores namespaces.
        "resourceReservationNamespace",
        "resourceReservationAppLabel",
        "scaleAdjustNamespace",
    )
)
_NANOSECONDS = 1e9
_STUCK_SECONDS = 120.0
_TRUE: Final = frozenset(("1", "t", "T", "TRUE", "true", "True"))
_FALSE: Final = frozenset(("0", "f", "F", "FALSE", "false", "False"))


def go_bool(text: str) -> bool:
    """Parse like Go's ``strconv.ParseBool``. Raises ``ValueError`` for other text."""
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise ValueError(text)


class _Tolerant:
    """Reads fields one by one; a malformed one is reported and replaced by its default."""

    def __init__(self, notes: Notes, item: str) -> None:
        self._notes = notes
        self._item = item

    def __call__(self, read: Callable[[], Value], default: Value) -> Value:
        try:
            return read()
        except Malformed as problem:
            self._notes.aside(self._item, f"{problem}; the default is used")
            return default


def read_policy(raw: Json, notes: Notes) -> Policy:
    """The policy of a snapshot. Missing ``schedulerParams`` fields are zero, because Go omits zeros."""
    read = _Tolerant(notes, "snapshot")
    config = read(partial(object_at, raw, "config"), EMPTY)
    params = read(partial(object_at, raw, "schedulerParams"), EMPTY)
    notes.unknown(config, _CONFIG, "config")
    notes.unknown(params, _PARAMS, "schedulerParams")
    plugins = _plugins(config, read)
    values: dict[str, Any] = {
        "actions": _actions(config, read, notes),
        "plugins": DEFAULT_PLUGINS if plugins is None else frozenset(plugins),
        "queue_depth": _queue_depth(config, read),
    }
    values |= _arguments(plugins or {}, notes)
    if params:
        values |= _params(params, read)
    return Policy(**values)


def stuck_threshold_seconds(raw: Json) -> float:
    """How long after its deletion time a running pod counts as stuck (0.1).

    Older versions do not export it; a cluster never sets it to zero, so zero is the default too.
    """
    try:
        found = int_at(object_at(raw, "schedulerParams"), "stuckInReleasingThreshold", bits=64)
    except Malformed:
        found = None
    return found / _NANOSECONDS if found else _STUCK_SECONDS


def _actions(config: Json, read: _Tolerant, notes: Notes) -> tuple[ActionName, ...]:
    text = read(partial(text_at, config, "actions", "config"), "")
    if not text and "actions" not in config:
        return Policy().actions
    found: dict[ActionName, None] = {}
    for name in filter(None, (part.strip() for part in text.split(","))):
        if name in _ACTIONS:
            found[_ACTIONS[name]] = None
        else:
            notes.aside("snapshot", f"config.actions: {shown(name)} is not an action; it is left out")
    return tuple(found)


def _plugins(config: Json, read: _Tolerant) -> dict[str, Mapping[str, str]] | None:
    """Arguments by name of the active plugins; None when the snapshot names no tiers."""
    if config.get("tiers") is None:
        return None
    found: dict[str, Mapping[str, str]] = {}
    for i, tier in enumerate(read(partial(objects_at, config, "tiers", "config"), NOTHING)):
        where = f"config.tiers[{i}]"
        for j, plugin in enumerate(read(partial(objects_at, tier, "plugins", where), NOTHING)):
            inner = f"{where}.plugins[{j}]"
            name = read(partial(text_at, plugin, "name", inner), "")
            if name:
                found[name] = read(partial(strings_at, plugin, "arguments", inner), EMPTY)
    return found


def _queue_depth(config: Json, read: _Tolerant) -> Mapping[str, int]:
    depths = read(partial(object_at, config, "queueDepthPerAction", "config"), EMPTY)
    found: dict[str, int] = {}
    for action in depths:
        depth = read(partial(int_at, depths, action, "config.queueDepthPerAction", minimum=-1), None)
        if depth is not None and depth != UNLIMITED:
            found[action.lower()] = depth
    return found


def _arguments(plugins: Mapping[str, Mapping[str, str]], notes: Notes) -> dict[str, Any]:
    """Plugin arguments as fields of ``Policy``; the multiplier's name is spelled as in KAI."""
    parsers: tuple[tuple[str, str, str, Callable[[str], Any]], ...] = (
        ("proportion", "kValue", "k_value", _k_value),
        ("proportion", "relcaimerSaturationMultiplier", "saturation_multiplier", _multiplier),
        ("nodeplacement", "gpu", "gpu_strategy", _strategy),
        ("nodeplacement", "cpu", "cpu_strategy", _strategy),
        ("minruntime", "defaultPreemptMinRuntime", "default_preempt_min_runtime_seconds", _runtime),
        ("minruntime", "defaultReclaimMinRuntime", "default_reclaim_min_runtime_seconds", _runtime),
        ("minruntime", "reclaimResolveMethod", "reclaim_resolve_method", _method),
        ("numa", "ignoreList", "numa_ignore", _names),
        ("numa", "reconstructAvailable", "numa_reconstruct", go_bool),
    )
    found: dict[str, Any] = {}
    for plugin, argument, field, parse in parsers:
        text = plugins.get(plugin, {}).get(argument, "").strip()
        if not text:
            continue
        try:
            found[field] = parse(text)
        except (ValueError, Malformed):
            notes.aside(
                "snapshot",
                f"config.tiers[].plugins[{plugin}].arguments.{argument}: {shown(text)} cannot be read;"
                " the default is used",
            )
    return found


def _finite(text: str) -> float:
    value = float(text)
    if not abs(value) < 1e9:
        raise ValueError(text)
    return value


def _k_value(text: str) -> float:
    return max(_finite(text), 0.0)


def _multiplier(text: str) -> float:
    return max(_finite(text), 1.0)


def _strategy(text: str) -> Literal["binpack", "spread"]:
    if text == "binpack":
        return "binpack"
    if text == "spread":
        return "spread"
    raise ValueError(text)


def _method(text: str) -> Literal["lca", "queue"]:
    if text == "lca":
        return "lca"
    if text == "queue":
        return "queue"
    raise ValueError(text)


def _runtime(text: str) -> float:
    return max(duration(text, "", days=True), 0.0)


def _names(text: str) -> frozenset[str]:
    return frozenset(filter(None, (part.strip() for part in text.split(","))))


def _params(params: Json, read: _Tolerant) -> dict[str, Any]:
    where = "schedulerParams"

    def flag(key: str) -> bool:
        return read(partial(bool_at, params, key, where), False)

    def number(key: str) -> int:
        return read(partial(int_at, params, key, where, bits=64), None) or 0

    def text(key: str, default: str) -> str:
        return read(partial(text_at, params, key, where), "") or default

    partition = {
        key.lower(): value
        for key, value in read(partial(strings_at, params, "partitionParams", where), EMPTY).items()
    }
    return {
        "max_consolidation_preemptees": number("maxNumberConsolidationPreemptees"),
        "restrict_node_scheduling": flag("restrictSchedulingNodes"),
        "allow_consolidating_reclaim": flag("allowConsolidatingReclaim"),
        "full_hierarchy_fairness": flag("fullHierarchyFairness"),
        "default_staleness_grace_seconds": number("globalDefaultStalenessGracePeriod") / _NANOSECONDS,
        "schedule_csi_storage": flag("scheduleCSIStorage"),
        "scheduler_name": text("schedulerName", Policy().scheduler_name),
        "queue_label": text("queueLabelKey", Policy().queue_label),
        "reservation_namespace": text("resourceReservationNamespace", Policy().reservation_namespace),
        "reservation_app": text("resourceReservationAppLabel", Policy().reservation_app),
        "scaling_namespace": text("scaleAdjustNamespace", Policy().scaling_namespace),
        "node_pool_label": partition.get("nodepoollabelkey", ""),
        "node_pool": partition.get("nodepoollabelvalue", ""),
    }
