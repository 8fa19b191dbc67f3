"""GPUs by state and the largest gangs that fit, computed from the last cycle at each scrape."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kai_cp.kube.telemetry.cycles import CycleRecord
from kai_cp.topology_view import fabric
from kai_cp_models.plan import Plan
from kai_cp_models.queries.shares import gpus_of
from kai_cp_models.snapshot import Snapshot
from kai_cp_topology.report import Report

STATES: Final = ("used", "reserved", "fragmented", "free", "unavailable")
CLUSTER: Final = "cluster"


def gpu_states(snapshot: Snapshot, plan: Plan, report: Report) -> Mapping[str, float]:
    """The number of GPUs in each state; a shared GPU counts as a whole one.

    *used*: held by a pod, which may be terminating. *reserved*: idle and promised to a pod that waits for the
    rest of its gang or for victims. *fragmented*: idle on a node that has used or reserved GPUs. *free*: idle
    on a node that has neither. *unavailable*: idle on a node that accepts no pods.
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
    """The most pods that one domain can take now, by level (its label, or *cluster*) and GPUs per pod."""
    found: dict[tuple[str, int], int] = {}
    for tree in report.trees:
        for capacity in report.largest_gangs(tree):
            key = (capacity.level or CLUSTER, capacity.pod_gpus)
            found[key] = max(found.get(key, 0), capacity.pods)
    return found


class CapacityMetrics(Collector):
    """``kai_cp_gpus`` and ``kai_cp_largest_gang``."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._lock = threading.Lock()
        self._cycle: CycleRecord | None = None
        self._report: Report | None = None
        registry.register(self)

    def observe(self, cycle: CycleRecord) -> None:
        """Keep a cycle for the next scrape."""
        with self._lock:
            self._cycle, self._report = cycle, None

    def collect(self) -> Iterator[Metric]:
        """The metrics now."""
        gpus = GaugeMetricFamily("kai_cp_gpus", "GPUs of the pool by state.", labels=["state"])
        gangs = GaugeMetricFamily(
            "kai_cp_largest_gang",
            "Most pods of one size that a domain of the level can take now.",
            labels=["level", "pod_gpus"],
        )
        with self._lock:
            cycle = self._cycle
            if cycle is not None:
                report = self._fabric(cycle)
                for state, count in gpu_states(cycle.snapshot, cycle.plan, report).items():
                    gpus.add_metric([state], count)
                for (level, size), pods in largest_gangs(report).items():
                    gangs.add_metric([level, str(size)], pods)
        yield gpus
        yield gangs

    def _fabric(self, cycle: CycleRecord) -> Report:
        if self._report is None:
            self._report = fabric(cycle.snapshot)
        return self._report
