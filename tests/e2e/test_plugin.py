"""``kubectl kai-cp`` on a real API server, with the rights of a reader and with none."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from kai_cp.kube.api import resources as r
from kai_cp.kube.demo.controlplane import ControlPlane, free_port
from tests.e2e.world import KINDS, PATIENCE_SECONDS, READER, World

ROOT = Path(__file__).parents[2]
SCHEDULER = "kai-scheduler-kai-cp-scheduler"
ACCOUNT = "kai-cp-scheduler"
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
    """Run the plugin as kubectl does."""
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
    """A kubeconfig of a user with only the reader's role."""
    world.bind_role(READER, "reader")
    return str(control_plane.kubeconfig("reader"))


def test_a_reader_sees_what_waits(world: World, reader: str) -> None:
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


@pytest.fixture
def forwarded(world: World, tmp_path: Path) -> str:
    """A PATH whose kubectl leads to the scheduler of this test, which has a pod as the chart makes it."""
    world.add_nodes(1, gpus=2)
    world.add_queue("q")
    world.add_gang("large", world.queues[-1], 1, gpus=8)
    world.add_gang("small", world.queues[-1], 1, gpus=1)
    scheduler = world.scheduler("--mode=observe")
    labels = {"app.kubernetes.io/name": "kai-cp", "app.kubernetes.io/component": "scheduler"}
    container = {"name": "scheduler", "image": "none"}
    body = {
        "metadata": {"name": "kai-cp-scheduler", "labels": labels},
        "spec": {
            "nodeName": world.nodes[0],
            "schedulerName": "other",
            "serviceAccountName": ACCOUNT,
            "containers": [container],
        },
    }
    world.api.create(KINDS["ServiceAccount"], world.namespace, {"metadata": {"name": ACCOUNT}})
    world.api.create(r.PODS, world.namespace, body)
    world.bind_role(SCHEDULER, f"system:serviceaccount:{world.namespace}:{ACCOUNT}")

    def runs() -> bool:
        pod = world.api.get(r.PODS, world.namespace, "kai-cp-scheduler") or {}
        return bool((pod.get("status") or {}).get("phase") == "Running")

    world.until(runs, "the pod runs")
    fake = tmp_path / "kubectl"
    fake.write_text(KUBECTL.format(python=sys.executable, port=scheduler.data))
    fake.chmod(fake.stat().st_mode | stat.S_IEXEC)
    return str(tmp_path)


def test_a_pod_of_a_tenant_does_not_answer_in_the_schedulers_place(
    world: World, reader: str, forwarded: str
) -> None:
    """Who may create pods may give one the labels of a scheduler, and serve anything on its port."""
    name = f"{world.name}-system:serviceaccount:{world.namespace}:{ACCOUNT}"
    world.api.delete(KINDS["ClusterRoleBinding"], "", name)
    done = plugin("pending", "--kubeconfig", reader, "-A", "--source=scheduler", path=forwarded)
    assert done.returncode == 8, done.stderr
    assert f"the accounts of {world.namespace}/kai-cp-scheduler may not list all pods" in done.stderr
    done = plugin("pending", "--kubeconfig", reader, "-A", "-o", "name", path=forwarded)
    assert done.returncode == 0, done.stderr
    assert "the API server's lists" in done.stderr


COMMANDS = (
    *(["pending"], ["queues"], ["evictions"], ["plan"], ["audit"], ["inspect"], ["check"], ["topology"]),
    *(["pending", "-o", "json"], ["queues", "-o", "csv"], ["plan", "-o", "name"], ["audit", "-o", "yaml"]),
)


def test_the_live_cluster_is_shown_exactly_as_a_file(
    world: World, reader: str, forwarded: str, tmp_path: Path
) -> None:
    taken, small = str(tmp_path / "live.zip"), str(tmp_path / "small.json")
    live = ("--kubeconfig", reader, "--context", context(reader), "-A", "--source=scheduler")

    def settled() -> bool:
        done = plugin("snapshot", "take", taken, *live, path=forwarded)
        return done.returncode == 0 and "large" in plugin("pending", taken_option(taken), "-o", "name").stdout

    world.until(settled, "a cycle with what waits is recorded")
    for command in COMMANDS:
        for attempt in range(6):
            shown = plugin(*command, *live, path=forwarded)
            on_file = kai_cp(command[0], taken, *command[1:])
            assert "from cycle" in shown.stderr
            assert shown.returncode == on_file.returncode == 0, shown.stderr + on_file.stderr
            # The file is named after the source: the context, or the file.
            if shown.stdout.replace(context(reader), "live") == on_file.stdout:
                break
            # The scheduler may have looked again since.
            assert attempt < 5, f"{command}: {shown.stdout}\n{on_file.stdout}"
            assert settled()
        assert shown.stdout
    assert settled()
    done = plugin("diff", taken, *live, path=forwarded)
    assert (done.returncode, "the same" in done.stdout) == (0, True), done.stdout + done.stderr
    fact = f"waiting {world.namespace}/large"
    done = plugin("snapshot", "reduce", taken, small, "--fact", fact)
    assert done.returncode == 0, done.stderr
    assert '"large"' not in Path(small).read_text()


def context(kubeconfig: str) -> str:
    """The name of its context."""
    return str(yaml.safe_load(Path(kubeconfig).read_text())["current-context"])


def taken_option(path: str) -> str:
    """The option that shows a file instead of the cluster."""
    return f"--snapshot={path}"


def kai_cp(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run ``kai-cp``."""
    command = [sys.executable, "-m", "kai_cp", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)


def test_watching_shows_it_again(world: World, reader: str, forwarded: str) -> None:
    command = [sys.executable, "-m", "kai_cp.kube.plugin.main", "queues", "-w", "-o", "name"]
    environment = {**os.environ, "PATH": f"{forwarded}:{os.environ['PATH']}"}
    with subprocess.Popen(
        [*command, "--kubeconfig", reader, "--source=api"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=ROOT,
        env=environment,
    ) as watching:
        try:
            assert watching.stdout is not None
            wanted = f"queue/{world.queues[-1]}"
            seen = 0
            while seen < 2 and watching.poll() is None:
                seen += watching.stdout.readline().strip() == wanted
            watching.send_signal(signal.SIGINT)
            assert watching.wait(PATIENCE_SECONDS) == 130
        finally:
            watching.kill()


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


def expired(control_plane: ControlPlane, folder: Path) -> str:
    """A kubeconfig with an expired token."""
    return written(control_plane, folder, token="expired")


def unreachable(control_plane: ControlPlane, folder: Path) -> str:
    """A kubeconfig of an API server that does not exist."""
    return written(control_plane, folder, server=f"https://127.0.0.1:{free_port()}")


def written(control_plane: ControlPlane, folder: Path, token: str = "", server: str = "") -> str:
    document = yaml.safe_load(control_plane.kubeconfig().read_text())
    if token:
        document["users"][0]["user"] = {"token": token}
    if server:
        document["clusters"][0]["cluster"]["server"] = server
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(document))
    return str(path)


BAD: dict[str, tuple[Callable[[ControlPlane, Path], list[str]], int, str]] = {
    # (arguments, exit status, the sentence) of what is wrong
    "no kubeconfig": (lambda plane, at: ["--kubeconfig", str(at / "nowhere")], 3, "nowhere"),
    "unreachable cluster": (
        lambda plane, at: ["--kubeconfig", unreachable(plane, at)],
        5,
        "cannot be reached",
    ),
    "expired token": (lambda plane, at: ["--kubeconfig", expired(plane, at)], 6, "log in again"),
    "missing right": (lambda plane, at: ["--kubeconfig", str(plane.kubeconfig("nobody"))], 7, "-reader"),
    "no scheduler": (
        lambda plane, at: ["--kubeconfig", str(plane.kubeconfig()), "--source=scheduler"],
        8,
        "--source=api",
    ),
    "unreadable file": (lambda plane, at: ["--snapshot", str(at / "nowhere.zip")], 1, "nowhere.zip"),
}


@pytest.mark.parametrize("what", BAD)
def test_each_failure_is_one_sentence_and_a_status_of_its_own(
    control_plane: ControlPlane, tmp_path: Path, what: str
) -> None:
    arguments, status, said = BAD[what]
    done = plugin("queues", *arguments(control_plane, tmp_path))
    assert (done.returncode, said in done.stderr) == (status, True), done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["sing"], "no command sing"),
        (["pending", "--source=moon"], "--source moon"),
        (["pending", "-n"], "-n needs a value"),
        (["snapshot", "take"], "needs one FILE"),
    ],
)
def test_wrong_usage_is_one_sentence(arguments: list[str], said: str) -> None:
    done = plugin(*arguments)
    assert (done.returncode, said in done.stderr) == (2, True), done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
