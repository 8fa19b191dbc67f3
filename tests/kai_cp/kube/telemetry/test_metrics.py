"""The metrics of /metrics, read back with Prometheus' own parser."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from kai_cp.kube.api.background import BackgroundWriter
from kai_cp.kube.api.write_results import WriteResult
from kai_cp.kube.binder.process import BinderMetrics
from kai_cp.kube.controllers.host import Metrics as HostMetrics
from kai_cp.kube.controllers.options import ControllerOptions
from kai_cp.kube.controllers.queue import QueueMetrics
from kai_cp.kube.scheduler.backoff import BindBackoff
from kai_cp.kube.telemetry.cycles import CycleRecord
from kai_cp.kube.telemetry.leadership import show_leadership
from kai_cp.kube.telemetry.metrics import SchedulerMetrics
from kai_cp.kube.telemetry.request_metrics import RequestMetrics
from kai_cp.reader import parse
from kai_cp_models.plan import (
    CUT,
    FURTHER,
    REJECTED,
    SPENT,
    Decision,
    Plan,
    QueueReport,
    Stage,
    StageKind,
    Unscheduled,
)
from kai_cp_models.pods import GroupKey, PodKey
from kai_cp_models.snapshot import Shares
from tests.kai_cp.kube.samples import bind, evict, group, node, pod, queue, snapshot
from tests.kai_cp.kube.stub import StubServer

ROOT = Path(__file__).parents[4]
NOW = 1_800_000_000.0
Object = dict[str, Any]


class Watched:
    """Metrics of a scheduler whose clock stands still."""

    def __init__(self) -> None:
        self.now = NOW
        self.registry = CollectorRegistry()
        self.metrics = SchedulerMetrics(self.registry, clock=lambda: self.now)
        self._number = 0

    def cycle(self, raw: Object, plan: Plan, results: Sequence[WriteResult] | None = None) -> None:
        """A cycle in which every decision was carried out, unless ``results`` say otherwise."""
        self._number += 1
        done = [WriteResult(decision, "done") for decision in plan.decisions] if results is None else results
        parsed = parse(raw, now=self.now)
        seconds = {"snapshot": 0.1, "prepare": 0.2, "solve": 0.3, "check": 0.05, "write": 0.2, "report": 0.1}
        self.metrics.observe(CycleRecord(self._number, self.now, raw, parsed, plan, done, seconds, "hash"))

    def __call__(self, name: str, **labels: str) -> float | None:
        """A sample as Prometheus reads it, or None."""
        for family in text_string_to_metric_families(generate_latest(self.registry).decode()):
            for sample in family.samples:
                if sample.name == name and sample.labels == labels:
                    return float(sample.value)
        return None


@pytest.fixture
def watched() -> Watched:
    return Watched()


def nominate(name: str, node_name: str, key: str, action: Any = "preempt") -> Decision:
    return Decision("Nominate", PodKey("ns", name), GroupKey("ns", key), node_name, action)


def waits(key: str, reason: str = "NodeFragmented") -> Unscheduled:
    return Unscheduled(GroupKey("ns", key), reason, "", True)


def shares(gpu: float) -> Shares:
    return Shares(-1, -1, gpu)


def held(gpu: float) -> Shares:
    return Shares(0, 0, gpu)


def test_the_table_in_the_docs_is_what_is_served(server: StubServer) -> None:
    registries = scheduler, binder, controllers = [CollectorRegistry() for _ in range(3)]
    writer = BackgroundWriter(1)
    SchedulerMetrics(scheduler)
    BinderMetrics(binder)
    HostMetrics(controllers, {})
    for registry in registries:
        RequestMetrics(registry, server.transport(), writer)
        show_leadership(registry, "kai-scheduler", None)
    writer.stop()
    served = {
        family.name + ("_total" if family.type == "counter" else "")
        for registry in registries
        for family in registry.collect()
        if family.name.startswith("kai_cp_")
    }
    text = (ROOT / "docs/in-a-cluster.md").read_text().partition("## Metrics")[2]
    told = set(re.findall(r"^\| `(kai_cp_\w+)", text, re.MULTILINE))
    assert told == served


def test_every_gpu_is_in_one_state(watched: Watched) -> None:
    cordoned = node("off", gpus=2)
    cordoned["spec"]["unschedulable"] = True
    raw = snapshot(
        nodes=[node("half"), node("empty"), node("promised", gpus=4), cordoned],
        pods=[pod("a", gpus=3, node="half", phase="Running"), pod("w", "waits", gpus=3)],
        queues=[queue()],
        podGroups=[group(), group("waits")],
    )
    watched.cycle(raw, Plan(decisions=(nominate("w", "promised", "waits"),)))
    states = {"used": 3.0, "fragmented": 6.0, "free": 8.0, "reserved": 3.0, "unavailable": 2.0}
    assert {state: watched("kai_cp_gpus", state=state) for state in states} == states


def test_the_largest_gang_by_level(watched: Watched) -> None:
    nodes = [node(f"n{i}", gpus=8) for i in range(3)]
    for i, item in enumerate(nodes):
        item["metadata"]["labels"] |= {"rack": f"r{i // 2}", "kubernetes.io/hostname": f"n{i}"}
    levels = [{"nodeLabel": "rack"}, {"nodeLabel": "kubernetes.io/hostname"}]
    raw = snapshot(
        nodes=nodes,
        pods=[pod("a", gpus=5, node="n0", phase="Running")],
        queues=[queue()],
        podGroups=[group()],
        topologies=[{"metadata": {"name": "hall", "uid": "t"}, "spec": {"levels": levels}}],
    )
    watched.cycle(raw, Plan())
    # Free: 3 + 8 in the first rack, 8 in the second.
    assert watched("kai_cp_largest_gang", level="cluster", pod_gpus="1") == 19.0
    assert watched("kai_cp_largest_gang", level="cluster", pod_gpus="8") == 2.0
    assert watched("kai_cp_largest_gang", level="rack", pod_gpus="1") == 11.0
    assert watched("kai_cp_largest_gang", level="rack", pod_gpus="4") == 2.0
    assert watched("kai_cp_largest_gang", level="kubernetes.io/hostname", pod_gpus="2") == 4.0


def test_promised_idle_gpus_add_up_over_time(watched: Watched) -> None:
    raw = snapshot(nodes=[node("n")], pods=[pod("w", gpus=2)], queues=[queue()], podGroups=[group()])
    name = "kai_cp_reserved_idle_gpu_seconds_total"
    watched.cycle(raw, Plan(decisions=(nominate("w", "n", "g"),)))
    watched.now += 10
    assert watched(name, queue="q") == 20.0
    watched.now += 5
    watched.cycle(raw, Plan())
    watched.now += 100
    assert watched(name, queue="q") == 30.0


def test_a_queue_that_waits_for_its_share_starves(watched: Watched) -> None:
    raw = snapshot(
        nodes=[node("n")],
        pods=[
            *(pod(f"a{i}", "owed") for i in range(4)),
            *(pod(f"b{i}", "greedy") for i in range(5)),
            pod("c", "torn"),
            pod("d", "half", gpus=2),
        ],
        queues=[queue("q"), queue("other")],
        podGroups=[group("owed", 4), group("greedy", 5), group("torn", 2), group("half", 1, "other")],
    )
    plan = Plan(
        unscheduled=(waits("owed"), waits("greedy"), waits("torn", "NotReady"), waits("half")),
        queues={
            "q": QueueReport(shares(6), held(2), held(2)),
            "other": QueueReport(shares(1), held(0), held(0)),
        },
    )
    watched.cycle(raw, plan)
    # Four GPUs more are within the six of q, five are not; a torn gang does not wait for capacity.
    assert watched("kai_cp_starving_podgroups", queue="q") == 1.0
    assert watched("kai_cp_starving_podgroups", queue="other") is None
    assert watched("kai_cp_queue_shortfall_gpus", queue="q") == 4.0
    assert watched("kai_cp_pending_podgroups", queue="q", reason="NodeFragmented") == 2.0
    watched.cycle(raw, Plan())
    assert watched("kai_cp_starving_podgroups", queue="q") is None
    assert watched("kai_cp_pending_podgroups", queue="q", reason="NodeFragmented") is None


def test_the_oldest_wait_grows_without_cycles(watched: Watched) -> None:
    raw = snapshot(nodes=[], pods=[pod("a")], queues=[queue()], podGroups=[group()])
    watched.cycle(raw, Plan(unscheduled=(waits("g"),)))
    before = watched("kai_cp_oldest_pending_seconds", queue="q")
    watched.now += 60
    after = watched("kai_cp_oldest_pending_seconds", queue="q")
    assert before is not None
    assert after == before + 60
    watched.cycle(raw, Plan())
    assert watched("kai_cp_oldest_pending_seconds", queue="q") is None


def test_names_that_only_owners_write_make_no_series(watched: Watched) -> None:
    """Any text may be the queue of a pod group; a thousand such groups are one series, not thousands."""
    invented = [group(f"g{i}", queue=f"{'invented-' * 99}{i}") for i in range(9)]
    pods = [pod(f"p{i}", f"g{i}", node="n", phase="Running") for i in range(9)]
    raw = snapshot(nodes=[node("n")], pods=pods, queues=[queue()], podGroups=invented)
    waiting = tuple(waits(f"g{i}", "QueueDoesNotExist") for i in range(9))
    watched.cycle(raw, Plan(tuple(evict(f"p{i}", "n", group=f"g{i}") for i in range(9)), unscheduled=waiting))
    assert watched("kai_cp_pending_podgroups", queue="", reason="QueueDoesNotExist") == 9.0
    assert watched("kai_cp_oldest_pending_seconds", queue="") is not None
    assert watched("kai_cp_evictions_total", action="preempt", preemptor_queue="", victim_queue="") == 9.0
    assert b"invented" not in generate_latest(watched.registry)


def running(name: str, key: str, gpus: int) -> Object:
    return pod(name, key, gpus=gpus, node="n", phase="Running")


def test_evictions_are_counted_by_the_queues_that_lose_and_gain(watched: Watched) -> None:
    raw = snapshot(
        nodes=[node("n"), node("m")],
        pods=[running("v", "victim", 6), running("m", "moved", 2), pod("w", "asks", gpus=4)],
        queues=[queue(), queue("low")],
        podGroups=[group("victim", 1, "low"), group("moved"), group("asks")],
    )
    trigger = (GroupKey("ns", "asks"),)
    plan = Plan(
        decisions=(
            evict("v", "n", group="victim", triggers=trigger),
            evict("m", "n", group="moved", triggers=trigger),
            nominate("m", "m", "moved"),
            nominate("w", "n", "asks"),
        )
    )
    watched.cycle(raw, plan)
    assert watched("kai_cp_disruption_ratio") == 2.0
    assert watched("kai_cp_moves_total") == 1.0
    assert watched("kai_cp_evictions_total", action="preempt", preemptor_queue="q", victim_queue="low") == 1.0
    lost = watched("kai_cp_lost_gpu_seconds_total", victim_queue="low")
    assert lost is not None
    assert lost > 0
    assert watched("kai_cp_repeat_evictions_total") == 0.0
    watched.now += 1800
    watched.cycle(raw, Plan(decisions=(evict("v", "n", group="victim", action="stalegangeviction"),)))
    assert watched("kai_cp_disruption_ratio") == 2.0, "a stale gang gives way to no other"
    assert watched("kai_cp_repeat_evictions_total") == 1.0
    watched.now += 1801
    assert watched("kai_cp_disruption_ratio") == 0.0


def test_evictions_in_vain_are_no_undisturbed_hour(watched: Watched) -> None:
    raw = snapshot(
        nodes=[node("n")],
        pods=[running("v", "victim", 8), pod("w", "asks", gpus=2)],
        queues=[queue()],
        podGroups=[group("victim"), group("asks")],
    )
    decisions = (
        evict("v", "n", group="victim", triggers=(GroupKey("ns", "asks"),)),
        bind("w", "n", group="asks"),
    )
    results = [WriteResult(decisions[0], "done"), WriteResult(decisions[1], "conflict", "it is terminating")]
    watched.cycle(raw, Plan(decisions=decisions), results)
    assert watched("kai_cp_disruption_ratio") == math.inf
    watched.cycle(raw, Plan(decisions=decisions))
    assert watched("kai_cp_disruption_ratio") == 8.0, "16 GPUs taken, 2 given"


def test_decisions_that_came_to_nothing(watched: Watched) -> None:
    raw = snapshot(nodes=[node("n")], pods=[pod("a"), pod("b")], queues=[queue()], podGroups=[group()])
    decisions = (bind("a", "n"), bind("b", "n"))
    results = [WriteResult(decisions[0], "done"), WriteResult(decisions[1], "conflict", "bound already")]
    watched.cycle(raw, Plan(decisions=decisions), results)
    assert watched("kai_cp_binds_total", result="done") == 1.0
    assert watched("kai_cp_binds_total", result="conflict") == 1.0
    assert watched("kai_cp_state_mismatch_total", kind="Bind") == 1.0
    assert watched("kai_cp_wait_seconds_count", queue="q") == 1.0


def test_orders_after_a_failed_one_are_retries(watched: Watched) -> None:
    backoff = BindBackoff(retried=watched.metrics.bind_retries.inc)
    backoff.ordered("uid")
    assert watched("kai_cp_bind_retries_total") == 0.0
    backoff.failed("uid", NOW)
    backoff.ordered("uid")
    backoff.succeeded("uid")
    backoff.ordered("uid")
    assert watched("kai_cp_bind_retries_total") == 1.0


def test_stages_of_the_last_cycle(watched: Watched) -> None:
    raw = snapshot(queues=[queue()])
    first = Stage("reclaim", "moved pods", "FEASIBLE", 10, 8, 0.2, variables=7, constraints=5, seconds=0.5)
    second = Stage("reclaim", "pod groups stopped", "OPTIMAL", seconds=0.25)
    refused = Stage("preempt", "", "GREEDY", kind=REJECTED)
    watched.cycle(raw, Plan(stages=(first, second, refused)))
    assert watched("kai_cp_solve_gap_ratio", stage=first.name) == 0.2
    assert watched("kai_cp_objective_value", stage=first.name) == 10.0
    assert watched("kai_cp_objective_bound", stage=first.name) == 8.0
    assert watched("kai_cp_model_variables") == 7.0
    assert watched("kai_cp_solve_status_total", stage=second.name, status="OPTIMAL") == 1.0
    assert watched("kai_cp_fallback_total", reason="time") == 1.0
    assert watched("kai_cp_fallback_total", reason="checker") == 1.0
    assert watched("kai_cp_checker_rejections_total", action="preempt") == 1.0
    assert watched("kai_action_scheduling_latency_milliseconds", action="reclaim") == 750.0
    assert watched("kai_e2e_scheduling_latency_milliseconds") == pytest.approx(950.0)
    for phase in ("snapshot", "prepare", "solve", "check", "write"):
        assert watched("kai_cp_cycle_duration_seconds_count", phase=phase) == 1.0
    watched.cycle(raw, Plan())
    assert watched("kai_cp_solve_gap_ratio", stage=first.name) is None, "an alert would stay for ever"


@pytest.mark.parametrize("kind", [FURTHER, CUT])
def test_a_stage_without_a_goal_has_no_value(watched: Watched, kind: StageKind) -> None:
    """It is a word about the action; a value would be read in some goal's unit."""
    stage = Stage("reclaim", "", "FEASIBLE", gap=1.0, kind=kind)
    watched.cycle(snapshot(queues=[queue()]), Plan(stages=(stage,)))
    assert watched("kai_cp_objective_value", stage=f"reclaim: {kind}") is None
    assert watched("kai_cp_objective_bound", stage=f"reclaim: {kind}") is None
    assert watched("kai_cp_solve_gap_ratio", stage=f"reclaim: {kind}") == 1.0
    assert watched("kai_cp_fallback_total", reason="time") == 1.0


def test_work_that_ends_a_search_raises_no_alarm(watched: Watched) -> None:
    watched.cycle(
        snapshot(queues=[queue()]), Plan(stages=(Stage("reclaim", "", "FEASIBLE", gap=1.0, kind=SPENT),))
    )
    name = f"reclaim: {SPENT}"
    assert watched("kai_cp_solve_status_total", stage=name, status="FEASIBLE") == 1.0
    assert watched("kai_cp_solve_gap_ratio", stage=name) is None
    assert watched("kai_cp_fallback_total", reason="time") in (None, 0.0)


def test_stages_of_one_goal_at_several_priorities_are_one_series(watched: Watched) -> None:
    goal = "lost work at priority {} [GPU-milliseconds]"
    stages = [
        Stage("reclaim", goal.format(p), "FEASIBLE", 10 * i, 8 * i, 0.2 * i) for i, p in ((1, 50), (2, -7))
    ]
    watched.cycle(snapshot(queues=[queue()]), Plan(stages=tuple(stages)))
    one = "reclaim: lost work [GPU-milliseconds]"
    assert watched("kai_cp_solve_gap_ratio", stage=one) == 0.4
    assert watched("kai_cp_objective_value", stage=one) == 30.0
    assert watched("kai_cp_objective_bound", stage=one) == 24.0
    assert watched("kai_cp_solve_status_total", stage=one, status="FEASIBLE") == 2.0


def test_counters_of_alerts_exist_from_the_start(watched: Watched) -> None:
    """To Prometheus, a counter that appears with its first 1 is no increase."""
    for action in ("allocate", "consolidation", "reclaim", "preempt", "stalegangeviction"):
        assert watched("kai_cp_checker_rejections_total", action=action) == 0.0
    for result in ("done", "failed"):
        assert watched("kai_cp_cycles_total", result=result) == 0.0
    assert watched("kai_cp_repeat_evictions_total") == 0.0


def test_series_of_an_evicted_pod_group_go_when_it_does(watched: Watched) -> None:
    labels = {"podgroup": "g", "namespace": "ns", "uid": "uid-g", "nodepool": "default", "action": "preempt"}
    raw = snapshot(pods=[pod("a", node="n", phase="Running")], nodes=[node("n")], queues=[queue()])
    raw["rawObjects"]["podGroups"] = [group()]
    watched.cycle(raw, Plan(decisions=(evict("a", "n"),)))
    assert watched("kai_pod_group_evicted_pods_total", **labels) == 1.0
    watched.cycle(raw, Plan())
    assert watched("kai_pod_group_evicted_pods_total", **labels) == 1.0
    again = group()
    again["metadata"]["uid"] = "made-again"
    for groups in ([again], []):
        raw["rawObjects"]["podGroups"] = groups
        watched.cycle(raw, Plan())
        assert watched("kai_pod_group_evicted_pods_total", **labels) is None


def test_queues_under_kais_names(watched: Watched) -> None:
    shown = queue("q")
    shown["spec"]["displayName"] = "Team Q"
    report = QueueReport(Shares(2000, 3e9, 5), held(0), Shares(1500, 2e9, 4))
    watched.cycle(snapshot(queues=[shown]), Plan(queues={"q": report}))
    scheduler = {"queue_name": "Team Q", "queue_metadata_name": "q", "queue_display_name": "Team Q"}
    assert watched("kai_queue_fair_share_gpu", **scheduler) == 5.0
    assert watched("kai_queue_fair_share_cpu_cores", **scheduler) == 2.0
    assert watched("kai_queue_fair_share_memory_gb", **scheduler) == 3.0
    watched.cycle(snapshot(), Plan())
    assert watched("kai_queue_fair_share_gpu", **scheduler) is None, "the queue is gone"


def test_the_queue_controller_alone_counts_what_queues_hold(watched: Watched) -> None:
    """Two processes with the same names would count twice, or disagree."""
    watched.cycle(snapshot(queues=[queue("q")]), Plan(queues={"q": QueueReport(held(5), held(0), held(4))}))
    ours = {family.name for family in watched.registry.collect()}
    both = CollectorRegistry()
    QueueMetrics(both, ControllerOptions())
    assert not ours & {family.name for family in both.collect()}
