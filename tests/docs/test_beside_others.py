"""Other schedulers and other hardware in the same cluster: docs/beside-others.md, case by case, offline."""

from __future__ import annotations

from typing import Any

import pytest

from kai_cp.reader import parse
from kai_cp_models.check import violations
from kai_cp_models.engine import decide
from kai_cp_models.plan import Plan
from kai_cp_models.settings import Settings
from kai_cp_models.snapshot import Snapshot
from tests.kai_cp.kube.samples import group, node, pod, queue, snapshot

NOW = 1_795_176_000.0
Object = dict[str, Any]


def decided(**lists: Any) -> tuple[Snapshot, Plan]:
    parsed = parse(snapshot(**lists), now=NOW)
    settings = Settings()
    plan = decide(parsed, settings)
    assert violations(parsed, plan, settings.rules) == []
    return parsed, plan


def bound(plan: Plan) -> dict[str, str]:
    return {d.pod.name: d.node for d in plan.decisions if d.kind == "Bind"}


def foreign(name: str, scheduler: str, gpus: int, where: str, **labels: str) -> Object:
    """A running pod of another scheduler, which has no pod group of ours."""
    made = pod(name, "none", gpus=gpus, node=where, phase="Running")
    made["spec"]["schedulerName"] = scheduler
    made["metadata"]["annotations"].pop("pod-group-name", None)
    made["metadata"].setdefault("labels", {}).update(labels)
    return made


@pytest.mark.parametrize("scheduler", ["volcano", "yunikorn", "armada", "default-scheduler"])
def test_pods_of_other_schedulers_keep_their_resources(scheduler: str) -> None:
    # 8 GPUs, 6 of them held by others: one pod of 2 fits, and no pod is evicted for the other one.
    other = foreign("theirs", scheduler, 6, "n", **{"volcano.sh/queue-name": "q"})
    _, plan = decided(
        nodes=[node("n", gpus=8)],
        pods=[other, pod("a-0", "a", gpus=2), pod("b-0", "b", gpus=2)],
        queues=[queue()],
        podGroups=[group("a"), group("b")],
    )
    assert list(bound(plan).values()) == ["n"]
    assert {d.kind for d in plan.decisions} == {"Bind"}
    assert [str(entry.group) in ("ns/a", "ns/b") for entry in plan.unscheduled] == [True]


def test_their_waiting_pods_are_not_placed() -> None:
    waiting = foreign("theirs", "volcano", 1, "n")
    del waiting["spec"]["nodeName"]
    waiting["status"] = {"phase": "Pending"}
    _, plan = decided(
        nodes=[node("n", gpus=8)], pods=[waiting, pod("a-0", "a")], queues=[queue()], podGroups=[group("a")]
    )
    assert bound(plan) == {"a-0": "n"}


def test_pods_that_kueue_holds_back_wait_for_their_gate() -> None:
    gated = pod("k-0", "k")
    gated["spec"]["schedulingGates"] = [{"name": "kueue.x-k8s.io/admission"}]
    raw: Object = {"nodes": [node("n", gpus=8)], "queues": [queue()], "podGroups": [group("k")]}
    _, plan = decided(pods=[gated], **raw)
    assert plan.decisions == ()
    _, plan = decided(pods=[pod("k-0", "k")], **raw)
    assert bound(plan) == {"k-0": "n"}


def cpu_pod(name: str, key: str, cores: int) -> Object:
    made = pod(name, key, gpus=0)
    made["spec"]["containers"][0]["resources"]["requests"] = {"cpu": str(cores)}
    return made


def test_batch_without_gpus_shares_queues_and_nodes() -> None:
    # node() has CPUs; where a node without GPUs exists, GPU nodes are left to GPU pods.
    plain = node("cpu", gpus=0)
    plain["metadata"]["labels"].pop("nvidia.com/gpu.count", None)
    _, plan = decided(
        nodes=[node("gpu", gpus=8), plain],
        pods=[cpu_pod("c-0", "c", 2), pod("g-0", "g", gpus=8)],
        queues=[queue()],
        podGroups=[group("c"), group("g")],
    )
    assert bound(plan) == {"c-0": "cpu", "g-0": "gpu"}


@pytest.mark.parametrize("resource", ["amd.com/gpu", "gpu.intel.com/i915", "habana.ai/gaudi"])
def test_gpus_of_other_vendors_are_counted_by_name(resource: str) -> None:
    def wants(name: str, key: str, count: int) -> Object:
        made = cpu_pod(name, key, 1)
        made["spec"]["containers"][0]["resources"]["requests"][resource] = str(count)
        made["spec"]["containers"][0]["resources"]["limits"] = {resource: str(count)}
        return made

    box = node("box", gpus=0)
    for amounts in ("allocatable", "capacity"):
        box["status"].setdefault(amounts, {})[resource] = "4"
    _, plan = decided(
        nodes=[box, node("plain", gpus=0)],
        pods=[wants("a-0", "a", 3), wants("b-0", "b", 2)],
        queues=[queue()],
        podGroups=[group("a"), group("b")],
    )
    # 3 and 2 do not fit into 4 together, and only one node has the resource.
    assert list(bound(plan).values()) == ["box"]
    assert len(plan.unscheduled) == 1
