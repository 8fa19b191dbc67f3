"""The objects that our parts and KAI's exchange: each part may be replaced by the other's."""

from __future__ import annotations

from typing import Any

import pytest

from kai_cp import keys
from kai_cp.admission.request import AdmissionRequest, AdmissionSettings
from kai_cp.admission.review import review
from kai_cp.kube.api import api_objects
from kai_cp.kube.binder.sharing import Sharing
from kai_cp.kube.controllers.shard_objects import conditions
from kai_cp.kube.install import definitions
from kai_cp.kube.scheduler.options import shard_config
from kai_cp.reader import parse
from kai_cp.workloads.sums import FIELDS, add, parsed, resource_list
from kai_cp_models.pods import PodStatus
from tests.kai_cp.admission.build import container
from tests.kai_cp.admission.build import pod as new_pod
from tests.kai_cp.kube.samples import bind, group, node, pod, queue, snapshot


def test_an_order_has_what_kais_binder_reads_and_nothing_that_its_schema_lacks() -> None:
    item = pod("p", gpus=0, annotations={"gpu-fraction": "0.5"})
    made = api_objects.bind_request(
        item, node("n"), bind("p", "n", gpu_groups=("g1",)), ("kai.scheduler/node-pool", "a")
    )
    assert made["metadata"]["name"] == "p"
    assert made["metadata"]["namespace"] == "ns"
    assert made["metadata"]["labels"]["kai.scheduler/node-pool"] == "a"
    assert made["metadata"]["labels"]["selected-node"] == "n"
    (owner,) = made["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("Pod", "p", "uid-p")
    assert made["spec"] == {
        "podName": "p",
        "selectedNode": "n",
        "receivedResourceType": "Fraction",
        "receivedGPU": {"count": 1, "portion": "0.50"},
        "selectedGPUGroups": ["g1"],
    }


def kais_order(**status: Any) -> dict[str, Any]:
    """A BindRequest as KAI's scheduler writes it."""
    return {
        "apiVersion": "scheduling.run.ai/v1alpha2",
        "kind": "BindRequest",
        "metadata": {
            "name": "p",
            "namespace": "ns",
            "labels": {"selected-node": "n"},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "uid-p"}],
            "creationTimestamp": "2026-11-20T11:00:00Z",
        },
        "spec": {
            "podName": "p",
            "selectedNode": "n",
            "receivedResourceType": "Regular",
            "receivedGPU": {"count": 1, "portion": "1.00"},
        },
        "status": status,
    }


@pytest.mark.parametrize(
    ("status", "seen"),
    [
        ({}, PodStatus.BINDING),
        ({"phase": "Pending"}, PodStatus.BINDING),
        ({"phase": "Failed", "failedAttempts": 1}, PodStatus.PENDING),
    ],
)
def test_an_order_of_kais_scheduler_is_read_as_ours(status: dict[str, Any], seen: PodStatus) -> None:
    raw = snapshot(
        pods=[pod("p")],
        nodes=[node("n")],
        queues=[queue()],
        podGroups=[group()],
        bindRequests=[kais_order(**status)],
    )
    assert parse(raw, now=1.8e9).pods[0].status is seen


def test_a_group_of_kais_grouper_is_read_with_its_fields() -> None:
    made = group("pg-job-uid", 2)
    made["spec"] |= {"priorityClassName": "train", "preemptibility": "", "stalenessGracePeriod": "1m30s"}
    made["metadata"]["ownerReferences"] = [
        {"apiVersion": "batch/v1", "kind": "Job", "name": "job", "uid": "u"}
    ]
    made["metadata"]["annotations"] = {"kai.scheduler/top-owner-metadata": "name: job\nuid: u\n"}
    raw = snapshot(pods=[pod("p", group="pg-job-uid")], nodes=[node("n")], queues=[queue()], podGroups=[made])
    found = parse(raw, now=1.8e9)
    assert found.set_aside == ()
    assert found.groups[0].key.name == "pg-job-uid"


@pytest.mark.parametrize("chosen", ["", "side", "warm"])
def test_the_binder_writes_the_config_maps_that_admission_names(chosen: str) -> None:
    annotations = {"gpu-fraction": "0.5"} | ({keys.FRACTION_CONTAINER: chosen} if chosen else {})
    thing = new_pod(annotations, container("main"), container("side"), initContainers=[container("warm")])
    verdict = review(AdmissionRequest(AdmissionSettings(gpu_sharing=True), "CREATE", thing, namespace="team"))
    assert verdict.object is not None
    made: dict[str, Any] = dict(verdict.object)
    sharing = Sharing.__new__(Sharing)
    found = sharing._config_names(made)  # noqa: SLF001
    assert found is not None
    spec = made["spec"]
    wired = next(c for c in [*spec["initContainers"], *spec["containers"]] if "env" in c)
    assert wired["name"] == (chosen or "main")
    references = {entry["valueFrom"]["configMapKeyRef"]["name"] for entry in wired["env"]}
    assert references == {found[0]}
    assert [entry["configMapRef"]["name"] for entry in wired["envFrom"]] == [found[1]]
    assert sharing._refers(made)  # noqa: SLF001


KAIS_PLUGINS = {
    *("predicates", "proportion", "priority", "nodeavailability", "resourcetype", "podaffinity", "elastic"),
    *("kubeflow", "ray", "subgrouporder", "taskorder", "nominatednode", "dynamicresources", "minruntime"),
    *("topology", "snapshot", "sg-nodelocalgreedy", "sg-multinodegang", "gpupack", "gpuspread"),
    *("nodeplacement", "gpusharingorder"),
}
"""Names under which KAI registers its plugins (semantics, 1.5)."""


@pytest.mark.parametrize("strategy", ["binpack", "spread"])
def test_a_snapshot_names_plugins_as_kais_replay_knows_them(strategy: str) -> None:
    """With other names KAI's replay finds no reclaim strategy."""
    config = shard_config({"placementStrategy": {"gpu": strategy, "cpu": strategy}})
    named = [entry["name"] for tier in config["tiers"] for entry in tier["plugins"]]
    assert set(named) <= KAIS_PLUGINS
    assert {"sg-nodelocalgreedy", "sg-multinodegang"} <= set(named)


def test_sums_that_kais_controllers_wrote_are_added_up_and_taken_over() -> None:
    """KAI's pod-group controller below our queue controller; then ours in its place, with the same sums."""
    theirs = {"cpu": "4", "memory": "16Gi", "nvidia.com/gpu": "1500m", "run.ai/gpu.memory": "2k"}
    found: dict[str, int] = {}
    for _ in range(2):
        add(found, parsed(theirs))
    wanted = {"cpu": "8", "memory": str(32 * 2**30), "nvidia.com/gpu": "3", "run.ai/gpu.memory": "4000"}
    assert resource_list(found) == wanted
    assert parsed(resource_list(found)) == found, "what is written reads as the same amounts"


def test_our_controllers_write_the_fields_of_kais_schemas() -> None:
    """Nothing that KAI's definitions would drop, and no condition of KAI in another shape."""
    crds = {d["spec"]["names"]["kind"]: d for _, d in definitions()}

    def status_of(kind: str) -> dict[str, Any]:
        schema = crds[kind]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        properties: dict[str, Any] = schema["properties"]["status"]["properties"]
        return properties

    sums = status_of("PodGroup")["resourcesStatus"]["properties"]
    assert set(FIELDS) <= sums.keys()
    queue_status = status_of("Queue")
    assert {*FIELDS, "childQueues"} <= queue_status.keys()
    told = conditions(None, None, "why", 3)[0]
    shard_conditions = status_of("SchedulingShard")["conditions"]["items"]
    assert shard_conditions.get("x-kubernetes-preserve-unknown-fields") or told.keys() <= (
        shard_conditions["properties"].keys() | {"lastTransitionTime"}
    )
