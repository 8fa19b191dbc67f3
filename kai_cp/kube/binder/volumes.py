"""Volumes of one pod: tells claims that wait for their first consumer the node, and waits for them (9.2)."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import Any, Final

from kai_cp.json_types import Object
from kai_cp.kube.api import api_objects, resources
from kai_cp.kube.api.store import Store
from kai_cp.kube.api.transport import Transport
from kai_cp.kube.binder.options import BinderOptions
from kai_cp.kube.binder.steps import Awaits, BindError
from kai_cp.reader.affinity import read_node_terms
from kai_cp.reader.fields import Malformed, object_at
from kai_cp_models.quantity import scaled
from kai_cp_models.selectors import reaches

SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
FIRST_CONSUMER: Final = "WaitForFirstConsumer"


class Volumes:
    """The step that gets every claim of a pod bound before the pod."""

    def __init__(
        self,
        transport: Transport,
        claims: Store,
        volumes: Store,
        classes: Store,
        options: BinderOptions,
    ) -> None:
        self._transport = transport
        self._claims = claims
        self._volumes = volumes
        self._classes = classes
        self._options = options
        self._lock = threading.Lock()

    def prepare(self, pod: Object, node: Object, _request: Object) -> None:
        """Bind unbound claims. Raises ``Awaits`` until they are bound, ``BindError`` if they cannot be."""
        keys = []
        for name in claim_names(pod):
            key = (pod["metadata"]["namespace"], name)
            claim = self._claims.get(key)
            if claim is None:
                raise BindError(f"persistentvolumeclaim {name!r} does not exist")
            if "deletionTimestamp" in claim["metadata"]:
                raise BindError(f"persistentvolumeclaim {name!r} is being deleted")
            if not _bound(claim):
                self._provision(claim, node)
                keys.append(key)
        seen = {key: self._claims.get(key) for key in keys}
        missing = {key: claim for key, claim in seen.items() if not _bound(claim)}
        if missing:
            seconds = self._options.volume_binding_timeout_seconds
            names = ", ".join(name for _, name in missing)
            raise Awaits(f"claims not bound within {seconds:g} s: {names}", self._claims, missing, seconds)

    def undo(self, pod: Object, request: Object) -> None:
        """Remove our node from claims that are still unbound."""
        for name in claim_names(pod):
            claim = self._claims.get((pod["metadata"]["namespace"], name))
            if claim is None or _bound(claim):
                continue
            if api_objects.annotations_of(claim).get(SELECTED_NODE) == request["spec"]["selectedNode"]:
                self._annotate(claim, None)

    def _provision(self, claim: Object, node: Object) -> None:
        name = claim["metadata"]["name"]
        kind = self._classes.get(("", claim["spec"].get("storageClassName") or ""))
        if kind is None or kind.get("volumeBindingMode") != FIRST_CONSUMER:
            raise BindError(
                f"persistentvolumeclaim {name!r} is not bound, and its class does not wait for pods"
            )
        if kind.get("provisioner") == NO_PROVISIONER:
            self._take_volume(claim, node)
        elif api_objects.annotations_of(claim).get(SELECTED_NODE) != node["metadata"]["name"]:
            self._annotate(claim, node["metadata"]["name"])

    def _annotate(self, claim: Object, node: str | None) -> None:
        meta = claim["metadata"]
        changed = self._transport.patch(
            resources.VOLUME_CLAIMS,
            meta["namespace"],
            meta["name"],
            {"metadata": {"annotations": {SELECTED_NODE: node}}},
        )
        if changed is not None:
            self._claims.put(changed, ours=True)

    def _take_volume(self, claim: Object, node: Object) -> None:
        """Bind the smallest fitting local volume of the node to the claim."""
        with self._lock:
            mine = [v for v in self._volumes.all() if _claimed_by(v, claim)]
            if mine:
                return
            fitting = [
                volume
                for volume in self._volumes.all()
                if not volume["spec"].get("claimRef") and _fits(volume, claim) and _reachable(volume, node)
            ]
            if not fitting:
                name = claim["metadata"]["name"]
                raise BindError(f"no volume on node {node['metadata']['name']} fits claim {name!r}")
            best = min(fitting, key=lambda v: (_size(v["spec"].get("capacity")), v["metadata"]["name"]))
            meta = claim["metadata"]
            reference = {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "name": meta["name"],
                "namespace": meta["namespace"],
                "uid": meta["uid"],
            }
            body = {
                "metadata": {
                    "resourceVersion": best["metadata"]["resourceVersion"],
                    "annotations": {"pv.kubernetes.io/bound-by-controller": "yes"},
                },
                "spec": {"claimRef": reference},
            }
            changed = self._transport.patch(resources.VOLUMES, "", best["metadata"]["name"], body)
            if changed is not None:
                self._volumes.put(changed, ours=True)


def claim_names(pod: Mapping[str, Any]) -> Iterator[str]:
    """Names of the PersistentVolumeClaims that a pod mounts; an ephemeral one's name joins pod and volume."""
    for volume in pod["spec"].get("volumes") or ():
        if "persistentVolumeClaim" in volume:
            yield volume["persistentVolumeClaim"]["claimName"]
        elif "ephemeral" in volume:
            yield f"{pod['metadata']['name']}-{volume['name']}"


def _bound(claim: Mapping[str, Any] | None) -> bool:
    return claim is not None and bool((claim.get("status") or {}).get("phase") == "Bound")


def _claimed_by(volume: Mapping[str, Any], claim: Mapping[str, Any]) -> bool:
    return bool((volume["spec"].get("claimRef") or {}).get("uid") == claim["metadata"]["uid"])


def _fits(volume: Mapping[str, Any], claim: Mapping[str, Any]) -> bool:
    spec = volume["spec"]
    wanted = claim["spec"]
    return (
        (spec.get("storageClassName") or "") == (wanted.get("storageClassName") or "")
        and set(wanted.get("accessModes") or ()) <= set(spec.get("accessModes") or ())
        and (spec.get("volumeMode") or "Filesystem") == (wanted.get("volumeMode") or "Filesystem")
        and _size(spec.get("capacity")) >= _size((wanted.get("resources") or {}).get("requests"))
        and "deletionTimestamp" not in volume["metadata"]
    )


def _size(amounts: Mapping[str, str] | None) -> int:
    text = (amounts or {}).get("storage")
    return scaled(text, 0) if text else 0


def _reachable(volume: Mapping[str, Any], node: Mapping[str, Any]) -> bool:
    """Whether the node can use a volume; one with unreadable affinity cannot be used."""
    try:
        affinity = object_at(volume["spec"], "nodeAffinity", "spec")
        terms = read_node_terms(affinity, "required", "spec.nodeAffinity")
    except Malformed:
        return False
    return reaches(terms, node["metadata"]["name"], api_objects.labels_of(node))
