"""Reservations measured: the same gangs and small jobs without any, with one holder, and with several.

Whole-node gangs among small jobs, run times lognormal, declared as one of a few usual values, some too short
and some not at all. A promise is the first start that was announced.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Final

from kai_cp.simulate.policies import engine
from kai_cp.simulate.workload import NODE_GPUS, Job, Workload
from kai_cp.simulate.world import Run, World
from kai_cp_models.settings import Settings

USUAL: Final = tuple(minutes * 60.0 for minutes in (15, 30, 60, 120, 240, 480, 720, 1440))
"""Run times that people declare (Tsafrir 2005: 90 % of jobs use 20 values)."""
GANGS: Final = 0.055
"""Share of the jobs that are gangs of 2, 4 or 8 whole nodes."""
UNDECLARED: Final = 0.15
TOO_SHORT: Final = 0.07
SIGMA: Final = 1.1
TOLERANCE_SECONDS: Final = 90.0
"""A start that is later than promised by less was kept: binding and looking take so long."""

POLICIES: Final[dict[str, dict[str, Any]]] = {
    "no reservation": {},
    "one holder": {"reservations": {"enabled": True, "most": 1}},
    "up to four holders": {"reservations": {"enabled": True}},
}


def gangs_among_small_jobs(
    seed: int, *, nodes: int = 16, hours: float = 24.0, load: float = 1.05, mean_hours: float = 1.0
) -> Workload:
    """Jobs of one queue at a rate that asks for ``load`` times the cluster."""
    rng = random.Random(seed)
    sizes = [size for size in (2, 4, 8) if size <= nodes // 2]
    mean_gpus = (1 - GANGS) * 2.2 + GANGS * NODE_GPUS * fmean(sizes)
    rate = load * nodes * NODE_GPUS / (mean_gpus * mean_hours * 3600)
    median = math.log(mean_hours * 3600) - SIGMA**2 / 2
    jobs: list[Job] = []
    now = 0.0
    while (now := now + rng.expovariate(rate)) < hours * 3600:
        seconds = min(12 * 3600.0, max(300.0, rng.lognormvariate(median, SIGMA)))
        if rng.random() < GANGS:
            gpus, pods = NODE_GPUS, rng.choice(sizes)
        else:
            gpus, pods = rng.choices((1, 2, 4, 8), weights=(5, 3, 2, 0.5))[0], 1
        name = f"job-{len(jobs):05}"
        jobs.append(Job(name, "queue-00", now, gpus, pods, seconds, _declared(rng, seconds)))
    quotas = (("queue-00", float(nodes * NODE_GPUS)),)
    return Workload(nodes, quotas, tuple(jobs), hours * 3600, tick=300.0)


def _declared(rng: random.Random, seconds: float) -> float | None:
    chance = rng.random()
    if chance < UNDECLARED:
        return None
    if chance < UNDECLARED + TOO_SHORT:
        return max([usual for usual in USUAL if usual < seconds], default=USUAL[0])
    wanted = seconds * rng.uniform(1.0, 3.0)
    return next((usual for usual in USUAL if usual >= wanted), USUAL[-1])


@dataclass(frozen=True, slots=True)
class Measured:
    """What one policy did with one workload. Hours, unless named otherwise."""

    policy: str
    seed: int
    wait_of_gangs: float
    wait_of_32: float
    longest_wait_of_32: float
    wait_of_small: float
    utilisation: float
    promises: int
    kept: int
    broken: dict[str, int]
    idle_gpu_hours: float
    lost_gpu_hours: float
    cycles: int
    slowest_cycle_seconds: float
    errors: int


def measure(policy: str, seed: int, *, nodes: int, hours: float) -> Measured:
    """Run one policy on the workload of one seed."""
    values = {**POLICIES[policy], "time": {"default_runtime_seconds": 8 * 3600}}
    values["solver"] = {"budget_seconds": 5}
    workload = gangs_among_small_jobs(seed, nodes=nodes, hours=hours)
    run = World(workload, engine, Settings.model_validate(values)).run()
    kept, broken = _promises(run, workload)

    def mean(low: int, high: float = math.inf) -> float:
        waits = [seconds for gpus, seconds in run.waits if low <= gpus < high]
        return round(fmean(waits) / 3600, 2) if waits else 0.0

    longest = max((seconds for gpus, seconds in run.waits if gpus >= 32), default=0.0)
    return Measured(
        policy,
        seed,
        mean(16),
        mean(32),
        round(longest / 3600, 2),
        mean(1, 9),
        round(run.utilisation, 4),
        kept + sum(broken.values()),
        kept,
        dict(sorted(broken.items())),
        round(run.idle_gpu_seconds / 3600, 1),
        round(run.lost_gpu_seconds / 3600, 1),
        run.cycles,
        round(run.slowest_cycle, 2),
        len(run.errors),
    )


def _promises(run: Run, workload: Workload) -> tuple[int, Counter[str]]:
    """How many first promises were kept, and why the others were not; those still open do not count."""
    kept, broken = 0, Counter[str]()
    for promise in run.promises:
        due = promise.promised + workload.tick + TOLERANCE_SECONDS
        if promise.started is not None and promise.started <= due:
            kept += 1
        elif due < workload.seconds:
            broken[promise.causes[-1] if promise.causes else "none"] += 1
    return kept, broken
