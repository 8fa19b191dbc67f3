"""Which victims would take a trigger's place back (formulation 1.3): argued by hand, and simulated."""

from __future__ import annotations

from functools import cache
from itertools import product
from math import inf
from random import Random
from typing import Any

import pytest
from hypothesis import given

from kai_cp.reader import parse
from kai_cp_models.actions.asking import line_of, waiting_groups
from kai_cp_models.actions.run import ActionRun
from kai_cp_models.actions.simulation import simulate_all
from kai_cp_models.cycle import Cycle
from kai_cp_models.fairness.amounts import NOTHING
from kai_cp_models.fairness.order import group_sort_key
from kai_cp_models.joint.policy import RECLAIM
from kai_cp_models.joint.returning import Returning
from kai_cp_models.ledger import Ledger
from kai_cp_models.pods import Pod, PodSpec
from kai_cp_models.settings import Settings
from kai_cp_models.snapshot import Node, PodGroup, Snapshot
from tests.kai_cp_models.joint.build import FABRIC, RACK, problem
from tests.support.clusters import clusters
from tests.support.objects import NOW, Object
from tests.support.worlds import cluster, fraction, group, node, pod, pods, spec

ONE, TWO, FOUR = spec(1), spec(2), spec(4)
ON_N1 = (("host", "n1"),)


def before(snapshot: Snapshot) -> list[bool]:
    """For every unit of v in chain order: whether it comes back before t."""
    ledger, asks, units = problem(snapshot)
    first = Returning(ledger, units).come_back_first(asks[0])
    return [o in first for o in range(len(units))]


def world(
    runs: tuple[PodSpec, int, int],
    asks: tuple[PodSpec, int],
    victim: dict[str, Any],
    trigger: dict[str, Any],
    **place: Any,
) -> Snapshot:
    """v runs (spec, pods, minimum) on n1, where t asks (spec, pods). Both have priority 50, and v
    is older.
    """
    label = {"host": "n1", "zone": "z", "rack": "r"}
    return cluster(
        [
            *pods("v", runs[1], "n1", spec=runs[0], gpu_groups=("x",) * runs[0].gpu.shares),
            *pods("t", asks[1], spec=asks[0]),
        ],
        [
            group("v", runs[2], **{"created": 1.0, **victim}),
            group("t", asks[1], **{"created": 2.0, **trigger}),
        ],
        [node("n1", labels=label, **place), node("n2", labels={**label, "host": "n2"}, **place)],
        topologies=FABRIC,
    )


Case = tuple[str, tuple[PodSpec, int, int], tuple[PodSpec, int], dict[str, Any], dict[str, Any], list[bool]]
CONSTRAINED = {"constraint": RACK}
TABLE: list[Case] = [
    # (what runs, what asks, v, t, which units of v come back before t)
    ("equal, and older", (ONE, 1, 1), (ONE, 1), {}, {}, [True]),
    ("equal, and younger", (ONE, 1, 1), (ONE, 1), {"created": 3.0}, {}, [False]),
    ("younger, of higher priority", (ONE, 1, 1), (ONE, 1), {"created": 3.0, "priority": 51}, {}, [True]),
    ("older, of lower priority", (ONE, 1, 1), (ONE, 1), {"priority": 49}, {}, [False]),
    ("a late start makes it no younger", (ONE, 1, 1), (ONE, 1), {"last_start": 9.0}, {}, [True]),
    ("larger than the room", (TWO, 1, 1), (ONE, 1), {}, {}, [False]),
    ("smaller", (ONE, 1, 1), (FOUR, 1), {}, {}, [True]),
    ("CPUs do not fit", (spec(1, cpus=2), 1, 1), (ONE, 1), {}, {}, [False]),
    ("a gang of two in the room of one", (ONE, 2, 2), (ONE, 1), {}, {}, [False]),
    ("a gang of two in the room of two", (ONE, 2, 2), (ONE, 2), {}, {}, [True]),
    ("several in the room of one", (ONE, 4, 4), (spec(4, cpus=4, gib=4), 1), {}, {}, [False]),
    ("sizes are compared pod by pod", (TWO, 3, 3), (spec(3, cpus=9, gib=9), 2), {}, {}, [False]),
    # At equal priority surplus comes after all groups that lack their minimum.
    ("surplus comes after a gang", (ONE, 2, 1), (ONE, 1), {}, {}, [False, True]),
    ("surplus of higher priority does not", (ONE, 2, 1), (ONE, 1), {"priority": 51}, {}, [True, True]),
    ("who shares a device is left out", (fraction(500), 1, 1), (ONE, 1), {}, {}, [False]),
    ("so is a trigger that does", (ONE, 1, 1), (fraction(500), 1), {}, {}, [False]),
    ("a constrained victim is left out", (ONE, 1, 1), (ONE, 1), CONSTRAINED, {}, [False]),
    ("so is a constrained trigger", (ONE, 1, 1), (ONE, 1), {}, CONSTRAINED, [False]),
    ("its node is one of two", (spec(1, node_selector=ON_N1), 1, 1), (ONE, 1), {}, {}, [False]),
    ("its nodes are more", (ONE, 1, 1), (spec(1, node_selector=ON_N1), 1), {}, {}, [True]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("runs", "asks", "victim", "trigger", "back"), [x[1:] for x in TABLE], ids=[x[0] for x in TABLE]
)
def test_by_hand(
    runs: tuple[PodSpec, int, int],
    asks: tuple[PodSpec, int],
    victim: dict[str, Any],
    trigger: dict[str, Any],
    back: list[bool],
) -> None:
    assert before(world(runs, asks, victim, trigger)) == back


def test_every_ask_is_answered_for_itself() -> None:
    """One ``Returning`` answers for two asks: u is older than t and younger than s."""
    snapshot = cluster(
        [pod("u-0", "n1"), pod("s-0"), pod("t-0")],
        [group("u", created=2.0), group("s", created=1.0), group("t", created=3.0)],
    )
    ledger, asks, units = problem(snapshot)
    returning = Returning(ledger, units)
    assert {ask.group.key.name: returning.come_back_first(ask) for ask in asks} == {"s": [], "t": [0]}
    assert {ask.group.key.name: returning.come_back_first(ask) for ask in asks} == {"s": [], "t": [0]}


@given(cluster=clusters())
def test_each_unit_is_in_line_as_it_would_be_alone(cluster: Object) -> None:
    """Of each group the first unit to go comes before an ask in the fair order, or not, when it alone is lost
    and asks again."""
    ledger = Ledger.of(parse(cluster, now=NOW.timestamp()))
    cycle = Cycle(ledger.snapshot, Settings(), ledger, inf)
    run = ActionRun(cycle, RECLAIM, ledger, waiting_groups(cycle, "reclaim"))
    first = {unit.group.key: unit for unit in reversed(run.ranked) if unit.movable}
    for ask, unit in product(list(run.asks.values())[::-3], first.values()):
        entry = group_sort_key(unit.group, 0 if unit.whole else 1), NOTHING
        also = {} if unit.group.key in run.asks else {unit.group.key: entry}
        order = run.line.fork(ledger.book, also=also)
        found = order.pop({unit.group.key, ask.group.key}) == unit.group.key != ask.group.key
        assert run.in_line.before([ask], [unit]) == ({0} if found else set())


# --- simulated -------------------------------------------------------------------------------------


def crowd(seed: int) -> Snapshot:
    """One queue on two or three full nodes: small groups of equal or similar priority, and one that waits."""
    rng = Random(seed)
    nodes: list[Node] = []
    members: list[Pod] = []
    groups: list[PodGroup] = []
    for n in range(rng.randint(2, 3)):
        name = f"n{n}"
        nodes.append(
            node(name, 4, cpus=rng.choice((6, 64)), pods=rng.choice((5, 110)), labels={"host": name})
        )
        left, cpus = 4, nodes[-1].allocatable[0] // 1000
        while left:
            size = rng.choice([s for s in (1, 1, 2, 4) if s <= left])
            count = rng.randint(1, left // size)
            if count > cpus:
                break
            owner = f"v{len(groups)}"
            selector = rng.choice(((), (), (("host", name),)))
            wants = spec(size, node_selector=selector)
            members += pods(owner, count, name, spec=wants)
            groups.append(
                group(
                    owner,
                    rng.randint(1, count),
                    priority=rng.choice((40, 50)),
                    created=rng.choice((1.0, 9.0)),
                )
            )
            left -= size * count
            cpus -= count
    count = rng.randint(1, 2)
    selector = rng.choice(((), (("host", "n0"),)))
    wants = spec(rng.choice((1, 2, 4)), cpus=rng.choice((1, 2, 4)), gib=4, node_selector=selector)
    return cluster(
        [*members, *pods("t", count, spec=wants)], [*groups, group("t", count, created=5.0)], nodes
    )


@cache
def played(seed: int) -> tuple[int, int]:
    """How many units that come first were lost together with others, and how often t was served beside them.
    A unit is lost together with those of its group that leave before it and a random part of all others.
    """
    ledger, asks, units = problem(crowd(seed))
    ask = asks[0]
    assert ask.group.key.name == "t"
    first = Returning(ledger, units).come_back_first(ask)
    rng = Random(seed)
    line = line_of(ledger, {ask.group.key: ask})
    tried = served = 0
    for unit in (units[o] for o in first):
        for share in (0.0, 0.3, 0.7):
            others = [
                o for o in units if o.group.key != unit.group.key and o.chain == 0 and rng.random() < share
            ]
            chain = [o for o in units if o.group.key == unit.group.key and o.chain <= unit.chain]
            found = simulate_all(ledger, [ask], [*others, *chain], line, lambda: False)
            tried += 1
            if found.ledger is None:
                continue
            served += 1
            back = [p for p in unit.pods if p.key in found.ledger.held or p.key not in found.ledger.evicted]
            assert len(back) == len(unit.pods), f"{unit.group.key} came first and got no place"
    return tried, served


@pytest.mark.parametrize("seed", range(60))
def test_the_pod_that_comes_first_has_a_place_wherever_the_trigger_has(seed: int) -> None:
    played(seed)


def test_the_random_crowds_cover_the_cases() -> None:
    found = [played(seed) for seed in range(60)]
    assert sum(tried for tried, _ in found) > 100
    assert sum(served for _, served in found) > 20
