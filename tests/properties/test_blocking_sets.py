"""Every minimal blocking set of small worlds against a brute force that shares nothing with the model.

The brute force tries every choice of pods that stop or move, and every placement.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, product
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_cp_models.explain import blocking as search
from kai_cp_models.explain import cells
from kai_cp_models.explain.blocking import blocking, solver_for
from kai_cp_models.explain.cells import Cells
from kai_cp_models.explain.families import set_key
from kai_cp_models.explain.feasibility import Feasibility
from kai_cp_models.explain.question import Question
from kai_cp_models.solver import cp_model, run
from tests.kai_cp_models.explain.tiny_cases import CLASSES, FEATURES, Case, cases, question_of
from tests.support.brute import worlds

MOST_NAMED = 8


def families_of(case: Case) -> list[str]:
    """Families of rules that may matter in such a world."""
    always = ["room:gpu", "fragmentation", "limit:q", "priority", "non-preemptible"]
    some = {
        "node-condition": case.cordoned,
        "taint": case.tainted,
        "selector": case.labelled is not None,
        "action:preempt": not case.preempt,
        "action:consolidation": not case.consolidation,
    }
    drawn = [FEATURES[name] for name in sorted(case.features) if FEATURES[name]]
    return always + [name for name, matters in some.items() if matters] + drawn


def feasible(case: Case, enforced: frozenset[str]) -> bool:
    """Whether some choice of pods to stop and to move, and some placement, satisfies the enforced
    families.
    """
    for gone in _subsets(range(len(case.running))):
        if not all(_stoppable(case, i, enforced) for i in gone):
            continue
        held = sum(size for i, (_, size, _) in enumerate(case.running) if i not in gone)
        wanted = held + sum(case.batch)
        if any(wanted > most for family, most in _limits(case).items() if family in enforced):
            continue
        rest = [i for i in range(len(case.running)) if i not in gone]
        for moving in _subsets(rest):
            disturbed = case.marked & {*gone, *moving}
            if "pdb" in enforced and "budget" in case.features and len(disturbed) > case.amount:
                continue
            if all(_movable(case, i, enforced) for i in moving) and _placed(case, rest, moving, enforced):
                return True
    return False


def _limits(case: Case) -> dict[str, int]:
    """What the queue, and the user in it, may hold."""
    found = {} if case.limit == -1 else {"limit:q": case.limit}
    return found | ({"limit:q/u": case.user_limit} if "users" in case.features else {})


def _subsets(items: object) -> Iterator[tuple[int, ...]]:
    chosen = list(items)  # type: ignore[call-overload]
    for size in range(len(chosen) + 1):
        yield from combinations(chosen, size)


def _stoppable(case: Case, i: int, enforced: frozenset[str]) -> bool:
    name = case.running[i][2]
    return not (
        ("non-preemptible" in enforced and CLASSES[name] >= 100)
        or ("priority" in enforced and CLASSES[name] >= CLASSES["mine"])
        or ("action:preempt" in enforced and not case.preempt)
    )


def _movable(case: Case, i: int, enforced: frozenset[str]) -> bool:
    return not (
        ("non-preemptible" in enforced and CLASSES[case.running[i][2]] >= 100)
        or ("action:consolidation" in enforced and not case.consolidation)
    )


def _placed(case: Case, rest: list[int], moving: tuple[int, ...], enforced: frozenset[str]) -> bool:
    refusing = _refusing(case)
    usable = set(range(len(case.nodes))).difference(
        *(nodes for family, nodes in refusing.items() if family != "selector")
    )
    refused = {n for family, nodes in refusing.items() if family in enforced for n in nodes}
    mine = [n for n in range(len(case.nodes)) if n not in refused]
    entries = [
        nodes for nodes in product(mine, repeat=len(case.batch)) if _spread_and_bound(case, nodes, enforced)
    ]
    for targets in product(sorted(usable), repeat=len(moving)):
        place = {i: case.running[i][0] for i in rest} | dict(zip(moving, targets, strict=True))
        free = list(case.nodes)
        for i, n in place.items():
            free[n] -= case.running[i][1]
        if "room:gpu" in enforced and min(free, default=0) < 0:
            continue
        if any(_enters(case, nodes, place, free, mine, enforced) for nodes in entries):
            return True
    return False


def _refusing(case: Case) -> dict[str, set[int]]:
    """The nodes that a family refuses."""
    count = len(case.nodes)
    every = set(range(count))
    return {
        "node-condition": {0} if case.cordoned else set(),
        "taint": {count - 1} if case.tainted else set(),
        "selector": set() if case.labelled is None else every - case.labelled,
        "gpu-kind": set(case.chosen) if "mig" in case.features else set(),
        "worker": every - case.chosen if "workers" in case.features else set(),
    }


def _spread_and_bound(case: Case, nodes: tuple[int, ...], enforced: frozenset[str]) -> bool:
    """Whether whole pods on these nodes are spread, and whether their volumes are there."""
    if "volumes" in enforced & {FEATURES[name] for name in case.features} and not case.chosen.issuperset(
        nodes
    ):
        return False
    if "spread" not in enforced or "spread" not in case.features:
        return True
    eligible = {n % 2 for n in (range(len(case.nodes)) if case.labelled is None else case.labelled)}
    counts = [sum(n % 2 == zone for n in nodes) for zone in (0, 1)]
    # If the selector leaves no zone, there is no constraint.
    return max(counts) - min((counts[zone] for zone in eligible), default=max(counts)) <= 1


def _enters(
    case: Case,
    nodes: tuple[int, ...],
    place: dict[int, int],
    free: list[int],
    mine: list[int],
    enforced: frozenset[str],
) -> bool:
    """Whether the batch starts with whole pods on these nodes; in parts, its GPUs are wherever some are
    free.
    """
    if "claims" in case.features and "dra" in enforced:
        left = case.devices
        for n in [*nodes, *(place[i] for i in case.holders if i in place)]:
            left[n] -= 1
        if min(left) < 0:
            return False
    if "room:gpu" not in enforced:
        return True
    if "fragmentation" not in enforced:
        return sum(free[n] for n in mine) >= sum(case.batch)
    left = list(free)
    for n, size in zip(nodes, case.batch, strict=True):
        left[n] -= size
    return min(left) >= 0


def minimal_sets(case: Case) -> set[frozenset[str]]:
    """All minimal blocking sets, smallest first."""
    found: list[frozenset[str]] = []
    names = families_of(case)
    for size in range(len(names) + 1):
        for some in combinations(names, size):
            chosen = frozenset(some)
            if not any(known <= chosen for known in found) and not feasible(case, chosen):
                found.append(chosen)
    return set(found)


def assert_named(found: Sequence[frozenset[str]], minimal: set[frozenset[str]]) -> None:
    """All minimal sets in their order, or the first eight of them if there are more."""
    assert list(found) == sorted(minimal, key=set_key)[:MOST_NAMED]


@worlds(60)
@given(cases())
def test_all_minimal_sets(case: Case) -> None:
    assert_named(blocking(question_of(case)).sets, minimal_sets(case))


@worlds(30)
@given(cases())
def test_the_limit_cuts_off_the_largest_sets(case: Case) -> None:
    with patch.object(search, "MOST_SETS", 1):
        found = blocking(question_of(case))
    minimal = sorted(minimal_sets(case), key=set_key)
    assert list(found.sets) == minimal[:1]
    assert found.complete == (len(minimal) == 1)


@pytest.mark.parametrize("feature", sorted(FEATURES))
@worlds(20)
@given(st.data())
def test_all_minimal_sets_with_one_feature_more(feature: str, data: st.DataObject) -> None:
    assert_explained(data.draw(cases(frozenset((feature,)))))


@worlds(60)
@given(st.data())
def test_all_minimal_sets_with_features_together(data: st.DataObject) -> None:
    features = data.draw(st.frozensets(st.sampled_from(sorted(FEATURES)), min_size=2, max_size=4))
    assert_explained(data.draw(cases(features)))


def assert_explained(case: Case) -> None:
    """The model names the minimal sets of the case."""
    found = blocking(question_of(case)).sets
    relaxed = "claims" in case.features and bool(case.holders)
    relaxed |= "spread" in case.features and not case.features.isdisjoint(("claims", "volumes"))
    if relaxed:
        # The model asks for no device where such a pod moves to, and spreads pods of each kind separately. So
        # its sets block, and they may be too large.
        assert [sorted(one) for one in found if feasible(case, one)] == []
    else:
        assert_named(found, minimal_sets(case))


@worlds(60)
@given(cases())
def test_sets_found_by_counting_are_never_refuted(case: Case) -> None:
    """As in a large cluster, equal nodes are one cell and equal pods a number, which only allows more."""
    with patch.object(cells, "MOST_NODES", 0):
        question = question_of(case)
        found = blocking(question)
    assert not question.cells.exact
    assert [sorted(one) for one in found.sets if feasible(case, one)] == []


@worlds(40)
@given(cases(), st.data())
def test_sums_allow_more_and_parts_less(case: Case, data: st.DataObject) -> None:
    """What sums refuse is infeasible; what has a place in a part has one in the whole cluster."""
    families = data.draw(st.sets(st.sampled_from(families_of(case))))
    with patch.object(cells, "MOST_NODES", 0):
        question = question_of(case)
        whole, total, one = question.cells, question.sums(domains=False), question.part(1)
    if not fits(question, total, families):
        assert not feasible(case, frozenset(families))
    if fits(question, one, families):
        assert fits(question, whole, families)


def fits(question: Question, look: Cells, families: set[str]) -> bool:
    """Whether the batch has a place in one view of the cluster."""
    model = Feasibility(question, look)
    model.enforce(frozenset(families))
    return run(solver_for(60.0), model.cp) in (cp_model.OPTIMAL, cp_model.FEASIBLE)
