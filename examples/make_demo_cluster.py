"""Writes ``demo-cluster.json``: eight nodes, three teams, and one of everything a cycle does.

- *vision* is owed 24 GPUs and holds 4.5; its gang of two whole nodes reclaims from *language*, which holds
  far more than its quota.
- Notebooks share GPUs; a gang that must stay in one rack finds one.
- In *serving*, an inference server preempts surplus batch work of the same queue.
- Three pod groups wait, each for another reason; one pod is malformed and is set aside.

Run: ``.venv/bin/python examples/make_demo_cluster.py``
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kai_cp.bench.generate.objects import (
    GangSpec,
    NodeShape,
    PodRequest,
    RawCluster,
    ago,
    group,
    node,
    pod,
    queue,
)

DAY = 86_400
TARGET = Path(__file__).with_name("demo-cluster.json")


def add_nodes(cluster: RawCluster) -> None:
    """Eight nodes in two racks; the last two have half as many GPUs."""
    for i in range(8):
        shape = NodeShape() if i < 6 else NodeShape(gpus=4, cpus=64, memory_gib=512)
        labels = {"zone": "zone-1", "rack": "rack-a" if i % 2 == 0 else "rack-b"}
        cluster.nodes.append(node(f"gpu-{i}", shape, labels))


def add_queues(cluster: RawCluster) -> None:
    """Two departments; GPUs are what is scarce."""
    born = 90 * DAY
    cluster.queues.append(queue("research", 48, ago(born)))
    cluster.queues.append(queue("language", 16, ago(born - 60), "research"))
    cluster.queues.append(queue("vision", 24, ago(born - 120), "research"))
    cluster.queues.append(queue("product", 8, ago(born - 180)))
    serving = queue("serving", 8, ago(born - 240), "product")
    serving["spec"]["resources"]["gpu"]["limit"] = 16
    cluster.queues.append(serving)


def run(cluster: RawCluster, gang: GangSpec, *places: str, gpu_group: str = "") -> None:
    """A pod group whose pods run on ``places``."""
    cluster.groups.append(group(gang, running=True))
    cluster.pods += [pod(gang, i, place, gpu_group) for i, place in enumerate(places)]


def wait(cluster: RawCluster, gang: GangSpec, **labels: str) -> None:
    """A pod group that waits; ``labels`` are added to its pods' node selector."""
    cluster.groups.append(group(gang, running=False))
    for i in range(gang.size):
        found: dict[str, Any] = pod(gang, i)
        if labels:
            found["spec"]["nodeSelector"] = labels
        cluster.pods.append(found)


def demo() -> dict[str, Any]:
    """The snapshot."""
    cluster = RawCluster()
    add_nodes(cluster)
    add_queues(cluster)
    whole, half, quarter = PodRequest(gpus=8), PodRequest(gpus=4), PodRequest(gpus=2)
    run(cluster, GangSpec("llm-base", "language", whole, 2, age_seconds=3 * DAY), "gpu-0", "gpu-2")
    run(cluster, GangSpec("llm-tune", "language", whole, 1, age_seconds=9 * 3600), "gpu-4")
    run(cluster, GangSpec("llm-sweep-1", "language", half, 1, age_seconds=5400), "gpu-1")
    run(cluster, GangSpec("llm-sweep-2", "language", half, 1, age_seconds=5400), "gpu-1")
    run(cluster, GangSpec("llm-eval", "language", quarter, 3, age_seconds=4200), "gpu-3", "gpu-3", "gpu-3")
    run(cluster, GangSpec("segment", "vision", half, 1, age_seconds=DAY), "gpu-5")
    run(
        cluster,
        GangSpec("notebook-ann", "vision", PodRequest(fraction=0.5), age_seconds=7200),
        "gpu-5",
        gpu_group="shared-1",
    )
    run(
        cluster,
        GangSpec("batch-score", "serving", half, 2, age_seconds=4 * 3600, minimum=1),
        "gpu-6",
        "gpu-7",
    )

    wait(cluster, GangSpec("detector", "vision", whole, 2, age_seconds=900))
    wait(cluster, GangSpec("ablation", "vision", PodRequest(gpus=1), 2, age_seconds=700, level="rack"))
    wait(cluster, GangSpec("notebook-bob", "vision", PodRequest(fraction=0.25), age_seconds=600))
    wait(cluster, GangSpec("notebook-eve", "vision", PodRequest(fraction=0.5), age_seconds=500))
    wait(cluster, GangSpec("chat-api", "serving", half, 1, priority="inference", age_seconds=300))
    wait(cluster, GangSpec("giant", "language", PodRequest(gpus=16), 1, age_seconds=4000))
    wait(
        cluster,
        GangSpec("legacy", "language", quarter, 1, age_seconds=3000),
        **{"nvidia.com/gpu.product": "Tesla-V100"},
    )
    wait(cluster, GangSpec("replay", "serving", half, 4, age_seconds=2000))
    wait(cluster, GangSpec("broken", "vision", PodRequest(fraction=0.5), age_seconds=100))
    cluster.pods[-1]["metadata"]["annotations"]["gpu-fraction"] = "half"
    return cluster.snapshot()


if __name__ == "__main__":
    TARGET.write_text(json.dumps(demo(), indent=1) + "\n", "utf-8")
