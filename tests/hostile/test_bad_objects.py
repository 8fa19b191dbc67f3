"""Every malformed object is named with its field, left out, and the rest is read."""

from __future__ import annotations

from typing import Any

import pytest

from kai_cp.reader import UnreadableSnapshot, parse
from kai_cp_models.pods import GpuKind, PodStatus
from kai_cp_models.snapshot import Snapshot
from tests.kai_cp.reader.raw import NOW, group, node, pod, queue, snapshot
from tests.support import plans, tiny

Raw = dict[str, Any]


def aside(found: Snapshot) -> dict[str, str]:
    return {row.item: row.reason for row in found.set_aside}


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (
            pod("x", requests={"cpu": "abc"}),
            'spec.containers[0].resources.requests.cpu: "abc" is not a quantity',
        ),
        (
            pod("x", requests={"nvidia.com/gpu": "-1"}),
            'spec.containers[0].resources.requests[nvidia.com/gpu]: "-1" is negative',
        ),
        (
            pod("x", requests={"nvidia.com/gpu": "500m"}),
            'spec.containers[0].resources.requests[nvidia.com/gpu]: "500m" is not a whole number',
        ),
        (
            pod("x", annotations={"gpu-fraction": "abc"}),
            'metadata.annotations[gpu-fraction]: "abc" is not a number',
        ),
        (
            pod("x", annotations={"gpu-fraction": "1.7"}),
            'metadata.annotations[gpu-fraction]: "1.7" is not above 0 and at most 1',
        ),
        (
            pod("x", annotations={"gpu-fraction": "-0.5"}),
            'metadata.annotations[gpu-fraction]: "-0.5" is not above 0 and at most 1',
        ),
        (
            pod("x", annotations={"gpu-fraction": "NaN"}),
            'metadata.annotations[gpu-fraction]: "NaN" is not a number',
        ),
        (
            pod("x", annotations={"gpu-fraction": "0.001"}),
            'metadata.annotations[gpu-fraction]: "0.001" is below a hundredth of a GPU',
        ),
        (
            pod("x", annotations={"gpu-memory": "2Gi"}),
            'metadata.annotations[gpu-memory]: "2Gi" is not a whole number',
        ),
        (pod("x", annotations={"gpu-memory": "-1"}), 'metadata.annotations[gpu-memory]: "-1" is below 0'),
        (
            pod("x", annotations={"gpu-fraction": "0.5", "gpu-fraction-num-devices": "0"}),
            'metadata.annotations[gpu-fraction-num-devices]: "0" is below 1',
        ),
        (pod("x", labels={"a": 1}), "metadata.labels[a]: 1 is not a string"),
        (pod("x", containers="none"), 'spec.containers: "none" is not a list'),
        (pod("x", containers=["none"]), 'spec.containers[0]: "none" is not an object'),
        (pod("x", nodeSelector=["a"]), 'spec.nodeSelector: ["a"] is not an object'),
        (pod("x", status={"phase": 3}), "status.phase: 3 is not a string"),
        (
            pod("x", metadata={"creationTimestamp": "yesterday"}),
            'metadata.creationTimestamp: "yesterday" is not an RFC 3339 time',
        ),
        (pod("x", node="gone"), 'spec.nodeName: node "gone" is not in the snapshot'),
        (pod("x", resourceClaims=[{"name": "c"}]), "spec.resourceClaims[0]: names no claim"),
        (pod("x", phase="Running"), "spec.nodeName: a placed pod has no node"),
        (
            pod(
                "x",
                affinity={
                    "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"labelSelector": {}}]}
                },
            ),
            "spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].topologyKey:"
            " is missing",
        ),
    ],
)
def test_a_malformed_pod(bad: Raw, reason: str) -> None:
    found = parse(snapshot(pods=[pod("good"), bad]), now=NOW)
    assert aside(found) == {"Pod default/x": reason}
    assert [row.key.name for row in found.pods] == ["good"]


@pytest.mark.parametrize(
    ("bad", "item", "reason"),
    [
        (None, "Pod pods[0]", "null is not an object"),
        ({}, "Pod pods[0]", "metadata: null is not an object"),
        ({"metadata": {}}, "Pod pods[0]", "metadata.name: null is not a name"),
        ({"metadata": {"name": ["a"]}}, "Pod pods[0]", 'metadata.name: ["a"] is not a name'),
        (
            {"metadata": {"name": "a", "namespace": 1}},
            "Pod pods[0]",
            "metadata.namespace: 1 is not a name",
        ),
    ],
)
def test_an_object_without_identity_is_named_by_its_place(bad: Any, item: str, reason: str) -> None:
    assert aside(parse(snapshot(pods=[bad]), now=NOW)) == {item: reason}


def test_gpu_memory_zero_asks_for_nothing() -> None:
    found = parse(snapshot(pods=[pod(annotations={"gpu-memory": "0"})]), now=NOW)
    assert found.set_aside == ()
    assert not found.pods[0].spec.needs_gpu


def test_a_malformed_pod_keeps_its_place_and_is_not_decided_about() -> None:
    bad = pod(
        "x",
        node="n1",
        annotations={"gpu-fraction": "abc"},
        labels={"runai-gpu-group": "shared"},
        requests={"cpu": "2", "memory": "lots"},
    )
    found = parse(snapshot(pods=[bad], podGroups=[group(minMember=2)]), now=NOW)
    assert "Pod default/x" in aside(found)
    (kept,) = found.pods
    assert (kept.node, kept.status, kept.group) == ("n1", PodStatus.RUNNING, None)
    assert kept.spec.requests == (2000, 0, 0, 1)
    assert (kept.spec.gpu.kind, kept.spec.gpu.milli_portion) == (GpuKind.FRACTION, 1000)
    assert kept.gpu_groups == ("shared",)
    assert found.groups[0].root.children[0].minimum == 1


def test_an_unreadable_numa_placement_is_named_and_ignored() -> None:
    raw = pod(node="n1", annotations={"kai.scheduler/numa-placement-observed": "{"})
    found = parse(snapshot(pods=[raw]), now=NOW)
    assert found.pods[0].numa_zones == ()
    assert aside(found)["Pod default/p"].endswith("is not JSON; treated as absent")


def test_a_malformed_node_takes_its_pods_along() -> None:
    bad = node("n2", allocatable={"cpu": "many"})
    found = parse(snapshot(nodes=[node(), bad], pods=[pod("a", node="n1"), pod("b", node="n2")]), now=NOW)
    assert [row.name for row in found.nodes] == ["n1"]
    assert aside(found) == {
        "Node n2": 'status.allocatable.cpu: "many" is not a quantity',
        "Pod default/b": 'spec.nodeName: node "n2" is not in the snapshot',
    }


def test_duplicates_are_named_and_the_placed_one_is_read() -> None:
    twice = [pod("x"), pod("x", node="n1"), pod("y")]
    for pods in (twice, twice[::-1]):
        found = parse(snapshot(pods=pods), now=NOW)
        assert [(row.key.name, row.node) for row in found.pods] == [("x", "n1"), ("y", None)]
        assert aside(found) == {
            "Pod default/x": "metadata.name: 2 objects have this name; one of them is read"
        }


@pytest.mark.parametrize(
    ("lists", "expected"),
    [
        (
            {"priorityClasses": [{"metadata": {"name": "a"}, "value": "high"}]},
            {"PriorityClass a": 'value: "high" is not a whole number of 32 bits'},
        ),
        (
            {"topologies": [{"metadata": {"name": "t"}, "spec": {}}]},
            {"Topology t": "spec.levels: there are none"},
        ),
        (
            {"topologies": [{"metadata": {"name": "t"}, "spec": {"levels": [{"nodeLabel": 3}]}}]},
            {"Topology t": "spec.levels[0].nodeLabel: 3 is not a string"},
        ),
        (
            {"bindRequests": [{"metadata": {"name": "b", "namespace": "n"}, "spec": []}]},
            {"BindRequest n/b": "spec: [] is not an object"},
        ),
        (
            {"podGroups": [group(preemptibility="maybe")]},
            {"PodGroup default/g": 'spec.preemptibility: "maybe" is neither preemptible nor non-preemptible'},
        ),
        (
            {"podGroups": [group(minMember=2**40)]},
            {"PodGroup default/g": "spec.minMember: 1099511627776 is not a whole number of 32 bits"},
        ),
        ({"podGroups": [group(minMember=-1)]}, {"PodGroup default/g": "spec.minMember: -1 is below 0"}),
        ({"nodes": "none"}, {"snapshot": 'rawObjects.nodes: "none" is not a list'}),
        (
            {"storageClasses": [{}, 1]},
            {
                "StorageClass storageClasses[0]": "metadata: null is not an object",
                "StorageClass storageClasses[1]": "1 is not an object",
            },
        ),
        (
            {"namespaces": [{"metadata": {"name": "a", "labels": []}}]},
            {"Namespace a": "metadata.labels: [] is not an object"},
        ),
        ({"queues": [queue(), 5]}, {"Queue queues[1]": "5 is not an object"}),
    ],
)
def test_other_malformed_objects(lists: Raw, expected: dict[str, str]) -> None:
    assert aside(parse(snapshot(**lists), now=NOW)) == expected


@pytest.mark.parametrize("raw", [{}, {"rawObjects": None}, {"rawObjects": []}, [], None, "x"])
def test_no_snapshot_at_all(raw: Any) -> None:
    with pytest.raises(UnreadableSnapshot, match="not a KAI snapshot"):
        parse(raw, now=NOW)


def test_lists_may_be_null_or_missing() -> None:
    found = parse({"rawObjects": {"pods": None, "nodes": []}}, now=NOW)
    assert found.set_aside == found.pods == found.nodes == ()


def test_a_running_group_without_its_topology_ends_but_moves_nowhere() -> None:
    """t needs both GPUs of n0. v holds one of them and n1 is idle, but v names a topology that does not
    exist, so it has a place nowhere else.
    """
    lost = {"topologyConstraint": {"topology": "gone", "requiredTopologyLevel": "rack"}}
    pods = [tiny.pod("v", "n0", gpus=1), tiny.pod("t", gpus=2, priority="build-preemptible")]
    actions = "allocate, consolidation, reclaim, preempt"
    nodes = [tiny.node("n0", gpus=2), tiny.node("n1", gpus=1)]
    found = plans.solved(tiny.world(nodes, pods, groups={"v": lost}, actions=actions))
    assert (plans.lost(found), plans.placed(found)) == ({"v"}, {"t"})
