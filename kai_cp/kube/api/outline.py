"""What is kept of an object that is too large to be kept whole.

One object of 3 MiB, which is what an API server accepts, takes 25 MiB as Python values. Forty of them fill a
binder, and a namespace may have them under any quota. So of a larger one only an outline stays.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any, Final

import orjson

from kai_cp.json_types import Object
from kai_cp.kube.api import names
from kai_cp.kube.api.api_objects import labels_of
from kai_cp.reader.fields import Malformed
from kai_cp.reader.requests import read_requests, readable_requests
from kai_cp.workloads.sums import STANDARD, by_name, gpus_of, resource_list

LARGEST: Final = 512 * 1024
"""Bytes of JSON. An object that all ``limits`` allow has less."""
TEXT: Final = f"the object has more than {LARGEST} bytes"
"""Replaces a large field; reading the field reports this as its fault."""
_SMALL: Final = 16 * 1024
_IDENTITY: Final = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp")
_MOST_OWNERS: Final = 10
_MOST_NAMES: Final = 50


def outline(item: Object) -> Object:
    """Whose the object is, and of a pod on a node what it holds: it counts, and may be evicted, as if it were
    whole. Of others each large field is a text.
    """
    meta, spec, status = item["metadata"], item.get("spec"), item.get("status")
    # The server bounds annotations. By its labels a pod holds a part of a GPU.
    head = {key: meta[key] for key in (*_IDENTITY, "annotations") if key in meta}
    ours = (key for key in labels_of(item) if key == names.SUBGROUP or key.startswith(names.GPU_GROUP))
    head["labels"] = {key: meta["labels"][key] for key in islice(ours, _MOST_NAMES)}
    head["ownerReferences"] = (meta.get("ownerReferences") or [])[:_MOST_OWNERS]
    short = _short(item, TEXT) | {"metadata": head}
    if isinstance(spec, dict):
        short["spec"] = _short(spec, None) | _held(spec) if spec.get("nodeName") else _short(spec, TEXT)
    if isinstance(status, dict):
        short["status"] = _short(status, None)
    return short


def _short(fields: Mapping[str, Any], text: str | None) -> Object:
    """The fields with a text in place of each that is large."""
    return {key: value if len(orjson.dumps(value)) <= _SMALL else text for key, value in fields.items()}


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
