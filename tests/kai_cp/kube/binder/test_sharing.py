"""Fractions of GPUs: devices, labels, ConfigMaps and limits of the pods that share them."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest

from kai_cp import keys
from kai_cp.kube.api import resources as r
from kai_cp.kube.api.errors import ApiError, NotReachable
from kai_cp.kube.api.store import Store
from kai_cp.kube.binder.options import BinderOptions
from kai_cp.kube.binder.reservation import LABEL_PREFIX, GpuReservations, reservation_name
from kai_cp.kube.binder.sharing import _configs_of
from kai_cp.kube.binder.steps import Awaits, BindError
from kai_cp.workloads.scaling import APP
from tests.kai_cp.kube.binder.conftest import (
    ALLOCATION,
    Object,
    fraction,
    order,
    phase,
    play_reservation,
)
from tests.kai_cp.kube.conftest import PATIENCE_SECONDS, until
from tests.kai_cp.kube.samples import node, pod
from tests.kai_cp.kube.stub import StubServer

SHARE = {"gpu-fraction": "0.5"}


def test_a_fraction_gets_its_device(server: StubServer, setup: Any) -> None:
    order(server, fraction("p"), gpu_groups=("g1",))
    setup(resource_reservation_allocation_timeout=PATIENCE_SECONDS, hami_core_enabled=True)
    play_reservation(server, "g1")
    until(lambda: phase(server) == "Succeeded")
    found = server.get(r.PODS, "ns", "p")
    assert found is not None
    assert found["metadata"]["labels"][keys.GPU_GROUP] == "g1"
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


@pytest.mark.parametrize("received", [None, {"count": 1}, {"count": 1, "portion": ""}, {"portion": "half"}])
@pytest.mark.parametrize("limits", [{"hami_core_enabled": True}, {"mps_limits": True}, {}])
def test_an_order_without_a_portion_is_refused_by_name(
    server: StubServer, setup: Any, received: Object | None, limits: Object
) -> None:
    order(server, fraction("p", mps="true"), gpu_groups=("g1",))
    request = server.get(r.BIND_REQUESTS, "ns", "p")
    assert request is not None
    spec = {key: value for key, value in request["spec"].items() if key != "receivedGPU"}
    server.put(r.BIND_REQUESTS, {**request, "spec": spec | ({"receivedGPU": received} if received else {})})
    setup(resource_reservation_allocation_timeout=PATIENCE_SECONDS, **limits)
    play_reservation(server, "g1")
    until(lambda: phase(server) == "Failed")
    request = server.get(r.BIND_REQUESTS, "ns", "p")
    assert request is not None
    portion = (received or {}).get("portion")
    field = "BindRequest ns/p: spec.receivedGPU.portion"
    assert request["status"]["reason"] == f"{field}: {portion!r} is not a share of a GPU"


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
    assert keys.GPU_GROUP not in found["metadata"]["labels"]
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
    assert keys.GPU_GROUP not in found["metadata"]["labels"]
    assert server.get(r.CONFIG_MAPS, "ns", "x-0") is None


def test_a_later_pod_of_the_same_name_is_left_alone(server: StubServer, setup: Any) -> None:
    """A pod of a StatefulSet may be deleted and made again while its first order waits for a device. Without
    the label of its own order nothing would keep its GPU reserved."""
    later = fraction("p")
    later["metadata"]["labels"] = {keys.GPU_GROUP: "g2"}
    later = server.put(r.PODS, later)
    first = {**later, "metadata": {**later["metadata"], "uid": "first", "labels": {}}}
    spec = {"receivedResourceType": "Fraction", "selectedGPUGroups": ["g1"], "selectedNode": "n"}
    sharing, _, _, extended = setup().steps
    sharing.undo(first, {"spec": spec})
    extended.undo(first, {"spec": {"extendedResourceClaimAllocation": {}}})
    allocation = {"deviceRequests": [{"name": "r"}], "allocation": ALLOCATION}
    with pytest.raises(BindError, match="the pod is gone"):
        extended.prepare(first, node("n"), {"spec": {"extendedResourceClaimAllocation": allocation}})
    assert server.get(r.PODS, "ns", "p") == later


def test_config_maps_of_another_pod_are_neither_written_nor_deleted(server: StubServer, setup: Any) -> None:
    """A pod made from the text of another has its annotation; its device would be told to the other."""
    order(server, fraction("first"), gpu_groups=("g1",))
    setup(resource_reservation_allocation_timeout=PATIENCE_SECONDS)
    play_reservation(server, "g1")
    until(lambda: phase(server, "first") == "Succeeded")
    before = server.get(r.CONFIG_MAPS, "ns", "x-0")
    order(server, fraction("second"), gpu_groups=("g2",))
    until(lambda: phase(server, "second") == "Failed")
    request = server.get(r.BIND_REQUESTS, "ns", "second")
    assert request is not None
    assert "names the ConfigMaps of pod first" in request["status"]["reason"]
    assert before is not None
    assert server.get(r.CONFIG_MAPS, "ns", "x-0") == before


def test_config_maps_of_a_pod_that_is_gone_become_those_of_the_next(server: StubServer, setup: Any) -> None:
    """Otherwise the garbage collector deletes them for the sake of the first, and the next never starts."""
    gone = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "gone"}
    for name in ("x-0", "x-0-evar"):
        meta = {"name": name, "namespace": "ns", "ownerReferences": [gone]}
        server.put(r.CONFIG_MAPS, {"metadata": meta, "data": {}})
    order(server, fraction("p"), gpu_groups=("g1",))
    setup(resource_reservation_allocation_timeout=PATIENCE_SECONDS)
    play_reservation(server, "g1")
    until(lambda: phase(server) == "Succeeded")
    pod_now, config = server.get(r.PODS, "ns", "p"), server.get(r.CONFIG_MAPS, "ns", "x-0")
    assert pod_now is not None
    assert config is not None
    assert [one["uid"] for one in config["metadata"]["ownerReferences"]] == [pod_now["metadata"]["uid"]]


@pytest.mark.parametrize("groups", [("c",), ("c", "d")])
def test_labels_of_an_order_that_was_taken_back_go(
    server: StubServer, setup: Any, groups: tuple[str, ...]
) -> None:
    """A binder that led before had labelled the pod, and none led when the order went."""
    item = fraction("p", **{"gpu-fraction-num-devices": str(len(groups))})
    item["metadata"]["labels"] |= {f"{LABEL_PREFIX}a": "a", f"{LABEL_PREFIX}b": "b", keys.GPU_GROUP: "a"}
    order(server, item, gpu_groups=groups)
    setup(resource_reservation_allocation_timeout=PATIENCE_SECONDS)
    for group in groups:
        play_reservation(server, group)
    until(lambda: phase(server) == "Succeeded")
    found = server.get(r.PODS, "ns", "p")
    assert found is not None
    labels = {key: value for key, value in found["metadata"]["labels"].items() if keys.GPU_GROUP in key}
    single, several = {keys.GPU_GROUP: "c"}, {f"{LABEL_PREFIX}{group}": group for group in groups}
    assert labels == (single if len(groups) == 1 else several)


def test_labels_without_an_order_go_with_a_new_leader(
    server: StubServer, setup: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kai_cp.kube.binder.binder.SETTLED_SECONDS", 0.01)
    item = fraction("p", **{"gpu-fraction-num-devices": "2"})
    item["metadata"]["labels"] |= {f"{LABEL_PREFIX}a": "a", f"{LABEL_PREFIX}b": "b", "mine": "x"}
    server.put(r.PODS, item)
    server.put(r.CONFIG_MAPS, {"metadata": {"name": "x-0", "namespace": "ns"}})
    made = setup(scheduler_name="kai-scheduler")
    until(lambda: made.binder.idle)
    found = server.get(r.PODS, "ns", "p")
    assert found is not None
    assert found["metadata"]["labels"] == {"mine": "x"}
    assert server.get(r.CONFIG_MAPS, "ns", "x-0") is None


def test_an_annotation_deletes_nothing_of_others(
    server: StubServer, setup: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an earlier leader may have prepared is undone, and the owner says what that is."""
    monkeypatch.setattr("kai_cp.kube.binder.binder.SETTLED_SECONDS", 0.01)
    victim = {**pod("victim"), "metadata": {**pod("victim")["metadata"], "namespace": "other"}}
    server.put(r.PODS, victim)
    prefix = "../../other/pods/victim?x="
    item = fraction("p", **{keys.SHARED_GPU_CONFIG: prefix})
    item["metadata"]["labels"] |= {keys.GPU_GROUP: "a"}
    server.put(r.PODS, item)
    made = setup(scheduler_name="kai-scheduler")
    until(lambda: made.binder.idle)
    assert server.get(r.PODS, "other", "victim") is not None
    assert not server.requests("DELETE", "other")


def test_a_long_annotation_is_not_remembered() -> None:
    """Ten thousand pods may be, also after they are gone."""
    item = fraction("p", **{keys.SHARED_GPU_CONFIG: "x" * 200_000})
    assert len(_configs_of(item)) < 400


def test_a_pod_of_whole_gpus_keeps_nobodys_gpu_reserved(server: StubServer, setup: Any) -> None:
    """Its owner wrote the label before it was bound."""
    order(server, pod("p", labels={keys.GPU_GROUP: "g1", f"{LABEL_PREFIX}g2": "g2", "mine": "x"}))
    setup()
    until(lambda: phase(server) == "Succeeded")
    found = server.get(r.PODS, "ns", "p")
    assert found is not None
    assert found["metadata"]["labels"] == {"mine": "x"}


@pytest.mark.parametrize(
    ("scheduler", "asks", "counts"),
    [("kai-scheduler", SHARE, True), ("kai-scheduler", {}, False), ("default-scheduler", SHARE, False)],
)
def test_a_label_alone_keeps_no_gpu_reserved(scheduler: str, asks: dict[str, str], counts: bool) -> None:
    pods, api, options = Store(), Mock(), BinderOptions(scheduler_name="kai-scheduler")
    reservations = GpuReservations(api, pods, Store(), options)
    name = reserved(pods, "g1", options)
    item = pod("p", node="n", phase="Running", labels={keys.GPU_GROUP: "g1"}, annotations=asks)
    pods.put({**item, "spec": {**item["spec"], "schedulerName": scheduler}})
    api.delete.return_value = None
    reservations.sync("n")
    assert [call.args[2] for call in api.delete.call_args_list] == ([] if counts else [name])


def test_sharers_without_a_reservation_are_deleted(server: StubServer, setup: Any) -> None:
    server.put(
        r.PODS, pod("lost", node="n", phase="Running", labels={keys.GPU_GROUP: "g9"}, annotations=SHARE)
    )
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
        lost = pod(name, node=where, phase="Running", labels={keys.GPU_GROUP: "g9"}, annotations=SHARE)
        pods.put({**lost, "metadata": {**lost["metadata"], "uid": name}})
    api.delete.return_value = None
    reservations.sync("n")
    assert [call.args[2] for call in api.delete.call_args_list] == ["here"]
    api.create.side_effect = ApiError(409, "AlreadyExists", "it is there")
    with pytest.raises(Awaits):
        reservations.acquire("n", ["g1"])


def test_a_scaling_pod_holds_no_bind_up() -> None:
    """It may wait for ever: a pod of any tenant that fits no node has one."""
    pods, api, options = Store(), Mock(), BinderOptions()
    scaling = pod("s", labels={"app": APP})
    pods.put({**scaling, "metadata": {**scaling["metadata"], "namespace": keys.SCALING_NAMESPACE}})
    with pytest.raises(Awaits):
        GpuReservations(api, pods, Store(), options).acquire("n", ["g1"])
    assert api.create.call_count == 1


def test_a_reservation_that_the_kubelet_refuses_is_made_again(server: StubServer, setup: Any) -> None:
    """Another pod, such as a scaling pod, took the GPU first, and has ended meanwhile."""
    order(server, fraction("p"), gpu_groups=("g1",))
    setup(resource_reservation_allocation_timeout=PATIENCE_SECONDS)
    where = ("kai-resource-reservation", reservation_name("n", "g1"))
    first = until(lambda: server.get(r.PODS, *where))
    server.put(r.PODS, {**first, "status": {"phase": "Failed", "reason": "UnexpectedAdmissionError"}})
    until(lambda: "deletionTimestamp" in (server.get(r.PODS, *where) or {"metadata": {}})["metadata"])
    server.remove(r.PODS, *where)
    play_reservation(server, "g1")
    until(lambda: phase(server) == "Succeeded")


@pytest.mark.parametrize("first", ["Running", "Failed"])
def test_a_node_is_looked_at_when_a_reservation_has_ended(first: str) -> None:
    """It may end before the first look at it."""
    pods, options, synced = Store(), BinderOptions(), list[str]()
    GpuReservations(Mock(), pods, Store(), options).watch_departures(synced.append)
    reserved(pods, "g1", options, phase=first)
    reserved(pods, "g1", options, phase="Failed")
    assert synced == ["n"]


def test_a_reservation_that_has_ended_is_deleted_and_so_are_the_pods_that_share_its_gpu() -> None:
    """The kubelet gives the device to others; and no later pod could share it, as the name is taken."""
    pods, api, options = Store(), Mock(), BinderOptions()
    reservations = GpuReservations(api, pods, Store(), options)
    name = reserved(pods, "g1", options, phase="Failed")
    sharer = pod("sharer", node="n", phase="Running", labels={keys.GPU_GROUP: "g1"}, annotations=SHARE)
    pods.put(sharer)
    api.delete.return_value = None
    reservations.sync("n")
    assert [call.args[2] for call in api.delete.call_args_list] == [name, "sharer"]
    with pytest.raises(Awaits, match=name):
        reservations.acquire("n", ["g1"])
    assert api.create.call_count == 1


def test_a_reservation_tolerates_whatever_its_pods_may() -> None:
    api, options = Mock(), BinderOptions()
    with pytest.raises(Awaits):
        GpuReservations(api, Store(), Store(), options).acquire("n", ["g1"])
    assert api.create.call_args.args[2]["spec"]["tolerations"] == [{"operator": "Exists"}]


@pytest.mark.parametrize("gone", [{"phase": "Failed"}, {"leaving": True}])
def test_a_reservation_that_holds_no_gpu_any_more_gives_no_device(gone: dict[str, Any]) -> None:
    """It has the name of the one that would be made, and still names the device that it had."""
    pods, api, options = Store(), Mock(), BinderOptions()
    reservations = GpuReservations(api, pods, Store(), options)
    old = pod(reservation_name("n", "g1"), node="n", phase=gone.get("phase", "Running"))
    old["metadata"] |= {
        "namespace": options.resource_reservation_namespace,
        "labels": {keys.GPU_GROUP: "g1"},
        "annotations": {keys.RESERVED_DEVICE: "GPU-old"},
        **({"deletionTimestamp": "2026-01-01T00:00:00Z"} if "leaving" in gone else {}),
    }
    pods.put(old)
    api.create.side_effect = ApiError(409, "AlreadyExists", "it is there")
    with pytest.raises(Awaits) as raised:
        reservations.acquire("n", ["g1"])
    # What it waits for is a change of that pod.
    assert list(raised.value.seen.values()) == [old]


def test_a_config_map_that_is_deleted_while_it_is_written_fails_the_attempt(
    server: StubServer, setup: Any
) -> None:
    server.faults = lambda m, p: (409, {}) if m == "POST" and p.endswith("/configmaps") else None
    order(server, fraction("p"), gpu_groups=("g1",))
    setup(resource_reservation_allocation_timeout=PATIENCE_SECONDS)
    play_reservation(server, "g1")
    until(lambda: phase(server) == "Failed")
    request, found = server.get(r.BIND_REQUESTS, "ns", "p"), server.get(r.PODS, "ns", "p")
    assert request is not None
    assert "ConfigMap ns/x-0 was deleted while it was written" in request["status"]["reason"]
    assert found is not None
    assert "nodeName" not in found["spec"]


def reserved(pods: Store, group: str, options: BinderOptions, phase: str = "Running") -> str:
    """Put the reservation pod of a group on node n, with its device; returns its name."""
    labels = {"app": options.resource_reservation_app_label, keys.GPU_GROUP: group}
    held = pod(reservation_name("n", group), node="n", phase=phase, labels=labels)
    held["metadata"] |= {
        "namespace": options.resource_reservation_namespace,
        "uid": f"held-{group}",
        "annotations": {keys.RESERVED_DEVICE: f"GPU-{group}"},
    }
    pods.put(held)
    return reservation_name("n", group)


def bind_request(group: str, attempts: int = 0) -> Object:
    """An order that pod p shares a GPU of node n; it is tried twice."""
    spec = {"podName": "p", "selectedNode": "n", "selectedGPUGroups": [group], "backoffLimit": 2}
    status = {"phase": "Failed", "failedAttempts": attempts} if attempts else {}
    return {"metadata": {"namespace": "ns", "name": "p"}, "spec": spec, "status": status}


@pytest.mark.parametrize(("attempts", "kept"), [(1, True), (2, False)])
def test_a_bind_that_is_tried_again_keeps_its_reservation(attempts: int, kept: bool) -> None:
    pods, requests, api, options = Store(), Store(), Mock(), BinderOptions()
    reservations = GpuReservations(api, pods, requests, options)
    name = reserved(pods, "g1", options)
    pods.put(pod("p"))
    requests.put(bind_request("g1", attempts))
    api.delete.return_value = None
    reservations.sync("n")
    assert [call.args[2] for call in api.delete.call_args_list] == ([] if kept else [name])


def test_a_bind_ordered_while_reservations_are_deleted_keeps_its_own() -> None:
    """No pod shares g1 or g2. One is ordered to share the second while the first is deleted."""
    pods, requests, api, options = Store(), Store(), Mock(), BinderOptions()
    reservations = GpuReservations(api, pods, requests, options)
    name_of = {group: reserved(pods, group, options) for group in ("g1", "g2")}
    deleted: list[str] = []

    def delete(_kind: object, _namespace: str, name: str, **_options: object) -> None:
        deleted.append(name)
        other = "g2" if name == name_of["g1"] else "g1"
        pods.put(pod("p"))
        requests.put(bind_request(other))
        assert reservations.acquire("n", [other]) == [f"GPU-{other}"]

    api.delete.side_effect = delete
    reservations.sync("n")
    assert len(deleted) == 1


def test_a_deleted_reservation_gives_no_device_before_the_watch_says_so() -> None:
    pods, api, options = Store(), Mock(), BinderOptions()
    reservations = GpuReservations(api, pods, Store(), options)
    name = reserved(pods, "g1", options)
    api.delete.return_value = None
    reservations.sync("n")
    with pytest.raises(Awaits, match=name):
        reservations.acquire("n", ["g1"])
    assert api.create.call_count == 1


def test_a_lost_answer_to_a_deletion_fails_the_attempt() -> None:
    pods, api, options = Store(), Mock(), BinderOptions()
    reservations = GpuReservations(api, pods, Store(), options)
    reserved(pods, "g1", options)
    api.delete.side_effect = NotReachable("no answer")
    with pytest.raises(NotReachable):
        reservations.sync("n")


def test_a_pod_that_names_many_groups_costs_each_bind_on_its_node_their_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Labels have no limit of their own. Without our policies a tenant writes thousands, and the binder looks
    at them before each share that it gives on the node.
    """
    looked: list[str] = []
    monkeypatch.setattr(
        GpuReservations,
        "_is_reservation",
        lambda _self, found: bool(looked.append(found["metadata"]["name"])),
    )
    pods = Store()
    reservations = GpuReservations(Mock(), pods, Store(), BinderOptions())
    sharer = pod("p", node="n")
    sharer["metadata"] |= {"resourceVersion": "1", "annotations": SHARE}
    sharer["metadata"]["labels"] = {f"{LABEL_PREFIX}g{i}": f"g{i}" for i in range(100)}
    pods.put(sharer)
    looked.clear()
    reservations.sync("n")
    assert len(looked) == 2 * 100
