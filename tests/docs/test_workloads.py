"""Every example of docs/workloads.md is grouped as the page says."""

from __future__ import annotations

import re
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from kai_cp.workloads.batch import group_documents
from kai_cp.workloads.kinds import BadKinds, Kinds, builtin_kinds, load_kinds, parse_kinds
from kai_cp.workloads.settings import GroupingSettings
from tests.support.workloads import made, pod, uid

PAGE = (Path(__file__).parents[2] / "docs/workloads.md").read_text()
JOBSET = "jobset.sigs.k8s.io"
LWS = "leaderworkerset.sigs.k8s.io"
Object = dict[str, Any]


def examples() -> dict[str, Object]:
    """The YAML of the page's kinds, by kind."""
    blocks = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    items = [item for text in blocks for item in yaml.safe_load_all(text)]
    for item in items:
        item["metadata"]["uid"] = uid(item["kind"] + item["metadata"]["name"])
    return {item["kind"]: item for item in items}


def block(kind: str) -> str:
    found = re.search(rf"^```yaml {kind}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


EXAMPLES = examples()
ALONE = {"minMember": 1}
CASES: dict[str, tuple[dict[str, str], str, Object]] = {
    # Kind: labels of one of its pods, name of the pod's group without the uid, shape of the group.
    "Pod": ({}, "pg-shell", ALONE),
    "Deployment": ({}, "pg-its-pod", ALONE),
    "Job": ({}, "pg-train", {"minMember": 4}),
    "CronJob": ({}, "pg-nightly-1", {"minMember": 2}),
    "StatefulSet": ({}, "pg-db", ALONE),
    "ReplicaSet": ({}, "pg-old", ALONE),
    "PyTorchJob": (
        {"training.kubeflow.org/replica-type": "worker", "training.kubeflow.org/replica-index": "3"},
        "pg-llm",
        {"minMember": 5, "master": 1, "worker": 2, "worker-0": 2, "worker-1": 2},
    ),
    "MPIJob": ({}, "pg-bench", {"minMember": 3}),
    "TFJob": ({}, "pg-mnist", {"minMember": 3}),
    "XGBoostJob": ({}, "pg-trees", {"minMember": 3}),
    "JAXJob": ({}, "pg-flow", {"minMember": 4}),
    "JobSet": (
        {f"{JOBSET}/replicatedjob-name": "workers", f"{JOBSET}/job-index": "1"},
        "pg-sim",
        {
            "minSubGroup": 2,
            "driver": 1,
            "driver-replica-0": 1,
            "workers": 2,
            "workers-replica-0": 4,
            "workers-replica-1": 4,
        },
    ),
    "TrainJob": (
        {f"{JOBSET}/replicatedjob-name": "node", f"{JOBSET}/job-index": "0"},
        "pg-tune",
        {"minSubGroup": 1, "node": 1, "node-replica-0": 4},
    ),
    "RayCluster": ({"ray.io/group": "gpu"}, "pg-ray", {"minMember": 3, "headgroup": 1, "gpu": 2}),
    "RayJob": ({"ray.io/group": "gpu"}, "pg-sweep", {"minMember": 3, "headgroup": 1, "gpu": 2}),
    "RayService": ({"ray.io/group": "gpu"}, "pg-chat", {"minMember": 3, "headgroup": 1, "gpu": 2}),
    "LeaderWorkerSet": (
        {f"{LWS}/group-index": "1", f"{LWS}/worker-index": "2"},
        "pg-vllm-group-1",
        {"minMember": 4, "leader": 1, "workers": 3},
    ),
    "Service": ({"serving.knative.dev/revision": "hello-1"}, "pg-hello-1", {"minMember": 2}),
    **dict.fromkeys(
        ("PodCliqueSet", "PodGangSet", "DynamoGraphDeployment"),
        ({"grove.io/podgang": "serve-0"}, "pg-serve-0", {"minMember": 3, "prefill": 2, "decode": 1}),
    ),
    **dict.fromkeys(
        (
            "Workflow",
            "TrainingWorkload",
            "InteractiveWorkload",
            "DistributedWorkload",
            "InferenceWorkload",
            "DistributedInferenceWorkload",
        ),
        ({}, "pg-its-pod", ALONE),
    ),
    "Notebook": ({}, "pg-lab", ALONE),
    "ScheduledWorkflow": ({}, "pg-weekly", ALONE),
    "SeldonDeployment": ({}, "pg-model", ALONE),
    "PipelineRun": ({}, "pg-build", ALONE),
    "TaskRun": ({}, "pg-step", ALONE),
    "VirtualMachineInstance": ({}, "pg-machine", ALONE),
    "DevWorkspace": ({}, "pg-desk", ALONE),
    "SPOTRequest": ({}, "pg-spot", ALONE),
    "AmlJob": ({}, "pg-aml", {"minMember": 2}),
    "RunaiJob": ({}, "pg-its", ALONE),
}
CLASSES = {
    **dict.fromkeys(("Deployment", "Service", "SPOTRequest"), "inference"),
    "Notebook": "build",
}


def test_every_kind_has_an_example_and_every_example_is_tried() -> None:
    table = {row.name for row in builtin_kinds().rows}
    assert table == CASES.keys()
    assert EXAMPLES.keys() == {*CASES, "PodGang"}


def below(kind: str, item: Object) -> list[Object]:
    """The workload and what its own controllers make of it, down to the owner of the pods."""
    if kind == "CronJob":
        template = item["spec"]["jobTemplate"]
        job = made(
            "batch/v1", "Job", "nightly-1", item, **deepcopy(template["metadata"]), spec=template["spec"]
        )
        return [item, job]
    if kind == "TrainJob":
        replicated = {"name": "node", "template": {"spec": {"parallelism": 4}}}
        spec = {"replicatedJobs": [replicated]}
        return [item, made("jobset.x-k8s.io/v1alpha2", "JobSet", "tune", item, spec=spec)]
    if kind in ("RayJob", "RayService"):
        spec = item["spec"].get("rayClusterSpec") or item["spec"]["rayClusterConfig"]
        cluster = made("ray.io/v1", "RayCluster", "its-cluster", item, spec=spec)
        named = {"rayClusterName": "its-cluster"}
        return [{**item, "status": named if kind == "RayJob" else {"activeServiceStatus": named}}, cluster]
    if kind == "Service":
        meta = item["spec"]["template"]["metadata"]
        return [item, made("serving.knative.dev/v1", "Revision", "hello-1", item, **deepcopy(meta))]
    if kind == "DynamoGraphDeployment":
        return [item, made("grove.io/v1alpha1", "PodCliqueSet", "serve", item, spec={})]
    return [item]


@pytest.mark.parametrize("kind", CASES)
def test_an_example_becomes_the_group_of_the_page(kind: str) -> None:
    labels, name, wanted = CASES[kind]
    documents = below(kind, EXAMPLES[kind])
    if kind != "Pod":
        documents.append(pod("its-pod", documents[-1], labels=labels))
    if "grove.io/podgang" in labels:
        documents.append(EXAMPLES["PodGang"])
    answer = group_documents(documents, GroupingSettings())
    assert answer["errors"] == []
    (group,) = answer["podGroups"]
    assert re.sub(r"-[0-9a-f]{8}-[0-9a-f-]{27}", "", group["metadata"]["name"]) == name
    spec = group["spec"]
    assert spec["queue"] in ("research", "serving"), "its label says so"
    assert spec["priorityClassName"] == CLASSES.get(kind, "train")
    assert shape(spec) == wanted


def shape(spec: Object) -> Object:
    found = {key: spec[key] for key in ("minMember", "minSubGroup") if key in spec}
    for subgroup in spec.get("subGroups") or ():
        found[subgroup["name"]] = subgroup.get("minMember", subgroup.get("minSubGroup"))
    return found


def test_a_kind_of_ones_own_is_a_row_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "kinds.yaml"
    file.write_text(block("kinds"))
    settings = GroupingSettings(kinds=load_kinds([file]))
    marked = {"metadata": {"annotations": {"kai.scheduler/topology": "t"}}}
    marked["metadata"]["annotations"]["kai.scheduler/topology-required-placement"] = "rack"
    spec = {"boss": {"replicas": 1}, "crew": {"replicas": 5, "template": marked}}
    fleet = made("example.com/v1", "Fleet", "f", spec=spec)
    answer = group_documents([fleet, pod("b", fleet, labels={"fleet/role": "crew"})], settings)
    (group,) = answer["podGroups"]
    assert shape(group["spec"]) == {"minMember": 6, "boss": 1, "crew": 5}
    assert group["spec"]["priorityClassName"] == "inference"
    assert group["spec"]["subGroups"][1]["topologyConstraint"] == {
        "topology": "t",
        "requiredTopologyLevel": "rack",
    }
    assert answer["pods"][0]["labels"]["kai.scheduler/subgroup-name"] == "crew"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "kinds: [{kind: Fleet.example.com, minMembers: spec.x}]",
            "k.yaml: kinds.0.minMembers: unknown key",
        ),
        ("kinds: [{kind: Fleet.example.com, minMember: 'spec..x'}]", "has an empty key"),
        ("kinds: [{kind: Fleet.example.com, shape: magic}]", "kinds.0.shape"),
        ("kinds: {", "k.yaml: not YAML"),
    ],
)
def test_a_wrong_file_of_kinds_is_named_with_its_field(text: str, problem: str) -> None:
    with pytest.raises(BadKinds) as raised:
        parse_kinds(text, "k.yaml")
    assert problem in str(raised.value)


def test_a_row_of_ones_own_comes_first() -> None:
    rows = parse_kinds("kinds: [{kind: Job.batch, priorityClass: build}]", "k.yaml")
    found = Kinds((*rows, *builtin_kinds().rows)).of("batch", "v1", "Job")
    assert found is not None
    assert found.priority_class == "build"


def test_the_role_of_the_page_is_collected() -> None:
    role = yaml.safe_load(block("role"))
    template = Path(__file__).parents[2] / "deploy/chart/kai-cp/templates/rbac.yaml"
    (line,) = [
        line for line in template.read_text().splitlines() if line.strip().startswith("- matchLabels:")
    ]
    (selector,) = yaml.safe_load(line)
    assert selector["matchLabels"].items() <= role["metadata"]["labels"].items()
