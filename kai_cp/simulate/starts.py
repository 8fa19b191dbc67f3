"""The workload that measures reservations: gangs among small jobs, with run times declared as people do.

There are gangs of whole nodes among jobs of up to one node. Run times are lognormal and declared as one of a
few usual values; some declarations are too short and some are missing.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Mapping
from statistics import fmean
from typing import Any, Final

from kai_cp.bench.records import PromisesKept
from kai_cp.simulate.workload import NODE_GPUS, Job, WorkloadTrace
from kai_cp.simulate.world import Run
from kai_cp_models.settings import Settings

USUAL: Final = tuple(minutes * 60.0 for minutes in (15, 30, 60, 120, 240, 480, 720, 1440))
"""Run times that people declare (Tsafrir 2005: 90 % of jobs use 20 values)."""
GANGS: Final = 0.055
"""Share of the jobs that are gangs of 2, 4 or 8 whole nodes."""
UNDECLARED: Final = 0.15
TOO_SHORT: Final = 0.07
SIGMA: Final = 1.1
TOLERANCE_SECONDS: Final = 90.0
"""A start that is late by less than this was kept: binding and looking take that long."""

POLICIES: Final[Mapping[str, Mapping[str, Any]]] = {
    "no reservation": {},
    "EASY-like": {"enabled": True, "most": 1, "min_gpus": 1, "after_seconds": 0},
    "one holder": {"enabled": True, "most": 1},
    "the default": {"enabled": True},
    "the default, at once": {"enabled": True, "after_seconds": 0},
    "large gangs first": {
        "enabled": True,
        "after_seconds": 0,
        "backfill": "none",
        "min_gpus": 16,
        "most": 6,
    },
}
"""Settings of ``reservations`` by name. EASY: the first that does not fit has a start, whatever its size."""


def with_policy(settings: Settings, policy: str) -> Settings:
    """The settings, overridden by those of a policy."""
    document = settings.model_dump()
    document["reservations"] = POLICIES[policy]
    return Settings.model_validate(document)


def declared(
    seed: int, *, nodes: int = 16, hours: float = 24.0, load: float = 1.05, mean_hours: float = 1.0
) -> WorkloadTrace:
    """Jobs of one queue that request ``load`` times the cluster, with a cycle every five minutes."""
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
        jobs.append(Job(name, "queue-00", now, gpus, pods, seconds, _said(rng, seconds)))
    quotas = (("queue-00", float(nodes * NODE_GPUS)),)
    return WorkloadTrace(nodes, quotas, tuple(jobs), hours * 3600, tick=300.0)


def _said(rng: random.Random, seconds: float) -> float | None:
    """The run time that a job's owner declares."""
    chance = rng.random()
    if chance < UNDECLARED:
        return None
    if chance < UNDECLARED + TOO_SHORT:
        return max([usual for usual in USUAL if usual < seconds], default=USUAL[0])
    wanted = seconds * rng.uniform(1.0, 3.0)
    return next((usual for usual in USUAL if usual >= wanted), USUAL[-1])


def promises_kept(run: Run, workload: WorkloadTrace) -> PromisesKept:
    """How many first promises were kept, and why the others were broken; open promises do not count."""
    kept = still_open = 0
    broken = Counter[str]()
    for promise in run.promises:
        due = promise.promised + workload.tick + TOLERANCE_SECONDS
        if promise.started is not None and promise.started <= due:
            kept += 1
        elif due < workload.seconds:
            broken[promise.causes[-1] if promise.causes else "none"] += 1
        else:
            still_open += 1
    hours = round(run.idle_gpu_seconds / 3600, 1)
    return PromisesKept(kept=kept, broken=dict(sorted(broken.items())), open=still_open, idle_gpu_hours=hours)
