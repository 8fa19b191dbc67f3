"""The same answer under load: ``python -m benchmarks.under_load SNAPSHOT…``.

Each snapshot is decided twice, in processes of their own: without a deadline, and with a clock that runs
several times as fast as processor time, as on a machine with so much other work. A row says whether the
decisions, reasons, proofs and stages are the same, and what the deadline has cut.
"""

from __future__ import annotations

import argparse
import hashlib
import time
from math import inf
from multiprocessing import get_context
from typing import Any

from kai_cp.decisions import cut_during
from kai_cp.reader import load, parse
from kai_cp.reading import as_of
from kai_cp_models.engine import decide
from kai_cp_models.settings import Settings


def answer(path: str, budget: float, speed: float | None) -> tuple[str, str, float]:
    """A digest of the answer, what was cut, and processor seconds.

    ``speed``: of the clock; None: no deadline.
    """
    used = time.process_time
    if speed is not None:
        time.monotonic = time.perf_counter = lambda: speed * used()  # type: ignore[assignment]
    raw = load(path).raw
    snapshot = parse(raw, now=as_of(path, raw))
    solver = Settings().solver.model_copy(update={"budget_seconds": budget})
    begun = used()
    deadline = time.monotonic() + (inf if speed is None else budget)
    plan = decide(snapshot, Settings().model_copy(update={"solver": solver}), deadline=deadline)
    parts: list[Any] = [
        sorted((d.kind, d.pod, d.node, d.action, d.gpu_groups) for d in plan.decisions),
        sorted((entry.group, entry.reason, entry.message, entry.proved) for entry in plan.unscheduled),
        [(stage.name, stage.status, stage.objective, stage.bound) for stage in plan.stages],
    ]
    cut = cut_during(plan.stages) or ""
    return hashlib.sha256(repr(parts).encode()).hexdigest(), cut, used() - begun


def main() -> None:
    """Measure and print one row for each snapshot."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("snapshots", nargs="+")
    parser.add_argument("--budget", type=float, default=20.0, help="seconds")
    parser.add_argument("--speed", type=float, default=4.5, help="of the clock, in processor time")
    given = parser.parse_args()
    for path in given.snapshots:
        found = []
        for speed in (None, given.speed):
            with get_context("spawn").Pool(1) as pool:
                found.append(pool.apply(answer, (path, given.budget, speed)))
        (alone, _, _), (loaded, cut, seconds) = found
        print(path, "same" if alone == loaded else "other", f"{seconds:.2f} s", cut, flush=True)


if __name__ == "__main__":
    main()
