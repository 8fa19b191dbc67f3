"""How fast a cluster fills: 500 nodes, 4,000 one-GPU pods at once, on a real API server.

``python -m benchmarks.load_cluster [--nodes 500] [--pods 4000] [--gang 1]`` prints one JSON object: pods a
second, where the time went, CPU seconds and memory of every process, how late the reports are, and what the
cluster costs when idle. The API server, the fake kubelets and our processes share the machine; the load of
others on it is given beside the figures.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from kai_cp.kube.api import resources as r
from kai_cp.kube.api.transport import WRITES
from kai_cp.kube.demo.controlplane import ControlPlane
from kai_cp.reader.times import instant
from tests.e2e.conftest import USERS
from tests.e2e.world import Program, World, prepare
from tests.kubetest.build import build

CREATORS = 8


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / 100.0


def memory_mib(pid: int, key: str = "VmRSS") -> float:
    """Memory of a process now (``VmHWM``: the most it had)."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(key):
            return int(line.split()[1]) / 1024
    return 0.0


def descendants(pid: int) -> list[int]:
    """The processes that a process started, and those that these started."""
    children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return children + [found for child in children for found in descendants(child)]


def with_engine(processes: dict[str, int]) -> dict[str, int]:
    """The processes with those of the scheduler's engine."""
    return {**processes, **{f"engine {i}": pid for i, pid in enumerate(descendants(processes["scheduler"]))}}


def report_lag(world: World) -> dict[str, float]:
    """Seconds from what happened to its event on the server; both have whole seconds."""
    lags = sorted(
        instant(event["metadata"]["creationTimestamp"], "") - instant(event["firstTimestamp"], "")
        for event in world.events()
        if event.get("source", {}).get("component") in ("kai-scheduler", "binder")
    )
    return {"events": len(lags), "median": lags[len(lags) // 2], "most": lags[-1]} if lags else {}


class Watcher:
    """Counts pods by the state that they have reached, from one watch."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.bound: dict[str, float] = {}
        self.running: dict[str, float] = {}
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        version = ""
        while True:
            try:
                if not version:
                    version = self._world.api.list_pages(r.PODS)[1]
                for _, pod in self._world.api.watch(r.PODS, version):
                    version = pod["metadata"]["resourceVersion"]
                    if pod["metadata"].get("namespace") != self._world.namespace:
                        continue
                    name = pod["metadata"]["name"]
                    if pod["spec"].get("nodeName"):
                        self.bound.setdefault(name, time.monotonic())
                    if (pod.get("status") or {}).get("phase") == "Running":
                        self.running.setdefault(name, time.monotonic())
            except Exception:
                time.sleep(0.2)


def sent(port: int) -> tuple[float, dict[str, float]]:
    """Reports that wait, and requests sent so far by kind, of one process."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    text = opener.open(f"http://127.0.0.1:{port}/metrics", timeout=10).read().decode()
    waiting, requests = 0.0, {}
    for line in text.splitlines():
        name, _, value = line.rpartition(" ")
        if name == "kai_cp_reports_waiting":
            waiting = float(value)
        elif name.startswith("kai_cp_api_requests_total{"):
            labels = dict(re.findall(r'(\w+)="([^"]*)"', name))
            requests[f"{labels['verb']} {labels['resource']}"] = float(value)
    return waiting, requests


def settle(programs: Sequence[Program]) -> float:
    """Wait until every report is written; returns the seconds that this took."""
    began = time.monotonic()
    while any(sent(program.listen)[0] for program in programs) and time.monotonic() - began < 300:
        time.sleep(0.5)
    return time.monotonic() - began


def fill(world: World, pods: int, gang: int, queue: str) -> float:
    """Create the pods; returns the seconds that this took."""
    began = time.monotonic()

    def one(i: int) -> None:
        name = f"g{i}"
        world.add_group(name, queue, gang)
        for j in range(gang):
            world.add_pod(f"{name}-{j}", name)

    with ThreadPoolExecutor(CREATORS) as pool:
        list(pool.map(one, range(pods // gang)))
    return time.monotonic() - began


def idle_percent(processes: dict[str, int], seconds: float) -> dict[str, float]:
    """Percent of a core that each process takes while nothing happens for that many seconds."""
    before = {name: cpu_seconds(pid) for name, pid in processes.items()}
    time.sleep(seconds)
    return {
        name: round(100 * (cpu_seconds(pid) - before[name]) / seconds, 2) for name, pid in processes.items()
    }


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Run it once."""
    with ControlPlane(build(), users={user: [] for user in USERS}) as plane:
        prepare(plane)
        world = World(plane, "load")
        world.add_nodes(arguments.nodes)
        queue = world.add_queue()
        watcher = Watcher(world)
        watcher.start()
        if arguments.first:
            create_seconds = fill(world, arguments.pods, arguments.gang, queue)
        # One pool for all, as most clusters have it.
        scheduler = world.scheduler("--nodepool-label-key=", "--partition-label-value=")
        binder = world.binder()
        for process in (scheduler, binder):
            world.until(
                lambda p=process: any(x["message"] in ("scheduling", "binding") for x in p.lines()), "up", 90
            )
        began = time.monotonic()
        if not arguments.first:
            create_seconds = fill(world, arguments.pods, arguments.gang, queue)
        world.until(lambda: len(watcher.running) >= arguments.pods, "all run", arguments.limit)
        bound = max(watcher.bound.values()) - began
        running = max(watcher.running.values()) - began
        processes = {"scheduler": scheduler.pid, "binder": binder.pid}
        processes = with_engine(processes)
        processes |= {name: process.pid for name, process in plane.processes.items()}
        spent = {name: round(cpu_seconds(pid), 1) for name, pid in processes.items()}
        cycles = [line for line in scheduler.lines() if line["message"] == "cycle"]
        phases: Counter[str] = Counter()
        for cycle in cycles:
            phases.update(cycle["seconds"])
        settle_seconds = settle((scheduler, binder))
        result = {
            "nodes": arguments.nodes,
            "pods": arguments.pods,
            "gang": arguments.gang,
            "create_seconds": round(create_seconds, 1),
            "all_bound_seconds": round(bound, 1),
            "all_running_seconds": round(running, 1),
            "load_average": os.getloadavg(),
            "pods_per_second": round(arguments.pods / bound, 1),
            "cycles": len(cycles),
            "scheduler_seconds_by_phase": {name: round(value, 1) for name, value in phases.items()},
            "reports_written_after_seconds": round(settle_seconds, 1),
            "event_lag_seconds": report_lag(world),
            "writes": {
                name: {kind: n for kind, n in sent(p.listen)[1].items() if kind.split()[0] in WRITES}
                for name, p in (("scheduler", scheduler), ("binder", binder))
            },
            "cpu_seconds": spent,
            "memory_mib_peak": {name: round(memory_mib(pid, "VmHWM")) for name, pid in processes.items()},
            "memory_mib_now": {name: round(memory_mib(pid)) for name, pid in processes.items()},
            "idle_percent_of_a_core": idle_percent(processes, arguments.idle),
        }
        for process in world.processes:
            process.kill()
        return result


def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--pods", type=int, default=4000)
    parser.add_argument("--gang", type=int, default=1)
    parser.add_argument("--idle", type=float, default=30.0, help="seconds the idle cluster is watched")
    parser.add_argument("--limit", type=float, default=600.0, help="seconds to wait for all to run")
    parser.add_argument("--first", action="store_true", help="create the pods before the scheduler starts")
    print(json.dumps(measure(parser.parse_args()), indent=2))


if __name__ == "__main__":
    main()
