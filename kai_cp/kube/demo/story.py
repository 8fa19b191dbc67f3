"""The demonstration's cluster and workload: racks of GPU nodes, departments, and gangs over time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kai_cp.json_types import Object
from kai_cp.kube.api import resources as r
from kai_cp.kube.api.transport import Transport

NAMESPACE: Final = "demo"
GPUS: Final = 8
RACK_NODES: Final = 5
RACK: Final = "demo/rack"
QUEUES: Final = (
    ("research", "", 96.0, 100),
    ("vision", "research", 32.0, 100),
    ("language", "research", 64.0, 100),
    ("products", "", 64.0, 100),
    ("inference", "products", 64.0, 120),
)
"""Name, parent, deserved GPUs, priority."""


def create_cluster(api: Transport, nodes: int) -> None:
    """Create namespaces, nodes in racks of five, their topology, queues and priorities."""
    for name in (NAMESPACE, "kai-scheduler", "kai-resource-reservation"):
        api.create(r.NAMESPACES, "", {"metadata": {"name": name}})
    for i in range(nodes):
        name = f"gpu-{i:02d}"
        amounts = {"cpu": "128", "memory": "1Ti", "pods": "110", "nvidia.com/gpu": str(GPUS)}
        labels = {
            RACK: f"rack-{i // RACK_NODES}",
            "kubernetes.io/hostname": name,
            "nvidia.com/gpu.memory": "81920",
            "nvidia.com/gpu.count": str(GPUS),
        }
        status = {"allocatable": amounts, "capacity": amounts}
        api.create(r.NODES, "", {"metadata": {"name": name, "labels": labels}, "status": status})
    levels = [{"nodeLabel": RACK, "alias": "rack"}, {"nodeLabel": "kubernetes.io/hostname", "alias": "node"}]
    api.create(r.TOPOLOGIES, "", {"metadata": {"name": "hall"}, "spec": {"levels": levels}})
    free = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
    for name, parent, quota, priority in QUEUES:
        spec: Object = {
            "priority": priority,
            "resources": {"cpu": free, "memory": free, "gpu": {**free, "quota": quota}},
        }
        if parent:
            spec["parentQueue"] = parent
        api.create(r.QUEUES, "", {"metadata": {"name": name}, "spec": spec})
    for name, value in (("train", 50), ("build", 75), ("serve", 125)):
        api.create(r.PRIORITY_CLASSES, "", {"metadata": {"name": name}, "value": value})


def create_gang(
    api: Transport,
    name: str,
    queue: str,
    pods: int,
    *,
    gpus: int = 1,
    minimum: int | None = None,
    priority: str = "train",
    rack: bool = False,
    fraction: str = "",
) -> None:
    """Create a pod group with its pods: all in one rack if ``rack``, with a ``fraction`` of a GPU if
    given.
    """
    spec: Object = {
        "queue": queue,
        "minMember": pods if minimum is None else minimum,
        "priorityClassName": priority,
    }
    if rack:
        spec["topologyConstraint"] = {"topology": "hall", "requiredTopologyLevel": "rack"}
    api.create(r.POD_GROUPS, NAMESPACE, {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec})
    limits = {"cpu": "4", "memory": "16Gi"}
    annotations = {"pod-group-name": name}
    if fraction:
        annotations["gpu-fraction"] = fraction
    else:
        limits["nvidia.com/gpu"] = str(gpus)
    for i in range(pods):
        body = {
            "metadata": {"name": f"{name}-{i}", "namespace": NAMESPACE, "annotations": annotations},
            "spec": {
                "schedulerName": "kai-scheduler",
                "terminationGracePeriodSeconds": 2,
                "containers": [
                    {"name": "main", "image": "demo", "resources": {"limits": limits, "requests": limits}}
                ],
            },
        }
        api.create(r.PODS, NAMESPACE, body)


def tell(api: Transport, nodes: int) -> Iterator[tuple[str, float]]:
    """Tell the story: yields what happens now and how long to watch it, in seconds."""
    yield f"{nodes} nodes with {GPUS} GPUs each in racks of {RACK_NODES}, and nothing to do", 3
    create_gang(api, "llm", "language", 64)
    yield "research/language trains a model on 64 GPUs: all pods or none", 6
    create_gang(api, "vit", "vision", 4, gpus=8, rack=True)
    yield "research/vision wants 4 whole nodes of one rack", 6
    create_gang(api, "sweep", "vision", 80, minimum=1)
    yield "an elastic sweep fills what is left, beyond its queue's share", 8
    create_gang(api, "chat", "inference", 12, fraction="0.5", priority="serve")
    yield "products/inference starts 12 half-GPU servers: its quota is untouched, so others lose GPUs", 10
    create_gang(api, "api", "inference", 32, priority="serve")
    yield "and 32 GPUs more: surplus pods of the sweep are reclaimed, no gang is broken", 12
    create_gang(api, "giant", "language", 200)
    yield "a gang of 200 GPUs does not fit: it waits, and says why", 10
