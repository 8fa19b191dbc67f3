"""The suite gangs: the same workloads under every policy."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Final

from kai_cp.bench.progress import ProgressBar
from kai_cp.bench.records import SimulationResult, origin
from kai_cp.settings import digest
from kai_cp.simulate import policies, starts
from kai_cp.simulate.workload import WorkloadTrace, philly
from kai_cp.simulate.world import Run, Simulation
from kai_cp_models.settings import Settings

PHILLY: Final = "philly"
"""Mostly one GPU, many queues: the engine beside its greedy pass and first come."""
DECLARED: Final = "declared"
"""Gangs among small jobs with run times, one queue: reservations beside none."""
WORKLOADS: Final = (PHILLY, DECLARED)
NODES: Final = 16
SMALL_NODES: Final = 2


@dataclass(frozen=True, slots=True)
class Contender:
    """A policy on a workload. ``name``: of the kind of workload."""

    name: str
    workload: WorkloadTrace
    policy: str
    seed: int


def run_gangs(
    settings: Settings,
    seeds: Sequence[int],
    bar: ProgressBar,
    *,
    hours: float,
    nodes: Sequence[int] = (),
    names: Sequence[str] = (),
    small: bool = False,
) -> Iterator[SimulationResult]:
    """Every policy on the workloads of every seed. ``small``: a few nodes and short jobs, Philly's only."""
    found: list[Contender] = []
    chosen = (PHILLY,) if small else [name for name in names if name in WORKLOADS] or WORKLOADS
    for seed in seeds:
        for size in nodes or (SMALL_NODES if small else NODES,):
            if PHILLY in chosen:
                mean = 0.5 if small else 2.0
                workload = philly(seed, nodes=size, hours=hours, mean_hours=mean)
                found += [Contender(PHILLY, workload, policy, seed) for policy in policies.POLICIES]
            if DECLARED in chosen:
                workload = starts.declared(seed, nodes=size, hours=hours)
                found += [Contender(DECLARED, workload, policy, seed) for policy in starts.POLICIES]
    bar.expect(len(found))
    for one in found:
        bar.begin(f"gangs, {one.name}, {one.policy}, seed {one.seed}")
        yield measure(one, settings)


def measure(one: Contender, settings: Settings) -> SimulationResult:
    """One policy on one workload."""
    begin = time.monotonic()
    decide = policies.POLICIES.get(one.policy, policies.engine)
    if one.name == DECLARED:
        settings = starts.with_policy(settings, one.policy)
    workload = one.workload
    run = Simulation(workload, decide, settings).run()
    by_size = _waits(run)
    return SimulationResult(
        case=f"{one.name}-{workload.nodes}n",
        policy=one.policy,
        seed=one.seed,
        hours=workload.seconds / 3600,
        groups=len(run.waits),
        finished=run.finished,
        waiting_minutes={size: round(fmean(waits), 2) for size, waits in by_size.items()},
        waiting_p95_minutes={
            size: round(sorted(waits)[int(0.95 * (len(waits) - 1))], 2) for size, waits in by_size.items()
        },
        longest_wait_minutes={size: round(max(waits), 2) for size, waits in by_size.items()},
        utilisation=run.utilisation,
        evictions=run.evictions,
        moves=run.moves,
        lost_gpu_hours=run.lost_gpu_seconds / 3600,
        share_error=run.share_error,
        cycles=run.cycles,
        slowest_cycle_seconds=round(run.slowest_cycle, 3),
        promises=starts.promises_kept(run, workload) if one.name == DECLARED else None,
        seconds=round(time.monotonic() - begin, 1),
        errors=run.errors[:20],
        origin=origin(digest(settings)),
    )


def _waits(run: Run) -> dict[str, list[float]]:
    """Minutes until the start by size of the pod group."""
    by_size: dict[str, list[float]] = defaultdict(list)
    for gpus, seconds in run.waits:
        by_size[_label(gpus)].append(seconds / 60)
    return by_size


def _label(gpus: int) -> str:
    for most, label in ((1, "1"), (4, "2-4"), (8, "8"), (31, "16")):
        if gpus <= most:
            return label
    return "32+"
