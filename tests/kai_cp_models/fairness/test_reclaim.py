"""Reclaim rules on books made by hand; amounts are GPUs unless a case says otherwise, in a cluster of 12."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_cp_models.fairness import reclaim
from kai_cp_models.fairness.amounts import Amounts, Involved
from kai_cp_models.fairness.book import QueueBook
from kai_cp_models.fairness.reclaim import (
    TakenUnit,
    VictimFilter,
    can_reclaim,
    levelled,
    may_reclaim,
    reclaim_conceivable,
    validate,
    victim_allowed,
)
from kai_cp_models.pods import UNLIMITED
from kai_cp_models.snapshot import Queue, Shares
from tests.kai_cp_models.fairness.builders import cluster, group, node, pending, queue, running
from tests.support.brute import worlds

GPU_ONLY: Involved = (False, False, True)


def gpus(count: float) -> Amounts:
    return (0, 0, round(count * 1000))


def lost(name: str, *counts: float) -> list[TakenUnit]:
    return [(name, gpus(count), GPU_ONLY) for count in counts]


def book(queues: list[Queue], held: dict[str, float], asks: dict[str, float]) -> QueueBook:
    """A cluster of 12 GPUs whose queues hold these amounts and ask for these amounts more."""
    jobs = {name: group(f"job-{name}", name) for name in {**held, **asks}}
    members = [running(jobs[name], count) for name, count in held.items()]
    members += [pending(jobs[name], count) for name, count in asks.items()]
    return QueueBook.of(cluster([node(gpus=12)], queues, jobs.values(), *members))


def two_teams(*, a: float, b: float, asks: float, quota_a: float = 4, quota_b: float = 4) -> QueueBook:
    """Team a asks and team b holds. Both want 12, so each gets its quota and half the rest."""
    queues = [queue("a", quota=quota_a), queue("b", quota=quota_b)]
    return book(queues, {"a": a, "b": b} if a else {"b": b}, {"a": asks, "b": 12})


def test_can_reclaim_up_to_the_fair_share() -> None:
    # Fair shares 6 and 6 (quota 4 each, the surplus of 4 halved).
    state = two_teams(a=2, b=10, asks=10)
    assert can_reclaim(state, "a", gpus(4), preemptible=True) is None
    refusal = can_reclaim(state, "a", gpus(5), preemptible=True)
    assert refusal is not None
    assert refusal.message == "queue a: fair share 6 GPUs, used 2, needs 5"


def test_non_preemptible_batches_stay_within_quota() -> None:
    state = two_teams(a=0, b=12, asks=10)
    assert can_reclaim(state, "a", gpus(4), preemptible=False) is None
    refusal = can_reclaim(state, "a", gpus(5), preemptible=False)
    assert refusal is not None
    assert refusal.message == "queue a: quota 4 GPUs, used by non-preemptible pods 0, needs 5"


def test_every_resource_is_tested_even_if_not_asked_for() -> None:
    # a holds CPUs although its share of them is 0 (limit 0), so it cannot reclaim a GPU.
    queues = [queue("a", quota=4, limits=Shares(0, UNLIMITED, UNLIMITED)), queue("b")]
    state = book(queues, {"b": 12}, {"a": 4})
    assert can_reclaim(state, "a", gpus(1), preemptible=True) is None
    state.charge("a", (1, 0, 0), preemptible=True)
    refusal = can_reclaim(state, "a", gpus(1), preemptible=True)
    assert refusal is not None
    assert (refusal.resource, refusal.limit, refusal.used, refusal.requested) == (0, 0, 1, 0)


TREE = [
    queue("d0", quota=6),
    queue("d1", quota=6),
    queue("a", "d0", quota=3),
    queue("b", "d0", quota=3),
    queue("c", "d1", quota=3),
]


def test_levelled_pairs() -> None:
    state = book(TREE, {}, {})
    assert levelled(state, "a", "b") == ("a", "b")
    assert levelled(state, "a", "c") == ("d0", "d1")
    assert levelled(state, "a", "a") == ("a", "a")


@pytest.mark.parametrize(
    ("a", "b", "needs", "quota_b", "allowed"),
    [
        # a stays within its quota of 4. b must be above its own quota,
        (0, 5, 4, 4, True),
        # or not below it in any resource that a asks for: a queue exactly at its quota is considered, too,
        (0, 4, 4, 4, True),
        (0, 3, 4, 4, False),
        # and so is a queue whose quota is unlimited.
        (0, 3, 4, UNLIMITED, True),
        # a exceeds its quota (2 + 4 > 4), so only what b holds above its share of 6 may be taken.
        (2, 6, 4, 4, False),
        (2, 7, 4, 4, True),
    ],
)
def test_victim_filter(a: float, b: float, needs: float, quota_b: float, allowed: bool) -> None:
    state = two_teams(a=a, b=b, asks=12, quota_b=quota_b)
    assert victim_allowed(state, "a", gpus(needs), "b") is allowed


def test_victim_filter_looks_at_requested_resources_only() -> None:
    # b is exactly at its quota of GPUs and below its quota of CPUs, which matters only to a trigger that asks
    # for CPUs.
    cpus = Shares(4000, UNLIMITED, 4)
    state = book([queue("a", quota=4), queue("b", quotas=cpus)], {"b": 4}, {"a": 4})
    assert victim_allowed(state, "a", gpus(1), "b")
    assert not victim_allowed(state, "a", (1000, 0, 1000), "b")
    state.charge("b", (5000, 0, 0), preemptible=True)
    state.charge("b", gpus(1), preemptible=True, sign=-1)
    assert not victim_allowed(state, "a", gpus(1), "b")
    assert victim_allowed(state, "a", (1000, 0, 1000), "b")


def test_victim_filter_looks_at_departments_between_departments() -> None:
    # c itself is far above its quota of 3, but d1 with 5 is below its quota of 6, so d0 gets nothing from it.
    state = book(TREE, {"c": 5}, {"a": 6, "b": 6, "c": 6})
    assert not victim_allowed(state, "a", gpus(3), "c")
    state = book(TREE, {"c": 7}, {"a": 6, "b": 6, "c": 6})
    assert victim_allowed(state, "a", gpus(3), "c")


def test_each_queue_is_looked_at_once_for_all_that_stand_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight teams in each of two departments, all of which ask: a department or a team is tested once."""
    teams = [queue(f"{d}-{i}", d, quota=1) for d in ("d0", "d1") for i in range(8)]
    state = book([queue("d0", quota=6), queue("d1", quota=6), *teams], {}, {})
    tested: list[int] = []

    def looked_at(_book: QueueBook, i: int, *_: object) -> bool:
        tested.append(i)
        return True

    monkeypatch.setattr(reclaim, "_open", looked_at)
    victims = VictimFilter(state)
    for team in teams:
        found = victims.victims(state.index(team.name), [gpus(1)])
        assert (found >= 0).sum() == len(teams) - 1
    assert sorted(tested) == list(range(len(teams) + 2))


COUNTS = st.integers(0, 6)


@worlds(100)
@given(COUNTS, COUNTS, COUNTS, COUNTS, COUNTS, COUNTS, st.integers(1, 6))
def test_no_proof_excludes_a_reclaim_that_an_explanation_allows(
    a: int, b: int, quota_a: int, quota_b: int, gained: int, lost_by_a: int, needs: int
) -> None:
    """4.4 is stated twice: exactly for explanations and reasons, and, for proofs, as what may hold at some
    point of the cycle. Between the start of a cycle and the question, b was given pods and a lost some.
    """
    before = two_teams(a=a, b=b, asks=12, quota_a=quota_a, quota_b=quota_b)
    after = before.copy()
    after.charge("b", gpus(gained), True)
    after.charge("a", gpus(min(a, lost_by_a)), True, -1)
    given_to, taken_from = ([(0, 0, 0)] * len(before.held) for _ in range(2))
    for i in before.line("b"):
        given_to[i] = gpus(gained)
    for i in before.line("a"):
        taken_from[i] = gpus(min(a, lost_by_a))
    if may_reclaim(after, "a", gpus(needs), True, "b"):
        conceived = VictimFilter(before, taken_from, given_to)
        levels = conceived.victims(before.index("a"), [gpus(99), gpus(needs)])
        assert before.index("b") in levels.tolist()
    if can_reclaim(after, "a", gpus(needs), True) is None:
        assert reclaim_conceivable(before, "a", gpus(needs), lost=taken_from)


def test_units_are_taken_while_the_victim_is_above_its_share() -> None:
    # a: 2 + 4 is over its quota of 4 but within its fair share of 6; b's share is 6.
    state = two_teams(a=2, b=8, asks=10)
    assert validate(state, "a", gpus(4), True, lost("b", 1, 1)) is None
    # The test comes before the subtraction: the unit of 4 takes b from 7 to 3, below its share.
    assert validate(state, "a", gpus(4), True, lost("b", 1, 4)) is None
    # Nothing may be taken once b is down to 6.
    why = validate(state, "a", gpus(4), True, lost("b", 1, 1, 1))
    assert why == "queue b holds no more than its fair share; queue a would be over its quota"
    # Order matters: the large one first leaves b at 4.
    assert validate(state, "a", gpus(4), True, lost("b", 4, 1)) is not None


def test_quota_is_guaranteed_against_what_is_above_quota() -> None:
    # b: quota 4, share 6, holds 5: within its share, above its quota. If a is within its quota, it may take
    # from b
    state = two_teams(a=0, b=5, asks=10)
    assert validate(state, "a", gpus(4), True, lost("b", 1)) is None
    # down to the quota, no further,
    why = validate(state, "a", gpus(4), True, lost("b", 1, 1))
    assert why == "queue b holds no more than its quota and its fair share"
    # and nothing at all if a itself would exceed its quota.
    assert validate(state, "a", gpus(5), True, lost("b", 1)) is not None


def departments(*, d1: float, own: float = 0, quota: float = 6, weight: float = 1) -> QueueBook:
    """Departments d0 (trigger team a, neighbour b, which holds ``own``) and d1 (team c, which
    holds ``d1``).
    """
    queues = [
        queue("d0", quota=quota, weight=weight),
        queue("d1", quota=quota),
        queue("a", "d0", quota=UNLIMITED, weight=1),
        queue("b", "d0", quota=0),
        queue("c", "d1", quota=0),
    ]
    held = {"b": own, "c": d1} if own else {"c": d1}
    return book(queues, held, {"a": 12, "b": 12, "c": 12})


def test_the_reclaimers_department_must_end_less_saturated_once_above_its_share() -> None:
    # Shares of d0 and d1 are 6 each (quota 0, half of 12). d0 holds 4, a asks for 4 -> 8/6.
    # d1 holds 10 and loses one unit of 1: 9/6 stays above 8/6. Losing 2: 8/6 = 8/6 fails.
    state = departments(d1=10, own=4, quota=0)
    assert state.fair_share_of("d0").gpu == state.fair_share_of("d1").gpu == 6
    assert validate(state, "a", gpus(4), True, lost("c", 1)) is None
    why = validate(state, "a", gpus(4), True, lost("c", 1, 1))
    assert why is not None
    assert why == (
        "queue d0 would hold 1.33 times its fair share of GPU, queue d1 would be left with 1.33 times"
    )
    # With a multiplier 8/6 x 1.2 = 9.6/6 > 9/6.
    assert validate(state, "a", gpus(4), True, lost("c", 1), multiplier=1.2) is not None
    # Within its share a department is never refused here, whatever it takes: 4 + 2 = 6.
    assert validate(state, "a", gpus(2), True, lost("c", 1, 1, 1, 1), multiplier=9.0) is None


def test_units_taken_inside_the_department_lower_its_saturation() -> None:
    # d0 holds 7 and a asks for 3: 10/6 against 10/6 - 1 of d1. But 4 of the GPUs come from b inside d0: 6/6.
    state = departments(d1=10, own=7, quota=0)
    assert validate(state, "a", gpus(3), True, lost("c", 1)) is not None
    assert validate(state, "a", gpus(3), True, [*lost("b", 4), *lost("c", 1)]) is None


def test_units_taken_inside_the_department_bring_it_back_within_quota() -> None:
    # d0: quota 6, share 8, holds 7; d1: quota 2, share 4, holds 3. a asks for 3: d0 would have 10 > 6, so
    # nothing may be taken from d1, which is within its share. With 4 taken from b first, d0 ends at its
    # quota, and d1 is above its own.
    queues = [queue("d0", quota=6), queue("d1", quota=2), queue("a", "d0", quota=UNLIMITED)]
    queues += [queue("b", "d0"), queue("c", "d1")]
    state = book(queues, {"b": 7, "c": 3}, {"a": 12, "b": 12, "c": 12})
    assert [state.fair_share_of(name).gpu for name in ("d0", "d1")] == [8, 4]
    assert validate(state, "a", gpus(3), True, lost("c", 1)) is not None
    assert validate(state, "a", gpus(3), True, [*lost("b", 4), *lost("c", 1)]) is None


def test_only_siblings_are_compared() -> None:
    # The share of a is 3 (half of d0's 6). With 5 GPUs a is at 5/3 and its department at 5/6. d1 is left at
    # 9/6, less than 5/3, but d1 is no sibling of a.
    queues = [queue("d0"), queue("d1"), queue("a", "d0"), queue("b", "d0"), queue("c", "d1")]
    state = book(queues, {"c": 10}, {"a": 12, "b": 12, "c": 12})
    assert validate(state, "a", gpus(5), True, lost("c", 1)) is None


def test_saturation_looks_at_involved_resources_only() -> None:
    state = departments(d1=10, own=4, quota=0)
    units = lost("c", 2)
    assert validate(state, "a", gpus(4), True, units) is not None
    # A MIG trigger and MIG victims cost GPUs without involving them.
    mig = [("c", gpus(2), (False, False, False))]
    assert validate(state, "a", gpus(4), True, mig, trigger_involved=(False, False, False)) is None


def test_a_sibling_without_a_share_is_no_bar() -> None:
    # d1's GPU limit is 0, so its share is 0. d0's limit is 12, and a takes it far above its share.
    queues = [queue("d0"), queue("d1", limit=0), queue("a", "d0"), queue("c", "d1")]
    state = book(queues, {"c": 10}, {"a": 12})
    state.charge("a", gpus(5), preemptible=True)
    assert validate(state, "a", gpus(12), True, lost("c", 10)) is None


def test_a_non_preemptible_trigger_keeps_quota_at_every_level() -> None:
    # The quota of a is unlimited, that of its department is 2.
    state = departments(d1=12, quota=2)
    assert validate(state, "a", gpus(2), False, lost("c", 2)) is None
    why = validate(state, "a", gpus(3), False, lost("c", 3))
    assert why == "queue d0: quota 2 GPUs, used by non-preemptible pods 0, needs 3"
    assert validate(state, "a", gpus(3), True, lost("c", 3)) is None


def test_validation_leaves_the_book_alone() -> None:
    state = departments(d1=10, own=4, quota=0)
    before = state.copy()
    validate(state, "a", gpus(4), False, lost("c", 1, 2))
    assert state.held == before.held
