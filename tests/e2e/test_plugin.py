"""``kubectl kai-cp`` on a real API server, with the rights of a reader and with none."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from kai_cp.kube import resources as r
from kai_cp.kube.demo.controlplane import ControlPlane, free_port
from tests.e2e.world import KINDS, World

ROOT = Path(__file__).parents[2]
READER = "kai-scheduler-kai-cp-reader"
Object = dict[str, Any]

KUBECTL = """#!{python}
# Plays `kubectl port-forward`, as our nodes have no kubelet: a local port leads to the scheduler's.
import socket, sys, threading
if "port-forward" not in sys.argv:
    sys.exit("only port-forward is played here")
listener = socket.create_server(("127.0.0.1", 0))
print(f"Forwarding from 127.0.0.1:{{listener.getsockname()[1]}} -> 8081", flush=True)
def pump(a, b):
    try:
        while data := a.recv(65536):
            b.sendall(data)
        b.shutdown(socket.SHUT_WR)
    except OSError:
        pass
while True:
    here, _ = listener.accept()
    there = socket.create_connection(("127.0.0.1", {port}))
    for pair in ((here, there), (there, here)):
        threading.Thread(target=pump, args=pair, daemon=True).start()
"""


def plugin(*arguments: str, path: str = "") -> subprocess.CompletedProcess[str]:
    """Run the plugin as kubectl would."""
    environment = {**os.environ, "PATH": f"{path}:{os.environ['PATH']}" if path else os.environ["PATH"]}
    return subprocess.run(
        [sys.executable, "-m", "kai_cp.kube.plugin.main", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env=environment,
    )


@pytest.fixture
def reader(world: World, control_plane: ControlPlane) -> str:
    """A kubeconfig of somebody who holds the reader's role and nothing else."""
    subject = {"kind": "User", "name": "reader", "apiGroup": "rbac.authorization.k8s.io"}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": READER}
    binding = {"metadata": {"name": f"{world.name}-reader"}, "roleRef": reference, "subjects": [subject]}
    world.api.create(KINDS["ClusterRoleBinding"], "", binding)
    return str(control_plane.kubeconfig("reader"))


def test_a_reader_sees_who_waits(world: World, reader: str) -> None:
    world.add_nodes(1, gpus=2)
    world.add_queue("q")
    world.add_gang("large", world.queues[-1], 1, gpus=8)
    done = plugin("pending", "--kubeconfig", reader, "-A", "-o", "json", "--source=api")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    ours = [entry for entry in answer["pending"] if entry["podGroup"] == f"{world.namespace}/large"]
    assert [entry["gpus"] for entry in ours] == [8]
    assert "the API server's lists" in done.stderr

    done = plugin("pending", "--kubeconfig", reader, "-n", "elsewhere", "-o", "name", "--source=api")
    assert (done.returncode, done.stdout) == (0, "")
    done = plugin("queues", "--kubeconfig", reader, "-o", "name", "--source=api")
    assert any(name.endswith(world.queues[-1]) for name in done.stdout.split())


def test_the_last_cycle_of_the_scheduler_is_shown(
    world: World, control_plane: ControlPlane, reader: str, tmp_path: Path
) -> None:
    world.add_nodes(1, gpus=2)
    world.add_queue("q")
    world.add_gang("large", world.queues[-1], 1, gpus=8)
    scheduler = world.scheduler("--mode=observe")
    # What the chart's Deployment would look like to whoever looks for the scheduler.
    labels = {"app.kubernetes.io/name": "kai-cp", "app.kubernetes.io/component": "scheduler"}
    node = world.nodes[0]
    container = {"name": "scheduler", "image": "none"}
    body = {
        "metadata": {"name": "kai-cp-scheduler", "labels": labels},
        "spec": {"nodeName": node, "schedulerName": "other", "containers": [container]},
    }
    world.api.create(r.PODS, world.namespace, body)
    world.until(
        lambda: (
            (world.api.get(r.PODS, world.namespace, "kai-cp-scheduler") or {})["status"].get("phase")
            == "Running"
        ),
        "the pod runs",
    )
    fake = tmp_path / "kubectl"
    fake.write_text(KUBECTL.format(python=sys.executable, port=scheduler.data))
    fake.chmod(fake.stat().st_mode | stat.S_IEXEC)

    def shown() -> Object | None:
        done = plugin("pending", "--kubeconfig", reader, "-A", "-o", "json", path=str(tmp_path))
        assert done.returncode == 0, done.stderr
        answer: Object = json.loads(done.stdout)
        return answer if "from cycle" in done.stderr and answer["pending"] else None

    answer = world.until(shown, "the scheduler's own cycle is shown")
    assert [entry["podGroup"] for entry in answer["pending"]] == [f"{world.namespace}/large"]


def test_taking_a_snapshot_without_names(world: World, reader: str, tmp_path: Path) -> None:
    world.add_nodes(1, gpus=2)
    target = tmp_path / "taken.zip"
    done = plugin("snapshot", "take", str(target), "--anonymize", "--kubeconfig", reader, "--source=api")
    assert done.returncode == 0, done.stderr
    done = plugin("inspect", "-A", "-o", "json", "--snapshot", str(target))
    assert done.returncode == 0, done.stderr
    names = [node["name"] for node in json.loads(done.stdout)["nodes"]]
    assert names
    assert world.nodes[0] not in names


def test_a_missing_right_is_named_with_the_role_that_has_it(control_plane: ControlPlane) -> None:
    done = plugin("pending", "--kubeconfig", str(control_plane.kubeconfig("nobody")))
    assert done.returncode == 3
    assert "-reader" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_expired_token_and_no_cluster_are_sentences(control_plane: ControlPlane, tmp_path: Path) -> None:
    document = yaml.safe_load(control_plane.kubeconfig().read_text())
    document["users"][0]["user"] = {"token": "expired"}
    expired = tmp_path / "expired"
    expired.write_text(yaml.safe_dump(document))
    done = plugin("queues", "--kubeconfig", str(expired))
    assert (done.returncode, "log in again" in done.stderr) == (3, True), done.stderr

    document["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{free_port()}"
    away = tmp_path / "away"
    away.write_text(yaml.safe_dump(document))
    done = plugin("queues", "--kubeconfig", str(away))
    assert (done.returncode, "cannot be reached" in done.stderr) == (3, True), done.stderr

    done = plugin("queues", "--kubeconfig", str(tmp_path / "nowhere"))
    assert (done.returncode, "nowhere" in done.stderr) == (3, True), done.stderr
    for arguments, said in (
        (["sing"], "no command 'sing'"),
        (["pending", "--source=moon"], "--source moon"),
        (["pending", "-n"], "-n needs a value"),
        (["snapshot", "take"], "needs one FILE"),
    ):
        done = plugin(*arguments)
        assert (done.returncode, said in done.stderr) == (2, True), done.stderr
        assert len(done.stderr.strip().splitlines()) == 1
