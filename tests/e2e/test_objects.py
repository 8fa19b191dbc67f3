"""Claims, volumes, bad objects, served snapshots, credentials: on the real API."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import urllib.request
import zipfile
from pathlib import Path
from typing import Any

import pytest

from kai_cp.kube.api import resources as r
from kai_cp.kube.api.errors import ApiError
from kai_cp.kube.api.transport import configuration
from kai_cp.kube.demo.controlplane import ControlPlane
from kai_cp.reader.storage import SELECTED_NODE
from tests.e2e.admin import AdminTransport
from tests.e2e.world import PATIENCE_SECONDS, World

Object = dict[str, Any]


def fetch(port: int, path: str) -> bytes:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"http://127.0.0.1:{port}{path}", timeout=PATIENCE_SECONDS) as answer:
        return bytes(answer.read())


BAD_PODS = {
    "fraction-word": ({"gpu-fraction": "half"}, "metadata.annotations[gpu-fraction]"),
    "fraction-much": ({"gpu-fraction": "1.7"}, "metadata.annotations[gpu-fraction]"),
    "memory-unit": ({"gpu-memory": "2Gi"}, "metadata.annotations[gpu-memory]"),
    "devices-none": (
        {"gpu-fraction": "0.5", "gpu-fraction-num-devices": "0"},
        "metadata.annotations[gpu-fraction-num-devices]",
    ),
}
BAD_GROUPS: dict[str, tuple[Object, str]] = {
    "twins": ({"subGroups": [{"name": "a"}, {"name": "a"}]}, "spec.subGroups[1].name"),
    "no-parent": ({"subGroups": [{"name": "a", "parent": "nobody"}]}, "spec.subGroups[0].parent"),
    "circle": (
        {"subGroups": [{"name": "a", "parent": "b"}, {"name": "b", "parent": "a"}]},
        "spec.subGroups[0].parent",
    ),
}


def test_bad_objects_are_set_aside_and_reported(world: World) -> None:
    """Objects that the API server admits and the engine cannot use."""
    world.add_nodes(1)
    odd = world.add_nodes(1, **{"nvidia.com/gpu.memory": "much"})[0]
    queue = world.add_queue()
    expected = {("Node", odd): "metadata.labels[nvidia.com/gpu.memory]"}
    for name, parent in (("orphan", "no-such"), ("ring-a", "ring-b"), ("ring-b", "ring-a"), ("own", "own")):
        full = world.add_queue(name, f"{world.name}-{parent}")
        expected["Queue", full] = "spec.parentQueue"
    slow = world.add_queue("slow", preemptMinRuntime="soon")
    expected["Queue", slow] = "spec.preemptMinRuntime"
    upper = world.add_queue("upper")
    world.add_queue("lower", upper)
    for name, (told_so, field) in BAD_PODS.items():
        world.add_group(name, queue)
        world.add_pod(name, name, gpus=0, annotations=told_so)
        expected["Pod", name] = field
    for name, (spec, field) in BAD_GROUPS.items():
        world.add_group(name, queue, **spec)
        world.add_pod(name, name)
        expected["PodGroup", name] = field
    for name, where in (("no-queue", "no-such-queue"), ("no-leaf", upper)):
        world.add_group(name, where)
        world.add_pod(name, name)
        expected["PodGroup", name] = "spec.queue"
    world.add_gang("good", queue, 4)
    scheduler = world.scheduler()
    world.binder()
    world.until(lambda: len(world.running("good")) == 4, "the good gang runs")

    def told() -> dict[tuple[str, str], str]:
        everywhere = [*world.events("SetAside"), *world.api.raw(r.EVENTS.path("default"))["items"]]
        return {
            (e["involvedObject"]["kind"], e["involvedObject"]["name"]): e["message"]
            for e in everywhere
            if e["reason"] == "SetAside"
        }

    world.until(lambda: told().keys() >= expected.keys(), "each is told")
    messages = told()
    for key, field in expected.items():
        assert field in messages[key], (key, messages[key])
    bad = {*BAD_PODS, *BAD_GROUPS, "no-queue", "no-leaf"}
    assert bad.isdisjoint(pod["metadata"]["name"] for pod in world.running())
    assert scheduler.poll() is None


def test_a_claim_for_a_device(world: World) -> None:
    node = world.add_nodes(1, gpus=0)[0]
    queue = world.add_queue()
    driver = f"gpu.{world.name}.example"
    world.api.create(
        r.DEVICE_CLASSES,
        "",
        {
            "metadata": {"name": driver},
            "spec": {"selectors": [{"cel": {"expression": f"device.driver == '{driver}'"}}]},
        },
    )
    world.api.create(
        r.RESOURCE_SLICES,
        "",
        {
            "metadata": {"name": f"{world.name}-slice"},
            "spec": {
                "driver": driver,
                "nodeName": node,
                "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
                "devices": [{"name": f"gpu-{i}"} for i in range(2)],
            },
        },
    )
    for i in range(3):
        body = {
            "metadata": {"name": f"claim-{i}", "namespace": world.namespace},
            "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": driver}}]}},
        }
        body["metadata"]["labels"] = {"kai.scheduler/queue": queue}
        world.api.create(r.RESOURCE_CLAIMS, world.namespace, body)
        world.add_group(f"g{i}", queue)
        spec = {"resourceClaims": [{"name": "gpu", "resourceClaimName": f"claim-{i}"}]}
        world.add_pod(f"p{i}", f"g{i}", gpus=0, spec=spec)
    world.scheduler()
    world.binder()
    try:
        world.until(lambda: len(world.running()) == 2, "two of three devices' pods run")
        world.stays(lambda: len(world.running()) == 2)
        devices = set()
        for pod in world.running():
            name = pod["spec"]["resourceClaims"][0]["resourceClaimName"]
            claim = world.api.get(r.RESOURCE_CLAIMS, world.namespace, name)
            assert claim is not None
            assert claim["status"]["reservedFor"][0]["name"] == pod["metadata"]["name"]
            devices.add(claim["status"]["allocation"]["devices"]["results"][0]["device"])
        assert devices == {"gpu-0", "gpu-1"}
    finally:
        world.api.delete(r.RESOURCE_SLICES, "", f"{world.name}-slice")
        world.api.delete(r.DEVICE_CLASSES, "", driver)


def test_volumes_for_their_first_consumer(world: World) -> None:
    node = world.add_nodes(1)[0]
    queue = world.add_queue()
    kind = f"{world.name}-slow"
    world.api.create(
        r.STORAGE_CLASSES,
        "",
        {
            "metadata": {"name": kind},
            "provisioner": "example.com/p",
            "volumeBindingMode": "WaitForFirstConsumer",
        },
    )
    amounts = {"requests": {"storage": "1Gi"}}
    for name in ("data", "old"):
        claim = {
            "metadata": {"name": name, "namespace": world.namespace},
            "spec": {"storageClassName": kind, "accessModes": ["ReadWriteOnce"], "resources": amounts},
        }
        world.api.create(r.VOLUME_CLAIMS, world.namespace, claim)
    exists = {
        "storageClassName": kind,
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "1Gi"},
        "csi": {"driver": "p.example.com", "volumeHandle": "old"},
    }
    world.api.create(r.VOLUMES, "", {"metadata": {"name": f"{world.name}-old"}, "spec": exists})
    world.add_group("g", queue)
    spec = {
        "volumes": [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in ("data", "old")]
    }
    world.add_pod("p", "g", spec=spec)
    world.scheduler()
    world.binder()

    def selected() -> set[str]:
        """The claims whose provisioner is told the node."""
        items = world.api.raw(r.VOLUME_CLAIMS.path(world.namespace))["items"]
        notes = {c["metadata"]["name"]: c["metadata"].get("annotations") or {} for c in items}
        return {name for name, note in notes.items() if note.get(SELECTED_NODE) == node}

    def taken() -> str:
        """The claim that the existing volume is reserved for."""
        found = world.api.get(r.VOLUMES, "", f"{world.name}-old")
        assert found is not None
        return str((found["spec"].get("claimRef") or {}).get("name") or "")

    world.until(lambda: taken() and selected(), "one claim gets the volume, the other's provisioner the node")
    assert {taken()} | selected() == {"data", "old"}
    assert not world.running()
    for name in ("data", "old"):
        bound = {"status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}}
        world.api.patch(r.VOLUME_CLAIMS, world.namespace, name, {"spec": {"volumeName": f"of-{name}"}})
        world.api.patch(r.VOLUME_CLAIMS, world.namespace, name, bound, subresource="status")
    world.until(lambda: len(world.running()) == 1, "the pod runs")
    world.api.delete(r.VOLUMES, "", f"{world.name}-old")
    world.api.delete(r.STORAGE_CLASSES, "", kind)


def test_served_snapshots_can_be_solved_again(world: World, tmp_path: Path) -> None:
    world.add_nodes(2)
    queue = world.add_queue()
    scheduler = world.scheduler()
    world.binder()
    world.add_gang("runs", queue, 4)
    world.add_group("waits", queue, 99)
    container = {"name": "c", "image": "none", "env": [{"name": "TOKEN", "value": "hunter2"}]}
    world.add_pod("waits-0", "waits", spec={"containers": [container]})
    world.until(lambda: len(world.running("runs")) == 4, "the gang runs")
    snapshot = tmp_path / "s.zip"
    snapshot.write_bytes(fetch(scheduler.data, "/get-snapshot"))
    document = json.loads(zipfile.ZipFile(snapshot).read("snapshot.json"))
    assert set(document) == {"config", "schedulerParams", "rawObjects", "discovery"}
    assert len(document["rawObjects"]["nodes"]) == 2
    assert document["discovery"]["serverVersion"]["major"] == "1"
    assert "hunter2" not in snapshot.read_bytes().decode("latin1")
    assert "hunter2" not in json.dumps(document)
    assert "hunter2" not in scheduler.log.read_text()
    solved = subprocess.run(
        [sys.executable, "-m", "kai_cp", "solve", "--format=json", str(snapshot)],
        capture_output=True,
        check=True,
    )
    assert json.loads(solved.stdout)["decisions"] == []

    def binding_cycles() -> list[Object]:
        cycles = json.loads(fetch(scheduler.data, "/debug/cycles"))["cycles"]
        return [c for c in cycles if c["decisions"].get("Bind")]

    binding = world.until(binding_cycles, "the cycle is recorded")[0]
    cycle = tmp_path / "cycle.zip"
    cycle.write_bytes(fetch(scheduler.data, f"/debug/cycles/{binding['cycle']}"))
    decisions = json.loads(zipfile.ZipFile(cycle).read("decisions.json"))
    assert {d["kind"] for d in decisions["decisions"]} == {"Bind"}
    checked = subprocess.run(
        [sys.executable, "-m", "kai_cp", "check", str(cycle)], capture_output=True, text=True, check=True
    )
    assert "no rule broken" in checked.stdout
    again = subprocess.run(
        [sys.executable, "-m", "kai_cp", "solve", "--format=json", f"--now={decisions['now']}", str(cycle)],
        capture_output=True,
        check=True,
    )
    assert len(json.loads(again.stdout)["decisions"]) == len(decisions["decisions"])
    order = json.loads(fetch(scheduler.data, "/get-job-order"))
    assert set(order) == {"global_order", "queue_order"}
    assert fetch(scheduler.listen, "/healthz") == b"ok\n"
    assert fetch(scheduler.listen, "/readyz") == b"ok\n"
    text = fetch(scheduler.listen, "/metrics").decode()
    for name in (
        "kai_queue_fair_share_gpu",
        "kai_e2e_scheduling_latency_milliseconds",
        "kai_cp_cycles_total",
    ):
        assert name in text


def test_a_shard_object_is_followed(world: World) -> None:
    world.add_nodes(2)
    queue = world.add_queue()
    name = f"{world.name}-shard"
    spec = {"placementStrategy": {"gpu": "spread"}, "partitionLabelValue": world.pool}
    world.api.create(r.SHARDS, "", {"metadata": {"name": name}, "spec": spec})
    scheduler = world.scheduler(f"--shard={name}")
    world.binder()
    world.add_gang("a", queue, 2)
    world.until(lambda: len(world.running()) == 2, "both run")
    assert {p["spec"]["nodeName"] for p in world.running()} == set(world.nodes)
    document = json.loads(
        zipfile.ZipFile(io.BytesIO(fetch(scheduler.data, "/get-snapshot"))).read("snapshot.json")
    )
    assert "consolidation" not in document["config"]["actions"]
    world.api.delete(r.SHARDS, "", name)


def test_roles_allow_no_more_than_declared(control_plane: ControlPlane) -> None:
    """The server itself refuses what the table does not list."""
    secrets = r.Resource("", "v1", "secrets", "Secret")
    for user in ("scheduler", "binder", "reader", "nobody"):
        api = AdminTransport(configuration(str(control_plane.kubeconfig(user))))
        with pytest.raises(ApiError) as told:
            api.list_pages(secrets)
        assert told.value.status == 403
        api.close()
    api = AdminTransport(configuration(str(control_plane.kubeconfig("scheduler"))))
    for resource in (r.PODS, r.NODES, r.QUEUES):
        with pytest.raises(ApiError) as told:
            api.create(resource, "default", {"metadata": {"name": "x"}, "spec": {}})
        assert told.value.status == 403
    with pytest.raises(ApiError) as told:
        api.delete(r.NODES, "", "x")
    assert told.value.status == 403
    api.close()
