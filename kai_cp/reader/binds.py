"""BindRequests (1.3, 9.1): places promised to pods, and the devices promised with them."""

from __future__ import annotations

from collections.abc import Container, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from kai_cp.json_types import Json
from kai_cp.reader.devices import read_allocation
from kai_cp.reader.fields import Malformed, int_at, object_at, objects_at, text_at, texts_at
from kai_cp.reader.notes import Identity, Notes, title
from kai_cp.reader.numa import ZoneRows, read_zones
from kai_cp_models.pods import EXTENDED_RESOURCES, PodKey
from kai_cp_models.records.devices import ClaimAllocation

_SPEC: Final = frozenset(
    (
        "podName",
        "selectedNode",
        "receivedResourceType",
        "receivedGPU",
        "selectedGPUGroups",
        "resourceClaimAllocations",
        "extendedResourceClaimAllocation",
        "predictedNUMAZones",
        "backoffLimit",
    )
)


@dataclass(frozen=True, slots=True)
class Promise:
    """A BindRequest to a node of the snapshot that has not failed for good.

    ``owner`` is the uid of the pod for which it was made, "" if not recorded.
    """

    node: str
    gpu_groups: tuple[str, ...] = ()
    claim_allocations: Mapping[str, ClaimAllocation] = field(default_factory=dict)
    numa_zones: ZoneRows = ()
    owner: str = ""

    def meant_for(self, uid: str) -> bool:
        """Whether it was made for the pod with this uid, and not for an earlier pod of the same name."""
        return not self.owner or not uid or self.owner == uid


def read_promises(
    objects: Mapping[Identity, Json], nodes: Container[str], notes: Notes
) -> dict[PodKey, Promise]:
    """The live promises by pod; failed ones and those to unknown nodes are ignored (9.1)."""
    found: dict[PodKey, Promise] = {}
    for identity in sorted(objects):
        obj = objects[identity]
        try:
            spec = object_at(obj, "spec")
            notes.unknown(spec, _SPEC, "rawObjects.bindRequests[].spec")
            pod = PodKey(identity[0], text_at(spec, "podName", "spec") or identity[1])
            promise = _promise(obj, spec)
        except Malformed as problem:
            notes.aside(title("BindRequest", identity), problem)
            continue
        if promise is not None and promise.node in nodes:
            found.setdefault(pod, promise)
    return found


def _promise(obj: Json, spec: Json) -> Promise | None:
    status = object_at(obj, "status")
    if text_at(status, "phase", "status") == "Failed":
        limit = int_at(spec, "backoffLimit", "spec")
        if limit is None or (int_at(status, "failedAttempts", "status") or 0) >= limit:
            return None
    allocations: dict[str, ClaimAllocation] = {}
    for i, row in enumerate(objects_at(spec, "resourceClaimAllocations", "spec")):
        where = f"spec.resourceClaimAllocations[{i}]"
        _promised(row, where, text_at(row, "name", where), allocations)
    extended = object_at(spec, "extendedResourceClaimAllocation", "spec")
    _promised(extended, "spec.extendedResourceClaimAllocation", EXTENDED_RESOURCES, allocations)
    return Promise(
        node=text_at(spec, "selectedNode", "spec"),
        gpu_groups=texts_at(spec, "selectedGPUGroups", "spec"),
        claim_allocations=allocations,
        numa_zones=read_zones(spec.get("predictedNUMAZones"), "spec.predictedNUMAZones"),
        owner=_owner(object_at(obj, "metadata")),
    )


def _promised(holder: Json, where: str, name: str, allocations: dict[str, ClaimAllocation]) -> None:
    """Add an allocation if it can be read; the place counts in either case."""
    with suppress(Malformed):
        allocation = object_at(holder, "allocation", where)
        if allocation:
            allocations[name] = read_allocation(allocation, f"{where}.allocation")


def _owner(metadata: Json) -> str:
    for i, owner in enumerate(objects_at(metadata, "ownerReferences", "metadata")):
        where = f"metadata.ownerReferences[{i}]"
        if text_at(owner, "kind", where) == "Pod":
            return text_at(owner, "uid", where)
    return ""
