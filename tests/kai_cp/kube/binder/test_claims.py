"""Resource claims of a pod: allocated, reserved and given back, synthetic ones too."""

from __future__ import annotations

import re
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
from tests.kai_cp.kube.stub import QUICK, StubServer


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


@pytest.mark.parametrize("end", [".", "-", "..", "a"])
def test_the_claim_of_a_pod_with_a_long_name_has_a_name(end: str) -> None:
    """Where a name is cut, a part of it may end that may not: no server takes ``a.-extended-resources``."""
    name = claim_name({"metadata": {"name": f"{'a' * (220 - len(end))}{end}b", "uid": "0-12345"}})
    assert len(name) <= 253
    assert all(re.fullmatch("[a-z0-9]([-a-z0-9]*[a-z0-9])?", part) for part in name.split("."))


def test_a_claim_is_removed_when_the_bind_fails(server: StubServer, setup: Any) -> None:
    server.faults = lambda m, p: (403, {}) if p.endswith("/binding") else None
    order(server, pod("p", gpus=0), extendedResourceClaimAllocation={"allocation": ALLOCATION})
    setup()
    until(lambda: phase(server) == "Failed")
    found = server.get(r.PODS, "ns", "p")
    assert found is not None
    assert server.get(r.RESOURCE_CLAIMS, "ns", claim_name(found)) is None


@pytest.mark.parametrize("named", [True, False])
def test_a_pod_that_names_a_claim_of_an_earlier_order_gets_one_without_devices(
    server: StubServer, setup: Any, named: bool
) -> None:
    """The kubelet reads the claim that the status names, and that name stays. The pod was undone on a node
    whose devices are claimed, and is now bound where a device plugin has them.
    """
    item = pod("p", gpus=0)
    if named:
        item["status"]["extendedResourceClaimStatus"] = {"resourceClaimName": claim_name(item)}
    order(server, item)
    setup()
    until(lambda: phase(server) == "Succeeded")
    made = server.get(r.RESOURCE_CLAIMS, "ns", claim_name(item))
    if not named:
        assert made is None
        return
    assert made is not None
    assert made["spec"] == {"devices": {"requests": []}}
    assert made["status"]["allocation"] == {"devices": {}}
    assert [user["uid"] for user in made["status"]["reservedFor"]] == ["uid-p"]


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


KAI = {"scheduler_name": "kai-scheduler"}


def claim_now(server: StubServer, name: str = "c") -> Object:
    found = server.get(r.RESOURCE_CLAIMS, "ns", name)
    assert found is not None
    return found


def left_by_an_earlier_leader(server: StubServer) -> Object:
    """A pod without an order that holds a claim, and the claim of its extended resource; returns the pod."""
    server.put(r.RESOURCE_CLAIMS, reserved_claim(GONE, "uid-p"))
    item = with_claim("p")
    extended = reserved_claim(GONE, "uid-p")
    extended["metadata"]["name"] = claim_name(item)
    server.put(r.RESOURCE_CLAIMS, extended)
    item["status"]["extendedResourceClaimStatus"] = {"resourceClaimName": claim_name(item)}
    return server.put(r.PODS, item)


def test_a_new_leader_gives_back_what_no_order_is_for(
    server: StubServer, setup: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kai_cp.kube.binder.binder.SETTLED_SECONDS", 0.01)
    item = left_by_an_earlier_leader(server)
    made = setup(**KAI)
    until(lambda: made.binder.idle)
    assert claim_now(server)["status"] == {"reservedFor": []}
    assert server.get(r.RESOURCE_CLAIMS, "ns", claim_name(item)) is None


def bound_by_now(server: StubServer) -> None:
    """The earlier leader's binding was made, which the watch does not tell."""

    def fault(method: str, path: str) -> None:
        if method == "GET" and path.endswith("/pods/p"):
            found = server.get(r.PODS, "ns", "p")
            assert found is not None
            spec = {**found["spec"], "nodeName": "n"}
            server.hold([(r.PODS, {**found, "spec": spec, "metadata": dict(found["metadata"])})])

    server.faults = fault


def of_another_scheduler(server: StubServer) -> None:
    found = server.get(r.PODS, "ns", "p")
    assert found is not None
    server.put(r.PODS, {**found, "spec": {**found["spec"], "schedulerName": "default-scheduler"}})


def nothing(_server: StubServer) -> None:
    """Nothing happens before the binder leads."""


@pytest.mark.parametrize(
    ("before", "options"), [(bound_by_now, KAI), (of_another_scheduler, KAI), (nothing, {})]
)
def test_a_new_leader_leaves_what_may_be_needed(
    server: StubServer, setup: Any, monkeypatch: pytest.MonkeyPatch, before: Any, options: Object
) -> None:
    """Without a scheduler's name no pod is known to be ours."""
    monkeypatch.setattr("kai_cp.kube.binder.binder.SETTLED_SECONDS", 0.01)
    left_by_an_earlier_leader(server)
    before(server)
    made = setup(**options)
    until(lambda: made.binder.idle)
    assert claim_now(server)["status"]["allocation"] == GONE
    assert not server.requests("PUT", "/resourceclaims/")


def test_an_order_that_comes_first_needs_not_wait_for_that(server: StubServer, setup: Any) -> None:
    left_by_an_earlier_leader(server)
    setup(**KAI)
    order(server, with_claim("p"), resourceClaimAllocations=[{"name": "gpu", "allocation": ALLOCATION}])
    until(lambda: phase(server) == "Succeeded")
    assert claim_now(server)["status"]["allocation"] == ALLOCATION


def test_an_order_stays_open_until_its_claim_is_given_back(
    server: StubServer, setup: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kai_cp.kube.api.workqueue.FIRST_SECONDS", 0.02)
    refused: list[str] = []

    def fault(method: str, path: str) -> tuple[int, dict[str, str]] | None:
        if path.endswith("/binding"):
            return 403, {}
        if method == "PUT" and server.requests("POST", "/binding") and len(refused) < 2 * QUICK.attempts:
            refused.append(str(phase(server)))
            return 500, {}
        return None

    server.faults = fault
    order_with_claim(server)
    setup()
    until(lambda: phase(server) == "Failed")
    assert refused == ["None"] * 2 * QUICK.attempts
    assert claim_now(server)["status"] == {"reservedFor": []}
    assert len(server.requests("POST", "/binding")) == 1


def test_fields_that_the_server_adds_are_no_other_device(server: StubServer, setup: Any) -> None:
    order_with_claim(server)
    results = [{**ALLOCATION["devices"]["results"][0], "tolerations": [{"operator": "Equal"}]}]
    stored = {"devices": {"results": results}, "allocationTimestamp": "2026-11-20T12:00:00Z"}
    server.put(r.RESOURCE_CLAIMS, reserved_claim(stored, "uid-p"))
    setup()
    until(lambda: phase(server) == "Succeeded")
    assert not server.requests("PUT", "/resourceclaims/")
