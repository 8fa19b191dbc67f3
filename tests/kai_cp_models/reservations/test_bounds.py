"""How long a pod group can wait at most: W + (k + 1) M, by hand."""

from __future__ import annotations

from typing import Any

from kai_cp_models.pods import GroupKey
from kai_cp_models.reservations.bounds import WaitBound, wait_bounds
from kai_cp_models.reservations.times import Times
from kai_cp_models.settings import Settings
from tests.support.times import runs, settings, stored, waits, world
from tests.support.worlds import cluster, node

HOUR = 3600.0
OLD = GroupKey("ns", "old")
LIMITED = {"notes": [("kai-cp/max-runtime", "2h")]}


def chosen(**more: Any) -> Settings:
    """A point an hour, at most ten; maxima are enforced; two holders."""
    return settings(
        aging={"step_seconds": 3600, "most_points": 10},
        max_runtime={"enforce": True},
        reservations={"most": 2, "after_seconds": 1800, **more},
    )


def bound(*others: Any, settings: Settings | None = None, **more: Any) -> WaitBound | None:
    old = waits("old", 1, 8, priority=50, **{**LIMITED, **more})
    snapshot = cluster(nodes=(node("n1"), node("n2")), **world(old, *others))
    return wait_bounds(Times(snapshot, settings or chosen())).get(OLD)


def test_aging_and_maxima_bound_the_wait() -> None:
    """Priorities reach 53, three points above old: W = 4 h. With one holder before it and M = 2 h: 4 + 2 * 2
    h.
    """
    vip = waits("vip", 1, 8, priority=53, **LIMITED)
    assert bound(vip) == WaitBound(8 * HOUR)


def test_a_holder_knows_the_holders_before_it() -> None:
    """old is a holder already, and no holder is before it: W + M."""
    other = waits("vip", 1, 8, priority=53, **LIMITED)
    notes = [("kai-cp/reservation", stored(30, {"n1": 8}, made=0)), *LIMITED["notes"]]
    assert bound(other, notes=notes) == WaitBound(6 * HOUR)


def test_a_late_reservation_counts() -> None:
    """old becomes a holder only after five hours, so W is five hours, not one."""
    assert bound(settings=chosen(after_seconds=18_000)) == WaitBound(9 * HOUR)


def test_a_job_without_a_limit_is_named() -> None:
    found = bound(runs("a", "n1", 8, lasts="1h"), runs("b", "n2", 8))
    assert found == WaitBound(None, "nothing limits the run time of ns/a and 1 more")


def test_priorities_that_waiting_never_reaches() -> None:
    found = bound(waits("vip", 1, 8, priority=61, **LIMITED))
    assert found is not None
    assert found.seconds is None
    assert "11 above its own" in found.why


def test_a_group_that_holds_no_place_has_no_bound() -> None:
    small = bound(settings=chosen(min_gpus=9))
    assert small == WaitBound(None, "it holds no places: 8 GPUs are fewer than 9")
    assert bound(settings=chosen(after_seconds=-1)) == WaitBound(None, "it holds no places")


def test_off_there_is_nothing() -> None:
    assert bound(settings=settings()) is None
