"""Reservation pods: each holds one whole GPU of a node, which fractional pods share (9.2, 9.3)."""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple
from zlib import crc32

from kai_cp import keys
from kai_cp.json_types import Object
from kai_cp.kube.api import api_objects, resources
from kai_cp.kube.api.errors import ApiError, KubeError
from kai_cp.kube.api.store import ObjectKey, Store, key_of
from kai_cp.kube.api.transport import Transport
from kai_cp.kube.binder.options import BinderOptions
from kai_cp.kube.binder.steps import Awaits

LOG = logging.getLogger(__name__)
LIVE: Final = frozenset({"Pending", "Running"})
LOCKS: Final = 64
"""GPU groups share them: more than there are threads, and no more for more groups."""
ASKS: Final = frozenset({keys.GPU_FRACTION, keys.GPU_MEMORY})
"""Annotations of a pod that shares GPUs."""
LABEL_PREFIX: Final = f"{keys.GPU_GROUP}/"


def reservation_name(node: str, group: str) -> str:
    """Name of the reservation pod of a group on a node."""
    return "gpu-reservation-" + hashlib.sha256(f"{node}/{group}".encode()).hexdigest()[:16]


def groups_of(pod: Mapping[str, Any]) -> list[str]:
    """The GPU groups that a pod's labels name."""
    labels = group_labels(pod)
    several = [value for key, value in labels.items() if key.startswith(LABEL_PREFIX)]
    return several or list(labels.values())


def group_labels(pod: Mapping[str, Any]) -> dict[str, str]:
    """A pod's labels that name GPU groups."""
    labels = api_objects.labels_of(pod).items()
    return {key: value for key, value in labels if key == keys.GPU_GROUP or key.startswith(LABEL_PREFIX)}


def phase(pod: Mapping[str, Any]) -> str:
    """A pod's phase."""
    return str((pod.get("status") or {}).get("phase") or "Pending")


class _Seen(NamedTuple):
    """The pods of one GPU group on a node."""

    sharers: list[Object]
    reservation: Object | None


class GpuReservations:
    """The reservation pods of all nodes."""

    def __init__(self, transport: Transport, pods: Store, requests: Store, options: BinderOptions) -> None:
        self._transport = transport
        self._pods = pods
        self._requests = requests
        self._options = options
        self._locks = [threading.Lock() for _ in range(LOCKS)]
        self._pods_on = pods.index(self._shared)
        """Reservation pods and fractional pods of this binder by node, and by node and GPU group."""
        self._requests_for = requests.index(_promised)
        """BindRequests by node and GPU group."""

    def acquire(self, node: str, groups: Iterable[str]) -> list[str]:
        """UUIDs of the groups' devices, from their reservation pods. Missing reservation pods are created.

        Raises ``Awaits`` while a pod names no device yet.
        """
        devices: list[str] = []
        missing: dict[ObjectKey, Object | None] = {}
        for group in groups:
            with self._lock(group):
                found = self._find(group, node)
                if found is None:
                    found = self._create(node, group)
            device = _device(found)
            if device:
                devices.append(device)
            else:
                key = (self._options.resource_reservation_namespace, reservation_name(node, group))
                missing[key_of(found) if found is not None else key] = found
        if missing:
            seconds = self._options.resource_reservation_allocation_timeout
            listed = ", ".join(name for _, name in missing)
            text = f"reservation pod {listed} on {node} named no device within {seconds:g} s"
            raise Awaits(text, self._pods, missing, seconds)
        return devices

    def give_up(self, node: str, groups: Iterable[str]) -> None:
        """Delete reservation pods that have named no device, so that the next attempt starts with new
        ones.
        """
        for group in groups:
            with self._lock(group):
                found = self._find(group, node)
                if found is not None and not _device(found):
                    self._delete(found, "it has named no device", grace=0)

    def sync(self, node: str) -> None:
        """Make a node's reservation pods and fractional pods agree again (9.2, step 1)."""
        for group in sorted({group for pod in self._pods_on(node) for group in groups_of(pod)}):
            with self._lock(group):
                self._agree(node, group)

    def _agree(self, node: str, group: str) -> None:
        """Delete what is wrong in one group, as it is now; its lock is held."""
        # Requests are read before the pods, so that a pod bound meanwhile counts twice and not zero times.
        promised = any(map(self._is_open, self._requests_for(f"{node}/{group}")))
        seen = self._seen(node, group)
        sharers = [pod for pod in seen.sharers if phase(pod) in LIVE]
        reservation = seen.reservation
        if reservation is not None and phase(reservation) not in LIVE:
            self._delete(reservation, "it has ended, so its GPU is free for others", grace=0)
            reservation = None
        if reservation is None:
            for pod in sharers:
                if phase(pod) == "Running" and "deletionTimestamp" not in pod["metadata"]:
                    self._delete(pod, "its GPU is no longer reserved")
        elif not sharers and not promised:
            self._delete(reservation, "no pod shares its GPU any more", grace=0)

    def _is_open(self, request: Object) -> bool:
        """Whether a request may still bind its pod; the pod shows it before the request's status does."""
        if api_objects.finished(request):
            return False
        pod = self._pods.get((request["metadata"]["namespace"], request["spec"]["podName"]))
        return pod is not None and not pod["spec"].get("nodeName")

    def watch_departures(self, sync: Callable[[str], None]) -> None:
        """Call ``sync(node)`` when a fractional pod has left a node, or will not be bound to it."""

        def left(old: Object | None, new: Object | None) -> None:
            known = old or new
            if known is None or not groups_of(known) or not known["spec"].get("nodeName"):
                return
            # A pod may have ended before it is first seen.
            if new is None or (phase(new) not in LIVE and (old is None or phase(old) in LIVE)):
                sync(known["spec"]["nodeName"])

        def dropped(old: Object | None, new: Object | None) -> None:
            if new is None and old is not None and old["spec"].get("selectedGPUGroups"):
                sync(old["spec"]["selectedNode"])

        self._pods.listen(left)
        self._requests.listen(dropped)

    def _seen(self, node: str, group: str) -> _Seen:
        pods = sorted(self._pods_on(f"{node}/{group}"), key=key_of)
        reservations = [pod for pod in pods if self._is_reservation(pod)]
        sharers = [pod for pod in pods if not self._is_reservation(pod)]
        return _Seen(sharers, reservations[-1] if reservations else None)

    def _shared(self, pod: Object) -> tuple[str, ...]:
        """The node of a pod that shares or reserves a GPU there, alone and with each of its groups. A label
        alone says nothing: the scheduler counts a share only where a pod of its own asks for one.
        """
        node, ours = pod["spec"].get("nodeName"), self._options.scheduler_name
        asks = not ASKS.isdisjoint(api_objects.annotations_of(pod))
        shares = asks and (not ours or pod["spec"].get("schedulerName") == ours)
        groups = groups_of(pod) if node and (shares or self._is_reservation(pod)) else []
        return (node, *(f"{node}/{group}" for group in groups)) if groups else ()

    def _is_reservation(self, pod: Object) -> bool:
        return (
            pod["metadata"].get("namespace") == self._options.resource_reservation_namespace
            and api_objects.labels_of(pod).get("app") == self._options.resource_reservation_app_label
        )

    def _find(self, group: str, node: str) -> Object | None:
        name = reservation_name(node, group)
        pod = self._pods.get((self._options.resource_reservation_namespace, name))
        if pod is None:
            pod = self._seen(node, group).reservation
        return pod if pod is not None and _holds(pod) else None

    def _create(self, node: str, group: str) -> Object | None:
        """Create the reservation pod; if one of its name exists, return that one as far as it is known."""
        options = self._options
        container: Object = {
            "name": "reservation",
            "image": options.resource_reservation_pod_image,
            "args": ["gpu-reservation"],
            "env": [
                _field("POD_NAME", "metadata.name"),
                _field("POD_NAMESPACE", "metadata.namespace"),
            ],
            "resources": {
                "limits": {keys.GPU: "1", "cpu": "50m", "memory": "100Mi"},
                # What the process needs: a kubelet short of memory first ends pods above their request.
                "requests": {keys.GPU: "1", "cpu": "1m", "memory": "64Mi"},
            },
            "securityContext": {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            },
        }
        spec: Object = {
            "nodeName": node,
            "serviceAccountName": options.resource_reservation_service_account,
            "containers": [container],
            # All, because every pod that shares the GPU, whatever it tolerates, goes when this one does.
            "tolerations": [{"operator": "Exists"}],
            "terminationGracePeriodSeconds": 0,
            "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        }
        if options.runtime_class_name:
            spec["runtimeClassName"] = options.runtime_class_name
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": reservation_name(node, group),
                "namespace": options.resource_reservation_namespace,
                "labels": {"app": options.resource_reservation_app_label, keys.GPU_GROUP: group},
                "annotations": {"karpenter.sh/do-not-disrupt": "true"},
            },
            "spec": spec,
        }
        try:
            made = self._transport.create(resources.PODS, options.resource_reservation_namespace, body)
        except ApiError as error:
            if error.status != 409:
                raise
        else:
            self._pods.put(made, ours=True)
        return self._pods.get((options.resource_reservation_namespace, reservation_name(node, group)))

    def _delete(self, pod: Object, why: str, grace: int | None = None) -> None:
        """Delete a pod; it counts as leaving at once. Raises ``KubeError`` if the answer was lost."""
        meta = pod["metadata"]
        LOG.info("deleting pod", extra={"pod": f"{meta['namespace']}/{meta['name']}", "reason": why})
        try:
            answer = self._transport.delete(
                resources.PODS, meta["namespace"], meta["name"], uid=meta["uid"], grace=grace
            )
        except KubeError as error:
            if error.unknown:
                raise
            LOG.warning(
                "a pod was not deleted, so it holds its GPU until the next shared pod leaves the node",
                extra={"pod": f"{meta['namespace']}/{meta['name']}", "error": str(error)},
            )
            return
        if answer is not None and "spec" in answer:
            self._pods.put(answer, ours=True)
        else:
            self._pods.remove(pod, ours=True)

    def _lock(self, group: str) -> threading.Lock:
        return self._locks[crc32(group.encode()) % LOCKS]


def _promised(request: Object) -> tuple[str, ...]:
    """The node on which a BindRequest promises shares of GPUs, with each of their groups."""
    spec = request["spec"]
    return tuple(f"{spec.get('selectedNode')}/{group}" for group in spec.get("selectedGPUGroups") or ())


def _holds(pod: Object) -> bool:
    """Whether a reservation pod holds its GPU, or will: one that has ended or is leaving does not."""
    return phase(pod) in LIVE and "deletionTimestamp" not in pod["metadata"]


def _device(pod: Object | None) -> str | None:
    if pod is None or not _holds(pod):
        return None
    return api_objects.annotations_of(pod).get(keys.RESERVED_DEVICE)


def _field(name: str, path: str) -> Object:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
