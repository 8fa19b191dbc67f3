"""Snapshots without names: the same plan up to renaming.

Every text that is not on the keep-list gets a new name; equal texts get equal names. New names sort as the
old ones did, because ties are broken by name. The keep-list has what a plan depends on and what reveals no
names: the API's own words, amounts and times, label keys, resource names, device attributes, plugin
arguments. Fields that no rule reads and that may hold anything (commands, environment, driver parameters) are
removed, and so are lists of objects that the reader does not know.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import suppress
from typing import Any, Final

import orjson

from kai_cp import keys
from kai_cp.reader.revisions import HASHED
from kai_cp.reader.snapshot import LISTS, PARTS
from kai_cp_models.records.notes import FAILURES, KINDS, RESERVATION, USERS
from kai_cp_topology.records import PRODUCT_LABEL

_SPELLED: Final = """True False true false
Unknown In NotIn Exists DoesNotExist Gt Lt Equal NoSchedule PreferNoSchedule
NoExecute TCP UDP SCTP Always OnFailure Never DoNotSchedule ScheduleAnyway Honor Ignore Immediate
WaitForFirstConsumer ExactCount All Guaranteed Burstable BestEffort Regular Fraction Pending Running
Succeeded Failed Bound Lost Available Released Filesystem Block ReadWriteOnce ReadOnlyMany ReadWriteMany
ReadWriteOncePod Retain Delete IfHealthyBudget AlwaysAllow PreemptLowerPriority preemptible
non-preemptible semi-preemptible Ready MemoryPressure DiskPressure PIDPressure NetworkUnavailable
PodScheduled Initialized ContainersReady DisruptionTarget UnschedulableOnNodePool SchedulingBackoff Node
Pod PodGroup Job Queue pods None none best-effort restricted single-numa-node container pod
ReplicaSet SingleNUMANode SingleNUMANodePodLevel SingleNUMANodeContainerLevel BestEffortContainerLevel
BestEffortPodLevel RestrictedContainerLevel RestrictedPodLevel Restricted"""
_WORDS: Final = frozenset(_SPELLED.split())
"""Words of the API that the scheduler reads; they stay wherever no name is meant."""
_AMOUNT: Final = re.compile(r"[-+]?\d+(\.\d*)?([eE][-+]?\d+)?([numkMGTPE]i?)?").fullmatch
_SPAN: Final = re.compile(r"[-+]?(\d+(\.\d*)?(ns|us|µs|ms|s|m|h|d|w))+").fullmatch
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT[0-9:.]+(Z|[-+]\d\d:\d\d)").fullmatch
_LABEL: Final = re.compile(r"[A-Za-z0-9][-A-Za-z0-9._/]*").fullmatch
_ZONE: Final = re.compile(r"(node-)?\d{1,3}").fullmatch
_FIELD: Final = re.compile(r"[A-Za-z][A-Za-z0-9]*").fullmatch

NAME_KEYS: Final = frozenset(
    [
        *("name", "namespace", "uid", "nodeName", "nominatedNodeName", "queue", "parentQueue", "podName"),
        *("priorityClassName", "selectedNode", "claimName", "resourceClaimName", "storageClassName"),
        *("resourceClaimTemplateName", "volumeName", "topology", "parent", "pool", "device", "request"),
        *("selectedGPUGroups", "namespaces", "values", "childQueues", "counterSet", "requests"),
    ]
)
"""Keys whose text is a name even if it is a word or a number."""
_NUMBERS: Final = frozenset(
    [
        *(
            "requests",
            "limits",
            "allocatable",
            "capacity",
            "overhead",
            "consumedCapacity",
            "counters",
            "amount",
        ),
        *("resources", "available", "storage", "maximumVolumeSize", "minAvailable", "maxUnavailable"),
        *("stalenessGracePeriod", "preemptionDelay", "preemptMinRuntime", "reclaimMinRuntime", "receivedGPU"),
        *("queueDepthPerAction", "scenarioSearchBudgets", "usage", "fetchedAt"),
    ]
)
"""Keys below which amounts and spans of time stay."""
_LABEL_KEYS: Final = frozenset(
    [
        *("key", "topologyKey", "nodeLabel", "alias", "requiredTopologyLevel", "preferredTopologyLevel"),
        *(
            "matchLabelKeys",
            "NodePoolLabelKey",
            "NodePoolLabelValue",
            "queueLabelKey",
            "driver",
            "schedulerName",
        ),
        *("deviceClassName", "provisioner", "extendedResourceName", "matchAttribute", "distinctAttribute"),
    ]
)
"""Keys whose text is the key of a label or of a device's attribute, or says which driver or scheduler."""
_TIMES: Final = re.compile(r".*(Timestamp|Time|fetchedAt)").fullmatch
_WHOLE: Final = {
    "config": frozenset(("tiers", "actions")),
    "discovery": frozenset(("serverVersion", "resources")),
    "resourceSlices": frozenset(("attributes", "expression")),
    "deviceClasses": frozenset(("expression",)),
    "resourceClaims": frozenset(("expression",)),
    "deviceTaintRules": frozenset(("expression",)),
}
"""Keys whose values stay whole, by kind or part of the snapshot: the scheduler's setup, device attributes and
the expressions about them.
"""
_VALUE_MAPS: Final = frozenset({"labels", "nodeSelector", "matchLabels"})
"""Keys of mappings from label keys to values."""
_FREE_MAPS: Final = _NUMBERS | _VALUE_MAPS | {"annotations"}
"""Keys of mappings whose keys are not fields; other keys than fields are left out."""
_DROPPED: Final = frozenset(
    [
        *("message", "displayName", "managedFields", "reason", "data", "binaryData", "stringData", "command"),
        *("args", "parameters", "volumeAttributes", "opaque", "lastAppliedConfiguration", "usageDBConfig"),
        *("items", "options", "lifecycle", "livenessProbe", "readinessProbe", "startupProbe"),
    ]
)
_ONLY: Final = {
    "env": frozenset(("name", "valueFrom")),
    "valueFrom": frozenset(("configMapKeyRef",)),
    "configMapKeyRef": frozenset(("name", "optional")),
}
"""Keys of mappings that keep these fields alone."""
_NAMED: Final = frozenset(
    ("namespace", "pod", "podGroup", "queue", "parent", "node", "gpuGroups", "for", "object")
)
"""Keys of ``decisions/1`` whose values are names, or names joined by ``/``."""
_ANNOTATIONS: Final = re.compile(
    r"^(pod-group-name|gpu-|mps$|received-resource-type$|kai\.scheduler/|kai-cp/|nvidia\.com/)"
)
_HELD_NAMES: Final = frozenset({keys.POD_GROUP, keys.FRACTION_CONTAINER})
"""Annotations that hold a name."""
_HELD_ZONES: Final = re.compile(r"kai\.scheduler/numa-placement-").match
_NAMES_IN_NOTES: Final = {
    USERS: "",
    KINDS: "",
    RESERVATION: "nodes",
    FAILURES: "-",
}
"""Annotations that hold JSON objects, with the key below which the keys are names; "": the object itself."""
_UNNAMED: Final = frozenset({"*", "reservation/1"})
"""What such objects say that is not a name: each user that is not named, and a schema."""
_MEANT: Final = re.compile(
    r"^(nvidia\.com/|node-role\.kubernetes\.io/|feature\.node\.kubernetes\.io/|kai\.scheduler/(task-priority"
    r"|preemptibility|node-pool)$|training\.kubeflow\.org/job-role$|ray\.io/node-type$|app$)"
)
"""Labels whose values the scheduler reads."""
_VERBATIM: Final = frozenset({"deviceClasses", "csiDrivers"})
"""Kinds whose own names say what they are (2.5)."""
_SPOKEN: Final = frozenset({"", "0.0.0.0"})

_ZONE_RESOURCES: Final = "resources of a zone"
_ZONE_FIELDS: Final = frozenset(
    (
        *("name", "zone", "type", "parent", "costs", "value", "resources"),
        *("amount", "capacity", "allocatable", "available", "zones"),
    )
)
"""Fields of a zone and of its resources."""

Rename = Callable[[str], str]


class Anonymizer:
    """One renaming; use a fresh one for every snapshot."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def snapshot(self, raw: Mapping[str, Any]) -> dict[str, Any]:
        """The snapshot with new names."""
        found: set[str] = set()

        def note(text: str) -> str:
            found.add(text)
            return text

        _Walk(raw, note).snapshot()
        width = len(str(len(found)))
        self._names = {text: f"x{i:0{width}d}" for i, text in enumerate(sorted(found))}
        # Uids and namespaces may break ties, so they follow the same table.
        return _Walk(raw, self._names.__getitem__).snapshot()

    def decisions(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """The ``decisions/1`` of the last renamed snapshot, renamed, without messages."""
        result: dict[str, Any] = self._document(document)
        result["queues"] = {self._name(key): value for key, value in (result.get("queues") or {}).items()}
        return result

    def _name(self, text: str) -> str:
        return self._names.get(text, text)

    def _document(self, value: Any, key: str = "") -> Any:
        if isinstance(value, Mapping):
            return {k: self._document(v, k) for k, v in value.items() if k not in ("message", "details")}
        if isinstance(value, list):
            return [self._document(entry, key) for entry in value]
        if isinstance(value, str) and key in _NAMED:
            return re.sub(r"[^/ ]+", lambda part: self._name(part[0]), value)
        return value


class _Walk:
    """One pass over a snapshot that keeps, renames or removes every text."""

    def __init__(self, raw: Mapping[str, Any], rename: Rename) -> None:
        self._raw = raw
        self._to = rename
        pools = (raw.get("schedulerParams") or {}).get("partitionParams") or {}
        self._read = {pools.get("NodePoolLabelKey"), *_compared(raw["rawObjects"].get("pods"))}
        """Labels whose values this snapshot's scheduler reads."""
        self._products = _products(raw["rawObjects"])
        self._whole: Set[str] = frozenset()
        """Keys whose values stay whole in the part that is walked."""

    def snapshot(self) -> dict[str, Any]:
        """Walk the whole snapshot."""
        lists = self._raw["rawObjects"]
        objects = {key: self._part(items, key) for key, items in lists.items() if key in LISTS}
        return {
            key: objects if key == "rawObjects" else self._part(value, key)
            for key, value in self._raw.items()
            if key in PARTS
        }

    def _part(self, value: Any, kind: str) -> Any:
        """A part of the snapshot, or a list of its objects."""
        self._whole = _WHOLE.get(kind, frozenset())
        if kind in LISTS and isinstance(value, list):
            return [self._item(item, kind) for item in value]
        return self._value(value, kind, "")

    def _rename(self, text: str) -> str:
        return text if text in _SPOKEN else self._to(text)

    def _item(self, item: Any, kind: str) -> Any:
        if kind in _VERBATIM and isinstance(item, Mapping):
            named = item.get("metadata") or {}
            bare = {**item, "metadata": {k: v for k, v in named.items() if k != "name"}}
            found = self._value(bare, kind, "")
            found["metadata"] = {**({"name": named["name"]} if "name" in named else {}), **found["metadata"]}
            return found
        found = self._value(item, kind, "")
        if kind == "pods" and isinstance(item, Mapping):
            self._keep_endings(item.get("metadata"), found.get("metadata"))
        return found

    def _keep_endings(self, metadata: Any, renamed: Any) -> None:
        """Keep the hash at the end of a ReplicaSet's name, which relates a revision to its workload."""
        labels = metadata.get("labels") if isinstance(metadata, Mapping) else None
        hashes = [labels[label] for _, label in HASHED if labels.get(label)] if labels else []
        owners = (metadata.get("ownerReferences") or ()) if hashes else ()
        for owner, new in zip(owners, renamed["ownerReferences"] if owners else (), strict=True):
            for ending in hashes:
                name = owner.get("name") if isinstance(owner, Mapping) else None
                if isinstance(name, str) and name.endswith(f"-{ending}"):
                    new["name"] = f"{self._rename(name.removesuffix(f'-{ending}'))}-{self._rename(ending)}"

    def _value(self, value: Any, key: str, inside: str) -> Any:
        """Rename a value. ``inside`` is the nearest key above that decides about everything below it."""
        if key in self._whole:
            return value
        inside = _inside(key, inside)
        if isinstance(value, Mapping):
            return self._mapping(value, key, inside)
        if isinstance(value, list):
            return [self._value(entry, key, inside) for entry in value]
        return self._text(value, key, inside) if isinstance(value, str) else value

    def _mapping(self, value: Mapping[str, Any], key: str, inside: str) -> dict[str, Any]:
        if key in _VALUE_MAPS:
            return {k: v if self._means(k) else self._rename(str(v)) for k, v in value.items()}
        if key == "annotations":
            return {k: self._annotation(k, v) for k, v in value.items() if _ANNOTATIONS.match(k)}
        if key == "queues" and inside == "usage":
            return {self._rename(k): self._value(v, "", inside) for k, v in value.items()}
        meant = self._means(str(value.get("key") or ""))
        return {
            k: v if meant and k in ("values", "value") else self._value(v, k, inside)
            for k, v in value.items()
            if k not in _DROPPED
            and k in _ONLY.get(key, value)
            and (_FIELD(k) or key in _FREE_MAPS or inside in _NUMBERS)
        }

    def _means(self, label: str) -> bool:
        return label in self._read or _MEANT.match(label) is not None

    def _text(self, text: str, key: str, inside: str) -> str:
        if key in ("request", "requests"):  # NAME, or NAME/ALTERNATIVE
            return "/".join(map(self._rename, text.split("/")))
        return text if _stays(text, key, inside) else self._rename(text)

    def _annotation(self, key: str, value: Any) -> Any:
        text = str(value)
        if key in _HELD_NAMES:
            return self._rename(text)
        if _HELD_ZONES(key):
            with suppress(orjson.JSONDecodeError):
                return orjson.dumps(self._value(orjson.loads(text), "zones", "")).decode()
        if key in _NAMES_IN_NOTES:
            with suppress(orjson.JSONDecodeError, RecursionError):
                return orjson.dumps(self._noted(orjson.loads(text), "", _NAMES_IN_NOTES[key])).decode()
        return value if _says_an_amount(text) else self._rename(text)

    def _noted(self, value: Any, key: str, names_below: str) -> Any:
        """Rename a value inside a JSON annotation."""
        if isinstance(value, Mapping):
            if key == names_below:
                return {self._noted_name(k): self._noted(v, f"{key}.", names_below) for k, v in value.items()}
            return {k: self._noted(v, k, names_below) for k, v in value.items() if _FIELD(k)}
        if isinstance(value, list):
            return [self._noted(entry, f"{key}.", names_below) for entry in value]
        if isinstance(value, str):
            return value if value in _UNNAMED or _says_an_amount(value) else self._rename(value)
        return value

    def _noted_name(self, text: str) -> str:
        return text if text in self._products or text in _UNNAMED else self._rename(text)


def _inside(key: str, inside: str) -> str:
    if inside == "zones" and key == "resources":
        return _ZONE_RESOURCES
    if inside in ("zones", _ZONE_RESOURCES) and key not in _ZONE_FIELDS:
        return ""
    return key if key in _NUMBERS | {"zones"} and inside != _ZONE_RESOURCES else inside


def _stays(text: str, key: str, inside: str) -> bool:
    """Whether a text is on the keep-list."""
    if key in ("name", "zone") and inside in ("zones", _ZONE_RESOURCES):
        return bool(_ZONE(text) if inside == "zones" else _LABEL(text))
    if key in NAME_KEYS:
        return False
    if key in _LABEL_KEYS:
        return _LABEL(text) is not None
    if _TIMES(key):
        return _TIME(text) is not None
    number = inside in _NUMBERS or inside == _ZONE_RESOURCES
    return text in _WORDS or (number and bool(_AMOUNT(text) or _SPAN(text)))


def _says_an_amount(text: str) -> bool:
    return text in _WORDS or any(shape(text) for shape in (_AMOUNT, _SPAN, _TIME))


def _products(lists: Mapping[str, Any]) -> set[str]:
    """The GPU kinds in node labels and device attributes, which are kept."""
    found = {"unknown"}
    for node in lists.get("nodes") or ():
        labels = (node.get("metadata") or {}).get("labels") if isinstance(node, Mapping) else None
        found.add(str((labels or {}).get(PRODUCT_LABEL)))
    for each in lists.get("resourceSlices") or ():
        for device in ((each.get("spec") or {}).get("devices") or ()) if isinstance(each, Mapping) else ():
            attributes = (device.get("basic") or device).get("attributes") or {}
            found |= {str(said.get("string")) for said in attributes.values() if isinstance(said, Mapping)}
    return found


def _compared(value: Any) -> Iterator[str]:
    """Labels whose values selectors compare as numbers (Gt, Lt)."""
    if isinstance(value, Mapping):
        if value.get("operator") in ("Gt", "Lt"):
            yield str(value.get("key"))
        value = list(value.values())
    if isinstance(value, list):
        for entry in value:
            yield from _compared(entry)
