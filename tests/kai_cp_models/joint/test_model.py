"""The size of a joint model is counted while it is built, and a model that is too large is not built. Gangs
that nothing tells apart are counted together."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from time import monotonic

import numpy as np
import pytest

from kai_cp_models.budget import Budget
from kai_cp_models.joint import admission
from kai_cp_models.joint import model as joint_model
from kai_cp_models.joint.admission import Admission
from kai_cp_models.joint.cells import NodeCells
from kai_cp_models.joint.model import JointModel, ModelTooLarge
from kai_cp_models.joint.problem import Answer
from kai_cp_models.joint.search import solve
from kai_cp_models.ledger import Ledger
from kai_cp_models.limits import LIMITS
from kai_cp_models.placement import disaggregate
from kai_cp_models.pods import PodKey
from kai_cp_models.refusal import Refusal
from kai_cp_models.settings import Settings
from kai_cp_models.snapshot import Snapshot
from kai_cp_models.solver import cp_model
from tests.kai_cp_models.joint.build import FABRIC, RACK, NodeModel, asks_of, problem
from tests.support.worlds import cluster, fraction, group, node, pod, spec


def two_kinds() -> Snapshot:
    """Two kinds of nodes and two kinds of pods, of which each fits on each: four counts."""
    nodes = [node("n1", 8, labels={"pool": "a"}), node("n2", 8, labels={"pool": "b"})]
    return cluster([pod("a-0", spec=spec(1)), pod("b-0", spec=spec(2))], nodes=nodes)


@pytest.mark.parametrize(("kind", "counts"), [(NodeModel, 4), (JointModel, 2)])
def test_a_model_beyond_the_limit_is_refused(
    kind: type[JointModel], counts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The nodes are one cell, because no pod selects a pool."""
    ledger, asks, _ = problem(two_kinds())
    monkeypatch.setattr(joint_model, "LIMITS", replace(LIMITS, model_counts=counts))
    made = kind(ledger, asks).cp.proto.variables
    assert sum(one.name.startswith("x[") for one in made) == counts
    monkeypatch.setattr(joint_model, "LIMITS", replace(LIMITS, model_counts=counts - 1))
    with pytest.raises(ModelTooLarge):
        kind(ledger, asks)


@pytest.mark.parametrize(("shared", "counts"), [(0, 12), (2, 18)])
def test_counts_of_devices_are_counted(shared: int, counts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three kinds of shares, one of which needs two devices, so no pool: each has a count for the node and
    one for each of its three GPUs, and for each device that is shared already, which counts beside those."""
    held = [pod(f"r-{i}", "n1", spec=fraction(30), gpu_groups=[f"g{i}"]) for i in range(shared)]
    kinds = [fraction(20), fraction(30), fraction(40, devices=2)]
    waiting = [pod(f"{name}-0", spec=kind) for name, kind in zip("abc", kinds, strict=True)]
    ledger, asks, _ = problem(cluster([*held, *waiting], nodes=[node("n1", 3)]))
    monkeypatch.setattr(joint_model, "LIMITS", replace(LIMITS, model_counts=counts))
    made = JointModel(ledger, asks).cp.proto.variables
    assert sum(one.name.startswith(("x[", "w[")) for one in made) == counts
    monkeypatch.setattr(joint_model, "LIMITS", replace(LIMITS, model_counts=counts - 1))
    with pytest.raises(ModelTooLarge):
        JointModel(ledger, asks)


@pytest.mark.parametrize("kind", [NodeModel, JointModel])
def test_a_model_that_is_too_large_has_no_counts_yet(
    kind: type[JointModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Making them takes longer than counting them."""
    made: list[str] = []
    plain = cp_model.CpModel.new_int_var

    def noted(model: cp_model.CpModel, least: int, most: int, name: str) -> cp_model.IntVar:
        made.append(name)
        return plain(model, least, most, name)

    monkeypatch.setattr(cp_model.CpModel, "new_int_var", noted)
    ledger, asks, _ = problem(two_kinds())
    kind(ledger, asks)
    assert any(name.startswith("x[") for name in made)
    made.clear()
    monkeypatch.setattr(joint_model, "LIMITS", replace(LIMITS, model_counts=1))
    with pytest.raises(ModelTooLarge):
        kind(ledger, asks)
    assert made == []


def test_allocate_tries_no_further_model_after_one_that_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = 0

    def too_large(*_: object, **__: object) -> JointModel:
        nonlocal tried
        tried += 1
        raise ModelTooLarge

    monkeypatch.setattr(admission, "JointModel", too_large)
    snapshot = two_kinds()
    ledger, asks, _ = problem(snapshot)
    settings = Settings().solver
    found = Admission(ledger, snapshot.pods, Budget.of(settings, snapshot, monotonic() + 60))
    found.admitted(asks[0])
    for _ in range(2):
        outcome = found.decide(ledger, asks[1], Refusal("NodeFragmented", "no place"))
        assert isinstance(outcome, Refusal)
        assert outcome.proof is None
    assert tried == 1


def test_few_groups_with_no_larger_pods_move_for_one_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Single GPUs are on both nodes with four of them; the pods of eight stay where they are."""
    monkeypatch.setattr(admission, "disaggregate", None)
    nodes = [node("n0", 4), node("n1", 4), node("n2", 8), node("n3", 8)]
    waiting = {
        "large": spec(8),
        "huge": spec(8),
        "a": spec(1),
        "b": spec(1),
        "half": spec(4),
        "more": spec(4),
    }
    snapshot = cluster([pod(f"{name}-0", spec=one) for name, one in waiting.items()], nodes=nodes)
    base = Ledger.of(snapshot)
    large, huge, a, b, half, more = asks_of(base, *waiting)
    settings = Settings().solver
    found = Admission(base, snapshot.pods, Budget.of(settings, snapshot, monotonic() + 60))
    made = base.copy()
    for ask, where in ((large, 2), (huge, 3), (a, 0), (b, 1)):
        made.place(ask.pods[0], where, pipelined=False)
        found.admitted(ask)
    more_placed = found.decide(made, half, Refusal("NodeFragmented", "no place"))
    assert isinstance(more_placed, Ledger)
    places = {name: more_placed.held[PodKey("ns", f"{name}-0")].node for name in waiting if name != "more"}
    assert (places["large"], places["huge"]) == (2, 3)
    assert places["a"] == places["b"] != places["half"]
    refused = found.decide(more_placed, more, Refusal("NodeFragmented", "no place"))
    assert isinstance(refused, Refusal)
    assert refused.proof


def gangs_for_racks(*nodes_of_racks: int, gangs: int) -> Snapshot:
    """Racks with so many nodes of 8 GPUs, and gangs of two pods of 8 GPUs that each need one rack."""
    nodes = [
        node(f"n{rack}-{i}", 8, labels={"zone": "z", "rack": f"r{rack}"})
        for rack, count in enumerate(nodes_of_racks)
        for i in range(count)
    ]
    pods = [pod(f"w{g}-{i}", spec=spec(8)) for g in range(gangs) for i in range(2)]
    groups = [group(f"w{g}", 2, constraint=RACK) for g in range(gangs)]
    return cluster(pods, groups, nodes, topologies=FABRIC)


@pytest.mark.parametrize("kind", [NodeModel, JointModel])
def test_racks_too_small_for_a_gang_have_no_variables(kind: type[JointModel]) -> None:
    ledger, asks, _ = problem(gangs_for_racks(3, 1, 2, 1, gangs=1))
    names = [one.name for one in kind(ledger, asks).cp.proto.variables]
    assert sum(name.startswith("chosen[") for name in names) == 2
    assert sum(name.startswith("x[") for name in names) == (5 if kind is NodeModel else 2)


@pytest.mark.parametrize("kind", [NodeModel, JointModel])
@pytest.mark.parametrize(("racks", "gangs", "fits"), [((3, 4, 2), 4, True), ((3, 3, 3), 4, False)])
def test_equal_gangs_are_counted_together_and_each_is_in_one_rack(
    kind: type[JointModel], racks: tuple[int, ...], gangs: int, fits: bool
) -> None:
    """Three racks of three nodes have room for four gangs in sum, but only for three in one rack each."""
    snapshot = gangs_for_racks(*racks, gangs=gangs)
    ledger, asks, _ = problem(snapshot)
    model = kind(ledger, asks)
    assert sum(one.name.startswith("chosen[") for one in model.cp.proto.variables) == len(racks)
    for literal in model.admitted:
        model.cp.add(literal == 1)
    outcome, solver = solve(model.cp, Settings().solver, 1.0)
    assert outcome.status == ("solved" if fits else "infeasible")
    if not fits:
        return
    placed = disaggregate(ledger, model.answer(solver), pipeline_only=False)
    assert placed is not None
    for ask in asks:
        used = {snapshot.nodes[placed.held[one.key].node].labels["rack"] for one in ask.pods}
        assert len(used) == 1, ask.group.key


@pytest.mark.parametrize(("device", "fits"), [("x", True), (0, False)])
def test_an_answer_that_names_a_device_too_many_has_no_places(device: str | int, *, fits: bool) -> None:
    """One of two GPUs is whole and taken; on the other, x, half is left."""
    taken = [pod("a-0", "n1"), pod("b-0", "n1", spec=fraction(500), gpu_groups=("x",))]
    snapshot = cluster([*taken, pod("c-0", spec=fraction(500))], nodes=[node("n1", gpus=2)])
    ledger, asks, _ = problem(snapshot)
    answer = Answer({PodKey("ns", "c-0"): (0, (device,))}, asks)
    assert (disaggregate(ledger, answer, pipeline_only=False) is not None) is fits


def test_of_equal_gangs_only_those_that_are_admitted_are_counted() -> None:
    """One of three fits in the rack."""
    ledger, asks, _ = problem(gangs_for_racks(3, gangs=3))
    model = JointModel(ledger, asks)
    model.cp.maximize(sum(model.admitted))
    _, solver = solve(model.cp, Settings().solver, 1.0)
    answer = model.answer(solver)
    assert len(answer.asks) == 1
    assert len(answer.places) == 2


@pytest.mark.parametrize("seed", range(20))
def test_pods_of_a_cell_fill_the_fullest_node_first(seed: int) -> None:
    rng = Random(seed)
    nodes = np.array(sorted(rng.sample(range(12), 8)))
    free = np.array([rng.randint(0, 8) for _ in range(12)])
    cells, size = NodeCells({int(nodes[0]): nodes}, np.ones(12, dtype=bool), False), rng.choice((1, 2, 4))
    left, wanted = free.copy(), list[int]()
    for _ in range(rng.randint(1, int((free[nodes] // size).sum()) or 1)):
        able = [node for node in nodes.tolist() if left[node] >= size]
        wanted.append(min(able, key=lambda node: int(left[node]), default=-1))
        left[wanted[-1]] -= size
    if -1 not in wanted:
        assert cells.fill(int(nodes[0]), free, size, len(wanted)) == wanted
        assert free.tolist() == left.tolist()
