"""Inter-pod affinity: required, symmetric, preferred; moves; the first pod of a set."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kai_cp_models.check import affinity as check
from kai_cp_models.check.planned_cluster import PlannedCluster
from kai_cp_models.plan import Decision, Plan
from kai_cp_models.pods import LabelSelector, Pod, PodAffinityTerm, Requirement
from kai_cp_models.rules.stateful import affinity
from kai_cp_models.settings import OptionalRules
from kai_cp_models.snapshot import Node
from tests.kai_cp_models.rules.stateful.build import pod, snapshot, spec, term

NODES = [
    Node("n0", (64_000, 2**40, 0, 110), {"zone": "a"}),
    Node("n1", (64_000, 2**40, 0, 110), {"zone": "a"}),
    Node("n2", (64_000, 2**40, 0, 110), {"zone": "b"}),
    Node("n3", (64_000, 2**40, 0, 110)),
]


def near(name: str, node: str | None = None, *, near: tuple[PodAffinityTerm, ...] = (),
         apart: tuple[PodAffinityTerm, ...] = (), **labels: str) -> Pod:  # fmt: skip
    return pod(name, node, wants=spec(pod_affinity=near, pod_anti_affinity=apart), labels=labels)


def accepted(pods: list[Pod], new: Pod, *, now: bool = True) -> list[bool]:
    mask = affinity.open(snapshot([*pods, new], NODES)).mask(new, now=now)
    return [True] * len(NODES) if mask is None else [bool(x) for x in mask]


@pytest.mark.parametrize(
    ("standing", "new", "expected"),
    [
        ([near("db", "n0", app="db")], near("x", near=(term(app="db"),)), [1, 1, 0, 0]),
        ([near("db", "n3", app="db")], near("x", near=(term(app="db"),)), [0, 0, 0, 0]),
        ([], near("x", near=(term(app="db"),)), [0, 0, 0, 0]),
        ([], near("x", near=(term(app="x"),), app="x"), [1, 1, 1, 0]),
        ([near("y", "n2", app="x")], near("x", near=(term(app="x"),), app="x"), [0, 0, 1, 0]),
        ([near("db", "n0", app="db")], near("x", apart=(term(app="db"),)), [0, 0, 1, 1]),
        ([near("db", "n0", apart=(term(app="x"),))], near("x", app="x"), [0, 0, 1, 1]),
        ([near("db", "n0", apart=(term(app="y"),))], near("x", app="x"), [1, 1, 1, 1]),
        # Two terms: one pod must match both; two pods that match one each are not enough.
        (
            [near("p", "n0", a="1"), near("q", "n0", b="1")],
            near("x", near=(term(a="1"), term(b="1"))),
            [0, 0, 0, 0],
        ),
        ([near("p", "n0", a="1", b="1")], near("x", near=(term(a="1"), term(b="1"))), [1, 1, 0, 0]),
    ],
)
def test_required(standing: list[Pod], new: Pod, expected: list[int]) -> None:
    assert accepted(standing, new) == [bool(x) for x in expected]


def test_moves_count_as_they_will_be() -> None:
    db, x = near("db", "n0", app="db"), near("x", near=(term(app="db"),))
    state = affinity.open(snapshot([db, x], NODES))
    state.evict(db)
    gone = state.mask(x, now=False)
    assert gone is not None
    assert not gone.any()
    state.place(db, 2, pipelined=True)
    moved = state.mask(x, now=False)
    assert moved is not None
    assert list(moved) == [False, False, True, False]


def test_company_that_was_missed_does_not_return_home() -> None:
    """x opened a domain because y had left. If y returned to its node, it would never have left."""
    y, x = near("y", "n0", app="x"), near("x", near=(term(app="x"),), app="x")
    state = affinity.open(snapshot([y, x], NODES))
    state.evict(y)
    state.place(x, 2, pipelined=True)
    back = state.mask(y, now=False)
    assert back is not None
    assert list(back) == [False, True, True, True]
    state.remove(x, 2)
    assert state.mask(y, now=False) is None


def test_pods_that_need_each_other_return_home_one_by_one() -> None:
    """y and z run in different zones, each beside itself alone. Both leave; y is back, and z never left."""
    y, z = (near(name, node, near=(term(app="x"),), app="x") for name, node in (("y", "n0"), ("z", "n2")))
    state = affinity.open(snapshot([y, z], NODES))
    state.evict(y)
    state.evict(z)
    state.unevict(y)
    back = state.mask(z, now=False)
    assert back is not None
    assert list(back) == [True, True, True, False]


def test_preferred_scores_both_directions() -> None:
    fan = near("fan", "n2", near=(term(weight=7, app="x"),))
    pods = [near("db", "n0", app="db"), fan]
    new = near("x", near=(term(weight=5, app="db"),), apart=(term(weight=2, app="db"),), app="x")
    score = affinity.open(snapshot([*pods, new], NODES)).score(new)
    assert score is not None
    assert list(score) == [3_000_000, 3_000_000, 7_000_000, 0]


@pytest.mark.parametrize("app", ["x", "y"])
def test_classes_that_want_the_same_company_share_its_rows(app: str) -> None:
    """Pods of different requests that need pods of their own kind, or of another one: a model with 40 of
    them has as many rows as one with 2."""
    near_x = (term(app="x"),)
    olds = [near(f"o{i}", f"n{i}", app="x") for i in (0, 2)]
    news = [
        pod(f"p{i}", wants=spec((i + 1, 0, 0, 1), pod_affinity=near_x), labels={"app": app})
        for i in range(40)
    ]
    state = affinity.open(snapshot([*olds, *news], NODES))
    few, many = (len(list(state.rows(news[:n], [1] * n, range(len(NODES))))) for n in (2, 40))
    assert 0 < few == many


LABELS = st.fixed_dictionaries({"app": st.sampled_from("ab")})
TERMS = st.lists(st.sampled_from([term(app="a"), term(app="b")]), max_size=1).map(tuple)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(LABELS, TERMS, TERMS, st.sampled_from([0, 2])), min_size=1, max_size=3))
def test_every_allowed_placement_satisfies_the_rows(drawn: list[tuple[dict[str, str], tuple[PodAffinityTerm, ...], tuple[PodAffinityTerm, ...], int]]) -> None:  # fmt: skip  # noqa: E501
    """For every sequence of ``place`` that the masks allow, the final counts satisfy every row."""
    news = [near(f"p{i}", near=a, apart=b, **labels) for i, (labels, a, b, _) in enumerate(drawn)]
    olds = [near(f"o{i}", NODES[n].name, apart=b, **labels) for i, (labels, _, b, n) in enumerate(drawn[:1])]
    state = affinity.open(snapshot([*olds, *news], NODES))
    rows = list(state.rows(news, [1] * len(news), range(len(NODES))))
    for places in product([None, *range(len(NODES))], repeat=len(news)):
        trial = state.copy()
        for new, place in zip(news, places, strict=True):
            if place is not None:
                mask = trial.mask(new, now=False)
                if mask is not None and not mask[place]:
                    break
                trial.place(new, place, pipelined=False)
        else:
            for row in rows:
                used = sum(row.entering.get((c, p), 0) for c, p in enumerate(places) if p is not None)
                assert used <= row.bound, (places, row)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(LABELS, st.integers(0, 2)), min_size=1, max_size=3),
    st.lists(st.tuples(LABELS, TERMS, st.integers(0, 2)), min_size=1, max_size=3),
    st.booleans(),
)
def test_nominated_pods_keep_what_they_need(
    drawn: list[tuple[dict[str, str], int]],
    later: list[tuple[dict[str, str], tuple[PodAffinityTerm, ...], int]],
    enters: bool,
) -> None:
    """Whatever leaves after pods were nominated, and whether another pod enters then: plans that are upheld
    break no rule, and plans that break none satisfy the rows."""
    olds = [near(f"o{i}", NODES[n].name, **labels) for i, (labels, n) in enumerate(drawn)]
    news = [near(f"p{i}", near=a, **labels) for i, (labels, a, _) in enumerate(later)]
    last = near("z", app="a")
    found = snapshot([*olds, *news, last], NODES)
    state = affinity.open(found)
    places: list[tuple[Pod, int]] = []
    for new, (_, _, node) in zip(news, later, strict=True):
        mask = state.mask(new, now=False)
        if mask is None or mask[node]:
            state.place(new, node, pipelined=True)
            places.append((new, node))
    assert state.upheld()
    rows = list(state.rows([last], [1], range(len(NODES))))
    places += [(last, 0)] if enters else []
    for going in product([False, True], repeat=len(olds)):
        trial, gone = state.copy(), [old for old, goes in zip(olds, going, strict=True) if goes]
        evictable = len(gone) != 1 or trial.evictable(gone[0])
        for old in gone:
            trial.evict(old)
        assert enters or evictable or not trial.upheld()
        if enters:
            trial.place(last, 0, pipelined=True)
        plan = [Decision("Evict", old.key, old.group, str(old.node), "preempt") for old in gone]
        plan += [Decision("Nominate", p.key, p.group, NODES[n].name, "allocate") for p, n in places]
        broken = list(check.broken(PlannedCluster(found, Plan(tuple(plan)))))
        assert not (trial.upheld() and broken)
        for row in rows if not broken else ():
            used = row.entering.get((0, 0), 0) * enters - sum(row.leaving.get(old.key, 0) for old in gone)
            assert used <= row.bound


def test_a_nominated_pod_keeps_its_company() -> None:
    """One of two may go, or both with the pod that needs them, and none where that pod is bound."""
    olds = [near(f"o{i}", "n0", app="x") for i in range(2)]
    new = near("p", near=(term(app="x"),))
    state = affinity.open(snapshot([*olds, new], NODES))
    state.place(new, 0, pipelined=True)
    rows = [(dict(row.entering), dict(row.leaving), row.bound) for row in state.rows([], [], [0])]
    assert rows == [({}, {olds[0].key: -1, olds[1].key: -1, new.key: 2}, 1)]
    assert state.evictable(olds[0])
    state.evict(olds[0])
    assert not state.evictable(olds[1])
    state.remove(new, 0)
    assert state.evictable(olds[1])
    state.place(new, 0, pipelined=False)
    assert state.evictable(olds[1])
    assert list(state.rows([], [], [0])) == []


def test_check_lets_a_first_pod_be_followed_elsewhere() -> None:
    """A pod that opens its own domain is legal although a later pod without affinity matches its term."""
    first = near("first", near=(term(app="y"),), app="y")
    later, twin = near("later", app="y"), near("twin", near=(term(app="y"),), app="y")
    found = snapshot([first, later, twin], NODES)

    def faults(*places: tuple[Pod, str]) -> list[str]:
        plan = Plan(tuple(Decision("Bind", p.key, p.group, node, "allocate") for p, node in places))
        return list(map(str, check.broken(PlannedCluster(found, plan, OptionalRules.model_validate({})))))

    assert faults((first, "n0"), (later, "n2")) == []
    assert faults((first, "n0"), (twin, "n1")) == []
    assert len(faults((first, "n0"), (twin, "n2"))) == 1
    assert len(faults((first, "n3"))) == 1


def test_the_checker_finds_which_pod_was_the_first() -> None:
    """z wants a or b and is the first of either. Then y, which is b, may be the first that wants b; not where
    it wants a, too, as that is there."""
    both = PodAffinityTerm(LabelSelector((Requirement("app", "In", ("a", "b")),)), "zone", ("ns",), 0)
    for wanted, faults in ((term(app="b"), 0), (both, 1)):
        z, y = near("z", near=(both,), app="a"), near("y", near=(wanted,), app="b")
        binds = [Decision("Bind", p.key, p.group, at, "allocate") for p, at in ((z, "n0"), (y, "n2"))]
        plan = PlannedCluster(snapshot([y, z], NODES), Plan(tuple(binds)))
        assert len(list(check.broken(plan))) == faults


def test_the_checker_lets_partners_wait_for_partners() -> None:
    """a needs b, which needs c, which runs. Only after b is a known to have its partner."""
    a, b = near("a", near=(term(app="b"),)), near("b", near=(term(app="c"),), app="b")
    found = snapshot([near("c", "n0", app="c"), a, b], NODES)
    binds = [Decision("Bind", one.key, one.group, "n0", "allocate") for one in (a, b)]
    assert list(check.broken(PlannedCluster(found, Plan(tuple(binds))))) == []
    assert [one.pods for one in check.broken(PlannedCluster(found, Plan((binds[0],))))] == [(a.key,)]
