"""Existing volumes that are left for a claim, against a look at each of them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_cp_models.pods import LabelSelector, NodeTerms, PodKey, Requirement
from kai_cp_models.records.storage import Volume, VolumeClaim
from kai_cp_models.rules.stateful.storage import standing
from kai_cp_models.rules.stateful.storage.standing import StandingVolumes
from kai_cp_models.selectors import holds, reaches
from kai_cp_models.snapshot import Node
from tests.kai_cp_models.rules.stateful.build import snapshot

NODES = [Node(f"n{i}", (1, 1, 0, 9), {"host": f"n{i}", "zone": "a" if i < 2 else "b"}) for i in range(4)]
WORLD = snapshot([], NODES)
CLAIM = PodKey("ns", "c")
PLACES = [("host", "n1"), ("host", "n3"), ("zone", "a"), ("zone", "b"), ("zone", "none")]


def terms(place: tuple[str, str] | None) -> NodeTerms | None:
    return None if place is None else ((Requirement(place[0], "In", (place[1],)),),)


def volume(
    number: int, size: int, place: tuple[str, str] | None, modes: str, kept: str, disk: str = ""
) -> Volume:
    claim = {"": None, "mine": CLAIM, "other": PodKey("ns", "other")}[kept]
    affinity: Any = terms(place)
    return Volume(
        f"v{number}",
        "local",
        size,
        frozenset(modes),
        False,
        {"disk": disk} if disk else {},
        affinity,
        claim,
        "d",
        f"h{number}",
        size != 2,
    )


VOLUMES = st.lists(
    st.tuples(
        st.integers(1, 4),
        st.sampled_from([None, *PLACES]),
        st.sampled_from(["x", "xy"]),
        st.sampled_from(["", "", "", "other", "mine"]),
        st.sampled_from(["", "1", "2", "hdd"]),
        st.booleans(),
    ),
    max_size=8,
)


NEEDS = st.builds(
    Requirement,
    st.sampled_from(["disk", "none"]),
    st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]),
    st.lists(st.sampled_from(["1", "2", "ssd"]), max_size=2).map(tuple),
)
SELECTORS = st.none() | st.builds(LabelSelector, st.lists(NEEDS, max_size=2).map(tuple))


@given(VOLUMES, st.integers(1, 4), st.sampled_from(["x", "y"]), st.integers(1, 3), SELECTORS)
def test_volumes_that_are_left_and_reached_are_those_that_a_look_at_each_finds(
    drawn: list[tuple[int, tuple[str, str] | None, str, str, str, bool]],
    size: int,
    mode: str,
    most: int,
    selector: LabelSelector | None,
) -> None:
    """At most one volume is kept for the claim; it stands alone then, usable or not."""
    made = [volume(i, *one[:5]) for i, one in enumerate(drawn)]
    mine = [one for one in made if one.claim == CLAIM][-1:]
    made = [one for one in made if one.claim != CLAIM] + mine
    claim = VolumeClaim(CLAIM, None, "local", size, frozenset(mode), False, selector, None, None)
    suiting = mine or [one for one in made if one.claim is None and claim.fits(one)]
    suiting = sorted((one for one in suiting if one.usable), key=lambda one: (one.bytes, one.name))
    found = StandingVolumes(WORLD, {one.name: one for one in made})
    taken = {f"v{i}" for i, one in enumerate(drawn) if one[5]}.intersection(one.name for one in made)
    for name in taken:
        found.take(name)
    left = [one for one in suiting if one.name not in taken]
    near = [[one for one in left if reaches(one.affinity, node.name, node.labels)] for node in NODES]
    assert found.suit(claim) == bool(suiting)
    assert found.left(claim) == left
    assert found.best(claim, range(4), most) == {i: some[:most] for i, some in enumerate(near)}
    assert found.reached(claim, left=True).tolist() == [bool(some) for some in near]
    for name in taken:
        found.take(name, back=True)
    assert found.reached(claim, left=False).tolist() == [
        any(reaches(one.affinity, node.name, node.labels) for one in suiting) for node in NODES
    ]


@pytest.mark.parametrize("operator", ["In", "NotIn"])
def test_a_selector_of_named_values_asks_no_volume(operator: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of 20 claims names the label of one of 30 volumes."""
    asked: list[str | None] = []

    def counted(need: Requirement, value: str | None) -> bool:
        asked.append(value)
        return holds(need, value)

    monkeypatch.setattr(standing, "holds", counted)
    monkeypatch.setattr("kai_cp_models.selectors.holds", counted)
    found = StandingVolumes(WORLD, {f"v{i}": volume(i, 1, None, "x", "", str(i)) for i in range(30)})
    for i in range(20):
        selector = LabelSelector((Requirement("disk", operator, (str(i),)),))
        claim = VolumeClaim(
            PodKey("ns", f"c{i}"), None, "local", 1, frozenset("x"), False, selector, None, None
        )
        assert len(found.left(claim)) == (1 if operator == "In" else 29)
    assert asked == [None] * 20
