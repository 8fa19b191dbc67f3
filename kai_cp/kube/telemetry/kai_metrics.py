"""KAI's metrics with KAI's names and meanings, for existing dashboards (11.4)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from kai_cp.kube.telemetry.cycles import CycleRecord
from kai_cp.kube.telemetry.replacing_gauge import ReplacingGauge
from kai_cp_models.pods import UNLIMITED, GroupKey
from kai_cp_models.snapshot import Queue, Shares

QUEUE_LABELS: Final = ("queue_name", "queue_metadata_name", "queue_display_name")
LATENCIES: Final = tuple(5.0 * 2**i for i in range(10))
"""Buckets of latencies [ms]."""
CORE: Final = 1000.0
GIGABYTE: Final = 1e9


class KaiMetrics:
    """The metrics of KAI's scheduler. ``prefix`` is KAI's metrics namespace.

    The queue controller (ours or KAI's) exports quota and allocation of queues.
    """

    def __init__(self, registry: CollectorRegistry, prefix: str) -> None:
        def gauge(name: str, text: str, labels: tuple[str, ...] = ()) -> Gauge:
            return Gauge(f"{prefix}_{name}", text, labels, registry=registry)

        def by_queue(name: str, text: str) -> ReplacingGauge:
            return ReplacingGauge(registry, f"{prefix}_queue_{name}", text, QUEUE_LABELS)

        self._e2e = gauge("e2e_scheduling_latency_milliseconds", "Time of the last cycle [ms].")
        self._open = gauge("open_session_latency_milliseconds", "Snapshot and reading [ms].")
        self._close = gauge("close_session_latency_milliseconds", "Reporting [ms].")
        self._action = gauge("action_scheduling_latency_milliseconds", "Time of an action [ms].", ("action",))
        self._task = Histogram(
            f"{prefix}_task_scheduling_latency_milliseconds",
            "Age of a pod when it is ordered to be bound [ms].",
            buckets=LATENCIES,
            registry=registry,
        )
        # These are counters, but exported as gauges: a counter's name would get a suffix that KAI's lack.
        self._scheduled_by = gauge("podgroups_scheduled_by_action", "Pod groups given places.", ("action",))
        self._acted_on_by = gauge("podgroups_acted_on_by_action", "Pod groups changed.", ("action",))
        self._preemptions = gauge("total_preemption_attempts", "Cycles that evicted.")
        self._evicted_pods = Counter(
            f"{prefix}_pod_group_evicted_pods_total",
            "Pods evicted.",
            ("podgroup", "namespace", "uid", "nodepool", "action"),
            registry=registry,
        )
        self._evicted: dict[tuple[str, ...], GroupKey] = {}
        """Pod groups by the labels of their series, which go when the groups do."""
        self._fair = by_queue("fair_share_cpu_cores", "Fair share of a queue; -1: no bound.")
        self._fair_memory = by_queue("fair_share_memory_gb", "Fair share of a queue; -1: no bound.")
        self._fair_gpu = by_queue("fair_share_gpu", "Fair share of a queue; -1: no bound.")
        self._usage = [
            by_queue(f"{name}_usage", "Historic usage of a queue, 0 to 1.")
            for name in ("cpu", "memory", "gpu")
        ]
        self._query = gauge("usage_query_latency_milliseconds", "Time of the last usage query [ms].")

    def usage_query(self, milliseconds: Callable[[], float]) -> None:
        """Register a function that returns the time of the last usage query."""
        self._query.set_function(milliseconds)

    def observe(self, cycle: CycleRecord) -> None:
        """Record a cycle."""
        seconds = cycle.seconds
        self._e2e.set(sum(seconds.values()) * 1000)
        self._open.set((seconds.get("snapshot", 0.0) + seconds.get("prepare", 0.0)) * 1000)
        self._close.set(seconds.get("report", 0.0) * 1000)
        by_action: defaultdict[str, float] = defaultdict(float)
        for stage in cycle.plan.stages:
            by_action[stage.action] += stage.seconds
        for action, value in by_action.items():
            self._action.labels(action).set(value * 1000)
        self._queues(cycle)
        self._decisions(cycle)

    def _queues(self, cycle: CycleRecord) -> None:
        queues = cycle.snapshot.queues
        reports = cycle.plan.queues
        fair = {_labels(queue): reports[queue.name].fair_share for queue in queues if queue.name in reports}
        self._fair.show({labels: _scaled(share.cpu, CORE) for labels, share in fair.items()})
        self._fair_memory.show({labels: _scaled(share.memory, GIGABYTE) for labels, share in fair.items()})
        self._fair_gpu.show({labels: share.gpu for labels, share in fair.items()})
        _show(self._usage, {_labels(queue): queue.usage for queue in queues})

    def _decisions(self, cycle: CycleRecord) -> None:
        decisions = cycle.plan.decisions
        for _, action in {(d.group, d.action) for d in decisions if d.kind != "Evict"}:
            self._scheduled_by.labels(action).inc()
        for _, action in {(d.group, d.action) for d in decisions}:
            self._acted_on_by.labels(action).inc()
        if any(d.kind == "Evict" for d in decisions):
            self._preemptions.inc()
        there = cycle.snapshot.group_by_key
        # One that is made again under the same name is another one.
        gone = [
            labels
            for labels, key in self._evicted.items()
            if (group := there.get(key)) is None or group.uid != labels[2]
        ]
        for labels in gone:
            del self._evicted[labels]
            self._evicted_pods.remove(*labels)
        pool = cycle.snapshot.policy.node_pool or "default"
        for decision, outcome, _ in cycle.results:
            if outcome != "done":
                continue
            if decision.kind == "Bind":
                pod = cycle.snapshot.pod_by_key[decision.pod]
                self._task.observe(max(0.0, cycle.started - pod.created) * 1000)
            group = cycle.snapshot.group_by_key.get(decision.group) if decision.group is not None else None
            if decision.kind == "Evict" and group is not None:
                labels = (group.key.name, group.key.namespace, group.uid, pool, decision.action)
                self._evicted[labels] = group.key
                self._evicted_pods.labels(*labels).inc()


def _show(boards: list[ReplacingGauge], values: Mapping[tuple[str, str, str], Shares]) -> None:
    for i, board in enumerate(boards):
        board.show({labels: share[i] for labels, share in values.items()})


def _scaled(value: float, unit: float) -> float:
    return value if value == UNLIMITED else value / unit


def _labels(queue: Queue) -> tuple[str, str, str]:
    return (queue.display_name or queue.name, queue.name, queue.display_name)
