"""Starts against a brute force that shares nothing: all places of all gangs, one instant after the other."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, product

from hypothesis import given, settings
from hypothesis import strategies as st

from kai_cp_models.engine import decide
from kai_cp_models.plan import Plan
from tests.support.times import holds, runs, waits, world
from tests.support.times import settings as chosen
from tests.support.worlds import cluster, node

NODES = 4
ENDS = (10, 20, 30, None)
"""Minutes after which the job on a node ends. None: not known; -1: no job runs there."""
Gang = tuple[int, int]
"""Nodes, minutes."""


def free(ends: tuple[int | None, ...], index: int, instant: int) -> bool:
    """Whether no running job is on the node at an instant."""
    end = ends[index]
    return end is not None and end <= instant


def together(ends: tuple[int | None, ...], fixed: list[tuple[int, Gang]]) -> bool:
    """Whether nodes for all gangs at their starts exist."""
    options = [
        [set(nodes) for nodes in combinations([n for n in range(NODES) if free(ends, n, start)], size)]
        for start, (size, _) in fixed
    ]
    apart = [
        (i, j)
        for (i, (a, (_, x))), (j, (b, (_, y))) in combinations(enumerate(fixed), 2)
        if a < b + y and b < a + x
    ]
    return any(all(not places[i] & places[j] for i, j in apart) for places in product(*options))


def starts(ends: tuple[int | None, ...], gangs: list[Gang]) -> Iterator[int | None]:
    """The earliest start of every gang, in order; None where there is none."""
    fixed: list[tuple[int, Gang]] = []
    for gang in gangs:
        points = {0, *(end for end in ends if end is not None), *(start + one[1] for start, one in fixed)}
        found = next((t for t in sorted(points) if t >= 0 and together(ends, [*fixed, (t, gang)])), None)
        if found is not None:
            fixed.append((found, gang))
        yield found


def told(plan: Plan, count: int) -> list[int | None]:
    """The starts of the engine in minutes."""
    held = holds(plan)
    now = {decision.group.name for decision in plan.decisions if decision.group is not None}
    return [
        0 if f"g{i}" in now else round(held[f"g{i}"][1]) if f"g{i}" in held else None for i in range(count)
    ]


@settings(max_examples=60, deadline=None)
@given(
    ends=st.tuples(*[st.sampled_from((-1, *ENDS))] * NODES),
    gangs=st.lists(st.tuples(st.integers(1, NODES), st.sampled_from((15, 25))), min_size=1, max_size=3),
)
def test_every_start_is_the_least(ends: tuple[int | None, ...], gangs: list[Gang]) -> None:
    members = [
        runs(f"r{i}", f"n{i}", 8, lasts=None if end is None else f"{end}m")
        for i, end in enumerate(ends)
        if end != -1
    ]
    members += [
        waits(f"g{i}", size, 8, lasts=f"{minutes}m", reserve=True, waited=100 - i)
        for i, (size, minutes) in enumerate(gangs)
    ]
    nodes = tuple(node(f"n{i}") for i in range(NODES))
    plan = decide(cluster(nodes=nodes, **world(*members)), chosen())
    assert told(plan, len(gangs)) == list(starts(ends, gangs))
