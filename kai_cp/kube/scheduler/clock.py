"""When the scheduler looks again although nothing changed, for rules that depend on the time alone."""

from __future__ import annotations

from collections.abc import Iterator

from kai_cp.kube.scheduler.staleness import next_eviction, stale_groups
from kai_cp_models.plan import Plan
from kai_cp_models.pods import PodStatus
from kai_cp_models.queries.times import delay_seconds
from kai_cp_models.snapshot import Snapshot

UNPROVED_FIRST_SECONDS = 1.0
UNPROVED_LONGEST_SECONDS = 60.0


def next_look(snapshot: Snapshot, plan: Plan, stuck_seconds: float) -> float | None:
    """The next instant (seconds since the epoch) at which time alone may change a decision, or None.

    These are the ends of delays, protections and grace periods, pods that get stuck while they terminate, and
    the instants of the time axis.
    """
    now = snapshot.now
    waiting = bool(plan.unscheduled)
    instants: Iterator[float] = (
        instant
        for source in (
            _stale(snapshot, plan),
            () if plan.again_at is None else (plan.again_at,),
            _delays(snapshot) if waiting else (),
            _protections(snapshot) if waiting else (),
            _stuck(snapshot, stuck_seconds) if waiting else (),
        )
        for instant in source
    )
    return min((instant for instant in instants if instant > now), default=None)


def _stale(snapshot: Snapshot, plan: Plan) -> Iterator[float]:
    for key in stale_groups(snapshot, plan):
        group = snapshot.group_by_key[key]
        since = snapshot.now if group.stale_since is None else group.stale_since
        due = next_eviction(snapshot, group, since)
        if due is not None:
            # Annotations have whole seconds; a little later the grace period is over by both clocks.
            yield due + 0.05


def _delays(snapshot: Snapshot) -> Iterator[float]:
    for group in snapshot.groups:
        if (left := delay_seconds(snapshot, group)) is not None:
            yield snapshot.now + left


def _protections(snapshot: Snapshot) -> Iterator[float]:
    policy = snapshot.policy
    runtimes = {policy.default_preempt_min_runtime_seconds, policy.default_reclaim_min_runtime_seconds}
    for queue in snapshot.queues:
        runtimes |= {queue.preempt_min_runtime_seconds or 0.0, queue.reclaim_min_runtime_seconds or 0.0}
    runtimes.discard(0.0)
    if runtimes:
        for group in snapshot.groups:
            if group.last_start is not None:
                yield from (group.last_start + runtime for runtime in runtimes)


def _stuck(snapshot: Snapshot, stuck_seconds: float) -> Iterator[float]:
    if any(pod.status is PodStatus.RELEASING for pod in snapshot.pods):
        # The record does not show when each began to terminate; one look per threshold is enough.
        yield snapshot.now + stuck_seconds


def unproved_pause(looks: int) -> float:
    """Seconds until an unchanged snapshot whose plan was not proved best is tried again."""
    return float(min(UNPROVED_LONGEST_SECONDS, UNPROVED_FIRST_SECONDS * 2.0 ** min(looks, 16)))
