"""What is kept of an object that is too large to be kept whole.

One object of 3 MiB, which is what an API server accepts, takes 25 MiB as Python values. Forty of them fill a
binder, and a namespace may have them under any quota. So of a larger one only an outline stays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any, Final

import orjson

from kai_cp import keys
from kai_cp.json_types import Object
from kai_cp.kube.api.api_objects import labels_of
from kai_cp.kube.api.resources import POD_GROUPS, PODS, Resource
from kai_cp.reader.fields import Malformed
from kai_cp.reader.requests import read_requests, readable_requests
from kai_cp.reader.salvage import SET_ASIDE, stand_in
from kai_cp.workloads.sums import STANDARD, by_name, gpus_of, resource_list
from kai_cp.workloads.validity import WHY

_SMALL: Final = 16 * 1024
_IDENTITY: Final = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp")
_MOST_OWNERS: Final = 10
_MOST_NAMES: Final = 50
_NO_TREE: Final = [{"name": "all", "parent": WHY}]
"""Who reads it tells why it is none."""


def pod(item: Object) -> Object:
    """A pod on a node holds what it held, and may be evicted, as if it were whole; one that waits is set
    aside.
    """
    spec = item["spec"]
    if not spec.get("nodeName"):
        return set_aside(item)
    return {**_outline(item), "spec": _small(spec) | _held(spec)}


def pod_group(item: Object) -> Object:
    """A group whose subgroups cannot be read: what runs stays in its queue, and what waits is set aside."""
    return {**_outline(item), "spec": {**_small(item.get("spec") or {}), "subGroups": _NO_TREE}}


def set_aside(item: Object) -> Object:
    """A stand-in."""
    return stand_in(item, WHY)


OUTLINES: Final[Mapping[Resource, Callable[[Object], Object]]] = {PODS: pod, POD_GROUPS: pod_group}
"""By kind; an object of another kind is set aside."""


def why_unread(item: Object) -> str:
    """Why a pod group or an owner cannot be read as it is; "" if it can."""
    if (item.get("spec") or {}).get("subGroups") == _NO_TREE:
        return WHY
    return str(item.get(SET_ASIDE, ""))


def _outline(item: Object) -> Object:
    meta = item["metadata"]
    # The server bounds annotations. By its labels a pod holds a part of a GPU.
    head = {key: meta[key] for key in (*_IDENTITY, "annotations") if key in meta}
    ours = (key for key in labels_of(item) if key == keys.SUBGROUP or key.startswith(keys.GPU_GROUP))
    head["labels"] = {key: meta["labels"][key] for key in islice(ours, _MOST_NAMES)}
    head["ownerReferences"] = (meta.get("ownerReferences") or [])[:_MOST_OWNERS]
    return {**_small(item), "metadata": head, "status": _small(item.get("status") or {})}


def _small(fields: Mapping[str, Any]) -> Object:
    """The fields without those that are large."""
    return {key: value for key, value in fields.items() if len(orjson.dumps(value)) <= _SMALL}


def _held(spec: Mapping[str, Any]) -> Object:
    """What a pod holds on its node, as one container."""
    try:
        amounts, _ = read_requests(spec)
    except Malformed:
        amounts = readable_requests(spec)
    total = by_name(amounts, spec)
    # Names that no node has are as many as their owner likes.
    known = sorted(total, key=lambda name: (name not in STANDARD, not gpus_of({name: 1}), name))[:_MOST_NAMES]
    requests = resource_list({name: total[name] for name in known})
    containers = [{"name": "all", "resources": {"requests": requests}}]
    return {"containers": containers, "initContainers": None, "overhead": None, "resources": None}
