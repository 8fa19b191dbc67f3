"""A pod's request vector from its containers (2.1), and its quality of service."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kai_cp.json_types import Json
from kai_cp.reader.fields import EMPTY, Malformed, object_at, objects_at, text_at
from kai_cp.reader.quantity import quantity
from kai_cp.reader.resources import ResourceAmounts, add, amounts, raise_to


def read_requests(spec: Json) -> tuple[ResourceAmounts, tuple[ResourceAmounts, ...]]:
    """The request of the whole pod, and that of each regular container."""
    containers = tuple(
        _container(raw, f"spec.containers[{i}]")
        for i, raw in enumerate(objects_at(spec, "containers", "spec"))
    )
    total: ResourceAmounts = {}
    for container in containers:
        add(total, container)
    sidecars: ResourceAmounts = {}
    peak: ResourceAmounts = {}
    for i, raw in enumerate(objects_at(spec, "initContainers", "spec")):
        where = f"spec.initContainers[{i}]"
        asked = _container(raw, where)
        if text_at(raw, "restartPolicy", where) == "Always":
            add(sidecars, asked)
        else:
            add(asked, sidecars)
            raise_to(peak, asked)
    add(total, sidecars)
    raise_to(total, peak)
    overhead = amounts(object_at(spec, "overhead", "spec"), "spec.overhead")
    overhead.pop("gpu", None)
    add(total, overhead)
    total["pods"] = 1
    return total, containers


def _container(raw: Json, where: str) -> ResourceAmounts:
    resources = object_at(raw, "resources", where)
    found = amounts(object_at(resources, "requests", f"{where}.resources"), f"{where}.resources.requests")
    found.pop("pods", None)
    return found


def readable_requests(spec: Any) -> ResourceAmounts:
    """The readable part of a malformed pod's requests, so that its place is not given away."""
    total: ResourceAmounts = {"pods": 1}
    containers = spec.get("containers") if isinstance(spec, dict) else None
    for raw in containers if isinstance(containers, list) else ():
        resources = raw.get("resources") if isinstance(raw, dict) else None
        requests = resources.get("requests") if isinstance(resources, dict) else None
        for name, value in (requests if isinstance(requests, dict) else EMPTY).items():
            try:
                add(total, amounts({name: value}, ""))
            except Malformed:
                continue
    return total


def guaranteed(spec: Json, status: Json) -> bool:
    """Whether the pod's QoS class is Guaranteed, from its status or else from its limits."""
    told = text_at(status, "qosClass", "status")
    if told:
        return told == "Guaranteed"
    containers: Sequence[Json] = [
        *objects_at(spec, "containers", "spec"),
        *objects_at(spec, "initContainers", "spec"),
    ]
    return bool(containers) and all(_limited(raw) for raw in containers)


def _limited(container: Json) -> bool:
    resources = object_at(container, "resources", "spec.containers[]")
    where = "spec.containers[].resources"
    limits = object_at(resources, "limits", where)
    requests = object_at(resources, "requests", where)
    for name in ("cpu", "memory"):
        if name not in limits:
            return False
        limit = quantity(limits[name], f"{where}.limits.{name}", milli=True)
        if quantity(requests.get(name, limits[name]), f"{where}.requests.{name}", milli=True) != limit:
            return False
    return True
