"""Snapshots without names: the same plan up to renaming.

Every name, namespace, uid and label value gets a new one, equal ones an equal one. New names sort as the old
ones did, because ties are broken by name. Label keys stay (topologies and selectors mean them), and so do the
values of labels that the scheduler itself understands, and names that say what a device is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from kai_cp.kube import names

NAME_KEYS: Final = frozenset(
    [
        *("name", "namespace", "uid", "nodeName", "nominatedNodeName", "queue", "parentQueue", "podName"),
        *("priorityClassName", "selectedNode", "claimName", "resourceClaimName", "storageClassName"),
        *("resourceClaimTemplateName", "volumeName", "topology", "parent", "pool", "device", "request"),
    ]
)
"""Keys whose string is a name of something."""
_NAMED: Final = frozenset(
    ("namespace", "pod", "podGroup", "queue", "parent", "node", "gpuGroups", "for", "object")
)
"""Keys of ``decisions/1`` whose values are names, or names joined by ``/``."""
LIST_KEYS: Final = frozenset({"selectedGPUGroups", "namespaces", "values", "childQueues"})
"""Keys whose list holds names."""
VALUE_MAPS: Final = frozenset({"labels", "nodeSelector", "matchLabels"})
"""Keys of mappings from label keys to values."""
DROPPED: Final = frozenset({"message", "displayName", "managedFields", "env", "envFrom", "reason"})
KEPT_ANNOTATIONS: Final = re.compile(
    r"^(pod-group-name|gpu-|mps$|received-resource-type$|kai\.scheduler/|nvidia\.com/)"
)
MEANT: Final = re.compile(
    r"^(nvidia\.com/|node-role\.kubernetes\.io/|feature\.node\.kubernetes\.io/|kai\.scheduler/(task-priority"
    r"|preemptibility|node-pool)$|training\.kubeflow\.org/job-role$|ray\.io/node-type$|app$)"
)
"""Labels whose values the scheduler reads."""
VERBATIM: Final = frozenset({"deviceClasses", "csiDrivers"})
"""Kinds whose own names say what they are (2.5)."""
SPOKEN: Final = frozenset({"true", "false", "", "0.0.0.0"})


class Anonymizer:
    """One renaming; use a fresh one for every snapshot."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def snapshot(self, raw: Mapping[str, Any]) -> dict[str, Any]:
        """The snapshot with new names."""
        objects = raw["rawObjects"]
        found = {
            text
            for key, items in objects.items()
            for item in items or ()
            for text in _names_in(item, own=key not in VERBATIM)
        }
        width = len(str(len(found)))
        self._names = {text: f"x{i:0{width}d}" for i, text in enumerate(sorted(found))}
        # A uid may order equals, a namespace may hold them: both follow the same table.
        renamed = {
            key: None if items is None else [self._item(item, own=key not in VERBATIM) for item in items]
            for key, items in objects.items()
        }
        return {**raw, "rawObjects": renamed}

    def decisions(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """The ``decisions/1`` of the snapshot renamed last, without its messages."""
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

    def _item(self, item: Mapping[str, Any], *, own: bool) -> Any:
        result = self._value(item, "")
        if not own:
            result["metadata"]["name"] = item["metadata"]["name"]
        return result

    def _value(self, value: Any, key: str) -> Any:
        if isinstance(value, Mapping):
            if key in VALUE_MAPS:
                return {k: v if MEANT.match(k) else self._name(str(v)) for k, v in value.items()}
            if key == "annotations":
                return self._annotations(value)
            meant = MEANT.match(str(value.get("key") or "")) is not None
            return {
                k: v if meant and k in ("values", "value") else self._value(v, k)
                for k, v in value.items()
                if k not in DROPPED
            }
        if isinstance(value, list):
            return [self._value(entry, key) for entry in value]
        if isinstance(value, str) and _is_name(key):
            return self._name(value)
        return value

    def _annotations(self, annotations: Mapping[str, str]) -> dict[str, str]:
        kept = {key: value for key, value in annotations.items() if KEPT_ANNOTATIONS.match(key)}
        for key in (names.GROUP, names.FRACTION_CONTAINER):
            if key in kept:
                kept[key] = self._name(kept[key])
        kept.pop("kai.scheduler/top-owner-metadata", None)
        return kept


def _names_in(value: Any, key: str = "", *, own: bool = True) -> Iterator[str]:
    """Every string to be renamed."""
    if isinstance(value, Mapping):
        if key in VALUE_MAPS:
            yield from (str(v) for k, v in value.items() if not MEANT.match(k) and v not in SPOKEN)
            return
        if key == "annotations":
            yield from (value[k] for k in (names.GROUP, names.FRACTION_CONTAINER) if k in value)
            return
        meant = MEANT.match(str(value.get("key") or "")) is not None
        for k, v in value.items():
            if k in DROPPED or (meant and k in ("values", "value")) or (not own and k == "name"):
                continue
            yield from _names_in(v, k, own=own)
    elif isinstance(value, list):
        for entry in value:
            yield from _names_in(entry, key, own=own)
    elif isinstance(value, str) and value not in SPOKEN and _is_name(key):
        yield value


def _is_name(key: str) -> bool:
    return key in NAME_KEYS or key in LIST_KEYS or key == "value"
