"""Nodes: GPU memory (2.3), MIG (2.4), DRA (2.5), readiness (3.1, 7.2), worker labels (7.3)."""

from __future__ import annotations

from typing import Any

import pytest

from kai_cp.reader import parse
from kai_cp_models.snapshot import Node, Taint
from tests.kai_cp.reader.raw import NOW, group, node, pod, snapshot

Raw = dict[str, Any]


def read(raw_node: Raw, **lists: Any) -> Node:
    found = parse(snapshot(nodes=[raw_node], **lists), now=NOW)
    assert found.set_aside == ()
    return found.nodes[0]


@pytest.mark.parametrize(
    ("text", "mib", "synced"),
    [
        (None, 100, False),
        ("81559", 81500, True),
        ("100", 100, True),
        ("85899345920", 81900, True),
        ("50", 100, False),
        ("0", 100, False),
    ],
)
def test_gpu_memory(text: str | None, mib: int, synced: bool) -> None:
    found = read(node(labels={} if text is None else {"nvidia.com/gpu.memory": text}))
    assert (found.gpu_memory_mib, found.gpu_memory_synced) == (mib, synced)


@pytest.mark.parametrize("text", ["much", "-1", "1.5", "", "9" * 40])
def test_a_malformed_memory_label_is_named_and_the_node_stays(text: str) -> None:
    found = parse(snapshot(nodes=[node(labels={"nvidia.com/gpu.memory": text})]), now=NOW)
    assert (found.nodes[0].gpu_memory_mib, found.nodes[0].gpu_memory_synced) == (100, False)
    assert found.set_aside[0].item == "Node n1"
    assert found.set_aside[0].reason.startswith("metadata.labels[nvidia.com/gpu.memory]: ")


@pytest.mark.parametrize(
    ("labels", "allocatable", "enabled"),
    [
        ({}, {}, False),
        ({}, {"nvidia.com/mig-1g.5gb": "1"}, True),
        ({}, {"nvidia.com/mig-1g.5gb": "0"}, False),
        ({"node-role.kubernetes.io/mig-enabled": "false"}, {"nvidia.com/mig-1g.5gb": "1"}, False),
        ({"node-role.kubernetes.io/mig-enabled": "T"}, {}, True),
        ({"node-role.kubernetes.io/mig-enabled": "yes"}, {}, False),
    ],
)
def test_mig(labels: Raw, allocatable: Raw, enabled: bool) -> None:
    found = read(node(labels=labels | {"nvidia.com/mig.strategy": "mixed"}, allocatable=allocatable))
    assert (found.mig_enabled, found.mig_strategy) == (enabled, "mixed")


@pytest.mark.parametrize(
    ("spec", "conditions", "not_ready"),
    [
        ({}, [("Ready", "True"), ("MemoryPressure", "False")], ""),
        ({}, [], ""),
        ({"unschedulable": True}, [("Ready", "True")], "unschedulable"),
        ({}, [("Ready", "False")], "not Ready"),
        ({}, [("Ready", "Unknown")], "Ready is Unknown"),
        ({}, [("DiskPressure", "True"), ("PIDPressure", "Unknown")], "DiskPressure, PIDPressure"),
        ({}, [("NetworkUnavailable", "True")], "NetworkUnavailable"),
        ({}, [("Odd", "True")], ""),
    ],
)
def test_readiness(spec: Raw, conditions: list[tuple[str, str]], not_ready: str) -> None:
    raw = node(conditions=[{"type": kind, "status": status} for kind, status in conditions])
    raw["spec"] = spec
    found = read(raw)
    assert found.not_ready == not_ready
    assert found.healthy is (not_ready == "")


def test_taints_and_gpu_count() -> None:
    raw = node(gpus=2, labels={"nvidia.com/gpu.count": "4"})
    raw["spec"]["taints"] = [
        {"key": "k", "effect": "NoSchedule"},
        {"key": "l", "value": "v", "effect": "NoExecute"},
    ]
    found = read(raw)
    assert found.taints == (Taint("k", "", "NoSchedule"), Taint("l", "v", "NoExecute"))
    assert found.gpu_count == 4
    assert read(node(gpus=2)).gpu_count == 2


def test_dra_gpus_add_to_allocatable() -> None:
    def piece(driver: str, count: int, **spec: Any) -> Raw:
        devices = [{"name": str(i)} for i in range(count)]
        pool = {"name": driver, "generation": 1, "resourceSliceCount": 1}
        name = f"{driver}-{count}"
        return {
            "metadata": {"name": name},
            "spec": {"driver": driver, "pool": pool, "devices": devices, **spec},
        }

    slices = [
        piece("gpu.nvidia.com", 3, nodeName="n1"),
        piece("GPU.example.com", 1, nodeName="n1"),
        piece("nic.example.com", 5, nodeName="n1"),
        piece("shared-gpu.nvidia.com", 7, allNodes=True),
    ]
    found = read(node(gpus=1), resourceSlices=slices)
    assert (found.dra_gpus, found.allocatable[2]) == (4, 5000)


def test_restricted_scheduling_leaves_unlabelled_nodes_out() -> None:
    labelled = [
        node("a", labels={"node-role.kubernetes.io/gpu-worker": ""}),
        node("b", labels={"node-role.kubernetes.io/cpu-worker": "false"}),
        node("c"),
    ]
    raw = snapshot(nodes=labelled, pods=[pod(group=None, node="c")], podGroups=[group()])
    assert [row.name for row in parse(raw, now=NOW).nodes] == ["a", "b", "c"]
    raw["schedulerParams"]["restrictSchedulingNodes"] = True
    found = parse(raw, now=NOW)
    assert [row.name for row in found.nodes] == ["a", "b"]
    assert found.pods == found.set_aside == ()


def test_slices_of_an_old_generation_count_no_gpus() -> None:
    """The driver of n0 replaces one slice of two devices by two; the pool of another driver stays."""

    def slices(driver: str, generation: int, many: int) -> list[Raw]:
        pool = {"name": "n0", "generation": generation, "resourceSliceCount": many}
        spec = {"nodeName": "n0", "driver": driver, "pool": pool}
        devices = [[{"name": f"d{2 * i}"}, {"name": f"d{2 * i + 1}"}] for i in range(many)]
        return [
            {"metadata": {"name": f"{driver}-{generation}-{i}"}, "spec": spec | {"devices": found}}
            for i, found in enumerate(devices)
        ]

    lists = [*slices("gpu.a", 2, 2), *slices("gpu.a", 1, 1), *slices("gpu.b", 1, 1)]
    assert read(node("n0"), resourceSlices=lists).dra_gpus == 6


def test_slices_and_zones_of_nodes_that_are_left_out_are_no_mistake() -> None:
    """c exists but is no worker; d does not exist."""

    def devices(name: str) -> Raw:
        pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": "nic.example.com", "nodeName": name, "pool": pool, "devices": []}
        return {"metadata": {"name": f"slice-{name}"}, "spec": spec}

    def zones(name: str) -> Raw:
        amounts = [{"name": "cpu", "allocatable": "8", "available": "8"}]
        return {"metadata": {"name": name}, "zones": [{"name": "0", "type": "Node", "resources": amounts}]}

    raw = snapshot(
        nodes=[node("a", labels={"node-role.kubernetes.io/gpu-worker": ""}), node("c")],
        resourceSlices=[devices(name) for name in "acd"],
        nodeResourceTopologies=[zones(name) for name in "acd"],
    )
    raw["config"] = {"tiers": [{"plugins": [{"name": name} for name in ("dynamicresources", "numa")]}]}
    raw["schedulerParams"]["restrictSchedulingNodes"] = True
    found = parse(raw, now=NOW)
    assert {(row.item, row.reason) for row in found.set_aside} == {
        ("ResourceSlice slice-d", "spec.nodeName: node d does not exist"),
        ("NodeResourceTopology d", "metadata.name: node d does not exist"),
    }
