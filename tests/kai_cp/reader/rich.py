"""A small snapshot that has something to read for every part of the reader and every device parser."""

from __future__ import annotations

import copy
from typing import Any

from tests.kai_cp.reader.raw import group, node, pod, queue, snapshot

Raw = dict[str, Any]

TERM = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "x"}}}
IN_ZONE = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
AFFINITY = {
    "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [IN_ZONE]}},
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [TERM | {"namespaceSelector": IN_ZONE}],
        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 5, "podAffinityTerm": TERM}],
    },
}
PLUGINS = [
    {"name": "proportion", "arguments": {"kValue": "1"}},
    {"name": "predicates"},
    {"name": "dynamicresources"},
    {"name": "numa", "arguments": {"ignoreList": "memory"}},
]
DEVICES: dict[str, list[Raw]] = {
    "resourceSlices": [
        {
            "metadata": {"name": "s"},
            "spec": {
                "nodeName": "n1",
                "driver": "gpu.x",
                "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 1},
                "devices": [
                    {
                        "name": "0",
                        "attributes": {"model": {"string": "a"}},
                        "capacity": {"m": {"value": "1"}},
                    }
                ],
            },
        }
    ],
    "deviceClasses": [
        {
            "metadata": {"name": "gpu.x"},
            "spec": {
                "selectors": [{"cel": {"expression": "device.driver == 'gpu.x'"}}],
                "extendedResourceName": "rdma/x",
            },
        }
    ],
    "resourceClaims": [
        {
            "metadata": {"name": "d", "namespace": "default", "labels": {"kai.scheduler/queue": "q"}},
            "spec": {
                "devices": {
                    "requests": [
                        {
                            "name": "r",
                            "exactly": {
                                "deviceClassName": "gpu.x",
                                "count": 1,
                                "selectors": [
                                    {"cel": {"expression": "device.attributes['gpu.x'].model == 'a'"}}
                                ],
                            },
                        }
                    ]
                }
            },
            "status": {
                "allocation": {
                    "devices": {"results": [{"request": "r", "driver": "gpu.x", "pool": "n1", "device": "0"}]}
                },
                "reservedFor": [{"resource": "pods", "name": "bound", "uid": "uid-bound"}],
            },
        }
    ],
    "persistentVolumes": [
        {
            "metadata": {"name": "pv"},
            "spec": {
                "storageClassName": "s",
                "capacity": {"storage": "1Gi"},
                "claimRef": {"namespace": "default", "name": "c"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [IN_ZONE]}},
            },
        }
    ],
    "persistentVolumeClaims": [
        {
            "metadata": {"name": "c", "namespace": "default"},
            "spec": {
                "storageClassName": "s",
                "resources": {"requests": {"storage": "1Gi"}},
                "volumeName": "pv",
            },
            "status": {"phase": "Bound"},
        }
    ],
    "storageClasses": [
        {"metadata": {"name": "s"}, "provisioner": "p", "volumeBindingMode": "WaitForFirstConsumer"}
    ],
    "csiDrivers": [{"metadata": {"name": "p"}, "spec": {"storageCapacity": True}}],
    "csiStorageCapacities": [
        {
            "metadata": {"name": "cap", "namespace": "default"},
            "storageClassName": "s",
            "capacity": "10Gi",
            "nodeTopology": {"matchLabels": {"zone": "a"}},
        }
    ],
    "nodeResourceTopologies": [
        {
            "metadata": {"name": "n1"},
            "topologyPolicies": ["SingleNUMANodePodLevel"],
            "zones": [
                {
                    "name": "node-0",
                    "type": "Node",
                    "resources": [{"name": "cpu", "capacity": "4", "allocatable": "4", "available": "4"}],
                }
            ],
        }
    ],
    "podDisruptionBudgets": [
        {
            "metadata": {"name": "b", "namespace": "default"},
            "spec": {"selector": {"matchLabels": {"app": "x"}}, "minAvailable": 1},
            "status": {"disruptionsAllowed": 0},
        }
    ],
    "namespaces": [{"metadata": {"name": "default", "labels": {"a": "b"}}}],
}
BIND_REQUEST = {
    "metadata": {"name": "bound", "namespace": "default"},
    "spec": {
        "podName": "bound",
        "selectedNode": "n1",
        "selectedGPUGroups": ["x"],
        "backoffLimit": 2,
        "resourceClaimAllocations": [{"name": "c", "allocation": {}}],
        "predictedNUMAZones": [{"zone": "0", "amount": {"cpu": "1"}}],
    },
    "status": {"phase": "Failed", "failedAttempts": 1},
}


def rich() -> Raw:
    """A fresh copy; nothing in it is set aside."""
    raw = snapshot(
        config={
            "actions": "allocate, consolidation, reclaim, preempt, stalegangeviction",
            "tiers": [{"plugins": PLUGINS}],
            "queueDepthPerAction": {"reclaim": 3},
        },
        params={
            "partitionParams": {"NodePoolLabelKey": "pool", "NodePoolLabelValue": ""},
            "scheduleCSIStorage": True,
            "maxNumberConsolidationPreemptees": 16,
        },
        nodes=[node(labels={"nvidia.com/gpu.memory": "81920", "zone": "a"}), node("n2", gpus=0)],
        queues=[queue("top"), queue("q", "top", preemptMinRuntime="5m")],
        priorityClasses=[{"metadata": {"name": "train"}, "value": 50, "globalDefault": True}],
        topologies=[{"metadata": {"name": "t"}, "spec": {"levels": [{"nodeLabel": "zone", "alias": "z"}]}}],
        configMaps=[{"metadata": {"name": "m", "namespace": "default"}}],
        podGroups=[
            group(
                annotations={"kai.scheduler/last-start-timestamp": "2026-11-20T11:59:00Z"},
                subGroups=[
                    {"name": "a", "minSubGroup": 1},
                    {"name": "b", "parent": "a", "minMember": 1},
                ],
                topologyConstraint={"topology": "t", "requiredTopologyLevel": "z"},
                stalenessGracePeriod="5s",
                schedulingBackoff=1,
            ),
            group("h", minMember=2),
        ],
        bindRequests=[BIND_REQUEST],
        pods=[
            pod("whole", node="n1", group="h", requests={"nvidia.com/gpu": "2", "rdma/x": "1"}),
            pod(
                "share",
                node="n1",
                labels={"runai-gpu-group": "x", "kai.scheduler/subgroup-name": "b"},
                annotations={
                    "gpu-fraction": "0.5",
                    "gpu-fraction-num-devices": "1",
                    "kai.scheduler/numa-placement-observed": '[{"zone":"node-0","amount":{"cpu":"1"}}]',
                },
            ),
            pod(
                "bound",
                labels={"kai.scheduler/subgroup-name": "b"},
                annotations={"gpu-memory": "100"},
                resourceClaims=[{"name": "c", "resourceClaimName": "d"}],
            ),
            pod(
                "waits",
                group="h",
                labels={"app": "x", "kai.scheduler/task-priority": "1"},
                affinity=AFFINITY,
                tolerations=[{"key": "a", "operator": "Exists"}],
                overhead={"cpu": "1m"},
                initContainers=[{"name": "i", "restartPolicy": "Always", "ports": [{"hostPort": 1}]}],
                volumes=[
                    {"name": "v", "persistentVolumeClaim": {"claimName": "c"}},
                    {"name": "m", "configMap": {"name": "m"}},
                ],
                topologySpreadConstraints=[TERM | {"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}],
            ),
            pod("gone", node="n2", metadata={"deletionTimestamp": "2026-11-20T11:59:00Z"}),
        ],
        **DEVICES,
    )
    return copy.deepcopy(raw)
