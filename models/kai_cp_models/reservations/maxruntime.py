"""Maximum run times: a group that has used its time is evicted whole, before any group is served (12.1)."""

from __future__ import annotations

import time

from kai_cp_models.cycle import Cycle, Eviction
from kai_cp_models.plan import Stage
from kai_cp_models.pods import ACTIVE_ALLOCATED
from kai_cp_models.reservations.times import Times
from kai_cp_models.shown import span


def end_overdue(cycle: Cycle, times: Times) -> None:
    """Evict every group whose enforced maximum has passed, preemptible or not."""
    started = time.monotonic()
    evicted = 0
    for group in cycle.snapshot.groups:
        if not times.runs(group) or not times.overdue(group):
            continue
        ran = span(times.now - times.start(group))
        for pod in cycle.snapshot.members[group.key]:
            if pod.status in ACTIVE_ALLOCATED and pod.node is not None:
                cycle.ledger.evict(pod)
                words = f"{group.key} has run for {ran}, which is its maximum"
                cycle.evicted_by[pod.key] = Eviction("maxruntime", (), words)
                evicted += 1
    cycle.stages.append(Stage("maxruntime", "OPTIMAL", evicted, evicted, seconds=time.monotonic() - started))
