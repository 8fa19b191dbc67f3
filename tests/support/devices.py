"""Raw objects of claimed devices, NUMA zones and volumes, in namespace ``default``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.support.objects import Object

DRIVER = "nic.example.com"
CSI = "csi.example.com"
STATIC = "kubernetes.io/no-provisioner"


# --- devices ---------------------------------------------------------------------------------------


def device(name: str, *, kind: str = "", **fields: Any) -> Object:
    """A device; ``kind`` is an attribute that selectors may ask for."""
    attributes = {"attributes": {"kind": {"string": kind}}} if kind else {}
    return {"name": name, **attributes, **fields}


def slice_of(pool: str, *devices: Object, driver: str = DRIVER, **fields: Any) -> Object:
    """The one slice of a pool: devices of node ``pool``, unless ``allNodes`` or ``nodeSelector`` is given."""
    place = {} if "allNodes" in fields or "nodeSelector" in fields else {"nodeName": pool}
    spec = {"driver": driver, "pool": {"name": pool, "generation": 1, "resourceSliceCount": 1}}
    return {
        "metadata": {"name": f"slice-{pool}-{driver}"},
        "spec": spec | {"devices": list(devices)} | place | fields,
    }


def device_class(name: str = "nic", **spec: Any) -> Object:
    """A DeviceClass that takes every device."""
    return {"metadata": {"name": name}, "spec": {"selectors": [], **spec}}


def taint_rule(key: str = "ill", effect: str = "NoSchedule", **selector: str) -> Object:
    """A DeviceTaintRule for the devices of a driver or pool, or of one name."""
    name = "-".join(("rule", *selector.values()))
    spec = {"deviceSelector": selector, "taint": {"key": key, "effect": effect}}
    return {"metadata": {"name": name}, "spec": spec}


def kind_is(*kinds: str) -> list[Object]:
    """Selectors of devices of one of the kinds."""
    return [{"cel": {"expression": f"device.attributes['{DRIVER}'].kind in {list(kinds)}"}}]


def exact(count: int = 1, name: str = "r", device_class: str = "nic", **fields: Any) -> Object:
    """A request of a claim."""
    return {"name": name, "exactly": {"deviceClassName": device_class, "count": count, **fields}}


def claim(name: str, *requests: Object, users: tuple[str, ...] = (), held: Object | None = None,
          constraints: tuple[Object, ...] = (), **meta: Any) -> Object:  # fmt: skip
    """A ResourceClaim, reserved for the pods ``users`` once ``held``."""
    reserved = [{"resource": "pods", "name": user, "uid": f"default-{user}"} for user in users]
    return {
        "metadata": {"name": name, "namespace": "default", "uid": f"claim-{name}", **meta},
        "spec": {"devices": {"requests": list(requests), "constraints": list(constraints)}},
        "status": {"allocation": held, "reservedFor": reserved} if held else {},
    }


def allocation(pool: str, *names: str, request: str = "r", **result: Any) -> Object:
    """Devices of a pool as the answer to one request."""
    results = [
        {"request": request, "driver": DRIVER, "pool": pool, "device": name, **result} for name in names
    ]
    return {"devices": {"results": results}}


def given(allocation: Object) -> Object:
    """Details of a decision: the allocation of the pod's claim ``c``."""
    return {"resourceClaimAllocations": [{"name": "c", "allocation": allocation}]}


def claims(*names: str) -> list[Object]:
    """``spec.resourceClaims`` of a pod, in which the first claim is called ``c``."""
    return [{"name": "c" if i == 0 else f"c{i}", "resourceClaimName": name} for i, name in enumerate(names)]


# --- NUMA ------------------------------------------------------------------------------------------


def resource_topology(
    node: str, *zones: Mapping[str, str], policy: str = "single-numa-node", scope: str = "pod"
) -> Object:
    """A NodeResourceTopology: what each zone has, all of it available."""
    return {
        "metadata": {"name": node},
        "attributes": [
            {"name": "topologyManagerPolicy", "value": policy},
            {"name": "topologyManagerScope", "value": scope},
        ],
        "zones": [
            {
                "name": f"zone-{i}",
                "type": "Node",
                "resources": [
                    {"name": name, "allocatable": value, "available": value} for name, value in zone.items()
                ],
            }
            for i, zone in enumerate(zones)
        ],
    }


def zones(node: str, *cpus: int, **more: str) -> Object:
    """A NodeResourceTopology whose zones have so many CPUs each."""
    return resource_topology(node, *({"cpu": str(n)} for n in cpus), **more)


def aligned(cpus: int) -> Object:
    """Fields of a Guaranteed pod of so many CPUs."""
    amounts = {"cpu": str(cpus), "memory": "1Gi"}
    return {"containers": [{"name": "main", "resources": {"requests": amounts, "limits": amounts}}]}


def in_zones(*cpus: int) -> Object:
    """Details of a decision: CPUs taken of each zone."""
    taken = [{"zone": f"zone-{i}", "amount": {"cpu": str(n)}} for i, n in enumerate(cpus) if n]
    return {"numaZones": taken}


# --- volumes ---------------------------------------------------------------------------------------


def storage_class(
    name: str, provisioner: str = CSI, mode: str = "WaitForFirstConsumer", **fields: Any
) -> Object:
    """A StorageClass."""
    return {"metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": mode, **fields}


def on_nodes(key: str, *values: str) -> Object:
    """A node selector with one requirement."""
    need = {"key": key, "operator": "In", "values": list(values)}
    return {"nodeSelectorTerms": [{"matchExpressions": [need]}]}


def volume(name: str, size: str = "10Gi", *, claim: str = "", nodes: Object | None = None,
           storage_class: str = "local", modes: tuple[str, ...] = ("ReadWriteOnce",),
           **spec: Any) -> Object:  # fmt: skip
    """A PersistentVolume, free unless it is bound to a claim."""
    body: Object = {"capacity": {"storage": size}, "accessModes": list(modes), **spec}
    body |= {"storageClassName": storage_class, "csi": {"driver": CSI, "volumeHandle": f"handle-{name}"}}
    if nodes:
        body["nodeAffinity"] = {"required": nodes}
    if claim:
        body["claimRef"] = {"namespace": "default", "name": claim}
    return {"metadata": {"name": name}, "spec": body, "status": {"phase": "Bound" if claim else "Available"}}


def volume_claim(name: str, size: str = "5Gi", *, volume: str = "", storage_class: str = "local",
    owner: str = "",
                 modes: tuple[str, ...] = ("ReadWriteOnce",), meta: Mapping[str, Any] | None = None,
                 **spec: Any) -> Object:  # fmt: skip
    """A PersistentVolumeClaim; ``owner`` is a pod with which it is deleted."""
    owners = [{"kind": "Pod", "name": owner, "uid": f"default-{owner}"}] if owner else []
    body: Object = {"accessModes": list(modes), "storageClassName": storage_class, **spec}
    body |= {"resources": {"requests": {"storage": size}}, "volumeName": volume}
    return {
        "metadata": {"name": name, "namespace": "default", "ownerReferences": owners, **(meta or {})},
        "spec": body,
        "status": {"phase": "Bound" if volume else "Pending"},
    }


def volumes(*claims: str) -> list[Object]:
    """``spec.volumes`` of a pod that mounts claims."""
    return [{"name": f"v{i}", "persistentVolumeClaim": {"claimName": c}} for i, c in enumerate(claims)]


def capacity(name: str, size: str, key: str, value: str, storage_class: str = "net") -> Object:
    """A CSIStorageCapacity of the nodes with a label."""
    return {
        "metadata": {"name": name, "namespace": "default"},
        "storageClassName": storage_class,
        "capacity": size,
        "nodeTopology": {"matchLabels": {key: value}},
    }


def csi_driver() -> Object:
    """A driver that publishes its capacities."""
    return {"metadata": {"name": CSI}, "spec": {"storageCapacity": True}}


def csi_node(node: str, most: int) -> Object:
    """How many volumes of the driver a node may have attached."""
    return {
        "metadata": {"name": node},
        "spec": {"drivers": [{"name": CSI, "allocatable": {"count": most}}]},
    }
