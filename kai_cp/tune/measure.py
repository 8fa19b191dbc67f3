"""Measures one configuration on one snapshot, in the numbers that operators weigh against each other."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Final

from kai_cp.bench.outcome import admitted_groups, gpus_of, outcome, waiting_groups
from kai_cp_models.engine import decide
from kai_cp_models.plan import Plan
from kai_cp_models.pods import GPU, MILLI, PodStatus
from kai_cp_models.queries.cluster import faults, load_solver
from kai_cp_models.settings import Settings
from kai_cp_models.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Measure:
    """One number: its unit, whether more of it is better, and the difference, relative or absolute, up to
    which two values are equal."""

    title: str
    unit: str
    more: bool
    same: float = 0.005
    least: float = 1e-9

    @property
    def label(self) -> str:
        """``work lost (GPU-hours)``; a title that begins with its unit needs it once: ``GPUs lost``."""
        return self.title if self.title.startswith(f"{self.unit} ") else f"{self.title} ({self.unit})"


MEASURES: Final[dict[str, Measure]] = {
    "admitted": Measure("GPUs admitted", "GPUs", True),
    "lost": Measure("GPUs lost", "GPUs", False),
    "lost_hours": Measure("work lost", "GPU-hours", False),
    "moved": Measure("GPUs moved", "GPUs", False),
    "waiting": Measure("GPUs still waiting", "GPUs", False),
    "fragmentation": Measure("fragmentation", "% of free GPUs", False),
    "share_error": Measure("share error", "% of cluster", False),
    "hops": Measure("way inside a gang", "hops", False),
    "dated": Measure("GPUs with a start later", "GPUs", True),
    "held_idle": Measure("GPUs kept idle for starts", "GPU-hours", False),
    "wait_large": Measure("wait of gangs from 32 GPUs", "h", False),
    "longest_large": Measure("longest wait of gangs from 32 GPUs", "h", False),
    "wait_small": Measure("wait of jobs to 8 GPUs", "h", False),
    "utilisation": Measure("utilisation", "% of GPUs", True),
    "promises": Measure("starts kept", "gangs", True),
    "broken": Measure("starts broken", "gangs", False),
    "evicted": Measure("pods evicted", "pods", False),
    "seconds": Measure("time", "s", False, same=0.25, least=0.05),
}
"""Of a decision on a snapshot, of a simulated day, or of both."""


@dataclass(frozen=True)
class Measured:
    """The numbers by measure, the GPUs still waiting by priority, and the checker's findings."""

    values: Mapping[str, float]
    waiting_by_priority: Mapping[int, float]
    errors: tuple[str, ...] = ()


def measure(snapshot: Snapshot, settings: Settings) -> Measured:
    """Decide with ``settings`` and measure the plan."""
    load_solver()
    fresh = replace(snapshot)  # What one decision computes about a snapshot saves the next one time.
    begin = time.monotonic()
    plan = decide(fresh, settings)
    seconds = time.monotonic() - begin
    deeds = [(decision.kind, decision.pod) for decision in plan.decisions]
    result = outcome(snapshot, deeds)
    waiting = _waiting(snapshot, plan)
    values = {
        "admitted": result.admitted_gpus,
        "lost": result.lost_gpus,
        "lost_hours": result.lost_gpu_hours,
        "moved": result.moved_gpus,
        "waiting": sum(waiting.values()),
        "fragmentation": 100 * fragmentation(snapshot, plan),
        "share_error": 100 * share_error(snapshot, plan),
        "hops": hops(plan),
        "dated": sum(sum(entry.nodes.values()) for entry in plan.reservations or () if entry.start),
        "held_idle": sum(entry.idle_gpu_hours for entry in plan.reservations or ()),
        "seconds": seconds,
    }
    errors = [str(fault) for fault in faults(snapshot, plan, settings)]
    return Measured(values, waiting, tuple(errors))


def mean(measured: Sequence[Measured]) -> Measured:
    """The mean of every number over snapshots or days."""
    priorities = sorted({p for m in measured for p in m.waiting_by_priority})
    return Measured(
        {name: fmean(m.values[name] for m in measured) for name in measured[0].values},
        {p: fmean(m.waiting_by_priority.get(p, 0.0) for m in measured) for p in priorities},
        tuple(line for m in measured for line in m.errors),
    )


def _waiting(snapshot: Snapshot, plan: Plan) -> dict[int, float]:
    placed = {decision.pod for decision in plan.decisions if decision.kind != "Evict"}
    left = waiting_groups(snapshot) - admitted_groups(snapshot, placed)
    found: Counter[int] = Counter()
    for pod in snapshot.pods:
        if pod.group in left and pod.group is not None and pod.status is PodStatus.PENDING:
            found[snapshot.group_by_key[pod.group].priority] += gpus_of(snapshot, pod)  # type: ignore[assignment]
    return {priority: float(found[priority]) for priority in sorted(found, reverse=True)}


def fragmentation(snapshot: Snapshot, plan: Plan) -> float:
    """The share of free GPUs after the plan that are on partly used nodes."""
    free = [float(node.allocatable[GPU]) / MILLI for node in snapshot.nodes]
    whole = list(free)
    place = {pod.key: pod.node for pod in snapshot.pods if pod.node is not None}
    for decision in plan.decisions:
        if decision.kind == "Evict":
            place.pop(decision.pod, None)
    for decision in plan.decisions:
        if decision.kind != "Evict":
            place[decision.pod] = decision.node
    for key, node in place.items():
        free[snapshot.node_index[node]] -= gpus_of(snapshot, snapshot.pod_by_key[key])
    total = sum(max(0.0, f) for f in free)
    scattered = sum(max(0.0, f) for f, w in zip(free, whole, strict=True) if f < w)
    return scattered / total if total > 0 else 0.0


def hops(plan: Plan) -> float:
    """The mean of the longest distances inside placed pod groups, including those on one node."""
    served = {decision.group for decision in plan.decisions if decision.kind != "Evict"}
    return sum(found.hops for found in plan.localities.values()) / max(1, len(served))


def share_error(snapshot: Snapshot, plan: Plan) -> float:
    """Sum over leaf queues of |GPUs held after the plan - fair share|, as a part of the cluster.

    A queue that asks for less than its share is compared with what it could hold.
    """
    total = sum(node.allocatable[GPU] for node in snapshot.nodes) / MILLI
    if total == 0:
        return 0.0
    asked: defaultdict[str, float] = defaultdict(float)
    for pod in snapshot.pods:
        group = None if pod.group is None else snapshot.group_by_key.get(pod.group)
        if group is not None:
            asked[group.queue] += gpus_of(snapshot, pod)
    error = 0.0
    for name, report in plan.queues.items():
        if name in snapshot.leaf_queues:
            fair = report.fair_share.gpu
            target = asked[name] if fair < 0 else min(asked[name], fair)
            error += abs(report.allocated_after.gpu - target)
    return error / total
