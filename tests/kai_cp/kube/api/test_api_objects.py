"""The objects that decisions become, by table."""

from __future__ import annotations

from typing import Any

import pytest

from kai_cp.kube.api import api_objects
from kai_cp.kube.api import resources as r
from kai_cp.object_names import LONGEST_NAME, SUBDOMAIN
from tests.kai_cp.kube.samples import bind, node, pod


def mig() -> dict[str, Any]:
    item = pod("p")
    item["spec"]["containers"][0]["resources"] = {"requests": {"nvidia.com/mig-1g.5gb": "1"}}
    return item


@pytest.mark.parametrize(
    ("item", "kind", "received"),
    [
        (pod("p", gpus=4), "Regular", {"count": 4, "portion": "1.00"}),
        (pod("p", gpus=0), "Regular", {"count": 0, "portion": "1.00"}),
        (
            pod("p", gpus=0, annotations={"gpu-fraction": "0.333"}),
            "Fraction",
            {"count": 1, "portion": "0.33"},
        ),
        (
            pod("p", gpus=0, annotations={"gpu-fraction": "0.5", "gpu-fraction-num-devices": "2"}),
            "Fraction",
            {"count": 2, "portion": "0.50"},
        ),
        # 20,480 of the label's 81,920 MiB, which counts as 81,900: a little more than a quarter.
        (pod("p", gpus=0, annotations={"gpu-memory": "20480"}), "Fraction", {"count": 1, "portion": "0.26"}),
        # Rounded up, as it is charged: never less than requested.
        (pod("p", gpus=0, annotations={"gpu-memory": "20000"}), "Fraction", {"count": 1, "portion": "0.25"}),
        (pod("p", gpus=0, annotations={"gpu-memory": "300"}), "Fraction", {"count": 1, "portion": "0.01"}),
        (pod("p", gpus=0, annotations={"gpu-memory": "20475"}), "Fraction", {"count": 1, "portion": "0.25"}),
        # A field that no rule reads cannot be wrong: a number of devices without a share.
        (
            pod("p", gpus=0, annotations={"gpu-fraction-num-devices": "x"}),
            "Regular",
            {"count": 0, "portion": "1.00"},
        ),
        (mig(), "MigInstance", {"count": 0, "portion": "1.00"}),
    ],
)
def test_a_bind_request_says_which_gpus_a_pod_receives(
    item: dict[str, Any], kind: str, received: dict[str, Any]
) -> None:
    spec = api_objects.bind_request(item, node("n"), bind("p", "n"))["spec"]
    assert spec["receivedResourceType"] == kind
    assert spec["receivedGPU"] == received


@pytest.mark.parametrize(("length", "labelled"), [(63, True), (64, False), (253, False)])
def test_a_node_may_have_a_longer_name_than_a_label(length: int, labelled: bool) -> None:
    """The server refuses an order with such a label: the pod would never be bound there."""
    name = "n" * length
    made = api_objects.bind_request(pod("p"), node(name), bind("p", name))
    assert made["spec"]["selectedNode"] == name
    assert made["metadata"]["labels"] == ({"selected-node": name} if labelled else {})


def test_details_go_to_the_binder() -> None:
    details = {"resourceClaimAllocations": [{"name": "c", "allocation": {}}], "numaZones": [{"zone": "0"}]}
    spec = api_objects.bind_request(pod("p"), None, bind("p", "n", details=details))["spec"]
    assert spec["resourceClaimAllocations"] == details["resourceClaimAllocations"]
    assert spec["predictedNUMAZones"] == details["numaZones"]


@pytest.mark.parametrize(
    ("limit", "status", "final"),
    [
        (None, {}, False),
        (None, {"phase": "Failed"}, True),
        (3, {"phase": "Failed", "failedAttempts": 2}, False),
        (3, {"phase": "Failed", "failedAttempts": 3}, True),
        (None, {"phase": "Succeeded"}, False),
    ],
)
def test_failed_for_good(limit: int | None, status: dict[str, Any], final: bool) -> None:
    spec = {"backoffLimit": limit} if limit is not None else {}
    assert api_objects.failed_for_good({"spec": spec, "status": status}) is final


def test_equal_events_have_equal_names() -> None:
    def named(message: str) -> str:
        return str(
            api_objects.event(
                pod("p"), r.PODS, kind="Normal", reason="R", message=message, component="c", now=0.0
            )["metadata"]["name"]
        )

    assert named("a") == named("a")
    assert named("a") != named("b")


@pytest.mark.parametrize("name", ["p", "a" * 219 + "-b", "a" * 219 + ".b", "a" * 218 + "--b", "a" * 253])
def test_the_name_of_an_event_is_one(name: str) -> None:
    """The server refuses another one, and then nothing says why the pod waits."""
    about = {"metadata": {"name": name, "namespace": "ns", "uid": "u"}}
    made = api_objects.event(about, r.PODS, kind="Normal", reason="R", message="m", component="c", now=0.0)
    assert SUBDOMAIN.fullmatch(made["metadata"]["name"])
    assert len(made["metadata"]["name"]) <= LONGEST_NAME


def test_the_container_that_asked_is_named() -> None:
    item = pod("p", gpus=2)
    mapping = {"resourceName": "nvidia.com/gpu", "requestName": "request-0"}
    details = {"extendedResourceClaimAllocation": {"allocation": {}, "containerMappings": [mapping]}}
    spec = api_objects.bind_request(item, None, bind("p", "n", details=details))["spec"]
    (found,) = spec["extendedResourceClaimAllocation"]["containerMappings"]
    assert found == {"containerName": "main", **mapping}
    assert "containerName" not in mapping
