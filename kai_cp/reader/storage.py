"""Volumes, volume claims, storage classes and capacities (2.7, 7.1 VolumeBinding)."""

from __future__ import annotations

import math
from typing import Final

from kai_cp.json_types import Json
from kai_cp.reader.affinity import read_node_terms, read_selector
from kai_cp.reader.fields import (
    bool_at,
    int_at,
    name_at,
    object_at,
    objects_at,
    strings_at,
    text_at,
    texts_at,
)
from kai_cp.reader.notes import Identity
from kai_cp.reader.quantity import exact_quantity
from kai_cp_models.pods import PodKey
from kai_cp_models.records.storage import STATIC_ONLY, StorageCapacity, StorageClass, Volume, VolumeClaim

_WAIT: Final = "WaitForFirstConsumer"
SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
_BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
_MOST: Final = 2**60
"""Numbers of bytes above this one count as this one."""


def read_volume(obj: Json, identity: Identity) -> Volume:
    """A PersistentVolume."""
    metadata, spec = object_at(obj, "metadata"), object_at(obj, "spec")
    csi, claim = object_at(spec, "csi", "spec"), object_at(spec, "claimRef", "spec")
    phase = text_at(object_at(obj, "status"), "phase", "status") or "Available"
    return Volume(
        name=identity[1],
        storage_class=text_at(spec, "storageClassName", "spec"),
        bytes=_bytes(object_at(spec, "capacity", "spec"), "storage", "spec.capacity"),
        modes=frozenset(texts_at(spec, "accessModes", "spec")),
        block=spec.get("volumeMode") == "Block",
        labels=strings_at(metadata, "labels", "metadata"),
        affinity=read_node_terms(object_at(spec, "nodeAffinity", "spec"), "required", "spec.nodeAffinity"),
        claim=_claim_of(claim) if claim else None,
        claim_uid=text_at(claim, "uid", "spec.claimRef") or None,
        driver=text_at(csi, "driver", "spec.csi"),
        handle=text_at(csi, "volumeHandle", "spec.csi") or identity[1],
        usable=phase in ("Available", "Bound", "Pending") and not metadata.get("deletionTimestamp"),
    )


def _claim_of(reference: Json) -> PodKey:
    where = "spec.claimRef"
    return PodKey(text_at(reference, "namespace", where), name_at(reference, "name", where))


def read_volume_claim(obj: Json, identity: Identity) -> VolumeClaim:
    """A PersistentVolumeClaim."""
    metadata, spec = object_at(obj, "metadata"), object_at(obj, "spec")
    annotations = strings_at(metadata, "annotations", "metadata")
    bound = _BIND_COMPLETED in annotations or text_at(object_at(obj, "status"), "phase", "status") == "Bound"
    owners = [
        text_at(row, "uid", f"metadata.ownerReferences[{i}]")
        for i, row in enumerate(objects_at(metadata, "ownerReferences", "metadata"))
        if row.get("kind") == "Pod"
    ]
    requests = object_at(object_at(spec, "resources", "spec"), "requests", "spec.resources")
    volume = text_at(spec, "volumeName", "spec")
    return VolumeClaim(
        key=PodKey(*identity),
        volume=volume or None if bound else None,
        storage_class=text_at(spec, "storageClassName", "spec"),
        bytes=_bytes(requests, "storage", "spec.resources.requests"),
        modes=frozenset(texts_at(spec, "accessModes", "spec")),
        block=spec.get("volumeMode") == "Block",
        selector=read_selector(spec, "selector", "spec"),
        selected_node=annotations.get(SELECTED_NODE) or None,
        owner_uid=owners[0] if owners else None,
    )


def is_deleted(obj: Json, identity: Identity) -> bool:
    """Whether an object is being deleted."""
    return bool(obj["metadata"].get("deletionTimestamp"))


def read_storage_class(obj: Json, identity: Identity) -> StorageClass:
    """A StorageClass."""
    topologies = []
    for i, term in enumerate(objects_at(obj, "allowedTopologies")):
        inside = f"allowedTopologies[{i}].matchLabelExpressions"
        rows = enumerate(objects_at(term, "matchLabelExpressions", f"allowedTopologies[{i}]"))
        topologies.append(tuple(_label_values(row, f"{inside}[{j}]") for j, row in rows))
    return StorageClass(
        name=identity[1],
        provisioner=text_at(obj, "provisioner") or STATIC_ONLY,
        waits=text_at(obj, "volumeBindingMode") == _WAIT,
        topologies=tuple(topologies),
    )


def _label_values(row: Json, where: str) -> tuple[str, tuple[str, ...]]:
    return name_at(row, "key", where), texts_at(row, "values", where)


def read_capacity(obj: Json, identity: Identity) -> StorageCapacity:
    """A CSIStorageCapacity."""
    return StorageCapacity(
        name=identity[1],
        storage_class=name_at(obj, "storageClassName"),
        nodes=read_selector(obj, "nodeTopology", ""),
        bytes=_bytes(obj, "capacity"),
        largest=_MOST if obj.get("maximumVolumeSize") is None else _bytes(obj, "maximumVolumeSize"),
    )


def tracks_capacity(obj: Json, identity: Identity) -> bool:
    """Whether a CSIDriver publishes capacities."""
    return bool_at(object_at(obj, "spec"), "storageCapacity", "spec")


def read_limits(obj: Json, identity: Identity) -> dict[str, int]:
    """The volume limits of a CSINode, by driver."""
    found = {}
    for i, driver in enumerate(objects_at(object_at(obj, "spec"), "drivers", "spec")):
        where = f"spec.drivers[{i}]"
        most = int_at(object_at(driver, "allocatable", where), "count", f"{where}.allocatable")
        if most is not None and most >= 0:
            found[name_at(driver, "name", where)] = most
    return found


def _bytes(holder: Json, key: str, where: str = "") -> int:
    """An amount in bytes, rounded up; 0 when absent."""
    if holder.get(key) is None:
        return 0
    return min(math.ceil(exact_quantity(holder[key], f"{where}.{key}".lstrip("."))), _MOST)
