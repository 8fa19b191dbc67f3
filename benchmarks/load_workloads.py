"""How fast workloads are grouped and bound: 4,000 pods of 1,000 PyTorchJobs at once, our processes alone.

``python -m benchmarks.load_workloads [--owners 1000] [--pods 4] [--nodes 500] [--idle 30] [--no-admission]``
prints one JSON object: seconds of creation, and from the first creation until every pod knows its group and
until every pod runs; CPU seconds, memory and writes of every process; what an unchanged cluster costs
afterwards. ``--beforehand`` creates everything before our processes start, and counts from their start: what
they can do at most, and what the API server needs alone. ``--nodes 0`` leaves scheduler and binder out.
All processes and the API server share the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

from benchmarks.load_cluster import CREATORS, cpu_seconds, memory_mib, sent, settle
from kai_cp.kube.api.resources import PODS
from kai_cp.kube.api.transport import WRITES
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
    """The owners with their pods, created by several threads."""

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
    """Pods that know their group."""
    return sent(program.listen)[1].get("patch pods", 0.0)


def started(world: World, made: Workloads, nodes: int) -> dict[str, Program]:
    """Controllers, and with nodes the scheduler and the binder."""
    programs = {"controllers": made.start()}
    if nodes:
        programs |= {"scheduler": world.scheduler(), "binder": world.binder()}
    return programs


def writes(program: Program) -> dict[str, float]:
    """Requests so far that change something, by verb and resource."""
    return {key: count for key, count in sent(program.listen)[1].items() if key.split()[0] in WRITES}


def idle(programs: Mapping[str, Program], seconds: int) -> dict[str, Any]:
    """What an unchanged cluster costs, once every report is written."""
    controllers = programs["controllers"]
    settled = settle([*programs.values()])
    time.sleep(10.0)
    before, cpu = writes(controllers), {name: cpu_seconds(program.pid) for name, program in programs.items()}
    time.sleep(seconds)
    shares = {name: (cpu_seconds(program.pid) - cpu[name]) / seconds for name, program in programs.items()}
    return {
        "reports_written_after_seconds": round(settled, 1),
        "idle_share_of_a_core": {name: round(share, 4) for name, share in shares.items()},
        "idle_writes": {
            k: n - before.get(k, 0) for k, n in writes(controllers).items() if n > before.get(k, 0)
        },
    }


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Create the objects, wait, and measure what that cost."""
    total = arguments.owners * arguments.pods
    with ExitStack() as whole:
        plane = whole.enter_context(ControlPlane(build(), users={user: [] for user in USERS}))
        prepare(plane)
        world = World(plane, "load")
        install(world, PYTORCH_JOBS)
        made = Workloads(world, world.add_queue())
        world.add_nodes(arguments.nodes)
        admission = {"admission": judging(world, whole)} if arguments.admission else {}
        programs = admission | ({} if arguments.beforehand else started(world, made, arguments.nodes))
        world.until(lambda: all(map(answers, programs.values())), "they listen", 300)
        load = os.getloadavg()[0]
        began = time.monotonic()
        create(made, arguments.owners, arguments.pods)
        created = round(time.monotonic() - began, 1)
        spent = {name: cpu_seconds(process.pid) for name, process in plane.processes.items()}
        if arguments.beforehand:
            began = time.monotonic()
            programs |= started(world, made, arguments.nodes)
            world.until(lambda: all(map(answers, programs.values())), "they listen", 300)
        controllers = programs["controllers"]
        found: dict[str, Any] = {
            "pods": total,
            "owners": arguments.owners,
            "nodes": arguments.nodes,
            "created_seconds": created,
            "cpu_seconds_when_created": spent,
            "grouped_seconds": waited(lambda: patched(controllers) >= total, began),
        }
        if arguments.nodes:
            found["running_seconds"] = waited(lambda: len(world.running()) >= total, began)
        pids = {name: program.pid for name, program in programs.items()}
        pids |= {name: process.pid for name, process in plane.processes.items()}
        found["cpu_seconds"] = {name: cpu_seconds(pid) for name, pid in pids.items()}
        found["peak_mib"] = {name: round(memory_mib(pid, "VmHWM")) for name, pid in pids.items()}
        found["writes"] = {name: writes(program) for name, program in programs.items()}
        found |= idle(programs, arguments.idle)
        found["load_average_before_and_after"] = [round(load, 1), round(os.getloadavg()[0], 1)]
        for program in programs.values():
            program.kill()
        return found


def answers(program: Program) -> bool:
    """Whether a program answers."""
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
    parser.add_argument("--beforehand", action="store_true", help="create before our processes start")
    parser.add_argument("--idle", type=int, default=30, help="seconds to watch an unchanged cluster")
    print(json.dumps(measure(parser.parse_args()), indent=2))


if __name__ == "__main__":
    main()
