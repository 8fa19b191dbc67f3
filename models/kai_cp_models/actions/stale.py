"""Stale gang eviction: a gang that runs below its minimum for too long is evicted as a whole (4.8)."""

from __future__ import annotations

from collections.abc import Iterator

from kai_cp_models.cycle import Cycle
from kai_cp_models.ledger import Ledger
from kai_cp_models.pods import ACTIVE_USED, GroupKey, Pod, PodStatus
from kai_cp_models.units import Gang


def evict_stale(cycle: Cycle) -> None:
    """Evict all active pods of every gang that is stale for longer than its grace period."""
    cycle.end_groups("stalegangeviction", stale_groups(cycle.ledger))


def stale_groups(ledger: Ledger) -> Iterator[tuple[GroupKey, str]]:
    """Every pod group that is stale for longer than its grace period, with the sentence that says so."""
    snapshot = ledger.snapshot
    for group in snapshot.groups:
        grace = group.staleness_grace_seconds
        if grace is None:
            grace = snapshot.policy.default_staleness_grace_seconds
        since = snapshot.now if group.stale_since is None else group.stale_since
        # The clock settles all but a few groups at once.
        if 0 <= grace <= snapshot.now - since and _stale(ledger.fixed.gangs[group.key], ledger):
            yield group.key, f"{group.key} has run below its minimum for longer than its grace period"


def _stale(gang: Gang, ledger: Ledger) -> bool:
    """Whether the gang runs below its minimum now: no pod succeeded, some active, tree not satisfied.

    The whole tree is asked, so an optional subgroup that never started does not count (section 14: fix).
    """
    statuses = set(map(ledger.status, ledger.snapshot.members[gang.group.key]))
    if PodStatus.SUCCEEDED in statuses or ACTIVE_USED.isdisjoint(statuses):
        return False

    def counted(pod: Pod) -> PodStatus:
        """What is leaving counts here."""
        status = ledger.status(pod)
        return PodStatus.RUNNING if status in ACTIVE_USED else status

    return not gang.state(counted).satisfied
