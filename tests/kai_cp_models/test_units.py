"""What a pod group gets next and gives up next (5.1 to 5.5), each world argued by hand."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_cp_models import units
from kai_cp_models.pods import Pod, PodStatus
from kai_cp_models.snapshot import Subgroup, Topology, TopologyConstraint
from kai_cp_models.units import Gang, Gangs, GangState
from tests.support.worlds import cluster, group, leaf, pod, tree

P, R, X, G, S, B = (
    PodStatus.PENDING,
    PodStatus.RUNNING,
    PodStatus.RELEASING,
    PodStatus.GATED,
    PodStatus.SUCCEEDED,
    PodStatus.BOUND,
)
LETTERS = {"P": P, "R": R, "X": X, "G": G, "S": S, "B": B}


def gang(root: Subgroup, **statuses: str) -> Gang:
    """Pods ``<leaf><number>`` in task order, one letter of status each: ``gang(root, a="RRP")``."""
    members = [
        pod(f"{name}{i}", "n1" if letter in "RXB" else None, "g", subgroup=name, status=LETTERS[letter])
        for name, letters in statuses.items()
        for i, letter in enumerate(letters)
    ]
    return Gang(group("g", root=root), tuple(members))


def status(one: Pod) -> PodStatus:
    return one.status


def batch(one: Gang) -> str:
    found = one.state(status).batch
    return " ".join(each.key.name for each in found.all_pods) if found else ""


def chain(one: Gang) -> list[str]:
    """All eviction units until nothing is left."""
    units = [[pod.key.name for pod in unit.pods] for unit in one.units_at_first]
    left = [name for names in units for name in names]
    assert len(left) == len(set(left)), "a pod leaves twice"
    return [" ".join(names) for names in units]


def flat(minimum: int) -> Subgroup:
    return tree(1, leaf("a", minimum))


def both(k: int, a: int = 2, b: int = 1) -> Subgroup:
    return tree(k, leaf("a", a), leaf("b", b))


def nested(k: int = 2) -> Subgroup:
    """K of the two sets x (both of a, b) and y (one of c, d)."""
    return tree(
        k, tree(2, leaf("a", 1), leaf("b", 1), name="x"), tree(1, leaf("c", 2), leaf("d", 2), name="y")
    )


@dataclass(frozen=True)
class Case:
    name: str
    gang: Gang
    expect: object


def ids(case: Case) -> str:
    return case.name


BATCHES = [
    Case("a gang is asked for whole", gang(flat(3), a="PPPP"), "a0 a1 a2"),
    Case("only what is missing", gang(flat(3), a="RRPP"), "a2"),
    Case("a bound pod counts as there", gang(flat(3), a="RBPP"), "a2"),
    Case("a releasing pod does not", gang(flat(3), a="RXPPP"), "a2 a3"),
    Case("one extra at a time above the minimum", gang(flat(1), a="RPPP"), "a1"),
    Case("minimum zero is all extras", gang(flat(0), a="PPP"), "a0"),
    # 5.2: two of three are alive and not gated, so there is no batch at all.
    Case("a gang that cannot be complete asks for nothing", gang(flat(3), a="RPG"), ""),
    Case("nothing pending", gang(flat(1), a="RR"), ""),
    Case("gated pods are not asked for", gang(flat(1), a="GG"), ""),
    Case("a succeeded pod neither counts nor is asked for", gang(flat(1), a="SP"), "a1"),
    Case("all subgroups at once", gang(both(2), a="PPP", b="PP"), "a0 a1 b0"),
    # Both are below their threshold, so the name decides: a, although it asks for more.
    Case("K of N takes the first by name", gang(both(1), a="PP", b="P"), "a0 a1"),
    # (14.1) a cannot be complete, so choosing it would leave the gang below its minimum.
    Case("K of N skips a subgroup that cannot be complete", gang(both(1), a="P", b="P"), "b0"),
    Case("K of N skips a gated subgroup", gang(both(1), a="GG", b="P"), "b0"),
    Case("a satisfied subgroup is skipped", gang(both(2), a="RR", b="P"), "b0"),
    # K = 1 is met by b; a is below its own threshold, so the increment is all of a.
    Case("the next increment is a whole extra subgroup", gang(both(1), a="PP", b="R"), "a0 a1"),
    # One pod does not complete a; the increment comes from b, which is satisfied.
    Case("an extra subgroup that is not ready is passed over", gang(both(1), a="P", b="RP"), "b1"),
    # Ratios: a has 2/2, b 2/1; the lower ratio grows first.
    Case("extras go to the emptier subgroup", gang(both(2), a="RRP", b="RRP"), "a2"),
    # b is optional (minimum 0): the required a grows first, although b has fewer pods.
    Case("required before optional", gang(both(1, a=1, b=0), a="RRP", b="P"), "a2"),
    Case(
        "nested: both sets, one of y's two leaves",
        gang(nested(), a="P", b="P", c="PP", d="PP"),
        "a0 b0 c0 c1",
    ),
    Case(
        "nested: the leaf that is whole is left out", gang(nested(), a="R", b="P", c="XX", d="PP"), "b0 d0 d1"
    ),
    # x can never be complete because b has no pods. With K = 1 the gang is y alone.
    Case(
        "nested: a set that cannot be complete is skipped",
        gang(nested(1), a="P", b="", c="PP", d=""),
        "c0 c1",
    ),
    # y satisfies the root; the extra set x comes as a whole.
    Case("nested: a whole extra set", gang(nested(1), a="P", b="P", c="RR", d=""), "a0 b0"),
]


@pytest.mark.parametrize("case", BATCHES, ids=ids)
def test_the_next_batch(case: Case) -> None:
    assert batch(case.gang) == case.expect


READY = [
    Case("enough pending", gang(flat(2), a="PP"), True),
    Case("running and pending together", gang(flat(2), a="RP"), True),
    Case("too few pods exist", gang(flat(3), a="PP"), False),
    Case("a gated pod is not there yet", gang(flat(2), a="PG"), False),
    Case("a releasing pod is not alive", gang(flat(2), a="PX"), False),
    Case("a succeeded pod is not alive", gang(flat(2), a="PS"), False),
    Case("minimum zero is ready with any pod that waits", gang(flat(0), a="P"), True),
    Case("a gang of which no pod waits asks for nothing", gang(flat(0), a="R"), False),
    Case("every subgroup is needed when K is all", gang(both(2), a="PP", b=""), False),
    Case("K of N needs only K", gang(both(1), a="P", b="P"), True),
    Case("K of N with none complete", gang(both(1), a="P", b=""), False),
    Case("nested: one leaf of y is enough", gang(nested(), a="P", b="P", c="P", d="PP"), True),
    Case("nested: x lacks b", gang(nested(), a="P", b="", c="PP", d=""), False),
]


@pytest.mark.parametrize("case", READY, ids=ids)
def test_readiness(case: Case) -> None:
    assert case.gang.state(status).ready is case.expect


CHAINS = [
    # Surplus pods leave first, the last one in task order first; then the gang as a whole.
    Case("surplus one by one, then the rest", gang(flat(2), a="RRRR"), ["a3", "a2", "a0 a1"]),
    Case("no surplus: all at once", gang(flat(2), a="RR"), ["a0 a1"]),
    Case("minimum zero is all surplus", gang(flat(0), a="RR"), ["a1", "a0"]),
    Case("below the minimum: everything", gang(flat(3), a="RRP"), ["a0 a1"]),
    Case("nothing runs", gang(flat(1), a="PX"), []),
    # b has 3/1, a 3/2: the higher ratio shrinks first; at 2/1 b still leads, then only a is above its
    # minimum.
    Case("the fuller subgroup first", gang(both(2), a="RRR", b="RRR"), ["b2", "b1", "a2", "a0 a1 b0"]),
    # Optional subgroups shrink before required ones.
    Case("optional before required", gang(both(1, a=1, b=0), a="RR", b="R"), ["b0", "a1", "a0"]),
    # Both are exactly at their minimum and K = 1: one whole member is surplus, and b is the last one by name.
    Case("a surplus subgroup goes whole", gang(both(1), a="RR", b="R"), ["b0", "a0 a1"]),
    Case("surplus pods before a surplus subgroup", gang(both(1), a="RRR", b="R"), ["a2", "b0", "a0 a1"]),
    # y has a surplus leaf, d; x is needed. After d nothing is surplus.
    Case(
        "nested: surplus inside a set", gang(nested(), a="R", b="R", c="RR", d="RR"), ["d0 d1", "a0 b0 c0 c1"]
    ),
    # No member of the root is satisfied: all pods leave, whatever is inside.
    Case("nested: torn everywhere", gang(nested(), a="RR", b="", c="R", d=""), ["a0 a1 c0"]),
]


@pytest.mark.parametrize("case", CHAINS, ids=ids)
def test_eviction_units(case: Case) -> None:
    assert chain(case.gang) == case.expect


@st.composite
def trees(draw: st.DrawFn) -> Subgroup:
    """Small trees of any shape, with minimums from 0 to beyond what there is."""
    shapes = st.recursive(
        st.integers(0, 3),
        lambda below: st.tuples(st.integers(0, 3), st.lists(below, min_size=1, max_size=3)),
        max_leaves=8,
    )
    names = (f"s{i}" for i in count())

    def built(shape: object) -> Subgroup:
        name = next(names)
        if isinstance(shape, int):
            return leaf(name, shape)
        minimum, parts = cast("tuple[int, list[object]]", shape)
        return Subgroup(name, minimum, tuple(map(built, parts)), leaf=False)

    return tree(
        draw(st.integers(0, 3)), *[built(one) for one in draw(st.lists(shapes, min_size=1, max_size=3))]
    )


def met_of(subgroup: Subgroup, left: dict[str, list[str]]) -> int:
    """What counts for its minimum: pods, or members with their minimum."""
    if subgroup.leaf:
        return len(left[subgroup.name])
    return sum(met_of(child, left) >= child.minimum for child in subgroup.children)


def goes_next(subgroup: Subgroup, left: dict[str, list[str]]) -> list[str]:
    """5.4 as it is written: the surplus pod or subgroup that goes next, all counted anew."""

    def turn(child: Subgroup) -> tuple[object, ...]:
        met = met_of(child, left)
        if met < child.minimum:
            return (0, 0, 0.0, child.name)
        return (1, int(child.minimum == 0), met / (child.minimum or 1), child.name)

    if subgroup.leaf:
        return left[subgroup.name][-1:] if len(left[subgroup.name]) > subgroup.minimum else []
    members = sorted(subgroup.children, key=turn, reverse=True)
    whole = [child for child in members if met_of(child, left) >= child.minimum]
    surplus = whole if len(whole) > subgroup.minimum else []
    inside = [goes_next(child, left) for child in members if whole]
    outside = [[name for one in child.leaves() for name in left[one.name]] for child in surplus]
    return next(filter(None, inside + outside), [])


@given(trees(), st.data())
def test_units_are_what_goes_next_counted_anew_each_time(root: Subgroup, data: st.DataObject) -> None:
    names = [one.name for one in root.leaves()]
    left = {name: [f"{name}{i}" for i in range(data.draw(st.integers(0, 4)))] for name in names}
    one = gang(root, **{name: "R" * len(pods) for name, pods in left.items()})
    for unit in one.units(status):
        surplus = [met_of(pod_set, left) - pod_set.minimum for pod_set in one.top.leaves()]
        assert unit.elastic_state == (0 if min(surplus) < 0 else 2 if max(surplus) > 0 else 1)
        stood, going = met_of(one.top, left) >= one.top.minimum, [each.key.name for each in unit.pods]
        assert going == (goes_next(one.top, left) or [name for pods in left.values() for name in pods])
        left = {name: [pod for pod in pods if pod not in going] for name, pods in left.items()}
        assert unit.whole == (not stood or met_of(one.top, left) < one.top.minimum)
    assert not any(left.values())


@pytest.mark.parametrize("minimum", [0, 1])
def test_the_work_for_units_grows_with_the_subgroups(minimum: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice the subgroups: no more than about twice the looks at whether one has its minimum."""
    calls, satisfied = list[str](), units.satisfied
    monkeypatch.setattr(units, "satisfied", lambda one, met: calls.append(one.name) or satisfied(one, met))

    def looks(size: int) -> int:
        calls.clear()
        root = tree(0, *[leaf(f"s{i}-", minimum) for i in range(size)])
        assert len(gang(root, **{f"s{i}-": "RR" for i in range(size)}).units(status)) == 2 * size
        return len(calls)

    assert looks(128) < 2.5 * looks(64)


@given(trees(), st.data())
def test_a_gang_that_is_counted_on_is_offered_what_one_counted_anew_is(
    root: Subgroup, data: st.DataObject
) -> None:
    """Pods change their statuses one after the other; each is counted in all sets above it."""
    one = gang(root, **{leaf.name: "P" * data.draw(st.integers(0, 3)) for leaf in root.leaves()}, other="P")
    now = {each.key: each.status for each in (*one.pods, *one.unknown_subgroup_pods)}
    tally = one.tally(lambda each: now[each.key])
    changes = st.tuples(st.sampled_from([P, P, R, X, G, B, PodStatus.PIPELINED]), st.integers(0, 99))
    for after, which in data.draw(st.lists(changes, max_size=12)):
        following = one.state(lambda each: now[each.key], tally).batch
        placed = following.all_pods if following and after is R else (*one.pods, *one.unknown_subgroup_pods)
        changed = placed[which % len(placed)]
        before, now[changed.key] = now[changed.key], after
        tally = one.moved(tally, changed.subgroup or "default", before, after)
        anew = one.tally(lambda each: now[each.key])
        assert tally.offers == anew.offers
        assert all(tally.counts[name][:3] == counts[:3] for name, counts in anew.counts.items())
        assert repr(one.state(lambda each: now[each.key], tally).batch) == repr(
            one.state(lambda each: now[each.key], anew).batch
        )


def test_the_work_for_the_next_batch_does_not_grow_with_the_subgroups(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Once counted, a gang of many subgroups goes on from pod to pod with as many looks as a small one."""
    calls, stands = list[str](), units.stands
    monkeypatch.setattr(units, "stands", lambda one, *rest: calls.append(one.name) or stands(one, *rest))

    def looks(size: int) -> int:
        one = gang(tree(1, *[leaf(f"s{i}-", 1) for i in range(size)]), **{f"s{i}-": "P" for i in range(size)})
        now = {each.key: P for each in one.pods}
        tally = one.tally(lambda each: now[each.key])
        calls.clear()
        for _ in range(16):
            following = one.state(lambda each: now[each.key], tally).batch
            assert following is not None
            for each in following.all_pods:
                now[each.key] = R
                tally = one.moved(tally, each.subgroup or "", P, R)
        return len(calls)

    assert looks(128) == looks(32) <= 4 * 16


STATES = [
    Case("one subgroup below", gang(both(2), a="RRR", b="P"), 0),
    Case("exactly at the minimum", gang(both(2), a="RR", b="R"), 1),
    Case("one above", gang(both(2), a="RR", b="RR"), 2),
    Case("releasing pods do not count", gang(both(2), a="RRX", b="R"), 1),
    Case("minimum zero and nothing there", gang(flat(0), a="P"), 1),
]


@pytest.mark.parametrize("case", STATES, ids=ids)
def test_elastic_state(case: Case) -> None:
    assert case.gang.state(status).elastic_state == case.expect


def test_pods_that_name_an_unknown_subgroup_are_held_aside() -> None:
    """1.2: they are never placed and never counted, not even for readiness."""
    members = (pod("a0", group="g", subgroup="a"), pod("z0", group="g", subgroup="z"), pod("n0", group="g"))
    one = Gang(group("g", root=flat(2)), members)
    assert [each.key.name for each in one.unknown_subgroup_pods] == ["z0", "n0"]
    assert not one.state(status).ready
    assert batch(one) == ""


def test_every_group_has_one_gang() -> None:
    """A group without pods has one, too, and asking twice gives the same gang."""
    members = [pod("a1", group="a"), pod("a0", group="a"), pod("x", group=None)]
    gangs = Gangs(cluster(members, [group("a"), group("b")]))
    a, b = (gangs[group(name).key] for name in "ab")
    assert [one.key.name for one in a.pods] == ["a0", "a1"]
    assert b.pods == ()
    assert gangs[a.group.key] is a
    with pytest.raises(KeyError):
        gangs[group("c").key]


RACK = TopologyConstraint("dc", required="rack")
ALIKE: list[tuple[str, Subgroup, str]] = [
    # (how two equal groups of three pods wait, their tree, the pod set of all their pods)
    ("more pods than the minimum", flat(2), "a"),
    ("fewer pods than the minimum", flat(4), "a"),
    ("in one rack", tree(1, leaf("a", 2), constraint=RACK), "a"),
    ("in two sets", tree(1, flat(2), name="s"), "a"),
    ("one of two pod sets is enough", both(1), "a"),
    ("the other pod set has no pods", both(2), "a"),
    ("their pod set is unknown", flat(2), "z"),
]


@pytest.mark.parametrize("letter", "PRGX")
@pytest.mark.parametrize(("root", "subgroup"), [x[1:] for x in ALIKE], ids=[x[0] for x in ALIKE])
def test_groups_that_are_alike_stand_as_if_each_were_looked_at(
    root: Subgroup, subgroup: str, letter: str
) -> None:
    """The second of two equal groups gets its own pods in all that is known of the first."""
    node, status = "n1" if letter in "RX" else None, LETTERS[letter]
    members = [
        pod(f"{name}{i}", node, name, subgroup=subgroup, status=status) for name in "gh" for i in range(3)
    ]
    snapshot = cluster(
        members, [group(name, root=root) for name in "gh"], topologies=[Topology("dc", ("rack",))]
    )
    gangs = Gangs(snapshot)
    first = gangs[group("g").key]
    assert not {pod.group for unit in first.units_at_first for pod in unit.pods} - {first.group.key}
    assert first.stopped.batch is None or letter == "R"
    like, key = gangs[group("h").key], group("h").key
    alone = Gang(snapshot.group_by_key[key], snapshot.members[key])

    def stands(state: GangState) -> tuple[object, ...]:
        batch = state.batch
        found = batch and (batch.subgroup, batch.leaves[0][0], batch.all_pods)
        return state._replace(batch=None), found

    def told(one: Gang) -> tuple[object, ...]:
        return (
            *(one.group, one.pods, one.by_leaf, one.unknown_subgroup_pods, one.waiting, one.top.leaves()),
            *(stands(one.at_first), stands(one.stopped), one.units_at_first, one.lines),
        )

    assert told(like) == told(alone)


def test_only_groups_with_a_pending_pod_wait() -> None:
    """Groups whose pods run, leave or are gated do not wait."""
    members = [
        pod("c-0", group="c"),
        pod("c-1", "n1", group="c", status=R),
        pod("a-0", group="a"),
        pod("b-0", "n1", group="b", status=X),
        pod("b-1", group="b", status=G),
        pod("x", group=None),
    ]
    snapshot = cluster(members, [group("a"), group("b"), group("c")])
    assert [one.key.name for one in snapshot.waiting_groups] == ["a", "c"]


def test_a_whole_chain_of_batches_reaches_every_pod() -> None:
    """Batch after batch ends with all pods placed; the minimum comes first and at once."""
    one = gang(both(2, a=2, b=1), a="PPPP", b="PP")
    placed: set[str] = set()
    batches: list[str] = []

    def current(p: Pod) -> PodStatus:
        return PodStatus.ALLOCATED if p.key.name in placed else p.status

    while (found := one.state(current).batch) is not None:
        names = [each.key.name for each in found.all_pods]
        placed |= set(names)
        batches.append(" ".join(names))
    # 2/2 and 1/1 are equal, so the name decides: a; then a has 3/2 and b 1/1.
    assert batches == ["a0 a1 b0", "a2", "b1", "a3"]


# --- one pod set: the short way and the tree say the same ------------------------------------------


@given(st.integers(0, 4), st.text("PRXGSB", max_size=6), st.text("R", max_size=1))
def test_a_single_pod_set_fares_as_its_tree_says(minimum: int, letters: str, strange: str) -> None:
    short = gang(flat(minimum), a=letters, other=strange)
    long = gang(flat(minimum), a=letters, other=strange)
    long.__dict__["_only_leaf"] = None  # As if the tree had more to say.
    assert repr(short.state(status)) == repr(long.state(status)) == repr(short.at_first)
    assert short.units(status) == long.units(status) == short.units_at_first
    units = [" ".join(pod.key.name for pod in unit.pods) for unit in short.units(status)]
    assert units == chain(short)


@given(
    st.sampled_from([flat(0), flat(1), flat(3), both(1), both(2), nested(1), nested(2)]),
    *[st.text("PRXGSB", max_size=4) for _ in range(4)],
)
def test_batches_are_the_next_ones_after_each_other(root: Subgroup, a: str, b: str, c: str, d: str) -> None:
    one = gang(root, a=a, b=b, c=c, d=d)
    placed: set[str] = set()

    def current(p: Pod) -> PodStatus:
        return PodStatus.ALLOCATED if p.key.name in placed else p.status

    expected: list[list[str]] = []
    while (found := one.state(current).batch) is not None:
        expected.append([each.key.name for each in found.all_pods])
        placed.update(expected[-1])
    assert [[each.key.name for each in found.all_pods] for found in one.batches()] == expected
    units = [" ".join(pod.key.name for pod in unit.pods) for unit in one.units(status)]
    assert units == chain(one)


def test_a_set_that_needs_no_member_has_no_short_way() -> None:
    """With a minimum of 0 members the gang is satisfied whatever runs: no unit stops it."""
    one = gang(tree(0, leaf("a", 2)), a="RR")
    assert [unit.whole for unit in one.units(status)] == [False]
    assert [unit.whole for unit in gang(flat(2), a="RR").units(status)] == [True]
