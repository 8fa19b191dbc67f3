"""Nodes counted together and one by one, compared: nodes can hold what the counts promise.

Small random clusters in which GPUs alone are scarce, on all nodes or on all but one. ``JointModel`` counts
the nodes together, ``NodeModel`` knows every node and device. Both must find the same free capacity and the
same least loss, and each answer must turn into places.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from kai_cp_models.joint.model import JointModel
from kai_cp_models.joint.problem import Answer, Ask
from kai_cp_models.joint.search import solve
from kai_cp_models.ledger import Ledger
from kai_cp_models.placement import disaggregate
from kai_cp_models.pods import GPU, PODS, PodSpec
from kai_cp_models.settings import SolverSettings
from kai_cp_models.snapshot import Snapshot
from tests.kai_cp_models.joint.build import FABRIC, RACK, NodeModel, problem, world
from tests.support.worlds import cluster, fraction, group, node, pod, spec

SOLVER = SolverSettings(workers=1)
COUNT = int(os.environ.get("KAI_CP_ENCODING_WORLDS", "80"))


@dataclass(frozen=True)
class Solved:
    """The least cost, None where the asks do not fit, and the answer that reaches it."""

    cost: int | None
    answer: Answer | None


def least(model: JointModel, *, moves: bool) -> Solved:
    """Place every ask with the fewest lost milli-GPUs, or the fewest moved pods."""
    for literal in model.admitted:
        model.cp.add(literal == 1)
    before: dict[object, Any] = {}
    for unit, lost in zip(model.units, model.lost, strict=True):
        if unit.group.key in before:
            model.cp.add(lost <= before[unit.group.key])
        before[unit.group.key] = lost
    cost: Any = sum(model.moved.values())
    if not moves:
        cost = sum(
            (p.spec.requests[GPU] + p.spec.gpu.shares * p.spec.gpu.milli_portion) * lost
            for unit, lost in zip(model.units, model.lost, strict=True)
            for p in unit.pods
        )
    model.cp.minimize(cost)
    outcome, solver = solve(model.cp, SOLVER, 10)
    assert outcome.proved
    if outcome.status == "infeasible":
        return Solved(None, None)
    return Solved(int(solver.value(cost)), model.answer(solver))


def both(snapshot: Snapshot, *, moves: bool) -> tuple[Solved, Solved]:
    """The answers of the two models; every answer must turn into places."""
    ledger, asks, units = problem(snapshot)
    if not moves:
        units = [replace(unit, movable=False) for unit in units]
    found = []
    for model in (JointModel, NodeModel):
        solved = least(model(ledger, asks, units, may_lose=not moves), moves=moves)
        if solved.answer is not None:
            keeps(ledger, asks, solved.answer)
        found.append(solved)
    return found[0], found[1]


def keeps(ledger: Ledger, asks: Sequence[Ask], answer: Answer) -> None:
    """The answer turns into places: all asks are there, no node is over its capacity, gangs stay in one
    rack.
    """
    made = disaggregate(ledger, answer, pipeline_only=True)
    assert made is not None, "the counts were right and the places were not"
    assert (made.free >= np.minimum(ledger.free, 0)).all()
    for ask in asks:
        assert all(p.key in made.held for p in ask.pods)
        if ask.group.root.constraint is not None:
            racks = {
                ledger.snapshot.nodes[place[0]].labels["rack"]
                for p in ask.gang.pods
                if (place := made.place_of(p)) is not None
            }
            assert len(racks) == 1
    for at, devices in made.devices.items():
        total = int(ledger.fixed.table.gpu_memory_mib[at])
        assert all(held.active_mib + held.pipelined_mib <= total for held in devices.values())


def uneven(snapshot: Snapshot) -> Snapshot:
    """The same cluster, but pod slots are scarce on its first node."""
    first, *others = snapshot.nodes
    slots = (*first.allocatable[:PODS], 5, *first.allocatable[PODS + 1 :])
    return replace(snapshot, nodes=(replace(first, allocatable=slots), *others))


KINDS = pytest.mark.parametrize("kind", [lambda snapshot: snapshot, uneven], ids=["even", "uneven"])
SEEDS = pytest.mark.parametrize("seed", range(COUNT))


@KINDS
@SEEDS
def test_both_lose_the_same(seed: int, kind: Callable[[Snapshot], Snapshot]) -> None:
    together, singly = both(kind(world(seed)), moves=False)
    assert together.cost == singly.cost


@KINDS
@SEEDS
def test_both_move_the_same(seed: int, kind: Callable[[Snapshot], Snapshot]) -> None:
    together, singly = both(kind(world(seed, loose=True)), moves=True)
    assert together.cost == singly.cost


@KINDS
@SEEDS
def test_both_lose_the_same_where_pods_may_move(seed: int, kind: Callable[[Snapshot], Snapshot]) -> None:
    ledger, asks, units = problem(kind(world(seed)))
    together = least(JointModel(ledger, asks, units), moves=False)
    singly = least(NodeModel(ledger, asks, units), moves=False)
    assert together.cost == singly.cost
    if together.answer is not None:
        keeps(ledger, asks, together.answer)


def test_some_worlds_have_cells_of_both_kinds() -> None:
    found = 0
    for seed in range(40):
        model = JointModel(*problem(uneven(world(seed))))
        cells = model.cells
        found += 0 < cells.alike.sum() < len(cells.alike)
    assert found >= 5


# --- worlds by hand, whose numbers are argued ------------------------------------------------------


def test_the_smallest_loss_that_makes_a_whole_node_free() -> None:
    """n1 holds 4 + 2, n2 holds 2 + 2: eight GPUs are free on n2 after a loss of 4, on n1 after 6."""
    held = [("a", "n1", 4), ("b", "n1", 2), ("c", "n2", 2), ("d", "n2", 2)]
    running = [pod(f"{name}-0", where, spec=spec(gpus)) for name, where, gpus in held]
    snapshot = cluster([*running, pod("w-0", spec=spec(8))], nodes=[node("n1"), node("n2")])
    assert [x.cost for x in both(snapshot, moves=False)] == [4000, 4000]


def test_a_move_instead_of_a_loss() -> None:
    """n1 has 6 free GPUs and n2 7: one pod of 2 that moves from n1 to n2 is enough; no single move from
    n2 is.
    """
    running = [pod("a-0", "n1", spec=spec(2)), pod("b-0", "n2")]
    snapshot = cluster([*running, pod("w-0", spec=spec(8))], nodes=[node("n1"), node("n2")])
    assert [x.cost for x in both(snapshot, moves=True)] == [1, 1]


def test_the_random_worlds_cover_the_cases() -> None:
    """Refusals, losses and moves all occur often enough for a comparison."""
    losses = [both(world(seed), moves=False)[1].cost for seed in range(40)]
    assert min(losses.count(None), losses.count(0), sum(bool(x) for x in losses)) >= 5
    moves = [both(world(seed, loose=True), moves=True)[1].cost for seed in range(40)]
    assert min(moves.count(0), sum(bool(x) for x in moves)) >= 5


def test_a_device_is_free_when_all_its_shares_are_gone() -> None:
    """One GPU with two shares: both must leave for a whole GPU; 300 is enough for a share of 700."""
    running = [
        pod("a-0", "n1", spec=fraction(300), gpu_groups=("x",)),
        pod("b-0", "n1", spec=fraction(600), gpu_groups=("x",)),
    ]
    one = [node(gpus=1)]
    whole = cluster([*running, pod("w-0")], nodes=one)
    assert [x.cost for x in both(whole, moves=False)] == [900, 900]
    some = cluster([*running, pod("w-0", spec=fraction(400))], nodes=one)
    assert [x.cost for x in both(some, moves=False)] == [300, 300]


def test_a_device_over_its_memory_keeps_no_other_from_use() -> None:
    """Two shares of 600 are on one GPU; the waiting share goes to the other GPU."""
    running = [pod(f"{name}-0", "n1", spec=fraction(600), gpu_groups=("x",)) for name in "ab"]
    snapshot = cluster([*running, pod("w-0", spec=fraction(700))], nodes=[node(gpus=2)])
    ledger, asks, _ = problem(snapshot)
    assert [least(kind(ledger, asks), moves=False).cost for kind in (JointModel, NodeModel)] == [0, 0]


def test_a_rack_is_cleared_where_it_costs_least() -> None:
    """The gang needs 2 x 4 in one rack. r: 4 + 4 free after losing 1 + 3; s: after losing 4 alone."""
    nodes = [node(f"n{i}", 4, labels={"zone": "z", "rack": "rrss"[i]}) for i in range(4)]
    held = [("a", "n0", 1), ("b", "n1", 3), ("c", "n2", 3)]
    running = [pod(f"{name}-0", where, spec=spec(gpus)) for name, where, gpus in held]
    waits = [pod(f"w-{k}", spec=spec(4)) for k in range(2)]
    snapshot = cluster([*running, *waits], [group("w", 2, constraint=RACK)], nodes, topologies=FABRIC)
    assert [x.cost for x in both(snapshot, moves=False)] == [3000, 3000]


INEXACT = [
    ("sizes that do not divide each other", (spec(2), spec(3)), {}),
    ("a pod without GPU", (spec(0),), {}),
    ("a share of two devices", (fraction(500, 2),), {}),
    ("CPUs that may bind", (spec(1, cpus=9),), {}),
    ("slots that may bind", (spec(1),), {"pods": 4}),
    ("shares that take a reservation's slot", (fraction(500),), {"pods": 20}),
]


@pytest.mark.parametrize(("specs", "more"), [x[1:] for x in INEXACT], ids=[x[0] for x in INEXACT])
def test_nodes_are_counted_one_by_one_where_more_than_gpus_binds(
    specs: tuple[PodSpec, ...], more: dict[str, Any]
) -> None:
    members = [pod(f"w{i}-0", spec=wants) for i, wants in enumerate(specs)]
    ledger, asks, units = problem(cluster(members, nodes=[node("n1", **more), node("n2", **more)]))
    counts = JointModel(ledger, asks, units).cp.proto.variables
    assert sum(one.name.startswith("x[") for one in counts) == 2 * len(specs)
