"""The packing bound against enumeration on tiny instances, and prices argued by hand."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kai_cp_models.bounds import Bin, BinItem, Fluid, fluid_prices, packing_bound, room_values
from kai_cp_models.bounds.pricing import share_patterns


def _best(items: list[BinItem], bins: list[Bin]) -> int:
    """The most milli-GPUs of any placement, found by enumeration."""
    pods = [item for item in items for _ in range(item.count)]
    nodes = [b for b in bins for _ in range(b.count)]
    kinds = [k for k, b in enumerate(bins) for _ in range(b.count)]
    spots: list[tuple[int, int] | None] = [None]
    spots += [(n, d) for n, node in enumerate(nodes) for d in range(node.devices)]
    best = 0
    for choice in product(spots, repeat=len(pods)):
        room = [[1000] * node.devices for node in nodes]
        cpu = [node.cpu for node in nodes]
        value, fine = 0, True
        for pod, spot in zip(pods, choice, strict=True):
            if spot is None:
                continue
            n, d = spot
            room[n][d] -= pod.milli
            cpu[n] -= pod.cpu
            fine &= room[n][d] >= 0 and cpu[n] >= 0 and pod.allowed[kinds[n]]
            value += pod.value
        if fine:
            best = max(best, value)
    return best


_ITEMS = st.lists(
    st.builds(
        BinItem,
        cpu=st.integers(0, 4),
        memory=st.just(1),
        gpus=st.just(1),
        milli=st.sampled_from([190, 300, 500, 810, 1000]),
        count=st.integers(1, 2),
        allowed=st.tuples(st.booleans(), st.booleans()),
    ),
    min_size=1,
    max_size=3,
)


@settings(max_examples=30, deadline=None)
@given(items=_ITEMS, cpu=st.integers(1, 6))
def test_no_placement_beats_the_bound(items: list[BinItem], cpu: int) -> None:
    bins = [Bin(cpu, 10, 1, 1), Bin(cpu + 2, 10, 2, 1)]
    found = packing_bound(items, bins, seconds=5)
    best = _best(items, bins)
    assert found.bound >= best - 1e-6
    assert found.value <= found.bound + 1e-6
    fluid = fluid_prices(items, bins, [item.count for item in items])
    assert fluid.value >= best - 1e-6


def test_bound_is_tight_where_one_pattern_is_best() -> None:
    # A share of 810 leaves 190, which only the small pods fill: 1000 on a device with one of each, else 810.
    both = (True,)
    items = [BinItem(1, 1, 1, 810, 10, both), BinItem(1, 1, 1, 190, 2, both)]
    found = packing_bound(items, [Bin(100, 100, 4, 1)], seconds=5)
    assert found.bound == pytest.approx(2 * 1000 + 2 * 810)
    assert found.value == pytest.approx(found.bound)


def test_cpus_bound_what_gpus_would_allow() -> None:
    items = [BinItem(5, 1, 1, 1000, 10, (True,))]
    assert packing_bound(items, [Bin(12, 100, 8, 1)], seconds=5).bound == pytest.approx(2000)


def test_scarce_fillers_have_a_price_and_surplus_has_none() -> None:
    items = [BinItem(1, 1, 1, 810, 100, (True,)), BinItem(1, 1, 1, 190, 2, (True,))]
    prices = fluid_prices(items, [Bin(100, 100, 8, 1)], [100, 2])
    assert prices.pods[0] == pytest.approx(0)
    assert prices.pods[1] == pytest.approx(190)
    assert prices.placed.tolist() == pytest.approx([8, 2])


def test_relaxation_keeps_what_runs_and_is_asked_again() -> None:
    # Whole pods fill a device. Three running shares of 810 stay, and two shares of 190 join them.
    items = [
        BinItem(1, 1, 1, 810, 9, (True,)),
        BinItem(1, 1, 1, 1000, 9, (True,)),
        BinItem(1, 1, 1, 190, 2, (True,)),
    ]
    fluid = Fluid(items, [Bin(100, 100, 4, 1)])
    found = fluid.solve([9, 9, 2], [3, 0, 0])
    assert found.placed.tolist() == pytest.approx([3, 1, 2])
    assert found.value == pytest.approx(3 * 810 + 1000 + 2 * 190)
    assert fluid.solve([9, 9, 0]).value == pytest.approx(4000)


def test_relaxation_keeps_cpus_back_and_serves_pods_without_gpus_last() -> None:
    items = [BinItem(5, 1, 1, 1000, 9, (True,)), BinItem(5, 1, 0, 0, 9, (True,))]
    fluid = Fluid(items, [Bin(40, 100, 4, 1)], worth=[1000.0, 1.0])
    assert fluid.solve([9, 9]).placed.tolist() == pytest.approx([4, 4])
    assert fluid.solve([9, 9], cpu=0.5).placed.tolist() == pytest.approx([4, 0])


def test_share_patterns_fill_a_device() -> None:
    found = share_patterns([810, 190, 500])
    assert {810: 1, 190: 1} in found
    assert {500: 2} in found
    assert all(sum(size * many for size, many in p.items()) + 190 > 1000 for p in found)


def test_capacity_values_are_an_unbounded_knapsack() -> None:
    worth = room_values(np.array([[300.0, 500.0]]), np.array([300, 500]))
    assert worth[0, [29, 30, 60, 80, 100]].tolist() == [0, 300, 600, 800, 1000]
