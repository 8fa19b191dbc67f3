"""The gang provisioner writes what a step asks for, once, if the cluster serves ProvisioningRequests."""

from __future__ import annotations

from typing import Any

import pytest

from kai_cp.kube.api import resources as r
from kai_cp.kube.controllers.provisioning import VERSIONS
from kai_cp.workloads.provisioning import CONSUMES
from tests.kai_cp.kube.conftest import until
from tests.kai_cp.kube.controllers.test_host import alone, running, writes
from tests.kai_cp.kube.stub import StubServer
from tests.kai_cp.workloads.test_provisioning import group, pod

Object = dict[str, Any]


def gang(server: StubServer, names: str = "ab") -> None:
    """A pod group with pods that found no place."""
    server.put(r.POD_GROUPS, group(len(names)))
    for name in names:
        item = pod(name)
        item["metadata"]["annotations"] = {"pod-group-name": "pg"}
        item["spec"]["schedulerName"] = "kai-scheduler"
        server.put(r.PODS, item)


def serve(server: StubServer, version: str) -> None:
    """As if the definition were installed with this version."""
    kind = {"kind": "ProvisioningRequest", "name": "provisioningrequests", "namespaced": True}
    server.objects[f"/apis/autoscaling.x-k8s.io/{version}"] = {"resources": [kind]}


def requests(server: StubServer, version: str) -> list[Object]:
    """The ProvisioningRequests that exist."""
    where = f"/apis/autoscaling.x-k8s.io/{version}/"
    return [item for path, item in server.objects.items() if path.startswith(where)]


@pytest.mark.parametrize(
    ("served", "version"), [(["v1"], "v1"), (["v1beta1"], "v1beta1"), (["v1beta1", "v1"], "v1")]
)
def test_a_gang_is_asked_for_once_and_taken_back_when_it_runs(
    server: StubServer, served: list[str], version: str
) -> None:
    gang(server)
    for each in served:
        serve(server, each)
    with running(server, "provisioning-requests") as run:
        (made,) = until(lambda: requests(server, version))
        assert made["spec"]["podSets"][0]["count"] == 2
        template = made["spec"]["podSets"][0]["podTemplateRef"]["name"]
        assert server.get(r.POD_TEMPLATES, "ns", template)
        name = made["metadata"]["name"]

        def marked(pod_name: str) -> str:
            found = server.get(r.PODS, "ns", pod_name) or {}
            return str(found["metadata"]["annotations"].get(CONSUMES, ""))

        until(lambda: [marked("a"), marked("b")] == [name, name])
        run.settled()
        before = len(writes(server))
        for pod_name in "ab":
            bound = server.get(r.PODS, "ns", pod_name) or {}
            server.put(r.PODS, {**bound, "spec": {**bound["spec"], "nodeName": "n1"}})
        until(lambda: not requests(server, version))
        assert server.get(r.POD_TEMPLATES, "ns", template) is None
        run.settled()
        assert {method for method, _ in writes(server)[before:]} == {"DELETE"}


def test_a_gang_of_many_pods_delays_no_other(server: StubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """One thread marks the pods of all gangs, and a pass of ten minutes restarts the process."""
    monkeypatch.setattr("kai_cp.kube.controllers.provisioning.MOST_WRITES", 3)
    gang(server, "abcdefgh")
    serve(server, "v1")
    with alone(server, "provisioning-requests") as provisioner:
        passes = [provisioner.reconcile(("ns", "pg"), 0) for _ in range(3)]
        assert passes == [0.0, 0.0, None], "the request and two pods, three pods, three pods"
    found = [server.get(r.PODS, "ns", name) or {} for name in "abcdefgh"]
    assert all(CONSUMES in item["metadata"]["annotations"] for item in found)


def test_where_the_definition_is_missing_nothing_is_written(server: StubServer) -> None:
    gang(server)
    with running(server, "provisioning-requests"):
        for version in VERSIONS:
            asked = f"/apis/autoscaling.x-k8s.io/{version}"
            until(lambda asked=asked: any(path == asked for _, path, _ in server.log))  # type: ignore[misc]
    assert writes(server) == []
