"""Requests to autoscalers on the real API server: gangs as a whole, shares of GPUs, nothing in vain."""

from __future__ import annotations

import time

from kai_cp.instants import rfc3339
from kai_cp.kube.api import resources as r
from kai_cp.workloads.provisioning import ATOMIC, CONSUMES
from tests.e2e.workloads import Workloads, install, kubectl
from tests.e2e.world import KINDS, Object, World
from tests.support.definitions import PYTORCH_JOBS

ROLE = "training.kubeflow.org/replica-type"
SCALING = "kai-scale-adjust"


def gang(made: Workloads, name: str, gpus: int) -> None:
    """A PyTorchJob of two workers."""
    spec = {"pytorchReplicaSpecs": {"Worker": {"replicas": 2, "template": {}}}}
    job = made.own(PYTORCH_JOBS, name, spec=spec)
    for i in range(2):
        made.pod(f"{name}-{i}", job, gpus=gpus, **{ROLE: "worker"})


def asked(world: World) -> list[Object]:
    """ProvisioningRequests of this world."""
    found: list[Object] = world.api.raw(r.PROVISIONING_REQUESTS.path(world.namespace))["items"]
    return found


def consumed(world: World) -> set[str]:
    """Pods for which a request asks."""
    pods = world.pods()
    return {p["metadata"]["name"] for p in pods if CONSUMES in (p["metadata"].get("annotations") or {})}


def test_a_provisioning_request_asks_for_the_whole_gang(world: World) -> None:
    install(world, PYTORCH_JOBS, r.PROVISIONING_REQUESTS)
    world.add_nodes(1, gpus=1)
    made = Workloads(world, world.add_queue())
    held = Workloads(world, world.add_queue("held", limit=1))
    made.start("--controllers=podgrouper,provisioning-requests")
    world.scheduler()
    world.binder()
    gang(held, "held", gpus=4)
    gang(made, "train", gpus=8)
    request = world.until(lambda: asked(world), "the gang is asked for")[0]
    (pod_set,) = request["spec"]["podSets"]
    assert pod_set["count"] == 2
    assert request["spec"]["provisioningClassName"] == ATOMIC
    template = world.api.get(r.POD_TEMPLATES, world.namespace, pod_set["podTemplateRef"]["name"]) or {}
    limits = template["template"]["spec"]["containers"][0]["resources"]["limits"]
    assert limits["nvidia.com/gpu"] == "8"
    world.until(lambda: consumed(world) == {"train-0", "train-1"}, "its pods are not looked at one by one")
    assert world.until(lambda: world.events("CapacityRequested"), "it is told")
    assert len(asked(world)) == 1, "more nodes would not help who is held back by a limit"

    # The part of the autoscaler: the nodes come, and then it says so.
    world.add_nodes(2)
    said = {"type": "Provisioned", "status": "True", "reason": "CapacityIsFound", "message": ""}
    said["lastTransitionTime"] = rfc3339(int(time.time()))
    name = request["metadata"]["name"]
    status = {"status": {"conditions": [said]}}
    world.api.patch(r.PROVISIONING_REQUESTS, world.namespace, name, status, subresource="status")
    world.until(lambda: len(world.running()) == 2, "the gang runs")
    world.until(lambda: not asked(world), "the request is taken back")
    left = kubectl(world, "get", "podtemplates", "-n", world.namespace, "-o", "name")
    assert left.strip() == ""
    assert not world.events("PodGrouperWarning")


def scaling(world: World) -> list[Object]:
    """Scaling pods for this world."""
    items: list[Object] = world.api.raw(r.PODS.path(SCALING))["items"]
    label = "shared-gpu-pod-namespace"
    return [item for item in items if item["metadata"]["labels"].get(label) == world.namespace]


def test_parts_of_gpus_are_shown_as_whole_ones_and_taken_back(world: World) -> None:
    if world.api.get(KINDS["ServiceAccount"], SCALING, SCALING) is None:
        world.api.create(KINDS["ServiceAccount"], SCALING, {"metadata": {"name": SCALING}})
    world.add_nodes(1, gpus=1)
    made = Workloads(world, world.add_queue())
    made.start("--controllers=podgrouper,node-scale-adjuster")
    world.scheduler()
    world.binder()
    full = made.pod("full")
    world.until(lambda: world.running(), "a whole GPU is taken")
    for i in range(2):
        shared = {"gpu-fraction": "0.5", "runai/shared-gpu-configmap": f"part-{i}-abc1234-shared-gpu"}
        made.pod(f"part-{i}", gpus=0, annotations=shared)
    (shown,) = world.until(lambda: scaling(world), "one GPU is asked for")

    def reasons() -> list[str]:
        found = [item["status"].get("conditions", ()) for item in scaling(world)]
        return [c.get("reason", "") for each in found for c in each if c["type"] == "PodScheduled"]

    world.until(lambda: "Unschedulable" in reasons(), "an autoscaler sees that it fits nowhere")
    assert shown["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "1"
    world.api.delete(r.PODS, world.namespace, full["metadata"]["name"], grace=0)
    world.until(lambda: not scaling(world), "the request goes when the parts are placed")
