"""Nominated pods name their node: written where it changes, shown at once, taken back when it lapses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kai_cp.kube.api import resources as r
from kai_cp_models.plan import Decision, Plan, Unscheduled
from kai_cp_models.pods import GroupKey, PodKey
from kai_cp_models.policy import ActionName
from tests.kai_cp.kube.conftest import PATIENCE_SECONDS, until
from tests.kai_cp.kube.samples import bind, evict, group, node, pod
from tests.kai_cp.kube.scheduler.conftest import Setup
from tests.kai_cp.kube.scheduler.test_group_annotations import held_writer


def nominate(name: str, node: str = "n", action: ActionName = "preempt") -> Decision:
    return Decision("Nominate", PodKey("ns", name), GroupKey("ns", "g"), node, action)


def shown(setup: Setup, name: str) -> str:
    """The node that the next snapshot says the pod is nominated to."""
    pods = setup.live.snapshot()["rawObjects"]["pods"]
    (found,) = (one for one in pods if one["metadata"]["name"] == name)
    return str((found.get("status") or {}).get("nominatedNodeName") or "")


def written(setup: Setup, name: str) -> str:
    """The node that the API server says so of, once all is written."""
    setup.writer.busy = lambda: False
    assert setup.writer.drain(PATIENCE_SECONDS)
    found: Any = setup.server.get(r.PODS, "ns", name)
    return str(found["status"].get("nominatedNodeName") or "")


def patches(setup: Setup) -> int:
    return len(setup.server.requests("PATCH", "/status"))


def test_a_nominated_pod_names_its_node_until_a_plan_says_otherwise(setup: Setup) -> None:
    setup.apply(Plan(decisions=(nominate("p0"),)))
    assert (written(setup, "p0"), shown(setup, "p0")) == ("n", "n")
    setup.apply(Plan(decisions=(nominate("p0"),)))
    assert written(setup, "p0") == "n"
    # The same again is not written.
    assert patches(setup) == 1
    setup.apply(Plan())
    assert (written(setup, "p0"), shown(setup, "p0")) == ("", "")
    setup.apply(Plan())
    assert patches(setup) == 2


def test_only_what_others_leave_for_is_promised(setup: Setup) -> None:
    """Allocate nominates to capacity that becomes free by itself. It may move what was promised before."""
    setup.apply(Plan(decisions=(nominate("p0", action="allocate"), nominate("p1"))))
    assert (written(setup, "p0"), written(setup, "p1")) == ("", "n")
    setup.apply(Plan(decisions=(nominate("p0", action="allocate"), nominate("p1", action="allocate"))))
    assert (written(setup, "p0"), shown(setup, "p1")) == ("", "n")
    setup.apply(Plan(decisions=(nominate("p1", "m", action="allocate"),)))
    assert (written(setup, "p1"), shown(setup, "p1")) == ("m", "m")


def test_a_nomination_shows_before_it_is_written_and_the_latest_wins(setup: Setup) -> None:
    gate = held_writer(setup)
    setup.apply(Plan(decisions=(nominate("p0"), nominate("p1"))))
    assert (shown(setup, "p0"), shown(setup, "p1")) == ("n", "n")
    setup.apply(Plan(decisions=(nominate("p0", "m"),)))
    assert (shown(setup, "p0"), shown(setup, "p1")) == ("m", "")
    gate.set()
    assert (written(setup, "p0"), written(setup, "p1")) == ("m", "")


@pytest.mark.parametrize("decision", [bind("p0", "n"), evict("p0", "n")], ids=["bound", "evicted"])
def test_pods_that_start_or_leave_are_left_alone(setup: Setup, decision: Decision) -> None:
    setup.apply(Plan(decisions=(nominate("p0"),)))
    assert written(setup, "p0") == "n"
    setup.apply(Plan(decisions=(decision,)))
    setup.apply(Plan())
    setup.writer.busy = lambda: False
    assert setup.writer.drain(PATIENCE_SECONDS)
    assert patches(setup) == 1


def test_pods_of_other_schedulers_are_left_alone(setup: Setup) -> None:
    other = pod("other")
    other["spec"]["schedulerName"] = "default-scheduler"
    other["status"]["nominatedNodeName"] = "n"
    setup.server.put(r.PODS, other)
    until(lambda: setup.cache.stores[r.PODS].get(("ns", "other")))
    setup.apply(Plan())
    assert written(setup, "other") == "n"


def test_a_plan_that_did_not_decide_takes_nothing_back(setup: Setup) -> None:
    setup.apply(Plan(decisions=(nominate("p0"),)))
    assert written(setup, "p0") == "n"
    setup.apply(Plan(unscheduled=(Unscheduled(GroupKey("ns", "g"), "NotDecidedInTime", "", proved=False),)))
    assert written(setup, "p0") == "n"


def test_a_refused_nomination_stops_no_cycle_and_is_tried_again(setup: Setup) -> None:
    refused = iter([True])
    setup.server.faults = lambda m, p: (422, {}) if p.endswith("/status") and next(refused, False) else None
    setup.apply(Plan(decisions=(nominate("p0"),)))
    assert written(setup, "p0") == ""
    setup.apply(Plan(decisions=(nominate("p0"),)))
    assert written(setup, "p0") == "n"


def test_a_pod_of_the_same_name_that_came_meanwhile_is_another_one(setup: Setup) -> None:
    gate = held_writer(setup)
    setup.apply(Plan(decisions=(nominate("p0"),)))
    fresh = pod("p0")
    fresh["metadata"]["uid"] = "later"
    setup.server.put(r.PODS, fresh)
    until(lambda: (setup.cache.stores[r.PODS].get(("ns", "p0")) or {})["metadata"]["uid"] == "later")
    assert shown(setup, "p0") == ""
    gate.set()
    assert written(setup, "p0") == ""


def test_a_later_pod_of_the_name_is_promised_nothing(setup: Setup) -> None:
    setup.live.order(Plan(decisions=(nominate("p0"),)), {PodKey("ns", "p0"): "earlier"})
    assert written(setup, "p0") == ""
    assert shown(setup, "p0") == ""


def test_the_place_of_a_moved_pod_is_that_of_the_next_one(setup: Setup) -> None:
    """It is held while no pod of the group waits. The next pod has it, and names the node itself once a plan
    promises it that again. Of the stand-in itself nothing is written, whatever a plan decides about it."""
    key = GroupKey("ns", "h")
    for resource, one in ((r.NODES, node("m")), (r.POD_GROUPS, group("h"))):
        setup.server.put(resource, one)
    setup.server.put(r.PODS, pod("v", "h", node="n", phase="Running"))
    store = setup.cache.stores[r.PODS]
    until(lambda: store.get(("ns", "v")) and setup.cache.stores[r.POD_GROUPS].get(("ns", "h")))
    leaves = evict("v", "n", group="h", action="consolidation")
    setup.apply(Plan(decisions=(leaves, replace(nominate("v", "m", "consolidation"), group=key))))
    setup.server.remove(r.PODS, "ns", "v")
    until(lambda: store.get(("ns", "v")) is None)

    def stand_ins() -> list[str]:
        raw = setup.live.snapshot()["rawObjects"]
        assert {one["spec"]["selectedNode"] for one in raw["bindRequests"]} <= {"m"}
        return [one["spec"]["podName"] for one in raw["bindRequests"]]

    assert stand_ins() == ["v (moved)"]
    setup.apply(Plan())
    assert stand_ins() == ["v (moved)"]
    setup.server.put(r.PODS, pod("next", "h"))
    until(lambda: store.get(("ns", "next")))
    assert (shown(setup, "next"), written(setup, "next"), stand_ins()) == ("m", "", [])
    setup.apply(Plan(decisions=(nominate("next", "m", "allocate"),)))
    assert (shown(setup, "next"), written(setup, "next"), stand_ins()) == ("m", "m", [])
    setup.apply(Plan())
    assert (shown(setup, "next"), written(setup, "next"), stand_ins()) == ("", "", [])


def test_a_place_that_a_later_plan_takes_back_is_held_no_more(setup: Setup) -> None:
    setup.server.put(r.PODS, pod("v", node="n", phase="Running", gpus=2))
    until(lambda: setup.cache.stores[r.PODS].get(("ns", "v")))
    setup.apply(Plan(decisions=(evict("v", "n"), nominate("v"))))
    assert shown(setup, "v (moved)") == ""
    (result,) = setup.apply(Plan(decisions=(evict("v (moved)", "n"),)))
    assert result.outcome == "gone"
    assert not setup.live.snapshot()["rawObjects"]["bindRequests"]
