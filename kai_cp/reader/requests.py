"""A pod's request vector from its containers and from itself (2.1), and its quality of service."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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
    total |= pod_level(spec)
    overhead = amounts(object_at(spec, "overhead", "spec"), "spec.overhead")
    overhead.pop("gpu", None)
    add(total, overhead)
    total["pods"] = 1
    return total, containers


def pod_level(spec: Json) -> ResourceAmounts:
    """What the pod requests as a whole (``spec.resources``): CPU, memory and huge pages, as in Kubernetes
    1.34. It replaces the sum of its containers, init containers included. Overhead is added to it."""
    resources = object_at(spec, "resources", "spec")
    requests = object_at(resources, "requests", "spec.resources")
    counted = [name for name in requests if name in ("cpu", "memory") or name.startswith("hugepages-")]
    return amounts({name: requests[name] for name in counted}, "spec.resources.requests")


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
        for one in _readable(raw, amounts):
            add(total, one)
    for one in _readable(spec, lambda request, _: pod_level({"resources": {"requests": request}})):
        total |= one
    return total


def _readable(holder: Any, read: Callable[[Json, str], ResourceAmounts]) -> Iterator[ResourceAmounts]:
    """The readable requests of a container or pod, each by itself."""
    resources = holder.get("resources") if isinstance(holder, dict) else None
    requests = resources.get("requests") if isinstance(resources, dict) else None
    for name, value in (requests if isinstance(requests, dict) else EMPTY).items():
        try:
            yield read({name: value}, "")
        except Malformed:
            continue


def guaranteed(spec: Json, status: Json) -> bool:
    """Whether the pod's QoS class is Guaranteed, from its status or else from its limits."""
    told = text_at(status, "qosClass", "status")
    if told:
        return told == "Guaranteed"
    containers: Sequence[Json] = [
        *objects_at(spec, "containers", "spec"),
        *objects_at(spec, "initContainers", "spec"),
    ]
    if object_at(spec, "resources", "spec"):
        containers = [spec]  # The pod's own resources decide.
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
