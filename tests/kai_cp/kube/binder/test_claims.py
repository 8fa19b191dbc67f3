"""Resource claims of a pod: allocated, reserved and given back, synthetic ones too."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest

from kai_cp.kube.api import resources as r
from kai_cp.kube.api.errors import ApiError
from kai_cp.kube.binder.claims import FINALIZER, Claims
from kai_cp.kube.binder.extended_claims import MARK, claim_name
from kai_cp.kube.binder.steps import BindError
from tests.kai_cp.kube.binder.conftest import (
    ALLOCATION,
    Object,
    conditions,
    order,
    phase,
)
from tests.kai_cp.kube.conftest import until
from tests.kai_cp.kube.samples import pod
from tests.kai_cp.kube.stub import StubServer


def with_claim(name: str) -> Object:
    item = pod(name, gpus=0)
    item["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "c"}]
    return item


def order_with_claim(server: StubServer) -> None:
    """An order for a pod with a claim, and the claim."""
    server.put(r.RESOURCE_CLAIMS, {"metadata": {"name": "c", "namespace": "ns"}, "spec": {}})
    order(server, with_claim("p"), resourceClaimAllocations=[{"name": "gpu", "allocation": ALLOCATION}])


def test_a_claim_is_allocated_and_reserved(server: StubServer, setup: Any) -> None:
    order_with_claim(server)
    setup()
    until(lambda: phase(server) == "Succeeded")
    found = server.get(r.RESOURCE_CLAIMS, "ns", "c")
    assert found is not None
    assert found["metadata"]["finalizers"] == [FINALIZER]
    assert found["status"]["allocation"] == ALLOCATION
    assert [user["name"] for user in found["status"]["reservedFor"]] == ["p"]


def test_a_claim_is_given_back_when_the_bind_fails(server: StubServer, setup: Any) -> None:
    server.faults = lambda m, p: (403, {}) if p.endswith("/binding") else None
    order_with_claim(server)
    setup()
    until(lambda: phase(server) == "Failed")
    found = server.get(r.RESOURCE_CLAIMS, "ns", "c")
    assert found is not None
    assert found["status"] == {"reservedFor": []}


def test_a_claim_behind_an_extended_resource(server: StubServer, setup: Any) -> None:
    requests = [{"name": "r", "exactly": {"deviceClassName": "gpu.x"}}]
    mappings = [{"containerName": "c", "resourceName": "example.com/gpu", "requestName": "r"}]
    ordered = {"allocation": ALLOCATION, "deviceRequests": requests, "containerMappings": mappings}
    order(server, pod("p", gpus=0), extendedResourceClaimAllocation=ordered)
    setup()
    until(lambda: phase(server) == "Succeeded")
    found = server.get(r.PODS, "ns", "p")
    assert found is not None
    name = claim_name(found)
    assert found["status"]["extendedResourceClaimStatus"] == {
        "resourceClaimName": name,
        "requestMappings": mappings,
    }
    made = server.get(r.RESOURCE_CLAIMS, "ns", name)
    assert made is not None
    assert made["metadata"]["annotations"] == {MARK: "true"}
    assert made["spec"]["devices"]["requests"] == requests
    assert made["status"]["allocation"] == ALLOCATION


def test_a_claim_is_removed_when_the_bind_fails(server: StubServer, setup: Any) -> None:
    server.faults = lambda m, p: (403, {}) if p.endswith("/binding") else None
    order(server, pod("p", gpus=0), extendedResourceClaimAllocation={"allocation": ALLOCATION})
    setup()
    until(lambda: phase(server) == "Failed")
    found = server.get(r.PODS, "ns", "p")
    assert found is not None
    assert server.get(r.RESOURCE_CLAIMS, "ns", claim_name(found)) is None


def reserved_claim(allocation: Object, *users: str) -> Object:
    """A claim that pods of these UIDs hold."""
    reserved = [{"resource": "pods", "name": uid, "uid": uid} for uid in users]
    meta = {"name": "c", "namespace": "ns", "resourceVersion": "5", "finalizers": [FINALIZER]}
    return {"metadata": meta, "status": {"allocation": allocation, "reservedFor": reserved}}


def test_a_reservation_that_could_not_be_given_back_is_an_error() -> None:
    api = Mock()
    item = with_claim("p")
    api.get.return_value = reserved_claim(ALLOCATION, item["metadata"]["uid"])
    api.update.side_effect = ApiError(409, "Conflict", "the object has been modified")
    with pytest.raises(BindError, match="keeps changing"):
        Claims(api).undo(item, {"spec": {}})


GONE = {"devices": {"results": [{"request": "r", "driver": "gpu.x", "pool": "gone", "device": "d7"}]}}


def test_an_allocation_for_an_order_that_was_taken_back_is_made_anew(server: StubServer, setup: Any) -> None:
    order_with_claim(server)
    server.put(r.RESOURCE_CLAIMS, reserved_claim(GONE, "uid-p"))
    setup()
    until(lambda: phase(server) == "Succeeded")
    statuses = [body["status"] for body in server.requests("PUT", "/resourceclaims/")]
    assert [status.get("allocation") for status in statuses] == [None, ALLOCATION]
    assert [[user["uid"] for user in status["reservedFor"]] for status in statuses] == [[], ["uid-p"]]


@pytest.mark.parametrize("users", [("other",), ("uid-p", "other"), ()])
def test_a_claim_that_is_allocated_otherwise_is_not_bound_to(
    server: StubServer, setup: Any, users: tuple[str, ...]
) -> None:
    order_with_claim(server)
    server.put(r.RESOURCE_CLAIMS, reserved_claim(GONE, *users))
    setup()
    until(lambda: phase(server) == "Failed")
    found = server.get(r.RESOURCE_CLAIMS, "ns", "c")
    assert found is not None
    assert found["status"]["allocation"] == GONE
    assert "other devices" in conditions(server)["PodBound"]["message"]


def test_fields_that_the_server_adds_are_no_other_device(server: StubServer, setup: Any) -> None:
    order_with_claim(server)
    results = [{**ALLOCATION["devices"]["results"][0], "tolerations": [{"operator": "Equal"}]}]
    stored = {"devices": {"results": results}, "allocationTimestamp": "2026-11-20T12:00:00Z"}
    server.put(r.RESOURCE_CLAIMS, reserved_claim(stored, "uid-p"))
    setup()
    until(lambda: phase(server) == "Succeeded")
    assert not server.requests("PUT", "/resourceclaims/")
