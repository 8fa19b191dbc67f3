"""Memory and processor time of ``kai-cp solve`` on one large cluster.

``python -m benchmarks.memory [--nodes 10000] [--shape crowd] [--budget 60] [--file FILE]`` writes the
generated cluster to a file in a process of its own (10,000 nodes of *crowd*: 350,000 pods), unless ``--file``
names a snapshot. It prints a Markdown table of the steps of the command's worker, done alone in a fresh
process: the peak of memory in each step, what is in use at its end, and its processor seconds. The last row
is the whole command ``kai-cp solve FILE``: the peak of its largest process.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from benchmarks.hostile_files import measured
from benchmarks.load_cluster import memory_mib
from kai_cp.bench.generate.shapes import SHAPES
from kai_cp.raw_objects import NOW
from kai_cp.worker import Channel

SEED = 1


class Step(NamedTuple):
    """A step of the work; memory in MiB, processor seconds."""

    name: str
    peak: float
    in_use: float
    seconds: float


class Listener(Channel):
    """Takes the place of the worker's channel: notes a step whenever the job sends an answer."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self._begun = 0.0

    def until(self, deadline: float) -> None:
        """The work begins."""
        self._end("begin")

    def answer(self, value: Any) -> None:
        """The first answer is sent when the snapshot is read, the others while it is decided."""
        if not isinstance(value, bytes):
            raise RuntimeError(value)
        self._end(f"to answer {len(self.steps)}, of {len(value) / 1e6:.1f} MB")

    def progress(self, value: Any) -> None:
        """Said beside an answer."""

    def _end(self, name: str) -> None:
        me, now = os.getpid(), time.process_time()
        self.steps.append(Step(name, memory_mib(me, "VmHWM"), memory_mib(me), now - self._begun))
        Path("/proc/self/clear_refs").write_text("5")  # The peak is counted anew.
        self._begun = now


def write(shape: str, nodes: int, path: str) -> None:
    """Write the generated cluster."""
    Path(path).write_bytes(orjson.dumps(SHAPES[shape](nodes, SEED)))


def work(path: str, budget: float) -> list[Step]:
    """The steps of the work that the worker of ``kai-cp solve`` does on a file."""
    import kai_cp.preload  # noqa: F401  (as the worker has it)
    from kai_cp.reader.container import Source
    from kai_cp.solving import SolvingTask, job
    from kai_cp_models.settings import Settings

    settings = Settings.model_validate({"solver": {"budget_seconds": budget}})
    listener = Listener()
    job(SolvingTask(Source(path, "cluster"), None, NOW.timestamp(), settings, None), listener)
    return listener.steps


def alone(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function gives in a process of its own."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def main() -> None:
    """Print the table."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--nodes", type=int, default=10_000)
    options.add_argument("--shape", choices=sorted(SHAPES), default="crowd")
    options.add_argument("--budget", type=float, default=60.0)
    options.add_argument("--file", default="")
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = chosen.file or str(Path(folder) / "snapshot.json")
        if not chosen.file:
            alone(write, chosen.shape, chosen.nodes, path)
        print(f"load {os.getloadavg()[0]:.1f}; {Path(path).stat().st_size / 1e6:.1f} MB")
        print("| step | peak [MiB] | in use at its end [MiB] | processor [s] |\n| --- | --: | --: | --: |")
        steps = alone(work, path, chosen.budget)
        for step in steps:
            print(f"| {step.name} | {step.peak:,.0f} | {step.in_use:,.0f} | {step.seconds:.2f} |", flush=True)
        total = sum(step.seconds for step in steps)
        print(f"| all of it | {max(s.peak for s in steps):,.0f} | {steps[-1].in_use:,.0f} | {total:.2f} |")
        _, _, peak = measured(path, chosen.budget)
        print(f"| the command | {peak:,.0f} | | |")


if __name__ == "__main__":
    main()
