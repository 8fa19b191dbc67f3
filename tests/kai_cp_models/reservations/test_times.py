"""When pods came to their places."""

from __future__ import annotations

import pytest

from kai_cp_models.pods import PodStatus
from kai_cp_models.reservations.times import Times
from tests.support.times import at, settings
from tests.support.worlds import cluster, group, pod


@pytest.mark.parametrize(
    ("created", "last_start", "last_eviction", "started", "status", "came"),
    [
        # A run is noted when it is bound, and its pods were created before.
        (-20, -10, None, None, PodStatus.BINDING, -10),
        (-20, -10, None, -9, PodStatus.RUNNING, -9),
        # What is noted is of a former run, or of the pods that the group had before.
        (-20, -30, None, None, PodStatus.BINDING, 0),
        (-20, -30, None, None, PodStatus.BOUND, 0),
        (-20, -30, None, -5, PodStatus.RUNNING, -5),
        (-60, -30, -25, None, PodStatus.BINDING, 0),
        (-20, None, None, None, PodStatus.BOUND, 0),
        # The kubelet says nothing of a pod that has run for long.
        (-20, -30, None, None, PodStatus.RUNNING, -30),
    ],
)
def test_a_pod_on_its_way_came_now_unless_its_run_is_noted(
    created: int,
    last_start: int | None,
    last_eviction: int | None,
    started: int | None,
    status: PodStatus,
    came: int,
) -> None:
    run, stopped = (None if one is None else at(one) for one in (last_start, last_eviction))
    one = group("g", last_start=run, last_eviction=stopped)
    more = {"created": at(created), "started": None if started is None else at(started), "status": status}
    snapshot = cluster([pod("g-0", "n1", **more)], [one])
    assert Times(snapshot, settings()).entered(one, snapshot.pods) == at(came)
