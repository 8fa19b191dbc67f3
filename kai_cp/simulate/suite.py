"""The suite gangs: the same workload under every policy."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from statistics import fmean

from kai_cp.bench.progress import Bar
from kai_cp.bench.records import SimulationResult, origin
from kai_cp.settings import digest
from kai_cp.simulate.policies import POLICIES
from kai_cp.simulate.workload import Workload, philly
from kai_cp.simulate.world import Run, World
from kai_cp_models.settings import Settings


def run_gangs(
    settings: Settings, seeds: Sequence[int], bar: Bar, *, hours: float, small: bool = False
) -> Iterator[SimulationResult]:
    """Every policy on the workload of every seed. ``small``: a few nodes and short jobs."""
    bar.expect(len(seeds) * len(POLICIES))
    for seed in seeds:
        workload = philly(seed, nodes=2, hours=hours, mean_hours=0.5) if small else philly(seed, hours=hours)
        for name in POLICIES:
            bar.begin(f"gangs, {name}, seed {seed}")
            yield one(workload, name, seed, settings)


def one(workload: Workload, policy: str, seed: int, settings: Settings) -> SimulationResult:
    """One policy on one workload."""
    begin = time.monotonic()
    run = World(workload, POLICIES[policy], settings).run()
    means, tails = _waits(run)
    return SimulationResult(
        case=f"philly-{workload.nodes}n",
        policy=policy,
        seed=seed,
        hours=workload.seconds / 3600,
        groups=len(run.waits),
        finished=run.finished,
        waiting_minutes=means,
        waiting_p95_minutes=tails,
        utilisation=run.utilisation,
        evictions=run.evictions,
        moves=run.moves,
        lost_gpu_hours=run.lost_gpu_seconds / 3600,
        share_error=run.share_error,
        cycles=run.cycles,
        slowest_cycle_seconds=round(run.slowest_cycle, 3),
        seconds=round(time.monotonic() - begin, 1),
        errors=run.errors[:20],
        origin=origin(digest(settings)),
    )


def _waits(run: Run) -> tuple[dict[str, float], dict[str, float]]:
    by_size: dict[str, list[float]] = defaultdict(list)
    for gpus, seconds in run.waits:
        label = "1" if gpus == 1 else "2-4" if gpus <= 4 else "8" if gpus == 8 else "16+"
        by_size[label].append(seconds / 60)
    means = {label: round(fmean(waits), 2) for label, waits in by_size.items()}
    tails = {label: round(sorted(waits)[int(0.95 * (len(waits) - 1))], 2) for label, waits in by_size.items()}
    return means, tails
