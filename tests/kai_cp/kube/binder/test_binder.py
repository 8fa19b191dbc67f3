"""From BindRequest to bound pod: steps, rollback, retries, truthful conditions, binds that wait."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kai_cp import keys
from kai_cp.kube.api import api_objects
from kai_cp.kube.api import resources as r
from kai_cp.reader.storage import SELECTED_NODE
from kai_cp_models.pods import PodKey
from tests.kai_cp.kube.binder.conftest import (
    ALLOCATION,
    Object,
    claim,
    conditions,
    fraction,
    now_bound,
    order,
    phase,
    play_reservation,
    with_volume,
)
from tests.kai_cp.kube.conftest import PATIENCE_SECONDS, until
from tests.kai_cp.kube.samples import bind, node, pod
from tests.kai_cp.kube.stub import QUICK, StubServer


def test_a_plain_pod(server: StubServer, setup: Any) -> None:
    order(server, pod("p"))
    setup()
    until(lambda: phase(server) == "Succeeded")
    found = server.get(r.PODS, "ns", "p")
    assert found is not None
    assert found["spec"]["nodeName"] == "n"
    assert found["metadata"]["annotations"][keys.RECEIVED_TYPE] == "Regular"
    assert conditions(server)["PodBound"]["status"] == "True"


def test_a_lost_answer_binds_once(server: StubServer, setup: Any) -> None:
    """The server bound the pod, and the answer was an error: the second attempt finds it bound."""
    order(server, pod("p"))

    def fault(method: str, path: str) -> tuple[int, dict[str, str]] | None:
        if method == "POST" and path.endswith("/binding"):
            server.faults = lambda _m, _p: None
            found = server.get(r.PODS, "ns", "p")
            assert found is not None
            server.put(r.PODS, {**found, "spec": {**found["spec"], "nodeName": "n"}})
            return 500, {}
        return None

    server.faults = fault
    setup()
    until(lambda: phase(server) == "Succeeded")
    assert len(server.requests("POST", "/binding")) == 2
    assert "Failed" not in str(server.requests("PATCH", "bindrequests"))


def prepared(server: StubServer, limit: int | None = None) -> None:
    """Order a fraction with a claim, whose device and allocation must outlast the bind."""
    server.put(r.RESOURCE_CLAIMS, {"metadata": {"name": "c", "namespace": "ns"}, "spec": {}})
    item = fraction("p")
    item["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "c"}]
    allocations = [{"name": "gpu", "allocation": ALLOCATION}]
    order(server, item, limit, gpu_groups=("g1",), resourceClaimAllocations=allocations)


def kept(server: StubServer) -> tuple[bool, bool, bool]:
    """Whether the pod has its GPU group, its ConfigMap and its claim."""
    found, taken = server.get(r.PODS, "ns", "p"), server.get(r.RESOURCE_CLAIMS, "ns", "c")
    assert found is not None
    assert taken is not None
    return (
        keys.GPU_GROUP in (found["metadata"].get("labels") or {}),
        server.get(r.CONFIG_MAPS, "ns", "x-0") is not None,
        bool((taken.get("status") or {}).get("allocation")),
    )


def lose(server: StubServer, answer: int, *, bind: bool = False) -> None:
    """No answer (0): bindings are made, but that is not told. Otherwise something on the way answers. With
    ``bind`` they are made all the same.
    """

    def binding(method: str, path: str) -> bool:
        return method == "POST" and path.endswith("/binding")

    def fault(method: str, path: str) -> tuple[int, dict[str, str]] | None:
        if binding(method, path) and bind:
            now_on_node(server)
        return (answer, {}) if binding(method, path) else None

    if answer:
        server.faults = fault
    else:
        server.lost = binding


def now_on_node(server: StubServer) -> None:
    found = server.get(r.PODS, "ns", "p")
    assert found is not None
    server.put(r.PODS, {**found, "spec": {**found["spec"], "nodeName": "n"}})


@pytest.mark.parametrize("answer", [0, 504])
def test_a_bound_pod_keeps_its_devices_when_all_answers_are_lost(
    server: StubServer, setup: Any, answer: int
) -> None:
    """As many answers as there are attempts: only the pod itself says that it was bound."""
    setup(resource_reservation_allocation_timeout=PATIENCE_SECONDS)
    lose(server, answer, bind=True)
    prepared(server)
    play_reservation(server, "g1")
    until(lambda: phase(server) == "Succeeded")
    assert len(server.requests("POST", "/binding")) >= QUICK.attempts
    assert kept(server) == (True, True, True)
    assert "Failed" not in str(server.requests("PATCH", "bindrequests"))


def unanswered(server: StubServer, setup: Any) -> Any:
    """A binder that has sent a binding without an answer, and waits for the pod."""
    made = setup(resource_reservation_allocation_timeout=PATIENCE_SECONDS)
    lose(server, 504)
    prepared(server)
    play_reservation(server, "g1")
    until(lambda: server.requests("GET", "/pods/p") and len(made.binder.waiting) == 1)
    return made


def test_a_binding_that_comes_late_finds_the_devices(server: StubServer, setup: Any) -> None:
    """The server was slow: it bound the pod when every attempt had been given up."""
    unanswered(server, setup)
    assert kept(server) == (True, True, True)
    now_on_node(server)
    until(lambda: phase(server) == "Succeeded")
    assert kept(server) == (True, True, True)


def test_a_binding_that_never_comes_is_undone(
    server: StubServer, setup: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kai_cp.kube.binder.binder.SETTLED_SECONDS", 0.2)
    setup(resource_reservation_allocation_timeout=PATIENCE_SECONDS)
    lose(server, 504)
    prepared(server)
    play_reservation(server, "g1")
    until(lambda: phase(server) == "Failed")
    assert kept(server) == (False, False, False)


def test_an_order_taken_back_leaves_a_pod_that_was_bound_its_devices(server: StubServer, setup: Any) -> None:
    """The binding's answers were lost, and the order was deleted before anything else was known."""
    made = unanswered(server, setup)
    made.informers.stop()
    now_on_node(server)
    looks = len(server.requests("GET", "/pods/p"))
    made.requests.remove(server.get(r.BIND_REQUESTS, "ns", "p"))
    until(lambda: len(server.requests("GET", "/pods/p")) > looks and made.binder.idle)
    assert not made.binder.waiting
    assert kept(server) == (True, True, True)


class Broken:
    """A step with a defect."""

    undone = 0
    reason = "could not convert string to float: ''"

    def prepare(self, _pod: Object, _node: Object, _request: Object) -> None:
        raise ValueError(self.reason)

    def undo(self, _pod: Object, _request: Object) -> None:
        self.undone += 1
        raise KeyError("spec")


def test_a_defect_is_a_failed_attempt(
    server: StubServer, setup: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is named, counted and undone like any other, whatever the steps raise meanwhile."""
    monkeypatch.setattr("kai_cp.kube.binder.binder.LONGEST_RETRY_SECONDS", 0.02)
    made = setup(resource_reservation_allocation_timeout=PATIENCE_SECONDS)
    broken = Broken()
    made.steps.append(broken)
    prepared(server, 2)
    play_reservation(server, "g1")

    def attempts() -> int:
        status = (server.get(r.BIND_REQUESTS, "ns", "p") or {}).get("status") or {}
        return int(status.get("failedAttempts") or 0)

    until(lambda: attempts() == 2)
    assert kept(server) == (False, False, False)
    request = server.get(r.BIND_REQUESTS, "ns", "p")
    assert request is not None
    text = "ValueError: could not convert string to float: ''"
    assert request["status"] == {"phase": "Failed", "reason": text, "failedAttempts": 2}
    assert conditions(server)["PodBound"]["message"] == text
    assert until(lambda: [e for e in server.requests("POST", "/events") if e["message"] == text])
    assert (broken.undone, made.failures) == (2, 2)
    assert not server.requests("POST", "/binding")


def test_a_long_reason_is_written_once(
    server: StubServer, setup: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was compared with what is stored, which is cut, and so written again after each attempt."""
    monkeypatch.setattr("kai_cp.kube.binder.binder.LONGEST_RETRY_SECONDS", 0.02)
    monkeypatch.setattr(Broken, "reason", "x" * 2_000)
    made = setup()
    made.steps.append(Broken())
    order(server, pod("p"), backoff_limit=3)
    until(lambda: made.failures == 3)
    until(lambda: made.binder.idle)
    assert conditions(server)["PodBound"]["message"].endswith("x" * 900)
    assert len(server.requests("PATCH", "/pods/p/status")) == 1


def test_a_late_report_is_not_written_to_a_later_order(server: StubServer, setup: Any) -> None:
    """The order was deleted and another one made for the pod while the report was on its way."""
    later: list[Object] = []

    def fault(method: str, path: str) -> tuple[int, dict[str, str]] | None:
        if method == "PATCH" and "bindrequests" in path and not later:
            request = server.get(r.BIND_REQUESTS, "ns", "p")
            assert request is not None
            meta = {**request["metadata"], "uid": "later"}
            later.append({**request, "metadata": meta, "spec": {**request["spec"], "selectedNode": "m"}})
            server.put(r.BIND_REQUESTS, later[0])
        return (403, {}) if path.endswith("/binding") else None

    server.faults = fault
    server.put(r.NODES, node("m"))
    order(server, pod("p"))
    setup()
    until(lambda: phase(server) == "Failed")
    bindings = server.requests("POST", "/binding")
    assert [body["target"]["name"] for body in bindings] == ["n", "m"]


def test_a_pod_that_is_seen_long_after_its_request(server: StubServer, setup: Any) -> None:
    """The watch of the pod hung. However late the pod is seen, it is bound then; nothing is due before."""
    setup()
    late = pod("p")
    server.put(r.BIND_REQUESTS, api_objects.bind_request(late, node("n"), bind("p", "n")))
    order(server, pod("next"))
    until(lambda: phase(server, "next") == "Succeeded")
    server.put(r.PODS, late)
    until(lambda: phase(server) == "Succeeded")


def test_a_node_that_is_seen_long_after_the_request(
    server: StubServer, setup: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kai_cp.kube.binder.binder.LOOK_SECONDS", 0.01)
    monkeypatch.setattr("kai_cp.kube.binder.binder.NODE_LOOKS", 1_000_000)
    looked = setup().retried
    order(server, pod("p"), node="late")
    assert looked.wait(PATIENCE_SECONDS)
    assert phase(server) is None
    server.put(r.NODES, node("late"))
    until(lambda: phase(server) == "Succeeded")
    assert "Failed" not in str(server.requests("PATCH", "bindrequests"))


def test_a_node_that_never_comes(server: StubServer, setup: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kai_cp.kube.binder.binder.LOOK_SECONDS", 0.01)
    setup()
    order(server, pod("p"), node="never")
    until(lambda: phase(server) == "Failed")
    assert not server.requests("POST", "/binding")


@pytest.mark.parametrize("spec", [None, {}, {"receivedResourceType": "Fraction", "selectedGPUGroups": ["g"]}])
def test_an_order_that_names_no_node(
    server: StubServer, setup: Any, monkeypatch: pytest.MonkeyPatch, spec: Object | None
) -> None:
    """KAI's definition does not require one; the binder gives the order up and carries out the next one."""
    monkeypatch.setattr("kai_cp.kube.binder.binder.LOOK_SECONDS", 0.01)
    setup()
    server.put(r.PODS, pod("p"))
    request: Object = {"metadata": {"namespace": "ns", "name": "p", "uid": "uid-of-order"}}
    server.put(r.BIND_REQUESTS, request if spec is None else {**request, "spec": spec})
    order(server, pod("next"))
    until(lambda: phase(server, "next") == "Succeeded")
    until(lambda: phase(server) == "Failed")
    assert len(server.requests("POST", "/binding")) == 1
    server.remove(r.BIND_REQUESTS, "ns", "p")
    order(server, pod("last"))
    until(lambda: phase(server, "last") == "Succeeded")


def test_a_new_binder_reports_what_the_last_one_bound(server: StubServer, setup: Any) -> None:
    """The last binder ended between the binding and its report."""
    order(server, pod("p", node="n"))
    setup()
    until(lambda: phase(server) == "Succeeded")
    assert conditions(server)["PodBound"]["status"] == "True"
    assert until(lambda: server.requests("POST", "/events"))[0]["reason"] == "Bound"
    assert server.requests("POST", "/binding") == []


def test_an_order_stays_open_until_its_report_is_written(server: StubServer, setup: Any) -> None:
    made = setup()
    refused = []

    def seen_bound() -> bool:
        return bool((made.pods.get(("ns", "p")) or {"spec": {}})["spec"].get("nodeName"))

    def fault(method: str, path: str) -> tuple[int, dict[str, str]] | None:
        if method == "PATCH" and path.endswith("/pods/p/status") and len(refused) < 5:
            until(seen_bound)
            refused.append(path)
            return 500, {}
        return None

    server.faults = fault
    order(server, pod("p"))
    until(lambda: phase(server) == "Succeeded")
    assert len(refused) == 5
    assert conditions(server)["PodBound"]["status"] == "True"
    assert len(server.requests("POST", "/binding")) == 1


def test_a_pod_bound_already(server: StubServer, setup: Any) -> None:
    order(server, pod("p", node="elsewhere"))
    setup()
    until(lambda: phase(server) == "Succeeded")
    assert server.requests("POST", "/binding") == []


def test_the_first_failure_is_final_by_default(server: StubServer, setup: Any) -> None:
    server.faults = lambda m, p: (403, {}) if p.endswith("/binding") else None
    order(server, pod("p"))
    made = setup()
    until(lambda: phase(server) == "Failed")
    request = server.get(r.BIND_REQUESTS, "ns", "p")
    assert request is not None
    assert request["status"]["failedAttempts"] == 1
    bound = conditions(server)["PodBound"]
    assert (bound["status"], bound["reason"]) == ("False", "BindingError")
    until(lambda: made.binder.idle)
    assert len(server.requests("POST", "/binding")) == 1


def test_retries_are_stored(server: StubServer, setup: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kai_cp.kube.binder.binder.LONGEST_RETRY_SECONDS", 0.05)
    server.faults = lambda m, p: (403, {}) if p.endswith("/binding") else None
    order(server, pod("p"), backoff_limit=3)
    made = setup()

    def attempts() -> int:
        status = (server.get(r.BIND_REQUESTS, "ns", "p") or {}).get("status") or {}
        return int(status.get("failedAttempts") or 0)

    until(lambda: attempts() == 3)
    until(lambda: made.binder.idle)
    assert len(server.requests("POST", "/binding")) == 3


def test_a_failure_that_could_not_be_written_is_tried_again(
    server: StubServer, setup: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kai_cp.kube.api.workqueue.FIRST_SECONDS", 0.02)
    refused = []

    def fault(method: str, path: str) -> tuple[int, dict[str, str]] | None:
        if method == "PATCH" and "bindrequests" in path and len(refused) < 5:
            refused.append(path)
            return 500, {}
        return (403, {}) if path.endswith("/binding") else None

    server.faults = fault
    order(server, pod("p"))
    setup()
    until(lambda: phase(server) == "Failed")
    assert len(refused) == 5


def test_a_request_of_an_earlier_pod_is_left_alone(server: StubServer, setup: Any) -> None:
    order(server, pod("p"))
    server.put(r.PODS, {**pod("p"), "metadata": {**pod("p")["metadata"], "uid": "later"}})
    made = setup()
    until(lambda: made.binder.idle)
    assert server.requests("POST", "/binding") == []


HOSTILE = ("evil", "vile", "wicked")
WAITS = {"metadata": {"name": "slow"}, "provisioner": "x", "volumeBindingMode": "WaitForFirstConsumer"}


def order_in(server: StubServer, namespace: str, item: Object, **details: Any) -> None:
    """An order for a pod of another namespace."""
    item["metadata"]["namespace"] = namespace
    name = item["metadata"]["name"]
    decision = replace(bind(name, "n", **details), pod=PodKey(namespace, name))
    server.put(r.BIND_REQUESTS, api_objects.bind_request(server.put(r.PODS, item), node("n"), decision))


def bound(server: StubServer, namespace: str, name: str) -> bool:
    return bool((server.get(r.PODS, namespace, name) or {"spec": {}})["spec"].get("nodeName"))


@pytest.mark.parametrize("waiting", [1, 60])
def test_binds_that_wait_hold_no_thread(server: StubServer, setup: Any, waiting: int) -> None:
    """However many binds wait, in however many namespaces, one thread carries out all others."""
    server.put(r.STORAGE_CLASSES, WAITS)
    for namespace in HOSTILE:
        data = {**claim(), "metadata": {"name": "data", "namespace": namespace}}
        server.put(r.VOLUME_CLAIMS, data)
    made = setup(
        max_concurrent_reconciles=1,
        volume_binding_timeout_seconds=PATIENCE_SECONDS,
        resource_reservation_allocation_timeout=PATIENCE_SECONDS,
    )
    for i in range(waiting):
        for namespace in HOSTILE:
            order_in(server, namespace, with_volume(f"volume-{i}"))
            shared = fraction(f"shared-{i}", **{keys.SHARED_GPU_CONFIG: f"x{i}"})
            order_in(server, namespace, shared, gpu_groups=(f"{namespace}-{i}",))
    until(lambda: len(made.binder.waiting) == 6 * waiting)
    for i in range(3):
        order_in(server, "victim", pod(f"p-{i}"))
        until(lambda i=i: bound(server, "victim", f"p-{i}"))
    assert len(made.binder.waiting) == 6 * waiting
    assert not any(bound(server, space, f"volume-{waiting - 1}") for space in HOSTILE)
    found = server.get(r.VOLUME_CLAIMS, "evil", "data")
    assert found is not None
    server.put(r.VOLUME_CLAIMS, now_bound(found))
    until(lambda: all(bound(server, "evil", f"volume-{i}") for i in range(waiting)))
    assert len(made.binder.waiting) == 5 * waiting


def test_an_event_before_the_bind_was_parked_is_not_missed(server: StubServer, setup: Any) -> None:
    """The claim is bound between the look of the step and its wait."""
    server.put(r.STORAGE_CLASSES, WAITS)
    server.put(r.VOLUME_CLAIMS, claim())
    made = setup(volume_binding_timeout_seconds=PATIENCE_SECONDS)
    volumes = made.steps[1]

    class Late:
        """The step, and what happens right after its first look."""

        looks = 0

        def prepare(self, item: Object, on: Object, request: Object) -> None:
            try:
                volumes.prepare(item, on, request)
            finally:
                self.looks += 1
                if self.looks == 1:
                    found = server.get(r.VOLUME_CLAIMS, "ns", "data")
                    assert found is not None
                    server.put(r.VOLUME_CLAIMS, now_bound(found))
                    until(lambda: made.claim_is_bound())

        def undo(self, item: Object, request: Object) -> None:
            volumes.undo(item, request)

    made.steps[1] = Late()
    order(server, with_volume("p"))
    until(lambda: phase(server) == "Succeeded")


def test_an_order_that_is_taken_back_while_it_waits_is_undone(server: StubServer, setup: Any) -> None:
    server.put(r.STORAGE_CLASSES, WAITS)
    server.put(r.VOLUME_CLAIMS, claim())
    made = setup(volume_binding_timeout_seconds=PATIENCE_SECONDS)
    order(server, with_volume("p"))

    def selected() -> bool:
        found = server.get(r.VOLUME_CLAIMS, "ns", "data")
        return SELECTED_NODE in ((found or {})["metadata"].get("annotations") or {})

    until(lambda: selected() and len(made.binder.waiting) == 1)
    server.remove(r.BIND_REQUESTS, "ns", "p")
    until(lambda: not selected())
    assert len(made.binder.waiting) == 0


def test_a_pod_waits_for_all_its_devices_at_once(server: StubServer, setup: Any) -> None:
    """The reservation of the second GPU does not wait until the first one has named its device."""
    order(server, fraction("p"), gpu_groups=("g1", "g2"))
    setup(resource_reservation_allocation_timeout=PATIENCE_SECONDS)
    play_reservation(server, "g2")
    play_reservation(server, "g1")
    until(lambda: phase(server) == "Succeeded")
    config = server.get(r.CONFIG_MAPS, "ns", "x-0-evar")
    assert config is not None
    assert config["data"]["NVIDIA_VISIBLE_DEVICES"] == "GPU-g1,GPU-g2"
