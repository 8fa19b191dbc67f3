"""Unusual fields of workloads, as they came up in a comparison with KAI's own pod grouper."""

from __future__ import annotations

import sys
from collections import Counter
from copy import deepcopy
from typing import Any
from unittest.mock import Mock

import pytest

from kai_cp.workloads.batch import BatchObjects, group_pods
from kai_cp.workloads.groups import GroupSubgroup
from kai_cp.workloads.items import item_of
from kai_cp.workloads.kinds import DEFAULT
from kai_cp.workloads.settings import GroupingSettings
from kai_cp.workloads.shapes.knative import knative
from kai_cp.workloads.validity import LARGEST, WHY
from kai_cp.workloads.workload import Workload
from tests.support.workloads import GANG, JOBSET, RAY, chain, grouped, kubeflow, made, pod, samples

SEGMENT = "kai.scheduler/segment-size"
MINIMUM = "kai.scheduler/batch-min-member"
QUEUE = "kai.scheduler/queue"
CLASS = "priorityClassName"
PREEMPTIBILITY = "kai.scheduler/preemptibility"
SPECS = "spec.pytorchReplicaSpecs"
LWS = "leaderworkerset.sigs.k8s.io"
Object = dict[str, Any]


def messages(answer: Object) -> set[str]:
    return {error["message"] for error in answer["errors"]}


def subgroup_of(answer: Object, name: str) -> str | None:
    labels = next(one["labels"] for one in answer["pods"] if one["name"] == name)
    found: str | None = labels.get("kai.scheduler/subgroup-name")
    return found


def pytorch(
    roles: dict[str, int], on_template: str | None = None, on_pods: str | None = None
) -> list[Object]:
    documents = kubeflow("PyTorchJob", "pytorchReplicaSpecs", roles)
    if on_template is not None:
        worker = documents[0]["spec"]["pytorchReplicaSpecs"]["Worker"]
        worker["template"] = {"metadata": {"annotations": {SEGMENT: on_template}}}
    for one in documents[1:] if on_pods is not None else ():
        one["metadata"]["annotations"] = {SEGMENT: on_pods}
    return documents


def test_a_pod_of_a_revision_looks_at_two_others_at_most() -> None:
    """All of a revision with thousands of pods looked at all of them."""
    revision = made("serving.knative.dev/v1", "Revision", "hello-1")
    labels = {"serving.knative.dev/revision": "hello-1"}
    there = {"pod-group-name": "pg-hello-1"}
    others = (item_of(pod(f"hello-{i}", labels=labels, annotations=there), "v1", "Pod") for i in range(100))
    reads = Mock()
    reads.owner.return_value = owner = item_of(revision, "serving.knative.dev/v1", "Revision")
    reads.pods.return_value = others
    own = item_of(pod("hello-new", labels=labels), "v1", "Pod")
    found = knative(Workload(own, owner, (owner,), DEFAULT, reads, GroupingSettings()))
    assert found.group.owner == owner.reference
    assert len(list(others)) == 98


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("JobSet", {}),
        ("JobSet", {"replicatedJobs": [*JOBSET["replicatedJobs"], {"name": "No Name"}]}),
        ("RayCluster", {}),
        ("RayCluster", {"workerGroupSpecs": [{"groupName": "No Name", "replicas": 1}]}),
        ("PyTorchJob", {}),
        ("LeaderWorkerSet", {}),
        ("PodCliqueSet", {}),
    ],
)
def test_the_subgroups_that_pods_share_are_made_once(
    kind: str, change: Object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A JobSet of 9,990 pods took 350 s for each change of it: all subgroups were made anew for each pod."""
    owner, *rest = samples()[kind]
    first = next(one for one in rest if one["kind"] == "Pod")
    for one in rest:
        one["metadata"]["annotations"] = {SEGMENT: "1"}
    owner["metadata"]["annotations"] = {SEGMENT: "2"}
    owner.setdefault("spec", {}).update(change)
    objects = BatchObjects()
    for one in (owner, *rest):
        objects.apply(one)
    settings = GroupingSettings()
    group_pods(objects, settings)
    calls: Counter[str] = Counter()
    for name in ("__init__", "json"):
        old = getattr(GroupSubgroup, name)

        def counted(*args: Any, _name: str = name, _old: Any = old, **more: Any) -> Any:
            calls[_name] += 1
            return _old(*args, **more)

        monkeypatch.setattr(GroupSubgroup, name, counted)
    for number in range(5):
        more = deepcopy(first)
        more["metadata"] |= {"name": f"more-{number}", "uid": f"more-{number}"}
        objects.apply(more)
    group_pods(objects, settings)
    assert calls["json"] == 0
    assert calls["__init__"] <= 2 * len(objects.pod_keys)


def test_owners_that_lead_back_are_asked_for_once() -> None:
    """Each may cost a request, for each pod and each time that it is tried again."""
    one = made("example.org/v1", "Part", "a")
    two = made("example.org/v1", "Part", "b", one)
    one["metadata"]["ownerReferences"] = made("v1", "Pod", "x", two)["metadata"]["ownerReferences"]
    objects = BatchObjects()
    for item in (one, two, pod("p", one)):
        objects.apply(item)
    asked: list[str] = []
    read = objects.owner
    objects.owner = lambda reference, where: asked.append(reference.name) or read(reference, where)  # type: ignore[method-assign,func-returns-value]
    (problem,) = group_pods(objects, GroupingSettings())
    assert problem["message"].endswith("metadata.ownerReferences: Part team-a/a is its own owner")
    assert asked == ["a", "b", "a"] * 2


def test_a_gang_that_would_not_be_scheduled_is_refused() -> None:
    """Of a PodGroup of 1.3 MB only an outline is kept, so it was written again for each pod."""
    jobs = [{"name": "w" * 20, "replicas": 9_990, "template": {"spec": {"parallelism": 1}}}]
    owner = made("jobset.x-k8s.io/v1alpha2", "JobSet", "j", spec={"replicatedJobs": jobs})
    labels = {"jobset.sigs.k8s.io/replicatedjob-name": "w" * 20, "jobset.sigs.k8s.io/job-index": "0"}
    answer = grouped(owner, pod("p", owner, labels=labels))
    name = f"PodGroup team-a/pg-j-{owner['metadata']['uid']}"
    assert messages(answer) == {f"{name}: spec.subGroups: 9991 have more than {LARGEST} bytes"}
    many = {f"example.com/{'k' * 50}{i}": "x" for i in range(9_000)}
    owner = made("batch/v1", "Job", "j", labels=many, spec={})
    answer = grouped(owner, pod("p", owner))
    assert messages(answer) == {f"PodGroup team-a/pg-j-{owner['metadata']['uid']}: {WHY}"}


def test_a_worker_beyond_the_replicas_is_in_no_segment() -> None:
    documents = pytorch({"Worker": 4}, "2")
    documents[0]["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] = 2
    answer = grouped(*documents)
    assert answer["errors"] == []
    found = [subgroup_of(answer, f"train-worker-{i}") for i in range(4)]
    assert found == ["worker-0", "worker-0", None, None]


@pytest.mark.parametrize(
    ("on_template", "on_pods", "segments", "problem"),
    [
        ("2", None, 2, ""),
        ("2", "", 2, ""),
        ("", "", 0, ""),
        ("", "3", 1, ""),
        (
            "-2",
            None,
            0,
            f"PyTorchJob team-a/train: {SPECS}.Worker.template.metadata.annotations[{SEGMENT}]: -2",
        ),
        (
            "x",
            None,
            0,
            f'PyTorchJob team-a/train: {SPECS}.Worker.template.metadata.annotations[{SEGMENT}]: "x"',
        ),
        ("2", "0", 0, f"Pod team-a/train-worker-0: metadata.annotations[{SEGMENT}]: 0"),
    ],
)
def test_an_empty_segment_size_is_none(
    on_template: str, on_pods: str | None, segments: int, problem: str
) -> None:
    answer = grouped(*pytorch({"Worker": 3}, on_template, on_pods))
    if problem:
        assert any(message.startswith(problem) for message in messages(answer))
        return
    (group,) = answer["podGroups"]
    names = [entry["name"] for entry in group["spec"]["subGroups"]]
    assert names == ["worker", *(f"worker-{i}" for i in range(segments))]


def test_a_pod_may_name_the_topology_of_its_segments_alone() -> None:
    documents = pytorch({"Worker": 2}, on_pods="1")
    del documents[0]["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]
    level = "kai.scheduler/segment-topology-required-placement"
    for one in documents[1:]:
        one["metadata"]["annotations"] |= {"kai.scheduler/topology": "t", level: "rack"}
    (group,) = grouped(*documents)["podGroups"]
    wanted = {"topology": "t", "requiredTopologyLevel": "rack"}
    assert [entry.get("topologyConstraint") for entry in group["spec"]["subGroups"]] == [None, wanted, wanted]


def test_a_wrong_segment_size_is_named_also_without_workers() -> None:
    documents = pytorch({"Master": 1, "Worker": 0}, "-2")
    documents[0]["spec"]["runPolicy"] = {"schedulingPolicy": {"minAvailable": 1}}
    assert len(messages(grouped(*documents))) == 1


@pytest.mark.parametrize(
    ("specs", "problem"),
    [
        (None, f"PyTorchJob team-a/train: {SPECS}: is missing"),
        (
            {"Master": {"replicas": -1}, "Worker": {"replicas": 4}},
            "spec.subGroups[0].minMember: -1 is negative",
        ),
    ],
)
def test_a_pytorch_job_needs_replicas_that_can_be(specs: Object | None, problem: str) -> None:
    documents = pytorch({"Master": 1})
    documents[0]["spec"] = {"runPolicy": {"schedulingPolicy": {"minAvailable": 3}}}
    if specs is not None:
        documents[0]["spec"]["pytorchReplicaSpecs"] = specs
    (message,) = messages(grouped(*documents))
    assert message.endswith(problem)


@pytest.mark.parametrize("size", ["10", "x", "1", "2"])
def test_a_leader_that_starts_first_waits_for_no_segments_that_cannot_be(size: str) -> None:
    template = {
        "size": 4,
        "workerTemplate": {},
        "subGroupPolicy": {"subGroupPolicyType": "LeaderExcluded"},
    }
    owner = made(
        "leaderworkerset.x-k8s.io/v1",
        "LeaderWorkerSet",
        "l",
        annotations={SEGMENT: size},
        spec={"startupPolicy": "LeaderReady", "leaderWorkerTemplate": template},
    )
    answer = grouped(owner, pod("a", owner, labels={f"{LWS}/worker-index": "0"}))
    assert answer["podGroups"] == []
    assert len(messages(answer)) == 1


@pytest.mark.parametrize(("text", "least"), [("", 2), ("3", 3), ("0", None), ("x", None)])
def test_the_minimum_of_a_replicated_job_may_be_on_its_template(text: str, least: int | None) -> None:
    template = {"metadata": {"annotations": {MINIMUM: text}}, "spec": {"parallelism": 2}}
    spec = {"replicatedJobs": [{"name": "a", "template": template}]}
    owner = made("jobset.x-k8s.io/v1alpha2", "JobSet", "j", spec=spec)
    labels = {"jobset.sigs.k8s.io/replicatedjob-name": "a", "jobset.sigs.k8s.io/job-index": "0"}
    answer = grouped(owner, pod("p", owner, labels=labels))
    found = [group["spec"]["subGroups"][1]["minMember"] for group in answer["podGroups"]]
    assert found == ([] if least is None else [least])
    assert len(answer["errors"]) == (least is None)


def gang(top: Object | None = None, **spec: Any) -> list[Object]:
    owners = chain(("grove.io/v1alpha1", "PodCliqueSet", "p", top or {}))
    members = made("scheduler.grove.io/v1alpha1", "PodGang", "serve-0", spec=deepcopy(GANG) | spec)
    return [*owners, members, pod("serve-prefill", owners[-1], labels={"grove.io/podgang": "serve-0"})]


def test_a_pod_that_two_parts_of_a_gang_name_is_in_the_first() -> None:
    here = [{"namespace": "team-a", "name": ""}, {"namespace": "team-a", "name": "serve-prefill"}]
    parts = [{"name": name, "minReplicas": 1, "podReferences": here} for name in ("prefill", "decode")]
    answer = grouped(*gang(podgroups=parts))
    assert answer["errors"] == []
    assert subgroup_of(answer, "serve-prefill") == "prefill"


@pytest.mark.parametrize("length", [213, 214, 253])
@pytest.mark.parametrize("end", [".", "-", "a"])
def test_a_pod_with_a_long_name_is_grouped(length: int, end: str) -> None:
    """As Argo makes them of the names of workflow and template."""
    one = pod(f"{'a' * 212}{end}{'b' * (length - 213)}"[:length].rstrip(".-"))
    other = pod(f"{one['metadata']['name'][:-1]}c")
    answer = grouped(one, other)
    assert answer["errors"] == []
    names = {group["metadata"]["name"] for group in answer["podGroups"]}
    assert len(names) == 2, "the uid tells two apart"
    assert all(len(name) <= 253 for name in names)
    assert {each["annotations"]["pod-group-name"] for each in answer["pods"]} == names


def test_an_empty_queue_label_above_a_gang_does_not_count() -> None:
    (group,) = grouped(*gang({"labels": {QUEUE: ""}}))["podGroups"]
    assert group["spec"]["queue"] == "default-queue"


@pytest.mark.parametrize(
    ("own", "usual", "labels", "spec"),
    [
        ({}, ("build", "Non-Preemptible"), ("build", "non-preemptible"), ("build", "non-preemptible")),
        ({}, ("absent", ""), (None, None), ("inference", None)),
        ({CLASS: "absent"}, ("build", ""), ("build", None), ("build", None)),
        ({PREEMPTIBILITY: "so so"}, ("", "preemptible"), (None, "preemptible"), ("inference", "preemptible")),
        ({PREEMPTIBILITY: ""}, ("", "preemptible"), (None, ""), ("inference", None)),
        ({CLASS: "train"}, ("build", ""), ("train", None), ("train", None)),
    ],
)
def test_only_usable_defaults_of_a_skipped_kind_are_passed_on(
    own: Object, usual: tuple[str, str], labels: tuple[str | None, ...], spec: tuple[str | None, ...]
) -> None:
    types = f'[{{"typeName": "Workflow", "priorityName": "{usual[0]}", "preemptibility": "{usual[1]}"}}]'
    config = made("v1", "ConfigMap", "d", data={"types": types})
    flow = made("argoproj.io/v1alpha1", "Workflow", "w", labels=own)
    step = pod("a", flow, spec={"priorityClassName": "inference"})
    where = {"namespace": "team-a", "name": "d"}
    (group,) = grouped(config, flow, step, defaultPrioritiesConfigMap=where)["podGroups"]
    found = group["metadata"].get("labels", {})
    assert tuple(found.get(key) for key in (CLASS, PREEMPTIBILITY)) == labels
    assert tuple(group["spec"].get(key) for key in (CLASS, "preemptibility")) == spec


@pytest.mark.parametrize("wrong", ["x", {"annotations": []}, {"annotations": {"a": 1}}])
def test_a_pod_template_of_ray_that_cannot_be_read_is_named(wrong: Any) -> None:
    spec = deepcopy(RAY)
    spec["workerGroupSpecs"][1]["template"] = {"metadata": wrong}
    cluster = made("ray.io/v1", "RayCluster", "r", spec=spec)
    (message,) = messages(grouped(cluster, pod("a", cluster)))
    assert message.startswith("RayCluster team-a/r: spec.workerGroupSpecs[1].template.metadata")


def test_a_level_without_a_topology_does_not_reach_a_group_that_is_there() -> None:
    job = made("batch/v1", "Job", "j", spec={})
    level = {"kai.scheduler/topology-required-placement": "rack"}
    change: Object = {"apiVersion": "batch/v1", "kind": "Job"}
    change["metadata"] = {"name": "j", "namespace": "team-a", "annotations": level}
    (group,) = grouped(job, pod("p", job), {"kind": "Stage"}, change)["podGroups"]
    assert "topologyConstraint" not in group["spec"]
    assert level.items() <= group["metadata"]["annotations"].items()


def test_a_stored_group_is_compared_as_a_whole_for_the_other_pods_of_its_workload() -> None:
    """A gang of thousands of subgroups has as many pods, so what each pod costs counts squared."""
    roles = {"Worker": 300}

    def calls(pods: int) -> Counter[str]:
        documents = pytorch(roles, on_template="1")
        found: Counter[str] = Counter()
        sys.setprofile(
            lambda frame, event, _: found.update([frame.f_code.co_name]) if event == "call" else None
        )
        try:
            grouped(*documents[: 1 + pods])
        finally:
            sys.setprofile(None)
        return found

    more = calls(3) - calls(2)
    assert more["reconcile"] == 2
    assert max(more["_bare"], more["_minimum_problem"]) < 100, "not for each of the 300 subgroups"
