"""Places of moved pods: held by a stand-in, then by a pod of the group or controller, and never for long."""

from __future__ import annotations

from typing import Any

import pytest

from kai_cp.json_types import Object
from kai_cp.kube.api.moved import LATE_SECONDS, MovedPods
from kai_cp.reader import parse
from kai_cp_models.plan import Decision, Plan
from kai_cp_models.pods import GroupKey, PodKey, PodStatus
from kai_cp_models.snapshot import Snapshot
from tests.kai_cp.kube.samples import bind, evict, group, node, pod, queue, snapshot

STAND_IN = "v (moved)"
GRACE = 30.0


def nominate(name: str, to: str, **extra: Any) -> Decision:
    return Decision("Nominate", PodKey("ns", name), GroupKey("ns", "g"), to, "consolidation", **extra)


def move(name: str = "v", to: str = "b", **extra: Any) -> Plan:
    return Plan(decisions=(evict(name, "a", action="consolidation"), nominate(name, to, **extra)))


def leaves(one: Object) -> Object:
    """The pod, told to end within its grace period from second 0 on."""
    return {**one, "metadata": {**one["metadata"], "deletionTimestamp": "1970-01-01T00:00:30Z"}}


def again() -> Object:
    """The pod that comes in place of v, as from a StatefulSet."""
    made = pod("v")
    return {**made, "metadata": {**made["metadata"], "uid": "uid-again"}}


class World:
    """Pod v of group g runs on node a; a plan of second 0 moves it to node b."""

    def __init__(self, plan: Plan | None = None, **extra: Any) -> None:
        self.v = pod("v", node="a", phase="Running", **extra)
        self.v["spec"]["terminationGracePeriodSeconds"] = int(GRACE)
        self.moved = MovedPods({PodKey("ns", "v"): self.v}.get)
        self.moved.follow(plan or move(), 0.0)

    def shown(self, *pods: Object, at: float = 1.0, **lists: Any) -> Snapshot:
        given = {
            "pods": list(pods), "nodes": [node("a"), node("b"), node("c")],
            "podGroups": [group()], "queues": [queue()], "bindRequests": [],
        }  # fmt: skip
        return parse(self.moved.shown(snapshot(**{**given, **lists}), at), now=at)


def held(read: Snapshot) -> dict[str, str | None]:
    """Nodes of the stand-ins."""
    found = {one.key.name: one.node for one in read.pods if one.key.name.endswith("(moved)")}
    assert all(one.status is PodStatus.BINDING for one in read.pods if one.key.name in found)
    return found


def named(read: Snapshot) -> dict[str, str]:
    return {one.key.name: one.nominated_node for one in read.pods if one.nominated_node}


def test_a_stand_in_holds_the_place_while_the_pod_leaves() -> None:
    """It belongs to the group, and asks for what the pod asks for, on the new node."""
    world = World()
    read = world.shown(leaves(world.v))
    by_name = {one.key.name: one for one in read.pods}
    assert (by_name["v"].status, by_name["v"].node) == (PodStatus.RELEASING, "a")
    assert held(read) == {STAND_IN: "b"}
    assert (by_name[STAND_IN].group, by_name[STAND_IN].spec) == (by_name["v"].group, by_name["v"].spec)


def test_a_share_is_held_on_its_new_device() -> None:
    notes, labels = {"gpu-fraction": "0.5"}, {"runai-gpu-group": "old"}
    world = World(move(gpu_groups=("new",)), annotations=notes, labels=labels)
    (one,) = (one for one in world.shown(leaves(world.v)).pods if one.key.name == STAND_IN)
    assert (one.gpu_groups, one.spec.gpu.milli_portion) == (("new",), 500)


OTHER = {"kind": "ReplicaSet", "name": "r", "uid": "r", "controller": True}


@pytest.mark.parametrize(
    ("more", "takes"),
    [
        ({}, True),
        # It asks for something else, is of another subgroup or group, or may not start yet.
        ({"gpus": 2}, False),
        ({"annotations": {"gpu-fraction": "0.5"}}, False),
        ({"labels": {"kai.scheduler/subgroup-name": "s"}}, False),
        ({"group": "h"}, False),
        ({"gates": True}, False),
        ({"nominated": "c"}, False),
        ({"bound": True}, False),
        # Each pod of a Deployment is a group of its own; before there is this group, nothing decides.
        ({"group": "h", "owner": "r"}, True),
        ({"group": "h", "owner": "s"}, False),
        ({"group": "none", "owner": "r"}, False),
    ],
)
def test_a_pod_that_waits_gets_the_place(more: dict[str, Any], takes: bool) -> None:
    world = World()
    world.v["metadata"]["ownerReferences"] = [OTHER]
    world.moved.follow(move(), 0.0)
    fresh = pod("w", **more)
    if "owner" in more:
        fresh["metadata"]["ownerReferences"] = [{**OTHER, "uid": more["owner"]}]
    fresh["spec"] |= {"schedulingGates": [{"name": "x"}]} if "gates" in more else {}
    fresh["status"] |= {"nominatedNodeName": more["nominated"]} if "nominated" in more else {}
    request = {"metadata": {"name": "w", "namespace": "ns"}, "spec": {"podName": "w", "selectedNode": "c"}}
    lists: dict[str, Any] = {"podGroups": [group(), group("h")]}
    lists["bindRequests"] = [request] if "bound" in more else []
    read = world.shown(leaves(world.v), fresh, **lists)
    assert (held(read), named(read).get("w") == "b") == (({}, True) if takes else ({STAND_IN: "b"}, False))
    assert world.moved.node_of(PodKey("ns", "w")) == ("b" if takes else "")


def test_of_two_places_each_is_held_until_it_is_taken() -> None:
    world = World()
    second = pod("u", node="a", phase="Running")
    pods = {PodKey("ns", "v"): world.v, PodKey("ns", "u"): second}
    world.moved = MovedPods(pods.get)
    world.moved.follow(Plan(decisions=(*move().decisions, *move("u", "c").decisions)), 0.0)
    assert held(world.shown(leaves(world.v), leaves(second))) == {STAND_IN: "b", "u (moved)": "c"}
    read = world.shown(leaves(second), again())
    assert (held(read), named(read)) == ({"u (moved)": "c"}, {"v": "b"})
    world.moved.follow(Plan(decisions=(bind("v", "b"),)), 2.0)
    read = world.shown(leaves(second), pod("v", node="b", phase="Running"), at=3.0)
    assert (held(read), named(read)) == ({"u (moved)": "c"}, {})


def test_a_pod_that_is_nominated_again_names_its_node_itself_from_then_on() -> None:
    world = World()
    assert named(world.shown(again())) == {"v": "b"}
    world.moved.follow(Plan(decisions=(nominate("v", "b"),)), 2.0)
    assert (held(world.shown()), named(world.shown(again()))) == ({}, {})


def test_no_place_is_held_for_long() -> None:
    """Until the grace period and some seconds are over, and once the pod is gone only for these seconds."""
    world, end = World(), GRACE + LATE_SECONDS
    assert world.moved.next_end(0.0) == end
    assert held(world.shown(leaves(world.v), at=end - 1)) == {STAND_IN: "b"}
    assert held(world.shown(leaves(world.v), at=end)) == {}
    early = World()
    for at, kept in ((5.0, True), (5.0 + LATE_SECONDS - 1, True), (5.0 + LATE_SECONDS, False)):
        assert (held(early.shown(at=at)) == {STAND_IN: "b"}) == kept
    assert early.moved.next_end(6.0) == 5.0 + LATE_SECONDS


@pytest.mark.parametrize(
    ("leaving", "lists"),
    [
        # The eviction was refused; the group or the node is gone.
        (False, {}),
        (True, {"podGroups": []}),
        (True, {"nodes": [node("a"), node("c")]}),
    ],
)
def test_nothing_is_held_for_nothing(leaving: bool, lists: dict[str, Any]) -> None:
    world = World()
    read = world.shown(leaves(world.v) if leaving else world.v, **lists)
    assert (held(read), named(read)) == ({}, {})
    assert held(world.shown(leaves(world.v))) == {STAND_IN: "b"}


def test_a_later_plan_takes_the_place_back_or_moves_it_on() -> None:
    """By the rights of its actions, as if the pod ran there; that makes the time no longer."""
    world = World()
    world.moved.follow(move(STAND_IN, "c"), 20.0)
    assert held(world.shown(leaves(world.v), at=21.0)) == {STAND_IN: "c"}
    assert world.moved.next_end(21.0) == GRACE + LATE_SECONDS
    world.moved.follow(Plan(decisions=(evict(STAND_IN, "c"),)), 22.0)
    assert (held(world.shown(leaves(world.v))), named(world.shown(again()))) == ({}, {})
