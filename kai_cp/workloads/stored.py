"""Compares the stored pod group with the wanted one: which fields stay and which are written (10.5)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from kai_cp import keys
from kai_cp.json_types import Json
from kai_cp.reader.times import go_duration
from kai_cp.workloads.groups import SPEC_KEYS, Group
from kai_cp.workloads.settings import GroupingSettings

_DURATIONS: Final = frozenset(("preemptionDelay", "stalenessGracePeriod"))


def metadata(group: Group) -> dict[str, Any]:
    """Metadata of a new PodGroup."""
    return {
        "name": group.name,
        "namespace": group.namespace,
        "labels": dict(group.labels),
        "annotations": dict(group.annotations),
        "ownerReferences": [group.owner.json()],
    }


def merged(before: Json, group: Group, settings: GroupingSettings) -> dict[str, Any]:
    """The wanted PodGroup, with the fields that the stored one keeps.

    The queue stays, so that a group can be moved by editing it; so does the node pool, a queue label, a
    maximum run time (starts were promised by it), and a topology constraint where the workload names no
    topology.
    """
    meta = before.get("metadata") or {}
    spec = before.get("spec") or {}
    labels = dict(group.labels)
    has = meta.get("labels") or {}
    queue, pool = settings.queue_label_key, settings.node_pool_label_key
    if pool in has:
        labels[pool] = has[pool]
    else:
        labels.pop(pool, None)
    if queue in has and not group.follows_queue:
        labels[queue] = has[queue]
    wanted = group.spec(spec)
    if not group.follows_queue:
        wanted["queue"] = spec.get("queue")
    if not group.topology.name:
        wanted["topologyConstraint"] = spec.get("topologyConstraint")
    own = metadata(replace(group, labels=labels))
    own["labels"] = {**has, **labels}
    notes = meta.get("annotations") or {}
    stays = {keys.MAX_RUNTIME: notes[keys.MAX_RUNTIME]} if keys.MAX_RUNTIME in notes else {}
    own["annotations"] = {**notes, **group.annotations, **stays}
    other = {key: value for key, value in spec.items() if key not in SPEC_KEYS}
    return {"metadata": own, "spec": {**wanted, **other}}


def difference(before: Json, wanted: Json) -> Json | None:
    """The merge patch from the stored PodGroup to the wanted one; None if they agree."""
    meta, spec = before.get("metadata") or {}, before.get("spec") or {}
    changes: dict[str, Any] = {}
    for key in ("labels", "annotations"):
        has = meta.get(key) or {}
        news = {name: value for name, value in wanted["metadata"][key].items() if has.get(name) != value}
        if news:
            changes[key] = news
    if (meta.get("ownerReferences") or []) != wanted["metadata"]["ownerReferences"]:
        changes["ownerReferences"] = wanted["metadata"]["ownerReferences"]
    new_spec: dict[str, Any] = {}
    for key in SPEC_KEYS:
        old, new = spec.get(key), wanted["spec"].get(key)
        if not _alike(key, old, new):
            new_spec[key] = _patch(old, new)
    result = {"metadata": changes} if changes else {}
    if new_spec:
        result["spec"] = new_spec
    return result or None


def _patch(old: Any, new: Any) -> Any:
    """A value for a merge patch: removed keys become null."""
    if not _present(new):
        return None
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        return {**dict.fromkeys(old.keys() - new.keys()), **new}
    return new


def _present(value: Any) -> bool:
    return value is not None and value not in ("", {}, [])


def _alike(key: str, old: Any, new: Any) -> bool:
    if old is new or old == new or not (_present(old) or _present(new)):
        return True
    if key in _DURATIONS and isinstance(old, str) and isinstance(new, str):
        try:
            return go_duration(old) == go_duration(new)
        except ValueError:
            return False
    return bool(_bare(old) == _bare(new))


def _bare(value: Any) -> Any:
    """The value without absent fields at any depth."""
    if isinstance(value, Mapping):
        return {key: _bare(inner) for key, inner in value.items() if _present(inner)}
    if isinstance(value, list):
        return [_bare(inner) for inner in value]
    return value
