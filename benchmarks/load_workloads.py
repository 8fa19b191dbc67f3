"""How fast workloads are grouped and bound: 4,000 pods of 1,000 PyTorchJobs at once, our processes alone.

``python -m benchmarks.load_workloads [--owners 1000] [--pods 4] [--nodes 500] [--idle 30] [--no-admission]``
prints one JSON object: seconds until every pod knows its group and until every pod runs, from the first and
from the last creation; CPU seconds and memory of every process; requests; what an unchanged cluster costs
afterwards. ``--nodes 0`` leaves scheduler and binder out. Admission is asked for every pod and pod group, as
its registrations have it. All processes and the API server share the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

from benchmarks.load_cluster import CREATORS, cpu_seconds, memory_mib, sent
from kai_cp.kube.api.resources import PODS
from kai_cp.kube.demo.controlplane import ControlPlane, free_port
from tests.e2e.conftest import USERS
from tests.e2e.test_admission import published, registered, works
from tests.e2e.workloads import Workloads, install
from tests.e2e.world import Program, World, prepare
from tests.kubetest.build import build
from tests.support.definitions import PYTORCH_JOBS

ROLE = "training.kubeflow.org/replica-type"
PATIENCE_SECONDS = 600.0


def create(made: Workloads, owners: int, pods: int) -> None:
    """The owners with their pods, by several hands."""

    def one(i: int) -> None:
        replicas = {"Master": {"replicas": 1}, "Worker": {"replicas": pods - 1}}
        job = made.own(PYTORCH_JOBS, f"job{i}", spec={"pytorchReplicaSpecs": replicas})
        for k in range(pods):
            made.pod(f"job{i}-{k}", job, **{ROLE: "worker" if k else "master"})

    with ThreadPoolExecutor(CREATORS) as pool:
        list(pool.map(one, range(owners)))


def judging(world: World, whole: ExitStack) -> Program:
    """Admission, registered until ``whole`` ends."""
    port = free_port()
    program = world.admission(port, "--gpu-sharing-enabled", "--drain-seconds=0")
    whole.enter_context(registered(world.api, port))
    world.until(lambda: published(world) and works(world), "admission judges", 300)
    for pod in world.pods():
        world.api.delete(PODS, world.namespace, pod["metadata"]["name"], grace=0)
    return program


def waited(met: Any, began: float) -> float:
    """Seconds from ``began`` until ``met``."""
    while not met() and time.monotonic() - began < PATIENCE_SECONDS:
        time.sleep(0.2)
    return round(time.monotonic() - began, 1)


def patched(program: Program) -> float:
    """Pods that were told their group."""
    return sent(program.listen)[1].get("patch pods", 0.0)


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Create, wait, look at what it cost."""
    total = arguments.owners * arguments.pods
    with ExitStack() as whole:
        plane = whole.enter_context(ControlPlane(build(), users={user: [] for user in USERS}))
        prepare(plane)
        world = World(plane, "load")
        install(world, PYTORCH_JOBS)
        made = Workloads(world, world.add_queue())
        programs = {"controllers": made.start()}
        controllers = programs["controllers"]
        if arguments.admission:
            programs["admission"] = judging(world, whole)
        if arguments.nodes:
            world.add_nodes(arguments.nodes)
            programs |= {"scheduler": world.scheduler(), "binder": world.binder()}
        world.until(lambda: all(answers(program) for program in programs.values()), "they listen", 300)
        load = os.getloadavg()[0]
        began = time.monotonic()
        create(made, arguments.owners, arguments.pods)
        created = round(time.monotonic() - began, 1)
        grouped = waited(lambda: patched(controllers) >= total, began)
        found: dict[str, Any] = {
            "pods": total,
            "owners": arguments.owners,
            "nodes": arguments.nodes,
            "created_seconds": created,
            "grouped_seconds": grouped,
            "grouped_after_last_creation_seconds": round(grouped - created, 1),
        }
        if arguments.nodes:
            found["running_seconds"] = waited(lambda: len(world.running()) >= total, began)
        pids = {name: program.pid for name, program in programs.items()}
        pids |= {name: process.pid for name, process in plane.processes.items()}
        found["cpu_seconds"] = {name: cpu_seconds(pid) for name, pid in pids.items()}
        found["peak_mib"] = {name: round(memory_mib(pid, "VmHWM")) for name, pid in pids.items()}
        time.sleep(10.0)
        before, cpu = sent(controllers.listen)[1], cpu_seconds(controllers.pid)
        time.sleep(arguments.idle)
        after = sent(controllers.listen)[1]
        found["idle_share_of_a_core"] = round((cpu_seconds(controllers.pid) - cpu) / arguments.idle, 4)
        found["idle_writes"] = sum(
            after[key] - before.get(key, 0)
            for key in after
            if key.split()[0] in ("create", "update", "patch")
        )
        found["load_average_before_and_after"] = [round(load, 1), round(os.getloadavg()[0], 1)]
        for program in programs.values():
            program.kill()
        return found


def answers(program: Program) -> bool:
    """Whether a program listens."""
    try:
        sent(program.listen)
    except OSError:
        return False
    return True


def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--owners", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=4, help="pods of an owner")
    parser.add_argument("--nodes", type=int, default=500, help="nodes of 8 GPUs; 0: grouping alone")
    parser.add_argument("--admission", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--idle", type=int, default=30, help="seconds to watch an unchanged cluster")
    print(json.dumps(measure(parser.parse_args()), indent=2))


if __name__ == "__main__":
    main()
