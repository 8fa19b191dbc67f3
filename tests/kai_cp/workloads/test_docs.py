"""Every example of docs/workloads.md becomes what the page says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from kai_cp.workloads.batch import group_documents
from kai_cp.workloads.kinds import BadKinds, Kinds, builtin_kinds, load_kinds, parse_kinds
from kai_cp.workloads.settings import GroupingSettings
from tests.support.workloads import made, pod, uid

PAGE = (Path(__file__).parents[3] / "docs/workloads.md").read_text()
JOBSET = "jobset.sigs.k8s.io"
LWS = "leaderworkerset.sigs.k8s.io"
Object = dict[str, Any]


def examples() -> dict[str, Object]:
    """The YAML of every section by its heading."""
    found = {}
    for section in re.split(r"^### ", PAGE, flags=re.MULTILINE)[1:]:
        block = re.search(r"^```yaml\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
        if block:
            item = yaml.safe_load(block[1])
            item["metadata"]["uid"] = uid(item["metadata"]["name"])
            found[section.splitlines()[0]] = item
    return found


def block(kind: str) -> str:
    found = re.search(rf"^```yaml {kind}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


EXAMPLES = examples()
CASES: dict[str, tuple[dict[str, str], str, Object]] = {
    "Pod": ({}, "pg-shell", {"minMember": 1}),
    "Deployment": ({}, "pg-its-pod", {"minMember": 1}),
    "Job": ({}, "pg-train", {"minMember": 4}),
    "PyTorchJob": (
        {"training.kubeflow.org/replica-type": "worker", "training.kubeflow.org/replica-index": "3"},
        "pg-llm",
        {"minMember": 5, "master": 1, "worker": 2, "worker-0": 2, "worker-1": 2},
    ),
    "MPIJob": ({}, "pg-bench", {"minMember": 3}),
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
    "RayCluster": ({"ray.io/group": "gpu"}, "pg-ray", {"minMember": 3, "headgroup": 1, "gpu": 2}),
    "LeaderWorkerSet": (
        {f"{LWS}/group-index": "1", f"{LWS}/worker-index": "2"},
        "pg-vllm-group-1",
        {"minMember": 4, "leader": 1, "workers": 3},
    ),
    "Knative": ({"serving.knative.dev/revision": "hello-1"}, "pg-hello-1", {"minMember": 2}),
    "Grove": ({"grove.io/podgang": "serve-0"}, "pg-serve-0", {"minMember": 3, "prefill": 2, "decode": 1}),
    "Workflow": ({}, "pg-its-pod", {"minMember": 1}),
}


def test_every_example_is_tried() -> None:
    assert EXAMPLES.keys() == CASES.keys()


@pytest.mark.parametrize("section", CASES)
def test_an_example_becomes_what_is_said(section: str) -> None:
    labels, name, wanted = CASES[section]
    item = EXAMPLES[section]
    documents = [item]
    owner = item
    if section == "Knative":
        owner = made("serving.knative.dev/v1", "Service", "hello", spec={})
        documents.append(owner)
    if section == "Grove":
        owner = made("grove.io/v1alpha1", "PodCliqueSet", "serve", spec={})
        documents.append(owner)
    if section != "Pod":
        documents.append(pod("its-pod", owner, labels=labels))
    answer = group_documents(documents, GroupingSettings())
    assert answer["errors"] == []
    (group,) = answer["podGroups"]
    assert re.sub(r"-[0-9a-f]{8}-[0-9a-f-]{27}", "", group["metadata"]["name"]) == name
    spec = group["spec"]
    assert spec["queue"] == item["metadata"]["labels"]["kai.scheduler/queue"]
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
            "k.yaml: kinds.0.minMembers: Extra",
        ),
        ("kinds: [{kind: Fleet.example.com, minMember: 'spec..x'}]", "has an empty key"),
        ("kinds: [{kind: Fleet.example.com, shape: magic}]", "kinds.0.shape"),
        ("kinds: {", "k.yaml: no YAML"),
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
    template = Path(__file__).parents[3] / "deploy/chart/kai-cp/templates/rbac.yaml"
    (line,) = [
        line for line in template.read_text().splitlines() if line.strip().startswith("- matchLabels:")
    ]
    (selector,) = yaml.safe_load(line)
    assert selector["matchLabels"].items() <= role["metadata"]["labels"].items()
