"""What a pod that leaves gives to one that waits: every rule in one table, under each action that evicts.

``v`` runs on n0 and holds what ``x`` needs, and n1 accepts only ``v``. So v has to leave for x. The checker
then gets the plan without the eviction, and the plan that binds x at once while v is still there, and must
name the rule both times.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from kai_cp_models.check import violations
from kai_cp_models.plan import Plan
from kai_cp_models.snapshot import Snapshot
from tests.support.devices import (
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
    slice_of,
    storage_class,
    volume,
    volume_claim,
    volumes,
    zones,
)
from tests.support.objects import Object
from tests.support.plans import ALL_RULES, evicted, nominated, placed, solved
from tests.support.tiny import NOTHING, node, pod, queue, world

ACTIONS = ("preempt", "reclaim", "consolidation")
KEPT_FOR_V = {"key": "kept", "value": "v", "effect": "NoSchedule"}


@dataclass(frozen=True)
class Row:
    """``v`` and ``x``: fields of the two pods. ``offers``, ``labels`` and ``gpus`` of both nodes."""

    name: str
    subject: str
    v: Mapping[str, Any] = field(default_factory=dict)
    x: Mapping[str, Any] = field(default_factory=dict)
    offers: Mapping[str, str] = field(default_factory=dict)
    gpus: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    more: Mapping[str, Any] = field(default_factory=dict)
    others: Sequence[Object] = ()
    actions: Sequence[str] = ACTIONS
    at_once: bool = False
    """Whether x may be bound at once."""

    def world(self, action: str) -> Snapshot:
        """v leaves because of its priority, because of its queue's quota, or by moving."""
        v = {"preempt": {"priority": "low"}, "reclaim": {"queue": "poor"}, "consolidation": {}}[action]
        nodes = [
            node("n0", self.offers, gpus=self.gpus, labels={"zone": "a", **self.labels}),
            node("n1", self.offers, gpus=self.gpus, labels={"zone": "b", **self.labels}, taints=[KEPT_FOR_V]),
        ]
        pods = [
            pod("v", "n0", **{"tolerations": [{"key": "kept", "operator": "Exists"}], **v, **self.v}),
            pod("x", **self.x),
            *self.others,
        ]
        queues = [queue("q"), queue("poor", quota=NOTHING)]
        return world(nodes, pods, actions=f"allocate, {action}", queues=queues, **self.more)


def both(name: str, subject: str, gpus: int = 0, offers: Mapping[str, str] | None = None,
         labels: Mapping[str, str] | None = None, more: Mapping[str, Any] | None = None,
         **fields: Any) -> Row:  # fmt: skip
    """v and x ask for the same."""
    return Row(name, subject, fields, fields, offers or {}, gpus, labels or {}, more or {})


def needs(**requests: str) -> dict[str, Any]:
    return {"requests": {"cpu": "1", "memory": "1Gi"} | requests}


def apart(app: str) -> Object:
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": "zone"}
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def portion(size: str, **more: Any) -> dict[str, Any]:
    return {"notes": {"gpu-fraction": size}, **more}


FPGA = "example.com/fpga"
SMALL = "nvidia.com/mig-1g.5gb"
MIXED = {"nvidia.com/mig.strategy": "mixed", "node-role.kubernetes.io/mig-enabled": "true"}
PORT: Object = {"containers": [{"name": "main", "ports": [{"containerPort": 80, "hostPort": 80}],
                        "resources": {"requests": {"cpu": "1"}}}]}  # fmt: skip
SPREAD = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
          "labelSelector": {"matchLabels": {"app": "x"}}}  # fmt: skip
V_CLAIMS: Object = {"resourceClaims": claims("cv")}
X_CLAIMS: Object = {"resourceClaims": claims("cx")}
HELD = claim("cv", exact(), users=("v",), held=allocation("n0", "a"))


def devices(*made: Object, held: Object = HELD, wanted: Object | None = None, **pool: Any) -> dict[str, Any]:
    """Both nodes have the devices; v holds ``a`` of n0."""
    return {
        "deviceClasses": [device_class()],
        "resourceSlices": [slice_of(n, *made, **pool) for n in ("n0", "n1")],
        "resourceClaims": [held, claim("cx", wanted or exact())],
    }


def part(name: str) -> Object:
    return device(name, consumesCounters=[{"counterSet": "card", "counters": {"mem": {"value": "3"}}}])


THREE = exact(capacity={"requests": {"mem": "3"}})
CARD: Object = {"sharedCounters": [{"name": "card", "counters": {"mem": {"value": "5"}}}]}
SHAREABLE = device("a", allowMultipleAllocations=True, capacity={"mem": {"value": "5"}})
SHARE_HELD = claim(
    "cv", THREE, users=("v",), held=allocation("n0", "a", consumedCapacity={"mem": "3"}, shareID="v")
)
DISK: Object = {"persistentVolumeClaims": [volume_claim("cv", volume="w"), volume_claim("cx", volume="u")],
        "persistentVolumes": [volume("w", claim="cv"), volume("u", claim="cx")],
        "csiNodes": [csi_node("n0", 1), csi_node("n1", 1)],
        "storageClasses": [storage_class("local")]}  # fmt: skip
ALONE: Object = {"persistentVolumeClaims": [volume_claim("cs", volume="w", modes=("ReadWriteOncePod",))],
                 "persistentVolumes": [volume("w", claim="cs")],
                 "storageClasses": [storage_class("local")]}  # fmt: skip
NET: Object = {"persistentVolumeClaims": [volume_claim("cv", volume="w", storage_class="net", owner="v"),
                                  volume_claim("cx", storage_class="net")],
       "persistentVolumes": [volume("w", claim="cv", storage_class="net")], "csiDrivers": [csi_driver()],
       "csiStorageCapacities": [capacity("a", "2Gi", "zone", "a")], "storageClasses": [storage_class("net")],
       "params": {"scheduleCSIStorage": True}}  # fmt: skip

ROWS = [
    both("CPUs", "capacity", **needs(cpu="5")),
    both("memory", "capacity", **needs(memory="40Gi")),
    both("ephemeral storage", "capacity", offers={"ephemeral-storage": "3Gi"},
    **needs(**{"ephemeral-storage": "2Gi"})),
    both("hugepages", "capacity", offers={"hugepages-2Mi": "6Mi"}, **needs(**{"hugepages-2Mi": "4Mi"})),
    both("an extended resource", "capacity", offers={FPGA: "1"},
    **needs(**{FPGA: "1"})),
    both("pod slots", "capacity", offers={"pods": "1"}),
    both("the overhead of the runtime", "capacity", overhead={"cpu": "4"}, **needs()),
    Row("whole GPUs", "capacity", {"gpus": 2}, {"gpus": 2}, gpus=3),
    Row("a GPU that is shared", "capacity", portion("0.6", shares=["g"]), portion("0.6"), gpus=1),
    Row("a GPU that others share as well", "sharing", portion("0.6", shares=["g"]), portion("0.5"), gpus=1,
        others=[pod("w", "n0", notes={"gpu-fraction": "0.3"}, shares=["g"], priority="build")]),
    Row("a whole GPU that shares are on", "capacity", portion("0.6", shares=["g"]), {"gpus": 1}, gpus=1),
    Row("a share where a whole GPU was", "capacity", {"gpus": 1}, portion("0.6"), gpus=1),
    Row("memory of a GPU", "capacity", {"notes": {"gpu-memory": "30000"}, "shares": ["g"]},
        {"notes": {"gpu-memory": "30000"}}, gpus=1),
    Row("the second slot of a new shared GPU", "capacity", {}, portion("0.5"), {"pods": "2"}, gpus=1),
    both("a MIG instance", "capacity", offers={SMALL: "1"}, labels=MIXED, requests={SMALL: "1"}),
    both("a host port", "ports", **PORT),
    Row("anti-affinity", "affinity", {}, apart("v")),
    Row("anti-affinity of who is there", "affinity", apart("x"), {}),
    # Kubernetes does not count pods that are being deleted.
    Row("topology spread", "spread", {"labels": {"app": "x"}}, {"topologySpreadConstraints": [SPREAD]},
    at_once=True),
    Row("a device", "claims", V_CLAIMS, X_CLAIMS, more=devices(device("a"))),
    Row("all devices", "claims", V_CLAIMS, X_CLAIMS,
        more=devices(device("a"), device("b"), wanted=exact(allocationMode="All"))),
    Row("counters of partitions", "claims", V_CLAIMS, X_CLAIMS, more=devices(part("a"), part("b"), **CARD)),
    Row("a device in portions", "claims", V_CLAIMS, X_CLAIMS, more=devices(SHAREABLE, held=SHARE_HELD,
    wanted=THREE)),
    Row("an extended resource that a class serves", "claims", V_CLAIMS, needs(**{FPGA: "1"}),
        more=devices(device("a")) | {"deviceClasses": [device_class(extendedResourceName=FPGA)]}),
    Row("a NUMA zone", "zones", {**aligned(2), "notes": {"kai.scheduler/numa-placement-observed":
        '[{"zone":"zone-0","amount":{"cpu":"2"}}]'}}, aligned(3),
        more={"plugins": ["numa"], "nodeResourceTopologies": [zones("n0", 4), zones("n1", 4)]}),
    Row("a volume that may be attached", "volumes", {"volumes": volumes("cv")}, {"volumes": volumes("cx")},
    more=DISK),
    Row("a volume for one pod alone", "volumes", {"volumes": volumes("cs")}, {"volumes": volumes("cs")},
    more=ALONE,
        actions=("preempt", "reclaim")),
    Row("room for a new volume", "volumes", {"volumes": volumes("cv")}, {"volumes": volumes("cx")}, more=NET),
    Row("room of one of two capacities", "volumes", {"volumes": volumes("cv")}, {"volumes": volumes("cx")},
        more={**NET, "csiStorageCapacities": [
            capacity("a", "2Gi", "zone", "a") | {"maximumVolumeSize": "2Gi"},
            capacity("b", "2Gi", "zone", "a")]}),
]  # fmt: skip


def without(plan: Plan, *kinds: str) -> Plan:
    return replace(
        plan, decisions=tuple(d for d in plan.decisions if d.kind not in kinds or d.pod.name == "x")
    )


@pytest.mark.parametrize(
    ("row", "action"),
    [(row, action) for row in ROWS for action in row.actions],
    ids=[f"{row.subject}: {row.name}-{action}" for row in ROWS for action in row.actions],
)
def test_a_leaving_pod_frees_capacity_later_and_not_now(row: Row, action: str) -> None:
    snapshot = row.world(action)
    assert snapshot.set_aside == () or "fabric" in snapshot.set_aside[0].item
    plan = solved(snapshot, ALL_RULES)
    assert (placed(plan), evicted(plan), nominated(plan)["x"]) == ({"x"}, {"v"}, "n0")
    assert action != "consolidation" or nominated(plan)["v"] == "n1"
    x = next(d for d in plan.decisions if d.pod.name == "x")
    stays = Plan((x,))
    at_once = Plan(tuple(replace(x, kind="Bind") if d is x else d for d in plan.decisions))
    for wrong in (stays,) if row.at_once else (stays, at_once):
        faults = violations(snapshot, wrong, ALL_RULES.rules)
        assert [fault for fault in faults if fault.startswith(f"{row.subject}:")], faults
