"""What a pod holds while it is resized in place, by the rule of Kubernetes (2.1)."""

from __future__ import annotations

from typing import Any

import pytest

from kai_cp.kube.api import transforms
from kai_cp.reader import parse
from kai_cp.workloads.sums import usage_of
from kai_cp_models.engine import decide
from kai_cp_models.pods import PodKey
from tests.kai_cp.reader.raw import NOW, node, pod, snapshot
from tests.support import tiny
from tests.support.plans import SETTINGS

Raw = dict[str, Any]


def container(cpu: str, restart: str = "", name: str = "main") -> Raw:
    found: Raw = {"name": name, "resources": {"requests": {"cpu": cpu, "nvidia.com/gpu": "1"}}}
    return found | ({"restartPolicy": restart} if restart else {})


def told(*, name: str = "main", allocated: str | None = None, actual: str | None = None) -> Raw:
    found: Raw = {"name": name}
    if allocated is not None:
        found["allocatedResources"] = {"cpu": allocated} if allocated else {}
    if actual is not None:
        found["resources"] = {"requests": {"cpu": actual}} if actual else {}
    return found


INFEASIBLE = {"conditions": [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]}
DEFERRED = {"conditions": [{"type": "PodResizePending", "status": "True", "reason": "Deferred"}]}
RUNS = {"phase": "Running"}


@pytest.mark.parametrize(
    ("spec", "status", "cpu"),
    [
        # Before the kubelet has said anything, and by one that knows no resizes.
        ("2", {}, 2000),
        ("2", {"containerStatuses": [told()]}, 2000),
        ("2", {"containerStatuses": [told(name="other", allocated="9")]}, 2000),
        ("2", {"containerStatuses": [told(allocated="2", actual="2")]}, 2000),
        # To more: wanted counts; to less: what the kubelet still holds.
        ("4", {"containerStatuses": [told(allocated="2", actual="2")]}, 4000),
        ("1", {"containerStatuses": [told(allocated="1", actual="3")]}, 3000),
        ("1", {"containerStatuses": [told(allocated="1500m", actual="1")]}, 1500),
        ("1", {"containerStatuses": [told(allocated="3")]}, 3000),
        ("1", {"containerStatuses": [told(actual="900m")]}, 1000),
        ("4", {"containerStatuses": [told(allocated="2", actual="2")]} | DEFERRED, 4000),
        # Infeasible: what the kubelet says alone, if it says anything.
        ("4", {"containerStatuses": [told(allocated="2", actual="1")]} | INFEASIBLE, 2000),
        ("4", {"containerStatuses": [told(actual="")]} | INFEASIBLE, 0),
        ("4", {"containerStatuses": [told()]} | INFEASIBLE, 4000),
        ("4", INFEASIBLE, 4000),
    ],
)
def test_a_container_holds_what_its_spec_and_the_kubelet_say(spec: str, status: Raw, cpu: int) -> None:
    placed = pod(node="n", containers=[container(spec)], status=status)
    kept = transforms.pod(placed)
    for each in (placed, kept):
        found = parse(snapshot(pods=[each], nodes=[node("n")]), now=NOW)
        assert found.pods[0].spec.requests == (cpu, 0, 1000, 1)
        assert found.set_aside == ()
    assert usage_of(placed | {"status": status | RUNS}, {}).allocated.get("cpu", 0) == cpu
    assert usage_of(kept, {}).allocated.get("cpu", 0) == cpu


def test_a_pod_without_a_node_holds_nothing_that_a_status_says() -> None:
    found = parse(
        snapshot(pods=[pod(containers=[container("1")], status={"containerStatuses": [told(actual="3")]})]),
        now=NOW,
    )
    assert found.pods[0].spec.requests[0] == 1000


def test_sidecars_are_resized_and_other_init_containers_are_not() -> None:
    inits = [container("1", "Always", "side"), container("1", name="once")]
    statuses = [told(name="side", actual="3"), told(name="once", actual="50")]
    placed = pod(
        node="n",
        containers=[container("1"), container("1", name="second")],
        initContainers=inits,
        status={"initContainerStatuses": statuses, "containerStatuses": [told(name="second", actual="2")]},
    )
    found = parse(snapshot(pods=[placed], nodes=[node("n")]), now=NOW)
    assert found.pods[0].spec.requests[0] == 1000 + 2000 + 3000


def test_an_amount_that_cannot_be_read_is_named() -> None:
    placed = pod(
        node="n", containers=[container("1")], status={"containerStatuses": [told(allocated="many")]}
    )
    found = parse(snapshot(pods=[placed], nodes=[node("n")]), now=NOW)
    (aside,) = found.set_aside
    assert "status.containerStatuses[].cpu" in aside.reason


@pytest.mark.parametrize(
    ("before", "after", "matters"),
    [
        ({}, {"containerStatuses": [told(allocated="1", actual="1")]}, False),
        ({}, {"containerStatuses": [told(allocated="2", actual="1")]}, True),
        (
            {"containerStatuses": [told(actual="2")]} | DEFERRED,
            {"containerStatuses": [told(actual="2")]} | INFEASIBLE,
            True,
        ),
        ({}, DEFERRED, False),
    ],
)
def test_a_change_of_what_is_held_is_noticed(before: Raw, after: Raw, matters: bool) -> None:
    made = (pod(node="n", containers=[container("1")], status=status) for status in (before, after))
    assert transforms.pod_change(*map(transforms.pod, made)) is matters


@pytest.mark.parametrize(
    ("spec", "held", "why", "asked", "binds"),
    [("100", "1", "Infeasible", "1", True), ("1", "8", "Deferred", "7", False), ("1", "8", "", "7", False)],
)
def test_the_node_of_a_resized_pod_is_neither_closed_nor_given_away(
    spec: str, held: str, why: str, asked: str, binds: bool
) -> None:
    """A node of 8 CPUs. A pod that wants 100 and can never have them holds 1; one that gives up 7 has 8."""
    amounts = {"cpu": held, "memory": "1Gi"}
    status: Raw = {
        "phase": "Running",
        "conditions": [{"type": "PodResizePending", "status": "True", "reason": why}],
        "containerStatuses": [
            {"name": "main", "allocatedResources": amounts, "resources": {"requests": amounts}}
        ],
    }
    runs = tiny.pod("runs", "n0", requests={"cpu": spec, "memory": "1Gi"}, queue="e", status=status)
    runs["spec"]["containers"][0]["name"] = "main"
    waits = tiny.pod("waits", requests={"cpu": asked, "memory": "1Gi"})
    queues = [tiny.queue("q"), tiny.queue("e")]
    plan = decide(tiny.world([tiny.node("n0")], [runs, waits], queues=queues, actions="allocate"), SETTINGS)
    assert [one.pod for one in plan.decisions] == ([PodKey("default", "waits")] if binds else [])
