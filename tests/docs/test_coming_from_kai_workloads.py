"""Where the pod grouper differs from KAI's on purpose; docs/coming-from-kai.md lists them."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
import yaml

from tests.support.workloads import GANG, KARTA, chain, grouped, karta, kubeflow, made, pod, samples

SEGMENT = "kai.scheduler/segment-size"
LWS = "leaderworkerset.sigs.k8s.io"
QUEUE = "kai.scheduler/queue"
Object = dict[str, Any]


def only(answer: Object) -> Object:
    assert answer["errors"] == []
    (group,) = answer["podGroups"]
    found: Object = group
    return found


def subgroups(group: Object) -> dict[str, int]:
    return {
        entry["name"]: entry.get("minMember", entry.get("minSubGroup"))
        for entry in group["spec"].get("subGroups") or ()
    }


def test_a_subgroup_label_that_is_not_true_any_more_is_taken_away() -> None:
    job = made("batch/v1", "Job", "j", spec={})
    answer = grouped(job, pod("a", job, labels={"kai.scheduler/subgroup-name": "old", "app": "x"}))
    assert answer["pods"][0]["labels"] == {"app": "x"}


def test_a_replicated_job_without_replicas_is_left_out() -> None:
    spec = {"replicatedJobs": [{"name": "off", "replicas": 0}, {"name": "on", "replicas": 1}]}
    jobset = made("jobset.x-k8s.io/v1alpha2", "JobSet", "j", spec=spec)
    labels = {"jobset.sigs.k8s.io/replicatedjob-name": "on", "jobset.sigs.k8s.io/job-index": "0"}
    group = only(grouped(jobset, pod("a", jobset, labels=labels)))
    assert group["spec"]["minSubGroup"] == 1
    assert subgroups(group) == {"on": 1, "on-replica-0": 1}


def lws(**spec: Any) -> Object:
    return made("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "l", spec=spec)


def test_one_segment_with_a_leader_more_asks_for_the_workers_there_are() -> None:
    owner = lws(leaderWorkerTemplate={"size": 5, "subGroupPolicy": {"subGroupSize": 4}, "workerTemplate": {}})
    group = only(grouped(owner, pod("a", owner, labels={f"{LWS}/worker-index": "1"})))
    assert subgroups(group) == {"segment-0": 2, "leader": 1, "workers": 4}


def test_a_leader_that_starts_first_is_grouped_alone_also_with_segments() -> None:
    template = {"size": 4, "subGroupPolicy": {"subGroupSize": 2}, "workerTemplate": {}}
    owner = lws(startupPolicy="LeaderReady", leaderWorkerTemplate=template)
    group = only(grouped(owner, pod("a", owner, labels={f"{LWS}/worker-index": "0"})))
    assert subgroups(group) == {"leader": 1}


def test_a_segment_size_of_zero_is_an_error_that_names_it() -> None:
    documents = kubeflow("PyTorchJob", "pytorchReplicaSpecs", {"Worker": 1})
    documents[1]["metadata"]["annotations"] = {SEGMENT: "0"}
    (error,) = grouped(*documents)["errors"]
    assert error["message"] == f"Pod team-a/train-worker-0: metadata.annotations[{SEGMENT}]: 0 is below 1"


def wrong_values() -> dict[str, list[Object]]:
    """Objects with one value that cannot be, by the field that has it."""
    elastic = kubeflow("PyTorchJob", "pytorchReplicaSpecs", {"Worker": 1})
    elastic[0]["spec"]["elasticPolicy"] = {"minReplicas": "2"}
    large = kubeflow("TFJob", "tfReplicaSpecs", {"Worker": 1})
    large[0]["spec"]["runPolicy"] = {"schedulingPolicy": {"minAvailable": 2**32 + 1}}
    template = kubeflow("PyTorchJob", "pytorchReplicaSpecs", {"Worker": 1})
    template[0]["spec"]["pytorchReplicaSpecs"]["Worker"]["template"] = {"metadata": {"annotations": "x"}}
    fewer = kubeflow("PyTorchJob", "pytorchReplicaSpecs", {"Master": 5, "Worker": 1})
    fewer[0]["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] = -3
    for member in fewer[1:]:
        member["metadata"]["annotations"] = {SEGMENT: "2"}
    many = made("jobset.x-k8s.io/v1alpha2", "JobSet", "j", spec={"replicatedJobs": [{"name": "a"}]})
    many["spec"]["replicatedJobs"][0]["replicas"] = 20_000
    groups = [{"groupName": "a" * 64, "replicas": 1}]
    ray = made("ray.io/v1", "RayCluster", "r", spec={"headGroupSpec": {}, "workerGroupSpecs": groups})
    size = {"size": 5, "subGroupPolicy": {"subGroupSize": 2}, "workerTemplate": {}}
    owner = lws(leaderWorkerTemplate=size)
    return {
        "spec.elasticPolicy.minReplicas": elastic,
        "spec.runPolicy.schedulingPolicy.minAvailable": large,
        "spec.pytorchReplicaSpecs.Worker.template.metadata.annotations": template,
        "spec.pytorchReplicaSpecs.Worker.replicas": fewer,
        "spec.replicatedJobs[0].replicas": [many, pod("a", many)],
        "spec.subGroups[1].name": [ray, pod("a", ray)],
        f"metadata.labels[{LWS}/worker-index]": [owner, pod("a", owner, labels={f"{LWS}/worker-index": "5"})],
    }


@pytest.mark.parametrize("field", wrong_values())
def test_a_value_that_cannot_be_is_an_error_that_names_it(field: str) -> None:
    answer = grouped(*wrong_values()[field])
    assert answer["podGroups"] == []
    assert all(f": {field}: " in error["message"] for error in answer["errors"])
    assert answer["errors"]


def test_a_worker_index_is_a_number() -> None:
    owner = lws(leaderWorkerTemplate={"size": 4, "workerTemplate": {}})
    answer = grouped(owner, pod("a", owner, labels={f"{LWS}/worker-index": "00"}))
    assert answer["pods"][0]["labels"]["kai.scheduler/subgroup-name"] == "leader"


def test_a_job_that_is_not_there_is_no_replicated_job_of_its_name() -> None:
    spec = {"replicatedJobs": [{"name": "a"}, {"name": "a-replica-5"}]}
    jobset = made("jobset.x-k8s.io/v1alpha2", "JobSet", "j", spec=spec)
    labels = {"jobset.sigs.k8s.io/replicatedjob-name": "a", "jobset.sigs.k8s.io/job-index": "5"}
    (error,) = grouped(jobset, pod("a", jobset, labels=labels))["errors"]
    assert (
        'metadata.labels[jobset.sigs.k8s.io/replicatedjob-name]: the JobSet has no Job "a-replica-5"'
        in (error["message"])
    )


def test_an_empty_value_is_absent() -> None:
    owner = lws(leaderWorkerTemplate={"size": 4, "workerTemplate": {}})
    owner["metadata"]["annotations"] = {SEGMENT: ""}
    assert subgroups(only(grouped(owner, pod("a", owner)))) == {"leader": 1, "workers": 3}
    clique = made("grove.io/v1alpha1", "PodCliqueSet", "p")
    gang = made("scheduler.grove.io/v1alpha1", "PodGang", "serve-0", spec=deepcopy(GANG))
    gang["spec"]["podgroups"][0]["topologyConstraint"] = {"packConstraint": {"required": ""}}
    member = pod("serve-prefill", clique, labels={"grove.io/podgang": "serve-0"})
    assert subgroups(only(grouped(clique, gang, member))) == {"both": 2, "prefill": 1, "decode": 1}


def test_labels_of_a_workload_beat_the_defaults_of_its_kind() -> None:
    types = '[{"typeName": "Workflow", "priorityName": "build", "preemptibility": "preemptible"}]'
    config = made("v1", "ConfigMap", "d", data={"types": types})
    labels = {"priorityClassName": "inference", "kai.scheduler/preemptibility": "non-preemptible"}
    flow = made("argoproj.io/v1alpha1", "Workflow", "w", labels=labels)
    widget = made("example.com/v1", "Widget", "x", flow)
    where = {"namespace": "team-a", "name": "d"}
    for owner in (flow, widget):
        group = only(grouped(config, flow, widget, pod("a", owner), defaultPrioritiesConfigMap=where))
        assert group["spec"]["priorityClassName"] == "inference"
        assert group["spec"]["preemptibility"] == "non-preemptible"


def test_the_queue_of_a_pod_clique_set_and_of_what_is_above_it_counts() -> None:
    owners = chain(
        ("nvidia.com/v1", "DynamoGraphDeployment", "d", {"labels": {QUEUE: "serving"}}),
        ("grove.io/v1alpha1", "PodCliqueSet", "p", {}),
    )
    gang = made("scheduler.grove.io/v1alpha1", "PodGang", "serve-0", spec=deepcopy(GANG))
    member = pod("serve-prefill", owners[-1], labels={"grove.io/podgang": "serve-0"})
    assert only(grouped(*owners, gang, member))["spec"]["queue"] == "serving"
    gang["metadata"]["labels"] = {QUEUE: "own"}
    assert only(grouped(*owners, gang, member))["spec"]["queue"] == "own"


def test_a_knative_revision_may_say_what_every_workload_may() -> None:
    documents = samples()["Service"]
    revision = next(item for item in documents if item["kind"] == "Revision")
    revision["metadata"]["labels"] = {"kai.scheduler/preemptibility": "non-preemptible"}
    revision["metadata"]["annotations"] |= {
        "kai.scheduler/topology": "t",
        "kai.scheduler/topology-required-placement": "rack",
        "kai.scheduler/preemption-delay": "90s",
    }
    spec = only(grouped(*documents))["spec"]
    assert spec["preemptibility"] == "non-preemptible"
    assert spec["topologyConstraint"] == {"topology": "t", "requiredTopologyLevel": "rack"}
    assert spec["preemptionDelay"] == "1m30s"


def test_the_job_of_a_cron_job_may_be_a_gang() -> None:
    cron = made("batch/v1", "CronJob", "c", spec={})
    job = made("batch/v1", "Job", "c-1", cron, spec={})
    job["metadata"]["annotations"] = {"kai.scheduler/batch-min-member": "3"}
    assert only(grouped(cron, job, pod("a", job)))["spec"]["minMember"] == 3


def test_karta_installed_without_one_for_the_kind_means_the_default() -> None:
    widget = made("example.com/v1", "Widget", "x", spec={})
    group = only(grouped(widget, pod("a", widget), kartaInstalled=True))
    assert group["spec"]["minMember"] == 1


@pytest.mark.parametrize("path", ["[range(1e12)] | length", "env.PATH", "def f: f; f", "recurse(.) | 1"])
def test_a_karta_path_without_a_certain_end_is_not_followed(path: str) -> None:
    broken = karta()
    broken["spec"] = deepcopy(KARTA)
    scale = broken["spec"]["structureDefinition"]["childComponents"][0]["scaleDefinition"]
    scale["replicasPath"] = path
    fleet = made("example.com/v1", "Fleet", "f", spec={"boss": {"replicas": 1}, "crew": {"replicas": 2}})
    group = only(grouped(fleet, broken, pod("a", fleet), kartaInstalled=True))
    assert group["spec"]["minMember"] == 1
    assert subgroups(group) == {}


def test_a_group_moves_with_its_label_only_where_that_is_asked_for() -> None:
    job = made("batch/v1", "Job", "j", spec={}, labels={QUEUE: "a"})
    change: Object = {"apiVersion": "batch/v1", "kind": "Job"}
    change["metadata"] = {"name": "j", "namespace": "team-a", "labels": {QUEUE: "b"}}
    stage = {"kind": "Stage"}
    group = only(grouped(job, pod("p", job), stage, change))
    assert group["spec"]["queue"] == "a"
    change["metadata"]["annotations"] = {"kai-cp/follow-queue": "true"}
    group = only(grouped(job, pod("p", job), stage, change))
    assert (group["spec"]["queue"], group["metadata"]["labels"][QUEUE]) == ("b", "b")


@pytest.mark.parametrize("name", ["123", "true", "1e3", "0x1f"])
def test_a_name_that_looks_like_a_number_stays_a_name(name: str) -> None:
    job = made("batch/v1", "Job", name, spec={})
    metadata = only(grouped(job, pod("p", job)))["metadata"]["annotations"][
        "kai.scheduler/top-owner-metadata"
    ]
    assert yaml.safe_load(metadata)["name"] == name


def test_the_grouper_does_not_copy_what_kubectl_remembers() -> None:
    job = made("batch/v1", "Job", "j", spec={})
    job["metadata"]["annotations"] = {"kubectl.kubernetes.io/last-applied-configuration": "{}", "x": "y"}
    annotations = only(grouped(job, pod("p", job)))["metadata"]["annotations"]
    assert annotations["x"] == "y"
    assert len(annotations) == 2
