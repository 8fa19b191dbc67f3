"""Free capacity by counting: what a row refuses has no placement. Argued by hand and against the
exact model.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from functools import cache
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kai_cp_models.joint.counting import Counting, CumulativeDemand
from kai_cp_models.joint.policy import CONSOLIDATION, RECLAIM
from kai_cp_models.joint.problem import Ask, EvictionUnit
from kai_cp_models.joint.search import solve
from kai_cp_models.ledger import Ledger
from kai_cp_models.pods import GPU, Pod, PodSpec, PodStatus
from kai_cp_models.settings import SolverSettings
from kai_cp_models.snapshot import Node, Snapshot
from tests.kai_cp_models.joint.build import NodeModel, problem, world
from tests.support.plans import evicted, lost, nominated, placed, reasons, solved
from tests.support.worlds import PLUGINS, cluster, fraction, gpu_memory, group, node, pod, pods, spec

SOLVER = SolverSettings(workers=1)


def pods_of(asks: Sequence[Ask]) -> list[Pod]:
    """All pods that ask."""
    return [one for ask in asks for one in ask.pods]


def families(counting: Counting, units: Sequence[EvictionUnit], *, moved: bool = False) -> CumulativeDemand:
    """The demand of no ask beside these units, in the given order."""
    unit_of = np.array([rank for rank, unit in enumerate(units) for _ in unit.pods], dtype=np.int64)
    movable = np.array([unit.movable for unit in units], dtype=bool)
    order = SimpleNamespace(
        reach=SimpleNamespace(policy=CONSOLIDATION if moved else RECLAIM),
        pods=[one for unit in units for one in unit.pods],
        unit_of=unit_of,
        units={"movable": movable},
    )
    return CumulativeDemand(counting, order)  # type: ignore[arg-type]


def fits(
    state: CumulativeDemand, ask: Ask, takes: frozenset[int], beside: frozenset[int] | None = None
) -> bool:
    """Whether counting allows the ask."""
    return not state.exceeded(ask, takes, beside)


def admitted(snapshot: Snapshot, *, moved: bool = False) -> list[str]:
    """The waiting groups that counting allows beside each other, in their order."""
    ledger, asks, units = problem(snapshot)
    counting = Counting(ledger, pods_of(asks), everywhere=moved)
    state, every = families(counting, units, moved=moved), frozenset(range(len(units)))
    found: list[str] = []
    for ask in asks:
        if fits(state, ask, every):
            state.hold(ask, every)
            found.append(ask.group.key.name)
    return found


# --- by hand ---------------------------------------------------------------------------------------

EIGHT, FOUR, TWO = spec(8), spec(4), spec(2)
SHARES = (
    pod("v0-0", "n1", spec=fraction(300), gpu_groups=("x",)),
    pod("v1-0", "n1", spec=fraction(600), gpu_groups=("x",)),
)
STRANGER = pod("o", "n1", None, spec=fraction(600), gpu_groups=("x",))
HELD = pod("u-0", "n1", spec=FOUR, group=None, ours=False)
"""Four GPUs of n1 that no group gives up."""

OURS = pod("v-0", "n1", spec=FOUR)

TABLE: list[tuple[str, tuple[Pod, ...], tuple[PodSpec, ...], tuple[Node, ...], list[str]]] = [
    # (what runs, what asks one after the other as a, b, c …, nodes, which asks may have a place)
    ("8 + 8 free: two of 8, no third", (), (EIGHT, EIGHT, EIGHT), (node("n1"), node("n2")), ["a", "b"]),
    ("4 + 4 free are 8, but no 8", (), (EIGHT, FOUR), (node("n1", 4), node("n2", 4)), ["b"]),
    # n1 takes one pod of 4 beside those that stay, n2 takes two; the pod of 8 takes the place of two.
    ("an 8 counts as two 4", (HELD,), (EIGHT, FOUR, FOUR), (node("n1"), node("n2")), ["a", "b"]),
    ("an 8 counts as eight 1", (), (EIGHT, spec(1)), (node("n1"),), ["a"]),
    ("the sum is held too: 4 + 4 + 1", (), (FOUR, FOUR, spec(1)), (node("n1"),), ["a", "b"]),
    # 3 + 3 of 4 + 4: in pieces of 2 GPUs one more pod of 2 fits, by the sum two.
    ("3 does not divide", (), (spec(3), spec(3), TWO, TWO), (node("n1", 4), node("n2", 4)), ["a", "b", "c"]),
    ("5 in pieces of 3 is one", (), (spec(5), spec(3)), (node("n1", 5), node("n2", 2)), ["a"]),
    ("CPUs in sum", (), (spec(1, cpus=40), spec(1, cpus=40)), (node("n1"),), ["a"]),
    ("pod slots in sum", (), (spec(1), spec(1)), (node("n1", pods=1),), ["a"]),
    ("what asks for no GPU passes full ones", (HELD,), (FOUR, spec(0), TWO), (node("n1"),), ["a", "b"]),
    # Shares: only sums of portions.
    ("two halves and no third", (), (fraction(500),) * 3, (node("n1", 1),), ["a", "b"]),
    ("a half beside a whole GPU", (), (spec(1), fraction(500)), (node("n1", 1),), ["a"]),
    ("100 of 1000 are left of a device", (), (fraction(900), fraction(200)), (node("n1", 1),), ["a"]),
    # Units: all running pods may leave.
    ("both shares leave: a whole device", SHARES, (spec(1),), (node("n1", 1),), ["a"]),
    ("and not two", SHARES, (spec(1), spec(1)), (node("n1", 1),), ["a"]),
    ("one share of the two is a stranger's", (SHARES[0], STRANGER), (spec(1), fraction(400)),
     (node("n1", 1),), ["b"]),
    ("who runs may go, but not the strangers", (HELD, OURS), (EIGHT, FOUR), (node("n1"),),
     ["b"]),
    # A node of 8 GPUs shrank to 4 while 8 are used: 4 GPUs leave, and nothing is free yet.
    ("a node over its capacity gives nothing", (HELD, OURS), (spec(1),), (node("n1", 4),),
     []),
    ("and takes nothing from the others", (HELD, OURS), (FOUR, spec(1)),
     (node("n1", 2), node("n2", 4)), ["a"]),
    ("leaving pods count as gone", (pod("r-0", "n1", spec=EIGHT, status=PodStatus.RELEASING),), (EIGHT,),
     (node("n1"),), ["a"]),
    ("nodes that no pod accepts do not count", (), (spec(1, node_selector=(("host", "n1"),)),) * 2,
     (node("n1", 1, labels={"host": "n1"}), node("n2")), ["a"]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("there", "asking", "nodes", "allowed"), [x[1:] for x in TABLE], ids=[x[0] for x in TABLE]
)
def test_by_hand(
    there: tuple[Pod, ...], asking: tuple[PodSpec, ...], nodes: tuple[Node, ...], allowed: list[str]
) -> None:
    waiting = [pod(f"{name}-0", spec=wants) for name, wants in zip("abcd", asking, strict=False)]
    assert admitted(cluster([*there, *waiting], nodes=nodes)) == allowed


MOVES: list[tuple[str, tuple[Pod, ...], PodSpec, tuple[Node, ...], bool]] = [
    # (what runs and may move, what asks, nodes, whether counting allows it)
    ("3 of n1 into the 3 of n2", (pod("m-0", "n1", spec=spec(3)),), EIGHT, (node("n1"), node("n2", 3)), True),
    # 6 + 2 GPUs are free, and moves free no more.
    ("who moves needs a place again", (pod("m-0", "n1", spec=TWO),), EIGHT,
     (node("n1"), node("n2", 1)), False),
    ("two halves into one", (pod("m-0", "n1"), pod("k-0", "n2")), TWO, (node("n1", 2), node("n2", 2)), True),
    ("3 and 3 are no 4 and 2", (pod("m-0", "n1", spec=TWO), pod("k-0", "n2", spec=TWO)), FOUR,
     (node("n1", 3), node("n2", 3)), False),
]  # fmt: skip


@pytest.mark.parametrize(
    ("there", "asks", "nodes", "allowed"), [x[1:] for x in MOVES], ids=[x[0] for x in MOVES]
)
def test_moves_by_hand(there: tuple[Pod, ...], asks: PodSpec, nodes: tuple[Node, ...], allowed: bool) -> None:
    snapshot = cluster([*there, pod("a-0", spec=asks)], nodes=nodes)
    assert admitted(snapshot, moved=True) == (["a"] if allowed else [])


def test_each_family_has_its_own_capacity() -> None:
    """u (4) and v (4) fill n1. b may take both, a and c only u. Hall's condition refuses c, not b."""
    running = [pod("u-0", "n1", spec=FOUR), pod("v-0", "n1", spec=FOUR)]
    snapshot = cluster([*running, *(pod(f"{name}-0", spec=spec(3)) for name in "abc")])
    ledger, asks, units = problem(snapshot)
    both, one = frozenset((0, 1)), frozenset((0,))
    counting = Counting(ledger, pods_of(asks))
    state = families(counting, units)
    a, b, c = asks
    assert fits(state, a, one)
    state.hold(a, one)
    assert not fits(state, c, one)
    assert fits(state, b, both)
    trial = copy(state)
    trial.hold(b, both)
    # 3 + 3 of 8: two are left, whichever units may be taken.
    assert not fits(trial, c, both)
    # The first one does not count b.
    assert fits(state, c, both)


def test_asks_that_protect_a_victim_share_what_the_others_leave() -> None:
    """u (4) and v (4) fill n1, and both may be taken. Beside a only u leaves: a has 2 of 4 GPUs, b fits, c
    does not.
    """
    running = [pod("u-0", "n1", spec=FOUR), pod("v-0", "n1", spec=FOUR)]
    snapshot = cluster([*running, *(pod(f"{name}-0", spec=TWO) for name in "abc")])
    ledger, asks, units = problem(snapshot)
    counting = Counting(ledger, pods_of(asks))
    state = families(counting, units)
    a, b, c = asks
    beside, both = frozenset((0,)), frozenset((0, 1))
    assert fits(state, a, both, beside)
    state.hold(a, both, beside)
    assert fits(state, b, both)
    state.hold(b, both)
    assert not fits(state, c, both)
    assert not fits(state, c, both, frozenset((0, 1)))
    assert not fits(families(counting, units), a, both, frozenset())


# --- counting allows whatever can be placed --------------------------------------------------------

SEEDS = range(40)


def room_for(ledger: Ledger, asks: Sequence[Ask], units: Sequence[EvictionUnit], *, moved: bool) -> bool:
    """Whether the model of single nodes places all asks."""
    model = NodeModel(ledger, asks, units, may_lose=not moved)
    for literal in model.admitted:
        model.cp.add(literal == 1)
    outcome, _ = solve(model.cp, SOLVER, 20)
    assert outcome.status != "unknown"
    return outcome.status == "solved"


@cache
def compare(seed: int, *, moved: bool) -> list[tuple[bool, bool]]:
    """For every ask in turn: whether it can be placed beside those before it, and whether counting allows it.
    Under losses some asks may take only some units; what no ask used may still be taken.
    """
    ledger, asks, units = problem(world(seed, loose=moved))
    rng = Random(seed)
    every = frozenset(range(len(units)))
    some = every if moved else frozenset(rank for rank in every if rng.random() < 0.6)
    counting = Counting(ledger, pods_of(asks), everywhere=moved)
    state = families(counting, units, moved=moved)
    held: list[Ask] = []
    opened: frozenset[int] = frozenset()
    found: list[tuple[bool, bool]] = []
    for ask in asks:
        takes = rng.choice((every, some))
        left = [unit for rank, unit in enumerate(units) if rank in opened | takes]
        can = room_for(ledger, [*held, ask], left, moved=moved)
        found.append((can, fits(state, ask, takes)))
        if can:
            held.append(ask)
            opened |= takes
            state.hold(ask, takes)
    return found


@pytest.mark.parametrize("moved", [False, True], ids=["losses", "moves"])
@pytest.mark.parametrize("seed", SEEDS)
def test_the_counts_allow_whatever_can_be_placed(seed: int, moved: bool) -> None:
    for can, allowed in compare(seed, moved=moved):
        assert allowed or not can


def test_the_random_worlds_cover_the_cases() -> None:
    """Both answers occur, and counting alone finds most refusals."""
    for moved, least in ((False, 10), (True, 3)):
        found = [pair for seed in SEEDS for pair in compare(seed, moved=moved)]
        assert min(found.count((True, True)), found.count((False, False))) >= least


@pytest.mark.parametrize("seed", SEEDS)
def test_the_rows_are_sums_over_nodes(seed: int) -> None:
    """The capacity after units leave, row by row, against plain loops over nodes; shares are kept apart."""
    ledger, asks, units = problem(world(seed))
    rng = Random(seed)
    gone = [one for unit in units if rng.random() < 0.5 for one in unit.pods if not one.spec.gpu.shares]
    counting = Counting(ledger, pods_of(asks), everywhere=True)
    after = ledger.copy()
    for one in gone:
        after.evict(one)
    free = np.maximum(after.free, 0)
    sizes = sorted({p.spec.gpu.devices for a in asks for p in a.pods if not p.spec.gpu.shares})
    room = counting.room(counting.leaving(gone))
    assert room[: len(sizes)].tolist() == [
        sum(int(gpus) // (1000 * size) for gpus in free[:, GPU]) for size in sizes
    ]
    others = [d for d in range(free.shape[1]) if d != GPU]
    assert room[counting.totals][others].tolist() == free.sum(axis=0)[others].tolist()


# --- end to end: rows that once refused what fits --------------------------------------------------------

PREEMPT: dict[str, Any] = {"actions": ("allocate", "preempt")}
PACKING = PLUGINS | {"nodeplacement", "nodeavailability"}


def shares_for_a_gpu(wants: PodSpec, count: int, **more: Any) -> Snapshot:
    """v holds the only GPU; t wants to share it among ``count`` pods."""
    return cluster(
        [pod("v-0", "n1"), *pods("t", count, spec=wants)],
        [group("v", priority=10), group("t", count, priority=60)],
        [node(gpus=1, **more)],
        **PREEMPT,
    )


def test_portions_share_what_a_victim_leaves() -> None:
    plan = solved(shares_for_a_gpu(fraction(250), 4))
    assert lost(plan) == {"v-0"}
    assert placed(plan) == {f"t-{i}" for i in range(4)}
    assert reasons(solved(shares_for_a_gpu(fraction(250), 5))) == {"t": "NoNodeAccepts"}


def test_shares_by_memory_share_what_a_victim_leaves() -> None:
    """Four times 10,000 of 40,000 MiB."""
    assert placed(solved(shares_for_a_gpu(gpu_memory(10_000), 4))) == {f"t-{i}" for i in range(4)}


def test_portions_are_rounded_down_to_mib() -> None:
    """335 thousandths of 100 MiB are 33 MiB: three fit, although 1,005 thousandths are more than a GPU."""
    snapshot = shares_for_a_gpu(fraction(335), 3, gpu_memory_mib=100, gpu_memory_synced=False)
    assert placed(solved(snapshot)) == {"t-0", "t-1", "t-2"}


def test_later_batches_stand_on_nodes_that_count() -> None:
    """Every node of pool x must take one GPU and three (see test_joint); the surplus of g runs only on y."""
    here: dict[str, Any] = {"node_selector": (("pool", "x"),), "cpus": 4}
    waiting = [
        pod(f"{name}-0", spec=spec(gpus, **here)) for name, gpus in zip("abcd", (1, 1, 3, 3), strict=True)
    ]
    surplus = [
        pod("g-0", spec=spec(0, node_selector=(("pool", "k"),))),
        pod("g-1", spec=spec(1, node_selector=(("pool", "y"),))),
    ]
    snapshot = cluster(
        [*waiting, *surplus],
        [*(group(name, created=float(i)) for i, name in enumerate("abcd")), group("g", 1, priority=60)],
        [
            node("n1", gpus=4, cpus=8, labels={"pool": "x"}),
            node("n2", gpus=4, cpus=8, labels={"pool": "x"}),
            node("k", gpus=0, cpus=1, labels={"pool": "k"}),
            node("y", gpus=1, cpus=1, labels={"pool": "y"}),
        ],
        plugins=PACKING,
        actions=("allocate",),
    )
    assert placed(solved(snapshot)) == {"a-0", "b-0", "c-0", "d-0", "g-0", "g-1"}


@pytest.mark.parametrize("crowded", [False, True])
def test_a_node_over_its_capacity_does_not_stop_moves_elsewhere(crowded: bool) -> None:
    """The 3 GPUs of m move from n1 to n2 and leave 8 free. On n3 one GPU is left of the 8 on which b runs."""
    over = [pod("b-0", "n3", spec=EIGHT)] if crowded else []
    snapshot = cluster(
        [pod("m-0", "n1", spec=spec(3)), *over, pod("t-0", spec=EIGHT)],
        nodes=[node("n1"), node("n2", gpus=3), node("n3", gpus=1)],
        actions=("allocate", "consolidation"),
    )
    assert nominated(solved(snapshot)) == {"t-0": "n1", "m-0": "n2"}


def test_a_victim_that_may_not_be_lost_may_move() -> None:
    """h wants all of n1: v is lost, and m moves to the idle GPU of n2. t may take w on n3. If m were lost, it
    would come back before t, so it must not be lost; moving it does not lose it either.
    """
    snapshot = cluster(
        [
            pod("m-0", "n1"),
            pod("v-0", "n1", spec=spec(7)),
            pod("x-0", "n2", spec=spec(7)),
            pod("w-0", "n3"),
            pod("h-0", spec=EIGHT),
            pod("t-0", spec=spec(1, node_selector=(("host", "n3"),))),
        ],
        [group(n, priority=p) for n, p in {"m": 40, "v": 10, "w": 10, "x": 70, "h": 60, "t": 20}.items()],
        [node(n, gpus=g, labels={"host": n}) for n, g in (("n1", 8), ("n2", 8), ("n3", 1))],
        **PREEMPT,
    )
    plan = solved(snapshot)
    assert placed(plan) == {"h-0", "t-0"}
    assert (lost(plan), evicted(plan)) == ({"v-0", "w-0"}, {"v-0", "w-0", "m-0"})
