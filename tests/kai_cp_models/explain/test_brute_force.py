"""Every minimal blocking set of small worlds against a brute force that shares nothing with the model.

Worlds: one queue, nodes with GPUs, pods of one GPU up to a whole node, running and waiting. The brute force
tries every choice of pods that go or move and every placement.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from kai_cp_models.explain import cells
from kai_cp_models.explain.blocking import blocking
from kai_cp_models.explain.feasibility import Feasibility
from kai_cp_models.explain.situation import Situation
from kai_cp_models.settings import Settings
from kai_cp_models.snapshot import GroupKey, Plan
from tests.support.brute import worlds
from tests.support.tiny import node, pod, queue, world

SETTINGS = Settings()
CLASSES = {"low": 40, "mine": 50, "high": 60, "fixed": 150}
"""Priority classes; what is at 100 or above cannot be preempted."""

TAINT = {"key": "keep", "value": "out", "effect": "NoSchedule"}


@dataclass(frozen=True)
class Case:
    """GPUs by node; (node, GPUs, class) of running pods; GPUs of the pods that wait; limit; actions.

    The first node may be cordoned, the last one tainted; ``labelled``: nodes that carry the label that the
    waiting pods select, None where they select none.
    """

    nodes: tuple[int, ...]
    running: tuple[tuple[int, int, str], ...]
    asked: tuple[int, ...]
    limit: int
    consolidation: bool
    preempt: bool
    cordoned: bool
    tainted: bool
    labelled: frozenset[int] | None


@st.composite
def cases(draw: st.DrawFn) -> Case:
    nodes = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    free = list(nodes)
    running = []
    for _ in range(draw(st.integers(0, 4))):
        n = draw(st.integers(0, len(nodes) - 1))
        if free[n]:
            size = draw(st.integers(1, free[n]))
            free[n] -= size
            running.append((n, size, draw(st.sampled_from(sorted(CLASSES)))))
    size = draw(st.integers(1, 4))
    asked = (size,) * draw(st.integers(1, 2))
    limit = draw(st.sampled_from((-1, -1, 2, 4, 6)))
    flags = [draw(st.booleans()) for _ in range(4)]
    labelled = draw(st.none() | st.frozensets(st.integers(0, len(nodes) - 1)))
    return Case(nodes, tuple(running), asked, limit, flags[0], flags[1], flags[2], flags[3], labelled)


def families_of(case: Case) -> list[str]:
    """Families that may matter in such a world."""
    always = ["room:gpu", "fragmentation", "limit:q", "priority", "non-preemptible"]
    some = {
        "node-condition": case.cordoned,
        "taint": case.tainted,
        "selector": case.labelled is not None,
        "action:preempt": not case.preempt,
        "action:consolidation": not case.consolidation,
    }
    return always + [name for name, matters in some.items() if matters]


def feasible(case: Case, enforced: frozenset[str]) -> bool:
    """Whether some choice of pods to stop and to move, and some placement, keeps the enforced families."""
    for gone in _subsets(range(len(case.running))):
        if not all(_stoppable(case, i, enforced) for i in gone):
            continue
        held = sum(size for i, (_, size, _) in enumerate(case.running) if i not in gone)
        if case.limit != -1 and "limit:q" in enforced and held + sum(case.asked) > case.limit:
            continue
        rest = [i for i in range(len(case.running)) if i not in gone]
        for moving in _subsets(rest):
            if all(_movable(case, i, enforced) for i in moving) and _placed(case, rest, moving, enforced):
                return True
    return False


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
    count = len(case.nodes)
    cordoned, tainted = {0} if case.cordoned else set(), {count - 1} if case.tainted else set()
    usable = [n for n in range(count) if n not in cordoned | tainted]
    unlabelled = set() if case.labelled is None else set(range(count)) - case.labelled
    refusing = {"node-condition": cordoned, "taint": tainted, "selector": unlabelled}
    refused = {n for family, nodes in refusing.items() if family in enforced for n in nodes}
    mine = [n for n in range(count) if n not in refused]
    room = "room:gpu" in enforced
    for targets in product(usable, repeat=len(moving)):
        free = list(case.nodes)
        for i in rest:
            n = targets[moving.index(i)] if i in moving else case.running[i][0]
            free[n] -= case.running[i][1]
        if room and min(free, default=0) < 0:
            continue
        if not room and mine:
            return True
        if "fragmentation" not in enforced:
            if mine and sum(free[n] for n in mine) >= sum(case.asked):
                return True
            continue
        for nodes in product(mine, repeat=len(case.asked)):
            left = list(free)
            for n, size in zip(nodes, case.asked, strict=True):
                left[n] -= size
            if min(left) >= 0:
                return True
    return False


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


@worlds(60)
@given(cases())
def test_all_minimal_sets(case: Case) -> None:
    assert set(blocking(model_of(case)).sets) == minimal_sets(case)


@worlds(60)
@given(cases())
def test_what_is_counted_together_is_refuted_by_nothing(case: Case) -> None:
    """As in a large cluster equal nodes are one cell and alike pods a number: that only ever allows more."""
    with patch.object(cells, "MOST_NODES", 0):
        model = model_of(case)
        found = blocking(model)
    assert not model.cells.exact
    assert [sorted(one) for one in found.sets if feasible(case, one)] == []


def model_of(case: Case) -> Feasibility:
    """The model of the pods that wait. Nothing is decided for them: the world is taken as it stands."""
    classes = [
        {"metadata": {"name": name, "uid": f"class-{name}"}, "value": value}
        for name, value in CLASSES.items()
    ]
    nodes = [
        node(
            f"n{i}",
            {"cpu": "640"},
            gpus=gpus,
            unschedulable=case.cordoned and i == 0,
            taints=[TAINT] if case.tainted and i == len(case.nodes) - 1 else [],
            labels={"disk": "fast"} if i in (case.labelled or ()) else {},
        )
        for i, gpus in enumerate(case.nodes)
    ]
    pods = [pod(f"r{i}", f"n{n}", gpus=size, priority=name) for i, (n, size, name) in enumerate(case.running)]
    spec: dict[str, Any] = {} if case.labelled is None else {"nodeSelector": {"disk": "fast"}}
    pods += [pod(f"x{i}", gpus=size, group="x", priority="mine", **spec) for i, size in enumerate(case.asked)]
    actions = ["allocate", *["consolidation"] * case.consolidation, *["preempt"] * case.preempt]
    snapshot = world(
        nodes,
        pods,
        actions=", ".join(actions),
        groups={
            "x": {"minMember": len(case.asked), "preemptibility": "preemptible"},
            **{f"r{i}": {"preemptibility": _word(name)} for i, (_, _, name) in enumerate(case.running)},
        },
        queues=[queue("q", limit={"gpu": case.limit})],
        params={"maxNumberConsolidationPreemptees": 16},
        priorityClasses=classes,
    )
    situation = Situation(snapshot, SETTINGS, Plan())
    group = snapshot.group_by_key[GroupKey("default", "x")]
    return Feasibility(situation, group, situation.batch(group.key), frozenset())


def _word(name: str) -> str:
    return "non-preemptible" if CLASSES[name] >= 100 else "preemptible"
