"""Stale gang eviction: a gang that runs below its minimum for too long is evicted as a whole (4.8)."""

from __future__ import annotations

import time

from kai_cp_models.cycle import Cycle, Eviction
from kai_cp_models.joint.disaggregate import leave, may_leave
from kai_cp_models.snapshot import ACTIVE_ALLOCATED, ACTIVE_USED, PodGroup, PodStatus, Stage
from kai_cp_models.units import Gang


def stale(gang: Gang, cycle: Cycle) -> bool:
    """Whether the gang runs below its minimum now: no pod succeeded, some active, tree not satisfied.

    The whole tree is asked, so an optional subgroup that never started does not count (section 14: fix).
    """
    status_of = cycle.ledger.status
    if any(status_of(pod) is PodStatus.SUCCEEDED for pod in gang.pods):
        return False
    if not any(status_of(pod) in ACTIVE_USED for pod in gang.pods):
        return False
    return not gang.satisfied(gang.group.root, status_of, ACTIVE_USED)


def grace_over(group: PodGroup, cycle: Cycle) -> bool:
    """Whether the staleness grace period has passed since the gang was first seen stale."""
    grace = group.staleness_grace_seconds
    if grace is None:
        grace = cycle.snapshot.policy.default_staleness_grace_seconds
    if grace < 0:
        return False
    since = cycle.snapshot.now if group.stale_since is None else group.stale_since
    return cycle.snapshot.now - since >= grace


def evict_stale(cycle: Cycle) -> None:
    """Evict all active pods of every gang that is stale for longer than its grace period.

    A gang that a PodDisruptionBudget protects stays as a whole, where budgets are on.
    """
    started = time.monotonic()
    evicted = 0
    for group in cycle.snapshot.groups:
        # The clock is tested first: it settles all but a few groups at once.
        if not grace_over(group, cycle):
            continue
        gang = cycle.ledger.fixed.gangs[group.key]
        if not stale(gang, cycle):
            continue
        active = [pod for pod in gang.pods if cycle.ledger.status(pod) in ACTIVE_ALLOCATED]
        if not may_leave(cycle.ledger, active):
            continue
        for pod in active:
            leave(cycle.ledger, pod)
            evicted += 1
            if pod.status in ACTIVE_USED:
                cycle.evicted_by[pod.key] = Eviction(
                    "stalegangeviction",
                    (),
                    f"{group.key} runs below its minimum for longer than its grace period",
                )
    cycle.stages.append(
        Stage("stalegangeviction", "OPTIMAL", evicted, evicted, seconds=time.monotonic() - started)
    )
