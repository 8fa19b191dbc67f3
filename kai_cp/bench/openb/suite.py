"""The runs of the openb suite: lists, policies and seeds, and the offline bound of every list."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Final

import numpy as np

from kai_cp.bench.openb import trace
from kai_cp.bench.openb.admission import TraceAdmission
from kai_cp.bench.openb.cluster import TraceCluster
from kai_cp.bench.openb.migrate import SHARE, MigratingPolicy
from kai_cp.bench.openb.policies import BestFit, FragmentationGradient, PlacementPolicy
from kai_cp.bench.openb.priced import Priced
from kai_cp.bench.openb.problem import bins_of, items_of, patterns_of
from kai_cp.bench.openb.repacked import repacked
from kai_cp.bench.progress import ProgressBar
from kai_cp.bench.records import BoundResult, PolicyResult, origin
from kai_cp.worker import end_with_parent
from kai_cp_models.arrays import Ints
from kai_cp_models.bounds import packing_bound

MOVES: Final = "kai_cp prices, moves"
REFUSES: Final = "kai_cp prices, moves, may refuse"
REPACKED: Final = "any repacking, refuses nothing"
"""Not a policy but a level that a policy could reach, see :mod:`kai_cp.bench.openb.repacked`."""
POLICIES: Final[dict[str, type[PlacementPolicy]]] = {
    BestFit.name: BestFit,
    FragmentationGradient.name: FragmentationGradient,
    Priced.name: Priced,
    MOVES: Priced,
    REFUSES: Priced,
}
PUBLISHED: Final = {
    ("best fit", "default"): 93.08,
    ("best fit", "gpushare100"): 85.01,
    ("best fit", "gpuspec33"): 93.09,
    ("best fit", "multigpu50"): 95.74,
    ("fragmentation gradient descent", "default"): 95.39,
    ("fragmentation gradient descent", "gpushare100"): 86.90,
    ("fragmentation gradient descent", "gpuspec33"): 94.55,
    ("fragmentation gradient descent", "multigpu50"): 97.18,
}
"""Published means over ten seeds (USENIX ATC 2023, artifact)."""

ReplayJob = tuple[Path, str, str, int]


def run_openb(
    folder: Path,
    lists: Sequence[str],
    seeds: Sequence[int],
    bar: ProgressBar,
    *,
    bound_seconds: float,
    processes: int,
) -> Iterator[PolicyResult | BoundResult]:
    """Every policy on every list and seed; then the bound of each list for its first seed."""
    names = tuple(lists) or trace.LISTS
    chosen = tuple(seeds) or trace.SEEDS
    trace.read_nodes(folder)  # Fails at once if the data is missing.
    jobs = [
        (folder, name, policy, seed) for name in names for policy in (*POLICIES, REPACKED) for seed in chosen
    ]
    bar.expect(len(jobs) + (len(names) if bound_seconds > 0 else 0))
    if processes <= 1:
        for job in jobs:
            bar.begin(f"openb {job[1]}, {job[2]}, seed {job[3]}")
            yield one(job)
    else:
        context = get_context("forkserver")
        with ProcessPoolExecutor(processes, mp_context=context, initializer=_begin) as pool:
            for job, result in zip(jobs, pool.map(one, jobs), strict=True):
                bar.begin(f"openb {job[1]}, {job[2]}, seed {job[3]}")
                yield result
    if bound_seconds > 0:
        for name in names:
            bar.begin(f"openb {name}, offline bound")
            yield bound(folder, name, chosen[0], bound_seconds, processes)


def _begin() -> None:
    threading.Thread(target=end_with_parent, daemon=True).start()


def one(job: ReplayJob) -> PolicyResult:
    """One run."""
    folder, name, policy, seed = job
    nodes = trace.shuffled(trace.read_nodes(folder), seed)
    classes, of_pods = trace.read_pods(folder, name, nodes.models)
    sequence = trace.arrivals(classes, of_pods, nodes, seed)
    begin = time.monotonic()
    if policy == REPACKED:
        used = 100.0 * repacked(nodes, classes, sequence) / nodes.total_milli_gpus
        seconds = round(time.monotonic() - begin, 2)
        return PolicyResult(
            case=name, policy=policy, seed=seed, used=round(used, 4), seconds=seconds, origin=origin()
        )
    cluster, migration = simulate(nodes, classes, sequence, policy)
    seconds = time.monotonic() - begin
    errors = [] if cluster.legal() else ["a node holds more than it has, or the books are wrong"]
    if migration is not None and migration.worst > 100 * SHARE + 1e-9:
        errors.append(f"moved {migration.worst:.2f} % of the running pods within 100 arrivals")
    return PolicyResult(
        case=name,
        policy=policy,
        seed=seed,
        used=round(cluster.share_used(), 4),
        published=PUBLISHED.get((policy, name)),
        moved_pods=0 if migration is None else migration.moves,
        most_moved_share=0.0 if migration is None else round(migration.worst, 4),
        seconds=round(seconds, 2),
        errors=tuple(errors),
        origin=origin(),
    )


def simulate(
    nodes: trace.Nodes, classes: trace.Classes, sequence: Ints, policy: str
) -> tuple[TraceCluster, MigratingPolicy | None]:
    """Place the arrivals one by one and return the cluster at the end.

    ``sequence``: the class of each arriving pod.
    """
    cluster = TraceCluster(nodes, classes)
    chooser = POLICIES[policy](cluster)
    migration = MigratingPolicy(cluster, chooser) if policy in (MOVES, REFUSES) else None
    admission = TraceAdmission(nodes, classes) if policy == REFUSES else None
    for pod, value in enumerate(sequence):
        c = int(value)
        if admission is not None and not admission.admits(c, cluster.of_class):
            continue
        if migration is not None:
            migration.arrive(pod, c)
            continue
        choice = chooser.choose(c)
        if choice is not None:
            cluster.place(pod, c, *choice)
    return cluster, migration


def bound(folder: Path, name: str, seed: int, seconds: float, workers: int) -> BoundResult:
    """Offline bound for the arrivals of ``seed``: no placement of these pods exceeds it."""
    nodes = trace.shuffled(trace.read_nodes(folder), seed)
    classes, of_pods = trace.read_pods(folder, name, nodes.models)
    sequence = trace.arrivals(classes, of_pods, nodes, seed)
    begin = time.monotonic()
    cluster, _ = simulate(nodes, classes, sequence, Priced.name)
    bins, models, bin_of_node = bins_of(nodes)
    count = np.bincount(sequence, minlength=len(classes)).astype(np.int64)
    found = packing_bound(
        items_of(classes, models, count),
        bins,
        seconds=seconds,
        start=patterns_of(cluster, bin_of_node),
        workers=workers,
    )
    percent = 100.0 / nodes.total_milli_gpus
    return BoundResult(
        case=name,
        seed=seed,
        bound=round(found.bound * percent, 4),
        value=round(found.value * percent, 4),
        columns=found.columns,
        seconds=round(time.monotonic() - begin, 1),
        origin=origin(),
    )
