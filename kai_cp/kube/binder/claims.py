"""Dynamic resource allocation: writes the scheduler's choice to the claims and reserves them for the pod."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from kai_cp.json_types import Object
from kai_cp.kube.api import resources
from kai_cp.kube.api.errors import ApiError
from kai_cp.kube.api.transport import Transport
from kai_cp.kube.binder.steps import BindError

FINALIZER: Final = "resource.kubernetes.io/delete-protection"
CONFLICTS: Final = 5
"""Times a claim that changed under our hands is read again."""
MOST_CONSUMERS: Final = 256
DEVICE: Final = ("request", "driver", "pool", "device")
"""What names a device; the server adds other fields to what was ordered."""


class Claims:
    """The step that writes the allocation and ``reservedFor`` of every claim of a pod."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def prepare(self, pod: Object, _node: Object, request: Object) -> None:
        """Allocate and reserve the pod's claims; raises ``BindError`` if that fails."""
        allocations = {
            entry.get("name"): entry.get("allocation")
            for entry in request["spec"].get("resourceClaimAllocations") or ()
        }
        for inside, name in claim_names(pod):
            if name is None:
                raise BindError(f"the claim {inside!r} of the pod's template does not exist yet")
            self.reserve(pod, name, allocations.get(inside))

    def undo(self, pod: Object, request: Object) -> None:
        """Remove the reservation, and after the last one our allocation."""
        allocated = {entry.get("name") for entry in request["spec"].get("resourceClaimAllocations") or ()}
        for inside, name in claim_names(pod):
            if name is not None:
                self.release(pod, name, deallocate=inside in allocated)

    def reserve(self, pod: Object, name: str, allocation: Mapping[str, Any] | None) -> None:
        """Reserve a claim for the pod; an unallocated claim gets ``allocation``, and so does one that only
        this pod holds with other devices: an earlier leader prepared it for an order that was taken back.

        Raises ``BindError`` if that fails.
        """
        meta = pod["metadata"]
        consumer = {"resource": "pods", "name": meta["name"], "uid": meta["uid"]}
        for _ in range(CONFLICTS):
            claim = self._transport.get(resources.RESOURCE_CLAIMS, meta["namespace"], name)
            if claim is None or "deletionTimestamp" in claim["metadata"]:
                raise BindError(f"resourceclaim {name!r} does not exist or is being deleted")
            status = dict(claim.get("status") or {})
            users = list(status.get("reservedFor") or ())
            holds = any(user.get("uid") == meta["uid"] for user in users)
            if allocation and _devices(status.get("allocation") or allocation) != _devices(allocation):
                if not holds or len(users) > 1:
                    raise BindError(f"resourceclaim {name!r} has other devices than those ordered")
                # The server takes no other allocation in the place of one.
                self.release(pod, name, deallocate=True)
                continue
            if not status.get("allocation"):
                if not allocation:
                    raise BindError(f"resourceclaim {name!r} has no allocation, and none was ordered")
                if FINALIZER not in (claim["metadata"].get("finalizers") or ()):
                    claim = self._protect(claim)
                    if claim is None:
                        continue
                status["allocation"] = dict(allocation)
            if holds:
                return
            if len(users) >= MOST_CONSUMERS:
                raise BindError(f"resourceclaim {name!r} has {len(users)} consumers, the most there may be")
            status["reservedFor"] = [*users, consumer]
            if self._update({**claim, "status": status}):
                return
        raise BindError(f"resourceclaim {name!r} keeps changing")

    def release(self, pod: Object, name: str, *, deallocate: bool) -> None:
        """Remove the pod's reservation, and with ``deallocate`` also the allocation after the last one.

        Raises ``BindError`` if that fails.
        """
        meta = pod["metadata"]
        for _ in range(CONFLICTS):
            claim = self._transport.get(resources.RESOURCE_CLAIMS, meta["namespace"], name)
            if claim is None:
                return
            status = dict(claim.get("status") or {})
            users = list(status.get("reservedFor") or ())
            kept = [user for user in users if user.get("uid") != meta["uid"]]
            if len(kept) == len(users):
                return
            status["reservedFor"] = kept
            if not kept and deallocate:
                status.pop("allocation", None)
            if self._update({**claim, "status": status}):
                return
        raise BindError(f"resourceclaim {name!r} keeps changing")

    def _protect(self, claim: Object) -> Object | None:
        """The claim with the finalizer that keeps it while it is allocated; None if it changed meanwhile."""
        meta = claim["metadata"]
        finalizers = [*(meta.get("finalizers") or ()), FINALIZER]
        body = {"metadata": {"resourceVersion": meta["resourceVersion"], "finalizers": finalizers}}
        try:
            return self._transport.patch(resources.RESOURCE_CLAIMS, meta["namespace"], meta["name"], body)
        except ApiError as error:
            if error.status == 409:
                return None
            raise

    def _update(self, claim: Object) -> bool:
        meta = claim["metadata"]
        try:
            self._transport.update(
                resources.RESOURCE_CLAIMS, meta["namespace"], meta["name"], claim, subresource="status"
            )
        except ApiError as error:
            if error.status == 409:
                return False
            raise
        return True


def _devices(allocation: Mapping[str, Any]) -> list[tuple[object, ...]]:
    """The devices of an allocation, each with the request that it is for."""
    results = (allocation.get("devices") or {}).get("results") or ()
    return sorted(tuple(str(one.get(key)) for key in DEVICE) for one in results)


def claim_names(pod: Mapping[str, Any]) -> Iterator[tuple[str, str | None]]:
    """Pairs (name inside the pod, name of the ResourceClaim or None while the template has made none)."""
    statuses = {
        entry["name"]: entry.get("resourceClaimName")
        for entry in (pod.get("status") or {}).get("resourceClaimStatuses") or ()
    }
    for entry in pod["spec"].get("resourceClaims") or ():
        if entry["name"] in statuses and statuses[entry["name"]] is None:
            continue  # the template says that no claim is needed
        yield entry["name"], entry.get("resourceClaimName") or statuses.get(entry["name"])
