"""Memory and processor time of every process in clusters of 100, 1,000 and 5,000 nodes.

``python -m benchmarks.sizing [--nodes 100,1000,5000] [--pods-per-node 10]`` prints a table. A played API
server holds the cluster, seven of ten pods running; pods are as large as those of a training job. Each
process runs until it has listed everything and done its first work: the scheduler a whole cycle in mode
*observe* with the default budget. Memory is the most that the process had (``VmHWM``), time its user and
system seconds until then.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import yaml

from benchmarks.load_cluster import cpu_seconds, descendants, memory_mib
from kai_cp.kube.api import access
from kai_cp.kube.api import resources as r
from kai_cp.kube.demo.controlplane import free_port
from tests.e2e.world import Program
from tests.kai_cp.kube.samples import group, node, pod, queue
from tests.kai_cp.kube.stub import StubServer

PATIENCE_SECONDS = 900.0
GANG = 5
QUEUES = 40
SECONDS_MORE = 3.0
"""Time after a controller is ready, for what it then writes."""
COMMANDS = {
    "scheduler": ["scheduler", "--mode=observe"],
    "binder": ["binder"],
    "controllers": ["controllers", "--controllers=podgrouper,podgroup-controller,queue-controller"],
    "admission": ["admission"],
}
Object = dict[str, Any]


class LargeServer(StubServer):
    """Lists pages without looking through all objects for each page, because nothing changes here."""

    def __init__(self) -> None:
        super().__init__()
        self._lists: dict[str, list[Object]] = {}

    def _list(self, path: str, query: dict[str, str]) -> tuple[int, Object]:
        if "labelSelector" in query or "fieldSelector" in query:
            return super()._list(path, query)
        if path not in self._lists:
            self._lists[path] = super()._list(path, {})[1].get("items", [])
        limit, start = int(query.get("limit") or 10**9), int(query.get("continue") or 0)
        end = start + limit
        more = {"continue": str(end)} if end < len(self._lists[path]) else {}
        meta = {"resourceVersion": str(self._version), **more}
        return 200, {"metadata": meta, "items": self._lists[path][start:end]}


def training_pod(i: int, where: str) -> Object:
    """A pod of one GPU with what such pods carry: variables, volumes, tolerations, states."""
    made = pod(
        f"job-{i // GANG:05}-{i % GANG}",
        f"job-{i // GANG:05}",
        **({"node": where, "phase": "Running"} if where else {}),
    )
    spec: Object = made["spec"]
    container = spec["containers"][0]
    container["image"] = "example.test/team/training@sha256:" + "a" * 64
    container["env"] = [{"name": f"VARIABLE_{n}", "value": "value " * 6} for n in range(25)]
    container["volumeMounts"] = [{"name": f"volume-{n}", "mountPath": f"/data/{n}"} for n in range(4)]
    spec["volumes"] = [{"name": f"volume-{n}", "emptyDir": {}} for n in range(4)]
    spec["tolerations"] = [{"key": f"key-{n}", "operator": "Exists"} for n in range(3)]
    names = ("PodScheduled", "Initialized", "ContainersReady", "Ready")
    made["status"]["conditions"] = [
        {"type": name, "status": "True", "reason": "r"} for name in names if where
    ]
    return made


def fill(server: StubServer, nodes: int, pods_per_node: int) -> None:
    """Put the cluster into the server without a watch event for each object."""
    count = nodes * pods_per_node
    running = count * 7 // 10
    names = [f"node-{i:05}" for i in range(nodes)]
    items = [(r.NODES, node(name)) for name in names]
    items += [(r.PODS, training_pod(i, names[i % nodes] if i < running else "")) for i in range(count)]
    items += [(r.QUEUES, queue(f"team-{i:02}")) for i in range(QUEUES)]
    items += [
        (r.POD_GROUPS, group(f"job-{i:05}", GANG, f"team-{i % QUEUES:02}")) for i in range(count // GANG)
    ]
    server.hold(items)
    secret = {"metadata": {"name": access.ADMISSION_SECRET, "namespace": "kai-scheduler"}, "data": {}}
    server.put(r.SECRETS, secret)


def answers(port: int, path: str) -> bytes:
    """What a process answers; None while it does not answer."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
            return bytes(answer.read())
    except (OSError, urllib.error.URLError):
        return b""


def cycles(data: int) -> list[Object]:
    """The cycles that a scheduler recorded."""
    found: list[Object] = orjson.loads(answers(data, "/debug/cycles") or b'{"cycles": []}')["cycles"]
    return found


def wait_for(program: Program, done: Callable[[], object]) -> None:
    """Wait until the process is ready; if it ends before that, this program ends, too."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not done():
        if program.poll() is not None or time.monotonic() > end:
            raise SystemExit(f"the process did not come so far\n{program.tail()}")
        time.sleep(0.5)


def kubeconfig_of(url: str, folder: Path) -> Path:
    """A kubeconfig file for the played server."""
    kubeconfig = folder / "kubeconfig"
    named = {"name": "played"}
    kubeconfig.write_text(
        yaml.safe_dump({
            "current-context": "played",
            "contexts": [{**named, "context": {"cluster": "played", "user": "played"}}],
            "clusters": [{**named, "cluster": {"server": url}}],
            "users": [{**named, "user": {"token": "none"}}],
        })
    )  # fmt: skip
    return kubeconfig


def measured(name: str, url: str, folder: Path) -> list[tuple[str, float, float]]:
    """Rows of a process and of those that it started: name, MiB, seconds."""
    kubeconfig = kubeconfig_of(url, folder)
    listen, data = free_port(), free_port()
    flags = [*COMMANDS[name], f"--kubeconfig={kubeconfig}", f"--listen-address=127.0.0.1:{listen}"]
    done: Callable[[], object] = lambda: answers(listen, "/readyz")  # noqa: E731
    if name == "scheduler":
        flags.append(f"--plugin-server-address=127.0.0.1:{data}")
        done = lambda: cycles(data)  # noqa: E731
    if name == "admission":
        flags.append(f"--webhook-addr={free_port()}")
    program = Program(flags, folder / f"{name}.log", listen, data)
    try:
        wait_for(program, done)
        time.sleep(SECONDS_MORE)
        pids = {name: program.pid}
        pids |= {f"{name}'s worker": child for child in descendants(program.pid) if memory_mib(child) > 60}
        return [(label, memory_mib(pid, "VmHWM"), cpu_seconds(pid)) for label, pid in pids.items()]
    finally:
        program.kill()


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", default="100,1000,5000")
    parser.add_argument("--pods-per-node", type=int, default=10)
    parser.add_argument("--processes", default=",".join(COMMANDS))
    arguments = parser.parse_args()
    print("| process | nodes | pods | memory [MiB] | processor [s] |\n|---|--:|--:|--:|--:|", flush=True)
    for nodes in map(int, arguments.nodes.split(",")):
        server = LargeServer()
        fill(server, nodes, arguments.pods_per_node)
        with tempfile.TemporaryDirectory() as folder:
            for name in arguments.processes.split(","):
                for label, mib, seconds in measured(name, server.url, Path(folder)):
                    pods = nodes * arguments.pods_per_node
                    print(f"| {label} | {nodes:,} | {pods:,} | {mib:,.0f} | {seconds:.1f} |", flush=True)
        server.close()


if __name__ == "__main__":
    main()
