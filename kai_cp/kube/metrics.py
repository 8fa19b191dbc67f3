"""Prometheus metrics: KAI's names that dashboards use, and ours beside them (11.4, user-needs 6.4)."""

from __future__ import annotations

from collections import Counter as Count
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from kai_cp.kube.cycles import Cycle
from kai_cp_models.snapshot import PodKey, PodStatus, Queue

SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
WAITS: Final = (1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 24 * 3600, 7 * 24 * 3600)
QUEUE_LABELS: Final = ("queue_name", "queue_metadata_name", "queue_display_name")
CORE: Final = 1000.0
GIGABYTE: Final = 1e9


class SchedulerMetrics:
    """What one scheduler process exports. ``prefix``: KAI's metrics namespace."""

    def __init__(self, registry: CollectorRegistry, prefix: str = "kai") -> None:
        def gauge(name: str, text: str, labels: tuple[str, ...] = ()) -> Gauge:
            return Gauge(name, text, labels, registry=registry)

        def counter(name: str, text: str, labels: tuple[str, ...] = ()) -> Counter:
            return Counter(name, text, labels, registry=registry)

        self._e2e = gauge(f"{prefix}_e2e_scheduling_latency_milliseconds", "Time of the last cycle [ms].")
        self._open = gauge(f"{prefix}_open_session_latency_milliseconds", "Snapshot and reading [ms].")
        self._close = gauge(f"{prefix}_close_session_latency_milliseconds", "Reporting [ms].")
        self._action = gauge(
            f"{prefix}_action_scheduling_latency_milliseconds", "Time of an action [ms].", ("action",)
        )
        # Counters by meaning; as gauges they keep KAI's names, which lack the suffix a counter would get.
        self._scheduled_by = gauge(
            f"{prefix}_podgroups_scheduled_by_action", "Pod groups given places.", ("action",)
        )
        self._acted_on_by = gauge(
            f"{prefix}_podgroups_acted_on_by_action", "Pod groups an action changed.", ("action",)
        )
        self._preemptions = gauge(f"{prefix}_total_preemption_attempts", "Cycles that evicted.")
        self._evicted_pods = counter(
            f"{prefix}_pod_group_evicted_pods_total",
            "Pods evicted.",
            ("podgroup", "namespace", "uid", "nodepool", "action"),
        )
        shares = ("cpu_cores", "memory_gb", "gpu")
        self._fair = {
            name: gauge(f"{prefix}_queue_fair_share_{name}", "Fair share of a queue.", QUEUE_LABELS)
            for name in shares
        }
        self._usage = {
            name: gauge(f"{prefix}_queue_{name}_usage", "Historic usage of a queue, 0 to 1.", QUEUE_LABELS)
            for name in ("cpu", "memory", "gpu")
        }
        self._deserved = gauge(f"{prefix}_queue_deserved_gpus", "Quota of a queue.", QUEUE_LABELS)
        self._allocated = gauge(f"{prefix}_queue_allocated_gpus", "Allocated to a queue.", QUEUE_LABELS)
        self._shortfall = gauge("kai_cp_queue_shortfall_gpus", "Fair share not reached.", ("queue",))
        self._phase = Histogram(
            "kai_cp_cycle_duration_seconds",
            "Time of a cycle's phase.",
            ("phase",),
            buckets=SECONDS,
            registry=registry,
        )
        self._cycles = counter("kai_cp_cycles_total", "Cycles.", ("result",))
        self._status = counter("kai_cp_solve_status_total", "Stages by status.", ("stage", "status"))
        self._gap = gauge("kai_cp_solve_gap_ratio", "Gap of a stage in the last cycle.", ("stage",))
        self._objective = gauge("kai_cp_objective_value", "Objective of a stage.", ("level",))
        self._bound = gauge("kai_cp_objective_bound", "Bound of a stage.", ("level",))
        self._variables = gauge("kai_cp_model_variables", "Variables of the last cycle's models.")
        self._constraints = gauge("kai_cp_model_constraints", "Constraints of the last cycle's models.")
        self._fallback = counter("kai_cp_fallback_total", "Stages not solved exactly.", ("reason",))
        self._rejections = counter("kai_cp_checker_rejections_total", "Plans the checker refused.", ("rule",))
        self._pending = gauge("kai_cp_pending_podgroups", "Pod groups that wait.", ("queue", "reason"))
        self._oldest = gauge("kai_cp_oldest_pending_seconds", "Age of the oldest waiting group.", ("queue",))
        self._waited = Histogram(
            "kai_cp_wait_seconds",
            "Age of a pod when it is ordered to be bound.",
            ("queue",),
            buckets=WAITS,
            registry=registry,
        )
        self._evictions = counter(
            "kai_cp_evictions_total", "Pods evicted.", ("action", "preemptor_queue", "victim_queue")
        )
        self._moves = counter("kai_cp_moves_total", "Pods evicted that have a new place already.")
        self._lost = counter("kai_cp_lost_gpu_seconds_total", "Work evicted.", ("victim_queue",))
        self._repeats = counter("kai_cp_repeat_evictions_total", "Pod groups evicted again in an hour.")
        self._gpus = gauge("kai_cp_gpus", "GPUs of the pool by state.", ("state",))
        self._binds = counter("kai_cp_binds_total", "Bind orders by outcome.", ("result",))
        self._mismatch = counter(
            "kai_cp_state_mismatch_total", "Decisions the cluster had overtaken.", ("kind",)
        )
        self._observed = counter(
            "kai_cp_observed_total", "Others' placements against our plan.", ("outcome",)
        )
        self._aside = gauge("kai_cp_set_aside_objects", "Objects that cannot be used.")
        self._evicted_at: dict[tuple[str, str], float] = {}
        self._known: set[tuple[str, str]] = set()

    def compared(self, outcome: str, count: int) -> None:
        """Record placements of another scheduler, compared with our plan."""
        self._observed.labels(outcome).inc(count)

    def failed(self) -> None:
        """Record a cycle that did not come to its end."""
        self._cycles.labels("failed").inc()

    def observe(self, cycle: Cycle) -> None:
        """Record a cycle."""
        for phase, value in cycle.seconds.items():
            self._phase.labels(phase).observe(value)
        total = sum(cycle.seconds.values())
        self._e2e.set(total * 1000)
        self._open.set((cycle.seconds.get("snapshot", 0.0) + cycle.seconds.get("read", 0.0)) * 1000)
        self._close.set(cycle.seconds.get("report", 0.0) * 1000)
        self._cycles.labels("failed" if cycle.problem else "done").inc()
        if cycle.problem.startswith("Rejected"):
            self._rejections.labels("plan").inc()
        self._aside.set(len(cycle.snapshot.set_aside))
        self._stages(cycle)
        self._queues(cycle)
        self._waiting(cycle)
        self._decisions(cycle)
        self._capacity(cycle)

    def _stages(self, cycle: Cycle) -> None:
        for stage in cycle.plan.stages:
            self._action.labels(stage.name).set(stage.seconds * 1000)
            self._status.labels(stage.name, stage.status).inc()
            self._gap.labels(stage.name).set(stage.gap)
            self._objective.labels(stage.name).set(stage.objective)
            self._bound.labels(stage.name).set(stage.bound)
            if stage.status != "OPTIMAL":
                self._fallback.labels("greedy" if stage.status == "GREEDY" else "time").inc()
        self._variables.set(sum(stage.variables for stage in cycle.plan.stages))
        self._constraints.set(sum(stage.constraints for stage in cycle.plan.stages))

    def _queues(self, cycle: Cycle) -> None:
        for queue in cycle.snapshot.queues:
            labels = _labels(queue)
            self._deserved.labels(*labels).set(queue.quota.gpu)
            for name, used in zip(("cpu", "memory", "gpu"), queue.usage, strict=True):
                self._usage[name].labels(*labels).set(used)
            report = cycle.plan.queues.get(queue.name)
            if report is None:
                continue
            fair = report.fair_share
            self._fair["cpu_cores"].labels(*labels).set(_scaled(fair.cpu, CORE))
            self._fair["memory_gb"].labels(*labels).set(_scaled(fair.memory, GIGABYTE))
            self._fair["gpu"].labels(*labels).set(fair.gpu)
            self._allocated.labels(*labels).set(report.allocated_after.gpu)
            self._shortfall.labels(queue.name).set(max(0.0, fair.gpu - report.allocated_after.gpu))

    def _waiting(self, cycle: Cycle) -> None:
        waiting: Count[tuple[str, str]] = Count()
        oldest: dict[str, float] = {}
        for entry in cycle.plan.unscheduled:
            group = cycle.snapshot.group_by_key.get(entry.group)
            if group is not None:
                waiting[group.queue, entry.reason] += 1
                oldest[group.queue] = min(oldest.get(group.queue, cycle.started), group.created)
        for labels in self._known - set(waiting):
            self._pending.labels(*labels).set(0)
            self._oldest.labels(labels[0]).set(0)
        for labels, count in waiting.items():
            self._pending.labels(*labels).set(count)
        for queue, created in oldest.items():
            self._oldest.labels(queue).set(max(0.0, cycle.started - created))
        self._known |= set(waiting)

    def _decisions(self, cycle: Cycle) -> None:
        groups = cycle.snapshot.group_by_key
        places = {(d.group, d.action) for d in cycle.plan.decisions if d.kind != "Evict"}
        for _, action in places:
            self._scheduled_by.labels(action).inc()
        for _, action in {(d.group, d.action) for d in cycle.plan.decisions}:
            self._acted_on_by.labels(action).inc()
        if any(d.kind == "Evict" for d in cycle.plan.decisions):
            self._preemptions.inc()
        nominated = {d.pod for d in cycle.plan.decisions if d.kind == "Nominate"}
        again: set[PodKey] = set()
        for decision, outcome, _ in cycle.results:
            group = groups.get(decision.group) if decision.group is not None else None
            queue = group.queue if group is not None else ""
            if decision.kind == "Bind":
                self._binds.labels(outcome).inc()
                if outcome == "done":
                    pod = cycle.snapshot.pod_by_key[decision.pod]
                    self._waited.labels(queue).observe(max(0.0, cycle.started - pod.created))
            if outcome in ("conflict", "gone"):
                self._mismatch.labels(decision.kind).inc()
            if decision.kind != "Evict" or outcome != "done":
                continue
            trigger = groups.get(decision.triggers[0]) if decision.triggers else None
            self._evictions.labels(decision.action, trigger.queue if trigger else "", queue).inc()
            if decision.pod in nominated:
                self._moves.inc()
            if group is None:
                continue
            pod = cycle.snapshot.pod_by_key[decision.pod]
            began = group.last_start if group.last_start is not None else pod.created
            gpus = pod.spec.gpu.devices * pod.spec.gpu.milli_portion / 1000
            self._lost.labels(queue).inc(max(0.0, cycle.started - began) * gpus)
            self._evicted_pods.labels(
                group.key.name,
                group.key.namespace,
                group.uid,
                cycle.snapshot.policy.node_pool or "default",
                decision.action,
            ).inc()
            last = self._evicted_at.get(group.key)
            if last is not None and last < cycle.started and cycle.started - last < 3600:
                again.add(decision.pod)
            self._evicted_at[group.key] = cycle.started
        self._repeats.inc(len(again))

    def _capacity(self, cycle: Cycle) -> None:
        total = sum(node.gpu_count for node in cycle.snapshot.nodes)
        used = sum(
            pod.spec.gpu.devices * pod.spec.gpu.milli_portion / 1000
            for pod in cycle.snapshot.pods
            if pod.node is not None and pod.status in (PodStatus.RUNNING, PodStatus.BOUND, PodStatus.BINDING)
        )
        self._gpus.labels("used").set(used)
        self._gpus.labels("free").set(max(0.0, total - used))


def _scaled(value: float, unit: float) -> float:
    return value if value == -1 else value / unit


def _labels(queue: Queue) -> tuple[str, str, str]:
    return (queue.display_name or queue.name, queue.name, queue.display_name)
