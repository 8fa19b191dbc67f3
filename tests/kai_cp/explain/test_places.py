"""What pods hold beside their nodes is free when a change ends them, and held when a plan is carried out."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kai_cp.explain.cycle import Cycles, carried_out
from kai_cp.explain.draft import Draft
from kai_cp.explain.operations import applied
from kai_cp.keys import LAST_START
from kai_cp_models.plan import Plan
from tests.properties.reasking import SETTINGS
from tests.support import objects as raw
from tests.support.devices import allocation, claim, claims, device, device_class, exact, slice_of
from tests.support.objects import Object
from tests.support.tiny import cluster, node, pod

NOW = raw.NOW.timestamp()
ACTIONS = "allocate, consolidation, reclaim, preempt"
TEMPLATE = {
    "resourceClaims": [{"name": "c", "resourceClaimTemplateName": "t"}],
    "status": {"resourceClaimStatuses": [{"name": "c", "resourceClaimName": "r0-c"}]},
}


def devices(*nodes: str) -> dict[str, Sequence[Object]]:
    """One device on each of the nodes."""
    return {
        "deviceClasses": [device_class()],
        "resourceSlices": [slice_of(one, device("d0")) for one in nodes],
    }


def held(*, own: bool) -> Object:
    """The claim of r0, with the device of n0; its own, or one that a user made."""
    owner = {"kind": "Pod", "name": "r0", "uid": "default-r0", "controller": True}
    meta = {"ownerReferences": [owner]} if own else {}
    return claim("r0-c", exact(), users=("r0",), held=allocation("n0", "d0"), **meta)


def after(world: Object, *ops: Object) -> Plan:
    return Cycles(SETTINGS).decide(applied(world, ops, NOW)).situation.plan


def bound(plan: Plan) -> dict[str, str]:
    return {one.pod.name: one.node for one in plan.decisions if one.kind == "Bind"}


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize(
    "op", [{"op": "stop", "pods": ["default/r0"]}, {"op": "remove", "podGroups": ["default/r0"]}]
)
def test_a_device_of_a_pod_that_ends_is_free(op: Object, own: bool) -> None:
    holder = pod("r0", "n0", **(TEMPLATE if own else {"resourceClaims": claims("r0-c")}))
    waiting = pod("x", resourceClaims=claims("x-c"))
    made = [held(own=own), claim("x-c", exact())]
    world = cluster([node("n0")], [holder, waiting], resourceClaims=made, **devices("n0"))
    assert bound(after(world)) == {}
    assert bound(after(world, op)) == {"x": "n0"}
    later = applied(world, [op], NOW, at_once=True)
    assert bound(Cycles(SETTINGS).decide(later).situation.plan) == {}, "Kubernetes has not freed it yet"


def test_a_drained_pod_takes_a_device_of_another_node() -> None:
    world = cluster(
        [node("n0"), node("n1")],
        [pod("r0", "n0", **TEMPLATE)],
        resourceClaims=[held(own=True)],
        **devices("n0", "n1"),
    )
    assert bound(after(world, {"op": "drain", "nodes": ["n0"]})) == {"r0": "n1"}


@pytest.mark.parametrize(("state", "shares"), [("Binding", []), ("Running", ["a", "b"])])
def test_a_drain_takes_promised_places_back(state: str, shares: list[str]) -> None:
    notes = {"gpu-fraction": "0.5", "gpu-fraction-num-devices": "2"} if shares else {}
    one = pod("r0", gpus=0 if shares else 1, notes=notes)
    request = raw.settle(one, "n0", shares, state)
    assert request is not None
    world = cluster([node("n0", gpus=2), node("n1", gpus=2)], [one], bindRequests=[request])
    assert bound(after(world, {"op": "drain", "nodes": ["n0"]})) == {"r0": "n1"}


def test_a_drain_brings_no_pod_back_that_is_being_deleted() -> None:
    world = cluster(
        [node("n0", gpus=2), node("n1", gpus=2)],
        [pod("r0", "n0", gpus=1), pod("leaving", "n0", gpus=1, state="Releasing")],
    )
    assert bound(after(world, {"op": "drain", "nodes": ["n0"]})) == {"r0": "n1"}


def test_pods_that_are_being_deleted_are_gone_later() -> None:
    """One GPU is free and one becomes so: x, which needs two, is nominated, and bound half an hour later."""
    world = cluster([node("n0", gpus=2)], [pod("leaving", "n0", gpus=1, state="Releasing"), pod("x", gpus=2)])
    assert bound(after(world)) == {}
    assert bound(after(world, {"op": "at", "now": raw.ago(-1800)})) == {"x": "n0"}


def settled(world: Object, cycles: int = 3) -> list[dict[str, str]]:
    """What each of several cycles binds, each carried out before the next."""
    draft, every, found = Draft(world, NOW), Cycles(SETTINGS), []
    for _ in range(cycles):
        decided = every.decide(draft)
        found.append(bound(decided.situation.plan))
        draft = carried_out(decided, 60.0)
    return found


def test_a_device_is_given_out_once() -> None:
    made = [claim(f"{name}-c", exact()) for name in "xy"]
    pods = [pod(name, resourceClaims=claims(f"{name}-c")) for name in "xy"]
    world = cluster([node("n0")], pods, resourceClaims=made, **devices("n0"))
    assert settled(world) == [{"x": "n0"}, {}, {}]


def test_each_of_several_shared_gpus_is_held() -> None:
    notes = {"gpu-fraction": "0.5", "gpu-fraction-num-devices": "2"}
    world = cluster([node("n0", gpus=2)], [pod("x", notes=notes), pod("y", gpus=1)])
    assert settled(world) == [{"x": "n0"}, {}, {}]


@pytest.mark.parametrize(("state", "starts"), [("Running", False), ("Binding", False), ("Releasing", True)])
def test_a_group_that_grows_does_not_start_again(state: str, starts: bool) -> None:
    """It does where its last pod is leaving, as in a cluster."""
    members = [pod(name, group="x", gpus=1) for name in ("x-0", "x-1")]
    request = raw.settle(members[0], "n0", [], state)
    world = cluster([node("n0", gpus=2)], members, bindRequests=[request] if request else [])
    before = world["rawObjects"]["podGroups"][0]["metadata"].get("annotations", {}).get(LAST_START)
    decided = Cycles(SETTINGS).decide(Draft(world, NOW))
    assert bound(decided.situation.plan) == {"x-1": "n0"}
    (after,) = carried_out(decided, 60.0).objects("podGroups")
    assert (after["metadata"].get("annotations", {}).get(LAST_START) == before) is not starts


def test_an_evicted_pod_gives_its_device_up() -> None:
    holder = pod("r0", "n0", **TEMPLATE)
    waiting = pod("x", priority="build", resourceClaims=claims("x-c"))
    world = cluster(
        [node("n0")],
        [holder, waiting],
        resourceClaims=[held(own=True), claim("x-c", exact())],
        actions=ACTIONS,
        **devices("n0"),
    )
    assert settled(world) == [{}, {"x": "n0"}, {}]
