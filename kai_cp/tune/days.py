"""The results of one configuration on a simulated day: waits by size, promises kept, and their cost."""

from __future__ import annotations

import time
from collections.abc import Sequence
from statistics import fmean

from kai_cp.simulate.policies import engine
from kai_cp.simulate.starts import promises_kept
from kai_cp.simulate.workload import WorkloadTrace
from kai_cp.simulate.world import Simulation
from kai_cp.tune.measure import Measured
from kai_cp_models.settings import Settings

LARGE_GPUS = 32
SMALL_GPUS = 8
HOUR = 3600.0


def measure_day(workload: WorkloadTrace, settings: Settings) -> Measured:
    """Simulate the day under ``settings`` and measure it; a group that never starts waits until the end."""
    begin = time.monotonic()
    run = Simulation(workload, engine, settings).run()
    promises = promises_kept(run, workload)
    due = promises.kept + sum(promises.broken.values())
    large = [wait for gpus, wait in run.waits if gpus >= LARGE_GPUS]
    values = {
        "wait_large": _hours(large),
        "longest_large": max(large, default=0.0) / HOUR,
        "wait_small": _hours([wait for gpus, wait in run.waits if gpus <= SMALL_GPUS]),
        "utilisation": 100 * run.utilisation,
        "promises": float(promises.kept),
        "broken": float(due - promises.kept),
        "held_idle": promises.idle_gpu_hours,
        "evicted": float(run.evictions),
        "lost_hours": run.lost_gpu_seconds / HOUR,
        "seconds": time.monotonic() - begin,
    }
    return Measured(values, {}, run.errors)


def _hours(seconds: Sequence[float]) -> float:
    return fmean(seconds) / HOUR if seconds else 0.0
