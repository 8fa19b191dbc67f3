"""Objects of every kind that the scheduler reads, with random bad values."""

from __future__ import annotations

import copy
import random
from collections.abc import Mapping
from typing import Any, Final

from kai_cp.kube.api.errors import ApiError, KubeError
from kai_cp.kube.api.resources import BIND_REQUESTS, Resource
from kai_cp.kube.scheduler.cache import KINDS
from tests.e2e.world import World
from tests.hostile.test_reader import places
from tests.support.hostile import BAD_VALUES

Object = dict[str, Any]
READ: Final = {kind.key: kind.resource for kind in KINDS}
"""The scheduler's kinds, by their list in a snapshot."""
_TERM: Final = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
_BODIES: Final[Mapping[str, Object]] = {
    "pods": {
        "spec": {
            "schedulerName": "kai-scheduler",
            "containers": [
                {
                    "name": "c",
                    "image": "none",
                    "resources": {"requests": {"cpu": "1m"}},
                    "ports": [{"containerPort": 1, "hostPort": 1}],
                }
            ],
            "tolerations": [{"key": "a", "operator": "Exists"}],
            "nodeSelector": {"a": "b"},
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [_TERM]}
                },
                "podAntiAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": [
                        {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "x"}}}
                    ]
                },
            },
            "topologySpreadConstraints": [
                {
                    "maxSkew": 1,
                    "topologyKey": "zone",
                    "whenUnsatisfiable": "DoNotSchedule",
                    "labelSelector": {"matchLabels": {"app": "x"}},
                }
            ],
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}],
        }
    },
    "nodes": {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}},
    "queues": {"spec": {"parentQueue": "", "resources": {"gpu": {"quota": 1, "limit": -1}}}},
    "podGroups": {
        "spec": {
            "queue": "q",
            "minMember": 1,
            "priorityClassName": "train",
            "subGroups": [{"name": "a", "minMember": 1}],
        }
    },
    "bindRequests": {"spec": {"podName": "p", "selectedNode": "n", "receivedResourceType": "Regular"}},
    "priorityClasses": {"value": 50},
    "configMaps": {"data": {"a": "b"}},
    "persistentVolumes": {
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "hostPath": {"path": "/x"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [_TERM]}},
        }
    },
    "persistentVolumeClaims": {
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    },
    "csiStorageCapacities": {
        "storageClassName": "s",
        "capacity": "1Gi",
        "nodeTopology": {"matchLabels": {"zone": "a"}},
    },
    "storageClasses": {"provisioner": "p", "volumeBindingMode": "WaitForFirstConsumer"},
    "csiDrivers": {"spec": {"storageCapacity": True}},
    "resourceClaims": {
        "spec": {
            "devices": {
                "requests": [
                    {
                        "name": "r",
                        "exactly": {
                            "deviceClassName": "hostile.example",
                            "selectors": [{"cel": {"expression": "device.driver == 'x'"}}],
                        },
                    }
                ]
            }
        }
    },
    "resourceSlices": {
        "spec": {
            "driver": "x.example",
            "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
            "allNodes": True,
            "devices": [
                {"name": "d", "attributes": {"a": {"string": "b"}}, "capacity": {"m": {"value": "1"}}}
            ],
        }
    },
    "deviceClasses": {"spec": {"selectors": [{"cel": {"expression": "device.driver == 'x'"}}]}},
    "topologies": {"spec": {"levels": [{"nodeLabel": "zone"}]}},
    "nodeResourceTopologies": {
        "topologyPolicies": ["SingleNUMANodePodLevel"],
        "zones": [
            {
                "name": "node-0",
                "type": "Node",
                "resources": [{"name": "cpu", "capacity": "4", "allocatable": "4", "available": "4"}],
            }
        ],
    },
    "namespaces": {},
    "podDisruptionBudgets": {"spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}}},
    "csiNodes": {"spec": {"drivers": [{"name": "d", "nodeID": "n", "allocatable": {"count": 1}}]}},
    "deviceTaintRules": {
        "spec": {
            "deviceSelector": {"driver": "none.example"},
            "taint": {"key": "a.example/b", "value": "c", "effect": "NoSchedule"},
        }
    },
}
_NOTES: Final = (
    *("gpu-fraction", "gpu-memory", "gpu-fraction-num-devices", "pod-group-name", "kai-cp/max-runtime"),
    *(
        "kai.scheduler/last-start-timestamp",
        "kai.scheduler/stale-podgroup-timestamp",
        "received-resource-type",
    ),
    *("kai.scheduler/numa-placement-observed", "kai-cp/reservation", "kai-cp/runtime"),
)
"""Annotations that some part of the program reads."""


class Nonsense:
    """Makes objects of all kinds and removes them again."""

    def __init__(self, world: World, namespace: str, seed: int) -> None:
        self._world = world
        self._namespace = namespace
        self._chance = random.Random(seed)
        self.made: list[tuple[str, str]] = []
        """Kind (its list in a snapshot) and name."""

    def sound(self, key: str, name: str) -> Object:
        """An object of the kind that the server accepts."""
        resource = READ[key]
        meta: Object = {"name": name, "labels": dict(self._world.labels), "annotations": {}}
        if resource is BIND_REQUESTS:
            # Orders of this pool belong to another scheduler, to which this one rightly gives way.
            meta["labels"] = {self._world.pool_key: "another"}
        if resource.namespaced:
            meta["namespace"] = self._namespace
        return {"metadata": meta, **copy.deepcopy(_BODIES[key])}

    def spoiled(self, key: str, name: str) -> Object:
        """A sound object in which random fields have bad values; the fields that identify it stay."""
        item = self.sound(key, name)
        for note in self._chance.sample(_NOTES, 2):
            texts = [value for value in BAD_VALUES if isinstance(value, str)]
            item["metadata"]["annotations"][note] = self._chance.choice(texts)
        bodies = [part for part in item if part != "metadata"]
        for _ in range(self._chance.randint(1, 2) if bodies else 0):
            part = self._chance.choice(bodies)
            inside = places(item[part], []) if isinstance(item[part], dict | list) else []
            holder, where = self._chance.choice(inside) if inside else (item, part)
            holder[where] = copy.deepcopy(self._chance.choice(BAD_VALUES))
        return item

    def send(self, key: str, item: Object) -> bool:
        """Send an object; returns whether the server accepts it."""
        try:
            self._world.api.create(READ[key], item["metadata"].get("namespace", ""), item)
        except (KubeError, ValueError, RecursionError):
            return False
        self.made.append((key, item["metadata"]["name"]))
        return True

    def remove(self) -> None:
        """Remove everything that was made."""
        for key, name in self.made:
            resource = READ[key]
            namespace = self._namespace if resource.namespaced else ""
            self._world.api.delete(resource, namespace, name, grace=0)
        self.made.clear()


def served(world: World) -> list[str]:
    """The kinds that this API server serves, by their list in a snapshot."""
    assert set(_BODIES) == set(READ), "a kind that the scheduler reads has no object here"
    return [key for key, resource in READ.items() if _serves(world, resource)]


def _serves(world: World, resource: Resource) -> bool:
    try:
        world.api.list_pages(resource)
    except ApiError as error:
        if error.status != 404:
            raise
        return False
    return True
