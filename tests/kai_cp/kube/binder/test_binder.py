"""From BindRequest to bound pod: steps, rollback, retries, truthful conditions."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest

from kai_cp.kube.api import api_objects, names
from kai_cp.kube.api import resources as r
from kai_cp.kube.api.background import BackgroundWriter
from kai_cp.kube.api.errors import ApiError
from kai_cp.kube.api.informers import Informers
from kai_cp.kube.api.recorder import Recorder
from kai_cp.kube.api.store import Store
from kai_cp.kube.binder.binder import Binder
from kai_cp.kube.binder.claims import FINALIZER, Claims
from kai_cp.kube.binder.extended_claims import MARK, ExtendedClaims, claim_name
from kai_cp.kube.binder.options import BinderOptions
from kai_cp.kube.binder.process import followed
from kai_cp.kube.binder.reservation import GpuReservations, reservation_name
from kai_cp.kube.binder.sharing import Sharing
from kai_cp.kube.binder.steps import Awaits, BindError, BindStep
from kai_cp.kube.binder.volumes import Volumes
from kai_cp.reader.storage import SELECTED_NODE
from kai_cp_models.pods import PodKey
from tests.kai_cp.kube.conftest import PATIENCE_SECONDS, until
from tests.kai_cp.kube.samples import bind, node, pod
from tests.kai_cp.kube.stub import StubServer

Object = dict[str, Any]


class Setup:
    def __init__(self, server: StubServer, **options: Any) -> None:
        self.server = server
        api = server.transport("binder")
        self.options = BinderOptions(
            **{
                "resource_reservation_allocation_timeout": 0.5,
                "volume_binding_timeout_seconds": 0.5,
                **options,
            }
        )
        self.informers = Informers(api)
        stores = followed(self.informers)
        self.writer = BackgroundWriter(1)
        recorder = Recorder(api, self.writer, "binder")
        self.reservations = GpuReservations(api, stores[r.PODS], stores[r.BIND_REQUESTS], self.options)
        claims = Claims(api)
        steps: list[BindStep] = [
            Sharing(api, stores[r.PODS], self.reservations, recorder, self.options),
            Volumes(api, stores[r.VOLUME_CLAIMS], stores[r.VOLUMES], stores[r.STORAGE_CLASSES], self.options),
            claims,
            ExtendedClaims(api, stores[r.PODS], claims),
        ]
        self.steps: list[BindStep] = steps
        self.claims = stores[r.VOLUME_CLAIMS]
        self.retried = threading.Event()
        self.binder = Binder(
            api,
            stores[r.PODS],
            stores[r.NODES],
            stores[r.BIND_REQUESTS],
            steps,
            recorder=recorder,
            writer=self.writer,
            retried=self.retried.set,
            workers=self.options.max_concurrent_reconciles,
        )
        self.writer.busy = lambda: False
        self.informers.start()
        until(lambda: not self.informers.missing())
        self.binder.start(lambda: None)

    def claim_is_bound(self) -> bool:
        """Whether the binder has seen the claim bound."""
        found = self.claims.get(("ns", "data"))
        return found is not None and found["status"]["phase"] == "Bound"

    def close(self) -> None:
        self.informers.stop()
        self.binder.stop()
        self.writer.stop()


@pytest.fixture
def setup(server: StubServer) -> Any:
    server.put(r.NODES, node("n"))
    made: list[Setup] = []

    def start(**options: Any) -> Setup:
        made.append(Setup(server, **options))
        return made[-1]

    yield start
    for entry in made:
        entry.close()


def order(server: StubServer, item: Object, backoff_limit: int | None = None, **details: Any) -> None:
    """A pod and the BindRequest for it."""
    made = server.put(r.PODS, item)
    groups = details.pop("gpu_groups", ())
    decision = bind(item["metadata"]["name"], details.pop("node", "n"), gpu_groups=groups, details=details)
    request = api_objects.bind_request(made, node("n"), decision)
    if backoff_limit is not None:
        request["spec"]["backoffLimit"] = backoff_limit
    server.put(r.BIND_REQUESTS, request)


def phase(server: StubServer, name: str = "p") -> str | None:
    request = server.get(r.BIND_REQUESTS, "ns", name)
    return ((request or {}).get("status") or {}).get("phase")


def conditions(server: StubServer, name: str = "p") -> Object:
    found = server.get(r.PODS, "ns", name)
    assert found is not None
    return {c["type"]: c for c in found["status"].get("conditions") or ()}


def test_a_plain_pod(server: StubServer, setup: Any) -> None:
    order(server, pod("p"))
    setup()
    until(lambda: phase(server) == "Succeeded")
    found = server.get(r.PODS, "ns", "p")
    assert found is not None
    assert found["spec"]["nodeName"] == "n"
    assert found["metadata"]["annotations"][names.RECEIVED_TYPE] == "Regular"
    assert until(lambda: conditions(server).get("PodBound"))["status"] == "True"


def test_a_lost_answer_binds_once(server: StubServer, setup: Any) -> None:
    """The server bound the pod, and the answer was an error: the second attempt finds it bound."""
    setup()
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
    until(lambda: phase(server) == "Succeeded")
    assert "Failed" not in str(server.requests("PATCH", "bindrequests"))


def test_a_pod_that_is_seen_long_after_its_request(server: StubServer, setup: Any) -> None:
    """The watch of the pod hung. However late the pod is seen, it is bound then; nothing is due before."""
    setup()
    late = server.put(r.PODS, pod("p"))
    server.remove(r.PODS, "ns", "p")
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


def test_a_new_binder_reports_what_the_last_one_bound(server: StubServer, setup: Any) -> None:
    """The last binder ended between the binding and its report."""
    order(server, pod("p", node="n"))
    setup()
    until(lambda: phase(server) == "Succeeded")
    assert conditions(server)["PodBound"]["status"] == "True"
    assert until(lambda: server.requests("POST", "/events"))[0]["reason"] == "Bound"
    assert server.requests("POST", "/binding") == []


def test_an_order_stays_open_until_its_report_is_written(server: StubServer, setup: Any) -> None:
    refused = []

    def fault(method: str, path: str) -> tuple[int, dict[str, str]] | None:
        if method == "PATCH" and path.endswith("/pods/p/status") and len(refused) < 5:
            refused.append(path)
            return 500, {}
        return None

    server.faults = fault
    order(server, pod("p"))
    setup()
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
    setup()
    until(lambda: phase(server) == "Failed")
    request = server.get(r.BIND_REQUESTS, "ns", "p")
    assert request is not None
    assert request["status"]["failedAttempts"] == 1
    bound = until(lambda: conditions(server).get("PodBound"))
    assert (bound["status"], bound["reason"]) == ("False", "BindingError")
    time.sleep(0.3)
    assert len(server.requests("POST", "/binding")) == 1


def test_retries_are_stored(server: StubServer, setup: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kai_cp.kube.binder.binder.LONGEST_RETRY_SECONDS", 0.05)
    server.faults = lambda m, p: (403, {}) if p.endswith("/binding") else None
    order(server, pod("p"), backoff_limit=3)
    setup()

    def attempts() -> int:
        status = (server.get(r.BIND_REQUESTS, "ns", "p") or {}).get("status") or {}
        return int(status.get("failedAttempts") or 0)

    until(lambda: attempts() == 3)
    time.sleep(0.3)
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
    setup()
    time.sleep(0.3)
    assert server.requests("POST", "/binding") == []


def fraction(name: str, **annotations: str) -> Object:
    return pod(
        name, gpus=0, annotations={"gpu-fraction": "0.25", "runai/shared-gpu-configmap": "x", **annotations}
    )


def play_reservation(server: StubServer, group: str) -> None:
    """Play the program in the reservation pod."""
    name = reservation_name("n", group)
    found = until(lambda: server.get(r.PODS, "kai-resource-reservation", name))
    meta = {**found["metadata"], "annotations": {names.RESERVED_DEVICE: f"GPU-{group}"}}
    server.put(r.PODS, {**found, "metadata": meta, "status": {"phase": "Running"}})


def test_a_fraction_gets_its_device(server: StubServer, setup: Any) -> None:
    order(server, fraction("p"), gpu_groups=("g1",))
    setup(resource_reservation_allocation_timeout=PATIENCE_SECONDS, hami_core_enabled=True)
    play_reservation(server, "g1")
    until(lambda: phase(server) == "Succeeded")
    found = server.get(r.PODS, "ns", "p")
    assert found is not None
    assert found["metadata"]["labels"][names.GPU_GROUP] == "g1"
    config, variables = server.get(r.CONFIG_MAPS, "ns", "x-0"), server.get(r.CONFIG_MAPS, "ns", "x-0-evar")
    assert config is not None
    assert variables is not None
    assert config["data"] == {"GPU_PORTION": "0.25", "RUNAI_NUM_OF_GPUS": "0.25"}
    assert variables["data"] == {"NVIDIA_VISIBLE_DEVICES": "GPU-g1", "CUDA_DEVICE_MEMORY_LIMIT": "20480m"}
    reservation = server.get(r.PODS, "kai-resource-reservation", reservation_name("n", "g1"))
    assert reservation is not None
    assert reservation["spec"]["nodeName"] == "n"
    assert reservation["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "1"


@pytest.mark.parametrize(
    ("annotations", "groups", "limits"),
    [
        ({"mps": "true"}, ("g1",), {"threads": "25", "memory": "0=20480M"}),
        (
            {"mps": "true", "gpu-fraction-num-devices": "2"},
            ("g1", "g2"),
            {"threads": "25", "memory": "0=20480M,1=20480M"},
        ),
        ({"mps": "false"}, ("g1",), {}),
        ({}, ("g1",), {}),
    ],
)
def test_an_mps_client_is_held_to_its_share(
    server: StubServer, setup: Any, annotations: dict[str, str], groups: tuple[str, ...], limits: Object
) -> None:
    order(server, fraction("p", **annotations), gpu_groups=groups)
    setup(resource_reservation_allocation_timeout=PATIENCE_SECONDS, mps_limits=True)
    for name in groups:
        play_reservation(server, name)
    until(lambda: phase(server) == "Succeeded")
    variables = server.get(r.CONFIG_MAPS, "ns", "x-0-evar")
    assert variables is not None
    told = {key: value for key, value in variables["data"].items() if key.startswith("CUDA_MPS")}
    named = {
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": limits.get("threads"),
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": limits.get("memory"),
    }
    assert told == {key: value for key, value in named.items() if value is not None}


def test_without_the_flag_an_mps_client_has_no_limits_as_with_kai(server: StubServer, setup: Any) -> None:
    order(server, fraction("p", mps="true"), gpu_groups=("g1",))
    setup(resource_reservation_allocation_timeout=PATIENCE_SECONDS)
    play_reservation(server, "g1")
    until(lambda: phase(server) == "Succeeded")
    variables = server.get(r.CONFIG_MAPS, "ns", "x-0-evar")
    assert variables is not None
    assert variables["data"] == {"NVIDIA_VISIBLE_DEVICES": "GPU-g1"}


def test_a_limit_needs_the_size_of_the_gpu(server: StubServer, setup: Any) -> None:
    bare = node("n")
    del bare["metadata"]["labels"]["nvidia.com/gpu.memory"]
    server.put(r.NODES, bare)
    order(server, fraction("p", mps="true"), gpu_groups=("g1",))
    setup(resource_reservation_allocation_timeout=PATIENCE_SECONDS, mps_limits=True)
    play_reservation(server, "g1")
    until(lambda: phase(server) == "Failed")
    request = server.get(r.BIND_REQUESTS, "ns", "p")
    assert request is not None
    assert "no label nvidia.com/gpu.memory" in request["status"]["reason"]


def test_mps_on_whole_gpus_gets_an_event(server: StubServer, setup: Any) -> None:
    order(server, pod("p", annotations={"mps": "true"}))
    setup()
    until(lambda: phase(server) == "Succeeded")
    until(lambda: "MpsWithoutFraction" in [e["reason"] for e in server.requests("POST", "/events")])


def test_a_reservation_that_names_no_device_is_rolled_back(server: StubServer, setup: Any) -> None:
    order(server, fraction("p"), gpu_groups=("g1",))
    setup()
    until(lambda: phase(server) == "Failed")
    found = server.get(r.PODS, "ns", "p")
    assert found is not None
    assert names.GPU_GROUP not in found["metadata"]["labels"]
    request = server.get(r.BIND_REQUESTS, "ns", "p")
    assert request is not None
    assert "named no device" in request["status"]["reason"]


def test_a_failing_bind_takes_labels_and_config_maps_back(server: StubServer, setup: Any) -> None:
    server.faults = lambda m, p: (403, {}) if p.endswith("/binding") else None
    order(server, fraction("p"), gpu_groups=("g1",))
    setup(resource_reservation_allocation_timeout=PATIENCE_SECONDS)
    play_reservation(server, "g1")
    until(lambda: phase(server) == "Failed")
    found = server.get(r.PODS, "ns", "p")
    assert found is not None
    assert names.GPU_GROUP not in found["metadata"]["labels"]
    assert server.get(r.CONFIG_MAPS, "ns", "x-0") is None


def test_sharers_without_a_reservation_are_deleted(server: StubServer, setup: Any) -> None:
    server.put(r.PODS, pod("lost", node="n", phase="Running", labels={names.GPU_GROUP: "g9"}))
    made = setup()
    made.reservations.sync("n")
    until(lambda: "deletionTimestamp" in (server.get(r.PODS, "ns", "lost") or {"metadata": {}})["metadata"])


class WithoutList(Store):
    """A store with too many objects to look at all of them."""

    def all(self) -> list[Object]:
        raise AssertionError("all objects are looked at")


def test_sharing_looks_at_the_pods_of_its_node_alone() -> None:
    """Otherwise each bind of a fraction would cost as much as there are pods of all tenants."""
    pods, requests, api, options = WithoutList(), WithoutList(), Mock(), BinderOptions()
    reservations = GpuReservations(api, pods, requests, options)
    for name, where in (("here", "n"), ("there", "m")):
        lost = pod(name, node=where, phase="Running", labels={names.GPU_GROUP: "g9"})
        pods.put({**lost, "metadata": {**lost["metadata"], "uid": name}})
    reservations.sync("n")
    assert [call.args[2] for call in api.delete.call_args_list] == ["here"]
    api.create.side_effect = ApiError(409, "AlreadyExists", "it is there")
    with pytest.raises(Awaits):
        reservations.acquire(pod("p"), "n", ["g1"])
    scaling = pod("s", labels={"app": names.SCALING_APP})
    pods.put({**scaling, "metadata": {**scaling["metadata"], "namespace": options.scale_adjust_namespace}})
    with pytest.raises(BindError, match="scaling pod"):
        reservations.acquire(pod("p"), "n", ["g1"])


def now_bound(found: Object) -> Object:
    """The claim once it has a volume."""
    return {**found, "spec": {**found["spec"], "volumeName": "v"}, "status": {"phase": "Bound"}}


def claim(kind: str = "slow") -> Object:
    return {
        "metadata": {"name": "data", "namespace": "ns"},
        "spec": {
            "storageClassName": kind,
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
        "status": {"phase": "Pending"},
    }


def with_volume(name: str) -> Object:
    item = pod(name)
    item["spec"]["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
    return item


def test_a_volume_is_asked_for_and_waited_for(server: StubServer, setup: Any) -> None:
    waits = {"metadata": {"name": "slow"}, "provisioner": "x", "volumeBindingMode": "WaitForFirstConsumer"}
    server.put(r.STORAGE_CLASSES, waits)
    server.put(r.VOLUME_CLAIMS, claim())
    order(server, with_volume("p"))
    setup(volume_binding_timeout_seconds=5.0)

    def selected() -> bool:
        found = server.get(r.VOLUME_CLAIMS, "ns", "data")
        return ((found or {})["metadata"].get("annotations") or {}).get(SELECTED_NODE) == "n"

    until(selected)
    assert server.requests("POST", "/binding") == []
    found = server.get(r.VOLUME_CLAIMS, "ns", "data")
    assert found is not None
    server.put(r.VOLUME_CLAIMS, now_bound(found))
    until(lambda: phase(server) == "Succeeded")


def test_a_volume_that_never_comes(server: StubServer, setup: Any) -> None:
    waits = {"metadata": {"name": "slow"}, "provisioner": "x", "volumeBindingMode": "WaitForFirstConsumer"}
    server.put(r.STORAGE_CLASSES, waits)
    server.put(r.VOLUME_CLAIMS, claim())
    order(server, with_volume("p"))
    setup()
    until(lambda: phase(server) == "Failed")
    found = server.get(r.VOLUME_CLAIMS, "ns", "data")
    assert found is not None
    assert SELECTED_NODE not in found["metadata"]["annotations"]


def test_a_local_volume_of_the_node_is_taken(server: StubServer, setup: Any) -> None:
    server.put(
        r.STORAGE_CLASSES,
        {
            "metadata": {"name": "local"},
            "provisioner": "kubernetes.io/no-provisioner",
            "volumeBindingMode": "WaitForFirstConsumer",
        },
    )
    for name, size in (("big", "9Gi"), ("fits", "2Gi"), ("small", "1Mi")):
        server.put(
            r.VOLUMES,
            {
                "metadata": {"name": name, "labels": {"disk": "fast"}},
                "spec": {
                    "storageClassName": "local",
                    "accessModes": ["ReadWriteOnce"],
                    "capacity": {"storage": size},
                },
            },
        )
    for name, spec, volume_phase in (
        ("failed", {"capacity": {"storage": "1Gi"}}, "Failed"),
        ("unreadable", {"capacity": {"storage": []}}, "Available"),
        ("without-label", {"capacity": {"storage": "1Gi"}}, "Available"),
    ):
        fields = {"storageClassName": "local", "accessModes": ["ReadWriteOnce"], **spec}
        labels = {"labels": {"disk": "fast"}} if name != "without-label" else {}
        server.put(
            r.VOLUMES,
            {"metadata": {"name": name, **labels}, "spec": fields, "status": {"phase": volume_phase}},
        )
    wanted = claim("local")
    wanted["spec"]["selector"] = {"matchLabels": {"disk": "fast"}}
    server.put(r.VOLUME_CLAIMS, wanted)
    order(server, with_volume("p"))
    setup()
    until(lambda: "claimRef" in (server.get(r.VOLUMES, "", "fits") or {"spec": {}})["spec"])
    untouched = server.get(r.VOLUMES, "", "big")
    assert untouched is not None
    assert "claimRef" not in untouched["spec"]


def with_claim(name: str) -> Object:
    item = pod(name, gpus=0)
    item["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "c"}]
    return item


ALLOCATION = {"devices": {"results": [{"request": "r", "driver": "gpu.x", "pool": "n", "device": "d0"}]}}


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
            order_in(server, namespace, fraction(f"shared-{i}"), gpu_groups=(f"{namespace}-{i}",))
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
