"""Dashboards and alerts against a real Prometheus: every query finds what our own ``/metrics`` serves."""

from __future__ import annotations

import copy
import json
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import urlopen

import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest

from kai_cp.kube.api.background import BackgroundWriter
from kai_cp.kube.api.resources import LEASES
from kai_cp.kube.api.workqueue import WorkQueue
from kai_cp.kube.api.write_results import WriteResult
from kai_cp.kube.binder.process import BinderMetrics
from kai_cp.kube.controllers.host import Metrics as HostMetrics
from kai_cp.kube.controllers.options import ControllerOptions
from kai_cp.kube.controllers.queue import QueueMetrics
from kai_cp.kube.demo.controlplane import free_port
from kai_cp.kube.serving.http import HttpServer, Response
from kai_cp.kube.telemetry.cycles import CycleRecord
from kai_cp.kube.telemetry.leadership import show_leadership
from kai_cp.kube.telemetry.metrics import SchedulerMetrics
from kai_cp.kube.telemetry.request_metrics import RequestMetrics
from kai_cp.reader import parse
from kai_cp_models.engine import decide
from kai_cp_models.plan import DefragReport, Plan, Reservation, RolloutHolding, Stage
from kai_cp_models.pods import GroupKey
from kai_cp_models.settings import Settings
from tests.deploy.helm import CHART, Object
from tests.kai_cp.kube.stub import StubServer

ROOT = Path(__file__).parents[2]
DASHBOARDS = sorted((CHART / "files" / "dashboards").glob("*.json"))
NOW = 1795176000.0

pytestmark = pytest.mark.skipif(
    shutil.which("prometheus") is None, reason="there is no Prometheus; `make system-packages` installs it"
)


def on_the_time_axis(plan: Plan) -> Plan:
    """A start that was kept, for which a pod is evicted, and a later one, on whose nodes another group
    starts.
    """
    bound = next(decision for decision in plan.decisions if decision.kind == "Bind")
    lost = next(decision for decision in plan.decisions if decision.kind == "Evict")
    giant = GroupKey("default", "giant")
    held = Reservation(giant, "research", "made", NOW + 600, NOW + 600, NOW - 60, {bound.node: 8.0})
    kept = Reservation(GroupKey("default", "legacy"), "research", "started", NOW, NOW, NOW - 60, {})
    return replace(
        plan,
        decisions=tuple(replace(d, action="reservation") if d is lost else d for d in plan.decisions),
        reservations=(held, kept),
        defrag=DefragReport("nodes=4", 2, 4, "closed", ""),
        rollouts=(RolloutHolding("ns", "Deployment/web", "q", "r2", 0.0, 4, 1),),
    )


def ended_before(raw: Object, name: str) -> Object:
    """A world in which a pod group runs that declares its run time and that is then missing in ``raw``."""
    before: Object = copy.deepcopy(raw)
    lists = raw["rawObjects"]
    lists["pods"] = [pod for pod in lists["pods"] if not pod["metadata"]["name"].startswith(name)]
    for group in before["rawObjects"]["podGroups"]:
        if group["metadata"]["name"] == name:
            notes = group["metadata"].setdefault("annotations", {})
            notes["kai.scheduler/last-start-timestamp"] = "2026-11-20T11:00:00Z"
            notes["kai-cp/expected-runtime"] = "1h"
    return before


def busy_registry() -> tuple[CollectorRegistry, SchedulerMetrics, Sequence[CycleRecord]]:
    """Metrics, and cycles in which everything happens that a panel shows."""
    registry = CollectorRegistry()
    raw = json.loads((ROOT / "examples" / "demo-cluster.json").read_text("utf-8"))
    before = ended_before(raw, "notebook-ann")
    snapshot = parse(raw, now=NOW)
    plan = decide(snapshot, Settings.model_validate({"solver": {"budget_seconds": 20}}))
    cut_short = Stage("reclaim", "lost work", "FEASIBLE", 3, 2, 0.5, 0.1)
    # One idle place is promised, and another division of the quotas would help the waiting groups.
    promised = next(decision for decision in plan.decisions if decision.kind == "Bind")
    plan = replace(
        plan,
        stages=(*plan.stages, cut_short),
        decisions=tuple(replace(d, kind="Nominate") if d is promised else d for d in plan.decisions),
        unscheduled=tuple(entry._replace(reason="NodeFragmented") for entry in plan.unscheduled),
    )
    plan = on_the_time_axis(plan)
    seconds = {"snapshot": 0.1, "prepare": 0.2, "solve": 0.3, "check": 0.05, "write": 0.2, "report": 0.1}
    results = [WriteResult(decision, "done") for decision in plan.decisions]
    overtaken = [WriteResult(plan.decisions[0], "conflict")]
    cycles = (
        CycleRecord(
            1, NOW, before, parse(before, now=NOW), Plan(plan.decisions[:1]), overtaken, seconds, "hash"
        ),
        CycleRecord(2, NOW, raw, snapshot, plan, results, seconds, "hash"),
    )
    return registry, SchedulerMetrics(registry), cycles


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Prometheus that has read our metrics for a few seconds."""
    folder = tmp_path_factory.mktemp("prometheus")
    registry, metrics, cycles = busy_registry()
    stub = StubServer()
    writer = BackgroundWriter(1)
    transport = stub.transport()
    RequestMetrics(registry, transport, writer)
    show_leadership(registry, "kai-scheduler", None)
    for cycle in cycles:
        metrics.observe(cycle)
    metrics.compared("same_node", 1)
    metrics.succeeded()
    queues = QueueMetrics(registry, ControllerOptions())
    for queue in cycles[0].raw["rawObjects"]["queues"]:
        queues.show(queue, {"nvidia.com/gpu": 8000})
    binder_registry = CollectorRegistry()
    binder = BinderMetrics(binder_registry)
    controllers = HostMetrics(binder_registry, {"podgrouper": WorkQueue()})
    controllers.reconciles.labels("podgrouper", "done").inc()
    served = {"/metrics": registry, "/binder": binder_registry}
    target = HttpServer(
        "127.0.0.1:0",
        {
            path: lambda _rest, one=one: Response(generate_latest(one), "text/plain")
            for path, one in served.items()
        },
    )
    target.start()
    jobs = [
        {
            "job_name": path.strip("/"),
            "metrics_path": path,
            "scrape_interval": "500ms",
            "scrape_timeout": "500ms",
            "static_configs": [{"targets": [f"127.0.0.1:{target.port}"]}],
        }
        for path in served
    ]
    config = folder / "prometheus.yaml"
    config.write_text(yaml.safe_dump({"scrape_configs": jobs}))
    port = free_port()
    arguments = [
        "prometheus",
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    log = (folder / "log").open("wb")
    process = subprocess.Popen(arguments, stdout=log, stderr=subprocess.STDOUT)
    address = f"http://127.0.0.1:{port}"
    try:
        end = time.monotonic() + 60
        while not asked(address, "count_over_time(kai_cp_cycles_total[1m]) > 3"):
            assert process.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < end, (folder / "log").read_text()
            for cycle in cycles:
                metrics.observe(cycle)
            binder.latency.observe(0.1)
            controllers.seconds.labels("podgrouper").observe(0.1)
            transport.get(LEASES, "kai-cp", "nobody")
            time.sleep(0.3)
        yield address
    finally:
        process.terminate()
        process.wait(20)
        log.close()
        target.stop()
        writer.stop()
        transport.close()
        stub.close()


def asked(address: str, query: str) -> list[Any]:
    """The answer of Prometheus; None while it starts."""
    try:
        with urlopen(f"{address}/api/v1/query?query={quote(query)}", timeout=10) as answer:
            document = json.load(answer)
    except OSError:
        return []
    assert document["status"] == "success", document
    result: list[Any] = document["data"]["result"]
    return result


def queries() -> Iterator[Any]:
    for path in DASHBOARDS:
        for panel in json.loads(path.read_text("utf-8"))["panels"]:
            for target in panel["targets"]:
                yield pytest.param(target["expr"], id=f"{path.stem}: {panel['title']} {target['refId']}")


@pytest.mark.parametrize("query", list(queries()))
def test_every_panel_finds_something(prometheus: str, query: str) -> None:
    asks = query.replace("$queue", ".*").replace("$__rate_interval", "1m")
    assert "$" not in asks
    # On a busy machine a scrape may be late, and all series are gone until the next one.
    end = time.monotonic() + 60
    while not (found := asked(prometheus, asks)) and time.monotonic() < end:
        time.sleep(0.3)
    assert found, query


def test_every_metric_of_ours_is_on_a_dashboard_or_in_an_alert() -> None:
    page = (ROOT / "docs" / "in-a-cluster.md").read_text("utf-8")
    documented = re.findall(r"(?m)^\| `(kai_cp_\w+)", page)
    assert len(documented) > 40
    asked_for = "\n".join(parameter.values[0] for parameter in queries())
    asked_for += (CHART / "files" / "alerts.yaml").read_text("utf-8")
    assert [name for name in documented if not re.search(rf"\b{name}(_bucket|_sum)?\b", asked_for)] == []


def test_there_are_four_dashboards_and_no_panel_covers_another() -> None:
    assert [path.stem for path in DASHBOARDS] == ["capacity", "disruption", "queues", "solver"]
    for path in DASHBOARDS:
        taken: set[tuple[int, int]] = set()
        for panel in json.loads(path.read_text("utf-8"))["panels"]:
            at = panel["gridPos"]
            cells = {
                (x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])
            }
            assert at["x"] + at["w"] <= 24
            assert not cells & taken, panel["title"]
            taken |= cells


ALERTS: dict[str, tuple[dict[str, str], dict[str, str], str]] = {
    # alert: series that fire it, series that must not, after how long
    "KaiCpCyclesFail": (
        {'kai_cp_cycles_total{result="failed"}': "0+1x30", 'kai_cp_cycles_total{result="done"}': "5x30"},
        {'kai_cp_cycles_total{result="failed"}': "0+1x30", 'kai_cp_cycles_total{result="done"}': "0+1x30"},
        "20m",
    ),
    "KaiCpNoScheduler": (
        {'kai_cp_leader{lease="kai-cp-binder"}': "1x20"},
        {'kai_cp_last_cycle_success_timestamp_seconds{instance="a"}': "0x20"},
        "10m",
    ),
    "KaiCpNoLeader": (
        {
            'kai_cp_leader{lease="a", instance="x"}': "1 0x20",
            'kai_cp_leader{lease="a", instance="y"}': "0x20",
        },
        {
            'kai_cp_leader{lease="a", instance="x"}': "1 0x20",
            'kai_cp_leader{lease="a", instance="y"}': "0 1x20",
        },
        "10m",
    ),
    "KaiCpNoLeader, and no process either": (
        {
            'kai_cp_leader{lease="a", instance="x"}': "1x5 stale",
            'kai_cp_leader{lease="b", instance="y"}': "1x40",
        },
        {
            'kai_cp_leader{lease="a", instance="x"}': "1x5 stale",
            'kai_cp_leader{lease="a", instance="y"}': "1x40",
        },
        "30m",
    ),
    "KaiCpNoHeartbeat": (
        {
            'kai_cp_last_cycle_success_timestamp_seconds{instance="x"}': "300x40",
            'kai_cp_leader{instance="x", lease="a"}': "1x40",
        },
        {
            'kai_cp_last_cycle_success_timestamp_seconds{instance="x"}': "0x9 600x10 1200x10 1800x11",
            'kai_cp_leader{instance="x", lease="a"}': "1x40",
            'kai_cp_last_cycle_success_timestamp_seconds{instance="waits"}': "0x40",
            'kai_cp_leader{instance="waits", lease="a"}': "0x40",
        },
        "35m",
    ),
    "KaiCpCheckerRejected": (
        {'kai_cp_checker_rejections_total{action="reclaim"}': "0x5 1x30"},
        {'kai_cp_checker_rejections_total{action="reclaim"}': "0x40"},
        "10m",
    ),
    "KaiCpGapStays": (
        {'kai_cp_solve_gap_ratio{stage="reclaim: lost work"}': "0.2x60"},
        {'kai_cp_solve_gap_ratio{stage="reclaim: lost work"}': "0.2x20 0x40"},
        "45m",
    ),
    "KaiCpPodGroupWaits": (
        {'kai_cp_oldest_pending_seconds{queue="team-a"}': "90000x10"},
        {'kai_cp_oldest_pending_seconds{queue="team-a"}': "3600x10"},
        "5m",
    ),
    "KaiCpEvictsAgain": (
        {"kai_cp_repeat_evictions_total": "0+1x60"},
        {"kai_cp_repeat_evictions_total": "0x30 1x30"},
        "50m",
    ),
    "KaiCpFallsBack": (
        {'kai_cp_fallback_total{reason="time"}': "0+1x90", 'kai_cp_cycles_total{result="done"}': "0+1x90"},
        {'kai_cp_fallback_total{reason="time"}': "0x90", 'kai_cp_cycles_total{result="done"}': "0+1x90"},
        "80m",
    ),
}


def test_every_alert_has_a_case() -> None:
    rules = yaml.safe_load((CHART / "files" / "alerts.yaml").read_text("utf-8"))
    assert {rule["alert"] for group in rules["groups"] for rule in group["rules"]} == {
        case.partition(",")[0] for case in ALERTS
    }


@pytest.mark.parametrize("case", ALERTS)
@pytest.mark.parametrize("fires", [True, False], ids=["fires", "is quiet"])
def test_alerts_fire_when_they_should(case: str, fires: bool, tmp_path: Path) -> None:
    shutil.copy(CHART / "files" / "alerts.yaml", tmp_path / "alerts.yaml")
    bad, good, after = ALERTS[case]
    alert = case.partition(",")[0]
    series = [{"series": name, "values": values} for name, values in (bad if fires else good).items()]
    # promtool compares whole alerts; counting them by name leaves the wording free.
    test: Object = {
        "interval": "1m",
        "input_series": series,
        "promql_expr_test": [
            {
                "expr": f'count(ALERTS{{alertname="{alert}", alertstate="firing"}}) by (alertname)',
                "eval_time": after,
                "exp_samples": [{"labels": f'{{alertname="{alert}"}}', "value": 1}] if fires else [],
            }
        ],
    }
    suite = tmp_path / "suite.yaml"
    suite.write_text(yaml.safe_dump({"rule_files": ["alerts.yaml"], "tests": [test]}))
    done = subprocess.run(
        ["promtool", "test", "rules", str(suite)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
