"""``kai-cp topology``: from a snapshot to the report."""

from __future__ import annotations

import json
from dataclasses import replace

from kai_cp.topology_view import topology_report
from kai_cp_models.domains.locality import fabric_of
from kai_cp_models.pods import GpuKind, GpuRequest, PodStatus
from kai_cp_models.snapshot import Snapshot, Topology
from tests.kai_cp_models.rules.build import node, pod, snapshot
from tests.support.rule_objects import objects_of


def world() -> Snapshot:
    """Rack r0 holds a pod of 2 GPUs and two halves of a third one; r1 holds a pod of 8 that is leaving."""
    half = pod(
        "half", gpu=GpuRequest(GpuKind.FRACTION, 1, 500), status=PodStatus.RUNNING, on="a", gpu_groups=("g",)
    )
    return snapshot(
        node("a", labels={"rack": "r0"}),
        node("b", labels={"rack": "r1"}),
        node("cpu", gpus=0),
        topologies=(Topology("dc", ("rack",)),),
        pods=(
            pod("whole", gpus=2, status=PodStatus.RUNNING, on="a"),
            half,
            replace(half, key=half.key._replace(name="other"), uid="other"),
            pod("leaving", gpus=8, status=PodStatus.RELEASING, on="b"),
        ),
    )


def test_free_gpus_are_those_that_no_pod_holds_now() -> None:
    (tree,) = json.loads(topology_report(world(), "json"))["topologies"]
    free = {".".join(domain["path"]): (domain["freeGpus"], domain["gpus"]) for domain in tree["domains"]}
    assert free == {"": (5, 16), "r0": (5, 8), "r1": (0, 8)}
    assert tree["outside"] == ["cpu"]


def test_every_format() -> None:
    text = topology_report(world(), "table")
    assert isinstance(text, str)
    assert "rack r0" in text
    assert topology_report(world(), "svg").startswith(b"<?xml")  # type: ignore[arg-type]
    assert topology_report(world(), "png").startswith(b"\x89PNG")  # type: ignore[arg-type]


def test_no_nodes() -> None:
    assert "0 nodes" in str(topology_report(snapshot(), "table"))


def dra_slice(name: str, clique: int, gpus: int = 4) -> dict[str, object]:
    """The GPUs of one node of a GB200 rack."""

    def device(index: int) -> dict[str, object]:
        attributes = {
            "productName": "NVIDIA GB200",
            "clusterUUID": "c0ffee",
            "cliqueID": clique,
            "index": index,
        }
        typed = {k: {"int" if isinstance(v, int) else "string": v} for k, v in attributes.items()}
        return {"name": f"gpu-{index}", "attributes": typed}

    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    devices = [device(index) for index in range(gpus)]
    spec = {"driver": "gpu.nvidia.com", "nodeName": name, "pool": pool, "devices": devices}
    return {"metadata": {"name": name}, "spec": spec}


def test_dra_gpus_tell_their_product_and_clique_and_are_free_until_allocated() -> None:
    result = {"request": "gpu", "driver": "gpu.nvidia.com", "pool": "a", "device": "gpu-2"}
    raw = {
        "resourceSlices": [dra_slice("a", 7)],
        "resourceClaims": [
            {
                "metadata": {"name": "c", "namespace": "ns"},
                "spec": {"devices": {"requests": []}},
                "status": {"allocation": {"devices": {"results": [result]}}},
            }
        ],
    }
    seen = replace(snapshot(node("a", gpus=4, dra_gpus=4)), extras=objects_of(raw, ["a"]))
    report = json.loads(topology_report(seen, "json"))
    assert [system["name"] for system in report["systems"]] == ["GB200 NVL72"]
    (tree,) = report["topologies"]
    assert [(domain["path"], domain["freeGpus"]) for domain in tree["domains"]] == [
        ([], 3),
        (["c0ffee.7"], 3),
    ]


def test_a_cycle_reads_product_and_clique_from_dra_where_labels_lack() -> None:
    """n1 and n3 are one NVLink domain by their devices, n2 is another; n4 names its domain in a label."""
    nodes = [node(name, gpus=4, dra_gpus=4) for name in ("n1", "n2", "n3")]
    nodes.append(node("n4", gpus=4, dra_gpus=4, labels={"nvidia.com/gpu.clique": "c0ffee.7"}))
    raw = {"resourceSlices": [dra_slice(name, 7 if name != "n2" else 8) for name in ("n1", "n2", "n3", "n4")]}
    fabric = fabric_of(replace(snapshot(*nodes), extras=objects_of(raw, ["n1", "n2", "n3", "n4"])))
    assert fabric is not None
    assert [scale.label for scale in fabric.scales] == ["nvidia.com/gpu.clique"]
    assert fabric.places[0].tolist() == [1, 2, 1, 1]
    assert {labels["nvidia.com/gpu.product"] for labels in fabric.labels} == {"NVIDIA-GB200"}
