"""Time of each read-only command of the kubectl plugin on a played cluster.

``python -m benchmarks.plugin [--nodes 1000] [--pods-per-node 10]`` prints a table: seconds from start to
prompt, and processor seconds of the command with the processes that it starts. A scheduler of ours follows
the same played API server in mode *observe*; ``--source=scheduler`` asks it through a played
``kubectl port-forward``, ``--source=api`` reads the lists and, where a command shows decisions, decides.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.sizing import LargeServer, cycles, fill, kubeconfig_of, wait_for
from kai_cp.kube.api import resources as r
from kai_cp.kube.demo.controlplane import free_port
from kai_cp.kube.plugin.take import LABELS
from tests.e2e.world import Program

COMMANDS = ("pending", "queues", "evictions", "plan", "audit", "inspect", "topology")
FORWARD = """\
#!{python}
import time
print("Forwarding from 127.0.0.1:{port} -> 8081", flush=True)
time.sleep(600)
"""


def scheduler_pod() -> dict[str, object]:
    """The pod of the scheduler, as the plugin looks it up."""
    labels = dict(label.split("=", 1) for label in LABELS.split(","))
    meta = {"name": "kai-cp-scheduler-0", "namespace": "kai-cp", "uid": "uid-scheduler", "labels": labels}
    return {"kind": "Pod", "metadata": meta, "spec": {"containers": []}, "status": {"phase": "Running"}}


def timed(command: list[str], environment: dict[str, str]) -> tuple[float, float]:
    """Seconds from start to prompt, and processor seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.monotonic()
    done = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
    wall = time.monotonic() - began
    if done.returncode:
        raise SystemExit(f"{command[1]}: {done.stderr}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--pods-per-node", type=int, default=10)
    parser.add_argument("--sources", default="scheduler,api")
    arguments = parser.parse_args()
    server = LargeServer()
    fill(server, arguments.nodes, arguments.pods_per_node)
    server.put(r.PODS, scheduler_pod())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        kubeconfig = kubeconfig_of(server.url, folder)
        listen, data = free_port(), free_port()
        flags = ["scheduler", "--mode=observe", f"--kubeconfig={kubeconfig}"]
        flags += [f"--listen-address=127.0.0.1:{listen}", f"--plugin-server-address=127.0.0.1:{data}"]
        program = Program(flags, folder / "log", listen, data)
        try:
            wait_for(program, lambda: cycles(data))
            forward = folder / "kubectl"
            forward.write_text(FORWARD.format(python=sys.executable, port=data))
            forward.chmod(0o755)
            environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
            plugin = str(Path(sys.executable).parent / "kubectl-kai_cp")
            print("| command | source | start to prompt [s] | processor [s] |\n|---|---|--:|--:|", flush=True)
            for source in arguments.sources.split(","):
                for command in COMMANDS:
                    words = [plugin, command, "-A", f"--kubeconfig={kubeconfig}", f"--source={source}"]
                    wall, cpu = min(timed(words, environment) for _ in range(3))
                    print(f"| {command} | {source} | {wall:.2f} | {cpu:.2f} |", flush=True)
        finally:
            program.kill()
            server.close()


if __name__ == "__main__":
    main()
