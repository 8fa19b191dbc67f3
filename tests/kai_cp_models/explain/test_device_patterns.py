"""What moves of shared GPUs can free, counted by kinds of devices, against every way to move them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from kai_cp_models.explain import cells, device_patterns
from kai_cp_models.explain.blocking import solver_for
from kai_cp_models.explain.cells import Cells
from kai_cp_models.explain.device_patterns import fillings
from kai_cp_models.explain.feasibility import Feasibility
from kai_cp_models.explain.question import Question
from kai_cp_models.explain.situation import Situation
from kai_cp_models.plan import Plan
from kai_cp_models.pods import GroupKey
from kai_cp_models.solver import cp_model, run
from tests.support.brute import worlds
from tests.support.plans import ALL_RULES
from tests.support.tiny import node, pod, world

PARTS = (25, 30, 50, 60)
"""Sizes of shares, in hundredths of a GPU."""
WHOLE = 100
Node = tuple[tuple[int, ...], ...]
"""The shares on every GPU of a node."""


@dataclass(frozen=True)
class Case:
    """``nodes``: what runs; ``fixed``: numbers of the pods that may not move; ``asked``: one pod."""

    nodes: tuple[Node, ...]
    fixed: frozenset[int]
    asked: int
    most: int

    @property
    def pods(self) -> list[tuple[int, int, int]]:
        """Node, GPU and size of every running pod."""
        return [
            (n, k, size)
            for n, gpus in enumerate(self.nodes)
            for k, sizes in enumerate(gpus)
            for size in sizes
        ]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    gpu = st.sampled_from([(), (WHOLE,), *_shared()])
    nodes = draw(st.lists(st.lists(gpu, min_size=1, max_size=3).map(tuple), min_size=1, max_size=2))
    count = sum(len(sizes) for gpus in nodes for sizes in gpus)
    fixed = frozenset(i for i in range(count) if draw(st.integers(0, 4)) == 0)
    return Case(tuple(nodes), fixed, draw(st.sampled_from((50, 100, 200))), draw(st.integers(1, 4)))


def _shared() -> Iterator[tuple[int, ...]]:
    for first in PARTS:
        yield (first,)
        for second in PARTS:
            if first <= second and first + second <= WHOLE:
                yield first, second


def has_place(case: Case) -> bool:
    """Whether pods can move so that the waiting pod fits."""
    free = [i for i in range(len(case.pods)) if i not in case.fixed]
    for count in range(min(case.most, len(free)) + 1):
        for moving in combinations(free, count):
            load = [[0] * len(gpus) for gpus in case.nodes]
            for i, (n, k, size) in enumerate(case.pods):
                load[n][k] += size * (i not in moving)
            if _placed(load, [case.asked, *(case.pods[i][2] for i in moving)]):
                return True
    return False


def _placed(load: list[list[int]], sizes: list[int]) -> bool:
    """Whether all sizes find places beside the shares on every GPU of every node."""
    if not sizes:
        return True
    size, rest = sizes[0], sizes[1:]
    for gpus in load:
        for chosen in combinations(range(len(gpus)), -(-size // WHOLE)):
            each = min(size, WHOLE)
            if all(gpus[k] + each <= WHOLE for k in chosen):
                for k in chosen:
                    gpus[k] += each
                found = _placed(load, rest)
                for k in chosen:
                    gpus[k] -= each
                if found:
                    return True
    return False


def question_of(case: Case) -> Question:
    nodes = [node(f"n{n}", {"cpu": "640"}, gpus=len(gpus)) for n, gpus in enumerate(case.nodes)]
    pods = [
        _pod(f"r{i}", size, f"n{n}", () if size == WHOLE else (f"g{n}-{k}",))
        for i, (n, k, size) in enumerate(case.pods)
    ]
    names = {i: "non-preemptible" if i in case.fixed else "preemptible" for i in range(len(pods))}
    snapshot = world(
        nodes,
        [*pods, _pod("x", case.asked)],
        actions="allocate, consolidation",
        groups={
            "x": {"preemptibility": "preemptible"},
            **{f"r{i}": {"preemptibility": name} for i, name in names.items()},
        },
        params={"maxNumberConsolidationPreemptees": case.most},
    )
    return Question(Situation(snapshot, ALL_RULES, Plan()), snapshot.group_by_key[GroupKey("default", "x")])


def _pod(name: str, size: int, on: str = "", shares: tuple[str, ...] = ()) -> dict[str, object]:
    if size % WHOLE:
        return pod(name, on, notes={"gpu-fraction": f"{size / WHOLE:g}"}, shares=shares)
    return pod(name, on, gpus=size // WHOLE)


def fits(question: Question, look: Cells) -> bool:
    model = Feasibility(question, look)
    model.enforce(frozenset(model.literals))
    return run(solver_for(60.0), model.cp) in (cp_model.OPTIMAL, cp_model.FEASIBLE)


@worlds(60)
@given(cases())
def test_devices_counted_by_kind(case: Case) -> None:
    """With cells of one node each the answer is exact. Sums over nodes allow at least as much."""
    with patch.object(cells, "MOST_NODES", 0):
        question = question_of(case)
        whole, total = question.cells, question.sums(domains=False)
    expected = has_place(case)
    assert fits(question, total) or not expected
    if all(len(nodes) == 1 for nodes in whole.nodes):
        assert fits(question, whole) == expected
    else:
        assert fits(question, whole) or not expected


@worlds(20)
@given(cases())
def test_devices_of_too_many_kinds_are_counted_one_by_one(case: Case) -> None:
    with patch.object(cells, "MOST_NODES", 0), patch.object(device_patterns, "_MOST_PATTERNS", 0):
        question = question_of(case)
        assert fits(question, question.cells) or not has_place(case)
        assert fits(question, question.sums(domains=False)) or not has_place(case)


def test_two_halves_of_two_gpus_are_no_whole_one() -> None:
    """Two GPUs with 0.6 used each have 0.8 free together, but no move frees a whole one. With 0.5 used on
    each, a move does.
    """
    with patch.object(cells, "MOST_NODES", 0):
        stuck = question_of(Case((((60,), (60,)),), frozenset(), 100, 4))
        helped = question_of(Case((((50,), (50,)),), frozenset(), 100, 4))
        assert not fits(stuck, stuck.sums(domains=False))
        assert fits(helped, helped.sums(domains=False))


def test_fillings_leave_no_capacity_for_another() -> None:
    assert fillings(100, (25, 60)) == ((1, 1), (4, 0))
    assert fillings(20, (25, 60)) == ()
    assert fillings(100, ()) == ()
