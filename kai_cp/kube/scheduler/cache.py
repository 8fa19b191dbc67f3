"""The cluster as this process knows it: one store and reflector per kind, assembled into KAI's snapshot."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kai_cp.json_types import Object
from kai_cp.kube.api import resources as r
from kai_cp.kube.api import transforms as t
from kai_cp.kube.api.errors import KubeError
from kai_cp.kube.api.informers import Informers
from kai_cp.kube.api.members import Members
from kai_cp.kube.api.resources import Resource
from kai_cp.kube.api.store import Relevant, Store
from kai_cp.kube.api.transport import Transport
from kai_cp.kube.scheduler.options import SchedulerOptions


@dataclass(frozen=True, slots=True)
class FollowedKind:
    """How one kind is followed: ``key`` is its list in ``rawObjects``; ``pooled`` kinds are filtered by node
    pool.
    """

    key: str
    resource: Resource
    pooled: bool = False
    transform: Callable[[Object], Object] = t.plain
    relevant: Relevant = t.any_change
    metadata_only: bool = False
    optional: bool = False
    """Not served everywhere; its list is then null (feature off)."""


KINDS: Final = (
    FollowedKind("pods", r.PODS, transform=t.pod, relevant=t.pod_change),
    FollowedKind("nodes", r.NODES, pooled=True, transform=t.node, relevant=t.node_change),
    FollowedKind("queues", r.QUEUES, pooled=True, relevant=t.spec_change),
    FollowedKind("podGroups", r.POD_GROUPS, pooled=True, relevant=t.spec_change),
    FollowedKind("bindRequests", r.BIND_REQUESTS, transform=t.bind_request, relevant=t.request_change),
    FollowedKind("priorityClasses", r.PRIORITY_CLASSES),
    FollowedKind("configMaps", r.CONFIG_MAPS, relevant=t.never, metadata_only=True),
    FollowedKind("persistentVolumes", r.VOLUMES),
    FollowedKind("persistentVolumeClaims", r.VOLUME_CLAIMS),
    FollowedKind("csiStorageCapacities", r.CSI_CAPACITIES, optional=True),
    FollowedKind("storageClasses", r.STORAGE_CLASSES),
    FollowedKind("csiDrivers", r.CSI_DRIVERS, relevant=t.spec_change),
    FollowedKind("resourceClaims", r.RESOURCE_CLAIMS, transform=t.claim, optional=True),
    FollowedKind("resourceSlices", r.RESOURCE_SLICES, optional=True),
    FollowedKind("deviceClasses", r.DEVICE_CLASSES, optional=True),
    FollowedKind("topologies", r.TOPOLOGIES, optional=True),
    FollowedKind("nodeResourceTopologies", r.NODE_TOPOLOGIES, optional=True),
    # Lists beyond KAI's own, for rules that KAI lacks or reads elsewhere; KAI's readers ignore them.
    FollowedKind("namespaces", r.NAMESPACES, relevant=t.spec_change, metadata_only=True),
    FollowedKind("podDisruptionBudgets", r.DISRUPTION_BUDGETS),
    FollowedKind("csiNodes", r.CSI_NODES, relevant=t.spec_change),
    FollowedKind("deviceTaintRules", r.DEVICE_TAINT_RULES, relevant=t.spec_change, optional=True),
)


class ClusterCache:
    """Follows every kind that a snapshot needs.

    ``wake`` is set after a change that may change a decision; the thread that waits on it clears it.
    """

    def __init__(self, transport: Transport, options: SchedulerOptions, config: Mapping[str, Any]) -> None:
        self._transport = transport
        self._options = options
        self._config = dict(config)
        self.wake = threading.Event()
        self._informers = Informers(transport)
        self._discovery: dict[str, Any] = {"serverVersion": {}, "resources": []}
        self.stores: dict[Resource, Store] = {
            kind.resource: self._informers.store(
                kind.resource,
                transform=kind.transform,
                relevant=kind.relevant,
                changed=self.wake.set,
                selector=options.pool_selector if kind.pooled else "",
                metadata_only=kind.metadata_only,
                optional=kind.optional,
            )
            for kind in KINDS
        }
        self.members = Members(self.stores[r.PODS])

    def start(self) -> None:
        """Begin to follow; returns at once."""
        self._discover()
        self._informers.start()

    def stop(self) -> None:
        """End every watch."""
        self._informers.stop()

    def wait_synced(self, seconds: float, stopping: threading.Event | None = None) -> bool:
        """Wait until every kind is listed; returns whether it is."""
        return self._informers.wait(seconds, stopping)

    def unsynced(self) -> list[str]:
        """Kinds that are not listed yet, or about which the server has sent nothing for long."""
        return self._informers.silent()

    def snapshot(self) -> dict[str, Any]:
        """The cluster in KAI's snapshot format. Lists and objects are shared: do not change them."""
        raw: dict[str, Any] = {}
        for kind in KINDS:
            served = self._informers.served(kind.resource)
            raw[kind.key] = self.stores[kind.resource].listed() if served else None
        return {
            "config": self._config,
            "schedulerParams": self._options.params(),
            "rawObjects": raw,
            "discovery": self._discovery,
        }

    def _discover(self) -> None:
        try:
            version = self._transport.raw("/version") or {}
            groups = (self._transport.raw("/apis") or {}).get("groups") or []
            wanted = {kind.resource.group for kind in KINDS if kind.resource.group}
            served = [
                entry["groupVersion"]
                for group in groups
                if group["name"] in wanted
                for entry in group["versions"]
            ]
            lists = [self._transport.raw(f"/apis/{name}") for name in served]
        except KubeError:
            return  # the lists show what is served; discovery is for the reader of the snapshot
        self._discovery = {"serverVersion": version, "resources": [entry for entry in lists if entry]}
