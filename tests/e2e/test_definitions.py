"""Our resource definitions on a real API server: what KAI's definitions accept is stored whole."""

from __future__ import annotations

from typing import Any, Final

import pytest

from kai_cp.kube.api import resources as r
from kai_cp.kube.api.errors import ApiError
from kai_cp.kube.api.transport import Transport, configuration
from kai_cp.kube.demo.controlplane import ControlPlane
from kai_cp.kube.install import definitions, install
from tests.e2e.world import admin

Object = dict[str, Any]

THEN: Final = "2026-11-20T12:00:00Z"
AMOUNTS: Final = {"cpu": "500m", "memory": "1Gi", "nvidia.com/gpu": "2"}
CONDITION: Final = {
    "type": "Ready",
    "status": "True",
    "observedGeneration": 3,
    "lastTransitionTime": THEN,
    "reason": "Reconciled",
    "message": "",
}
ALLOCATION: Final = {
    "allocationTimestamp": THEN,
    "devices": {
        "config": [{"source": "FromClaim", "requests": ["gpu"], "opaque": {"driver": "d", "parameters": {}}}],
        "results": [
            {
                "request": "gpu",
                "driver": "d",
                "pool": "n",
                "device": "gpu-0",
                "adminAccess": False,
                "bindingConditions": ["attached"],
                "bindingFailureConditions": ["broken"],
                "consumedCapacity": {"memory": "1Gi"},
                "shareID": "s",
                "tolerations": [{"key": "k", "operator": "Exists", "effect": "NoExecute"}],
            }
        ],
    },
    "nodeSelector": {
        "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}]
    },
}
LEVELS: Final = {"topology": "dc", "requiredTopologyLevel": "rack", "preferredTopologyLevel": "zone"}
SHARE: Final = {"quota": 1.5, "overQuotaWeight": 2, "limit": -1}

WHOLE: Final = {
    r.QUEUES: {
        "spec": {
            "displayName": "Vision",
            "parentQueue": "all",
            "priority": 100,
            "preemptMinRuntime": "1h0m0s",
            "reclaimMinRuntime": "30m0s",
            "resources": {"cpu": SHARE, "gpu": SHARE, "memory": SHARE},
        },
        "status": {
            "conditions": [
                {
                    "type": "Ready",
                    "status": "True",
                    "lastProbeTime": THEN,
                    "lastTransitionTime": THEN,
                    "reason": "r",
                    "message": "m",
                }
            ],
            "childQueues": ["a", "b"],
            "allocated": AMOUNTS,
            "allocatedNonPreemptible": AMOUNTS,
            "requested": AMOUNTS,
        },
    },
    r.POD_GROUPS: {
        "spec": {
            "minMember": 2,
            "minSubGroup": 1,
            "queue": "q",
            "priorityClassName": "train",
            "preemptibility": "preemptible",
            "topologyConstraint": LEVELS,
            "subGroups": [
                {
                    "name": "workers",
                    "minMember": 2,
                    "minSubGroup": 1,
                    "parent": "all",
                    "topologyConstraint": LEVELS,
                }
            ],
            "markUnschedulable": True,
            "schedulingBackoff": 1,
            "preemptionDelay": "1m0s",
            "stalenessGracePeriod": "-1s",
        },
        "status": {
            "conditions": [
                {
                    "type": "Ready",
                    "status": "True",
                    "transitionID": "1",
                    "lastTransitionTime": THEN,
                    "reason": "r",
                    "message": "m",
                }
            ],
            "schedulingConditions": [
                {
                    "type": "UnschedulableOnNodePool",
                    "nodePool": "default",
                    "reason": "r",
                    "message": "m",
                    "reasons": [
                        {
                            "reason": "NonPreemptibleOverQuota",
                            "message": "m",
                            "details": {
                                "queueDetails": {
                                    "name": "q",
                                    "queueRequestedResources": AMOUNTS,
                                    "queueAllocatedResources": AMOUNTS,
                                }
                            },
                        }
                    ],
                    "lastTransitionTime": THEN,
                    "status": "True",
                    "transitionID": "2",
                }
            ],
            "resourcesStatus": {
                "allocated": AMOUNTS,
                "allocatedNonPreemptible": AMOUNTS,
                "requested": AMOUNTS,
            },
        },
    },
    r.BIND_REQUESTS: {
        "spec": {
            "podName": "p",
            "selectedNode": "n",
            "receivedResourceType": "Fraction",
            "receivedGPU": {"count": 1, "portion": "0.50"},
            "selectedGPUGroups": ["g"],
            "resourceClaimAllocations": [{"name": "gpu", "allocation": ALLOCATION}],
            "extendedResourceClaimAllocation": {
                "allocation": ALLOCATION,
                "deviceRequests": [{"name": "r", "exactly": {"deviceClassName": "gpu", "count": 1}}],
                "containerMappings": [
                    {"containerName": "c", "resourceName": "nvidia.com/gpu", "requestName": "r"}
                ],
            },
            "predictedNUMAZones": [{"zone": "node-0", "amount": AMOUNTS}],
            "backoffLimit": 3,
        },
        "status": {"phase": "Failed", "reason": "r", "failedAttempts": 1},
    },
    r.TOPOLOGIES: {
        "spec": {"levels": [{"nodeLabel": "example.com/rack", "alias": "rack"}, {"nodeLabel": "host"}]}
    },
    r.SHARDS: {
        "spec": {
            "args": {"v": "5"},
            "partitionLabelValue": "a",
            "placementStrategy": {"gpu": "spread", "cpu": "binpack"},
            "queueDepthPerAction": {"reclaim": 5},
            "minRuntime": {"preemptMinRuntime": "1h", "reclaimMinRuntime": "1h"},
            "kValue": 1.5,
            "usageDBConfig": {
                "clientType": "prometheus",
                "connectionString": "address",
                "connectionStringEnvVar": "ADDRESS",
                "usageParams": {
                    "halfLifePeriod": "1h",
                    "windowSize": "1w2d",
                    "windowType": "tumbling",
                    "tumblingWindowStartTime": THEN,
                    "cronString": "0 0 * * *",
                    "fetchInterval": "1m",
                    "stalenessPeriod": "5m",
                    "waitTimeout": "1m",
                    "extraParams": {"gpuAllocationMetric": "m"},
                },
            },
            "scenarioSearchBudgets": {
                "maxActionSearchDuration": {"default": "1s"},
                "maxGeneratorSearchDuration": {"default": "1s"},
                "maxJobSearchDuration": "1s",
                "minJobSearchDuration": "1s",
            },
            "goMemLimitRatio": 0.9,
            "goMemLimit": "1Gi",
            "plugins": {"gpupack": {"enabled": True, "priority": 300, "arguments": {"a": "b"}}},
            "actions": {"reclaim": {"enabled": False, "priority": 300}},
        },
        "status": {"conditions": [CONDITION]},
    },
    r.CONFIGS: {
        "spec": {
            "namespace": "kai-scheduler",
            "global": {"schedulerName": "s", "podAntiAffinity": True},
            "binder": {"volumeBindingTimeoutSeconds": 30, "service": {"enabled": True}},
            "podGrouper": {"k8sClientConfig": {"qps": 50}},
        },
        "status": {"conditions": [CONDITION]},
    },
}
"""Every field of KAI's definitions; of Config, which keeps what it does not know, some."""


def test_definitions_are_never_overwritten(control_plane: ControlPlane) -> None:
    api = Transport(configuration(str(control_plane.kubeconfig())), "admin")
    assert set(install(api).values()) == {False}
    for _, definition in definitions():
        found = api.get(r.CRDS, "", definition["metadata"]["name"])
        assert found is not None
        problems = [c for c in found["status"]["conditions"] if c["type"] == "NonStructuralSchema"]
        assert not problems
    api.close()


@pytest.mark.parametrize("resource", WHOLE, ids=lambda r: r.kind)
def test_every_field_of_kai_is_stored(control_plane: ControlPlane, resource: r.Resource) -> None:
    api = admin(control_plane)
    namespace, name = "default" if resource.namespaced else "", f"whole-{resource.plural}"
    body = WHOLE[resource]
    kept = api.create(resource, namespace, {"metadata": {"name": name}, **body})
    try:
        assert kept["spec"] == body["spec"]
        if "status" in body:
            status = {"status": body["status"]}
            told = api.patch(resource, namespace, name, status, subresource="status")
            assert told is not None
            assert told["status"] == body["status"]
    finally:
        api.delete(resource, namespace, name)


@pytest.mark.parametrize(
    ("resource", "spec", "status"),
    [
        (r.BIND_REQUESTS, {}, {}),
        (r.BIND_REQUESTS, {"selectedNode": "n"}, {}),
        (r.BIND_REQUESTS, {"receivedResourceType": "Later"}, {"phase": "Later"}),
        (r.BIND_REQUESTS, {"resourceClaimAllocations": [{}]}, {}),
        (r.SHARDS, {"kValue": -1, "placementStrategy": {"gpu": "later", "cpu": ""}}, {}),
        (r.CONFIGS, {"binder": {"volumeBindingTimeoutSeconds": -1}}, {}),
        (r.QUEUES, {}, {}),
        (r.POD_GROUPS, {"minMember": 0, "minSubGroup": 0}, {}),
    ],
)
def test_nothing_is_required_that_kai_does_not_require(
    control_plane: ControlPlane, resource: r.Resource, spec: Object, status: Object
) -> None:
    api = admin(control_plane)
    namespace, name = "default" if resource.namespaced else "", f"odd-{resource.plural}"
    kept = api.create(resource, namespace, {"metadata": {"name": name}, "spec": spec})
    try:
        assert kept["spec"] == spec
        if status:
            told = api.patch(resource, namespace, name, {"status": status}, subresource="status")
            assert told is not None
            assert told["status"] == status
    finally:
        api.delete(resource, namespace, name)


@pytest.mark.parametrize(
    ("resource", "body"),
    [
        (r.TOPOLOGIES, {"spec": {"levels": []}}),
        (r.TOPOLOGIES, {"spec": {"levels": [{"nodeLabel": "a"}, {"nodeLabel": "a"}]}}),
        (r.TOPOLOGIES, {"spec": {"levels": [{"nodeLabel": "kubernetes.io/hostname"}, {"nodeLabel": "b"}]}}),
        (r.TOPOLOGIES, {"spec": {"levels": [{"nodeLabel": "a", "alias": "b"}, {"nodeLabel": "b"}]}}),
        (r.TOPOLOGIES, {"spec": {"levels": [{"nodeLabel": "a b"}]}}),
        (r.TOPOLOGIES, {"spec": {"levels": [{"nodeLabel": "a", "alias": ""}]}}),
        (r.TOPOLOGIES, {}),
        (r.POD_GROUPS, {"spec": {"minMember": -1}}),
        (r.POD_GROUPS, {"spec": {"subGroups": [{"name": "Upper"}]}}),
        (r.POD_GROUPS, {"spec": {"preemptibility": "perhaps"}}),
        (r.POD_GROUPS, {"spec": {"stalenessGracePeriod": "forever"}}),
        (r.POD_GROUPS, {"spec": {"preemptionDelay": "1d"}}),
        (r.BIND_REQUESTS, {"spec": {"predictedNUMAZones": [{"amount": {"cpu": "much"}}]}}),
        (r.SHARDS, {"spec": {"goMemLimitRatio": 0}}),
        (
            r.SHARDS,
            {"spec": {"usageDBConfig": {"clientType": "prometheus", "usageParams": {"windowSize": "1"}}}},
        ),
        (r.QUEUES, {"spec": {"priority": "high"}}),
    ],
)
def test_schemas_refuse_impossible_values(
    control_plane: ControlPlane, resource: r.Resource, body: Object
) -> None:
    api = admin(control_plane)
    with pytest.raises(ApiError) as told:
        api.create(resource, "default" if resource.namespaced else "", {"metadata": {"name": "bad"}, **body})
    assert told.value.status == 422
    api.close()


def test_a_patch_with_the_uid_of_an_earlier_object_changes_nothing(control_plane: ControlPlane) -> None:
    api = admin(control_plane)
    pod = {"containers": [{"name": "c", "image": "x"}], "schedulerName": "none"}
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    for resource, spec in [(r.PODS, pod), (r.VOLUME_CLAIMS, claim), (r.POD_GROUPS, {})]:
        made = api.create(resource, "default", {"metadata": {"name": "later"}, "spec": spec})
        name = ("default", "later")
        patch = {"metadata": {"uid": "earlier", "annotations": {"a": "b"}}}
        assert api.patch(resource, *name, patch) is None
        status = {"metadata": {"uid": "earlier"}, "status": {"nominatedNodeName": "n"}}
        if resource == r.PODS:
            assert api.patch(resource, *name, status, subresource="status") is None
            assert api.patch(resource, *name, status, subresource="status", strategic=True) is None
        assert api.get(resource, *name) == made
        api.delete(resource, *name)
    api.close()
