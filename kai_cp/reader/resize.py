"""What a pod holds on its node while its containers are resized in place (Kubernetes 1.33 and later; 2.1).

The spec states the wanted amounts. The node keeps the larger one of these and of what the container has, as
the kubelet reports it (``allocatedResources`` and ``resources``); amounts that the kubelet calls infeasible
do not count.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kai_cp.json_types import Json, Object
from kai_cp.reader.fields import object_at, objects_at, text_at
from kai_cp.reader.quantity import quantity

_RESIZED: Final = ("cpu", "memory")
"""Nothing else can be changed in place."""
KINDS: Final = {"containers": "containerStatuses", "initContainers": "initContainerStatuses"}
"""Where the statuses of containers are; of the init containers only sidecars are resized."""


def as_held(spec: Json, status: Json) -> Json:
    """The spec of a pod, with the amounts that its containers hold as their requests. Raises
    ``Malformed``."""
    if not spec.get("nodeName") or not any(map(status.get, KINDS.values())):
        return spec
    only_held = infeasible(status)
    changed = {}
    for kind, statuses in KINDS.items():
        where = f"status.{statuses}[]"
        told = {text_at(one, "name", where): one for one in objects_at(status, statuses, "status")}
        containers = objects_at(spec, kind, "spec") if told else ()
        found = [
            _held(raw, told.get(text_at(raw, "name", f"spec.{kind}[]")), kind, only_held=only_held)
            for raw in containers
        ]
        if any(one is not raw for one, raw in zip(found, containers, strict=True)):
            changed[kind] = found
    return {**spec, **changed} if changed else spec


def infeasible(status: Json) -> bool:
    """Whether the kubelet says that the node can never do the requested resize."""
    conditions = objects_at(status, "conditions", "status")
    pending = (one for one in conditions if one.get("type") == "PodResizePending")
    return next((one.get("reason") for one in pending), None) == "Infeasible"


def _held(raw: Json, told: Json | None, kind: str, *, only_held: bool) -> Json:
    """A container with the amounts that it holds as its requests; the container itself if they are equal."""
    if told is None or (kind == "initContainers" and raw.get("restartPolicy") != "Always"):
        return raw
    resources = object_at(raw, "resources", f"spec.{kind}[]")
    asked = object_at(resources, "requests", f"spec.{kind}[].resources")
    reported = list(_reported(told, f"status.{KINDS[kind]}[]"))
    if all(amounts.get(name) == asked.get(name) for amounts in reported for name in _RESIZED):
        return raw
    requests: Object = {name: value for name, value in asked.items() if name not in _RESIZED}
    for name in _RESIZED:
        sources = reported if only_held else [*reported, asked]
        values = [source[name] for source in sources if source.get(name) is not None]
        if values:
            where = f"status.{KINDS[kind]}[].{name}"
            requests[name] = max((quantity(value, where, milli=True), str(value)) for value in values)[1]
    return {**raw, "resources": {**resources, "requests": requests}}


def _reported(told: Json, where: str) -> Iterator[Json]:
    """The amounts of a container as the kubelet reports them; nothing where it does not know resizes."""
    if told.get("allocatedResources") is not None:
        yield object_at(told, "allocatedResources", where)
    if told.get("resources") is not None:
        yield object_at(object_at(told, "resources", where), "requests", f"{where}.resources")
