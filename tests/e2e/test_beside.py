"""Beside the real kube-scheduler and beside Kueue's gates (docs/beside-others.md)."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from kai_cp.kube.api import resources as r
from kai_cp.kube.demo.controlplane import ControlPlane
from tests.e2e.world import GPU, Object, World, gpus


@pytest.fixture
def kube_scheduler(control_plane: ControlPlane, binary: object) -> Iterator[subprocess.Popen[bytes]]:
    """The scheduler of Kubernetes itself, on the same API server."""
    log = (control_plane.directory / "kube-scheduler.log").open("wb")
    flags = [f"--kubeconfig={control_plane.kubeconfig()}", "--leader-elect=false", "--secure-port=0"]
    flags += ["--authentication-skip-lookup=true"]
    process = subprocess.Popen([str(binary), "kube-scheduler", *flags], stdout=log, stderr=subprocess.STDOUT)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        log.close()


def plain_pod(world: World, name: str, cores: int) -> None:
    """A pod for the kube-scheduler on this test's nodes."""
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": str(cores)}}}
    body = {
        "metadata": {"name": name},
        "spec": {
            "schedulerName": "default-scheduler",
            "nodeSelector": world.labels,
            "containers": [container],
            "tolerations": [{"operator": "Exists"}],
        },
    }
    world.api.create(r.PODS, world.namespace, body)


def cores(pod: Object) -> float:
    amounts = [str((c["resources"].get("requests") or {}).get("cpu", 0)) for c in pod["spec"]["containers"]]
    return sum(float(text.removesuffix("m")) / (1000 if text.endswith("m") else 1) for text in amounts)


def test_the_kube_scheduler_and_we_share_nodes(world: World, kube_scheduler: subprocess.Popen[bytes]) -> None:
    nodes = world.add_nodes(2, gpus=8)
    world.add_queue("q")
    # 64 cores a node. First their pods: 3 of 40 cores, of which two fit.
    for i in range(3):
        plain_pod(world, f"theirs-{i}", 40)
    world.until(lambda: sum(bool(p["spec"].get("nodeName")) for p in world.pods()) == 2, "theirs are placed")
    world.scheduler()
    world.binder()
    world.add_gang("ours", world.queues[-1], 4, gpus=4)
    world.until(lambda: len(world.running("ours")) == 4, "ours are placed beside them")
    assert kube_scheduler.poll() is None
    pods = [pod for pod in world.pods() if pod["spec"].get("nodeName")]
    for node in nodes:
        here = [pod for pod in pods if pod["spec"]["nodeName"] == node]
        assert sum(cores(pod) for pod in here) <= 64
        assert sum(gpus(pod) for pod in here) <= 8
    assert len([pod for pod in pods if pod["metadata"]["name"].startswith("theirs")]) == 2


def test_pods_that_kueue_gates_start_once_the_gate_is_gone(world: World) -> None:
    world.add_nodes(1, gpus=8)
    world.add_queue("q")
    world.scheduler()
    world.binder()
    world.add_group("job", world.queues[-1], 1)
    gate = {"name": "kueue.x-k8s.io/admission"}
    container = {"name": "main", "image": "none", "resources": {"limits": {GPU: "1"}}}
    body = {
        "metadata": {"name": "job-0", "labels": world.labels, "annotations": {"pod-group-name": "job"}},
        "spec": {"schedulerName": "kai-scheduler", "schedulingGates": [gate], "containers": [container]},
    }
    world.api.create(r.PODS, world.namespace, body)
    world.add_gang("other", world.queues[-1], 1)
    world.until(lambda: len(world.running("other")) == 1, "who is not gated starts")
    assert world.running("job") == []
    world.api.patch(r.PODS, world.namespace, "job-0", {"spec": {"schedulingGates": []}})
    world.until(lambda: len(world.running("job")) == 1, "the gate is gone, so it starts")
