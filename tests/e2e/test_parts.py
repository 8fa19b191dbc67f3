"""Our parts beside KAI's on a real server: shards, migration, and objects that KAI's parts wrote."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kai_cp.kube.api import resources as r
from kai_cp.kube.demo.controlplane import ControlPlane
from tests.e2e.proxy import FaultyProxy
from tests.e2e.workloads import DEPLOYMENTS, QUEUE, Workloads, install, reference
from tests.e2e.world import READER, Object, World
from tests.support.definitions import PYTORCH_JOBS

SHARED = Path(__file__).parents[2].parent / "shared"
SYSTEM = "kai-scheduler"
recorded = pytest.mark.skipif(not SHARED.is_dir(), reason="the recorded cases of ../shared are not here")


def conditions(item: Object | None) -> dict[str, str]:
    """Conditions of an object by type."""
    listed = ((item or {}).get("status") or {}).get("conditions") or ()
    return {entry["type"]: entry["status"] for entry in listed}


def test_a_shard_makes_changes_and_removes_its_scheduler(world: World) -> None:
    name = f"{world.name}-a100"
    key = (SYSTEM, f"kai-cp-scheduler-{name}")
    spec: Object = {"partitionLabelValue": "a100", "args": {"default-staleness-grace-period": "2m"}}
    config = {"metadata": {"name": "kai-config"}, "spec": {"global": {"schedulerName": "kai-scheduler"}}}
    world.api.create(r.CONFIGS, "", config)
    # A Deployment without replicas is complete as soon as its controller has seen it; no pods run here.
    process = world.controllers("--controllers=shards", "--shard-replicas=0", "--shard-image=kai-cp:test")

    def arguments() -> list[str]:
        found = world.api.get(DEPLOYMENTS, *key)
        return found["spec"]["template"]["spec"]["containers"][0]["args"] if found else []

    def shard() -> Object | None:
        return world.api.get(r.SHARDS, "", name)

    try:
        world.api.create(r.SHARDS, "", {"metadata": {"name": name}, "spec": spec})
        world.until(lambda: "--partition-label-value=a100" in arguments(), "its Deployment is there")
        assert "--default-staleness-grace-period=2m" in arguments()
        world.until(lambda: conditions(shard()).get("Ready") == "True", "the shard is ready")

        world.api.patch(r.SHARDS, "", name, {"spec": {"partitionLabelValue": "h100", "args": {"odd": "1"}}})
        world.until(lambda: "--partition-label-value=h100" in arguments(), "the Deployment follows")
        told = {c["type"]: c["message"] for c in (shard() or {})["status"]["conditions"]}
        world.until(
            lambda: "odd" in str((shard() or {})["status"]["conditions"]), f"what is odd is told: {told}"
        )

        world.api.patch(r.CONFIGS, "", "kai-config", {"spec": {"global": {"schedulerName": "mine"}}})
        world.until(lambda: "--scheduler-name=mine" in arguments(), "a Config is followed as well")
        world.api.delete(r.CONFIGS, "", "kai-config")
        world.until(lambda: "--scheduler-name=kai-scheduler" in arguments(), "nothing ends with the Config")
    finally:
        world.api.delete(r.CONFIGS, "", "kai-config")
        world.api.delete(r.SHARDS, "", name)
    world.until(lambda: not arguments(), "the Deployment goes with its shard")
    assert process.poll() is None


def test_migrate_reads_a_cluster_and_changes_nothing(world: World, control_plane: ControlPlane) -> None:
    config: Object = {
        "metadata": {"name": "kai-config"},
        "spec": {"admission": {"gpuSharing": True}, "nodeScaleAdjuster": {"service": {"enabled": True}}},
    }
    name = f"{world.name}-pool"
    shard = {"metadata": {"name": name}, "spec": {"partitionLabelValue": "a100"}}
    world.bind_role(READER, "reader")
    world.api.create(r.CONFIGS, "", config)
    world.api.create(r.SHARDS, "", shard)
    try:
        with FaultyProxy(control_plane) as proxy:
            kubeconfig = control_plane.kubeconfig("reader", url=proxy.url)
            command = [sys.executable, "-m", "kai_cp", "migrate", f"--kubeconfig={kubeconfig}", "-o", "json"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            assert proxy.writes() == []
    finally:
        world.api.delete(r.CONFIGS, "", "kai-config")
        world.api.delete(r.SHARDS, "", name)
    found = json.loads(done.stdout)
    assert {"name": name, "schedulingShard": name, "nodePool": "a100"} in found["values"]["shards"]
    assert "--gpu-sharing-enabled" in found["admission"]
    assert any("node-scale-adjuster" in word for word in found["controllers"])


def of_kai(case: str) -> Object:
    """What KAI's own pod grouper made of a recorded workload."""
    path = SHARED / "grouping" / "cases" / case / "expected.json"
    expected: Object = json.loads(path.read_text())["expected"]
    return expected


@recorded
def test_groups_that_kai_made_are_scheduled_and_taken_over_unchanged(
    world: World, control_plane: ControlPlane
) -> None:
    """KAI's grouper, our scheduler and binder; then our grouper in its place, which finds nothing to do."""
    install(world, PYTORCH_JOBS)
    world.add_nodes(1)
    made = Workloads(world, world.add_queue())
    documents = json.loads((SHARED / "grouping" / "cases" / "pytorch-basic" / "input.json").read_text())
    job = made.own(PYTORCH_JOBS, "bert", spec=next(d for d in documents if d["kind"] == "PyTorchJob")["spec"])
    uid = job[1]["metadata"]["uid"]
    expected = of_kai("pytorch-basic")
    (group,) = expected["podGroups"]
    before = group["metadata"]["ownerReferences"][0]["uid"]
    group = json.loads(json.dumps(group).replace(before, uid))
    group["metadata"] |= {"namespace": world.namespace, "labels": {**world.labels, QUEUE: made.queue}}
    group["spec"]["queue"] = made.queue
    world.api.create(r.POD_GROUPS, world.namespace, group)
    template = made.template()
    workers = [pod for pod in expected["pods"] if "worker" in pod["name"]]
    extra = {**workers[0], "name": "bert-worker-1"}
    for pod in (*expected["pods"], extra):
        meta: Object = {
            "name": pod["name"],
            "labels": {**world.labels, **pod["labels"]},
            "annotations": {"pod-group-name": group["metadata"]["name"]},
            "ownerReferences": [reference(*job)],
        }
        world.api.create(r.PODS, world.namespace, {"metadata": meta, "spec": template["spec"]})
    world.scheduler()
    world.binder()
    world.until(lambda: len(world.running()) == 4, "the gang runs")
    with FaultyProxy(control_plane) as proxy:
        ours = made.start("--controllers=podgrouper", url=proxy.url)
        listens = f"/apis/{PYTORCH_JOBS.group}/"
        world.until(lambda: sum(listens in path for _, _, path in proxy.seen) > 1, "its owners are read")
        world.stays(lambda: proxy.writes() == [], 3.0)
        assert ours.poll() is None


@recorded
def test_a_pod_that_kais_admission_wired_gets_its_device(world: World) -> None:
    """Our grouper, scheduler and binder without our admission: the pod is as KAI's webhook leaves it."""
    world.add_nodes(1, gpus=1)
    made = Workloads(world, world.add_queue())
    made.start("--controllers=podgrouper")
    world.scheduler()
    world.binder()
    path = SHARED / "admission" / "cases" / "fraction" / "expected.json"
    text = path.read_text().replace("RANDOM7", "bcdfghj")
    pod: Object = json.loads(text)["expected"]["object"]
    # The recorded pod keeps everything but its node, its image's node, and a RuntimeClass without a node.
    pod["metadata"] |= {"namespace": world.namespace, "labels": {**world.labels, QUEUE: made.queue}}
    pod["spec"].pop("runtimeClassName", None)
    world.api.create(r.PODS, world.namespace, pod)
    world.until(lambda: world.running(), "it runs")
    names: set[str] = set()
    for container in pod["spec"]["containers"]:
        names |= {e["valueFrom"]["configMapKeyRef"]["name"] for e in container["env"]}
        names |= {e["configMapRef"]["name"] for e in container["envFrom"]}
    assert len(names) == 2
    for name in names:
        assert world.api.get(r.CONFIG_MAPS, world.namespace, name), name


def test_another_binder_carries_our_orders_out(world: World) -> None:
    """Our scheduler with KAI's binder, whose part the test plays: binds, status, a failure on the way."""
    world.add_nodes(1)
    queue = world.add_queue()
    world.scheduler()
    world.add_gang("gang", queue, 2)

    def orders() -> dict[str, Any]:
        items = world.api.raw(r.BIND_REQUESTS.path(world.namespace))["items"]
        return {item["spec"]["podName"]: item for item in items}

    world.until(lambda: len(orders()) == 2, "both are ordered")
    first = orders()["gang-0"]
    assert first["spec"]["receivedGPU"] == {"count": 1, "portion": "1.00"}
    failed = {"status": {"phase": "Failed", "reason": "not now", "failedAttempts": 1}}
    world.api.patch(r.BIND_REQUESTS, world.namespace, first["metadata"]["name"], failed, subresource="status")

    def again() -> bool:
        found = orders().get("gang-0")
        return found is not None and found["metadata"]["uid"] != first["metadata"]["uid"]

    world.until(again, "a failed order is given anew")
    for name, order in orders().items():
        target = {"apiVersion": "v1", "kind": "Node", "name": order["spec"]["selectedNode"]}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
        world.api.create(r.PODS, world.namespace, body, name=name, subresource="binding")
        done = {"status": {"phase": "Succeeded"}}
        world.api.patch(
            r.BIND_REQUESTS, world.namespace, order["metadata"]["name"], done, subresource="status"
        )
    world.until(lambda: len(world.running()) == 2, "they run")
    assert not world.events("AnotherScheduler")
