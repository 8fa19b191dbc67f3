"""Gangs whose pods share one claim of a device: they go where one allocation can be used."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from kai_cp_models.plan import Plan
from tests.support.devices import allocation, claim, claims, device, device_class, exact, slice_of
from tests.support.objects import Object
from tests.support.plans import solved
from tests.support.tiny import node, pod, world


def plan_of(sizes: Sequence[int], shared: Object, pods: Sequence[Object]) -> Plan:
    """The plan for a gang ``w`` of single GPUs that shares one NIC, on nodes with so many GPUs and one NIC
    each."""
    nodes = [node(f"n{i}", gpus=gpus) for i, gpus in enumerate(sizes)]
    found = world(
        nodes,
        pods,
        actions="allocate, consolidation, reclaim, preempt",
        groups={"w": {"minMember": len(pods)}},
        deviceClasses=[device_class()],
        resourceSlices=[slice_of(one["metadata"]["name"], device("nic")) for one in nodes],
        resourceClaims=[shared],
    )
    return solved(found)


def member(i: int, on: str = "") -> Object:
    return pod(f"w-{i}", on, gpus=1, group="w", priority="build", resourceClaims=claims("c"))


@given(st.lists(st.integers(1, 4), min_size=1, max_size=5), st.integers(2, 4))
def test_a_gang_that_shares_a_claim_starts_where_one_node_takes_all(sizes: list[int], pods: int) -> None:
    """It starts if and only if some node has a GPU for each pod, whatever its name. A refusal is proved."""
    plan = plan_of(sizes, claim("c", exact()), [member(i) for i in range(pods)])
    used = {d.node for d in plan.decisions}
    assert (len(plan.decisions), len(used)) == ((pods, 1) if max(sizes) >= pods else (0, 0))
    assert all(refused.proved for refused in plan.unscheduled)


def test_a_gang_that_needs_more_than_the_node_of_its_claim_has_is_refused_for_certain() -> None:
    """The claim is allocated on n0 for a running pod. Two more pods need it; n0 takes one of them."""
    held = claim("c", exact(), users=("w-0",), held=allocation("n0", "nic"))
    plan = plan_of([2, 4], held, [member(0, "n0"), member(1), member(2)])
    assert plan.decisions == ()
    assert [(refused.reason, refused.proved) for refused in plan.unscheduled] == [("NodeFragmented", True)]
