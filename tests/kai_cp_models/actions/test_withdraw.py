"""What happens to an action's evictions when a later action withdraws the place of one of its triggers."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from kai_cp_models.actions.withdraw import come_home, has_room_at_home, settle
from kai_cp_models.cycle import Eviction, MustStay
from kai_cp_models.joint.policy import PREEMPT
from kai_cp_models.ledger import Ledger
from kai_cp_models.pods import GroupKey, Pod, PodKey
from tests.support.worlds import cluster, fraction, pod, spec

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


def test_pods_come_home_together_or_not_at_all() -> None:
    """y has taken half of the place of x and z, so only one of them could return."""
    snapshot = cluster(
        [*(pod(name, "n1", spec=spec(4)) for name in ("x-0", "z-0")), pod("y-0", spec=spec(4))]
    )
    ledger = Ledger.of(snapshot)
    x, z, y = (snapshot.pod_by_key[PodKey("ns", name)] for name in ("x-0", "z-0", "y-0"))
    ledger.evict(x)
    ledger.evict(z)
    ledger.place(y, 0, pipelined=True)
    assert not come_home(ledger, [x, z])
    assert ledger.evicted.keys() == {x.key, z.key}
    assert y.key in ledger.held
    assert come_home(ledger, [x])
    assert not has_room_at_home(ledger, z)


def test_device_that_others_have_filled_takes_no_share_home() -> None:
    """x shares a device with y. Once another share has taken what x left, x has no room there."""
    shares = [pod(name, "n1", spec=fraction(), gpu_groups=("d",)) for name in ("x-0", "y-0")]
    snapshot = cluster([*shares, pod("w-0", spec=fraction())])
    ledger = Ledger.of(snapshot)
    x, w = (snapshot.pod_by_key[PodKey("ns", name)] for name in ("x-0", "w-0"))
    ledger.evict(x)
    assert has_room_at_home(ledger, x)
    ledger.place(w, 0, ("d",), pipelined=True)
    assert not come_home(ledger, [x])
    ledger.unplace(w)
    assert come_home(ledger, [x])
    assert not ledger.evicted
    assert not ledger.held
