"""Stale gang eviction: a gang that runs below its minimum for too long is evicted as a whole (4.8)."""

from __future__ import annotations

from collections.abc import Iterator

from kai_cp_models.actions.ending import end_groups
from kai_cp_models.cycle import Cycle
from kai_cp_models.pods import ACTIVE_USED, GroupKey, Pod, PodStatus
from kai_cp_models.snapshot import PodGroup
from kai_cp_models.units import Gang


def stale(gang: Gang, cycle: Cycle) -> bool:
    """Whether the gang runs below its minimum now: no pod succeeded, some active, tree not satisfied.

    The whole tree is asked, so an optional subgroup that never started does not count (section 14: fix).
    """
    status_of = cycle.ledger.status
    statuses = set(map(status_of, cycle.snapshot.members[gang.group.key]))
    if PodStatus.SUCCEEDED in statuses or ACTIVE_USED.isdisjoint(statuses):
        return False

    def counted(pod: Pod) -> PodStatus:
        """What is leaving counts here."""
        status = status_of(pod)
        return PodStatus.RUNNING if status in ACTIVE_USED else status

    return not gang.state(counted).satisfied


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
    """Evict all active pods of every gang that is stale for longer than its grace period."""
    end_groups(cycle, "stalegangeviction", stale_groups(cycle))


def stale_groups(cycle: Cycle) -> Iterator[tuple[GroupKey, str]]:
    """Every pod group that is stale for longer than its grace period, with the sentence that says so."""
    for group in cycle.snapshot.groups:
        # The clock settles all but a few groups at once.
        if grace_over(group, cycle) and stale(cycle.ledger.fixed.gangs[group.key], cycle):
            yield group.key, f"{group.key} has run below its minimum for longer than its grace period"
