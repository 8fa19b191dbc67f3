"""The frontier of defragmentation against every sequence of moves."""

from __future__ import annotations

from math import inf

from hypothesis import given
from hypothesis import strategies as st

from kai_cp_models.defrag.frontier import Frontier, frontier
from kai_cp_models.defrag.problem import DefragQuestion
from kai_cp_models.settings import Settings
from tests.support.brute import worlds
from tests.support.times import runs, world
from tests.support.worlds import cluster, node

Layout = tuple[tuple[int, ...], ...]
"""GPUs of the pods on every node of 4 GPUs."""

QUESTIONS = [
    DefragQuestion(),
    DefragQuestion(pods=1, gpus=4),
    DefragQuestion(pods=2, gpus=2),
    DefragQuestion(pods=1, gpus=3),
]


@st.composite
def drawn(draw: st.DrawFn) -> Layout:
    found = []
    for _ in range(draw(st.integers(2, 3))):
        sizes: list[int] = []
        for size in draw(st.lists(st.integers(1, 3), max_size=3)):
            if sum(sizes) + size <= 4:
                sizes.append(size)
        found.append(tuple(sizes))
    return tuple(found)


def value(question: DefragQuestion, loads: list[int]) -> int:
    """The value of loads."""
    if question.gang:
        return sum((4 - load) // question.gpus for load in loads) // question.pods
    return sum(load == 0 for load in loads)


def least(layout: Layout, question: DefragQuestion) -> dict[int, int]:
    """The fewest moves for each value: every order of moves, each pod at most once, each move to free
    capacity.
    """
    where = [(node_, size) for node_, sizes in enumerate(layout) for size in sizes]
    best: dict[int, float] = {}
    seen: set[tuple[tuple[int, ...], frozenset[int]]] = set()

    def search(places: tuple[int, ...], moved: frozenset[int]) -> None:
        if (places, moved) in seen:
            return
        seen.add((places, moved))
        loads = [0] * len(layout)
        for place, (_, size) in zip(places, where, strict=True):
            loads[place] += size
        worth = value(question, loads)
        best[worth] = min(best.get(worth, inf), len(moved))
        for i, (_, size) in enumerate(where):
            for target in range(len(layout)):
                if i not in moved and target != places[i] and loads[target] + size <= 4:
                    search((*places[:i], target, *places[i + 1 :]), moved | {i})

    search(tuple(place for place, _ in where), frozenset())
    return {worth: int(moves) for worth, moves in best.items()}


def points(found: Frontier) -> list[tuple[int, int]]:
    return [(point.value, point.moves) for point in found.points]


@given(drawn(), st.sampled_from(QUESTIONS))
@worlds(60)
def test_every_point_has_the_fewest_moves_of_all_sequences(layout: Layout, question: DefragQuestion) -> None:
    members = [
        runs(f"p{i}x{k}", f"n{i}", size, preemptible=True, priority=50)
        for i, sizes in enumerate(layout)
        for k, size in enumerate(sizes)
    ]
    nodes = [node(f"n{i}", 4) for i in range(len(layout))]
    found = frontier(cluster(nodes=nodes, **world(*members)), Settings(), question)
    best = least(layout, question)
    already = value(question, [sum(sizes) for sizes in layout])
    reach = sorted(worth for worth in best if worth > already)
    # A value costs no more than any larger one; a value is listed only if the next one costs more.
    cost = {worth: min(best[other] for other in reach if other >= worth) for worth in reach}
    wanted = [
        (worth, cost[worth])
        for k, worth in enumerate(reach)
        if k + 1 == len(reach) or cost[reach[k + 1]] > cost[worth]
    ]
    assert found.already == already
    assert points(found) == wanted
    assert found.because == "exhausted"
    assert found.proved
    assert all(point.proved for point in found.points)
