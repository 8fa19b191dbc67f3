"""Volumes of one pod (9.2): a claim that waits for its first consumer gets a volume that exists, or its
driver is told the node; the pod waits until all are bound.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any, Final

from kai_cp.json_types import Object
from kai_cp.kube.api import api_objects, resources
from kai_cp.kube.api.memory import Memory
from kai_cp.kube.api.store import ObjectKey, Store, key_of
from kai_cp.kube.api.transport import Transport
from kai_cp.kube.binder.options import BinderOptions
from kai_cp.kube.binder.steps import Awaits, BindError
from kai_cp.reader.fields import Malformed
from kai_cp.reader.needs import read_volume_claims
from kai_cp.reader.storage import (
    SELECTED_NODE,
    is_deleted,
    read_storage_class,
    read_volume,
    read_volume_claim,
)
from kai_cp_models.records.storage import STATIC_ONLY, Volume, VolumeClaim, different
from kai_cp_models.selectors import reaches

FREE: Final = 20_000
"""Free volumes that are kept as they were read: two local disks of each of 10,000 nodes."""


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
        self._free: Memory[ObjectKey, tuple[Object, Volume]] = Memory(FREE)
        """Free volumes and what was read of them: each bind looks at all of a class."""
        self._reading = threading.Lock()
        self._volumes_for = volumes.index(self._wanted_by)
        """Volumes that can be bound, by the class or the claim that may have them."""
        self._classes = classes
        self._options = options
        self._lock = threading.Lock()

    def prepare(self, pod: Object, node: Object, _request: Object) -> None:
        """Bind unbound claims. Raises ``Awaits`` until they are bound, ``BindError`` if they cannot be."""
        unbound = list[tuple[VolumeClaim, str]]()
        for key in _claims_of(pod):
            raw = self._claims.get(key)
            if raw is None:
                raise BindError(f"persistentvolumeclaim {key[1]!r} does not exist")
            if is_deleted(raw, key):
                raise BindError(f"persistentvolumeclaim {key[1]!r} is being deleted")
            claim = _claim(raw)
            if claim.volume is None:
                unbound.append((claim, raw["metadata"]["uid"]))
            else:
                self._test_reach(claim.volume, node)
        unbound.sort(key=lambda one: (one[0].bytes, one[0].key))
        uids = {claim.key: uid for claim, uid in unbound}
        for claim in self._take_volumes(unbound, node):
            self._choose(claim, uids[claim.key], node["metadata"]["name"])
        seen: dict[ObjectKey, Object | None] = {
            claim.key: self._claims.get(claim.key) for claim, _ in unbound
        }
        missing = {key: raw for key, raw in seen.items() if raw is None or _claim(raw).volume is None}
        if missing:
            seconds = self._options.volume_binding_timeout_seconds
            names = ", ".join(name for _, name in missing)
            raise Awaits(f"claims not bound within {seconds:g} s: {names}", self._claims, missing, seconds)

    def undo(self, pod: Object, request: Object) -> None:
        """Remove our node from claims that are still unbound."""
        for key in _claims_of(pod):
            raw = self._claims.get(key)
            if raw is None or (claim := _claim(raw)).volume is not None:
                continue
            if claim.selected_node == request["spec"]["selectedNode"]:
                self._annotate(claim, raw["metadata"]["uid"], None)

    def _is_made(self, claim: VolumeClaim) -> bool:
        """Whether a driver makes volumes for such a claim. Raises ``BindError`` if none waits for pods."""
        known = self._classes.get(("", claim.storage_class))
        kind = None if known is None else read_storage_class(known, key_of(known))
        if kind is None or not kind.waits:
            raise BindError(
                f"persistentvolumeclaim {claim.key.name!r} is not bound, and its class does not wait for pods"
            )
        return kind.provisioner != STATIC_ONLY and claim.selector is None

    def _test_reach(self, name: str, node: Object) -> None:
        """Raise ``BindError`` if the volume is not within reach: since the node was chosen, its driver may
        have made it elsewhere. One that is not known yet, or cannot be read, passes."""
        raw = self._volumes.get(("", name))
        volume = None if raw is None else self._usable(raw)
        if volume is not None and not _reachable(volume, node):
            where = node["metadata"]["name"]
            raise BindError(f"persistentvolume {name!r} is not within reach of node {where}")

    def _choose(self, claim: VolumeClaim, uid: str, node: str) -> None:
        """Have the volume made for the node. One for many is made for the first node that asks."""
        with self._lock:
            raw = self._claims.get(claim.key)
            chosen = claim.selected_node if raw is None else _claim(raw).selected_node
            if chosen != node and not (chosen and claim.for_many):
                self._annotate(claim, uid, node)

    def _annotate(self, claim: VolumeClaim, uid: str, node: str | None) -> None:
        body = {"metadata": {"uid": uid, "annotations": {SELECTED_NODE: node}}}
        changed = self._transport.patch(resources.VOLUME_CLAIMS, *claim.key, body)
        if changed is not None:
            self._claims.put(changed, ours=True)

    def _take_volumes(self, claims: Sequence[tuple[VolumeClaim, str]], node: Object) -> list[VolumeClaim]:
        """Reserve the smallest fitting volumes that the node reaches for the claims with these UIDs. Returns
        those that get a new volume, because none is left, or because their driver has begun.

        Raises ``BindError`` if a claim gets neither.
        """
        made = {claim.key: self._is_made(claim) for claim, _ in claims}
        new = [claim for claim, _ in claims if made[claim.key] and claim.selected_node]
        with self._lock:
            names = {name for claim, _ in claims for name in (claim.storage_class, "/".join(claim.key))}
            found = (raw for name in names for raw in self._volumes_for(name))
            known = [(volume, raw) for raw in found if (volume := self._usable(raw)) is not None]
            held = {(volume.claim, volume.claim_uid) for volume, _ in known}
            left = [
                (claim, uid)
                for claim, uid in claims
                if claim not in new and held.isdisjoint(((claim.key, None), (claim.key, uid)))
            ]
            able = [(v, raw) for v, raw in known if v.claim is None and _reachable(v, node)]
            able.sort(key=lambda one: (one[0].bytes, one[0].name))
            # A new volume is each claim's own last choice; no volume has a name with a slash.
            options = [
                [v.name for v, _ in able if claim.fits(v)]
                + ([f"/{claim.key.name}"] if made[claim.key] else [])
                for claim, _ in left
            ]
            chosen = different(options)
            if chosen is None:
                lacking = ", ".join(claim.key.name for claim, _ in left if not made[claim.key])
                raise BindError(f"no volumes on node {node['metadata']['name']} fit claims: {lacking}")
            seen = {volume.name: raw for volume, raw in able}
            for (claim, uid), name in zip(left, chosen, strict=True):
                if name in seen:
                    self._take(name, seen[name], claim, uid)
                else:
                    new.append(claim)
        return new

    def _usable(self, raw: Object) -> Volume | None:
        """A volume that can be bound; None for any other, and for one that cannot be read."""
        key = key_of(raw)
        with self._reading:
            known = self._free.get(key)
            if known is not None and known[0] is raw:
                return known[1]
            self._free.pop(key, None)
            try:
                volume = read_volume(raw, key)
            except Malformed:
                return None
            if volume.usable and volume.claim is None:
                self._free.put(key, (raw, volume))
            return volume if volume.usable else None

    def _wanted_by(self, raw: Object) -> tuple[str, ...]:
        """The class of a free volume, or the claim (with its namespace) that has it; no class has a slash."""
        volume = self._usable(raw)
        if volume is None:
            return ()
        return (volume.storage_class,) if volume.claim is None else ("/".join(volume.claim),)

    def _take(self, name: str, seen: Object, claim: VolumeClaim, uid: str) -> None:
        """Reserve a volume for a claim."""
        body = {
            "metadata": {
                "resourceVersion": seen["metadata"]["resourceVersion"],
                "annotations": {"pv.kubernetes.io/bound-by-controller": "yes"},
            },
            "spec": {
                "claimRef": {
                    "apiVersion": "v1",
                    "kind": "PersistentVolumeClaim",
                    "name": claim.key.name,
                    "namespace": claim.key.namespace,
                    "uid": uid,
                }
            },
        }
        changed = self._transport.patch(resources.VOLUMES, "", name, body)
        if changed is not None:
            self._volumes.put(changed, ours=True)


def _claims_of(pod: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The PersistentVolumeClaims that a pod mounts."""
    namespace, name = key_of(pod)
    try:
        return [(namespace, claim) for claim in read_volume_claims(pod["spec"], name)]
    except Malformed as problem:
        raise BindError(str(problem)) from None


def _claim(raw: Mapping[str, Any]) -> VolumeClaim:
    try:
        return read_volume_claim(raw, key_of(raw))
    except Malformed as problem:
        raise BindError(f"persistentvolumeclaim {key_of(raw)[1]!r}: {problem}") from None


def _reachable(volume: Volume, node: Mapping[str, Any]) -> bool:
    return reaches(volume.affinity, node["metadata"]["name"], api_objects.labels_of(node))
