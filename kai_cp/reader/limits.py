"""Refuses objects that would cost all others too much, before anything is built from them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kai_cp.json_types import Json
from kai_cp.reader.fields import Malformed
from kai_cp_models.settings import Limits


def refuse_costly(spec: Json, limits: Limits) -> None:
    """Raise Malformed for a pod's spec that exceeds the limits of one pod; wrong types are found later."""
    names: set[str] = set()
    ports = host_ports = 0
    for kind in ("containers", "initContainers"):
        for container in _list(spec.get(kind)):
            requests = _object(_object(container).get("resources")).get("requests")
            names.update(_object(requests))
            listed = _list(_object(container).get("ports"))
            ports += len(listed)
            host_ports += sum("hostPort" in _object(port) for port in listed)
    _refuse("spec.containers", "resources", len(names), limits.resources_per_pod, "resources_per_pod")
    _refuse("spec.containers", "host ports", host_ports, limits.host_ports_per_pod, "host_ports_per_pod")
    affinity = spec.get("affinity")
    values = ports + len(_object(spec.get("nodeSelector"))) + len(_list(spec.get("tolerations")))
    if affinity is not None or spec.get("topologySpreadConstraints") is not None:
        terms, inside = _terms(_object(affinity))
        terms += len(_list(spec.get("topologySpreadConstraints")))
        values += inside
        _refuse("spec.affinity", "terms", terms, limits.terms_per_pod, "terms_per_pod")
    _refuse("spec", "values", values, limits.values_per_pod, "values_per_pod")


def refuse_many_subgroups(spec: Json, limits: Limits) -> None:
    """Raise Malformed for the spec of a pod group with too many subgroups."""
    if subgroups := len(_list(spec.get("subGroups"))):
        most = limits.subgroups_per_pod_group
        _refuse("spec.subGroups", "subgroups", subgroups, most, "subgroups_per_pod_group")


def _refuse(where: str, what: str, count: int, most: int, setting: str) -> None:
    if count > most:
        raise Malformed(where, f"{count} {what} are more than {most} (limits.{setting})")


def _terms(affinity: Json) -> tuple[int, int]:
    """Terms of an affinity, and the values in them."""
    terms = values = 0
    for kind, part in affinity.items():
        for rule in _object(part).values():
            entries = _list(rule) if isinstance(rule, list) else _list(_object(rule).get("nodeSelectorTerms"))
            terms += len(entries)
            for entry in entries:
                inner = _object(entry)
                inner = _object(inner.get("preference")) or _object(inner.get("podAffinityTerm")) or inner
                selectors = [inner] if kind == "nodeAffinity" else [_object(inner.get("labelSelector"))]
                values += sum(map(_size, selectors))
    return terms, values


def _size(selector: Json) -> int:
    needs = [*_list(selector.get("matchExpressions")), *_list(selector.get("matchFields"))]
    return len(_object(selector.get("matchLabels"))) + sum(
        1 + len(_list(_object(n).get("values"))) for n in needs
    )


def _object(value: Any) -> Json:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else ()
