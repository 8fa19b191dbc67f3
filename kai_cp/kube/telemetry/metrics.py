"""Our own metrics beside KAI's; docs/in-a-cluster.md explains each."""

from __future__ import annotations

import re
import time
from collections import Counter as Count
from collections.abc import Callable, Set
from typing import Final, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from kai_cp.kube.api.write_results import WriteResult
from kai_cp.kube.telemetry.capacity_metrics import CapacityMetrics
from kai_cp.kube.telemetry.cycles import CycleRecord
from kai_cp.kube.telemetry.disruption import HOUR, DisruptionTotals
from kai_cp.kube.telemetry.kai_metrics import KaiMetrics
from kai_cp.kube.telemetry.replacing_gauge import ReplacingGauge
from kai_cp.kube.telemetry.time_metrics import TimeMetrics
from kai_cp_models.plan import FAILED, REJECTED, SOLVED, SPENT, Stage
from kai_cp_models.pods import GroupKey, PodKey
from kai_cp_models.policy import ActionName
from kai_cp_models.queries.shares import OwedGroups, gpus_of

SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_PRIORITY: Final = re.compile(r" at priority -?\d+")
WAITS: Final = (1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 24 * 3600, 7 * 24 * 3600)


class SchedulerMetrics:
    """The metrics of one scheduler process. ``prefix`` is KAI's metrics namespace."""

    def __init__(
        self,
        registry: CollectorRegistry,
        prefix: str = "kai",
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        def gauge(name: str, text: str) -> Gauge:
            return Gauge(f"kai_cp_{name}", text, registry=registry)

        def board(name: str, text: str, *labels: str) -> ReplacingGauge:
            return ReplacingGauge(registry, f"kai_cp_{name}", text, labels)

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"kai_cp_{name}", text, labels, registry=registry)

        def histogram(name: str, text: str, label: str, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(f"kai_cp_{name}", text, (label,), buckets=buckets, registry=registry)

        self._clock = clock
        self.kai = KaiMetrics(registry, prefix)
        self._capacity = CapacityMetrics(registry)
        self._time = TimeMetrics(registry, clock)
        self._disruption = DisruptionTotals()
        self._phase = histogram("cycle_duration_seconds", "Time of a cycle's phase.", "phase", SECONDS)
        self._cycles = counter("cycles_total", "Cycles.", "result")
        self._success = gauge("last_cycle_success_timestamp_seconds", "When a cycle last went through.")
        self._status = counter("solve_status_total", "Stages by status.", "stage", "status")
        self._gap = board("solve_gap_ratio", "Gap of a stage in the last cycle.", "stage")
        self._objective = board("objective_value", "Objective of a stage in the last cycle.", "stage")
        self._bound = board("objective_bound", "Bound of a stage in the last cycle.", "stage")
        self._variables = gauge("model_variables", "Variables of the last cycle's models.")
        self._constraints = gauge("model_constraints", "Constraints of the last cycle's models.")
        self._fallback = counter("fallback_total", "Stages not solved exactly.", "reason")
        self._rejections = counter("checker_rejections_total", "Plans the checker refused.", "action")
        self._pending = board("pending_podgroups", "Pod groups that wait.", "queue", "reason")
        self._oldest = Gauge(
            "kai_cp_oldest_pending_seconds", "Age of the oldest waiting group.", ("queue",), registry=registry
        )
        self._starving = board(
            "starving_podgroups", "Pod groups that wait for what their queue is owed.", "queue"
        )
        self._waited = histogram("wait_seconds", "Age of a pod ordered to be bound.", "queue", WAITS)
        self._evictions = counter(
            "evictions_total", "Pods evicted.", "action", "preemptor_queue", "victim_queue"
        )
        self._moves = counter("moves_total", "Pods evicted that have a new place already.")
        self._lost = counter("lost_gpu_seconds_total", "Work evicted.", "victim_queue")
        self._repeats = counter("repeat_evictions_total", "Pods of groups evicted before within an hour.")
        ratio = gauge("disruption_ratio", "GPUs evicted or moved per GPU given for it, in the last hour.")
        ratio.set_function(lambda: self._disruption.ratio(clock()))
        self._shortfall = board("queue_shortfall_gpus", "Fair share not reached.", "queue")
        self._binds = counter("binds_total", "Bind orders by outcome.", "result")
        self.bind_retries = counter("bind_retries_total", "Bind orders for a pod whose last one failed.")
        self.foreign = counter("foreign_orders_total", "Our pods ordered or bound by another program.")
        self._mismatch = counter(
            "state_mismatch_total", "Decisions that no longer fitted the cluster when they were sent.", "kind"
        )
        self._observed = counter("observed_total", "Others' placements, compared with our plan.", "outcome")
        self._aside = gauge("set_aside_objects", "Objects that cannot be used.")
        # Each series starts at 0, since an alert sees no increase in a series that starts at 1.
        for result in ("done", "failed"):
            self._cycles.labels(result)
        for action in get_args(ActionName):
            self._rejections.labels(action)
        self._evicted_at: dict[GroupKey, float] = {}
        self._queues_seen: set[str] = set()

    def compared(self, outcome: str, count: int) -> None:
        """Record how another scheduler's placements compare with our plan."""
        self._observed.labels(outcome).inc(count)

    def failed(self) -> None:
        """Record a cycle that failed."""
        self._cycles.labels("failed").inc()

    def succeeded(self) -> None:
        """Record that a cycle went through now."""
        self._success.set(self._clock())

    def observe(self, cycle: CycleRecord) -> None:
        """Record a cycle."""
        for phase, value in cycle.seconds.items():
            self._phase.labels(phase).observe(value)
        self._cycles.labels("failed" if cycle.problem else "done").inc()
        self._aside.set(len(cycle.snapshot.set_aside))
        self._stages(cycle)
        self._waiting(cycle)
        moved = {decision.pod for decision in cycle.plan.decisions if decision.kind == "Nominate"}
        again = sum(self._decision(cycle, result, moved) for result in cycle.results)
        self._repeats.inc(again)
        since = cycle.started - HOUR
        self._evicted_at = {group: at for group, at in self._evicted_at.items() if at > since}
        for decision, outcome, _ in cycle.results:
            if decision.kind == "Evict" and outcome == "done" and decision.group is not None:
                self._evicted_at[decision.group] = cycle.started
        self._disruption.note(cycle)
        self._capacity.observe(cycle)
        self._time.observe(cycle)
        self.kai.observe(cycle)

    def _stages(self, cycle: CycleRecord) -> None:
        solved: dict[str, list[Stage]] = {}
        for stage in cycle.plan.stages:
            if stage.kind == REJECTED:
                self._rejections.labels(stage.action).inc()
                self._fallback.labels("checker").inc()
            elif stage.kind == FAILED:
                self._fallback.labels("failure").inc()
            elif stage.kind == SPENT:
                # A search that counted work has ended did not fail: alerts look at the stages it left open.
                self._status.labels(_label(stage), stage.status).inc()
            else:
                name = _label(stage)
                solved.setdefault(name, []).append(stage)
                self._status.labels(name, stage.status).inc()
                if stage.status != "OPTIMAL":
                    self._fallback.labels("greedy" if stage.status == "GREEDY" else "time").inc()
        self._gap.show({(name,): max(one.gap for one in same) for name, same in solved.items()})
        goals = {name: same for name, same in solved.items() if same[0].kind == SOLVED}
        self._objective.show({(name,): sum(one.objective for one in same) for name, same in goals.items()})
        self._bound.show({(name,): sum(one.bound for one in same) for name, same in goals.items()})
        self._variables.set(sum(one.variables for same in solved.values() for one in same))
        self._constraints.set(sum(one.constraints for same in solved.values() for one in same))

    def _waiting(self, cycle: CycleRecord) -> None:
        waiting: Count[tuple[str, ...]] = Count()
        oldest: dict[str, float] = {}
        for entry in cycle.plan.unscheduled:
            group = cycle.snapshot.group_by_key.get(entry.group)
            if group is not None:
                queue = cycle.queue_of(group)
                waiting[queue, entry.reason] += 1
                oldest[queue] = min(oldest.get(queue, cycle.started), group.created)
        self._pending.show(waiting)
        owed = OwedGroups.of(cycle.snapshot, cycle.plan).by_queue()
        self._starving.show({(queue,): len(keys) for queue, keys in owed.items()})
        for queue in self._queues_seen - oldest.keys():
            self._oldest.remove(queue)
        for queue, created in oldest.items():
            # The wait grows even while nothing changes and no cycle runs.
            self._oldest.labels(queue).set_function(_age(created, self._clock))
        self._queues_seen = set(oldest)
        self._shortfall.show(
            {
                (name,): max(0.0, report.fair_share.gpu - report.allocated_after.gpu)
                for name, report in cycle.plan.queues.items()
            }
        )

    def _decision(self, cycle: CycleRecord, result: WriteResult, moved: Set[PodKey]) -> bool:
        """Record the result of a decision; returns whether it evicted a recently evicted group again."""
        decision, outcome, _ = result
        groups, pod = cycle.snapshot.group_by_key, cycle.snapshot.pod_by_key[decision.pod]
        group = groups.get(decision.group) if decision.group is not None else None
        queue = cycle.queue_of(group) if group is not None else ""
        if decision.kind == "Bind":
            self._binds.labels(outcome).inc()
            if outcome == "done":
                self._waited.labels(queue).observe(max(0.0, cycle.started - pod.created))
        if outcome in ("conflict", "gone"):
            self._mismatch.labels(decision.kind).inc()
        if decision.kind != "Evict" or outcome != "done":
            return False
        trigger = groups.get(decision.triggers[0]) if decision.triggers else None
        self._evictions.labels(decision.action, cycle.queue_of(trigger) if trigger else "", queue).inc()
        if decision.pod in moved:
            self._moves.inc()
        if group is None:
            return False
        began = group.last_start if group.last_start is not None else pod.created
        self._lost.labels(queue).inc(max(0.0, cycle.started - began) * gpus_of(cycle.snapshot, pod))
        return cycle.started - self._evicted_at.get(group.key, -HOUR) < HOUR


def _label(stage: Stage) -> str:
    """The stage as metrics name it: one series for all priorities, of which a cluster may have any number."""
    return _PRIORITY.sub("", stage.name)


def _age(created: float, clock: Callable[[], float]) -> Callable[[], float]:
    return lambda: max(0.0, clock() - created)
