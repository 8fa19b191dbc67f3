"""Metrics of the time axis by queue: promises, GPUs idle for them, backfill, declared run times."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kai_cp.kube.telemetry.cycles import CycleRecord
from kai_cp.kube.telemetry.replacing_gauge import ReplacingGauge
from kai_cp.topology_view import fabric
from kai_cp_models.plan import Plan, Reservation
from kai_cp_models.pods import ACTIVE_ALLOCATED, GroupKey
from kai_cp_models.queries.shares import gpus_of
from kai_cp_models.snapshot import PodGroup, Snapshot

KEPT_SECONDS: Final = 90.0
"""A start that is later, or earlier, than promised by less was kept: evicting and binding take so long."""
HOLDING: Final = ("made", "kept", "earlier", "later", "draining")
RATIOS: Final = (0.1, 0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.5, 2.0, 4.0, 10.0)


def reserved_idle(snapshot: Snapshot, plan: Plan, free: Mapping[str, float]) -> dict[str, float]:
    """The GPUs of each queue that are idle because they are promised: to nominated pods first, then to
    reservations.

    ``free`` is the number of idle GPUs by node.
    """
    left = dict(free)
    found: defaultdict[str, float] = defaultdict(float)

    def take(group: GroupKey | None, node: str, gpus: float) -> None:
        taken = min(gpus, left.get(node, 0.0))
        left[node] = left.get(node, 0.0) - taken
        owner = snapshot.group_by_key.get(group) if group is not None else None
        found[owner.queue if owner is not None else ""] += taken

    for decision in plan.decisions:
        if decision.kind == "Nominate":
            gpus = gpus_of(snapshot, snapshot.pod_by_key[decision.pod], decision.node)
            take(decision.group, decision.node, gpus)
    for entry in plan.reservations or ():
        for node, gpus in entry.nodes.items() if entry.state in HOLDING else ():
            take(entry.group, node, gpus)
    return {queue: gpus for queue, gpus in found.items() if gpus > 0}


class ReservedIdle(Collector):
    """GPUs promised and idle, now and summed over time; a queue's figures include its descendants."""

    def __init__(self, registry: CollectorRegistry, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._now: dict[str, float] = {}
        self._above: dict[str, float] = {}
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._since = clock()
        registry.register(self)

    def observe(self, cycle: CycleRecord) -> None:
        """Add a cycle; one without promises costs nothing."""
        snapshot, plan = cycle.snapshot, cycle.plan
        found: dict[str, float] = {}
        if plan.reservations or any(decision.kind == "Nominate" for decision in plan.decisions):
            nodes = fabric(snapshot).nodes
            found = reserved_idle(snapshot, plan, {name: float(one.free_gpus) for name, one in nodes.items()})
        above: defaultdict[str, float] = defaultdict(float)
        for queue, gpus in found.items():
            for name in snapshot.queue_path.get(queue, (queue,)):
                above[name] += gpus
        with self._lock:
            self._accrue()
            self._now, self._above = found, dict(above)

    def collect(self) -> Iterator[Metric]:
        """The metrics now."""
        text = "GPU-seconds that were promised and idle, by the queue they were promised to."
        seconds = CounterMetricFamily("kai_cp_reserved_idle_gpu_seconds", text, labels=["queue"])
        text = "GPUs that are promised and idle, by queue, what is below it included."
        gpus = GaugeMetricFamily("kai_cp_reserved_idle_gpus", text, labels=["queue_name"])
        with self._lock:
            self._accrue()
            for queue, value in self._seconds.items():
                seconds.add_metric([queue], value)
            for queue, value in self._above.items():
                gpus.add_metric([queue], value)
        yield seconds
        yield gpus

    def _accrue(self) -> None:
        now = self._clock()
        for queue, gpus in self._now.items():
            self._seconds[queue] += gpus * max(0.0, now - self._since)
        self._since = now


class TimeMetrics:
    """Counts kept and broken promises, backfill, and how exact declared run times are."""

    def __init__(self, registry: CollectorRegistry, clock: Callable[[], float]) -> None:
        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"kai_cp_{name}", text, labels, registry=registry)

        self._idle = ReservedIdle(registry, clock)
        self._holds = ReplacingGauge(
            registry, "kai_cp_reservations", "Pod groups that hold reservations.", ("queue", "state")
        )
        self._promises = counter(
            "promises_total", "Promised starts whose time came, by result.", "queue", "result", "cause"
        )
        self._backfilled = counter(
            "backfilled_pods_total", "Pods started on places held for others.", "queue"
        )
        self._lost = counter(
            "backfill_evicted_gpu_seconds_total", "Work of backfill that a start evicted.", "queue"
        )
        self._error = Histogram(
            "kai_cp_runtime_error_ratio",
            "Actual run time of pod groups divided by the declared one.",
            ("queue",),
            buckets=RATIOS,
            registry=registry,
        )
        self._free = ReplacingGauge(
            registry, "kai_cp_defrag_value", "Present value of what defrag.goal asks for.", ("goal",)
        )
        self._wanted = ReplacingGauge(
            registry, "kai_cp_defrag_wanted", "How much defrag.goal asks for.", ("goal",)
        )
        self._rolled_out = ReplacingGauge(
            registry,
            "kai_cp_rollout_gpus",
            "GPUs of workloads in rollout: of the new revision, of the old ones, lent by quotas.",
            ("queue", "side"),
        )
        self._running: dict[GroupKey, tuple[PodGroup, float]] = {}

    def observe(self, cycle: CycleRecord) -> None:
        """Record a cycle."""
        self._idle.observe(cycle)
        self._ends(cycle)
        goal = cycle.plan.defrag
        self._free.show({} if goal is None else {(goal.goal,): goal.value})
        self._wanted.show({} if goal is None else {(goal.goal,): goal.wanted})
        sides: defaultdict[tuple[str, ...], float] = defaultdict(float)
        for one in cycle.plan.rollouts:
            sides[one.queue, "new"] += one.new_gpus
            sides[one.queue, "old"] += one.old_gpus
            sides[one.queue, "lent"] += one.lent_gpus
        self._rolled_out.show(sides)
        if cycle.plan.reservations is None:
            self._holds.show({})
            return
        held: defaultdict[tuple[str, ...], float] = defaultdict(float)
        for entry in cycle.plan.reservations:
            if entry.state in HOLDING:
                held[entry.queue, entry.state] += 1
            self._promise(cycle, entry)
        self._holds.show(held)
        self._backfill(cycle)

    def _promise(self, cycle: CycleRecord, entry: Reservation) -> None:
        if entry.promised is None:
            return
        late = cycle.started - entry.promised
        if entry.state == "started":
            # Nominated pods still wait for a place; the start counts from the decision.
            if any(d.kind == "Nominate" and d.group == entry.group for d in cycle.plan.decisions):
                return
            result = "kept" if abs(late) <= KEPT_SECONDS else "broken" if late > 0 else "earlier"
        elif entry.state == "dropped" and entry.cause != "OptedOut":
            result = "broken"
        else:
            return
        group = cycle.snapshot.group_by_key.get(entry.group)
        said = entry.cause or (group.notes.cause if group is not None else None)
        self._promises.labels(entry.queue, result, (said or "Unknown") if result == "broken" else "").inc()

    def _backfill(self, cycle: CycleRecord) -> None:
        """Count pods bound on places that another group holds, and pods that a start evicted."""
        held: defaultdict[str, set[GroupKey]] = defaultdict(set)
        for entry in cycle.plan.reservations or ():
            for node in entry.nodes if entry.state in HOLDING else ():
                held[node].add(entry.group)
        for decision, outcome, _ in cycle.results:
            group = cycle.snapshot.group_by_key.get(decision.group) if decision.group is not None else None
            if outcome != "done" or group is None:
                continue
            if decision.kind == "Bind" and held[decision.node] - {group.key}:
                self._backfilled.labels(cycle.queue_of(group)).inc()
            elif decision.kind == "Evict" and decision.action == "reservation":
                pod = cycle.snapshot.pod_by_key[decision.pod]
                began = group.last_start if group.last_start is not None else pod.created
                work = gpus_of(cycle.snapshot, pod) * max(0.0, cycle.started - began)
                self._lost.labels(cycle.queue_of(group)).inc(work)

    def _ends(self, cycle: CycleRecord) -> None:
        """Record the run time of each group that ran in the last cycle, does not now, and was not evicted."""
        snapshot = cycle.snapshot
        running = {
            group.key: (group, group.last_start)
            for group in snapshot.groups
            if group.last_start is not None
            and any(pod.status in ACTIVE_ALLOCATED for pod in snapshot.members[group.key])
        }
        for key, (group, began) in self._running.items():
            now = snapshot.group_by_key.get(key)
            if key in running or (now is not None and now.last_eviction != group.last_eviction):
                continue
            declared = group.notes.expected
            if declared is not None:
                self._error.labels(cycle.queue_of(group)).observe(max(0.0, cycle.started - began) / declared)
        self._running = running
