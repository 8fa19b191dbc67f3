"""Makes the claim behind extended resources that a device class backs (2.5, 9.2)."""

from __future__ import annotations

from typing import Any, Final

from kai_cp.json_types import Object
from kai_cp.kube.api import api_objects, resources
from kai_cp.kube.api.errors import ApiError
from kai_cp.kube.api.store import Store
from kai_cp.kube.api.transport import Transport
from kai_cp.kube.binder.claims import Claims
from kai_cp.kube.binder.steps import BindError

MARK: Final = "resource.kubernetes.io/extended-resource-claim"

NO_DEVICES: Final = {"devices": dict[str, Any]()}


class ExtendedClaims:
    """The step that creates and allocates the synthetic claim of a pod, and names it in the pod."""

    def __init__(self, transport: Transport, pods: Store, claims: Claims) -> None:
        self._transport = transport
        self._pods = pods
        self._claims = claims

    def prepare(self, pod: Object, _node: Object, request: Object) -> None:
        """Create the claim with the requested allocation, reserve it, and name it in the pod for the kubelet.

        A pod that names a claim, and is now ordered to devices that none backs, gets one without devices: the
        kubelet starts no pod whose claim it does not find. Raises ``BindError`` if that fails.
        """
        ordered: dict[str, Any] = request["spec"].get("extendedResourceClaimAllocation") or {}
        meta = pod["metadata"]
        name = claim_name(pod)
        if not ordered and not _names(pod, name):
            return
        self._make(pod, name, ordered.get("deviceRequests") or [])
        self._claims.reserve(pod, name, ordered.get("allocation") or NO_DEVICES)
        if not ordered:
            return  # The status stays: the server takes none without mappings, and these find no devices.
        status = {"resourceClaimName": name, "requestMappings": ordered.get("containerMappings") or []}
        changed = self._transport.patch(
            resources.PODS,
            meta["namespace"],
            meta["name"],
            {"metadata": {"uid": meta["uid"]}, "status": {"extendedResourceClaimStatus": status}},
            subresource="status",
        )
        if changed is None:
            raise BindError("the pod is gone", final=True)
        self._pods.put(changed, ours=True)

    def undo(self, pod: Object, request: Object) -> None:
        """Delete the claim. The pod names it on, because the API server keeps that name."""
        name = claim_name(pod)
        if not request["spec"].get("extendedResourceClaimAllocation") and not _names(pod, name):
            return
        self._claims.release(pod, name, deallocate=True)
        self._transport.delete(resources.RESOURCE_CLAIMS, pod["metadata"]["namespace"], name)

    def _make(self, pod: Object, name: str, requests: list[Object]) -> None:
        body = {
            "metadata": {
                "name": name,
                "namespace": pod["metadata"]["namespace"],
                "annotations": {MARK: "true"},
                "ownerReferences": [{**api_objects.owner(pod, resources.PODS), "controller": True}],
            },
            "spec": {"devices": {"requests": requests}},
        }
        try:
            self._transport.create(resources.RESOURCE_CLAIMS, pod["metadata"]["namespace"], body)
        except ApiError as error:
            if error.status != 409:
                raise


def _names(pod: Object, claim: str) -> bool:
    """Whether the pod's status names the claim, perhaps of an order that was taken back."""
    named = (pod.get("status") or {}).get("extendedResourceClaimStatus") or {}
    return bool(named.get("resourceClaimName") == claim)


def claim_name(pod: Object) -> str:
    """Name of the claim behind a pod's extended resources; a later pod of the same name gets another.

    A part of a name may not begin with a hyphen, so a name that is cut does not end with a dot.
    """
    meta = pod["metadata"]
    return f"{meta['name'][:220].rstrip('.')}-extended-resources-{meta['uid'][-5:]}"
