"""Small clusters on which a default scheduler leaves pods waiting: can the engine do better, or prove that
nothing is better?

The setting is that of "Priority Matters" (arXiv 2511.08373): pods request CPU and memory and have priorities,
and a scheduler that spreads them in their order of arrival (least allocated node first) fails to place some.
The engine then gets this cluster. It may move running pods and preempt lower priorities, and should place
more pods of the highest priorities.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kai_cp.bench.generate.objects import (
    NOW,
    GangSpec,
    NodeShape,
    PodRequest,
    RawCluster,
    ago,
    group,
    node,
    pod,
    queue,
)
from kai_cp.bench.progress import ProgressBar
from kai_cp.bench.records import MattersResult, origin
from kai_cp.bench.runner import errors_of
from kai_cp.reader import parse
from kai_cp.settings import digest
from kai_cp_models.engine import decide
from kai_cp_models.plan import Plan
from kai_cp_models.pods import PodKey
from kai_cp_models.settings import Settings
from kai_cp_models.snapshot import Snapshot

NODES: Final = (4, 8, 16, 32)
BUDGETS: Final = (1.0, 10.0)
CLUSTERS: Final = 10
"""Clusters of each size and usage."""
PODS_PER_NODE: Final = 6
PRIORITIES: Final = ("train", "build-preemptible")
USAGE: Final = (0.95, 1.0, 1.05)
"""CPU asked for, as a multiple of the CPU that exists."""
_PATIENCE: Final = 1000.0
MILLI_CPUS: Final = 16_000
MIB: Final = 65_536


@dataclass(frozen=True, slots=True)
class _Ask:
    """One pod: milli-CPUs, MiB and priority class."""

    cpu: int
    memory: int
    priority: str


def run_matters(
    settings: Settings, nodes: Sequence[int], seeds: Sequence[int], bar: ProgressBar, *, small: bool = False
) -> Iterator[MattersResult]:
    """Every size at every budget. The suite measures what a budget gains, so no search ends early."""
    patient = settings.solver.model_copy(update={"patience": _PATIENCE})
    settings = settings.model_copy(update={"solver": patient})
    sizes = (4,) if small else (tuple(nodes) or NODES)
    budgets = (1.0,) if small else BUDGETS
    bar.expect(len(sizes) * len(seeds) * len(budgets))
    for size in sizes:
        for seed in seeds:
            clusters = failing(size, seed, 2 if small else CLUSTERS)
            for budget in budgets:
                bar.begin(f"matters, {size} nodes, {budget:g} s")
                yield _measure(size, seed, clusters, settings, budget)


def failing(nodes: int, seed: int, count: int) -> list[dict[str, Any]]:
    """Raw snapshots of ``count`` clusters on which the default scheduler left pods waiting."""
    rng = random.Random(f"{nodes}-{seed}")
    found: list[dict[str, Any]] = []
    while len(found) < count:
        asks = _asks(rng, nodes, USAGE[len(found) % len(USAGE)])
        places = least_allocated(asks, nodes)
        if None in places:
            found.append(_raw(asks, places, nodes))
    return found


def _asks(rng: random.Random, nodes: int, usage: float) -> list[_Ask]:
    count = nodes * PODS_PER_NODE
    weights = [rng.uniform(0.2, 1.8) for _ in range(count)]
    scale = usage * nodes * MILLI_CPUS / sum(weights)
    memory = [rng.uniform(0.2, 1.8) for _ in range(count)]
    scale_memory = 0.9 * usage * nodes * MIB / sum(memory)
    return [
        _Ask(max(100, int(w * scale) // 100 * 100), max(64, int(m * scale_memory)), rng.choice(PRIORITIES))
        for w, m in zip(weights, memory, strict=True)
    ]


def least_allocated(asks: Sequence[_Ask], nodes: int) -> list[int | None]:
    """The node of every pod by kube-scheduler's default score: most CPU and memory left."""
    cpu, memory = [MILLI_CPUS] * nodes, [MIB] * nodes
    places: list[int | None] = []
    for ask in asks:
        fitting = [n for n in range(nodes) if cpu[n] >= ask.cpu and memory[n] >= ask.memory]
        best = max(fitting, key=lambda n: (cpu[n] / MILLI_CPUS + memory[n] / MIB, -n), default=None)
        if best is not None:
            cpu[best] -= ask.cpu
            memory[best] -= ask.memory
        places.append(best)
    return places


def _raw(asks: Sequence[_Ask], places: Sequence[int | None], nodes: int) -> dict[str, Any]:
    raw = RawCluster()
    raw.queues += [queue("all", -1, ago(90 * 86_400)), queue("one", -1, ago(80 * 86_400), "all")]
    shape = NodeShape(gpus=0, cpus=MILLI_CPUS // 1000, memory_gib=MIB // 1024)
    raw.nodes += [node(f"node-{i:03}", shape, {"rack": "rack-0", "zone": "zone-0"}) for i in range(nodes)]
    for i, (ask, place) in enumerate(zip(asks, places, strict=True)):
        gang = GangSpec(f"pod-{i:04}", "one", PodRequest(), 1, ask.priority, 7200.0 - i)
        made = pod(gang, 0, None if place is None else f"node-{place:03}")
        amounts = {"cpu": f"{ask.cpu}m", "memory": f"{ask.memory}Mi"}
        made["spec"]["containers"][0]["resources"] = {"requests": amounts}
        raw.groups.append(group(gang, running=place is not None))
        raw.pods.append(made)
    snapshot = raw.snapshot()
    # The paper sets no limit on moves.
    snapshot["schedulerParams"]["maxNumberConsolidationPreemptees"] = len(asks)
    return snapshot


def _measure(
    nodes: int, seed: int, clusters: Sequence[dict[str, Any]], settings: Settings, budget: float
) -> MattersResult:
    improved = certified = equal = 0
    seconds: list[float] = []
    errors: list[str] = []
    for raw in clusters:
        snapshot = parse(raw, now=NOW.timestamp())
        begin = time.monotonic()
        plan = decide(snapshot, settings, deadline=begin + budget)
        seconds.append(time.monotonic() - begin)
        errors += errors_of(snapshot, plan, settings)
        better = running_after(snapshot, plan) > running_after(snapshot, Plan())
        proved = all(stage.gap <= 1e-6 for stage in plan.stages)
        improved += better
        certified += proved
        equal += proved and not better
    return MattersResult(
        case=f"matters-{nodes}n",
        seed=seed,
        budget_seconds=budget,
        clusters=len(clusters),
        improved=improved,
        certified=certified,
        equal_certified=equal,
        mean_seconds=round(sum(seconds) / max(1, len(seconds)), 3),
        errors=tuple(errors[:20]),
        origin=origin(digest(settings)),
    )


def running_after(snapshot: Snapshot, plan: Plan) -> tuple[int, ...]:
    """Pods with a place when the plan is carried out, per priority, highest first."""
    placed: set[PodKey] = {pod.key for pod in snapshot.pods if pod.node is not None}
    placed -= {decision.pod for decision in plan.decisions if decision.kind == "Evict"}
    placed |= {decision.pod for decision in plan.decisions if decision.kind != "Evict"}
    counts: Counter[int] = Counter()
    levels: set[int] = set()
    for pod_ in snapshot.pods:
        priority = snapshot.group_by_key[pod_.group].priority if pod_.group is not None else 0
        levels.add(priority)
        counts[priority] += pod_.key in placed
    return tuple(counts[level] for level in sorted(levels, reverse=True))
