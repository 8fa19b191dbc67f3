"""Where a pod may start: every rule of placement in one table, for the engine and for the checker.

For each node the engine sees the cluster with all other nodes cordoned, and binds the pod there or proves
that it cannot. If the pod may not start there, the checker gets the bind nevertheless and must name the rule.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from kai_cp_models.check import violations
from kai_cp_models.plan import Decision, Plan
from kai_cp_models.pods import PodKey
from tests.support.devices import (
    DRIVER,
    STATIC,
    aligned,
    allocation,
    capacity,
    claim,
    claims,
    csi_driver,
    csi_node,
    device,
    device_class,
    exact,
    given,
    in_zones,
    kind_is,
    on_nodes,
    slice_of,
    storage_class,
    taint_rule,
    volume,
    volume_claim,
    volumes,
    zones,
)
from tests.support.objects import LEVELS, Object, ago
from tests.support.plans import ALL_RULES, bound, solved
from tests.support.tiny import node, pod, world


@dataclass(frozen=True)
class Row:
    """A cluster and pod ``x``, the last of ``pods``. ``accepted``: the nodes on which it may start; the
    others are refused by ``subject`` of the checker. ``details``: of the bind that the checker gets,
    by node.
    """

    name: str
    subject: str
    nodes: Sequence[Object]
    pods: Sequence[Object]
    accepted: str
    details: Mapping[str, Object] = field(default_factory=dict)
    more: Mapping[str, Any] = field(default_factory=dict)


def row(name: str, subject: str, nodes: Sequence[Object], pods: Sequence[Object], accepted: str,
        details: Mapping[str, Object] | None = None, **more: Any) -> Row:  # fmt: skip
    return Row(name, subject, nodes, pods, accepted, details or {}, more)


def zoned(*names: str) -> list[Object]:
    """Nodes n0, n1, … in zones; "" is a node without a zone."""
    return [node(f"n{i}", labels={"zone": name} if name else {}) for i, name in enumerate(names)]


def asks(**requests: str) -> dict[str, str]:
    return {"cpu": "1", "memory": "1Gi"} | {key.replace("_", "-"): value for key, value in requests.items()}


def terms(kind: str, *needs: Object) -> Object:
    """Required affinity between pods."""
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": list(needs)}}}


def near(app: str, key: str = "zone", **more: Any) -> Object:
    return {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key, **more}


def node_affinity(*expressions: Object) -> Object:
    wanted = {"nodeSelectorTerms": [{"matchExpressions": [one]} for one in expressions]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": wanted}}}


def spread(skew: int, key: str = "zone") -> Object:
    constraint = {"maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule"}
    return {"topologySpreadConstraints": [constraint | {"labelSelector": {"matchLabels": {"app": "x"}}}]}


ONE, TWO, THREE = ([node(f"n{i}") for i in range(count)] for count in (1, 2, 3))
TAINT = {"key": "only", "value": "ml", "effect": "NoSchedule"}
TOLERATION = {"key": "only", "operator": "Exists"}
HALF, MOST = {"gpu-fraction": "0.5"}, {"gpu-fraction": "0.7"}
PORT: Object = {"containers": [{"name": "main", "ports": [{"containerPort": 80, "hostPort": 80}]}]}
MIXED = {"nvidia.com/mig.strategy": "mixed", "node-role.kubernetes.io/mig-enabled": "true"}
SINGLE = MIXED | {"nvidia.com/mig.strategy": "single"}
SMALL = "nvidia.com/mig-1g.5gb"

NODES = [
    row("readiness and pressure", "nodes",
        [node("n0"), node("n1", conditions=[{"type": "DiskPressure", "status": "True"}]),
         node("n2", conditions=[{"type": "MemoryPressure", "status": "False"}])], [pod("x")], "n0 n2"),
    row("a cordon", "nodes", [node("n0"), node("n1", unschedulable=True)], [pod("x")], "n0"),
    row("taints", "nodes",
        [node("n0"), node("n1", taints=[TAINT]), node("n2", taints=[TAINT | {"effect": "PreferNoSchedule"}]),
         node("n3", taints=[TAINT | {"effect": "NoExecute"}])], [pod("x")], "n0 n2"),
    row("a taint that is tolerated", "nodes",
        [node("n0", taints=[TAINT]), node("n1", taints=[TAINT, TAINT | {"key": "other"}])],
        [pod("x", tolerations=[TOLERATION])], "n0"),
    row("a toleration of one effect", "nodes",
        [node("n0", taints=[TAINT]), node("n1", taints=[TAINT | {"effect": "NoExecute"}])],
        [pod("x", tolerations=[TOLERATION | {"effect": "NoSchedule"}])], "n0"),
    row("a node selector", "nodes", zoned("a", "b", ""), [pod("x", nodeSelector={"zone": "a"})], "n0"),
    row("node affinity: terms are alternatives", "nodes", zoned("a", "b", "c", ""),
        [pod("x", **node_affinity({"key": "zone", "operator": "In", "values": ["a"]},
                                  {"key": "zone", "operator": "DoesNotExist"}))], "n0 n3"),
    row("node affinity: numbers", "nodes", zoned("7", "9", "x"),
        [pod("x", **node_affinity({"key": "zone", "operator": "Gt", "values": ["8"]}))], "n1"),
    row("restricted scheduling", "nodes",
        [node("n0", labels={"node-role.kubernetes.io/cpu-worker": ""}),
         node("n1", labels={"node-role.kubernetes.io/gpu-worker": ""})], [pod("x")], "n0",
        params={"restrictSchedulingNodes": True}),
]  # fmt: skip

AMOUNTS = [
    row("CPUs", "capacity", [node("n0"), node("n1", {"cpu": "4"})], [pod("x", requests=asks(cpu="5"))], "n0"),
    row("memory", "capacity", [node("n0"), node("n1", {"memory": "2Gi"})],
        [pod("r", "n1"), pod("x", requests=asks(memory="1500Mi"))], "n0"),
    row("ephemeral storage", "capacity", [node("n0", {"ephemeral-storage": "20Gi"}), node("n1"),
        node("n2", {"ephemeral-storage": "5Gi"})], [pod("x", requests=asks(ephemeral_storage="10Gi"))], "n0"),
    row("hugepages", "capacity", [node("n0", {"hugepages-2Mi": "64Mi"}), node("n1")],
        [pod("x", requests=asks(hugepages_2Mi="32Mi"))], "n0"),
    row("an extended resource", "capacity",
        [node("n0", {"example.com/fpga": "2"}), node("n1", {"example.com/fpga": "1"}), node("n2")],
        [pod("x", requests={"cpu": "1", "example.com/fpga": "2"})], "n0"),
    row("pod slots", "capacity", [node("n0", {"pods": "2"}), node("n1", {"pods": "1"})],
        [pod("r", "n0"), pod("s", "n1"), pod("x")], "n0"),
    row("the overhead of the runtime", "capacity", [node("n0"), node("n1", {"cpu": "4"})],
        [pod("x", requests=asks(cpu="3"), overhead={"cpu": "1500m"})], "n0"),
    row("an init container that asks for more", "capacity", [node("n0"), node("n1", {"cpu": "4"})],
        [pod("x", initContainers=[{"name": "i", "resources": {"requests": {"cpu": "5"}}}])], "n0"),
    row("a sidecar beside an init container", "capacity", [node("n0"), node("n1", {"cpu": "4"})],
        [pod("x", initContainers=[
            {"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "2"}}},
            {"name": "i", "resources": {"requests": {"cpu": "3"}}}])], "n0"),
    row("what another scheduler's pods hold", "capacity", TWO,
        [pod("r", "n1", requests=asks(cpu="4"), schedulerName="default-scheduler"),
         pod("x", requests=asks(cpu="5"))], "n0"),
]  # fmt: skip

GPUS = [
    row("whole GPUs", "capacity", [node("n0", gpus=2), node("n1", gpus=1), node("n2")], [pod("x", gpus=2)],
        "n0"),
    row("a new shared GPU", "capacity", [node("n0", gpus=1), node("n1", gpus=1), node("n2")],
        [pod("r", "n1", gpus=1), pod("x", notes=HALF)], "n0", {n: {"gpu_groups": ("new",)} for n in ("n1",
        "n2")}),
    row("room on a shared GPU", "sharing", [node("n0", gpus=1), node("n1", gpus=1)],
        [pod("r", "n0", notes=HALF, shares=["g0"]), pod("s", "n1", notes=MOST, shares=["g1"]),
         pod("x", notes=HALF)], "n0", {"n1": {"gpu_groups": ("g1",)}}),
    row("two slots for a new shared GPU", "capacity", [node("n0", {"pods": "2"}, gpus=1),
        node("n1", {"pods": "1"}, gpus=1)],
        [pod("x", notes=HALF)], "n0", {"n1": {"gpu_groups": ("new",)}}),
    row("memory of a GPU", "nodes",
        [node("n0", gpus=1), node("n1", gpus=1, labels={"nvidia.com/gpu.memory": "20000"}),
         node("n2", {"nvidia.com/gpu": "1"})], [pod("x", notes={"gpu-memory": "30000"})], "n0",
        {n: {"gpu_groups": ("new",)} for n in ("n1", "n2")}),
    row("portions of two GPUs", "capacity", [node("n0", gpus=2), node("n1", gpus=1)],
        [pod("x", notes=HALF | {"gpu-fraction-num-devices": "2"})], "n0",
        {"n1": {"gpu_groups": ("new", "newer")}}),
    row("MIG instances", "capacity", [node("n0", {SMALL: "2"}, labels=MIXED),
        node("n1", {SMALL: "1"}, labels=MIXED)],
        [pod("r", "n1", requests={SMALL: "1"}), pod("x", requests={SMALL: "1"})], "n0"),
    row("MIG strategies", "nodes", [node("n0", gpus=1, labels=SINGLE), node("n1", gpus=1, labels=MIXED),
        node("n2", gpus=1)],
        [pod("x", gpus=1)], "n0 n2"),
    row("an instance needs MIG", "nodes", [node("n0", {SMALL: "1"}, labels=MIXED),
        node("n1", {SMALL: "1"}, labels=SINGLE)],
        [pod("x", requests={SMALL: "1"})], "n0"),
    row("the legacy MIG annotation", "nodes", [node("n0", gpus=1)], [pod("x", notes={SMALL: "1"})], ""),
]  # fmt: skip

NEIGHBOURS = [
    row("a host port", "ports", TWO, [pod("r", "n1", **PORT), pod("x", **PORT)], "n0"),
    row("affinity", "affinity", zoned("a", "a", "b", ""),
        [pod("db", "n0"), pod("x", **terms("podAffinity", near("db")))], "n0 n1"),
    row("affinity to its own kind: the first", "affinity", zoned("a", ""),
        [pod("x", **terms("podAffinity", near("x")))], "n0"),
    row("affinity: one pod for all terms", "affinity", zoned("a", "b"),
        [pod("p", "n0", labels={"a": "1"}), pod("q", "n0", labels={"b": "1"}),
         pod("both", "n1", labels={"a": "1", "b": "1"}),
         pod("x", **terms("podAffinity", near("", labelSelector={"matchLabels": {"a": "1"}}),
                          near("", labelSelector={"matchLabels": {"b": "1"}})))], "n1"),
    row("anti-affinity", "affinity", zoned("a", "a", "b", ""),
        [pod("db", "n0"), pod("x", **terms("podAntiAffinity", near("db")))], "n2 n3"),
    row("anti-affinity of who is there", "affinity", zoned("a", "a", "b"),
        [pod("db", "n0", **terms("podAntiAffinity", near("x"))), pod("x")], "n2"),
    row("anti-affinity towards another namespace", "affinity", zoned("a", "b"),
        [pod("db", "n0"), pod("x", **terms("podAntiAffinity", near("db", namespaces=["team"])))], "n0 n1"),
    row("anti-affinity towards every namespace", "affinity", zoned("a", "b"),
        [pod("db", "n0"), pod("x", **terms("podAntiAffinity", near("db", namespaceSelector={})))], "n1"),
    row("topology spread", "spread", zoned("a", "a", "b", ""),
        [pod("r", "n0", labels={"app": "x"}), pod("x", **spread(1))], "n2"),
    row("a wider skew", "spread", zoned("a", "a", "b", ""),
        [pod("r", "n0", labels={"app": "x"}), pod("x", **spread(2))], "n0 n1 n2"),
]  # fmt: skip

NIC = {"deviceClasses": [device_class()]}


def claimed(*requests: Object, **more: Any) -> dict[str, Any]:
    return {"resourceClaims": [claim("c", *requests, **more)], **NIC}


X, HOLDER = pod("x", resourceClaims=claims("c")), pod("r", "n1", resourceClaims=claims("held"))
HELD = claim("held", exact(), users=("r",), held=allocation("n1", "a"))
ABC = [slice_of("n0", device("a"), device("b", kind="fast")), slice_of("n1", device("a"))]

DEVICES = [
    row("a count", "claims", TWO, [X], "n0", {"n1": given(allocation("n1", "a"))},
        resourceSlices=ABC, **claimed(exact(2))),
    row("a selector", "claims", TWO, [X], "n0", {"n1": given(allocation("n1", "a"))},
        resourceSlices=[ABC[0], slice_of("n1", device("a", kind="slow"))],
        **claimed(exact(selectors=kind_is("fast")))),
    row("all of them", "claims", THREE,
        [HOLDER, X], "n0",
        {"n1": given(allocation("n1", "b")), "n2": given({"devices": {"results": []}})},
        resourceSlices=[ABC[0], slice_of("n1", device("a"), device("b"))], **NIC,
        resourceClaims=[HELD,
                        claim("c", exact(allocationMode="All"))]),
    row("the first alternative that is there", "claims", THREE, [X], "n0 n1",
        {"n2": given({"devices": {"results": []}})}, resourceSlices=ABC,
        **claimed({"name": "r", "firstAvailable": [
            {"name": "two", "deviceClassName": "nic", "count": 2},
            {"name": "one", "deviceClassName": "nic"}]})),
    row("a held device", "claims", TWO, [HOLDER, X], "n0",
        {"n1": given(allocation("n1", "a"))}, resourceSlices=ABC, **NIC,
        resourceClaims=[HELD, claim("c", exact())]),
    row("administrators may look at a held device", "claims", THREE,
        [HOLDER, X], "n0 n1",
        {"n2": given(allocation("n1", "a", adminAccess=True))}, resourceSlices=ABC, **NIC,
        resourceClaims=[HELD,
                        claim("c", exact(adminAccess=True))]),
    row("a claim that is shared", "claims", TWO, [pod("r", "n1", resourceClaims=claims("c")), X], "n1",
        {"n0": given(allocation("n1", "a"))}, resourceSlices=ABC,
        **claimed(exact(), users=("r",), held=allocation("n1", "a"))),
    row("devices that match", "claims", TWO, [X], "n1", {"n0": given(allocation("n0", "a", "b"))},
        resourceSlices=[slice_of("n0", device("a", kind="slow"), device("b", kind="fast")),
                        slice_of("n1", device("a", kind="slow"), device("b", kind="slow"))],
        **claimed(exact(2), constraints=({"requests": ["r"], "matchAttribute": f"{DRIVER}/kind"},))),
    row("devices that differ", "claims", TWO, [X], "n0", {"n1": given(allocation("n1", "a", "b"))},
        resourceSlices=[slice_of("n0", device("a", kind="slow"), device("b", kind="fast")),
                        slice_of("n1", device("a", kind="slow"), device("b", kind="slow"))],
        **claimed(exact(2), constraints=({"requests": ["r"], "distinctAttribute": f"{DRIVER}/kind"},))),
    row("devices of the nodes that a selector names", "claims", zoned("a", "a", "b"), [X], "n0 n1",
        {"n2": given(allocation("far", "a"))}, **claimed(exact()),
        resourceSlices=[slice_of("far", device("a"), nodeSelector=on_nodes("zone", "a"))]),
    row("devices of all nodes", "claims", TWO, [X], "n0 n1", **claimed(exact()),
        resourceSlices=[slice_of("any", device("a"), allNodes=True)]),
    row("a tainted device", "claims", TWO, [X], "n0", {"n1": given(allocation("n1", "a"))},
        resourceSlices=[ABC[0], slice_of("n1", device("a", taints=[{"key": "sick",
        "effect": "NoSchedule"}]))],
        **claimed(exact())),
    row("a device that a rule taints", "claims", THREE, [X], "n0", {
            "n1": given(allocation("n1", "a")), "n2": given(allocation("n2", "a"))},
        resourceSlices=[*ABC, slice_of("n2", device("a"))], deviceTaintRules=[
            taint_rule(pool="n1"), taint_rule("worse", effect="NoExecute", pool="n2", driver=DRIVER),
            taint_rule("gone", pool="n0", driver="other"), taint_rule("none", "None", pool="n0", device="a")],
        **claimed(exact())),
    row("all of them, one tainted", "claims", TWO, [X], "n0", {"n1": given(allocation("n1", "a"))},
        resourceSlices=[ABC[0], slice_of("n1", device("a"), device("b"))],
        deviceTaintRules=[taint_rule(pool="n1", device="b")], **claimed(exact(allocationMode="All"))),
    row("counters of partitions", "claims", TWO,
        [HOLDER, X], "n0", {"n1": given(allocation("n1", "b"))}, **NIC,
        resourceSlices=[
            slice_of(n, *(device(d, consumesCounters=[{"counterSet": "card",
            "counters": {"mem": {"value": "3"}}}])
                          for d in "ab"), sharedCounters=[{"name": "card",
                          "counters": {"mem": {"value": "5"}}}])
            for n in ("n0", "n1")],
        resourceClaims=[HELD, claim("c", exact())]),
    row("a device in portions", "claims", TWO,
        [HOLDER, X], "n0",
        {"n1": given(allocation("n1", "a", consumedCapacity={"mem": "3"}, shareID="s"))}, **NIC,
        resourceSlices=[slice_of(n, device("a", allowMultipleAllocations=True,
        capacity={"mem": {"value": "5"}}))
                        for n in ("n0", "n1")],
        resourceClaims=[
            claim("held", exact(capacity={"requests": {"mem": "3"}}), users=("r",),
                  held=allocation("n1", "a", consumedCapacity={"mem": "3"}, shareID="r")),
            claim("c", exact(capacity={"requests": {"mem": "3"}}))]),
    row("an extended resource that a class serves", "claims", TWO,
        [HOLDER, pod("x", requests={"cpu": "1", "example.com/nic": "1"})], "n0",
        {"n1": {"extendedResourceClaimAllocation": {"allocation": allocation("n1", "a")}}},
        resourceSlices=ABC, deviceClasses=[device_class(extendedResourceName="example.com/nic")],
        resourceClaims=[HELD]),
    row("a claim that does not exist", "claims", ONE, [X], "", {"n0": given(allocation("n0", "a"))},
        resourceSlices=ABC, **NIC),
    row("a GPU claim of another queue", "claims", ONE, [X], "", {"n0": given(allocation("n0", "a"))},
        resourceSlices=ABC, deviceClasses=[device_class("gpu")],
        resourceClaims=[claim("c", exact(device_class="gpu"), labels={"kai.scheduler/queue": "other"})]),
    row("shares beside GPUs of DRA", "nodes", [node("n0", gpus=1),
        node("n1", labels={"nvidia.com/gpu.memory": "40000"})],
        [pod("x", notes=HALF)], "n0", {"n1": {"gpu_groups": ("new",)}},
        resourceSlices=[slice_of("n1", device("a"), driver="gpu.example.com")]),
]  # fmt: skip


def observed(zone: int, cpus: int) -> dict[str, str]:
    return {
        "kai.scheduler/numa-placement-observed": f'[{{"zone":"zone-{zone}","amount":{{"cpu":"{cpus}"}}}}]'
    }


WIDE, HALVES = zones("n0", 8), zones("n1", 4, 4)
NUMA = [
    row("one zone", "zones", THREE, [pod("x", **aligned(6))], "n0 n2",
        {"n1": in_zones(3, 3)}, plugins=["numa"], nodeResourceTopologies=[WIDE, HALVES]),
    row("no more zones than an empty node needs", "zones", TWO,
        [pod(f"r{i}", "n1", notes=observed(i, 2), **aligned(2)) for i in (0, 1)] + [pod("x", **aligned(3))],
        "n0",
        {"n1": in_zones(2, 1)}, plugins=["numa"],
        nodeResourceTopologies=[zones(n, 4, 4, policy="restricted") for n in ("n0", "n1")]),
    row("a policy that refuses no pod", "zones", [node("n1")], [pod("x", **aligned(6))], "n1",
        plugins=["numa"],
        nodeResourceTopologies=[zones("n1", 4, 4, policy="best-effort")]),
]  # fmt: skip

ALONE = ("ReadWriteOncePod",)
BOTH = ("ReadWriteOnce", "ReadWriteMany")
LOCAL, NET = storage_class("local", STATIC), storage_class("net")
MOUNTS = pod("x", volumes=volumes("c"))
VOLUMES = [
    row("a bound volume's nodes", "volumes", zoned("a", "b", ""), [MOUNTS], "n0",
        persistentVolumes=[volume("v", claim="c", nodes=on_nodes("zone", "a"))],
        persistentVolumeClaims=[volume_claim("c", volume="v")], storageClasses=[LOCAL]),
    row("a claim that waits for a standing volume", "volumes", zoned("a", "b", "c"), [MOUNTS], "n0",
        persistentVolumes=[volume("v", nodes=on_nodes("zone", "a")),
        volume("w", "1Gi", nodes=on_nodes("zone", "b")),
                           volume("u", modes=("ReadOnlyMany",), nodes=on_nodes("zone", "c"))],
        persistentVolumeClaims=[volume_claim("c")], storageClasses=[LOCAL]),
    row("two claims and one standing volume", "volumes", zoned("a", "b"),
        [pod("x", volumes=volumes("c", "d"))], "n0",
        persistentVolumes=[volume(f"v{i}", nodes=on_nodes("zone", z)) for i, z in enumerate("aab")],
        persistentVolumeClaims=[volume_claim("c"), volume_claim("d")], storageClasses=[LOCAL]),
    row("volumes of which each claim gets one", "volumes", zoned("a", "b"),
        [pod("x", volumes=volumes("own", "shared"))], "n0",
        persistentVolumes=[volume("s", modes=BOTH, nodes=on_nodes("zone", "a")),
                           volume("t", "12Gi", nodes=on_nodes("zone", "a")),
                           volume("u", modes=BOTH, nodes=on_nodes("zone", "b")),
                           volume("w", "4Gi", nodes=on_nodes("zone", "b"))],
        persistentVolumeClaims=[volume_claim("own"), volume_claim("shared", modes=("ReadWriteMany",))],
        storageClasses=[LOCAL]),
    row("capacities of which each claim gets a part", "volumes", zoned("a", "b"),
        [pod("x", volumes=volumes("c", "d", "e"))], "n0",
        persistentVolumeClaims=[volume_claim(name, size, storage_class="net")
                                for name, size in (("c", "4Gi"), ("d", "5Gi"), ("e", "6Gi"))],
        storageClasses=[NET], csiDrivers=[csi_driver()],
        csiStorageCapacities=[capacity(f"{zone}-{size}", size, "zone", zone)
                              for zone, size in (("a", "9Gi"), ("a", "6Gi"), ("b", "8Gi"), ("b", "6Gi"))]),
    row("a volume that another claim leaves", "volumes", zoned("a", "b"),
        [pod("x", volumes=volumes("c", "d"))], "n0",
        persistentVolumes=[volume("s", storage_class="net", nodes=on_nodes("zone", "a"))],
        persistentVolumeClaims=[volume_claim("c", "1Gi", storage_class="net"),
                                volume_claim("d", storage_class="net")],
        storageClasses=[NET], csiDrivers=[csi_driver()],
        csiStorageCapacities=[capacity(z, "2Gi", "zone", z) for z in "ab"]),
    row("a volume that is kept for the claim", "volumes", zoned("a", "b"), [MOUNTS], "n0",
        persistentVolumes=[volume("v", claim="c", nodes=on_nodes("zone", "a")),
                           volume("w", nodes=on_nodes("zone", "b"))],
        persistentVolumeClaims=[volume_claim("c")], storageClasses=[LOCAL]),
    row("a claim that chooses by label or as a block device", "volumes", zoned("a", "b", "c"), [MOUNTS], "",
        persistentVolumes=[volume("v", nodes=on_nodes("zone", "a"))],
        persistentVolumeClaims=[volume_claim("c", volumeMode="Block")], storageClasses=[LOCAL]),
    row("where a class makes volumes", "volumes", zoned("a", "b", ""), [MOUNTS], "n1",
        persistentVolumeClaims=[volume_claim("c", storage_class="zoned")],
        storageClasses=[storage_class("zoned", allowedTopologies=[
            {"matchLabelExpressions": [{"key": "zone", "values": ["b"]}]}])]),
    row("room for a new volume", "volumes", zoned("a", "b", "c"), [MOUNTS], "n0",
        persistentVolumeClaims=[volume_claim("c", "8Gi", storage_class="net")], storageClasses=[NET],
        csiDrivers=[csi_driver()], csiStorageCapacities=[capacity("a", "10Gi", "zone", "a"),
        capacity("b", "5Gi", "zone", "b")]),
    row("a volume that is being made for a node", "volumes", zoned("a", "b"), [MOUNTS], "n1",
        persistentVolumeClaims=[volume_claim("c", storage_class="net", meta={"annotations":
            {"volume.kubernetes.io/selected-node": "n1"}})], storageClasses=[NET]),
    row("volumes that a node may have", "volumes", TWO,
        [pod("r", "n1", volumes=volumes("held")), MOUNTS], "n0", csiNodes=[csi_node("n1", 1)],
        storageClasses=[LOCAL],
        persistentVolumes=[volume("v", claim="c"), volume("w", claim="held")],
        persistentVolumeClaims=[volume_claim("c", volume="v"), volume_claim("held", volume="w")]),
    row("a claim for one pod alone", "volumes", TWO, [pod("r", "n1", volumes=volumes("c")), MOUNTS], "",
        persistentVolumes=[volume("v", claim="c", modes=ALONE)], storageClasses=[LOCAL],
        persistentVolumeClaims=[volume_claim("c", volume="v", modes=ALONE)]),
    row("a claim for one pod alone, used in another node pool", "volumes", TWO,
        [pod("r", "elsewhere", volumes=volumes("c")), MOUNTS], "",
        persistentVolumes=[volume("v", claim="c", modes=ALONE)], storageClasses=[LOCAL],
        persistentVolumeClaims=[volume_claim("c", volume="v", modes=ALONE)]),
    row("a claim for one pod alone that no pod uses", "volumes", TWO, [pod("r", "n1"), MOUNTS], "n0 n1",
        persistentVolumes=[volume("v", claim="c", modes=ALONE)], storageClasses=[LOCAL],
        persistentVolumeClaims=[volume_claim("c", volume="v", modes=ALONE)]),
    row("a claim that nothing will bind", "volumes", ONE, [MOUNTS], "",
        persistentVolumeClaims=[volume_claim("c", storage_class="now")],
        storageClasses=[storage_class("now", mode="Immediate")]),
    row("a claim that does not exist", "objects", ONE, [MOUNTS], ""),
    row("a claim that is being deleted", "objects", ONE, [MOUNTS], "",
        persistentVolumes=[volume("v", claim="c")], storageClasses=[LOCAL],
        persistentVolumeClaims=[volume_claim("c", volume="v", meta={"deletionTimestamp": ago(9)})]),
    row("a ConfigMap that does not exist", "objects", ONE,
        [pod("x", volumes=[{"name": "m", "configMap": {"name": "gone"}}])], ""),
]  # fmt: skip

RACKS = [
    node(f"n{i}", labels={LEVELS[0]: "b", LEVELS[1]: rack} if rack else {})
    for i, rack in enumerate(("r", "r", "s", ""))
]
RACK = {"topologyConstraint": {"topology": "fabric", "requiredTopologyLevel": "rack"}}
TOPOLOGY = [
    row("the rack of the pods that run", "topology", RACKS, [pod("r", "n0", group="g"), pod("x", group="g")],
        "n0 n1",
        groups={"g": RACK}),
    row("a preferred level stays inside the topology", "topology", RACKS, [pod("x")], "n0 n1 n2",
        groups={"x": {"topologyConstraint": {"topology": "fabric", "preferredTopologyLevel": "rack"}}}),
    row("a topology that does not exist", "topology", RACKS[:1], [pod("x")], "",
        groups={"x": {"topologyConstraint": {"topology": "none", "requiredTopologyLevel": "rack"}}}),
]  # fmt: skip

ROWS = [*NODES, *AMOUNTS, *GPUS, *NEIGHBOURS, *DEVICES, *NUMA, *VOLUMES, *TOPOLOGY]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.subject}: {row.name}")
def test_the_engine_and_the_checker_agree_on_every_node(row: Row) -> None:
    whole = world(row.nodes, row.pods, **row.more)
    x = whole.pod_by_key[PodKey("default", "x")]
    for one in row.nodes:
        name = one["metadata"]["name"]
        nodes = copy.deepcopy(list(row.nodes))
        for other in nodes:
            other["spec"]["unschedulable"] |= other["metadata"]["name"] != name
        plan = solved(world(nodes, row.pods, **row.more), ALL_RULES)
        if name in row.accepted.split():
            assert bound(plan) == {"x": name}
            continue
        assert plan.decisions == (), name
        assert [(u.group, u.proved) for u in plan.unscheduled] == [(x.group, True)], plan.unscheduled
        details = dict(row.details.get(name, {}))
        groups = details.pop("gpu_groups", ())
        wrong = Decision("Bind", x.key, x.group, name, "allocate", gpu_groups=groups, details=details)
        faults = violations(whole, Plan((wrong,)), ALL_RULES.rules)
        assert [fault for fault in faults if fault.startswith(f"{row.subject}:")], (name, faults)
