"""The four Grafana dashboards, as tables of panels: what each asks, its query, its unit.

``deploy/make_chart.py`` writes them as JSON into the chart; a test sends every query to a real Prometheus
that reads our real ``/metrics``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
WIDTH: Final = 24
"""Columns of Grafana's grid."""


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel. ``title`` is a question; ``queries``: legend and PromQL.

    ``kind``: Grafana's panel type. ``unit``: Grafana's unit. ``columns``, ``rows``: size on the grid of 24.
    """

    title: str
    queries: tuple[tuple[str, str], ...]
    description: str
    kind: str = "timeseries"
    unit: str = "short"
    columns: int = 12
    rows: int = 8
    stacked: bool = False


@dataclass(frozen=True, slots=True)
class Dashboard:
    """One dashboard; ``queue``: whether it can be limited to queues."""

    uid: str
    title: str
    panels: tuple[Panel, ...]
    queue: bool = False


QUEUES: Final = Dashboard(
    "kai-cp-queues",
    "kai_cp / Queues",
    (
        Panel(
            "How many pod groups wait?",
            (("pod groups", 'sum(kai_cp_pending_podgroups{queue=~"$queue"})'),),
            "Pod groups that wait now, in all chosen queues.",
            "stat",
            columns=6,
            rows=4,
        ),
        Panel(
            "How many are owed and not served?",
            (("starving", 'sum(kai_cp_starving_podgroups{queue=~"$queue"})'),),
            "They wait although what they need next is within the fair share of their queue.",
            "stat",
            columns=6,
            rows=4,
        ),
        Panel(
            "How old is the oldest?",
            (("oldest", 'max(kai_cp_oldest_pending_seconds{queue=~"$queue"})'),),
            "Age of the oldest waiting pod group.",
            "stat",
            "s",
            6,
            4,
        ),
        Panel(
            "How many GPUs is the fair share short?",
            (("GPUs", 'sum(kai_cp_queue_shortfall_gpus{queue=~"$queue"})'),),
            "Fair share that queues with waiting work have not reached.",
            "stat",
            columns=6,
            rows=4,
        ),
        Panel(
            "Who has what?",
            (("{{queue_name}}", 'kai_queue_allocated_gpus{queue_name=~"$queue"}'),),
            "GPUs allocated, by queue.",
        ),
        Panel(
            "What is each queue owed?",
            (
                ("{{queue_name}} quota", 'kai_queue_deserved_gpus{queue_name=~"$queue"} >= 0'),
                ("{{queue_name}} fair share", 'kai_queue_fair_share_gpu{queue_name=~"$queue"} >= 0'),
            ),
            "Quota, and fair share: quota plus the part of what others leave.",
        ),
        Panel(
            "Who borrows?",
            (
                (
                    "{{queue_name}}",
                    'clamp_min(kai_queue_allocated_gpus{queue_name=~"$queue"} - '
                    '(kai_queue_deserved_gpus{queue_name=~"$queue"} >= 0), 0)',
                ),
            ),
            "GPUs above quota, by queue.",
        ),
        Panel(
            "Which queues are short of their fair share?",
            (("{{queue}}", 'kai_cp_queue_shortfall_gpus{queue=~"$queue"}'),),
            "GPUs missing to the fair share, by queue.",
        ),
        Panel(
            "Why do pod groups wait?",
            (("{{reason}}", 'sum by (reason) (kai_cp_pending_podgroups{queue=~"$queue"})'),),
            "Waiting pod groups by reason; docs/reasons.md says what to do about each.",
            stacked=True,
        ),
        Panel(
            "Which queue waits longest?",
            (("{{queue}}", 'kai_cp_oldest_pending_seconds{queue=~"$queue"}'),),
            "Age of the oldest waiting pod group by queue.",
            unit="s",
        ),
        Panel(
            "How long do pods wait?",
            (
                (
                    "{{queue}} p50",
                    "histogram_quantile(0.5, sum by (le, queue) "
                    '(rate(kai_cp_wait_seconds_bucket{queue=~"$queue"}[$__rate_interval])))',
                ),
                (
                    "{{queue}} p95",
                    "histogram_quantile(0.95, sum by (le, queue) "
                    '(rate(kai_cp_wait_seconds_bucket{queue=~"$queue"}[$__rate_interval])))',
                ),
            ),
            "Age of pods when they were ordered to be bound.",
            unit="s",
        ),
        Panel(
            "Which queues lose pods?",
            (
                (
                    "{{victim_queue}}",
                    "sum by (victim_queue) "
                    '(rate(kai_cp_evictions_total{victim_queue=~"$queue"}[$__rate_interval])) * 3600',
                ),
            ),
            "Pods evicted an hour, by the queue that loses them.",
        ),
    ),
    queue=True,
)

DISRUPTION: Final = Dashboard(
    "kai-cp-disruption",
    "kai_cp / Disruption",
    (
        Panel(
            "How many pods were evicted in the last hour?",
            (("pods", "sum(increase(kai_cp_evictions_total[1h]))"),),
            "All evictions, moves included.",
            "stat",
            columns=6,
            rows=4,
        ),
        Panel(
            "How many of them were moves?",
            (("moves", "increase(kai_cp_moves_total[1h])"),),
            "They had a new place already.",
            "stat",
            columns=6,
            rows=4,
        ),
        Panel(
            "How much work was lost?",
            (("GPU hours", "sum(increase(kai_cp_lost_gpu_seconds_total[1h])) / 3600"),),
            "GPUs of evicted pods times their run time, in the last hour.",
            "stat",
            "h",
            6,
            4,
        ),
        Panel(
            "What does one GPU given cost?",
            (("ratio", "kai_cp_disruption_ratio"),),
            "GPUs disturbed per GPU given in the last hour; 1: nothing was disturbed in vain.",
            "stat",
            columns=6,
            rows=4,
        ),
        Panel(
            "Which action evicts?",
            (("{{action}}", "sum by (action) (rate(kai_cp_evictions_total[$__rate_interval])) * 3600"),),
            "Pods an hour by action.",
            stacked=True,
        ),
        Panel(
            "Which queue takes from which?",
            (
                (
                    "{{preemptor_queue}} from {{victim_queue}}",
                    "sum by (preemptor_queue, victim_queue) (increase(kai_cp_evictions_total[1h]))",
                ),
            ),
            "Pods evicted in the last hour, by both queues.",
            "table",
        ),
        Panel(
            "Whose work is lost?",
            (
                (
                    "{{victim_queue}}",
                    "sum by (victim_queue) (rate(kai_cp_lost_gpu_seconds_total[$__rate_interval]))",
                ),
            ),
            "GPU-seconds lost a second, by queue.",
        ),
        Panel(
            "How often are pod groups evicted again?",
            (("repeats", "rate(kai_cp_repeat_evictions_total[$__rate_interval]) * 3600"),),
            "Pods an hour of pod groups that had been evicted from within the hour before.",
        ),
    ),
)

CAPACITY: Final = Dashboard(
    "kai-cp-capacity",
    "kai_cp / Capacity",
    (
        Panel(
            "How much of the cluster is used?",
            (("used", 'sum(kai_cp_gpus{state="used"}) / sum(kai_cp_gpus)'),),
            "GPUs in use, of all.",
            "stat",
            "percentunit",
            6,
            4,
        ),
        Panel(
            "How many GPUs are idle on whole nodes?",
            (("free", 'sum(kai_cp_gpus{state="free"})'),),
            "Idle GPUs of nodes that nothing else uses.",
            "stat",
            columns=6,
            rows=4,
        ),
        Panel(
            "How many are fragmented?",
            (("fragmented", 'sum(kai_cp_gpus{state="fragmented"})'),),
            "Idle GPUs of nodes in use.",
            "stat",
            columns=6,
            rows=4,
        ),
        Panel(
            "What does waiting for whole gangs cost?",
            (("GPUs", "sum(rate(kai_cp_reserved_idle_gpu_seconds_total[$__rate_interval]))"),),
            "GPUs that are idle because they are promised.",
            "stat",
            columns=6,
            rows=4,
        ),
        Panel(
            "In which state are the GPUs?",
            (("{{state}}", "sum by (state) (kai_cp_gpus)"),),
            "Every GPU of the pool in one state.",
            columns=24,
            stacked=True,
        ),
        Panel(
            "What is the largest gang that fits now?",
            (("{{level}}, {{pod_gpus}} GPUs a pod", "kai_cp_largest_gang"),),
            "The most pods of that many GPUs that one domain of a level takes now.",
            columns=24,
        ),
        Panel(
            "Who holds reservations?",
            (("{{queue}} {{state}}", "kai_cp_reservations"),),
            "Pod groups with a start in the future, by queue and state.",
            stacked=True,
        ),
        Panel(
            "Which queues keep GPUs idle for promised starts?",
            (("{{queue_name}}", "kai_cp_reserved_idle_gpus"),),
            "GPUs that are promised and idle now, by queue; a queue has what is below it, too.",
        ),
        Panel(
            "Are promised starts kept?",
            (("{{result}} {{cause}}", "sum by (result, cause) (increase(kai_cp_promises_total[1d]))"),),
            "Starts that came within a day: kept to 90 s, earlier, or broken with the cause.",
        ),
        Panel(
            "How true are declared run times?",
            (
                (
                    "{{queue}}",
                    "sum by (queue) (increase(kai_cp_runtime_error_ratio_sum[1d])) / "
                    "sum by (queue) (increase(kai_cp_runtime_error_ratio_count[1d]))",
                ),
            ),
            "Mean of actual by declared run time, of pod groups that ended within a day; 1: the truth.",
        ),
        Panel(
            "What starts on places held for others?",
            (("{{queue}}", "sum by (queue) (rate(kai_cp_backfilled_pods_total[$__rate_interval])) * 3600"),),
            "Pods an hour that backfill, by queue.",
        ),
        Panel(
            "What does backfill lose when a start comes?",
            (
                (
                    "{{queue}}",
                    "sum by (queue) (increase(kai_cp_backfill_evicted_gpu_seconds_total[1h])) / 3600",
                ),
            ),
            "GPU hours of evicted backfill in the last hour, by the queue that loses them.",
            unit="h",
        ),
        Panel(
            "How far is defragmentation from its goal?",
            (("{{goal}} now", "kai_cp_defrag_value"), ("{{goal}} wanted", "kai_cp_defrag_wanted")),
            "What defrag.goal asks for, as it is and as it shall be.",
        ),
        Panel(
            "What do rollouts hold beyond their quota?",
            (("{{queue}}, {{side}}", "kai_cp_rollout_gpus"),),
            "GPUs of workloads in rollout: of the new revision, of the old ones, and lent by quotas.",
        ),
    ),
)

SOLVER: Final = Dashboard(
    "kai-cp-solver",
    "kai_cp / Solver",
    (
        Panel(
            "Do cycles come to their end?",
            (("{{result}}", "sum by (result) (rate(kai_cp_cycles_total[$__rate_interval]))"),),
            "Cycles a second by result; failed must stay 0.",
            columns=8,
        ),
        Panel(
            "Is there a leader, and how long ago did a cycle end?",
            (
                ("leaders of {{lease}}", "sum by (lease) (kai_cp_leader)"),
                (
                    "minutes since a cycle of {{instance}}",
                    "(time() - kai_cp_last_cycle_success_timestamp_seconds) / 60 "
                    "and on (instance) kai_cp_leader == 1",
                ),
            ),
            "One process leads each lease; an idle scheduler looks every 10 minutes.",
        ),
        Panel(
            "Does the checker refuse plans?",
            (("{{action}}", "sum by (action) (increase(kai_cp_checker_rejections_total[1h]))"),),
            "Must stay 0; nothing of a refused plan is done.",
            columns=8,
        ),
        Panel(
            "How far may answers be from the optimum?",
            (("{{stage}}", "kai_cp_solve_gap_ratio"),),
            "Gap of the stages of the last cycle; 0: proved.",
            unit="percentunit",
            columns=8,
        ),
        Panel(
            "Where does the time of a cycle go?",
            (
                (
                    "{{phase}}",
                    "sum by (phase) (rate(kai_cp_cycle_duration_seconds_sum[$__rate_interval])) / "
                    "sum by (phase) (rate(kai_cp_cycle_duration_seconds_count[$__rate_interval]))",
                ),
            ),
            "Mean time of each phase.",
            unit="s",
            stacked=True,
        ),
        Panel(
            "How are stages answered?",
            (("{{status}}", "sum by (status) (rate(kai_cp_solve_status_total[$__rate_interval]))"),),
            "OPTIMAL, FEASIBLE or GREEDY.",
            stacked=True,
        ),
        Panel(
            "What keeps stages from their proof?",
            (("{{reason}}", "sum by (reason) (rate(kai_cp_fallback_total[$__rate_interval]))"),),
            "time, greedy (not tried), failure, checker (dropped).",
        ),
        Panel(
            "What does the last cycle reach, and what could it?",
            (("{{stage}}", "kai_cp_objective_value"), ("{{stage}} at best", "kai_cp_objective_bound")),
            "Value and bound of each stage's goal.",
        ),
        Panel(
            "How large are the models?",
            (("variables", "kai_cp_model_variables"), ("constraints", "kai_cp_model_constraints")),
            "Of the last cycle, all models together.",
        ),
        Panel(
            "Do binds come through?",
            (("{{result}}", "sum by (result) (rate(kai_cp_binds_total[$__rate_interval]))"),),
            "Bind orders by result.",
        ),
        Panel(
            "How long does a bind take?",
            (
                (
                    "p50",
                    "histogram_quantile(0.5, "
                    "sum by (le) (rate(kai_cp_bind_seconds_bucket[$__rate_interval])))",
                ),
                (
                    "p95",
                    "histogram_quantile(0.95, "
                    "sum by (le) (rate(kai_cp_bind_seconds_bucket[$__rate_interval])))",
                ),
            ),
            "With reservation, volumes and claims.",
            unit="s",
        ),
        Panel(
            "Which binds are tried again?",
            (
                ("failed attempts", "sum(rate(kai_cp_bind_failures_total[$__rate_interval])) * 3600"),
                ("ordered again", "sum(rate(kai_cp_bind_retries_total[$__rate_interval])) * 3600"),
            ),
            "An hour; steady growth means that something outside refuses.",
        ),
        Panel(
            "Would we have done what the other scheduler did?",
            (("{{outcome}}", "sum by (outcome) (rate(kai_cp_observed_total[$__rate_interval])) * 3600"),),
            "In modes observe and advise: its placements and evictions an hour against our last plan.",
            stacked=True,
        ),
        Panel(
            "Does another program order or bind our pods?",
            (
                ("others' orders", "sum(increase(kai_cp_foreign_orders_total[1h]))"),
                ("{{kind}} overtaken", "sum by (kind) (increase(kai_cp_state_mismatch_total[1h]))"),
            ),
            "Our pods that another program ordered or bound, and decisions that the cluster had overtaken.",
        ),
        Panel(
            "Are there objects that cannot be used?",
            (("objects", "kai_cp_set_aside_objects"),),
            "Skipped in the last cycle; kai-cp inspect names them.",
        ),
        Panel(
            "Do the controllers come through?",
            (
                (
                    "{{controller}} {{result}}",
                    "sum by (controller, result) "
                    "(rate(kai_cp_controller_reconciles_total[$__rate_interval]))",
                ),
                ("{{controller}} waiting", "sum by (controller) (kai_cp_controller_waiting)"),
            ),
            "Objects looked at a second, by result, and objects that wait now.",
        ),
        Panel(
            "How long does a controller look at an object?",
            (
                (
                    "{{controller}}",
                    "histogram_quantile(0.95, sum by (controller, le) "
                    "(rate(kai_cp_controller_reconcile_seconds_bucket[$__rate_interval])))",
                ),
            ),
            "At the 95th percentile.",
            unit="s",
        ),
        Panel(
            "Do reports reach the API server?",
            (
                ("waiting", "sum(kai_cp_reports_waiting)"),
                ("given up", "sum(increase(kai_cp_reports_dropped_total[1h]))"),
            ),
            "Events and conditions: what waits to be written, and what was given up in the last hour.",
        ),
        Panel(
            "How busy is the API server with us?",
            (
                (
                    "{{verb}} {{resource}}",
                    "topk(10, sum by (verb, resource) (rate(kai_cp_api_requests_total[$__rate_interval])))",
                ),
            ),
            "Requests a second, the ten most frequent kinds.",
        ),
    ),
)

DASHBOARDS: Final = (QUEUES, DISRUPTION, CAPACITY, SOLVER)


def _target(at: int, legend: str, query: str, kind: str) -> dict[str, Any]:
    instant = kind in ("stat", "table")
    return {
        "datasource": SOURCE,
        "refId": chr(ord("A") + at),
        "expr": query,
        "legendFormat": legend,
        "range": not instant,
        "instant": instant,
        **({"format": "table"} if kind == "table" else {}),
    }


def _panel(number: int, panel: Panel, x: int, y: int) -> dict[str, Any]:
    custom = {"fillOpacity": 20, "stacking": {"mode": "normal" if panel.stacked else "none"}}
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": SOURCE,
        "gridPos": {"x": x, "y": y, "w": panel.columns, "h": panel.rows},
        "fieldConfig": {
            "defaults": {"unit": panel.unit, **({"custom": custom} if panel.kind == "timeseries" else {})},
            "overrides": [],
        },
        "targets": [_target(i, legend, query, panel.kind) for i, (legend, query) in enumerate(panel.queries)],
    }


def _placed(panels: tuple[Panel, ...]) -> list[dict[str, Any]]:
    made, x, y, height = [], 0, 0, 0
    for number, panel in enumerate(panels, 1):
        if x + panel.columns > WIDTH:
            x, y, height = 0, y + height, 0
        made.append(_panel(number, panel, x, y))
        x, height = x + panel.columns, max(height, panel.rows)
    return made


def document(dashboard: Dashboard) -> str:
    """A dashboard in Grafana's JSON."""
    variables: list[dict[str, Any]] = [
        {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"}
    ]
    if dashboard.queue:
        query = "label_values(kai_cp_pending_podgroups, queue)"
        variables.append(
            {
                "name": "queue",
                "type": "query",
                "label": "Queue",
                "datasource": SOURCE,
                "query": {"query": query, "refId": "queue"},
                "definition": query,
                "includeAll": True,
                "allValue": ".*",
                "multi": True,
                "current": {"text": "All", "value": "$__all"},
                "refresh": 2,
            }
        )
    made = {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "tags": ["kai_cp"],
        "schemaVersion": 39,
        "editable": True,
        "time": {"from": "now-6h", "to": "now"},
        "refresh": "30s",
        "templating": {"list": variables},
        "panels": _placed(dashboard.panels),
    }
    return json.dumps(made, indent=2) + "\n"
