"""Starts against a brute force without models: every instant, every choice of nodes."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations, product
from math import inf

from hypothesis import given
from hypothesis import strategies as st

from kai_cp_models.check import violations
from kai_cp_models.engine import decide
from kai_cp_models.reservations.prepare import prepare
from tests.support.brute import worlds
from tests.support.plans import placed
from tests.support.times import holds, runs, settings, waits, world
from tests.support.worlds import cluster, node

MINUTES = st.sampled_from([10, 20, 30, 40])


@dataclass(frozen=True)
class Gang:
    """Whole nodes for that many minutes; ``kind``: only nodes of that kind."""

    nodes: int
    lasts: int | None
    kind: str | None


@dataclass(frozen=True)
class World:
    """Kind of every node and when it is free (None: unknown); gangs in the order in which they came."""

    kinds: tuple[str, ...]
    free: tuple[int | None, ...]
    gangs: tuple[Gang, ...]


GANGS = st.builds(
    Gang,
    nodes=st.integers(1, 3),
    lasts=st.one_of(st.none(), MINUTES),
    kind=st.sampled_from([None, None, "a", "b"]),
)


@st.composite
def drawn(draw: st.DrawFn) -> World:
    count = draw(st.integers(2, 4))
    return World(
        tuple(draw(st.lists(st.sampled_from("ab"), min_size=count, max_size=count))),
        tuple(draw(st.lists(st.one_of(st.just(0), MINUTES, st.none()), min_size=count, max_size=count))),
        tuple(draw(st.lists(GANGS, min_size=1, max_size=3))),
    )


def choices(world_: World, gang: Gang, start: float) -> list[tuple[int, ...]]:
    """Sets of nodes that a gang may have from ``start`` on."""
    good = [
        i
        for i, (kind, free) in enumerate(zip(world_.kinds, world_.free, strict=True))
        if free is not None and free <= start and gang.kind in (None, kind)
    ]
    return list(combinations(good, gang.nodes))


def possible(world_: World, starts: list[tuple[Gang, float]]) -> bool:
    """Whether all gangs have nodes of their own while they run."""
    options = [choices(world_, gang, start) for gang, start in starts]
    spans = [(start, inf if gang.lasts is None else start + gang.lasts) for gang, start in starts]
    for chosen in product(*options):
        if all(
            not set(chosen[i]) & set(chosen[j]) or spans[i][1] <= spans[j][0] or spans[j][1] <= spans[i][0]
            for i, j in combinations(range(len(starts)), 2)
        ):
            return True
    return False


def expected(world_: World) -> list[float | None]:
    """The earliest start of every gang in order, with those before it fixed; None: it has no start."""
    fixed: list[tuple[Gang, float]] = []
    found: list[float | None] = []
    for gang in world_.gangs:
        ends = {float(free) for free in world_.free if free is not None} | {0.0}
        ends |= {start + other.lasts for other, start in fixed if other.lasts is not None}
        start = next((t for t in sorted(ends) if possible(world_, [*fixed, (gang, t)])), None)
        found.append(start)
        if start is not None:
            fixed.append((gang, start))
    return found


@given(drawn())
@worlds(120)
def test_every_start_is_the_least_beside_those_before_it(world_: World) -> None:
    nodes = [node(f"n{i}", labels={"kind": kind}) for i, kind in enumerate(world_.kinds)]
    members = [
        runs(f"r{i}", f"n{i}", lasts=None if free is None else f"{free}m")
        for i, free in enumerate(world_.free)
        if free != 0
    ]
    members += [
        waits(
            f"g{i}",
            gang.nodes,
            lasts=None if gang.lasts is None else f"{gang.lasts}m",
            reserve=True,
            waited=90 - i,
            needs={} if gang.kind is None else {"node_selector": (("kind", gang.kind),)},
        )
        for i, gang in enumerate(world_.gangs)
    ]
    chosen = settings()
    snapshot = cluster(nodes=nodes, **world(*members))
    plan = decide(snapshot, chosen)
    assert violations(prepare(snapshot, chosen)[0], plan) == []
    reserved, now = holds(plan), placed(plan)
    starts = [
        0.0 if f"g{i}-0" in now else reserved[f"g{i}"][1] if f"g{i}" in reserved else None
        for i in range(len(world_.gangs))
    ]
    assert starts == expected(world_)
