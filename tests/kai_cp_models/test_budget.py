"""The work and the patience of an action, shared by its parts."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_cp_models.budget import LEAST_PART_WORK, LEAST_VAIN_WORK, MOST_PATIENT_WORK, Budget
from kai_cp_models.limits import LIMITS


def budget(work: float = 8.0, patience: float = 1.0, plain: float = 4.0) -> Budget:
    """An action of a cycle that may do ``work``, of which as much as the plain work may be in vain."""
    found = Budget(inf, patience, work, plain)
    found.begin(1.0)
    return found


def in_vain(spending: Budget, work: float) -> None:
    """A search that leads to nothing."""
    spending.spend(work)
    spending.in_vain(work)


def test_every_part_gets_the_same() -> None:
    """Four parts that search as long as they are allowed to do so for equally long: a quarter of 1.0 x 4."""
    spending = budget()
    found = []
    for left in (4, 3, 2, 1):
        spending.begin_part(left)
        found.append(spending.work_worth())
        in_vain(spending, found[-1])
    assert found == pytest.approx([1.0] * 4)


def test_a_part_leaves_its_savings_to_those_that_follow() -> None:
    """The first of two parts needs nothing, so the second one has all of it."""
    spending = budget()
    spending.begin_part(2)
    spending.begin_part(1)
    assert spending.work_worth() == pytest.approx(4.0)


def test_useful_work_is_shared_too() -> None:
    """Two parts of an action that may do 8 units: the first one stops after 4, however patient it is."""
    spending = budget(patience=100.0)
    spending.begin_part(2)
    spending.spend(4.0)
    assert spending.work_left() == 0.0
    spending.begin_part(1)
    assert spending.work_left() == pytest.approx(4.0)


def test_many_parts_each_have_enough_for_a_small_model() -> None:
    """None of a hundred parts is left without patience."""
    spending = budget(plain=0.0)
    spending.begin_part(100)
    assert spending.work_worth() == pytest.approx(LEAST_PART_WORK)


@given(st.floats(0.0, LEAST_VAIN_WORK - 2 * LEAST_PART_WORK))
def test_a_part_may_begin_a_small_model_whatever_was_spent_before(vain: float) -> None:
    """Its share is just what a model needs. (vain + 0.05) - vain is less than 0.05 for every third ``vain``,
    so the last bit of what earlier parts had spent decided whether this one could search."""
    spending = budget(plain=0.0)
    in_vain(spending, vain)
    spending.begin_part(100)
    assert not spending.ended(LIMITS.model_work)


def test_an_action_of_one_part_has_all() -> None:
    """The limits are those of the action itself, and a new action forgets the parts of the last one."""
    spending = budget()
    spending.begin_part(1)
    assert spending.work_worth() == pytest.approx(4.0)
    spending.begin_part(8)
    spending.begin(1.0)
    assert spending.work_worth() == pytest.approx(4.0)


def test_no_search_begins_once_half_of_the_patience_is_spent() -> None:
    """Of 4 units a part has spent 2 in vain, which is as much as is left; the part after it begins anew."""
    spending = budget()
    spending.begin_part(1)
    in_vain(spending, 1.9)
    assert not spending.ended(0.1)
    in_vain(spending, 0.2)
    assert spending.ended(0.1)
    assert spending.work_worth() == pytest.approx(1.9)
    spending.begin_part(1)
    assert not spending.ended(0.1)


@pytest.mark.parametrize(
    ("plain", "worth"),
    [(0.0, LEAST_VAIN_WORK), (2.0, 1.0), (MOST_PATIENT_WORK, 2.0), (40.0, 2.0)],
    ids=["small", "in proportion", "large", "no more than for a large one"],
)
def test_the_cluster_alone_decides_what_a_search_is_worth(plain: float, worth: float) -> None:
    """Half of the plain work, however large the budget is and whatever was done with success before."""
    for work in (0.5, 10.0):
        spending = budget(work=work, patience=0.5, plain=plain)
        spending.spend(0.4)
        assert spending.work_worth() == pytest.approx(worth)


def test_no_search_begins_without_work_for_it() -> None:
    """Patience would allow 4 units, and 0.3 are left."""
    spending = budget(work=1.0)
    spending.spend(0.7)
    assert not spending.ended(0.2)
    assert spending.ended(0.4)


def test_time_is_kept_for_the_plan_that_follows() -> None:
    """Of 10 s, 15 % before a plan was checked; then four times 0.2 s and twice 0.1 s. A plan with eight times
    as many decisions takes 1.25 x 8 x 0.2 s to be checked; with 40 times as many, more than may be kept. The
    proofs leave time to write."""
    spending = budget()
    spending.end_within(100.0, 110.0)
    assert spending.deadline == pytest.approx(108.5)
    spending.plan_took(0.2, 0.1, 50)
    assert spending.deadline == pytest.approx(109.0)
    spending.plan_has(60)
    assert spending.deadline == pytest.approx(109.0)
    spending.plan_has(400)
    assert spending.deadline == pytest.approx(107.8)
    spending.plan_has(2000)
    assert spending.deadline == pytest.approx(107.0)
    spending.plan_is_made()
    assert spending.deadline == pytest.approx(109.8)


def test_as_long_as_no_plan_was_checked_it_is_not_known_what_the_next_takes() -> None:
    """Decisions that come do not change what is kept, nor does their end."""
    spending = budget()
    spending.end_within(100.0, 110.0)
    spending.plan_has(2000)
    spending.plan_is_made()
    assert spending.deadline == pytest.approx(108.5)


def test_a_cycle_without_a_deadline_keeps_no_time() -> None:
    """A share of endless time is no number of seconds: nothing ends the cycle, nor a search in it."""
    spending = budget()
    spending.end_within(100.0, inf)
    spending.plan_took(0.2, 0.1, 50)
    spending.plan_has(60)
    assert spending.seconds_left() == inf
    spending.plan_is_made()
    assert not spending.passed()
