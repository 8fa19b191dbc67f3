"""What happens to an action's evictions when a later action withdraws the place of one of its triggers."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from kai_cp_models.actions.withdraw import come_home, settle
from kai_cp_models.cycle import Eviction, MustStay
from kai_cp_models.joint.policy import PREEMPT
from kai_cp_models.ledger import Ledger
from kai_cp_models.pods import GroupKey, Pod, PodKey
from tests.support.worlds import cluster, pod

U, W = GroupKey("ns", "u"), GroupKey("ns", "w")


def settled(moves: Mapping[str, tuple[GroupKey, ...]], most: int) -> dict[str, tuple[GroupKey, ...]]:
    """The triggers of consolidation's ``moves`` that remain without u; ``most``: the most moves for one
    trigger.
    """

    def no_successor(_pod: Pod) -> tuple[GroupKey, ...]:
        return ()

    snapshot = cluster([pod(name, "n1") for name in moves], max_consolidation_preemptees=most)
    ledger = Ledger.of(snapshot)
    for one in snapshot.pods:
        ledger.evict(one)
    evicted = {PodKey("ns", name): Eviction("consolidation", some, "") for name, some in moves.items()}
    kept = settle(ledger, evicted, frozenset({U}), no_successor, PREEMPT)
    return {key.name: one.triggers for key, one in kept.items()}


def test_pods_moved_for_a_withdrawn_group_alone_return() -> None:
    assert settled({"x-0": (U,), "y-0": (U, W)}, 1) == {"y-0": (W,)}


def test_the_others_may_not_be_left_with_too_many_moves() -> None:
    """x and y moved for u and w together, one for each. For w alone either two moves are allowed, or u
    stays.
    """
    moves = {"x-0": (U, W), "y-0": (U, W)}
    assert settled(moves, 2) == {"x-0": (W,), "y-0": (W,)}
    with pytest.raises(MustStay) as stays:
        settled(moves, 1)
    assert U in stays.value.groups


def test_to_ask_whether_a_pod_could_return_changes_nothing() -> None:
    snapshot = cluster([pod("x-0", "n1")])
    ledger, (one,) = Ledger.of(snapshot), snapshot.pods
    ledger.evict(one)
    assert come_home(ledger, [one], keep=False)
    assert one.key in ledger.changed
    assert come_home(ledger, [one])
    assert not ledger.changed
