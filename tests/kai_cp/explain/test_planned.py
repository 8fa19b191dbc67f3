"""Workloads of ``what-if --add`` get the pods and pod groups that the pod grouper would make."""

from __future__ import annotations

from typing import Any

import pytest

from kai_cp.explain.draft import BadOperation
from kai_cp.explain.operations import applied
from kai_cp.reader import parse
from kai_cp_models.engine import decide
from kai_cp_models.pods import GroupKey
from kai_cp_models.settings import Settings
from tests.kai_cp.explain.clusters import NOW, cluster
from tests.support import objects as raw
from tests.support.tiny import node, pod


def template(gpus: int = 1, scheduler: str = "kai-scheduler") -> raw.Object:
    """A pod template of one container."""
    limits = {"nvidia.com/gpu": str(gpus)}
    container = {"name": "main", "resources": {"requests": limits, "limits": limits}}
    return {"spec": {"schedulerName": scheduler, "containers": [container]}}


def limited(gpus: int) -> raw.Object:
    """A pod template of one container that states no request, as most manifests; its limit is one."""
    found = template(gpus)
    del found["spec"]["containers"][0]["resources"]["requests"]
    return found


def workload(kind: str, version: str, spec: dict[str, Any]) -> raw.Object:
    """A workload ``new`` of queue q."""
    head = {"name": "new", "labels": {"kai.scheduler/queue": "q"}}
    return {"apiVersion": version, "kind": kind, "metadata": head, "spec": spec}


def replicas(**counts: int) -> raw.Object:
    """Replica specs of a training job."""
    return {name: {"replicas": count, "template": template()} for name, count in counts.items()}


def added(*objects: raw.Object) -> dict[str, tuple[int, int]]:
    """What is added to two idle nodes of four GPUs: (pods, pods that the cycle places) by pod group."""
    world = cluster([node("n0", gpus=4), node("n1", gpus=4)], [pod("x", gpus=1)])
    draft = applied(world, [{"op": "add", "objects": list(objects)}], NOW)
    snapshot = parse(draft.raw, now=draft.now)
    assert [one.item for one in snapshot.set_aside] == ["Topology fabric"]  # No node has its labels.
    plan = decide(snapshot, Settings())
    return {
        key.name: (len(members), sum(one.group == key for one in plan.decisions))
        for key, members in snapshot.members.items()
        if key != GroupKey("default", "x")
    }


@pytest.mark.parametrize(
    ("kind", "version", "spec", "groups"),
    [
        ("Job", "batch/v1", {"template": template()}, [(1, 1)]),
        ("Job", "batch/v1", {"template": limited(8)}, [(1, 0)]),
        ("Job", "batch/v1", {"parallelism": 3, "template": template()}, [(3, 3)]),
        ("Job", "batch/v1", {"parallelism": 5, "completions": 2, "template": template()}, [(2, 2)]),
        ("Deployment", "apps/v1", {"replicas": 2, "template": template()}, [(1, 1), (1, 1)]),
        ("PyTorchJob", "kubeflow.org/v1", {"pytorchReplicaSpecs": replicas(Master=1, Worker=3)}, [(4, 4)]),
        ("PyTorchJob", "kubeflow.org/v1", {"pytorchReplicaSpecs": replicas(Master=1, Worker=9)}, [(10, 0)]),
        (
            "JobSet",
            "jobset.x-k8s.io/v1alpha2",
            {
                "replicatedJobs": [
                    {
                        "name": "workers",
                        "replicas": 2,
                        "template": {"spec": {"parallelism": 2, "template": template()}},
                    }
                ]
            },
            [(4, 4)],
        ),
    ],
)
def test_a_workload_becomes_its_pods_in_their_groups(
    kind: str, version: str, spec: raw.Object, groups: list[tuple[int, int]]
) -> None:
    assert sorted(added(workload(kind, version, spec)).values()) == groups


def test_a_bare_pod_is_grouped() -> None:
    bare = {"apiVersion": "v1", "kind": "Pod", **template(2)}
    bare["metadata"] = {"name": "lone", "labels": {"kai.scheduler/queue": "q"}}
    assert list(added(bare).values()) == [(1, 1)]
    bare |= limited(8)
    assert list(added(bare).values()) == [(1, 0)]
    group = {"kind": "PodGroup", "metadata": {"name": "g", "namespace": "default"}, "spec": {"queue": "q"}}
    bare["metadata"] |= {"namespace": "default", "annotations": {"pod-group-name": "g"}}
    assert added(group, bare) == {"g": (1, 0)}


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"parallelism": 10**9, "template": template()}, "more than 10000 pods"),
        ({"parallelism": -1, "template": template()}, "parallelism is -1"),
        ({"parallelism": 1}, "Job default/new: .*template"),
        ({"template": template(scheduler="default-scheduler")}, "not for scheduler kai-scheduler"),
        ({"template": {"spec": None}}, "default/new"),
    ],
)
def test_a_workload_that_makes_no_sense_is_refused_with_a_sentence(spec: raw.Object, said: str) -> None:
    with pytest.raises(BadOperation, match=said):
        added(workload("Job", "batch/v1", spec))
