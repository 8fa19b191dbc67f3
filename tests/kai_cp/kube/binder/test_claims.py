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
