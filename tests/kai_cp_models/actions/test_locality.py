"""Places that a model chose are exchanged for closer ones, and for no other reason."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from kai_cp_models.actions import simulation
from kai_cp_models.actions.asking import line_of
from kai_cp_models.actions.locality import draw_together
from kai_cp_models.actions.simulation import Simulated, simulate
from kai_cp_models.joint.problem import Answer
from kai_cp_models.ledger import Ledger
from kai_cp_models.pods import Pod, PodKey, PodStatus
from kai_cp_models.snapshot import Node, Snapshot, Topology
from tests.kai_cp_models.joint.build import asks_of
from tests.kai_cp_models.rules.stateful.build import term
from tests.support.worlds import (
    cluster,
    fraction,
    gpu_bound,
    gpu_memory,
    group,
    node,
    pod,
    pods,
    queue,
    spec,
)

DC = (Topology("dc", ("rack",)),)


def racked(name: str, rack: str, gpus: int = 8, **labels: str) -> Node:
    return node(name, gpus, labels={"rack": rack, **labels})


def placed(base: Ledger, where: Mapping[str, str]) -> Ledger:
    """``base`` with pods on nodes as a model may place them."""
    made = base.copy()
    for name, target in where.items():
        made.place(pod_of(base, name), base.snapshot.node_index[target], pipelined=False)
    return made


def pod_of(ledger: Ledger, name: str) -> Pod:
    return ledger.snapshot.pod_by_key[PodKey("ns", name)]


def node_of(ledger: Ledger, name: str) -> str:
    place = ledger.place_of(pod_of(ledger, name))
    assert place is not None
    return ledger.snapshot.nodes[place[0]].name


FAR = {"g-0": "n0", "g-1": "n2"}
"""The gang g lies in two racks."""


def two_racks(*others: Node, waiting: tuple[Pod, ...] = ()) -> Snapshot:
    """Rack p has n0 and n1, rack q has n2 and n3; a gang of two whole nodes waits."""
    nodes = [racked(f"n{i}", "pq"[i // 2]) for i in range(4)]
    members = [*pods("g", 2, spec=spec(8)), *waiting]
    return cluster(members, [group("g", 2)], [*nodes, *others], topologies=DC)


def test_all_are_placed_anew_where_no_group_is_left_out() -> None:
    """h-0 occupies a node that the gang needs, n1, and is as well off on n3."""
    base = Ledger.of(two_racks(waiting=pods("h", 1, spec=spec(8))))
    made = placed(base, {**FAR, "h-0": "n1"})
    found = draw_together(asks_of(base, "g", "h"), made, base.copy)
    assert {node_of(found, name) for name in ("g-0", "g-1")} == {"n0", "n1"}
    assert node_of(found, "h-0") in ("n2", "n3")
    assert found.held.keys() == made.held.keys()


def test_all_stay_where_placing_anew_leaves_a_group_out() -> None:
    """Six pods fill b0 and b1 only as 6 + 3 + 3 and 4 + 4 + 4, which placing the largest first
    does not find.
    """
    sizes = (6, 4, 4, 4, 3, 3)
    here = {"pool": "b"}
    small = [pod(f"h{i}-0", spec=spec(size, node_selector=(("pool", "b"),))) for i, size in enumerate(sizes)]
    base = Ledger.of(
        two_racks(racked("b0", "z", 12, **here), racked("b1", "z", 12, **here), waiting=tuple(small))
    )
    where = {f"h{i}-0": "b1" if size == 4 else "b0" for i, size in enumerate(sizes)}
    made = placed(base, {**FAR, **where})
    found = draw_together(asks_of(base, "g", *(f"h{i}" for i in range(6))), made, base.copy)
    assert found is made


@pytest.mark.parametrize(("limit", "anew"), [(17.0, False), (17.5, True)])
def test_all_stay_where_a_queue_would_exceed_its_limit(limit: float, anew: bool) -> None:
    """A share of 40,000 MiB is half of a GPU of n1 and all of one of n2 or n3, where it goes when the gang
    takes n0 and n1.
    """
    nodes = [
        racked("n0", "p"),
        racked("n1", "p", gpu_memory_mib=80_000),
        racked("n2", "q"),
        racked("n3", "q"),
    ]
    members = [
        *pods("g", 2, spec=spec(8)),
        pod("m-0", spec=gpu_memory(40_000)),
        pod("o-0", spec=fraction(500)),
    ]
    bounded = queue("q", limit=gpu_bound(limit))
    base = Ledger.of(cluster(members, [group("g", 2)], nodes, [bounded], topologies=DC))
    made = placed(base, {"g-0": "n0", "g-1": "n2", "m-0": "n1", "o-0": "n3"})
    found = draw_together(asks_of(base, "g", "m", "o"), made, base.copy)
    assert (found is not made) == anew
    if anew:
        assert {node_of(found, name) for name in ("g-0", "g-1")} == {"n0", "n1"}


def test_no_bound_pod_is_nominated_for_it() -> None:
    """Only n1 and n4 are possible for h-0, and n4 is not free yet, so the gang stays apart."""
    wants = spec(8, node_selector=(("pool", "h"),))
    nodes = [racked("n0", "p"), racked("n1", "p", pool="h"), racked("n2", "q"), racked("n4", "r", pool="h")]
    leaving = pod("x-0", "n4", spec=spec(8), status=PodStatus.RELEASING)
    members = [leaving, pod("h-0", spec=wants), *pods("g", 2, spec=spec(8))]
    base = Ledger.of(cluster(members, [group("g", 2)], nodes, topologies=DC))
    made = placed(base, {**FAR, "h-0": "n1"})
    found = draw_together(asks_of(base, "g", "h"), made, base.copy)
    assert found.status(pod_of(base, "h-0")) is PodStatus.ALLOCATED
    assert {name: node_of(found, name) for name in FAR} == FAR


def test_groups_placed_by_an_eviction_model_are_drawn_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    base = Ledger.of(two_racks())
    monkeypatch.setattr(simulation, "_replay", lambda *_: Simulated(None))
    places = {PodKey("ns", name): (base.snapshot.node_index[where], ()) for name, where in FAR.items()}
    simulated = simulate(base, (), Answer(places, asks_of(base, "g")), line_of(base, {}))
    assert simulated.ledger is not None
    assert {node_of(simulated.ledger, name) for name in FAR} == {"n0", "n1"}
    assert simulated.ledger.status(pod_of(base, "g-0")) is PodStatus.PIPELINED


def test_gangs_that_need_not_be_close_stay() -> None:
    base = Ledger.of(two_racks(), close_gangs=False)
    made = placed(base, FAR)
    assert draw_together(asks_of(base, "g"), made, base.copy) is made


def test_a_gang_stays_where_others_rely_on_its_place() -> None:
    """r may only be on the node of a pod of g, and is on n2 beside g-1: g does not leave n2."""
    nodes = [racked(f"n{i}", "pq"[i // 2], host=f"n{i}") for i in range(4)]
    near = spec(0, pod_affinity=(term("host", app="g"),))
    members = [pod(f"g-{i}", spec=spec(8), labels={"app": "g"}) for i in range(2)]
    base = Ledger.of(cluster([*members, pod("r-0", spec=near)], [group("g", 2)], nodes, topologies=DC))
    for others, stays in (({"r-0": "n2"}, True), ({}, False)):
        made = base.copy()
        for name, target in {**FAR, **others}.items():
            made.place(pod_of(base, name), base.snapshot.node_index[target], pipelined=True)
        found = draw_together(asks_of(base, "g"), made, base.copy, pipeline_only=True)
        assert (found is made) == stays
