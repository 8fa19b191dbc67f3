"""A workload like Philly's (Microsoft, ATC 2019): mostly one GPU, few large gangs, heavy-tailed run times."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import Final

SIZES: Final = ((1, 0.93), (2, 0.025), (4, 0.022), (8, 0.02), (16, 0.002), (32, 0.001))
"""GPUs of a pod group and its share: 93 % one, 2 % eight, 0.3 % sixteen and more."""
QUEUES: Final = 15
SIGMA: Final = 1.4
"""Spread of the run times (lognormal): the mean is 2.7 times the median."""
LONGEST: Final = 48 * 3600.0
NODE_GPUS: Final = 8


@dataclass(frozen=True, slots=True)
class Job:
    """A future pod group: ``pods`` with ``gpus`` each that run ``seconds`` once all have started."""

    name: str
    queue: str
    arrives: float
    gpus: int
    pods: int
    seconds: float
    declared: float | None = None
    """Seconds that its owner says it will run; None: nothing is said."""

    @property
    def total(self) -> int:
        """GPUs of all its pods."""
        return self.gpus * self.pods


@dataclass(frozen=True, slots=True)
class WorkloadTrace:
    """Nodes of eight GPUs, queues with their quotas, and the pod groups by arrival."""

    nodes: int
    quotas: tuple[tuple[str, float], ...]
    jobs: tuple[Job, ...]
    seconds: float
    tick: float = 60.0
    """Seconds between two looks at the cluster."""


def philly(
    seed: int, *, nodes: int = 16, hours: float = 24.0, load: float = 1.05, mean_hours: float = 2.0
) -> WorkloadTrace:
    """Arrivals in waves that request ``load`` times the cluster; queues request unequal parts."""
    rng = random.Random(seed)
    mean_gpus = sum(size * share for size, share in SIZES)
    capacity = nodes * NODE_GPUS
    rate = load * capacity / (mean_gpus * mean_hours * 3600)
    median = math.log(mean_hours * 3600) - SIGMA**2 / 2
    demand = [1.0 / (1 + q) ** 0.7 for q in range(QUEUES)]
    jobs: list[Job] = []
    now = 0.0
    while True:
        # Twice as many arrive by day as by night.
        now += rng.expovariate(rate * (1 + math.sin(now / 86_400 * 2 * math.pi) / 3))
        if now >= hours * 3600:
            break
        size = rng.choices([s for s, _ in SIZES], weights=[w for _, w in SIZES])[0]
        size = min(size, capacity // 2)
        gpus = min(size, NODE_GPUS)
        seconds = min(LONGEST, max(60.0, rng.lognormvariate(median, SIGMA)))
        queue = rng.choices(range(QUEUES), weights=demand)[0]
        jobs.append(Job(f"job-{len(jobs):05}", f"queue-{queue:02}", now, gpus, size // gpus, seconds))
    quota = float(capacity // QUEUES)
    quotas = tuple((f"queue-{q:02}", quota) for q in range(QUEUES))
    return WorkloadTrace(nodes, quotas, tuple(jobs), hours * 3600)
