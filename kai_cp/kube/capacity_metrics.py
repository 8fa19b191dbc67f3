"""GPUs by state and the largest gangs that fit, worked out from the last cycle when somebody asks."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kai_cp.kube.cycles import Cycle
from kai_cp.report.amounts import gpus_of
from kai_cp.topology_view import fabric
from kai_cp_models.snapshot import Plan, Snapshot
from kai_cp_topology.report import Report

STATES: Final = ("used", "reserved", "fragmented", "free", "unavailable")
CLUSTER: Final = "cluster"


def gpu_states(snapshot: Snapshot, plan: Plan, report: Report) -> Mapping[str, float]:
    """Every GPU of the snapshot in one state; shared GPUs count whole.

    *used*: held by a pod, also by one on its way out. *reserved*: idle and promised to a pod that waits for
    the rest of its gang or for victims. *fragmented*: idle on a node of which something is used or reserved.
    *free*: idle on a node without either. *unavailable*: idle on a node that takes no pods.
    """
    promised: defaultdict[str, float] = defaultdict(float)
    for decision in plan.decisions:
        if decision.kind == "Nominate":
            promised[decision.node] += gpus_of(snapshot, snapshot.pod_by_key[decision.pod], decision.node)
    states = dict.fromkeys(STATES, 0.0)
    for node in snapshot.nodes:
        facts = report.nodes[node.name]
        used = facts.gpus - facts.free_gpus
        reserved = min(float(facts.free_gpus), promised[node.name])
        rest = facts.free_gpus - reserved
        states["used"] += used
        states["reserved"] += reserved
        state = "unavailable" if node.not_ready else "fragmented" if used or reserved else "free"
        states[state] += rest
    return states


def largest_gangs(report: Report) -> Mapping[tuple[str, int], int]:
    """By level (its label, or *cluster*) and GPUs a pod: the most pods that one domain takes now."""
    found: dict[tuple[str, int], int] = {}
    for tree in report.trees:
        for capacity in report.largest_gangs(tree):
            key = (capacity.level or CLUSTER, capacity.pod_gpus)
            found[key] = max(found.get(key, 0), capacity.pods)
    return found


class CapacityMetrics(Collector):
    """``kai_cp_gpus``, ``kai_cp_largest_gang`` and ``kai_cp_reserved_idle_gpu_seconds_total``."""

    def __init__(self, registry: CollectorRegistry, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._cycle: Cycle | None = None
        self._report: Report | None = None
        self._reserved = 0.0
        self._since = 0.0
        self._idle_seconds = 0.0
        registry.register(self)

    def observe(self, cycle: Cycle) -> None:
        """Take a cycle. Only one that promises room is worked through at once."""
        with self._lock:
            self._accrue()
            self._cycle, self._report, self._reserved = cycle, None, 0.0
            if any(decision.kind == "Nominate" for decision in cycle.plan.decisions):
                self._reserved = gpu_states(cycle.snapshot, cycle.plan, self._fabric(cycle))["reserved"]

    def collect(self) -> Iterator[Metric]:
        """The metrics now."""
        gpus = GaugeMetricFamily("kai_cp_gpus", "GPUs of the pool by state.", labels=["state"])
        gangs = GaugeMetricFamily(
            "kai_cp_largest_gang",
            "Most pods of a size that one domain of a level takes now.",
            labels=["level", "pod_gpus"],
        )
        with self._lock:
            self._accrue()
            cycle = self._cycle
            if cycle is not None:
                report = self._fabric(cycle)
                for state, count in gpu_states(cycle.snapshot, cycle.plan, report).items():
                    gpus.add_metric([state], count)
                for (level, size), pods in largest_gangs(report).items():
                    gangs.add_metric([level, str(size)], pods)
            seconds = self._idle_seconds
        yield gpus
        yield gangs
        yield CounterMetricFamily(
            "kai_cp_reserved_idle_gpu_seconds", "GPU-seconds that were promised and idle.", seconds
        )

    def _accrue(self) -> None:
        now = self._clock()
        self._idle_seconds += self._reserved * max(0.0, now - self._since)
        self._since = now

    def _fabric(self, cycle: Cycle) -> Report:
        if self._report is None:
            self._report = fabric(cycle.snapshot)
        return self._report
