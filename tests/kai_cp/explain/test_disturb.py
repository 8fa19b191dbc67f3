"""Fixes that add nodes: one of each kind is tried, and kinds differ in devices and NUMA zones, too."""

from __future__ import annotations

import pytest

from kai_cp.explain.cycle import Cycles
from kai_cp.explain.disturb import move
from kai_cp.explain.document import Explainer
from kai_cp.explain.draft import Draft
from kai_cp.explain.trials import Trials
from kai_cp_models.pods import GroupKey
from kai_cp_models.queries.why import Blocking
from kai_cp_models.settings import Settings
from tests.kai_cp.explain.clusters import NOW, cluster
from tests.support import devices as dra
from tests.support.objects import Object
from tests.support.tiny import node, pod

X = GroupKey("default", "x")
FIRM: Object = {"preemptibility": "non-preemptible"}


def added(raw: Object) -> list[Object]:
    """The nodes that would admit x."""
    entry = Explainer(Draft(raw, NOW), Settings(), budget=60.0, kinds=("add-nodes",)).explain(X)
    return [op for fix in entry["fixes"] for op in fix["ops"]]


@pytest.mark.parametrize("kinds", ["ab", "ba"])
def test_a_node_with_the_device_that_a_claim_asks_for_is_added(kinds: str) -> None:
    """Each node has one device; r holds that of kind b, and x asks for one of kind b."""
    place = f"n{kinds.index('b')}"
    wanted = dra.exact(selectors=dra.kind_is("b"))
    held = dra.claim("cr", wanted, users=("r",), held=dra.allocation(place, "d"))
    raw = cluster(
        [node("n0"), node("n1")],
        [pod("r", place, resourceClaims=dra.claims("cr")), pod("x", resourceClaims=dra.claims("cx"))],
        groups={"r": FIRM},
        resourceSlices=[dra.slice_of(f"n{i}", dra.device("d", kind=kind)) for i, kind in enumerate(kinds)],
        deviceClasses=[dra.device_class()],
        resourceClaims=[held, dra.claim("cx", wanted)],
    )
    assert added(raw) == [{"op": "add-nodes", "like": place, "count": 1}]


@pytest.mark.parametrize("sizes", [((4, 4), (8,)), ((8,), (4, 4))])
def test_a_node_with_zones_that_are_large_enough_is_added(sizes: tuple[tuple[int, ...], ...]) -> None:
    """Both nodes have eight CPUs; r holds the only zone that has the six that x needs in one."""
    place = f"n{sizes.index((8,))}"
    raw = cluster(
        [node("n0"), node("n1")],
        [pod("r", place, **dra.aligned(6)), pod("x", **dra.aligned(6))],
        groups={"r": FIRM},
        plugins=["numa"],
        nodeResourceTopologies=[dra.zones(f"n{i}", *cpus) for i, cpus in enumerate(sizes)],
    )
    assert added(raw) == [{"op": "add-nodes", "like": place, "count": 1}]


def test_a_pod_may_move_to_a_node_that_is_added_first() -> None:
    """r holds n0, which alone has the label that x needs; n1 is full, and a copy of it takes r."""
    cycles = Cycles(Settings())
    raw = cluster(
        [node("n0", gpus=2, labels={"big": "1"}), node("n1", gpus=2)],
        [pod("r", "n0", gpus=2), pod("hog", "n1", gpus=2), pod("x", gpus=2, nodeSelector={"big": "1"})],
        groups={"hog": FIRM},
    )
    trials = Trials(cycles, cycles.decide(Draft(raw, NOW)), X, Blocking())
    assert move(trials) is None
    found = move(trials.after([{"op": "add-nodes", "like": "n1", "count": 1}]))
    assert found is not None
    (went,) = found.ops[0]["moves"]
    assert went["pod"] == "default/r"
    assert went["node"] not in {"n0", "n1"}
