"""Unready: why a pod group asks for nothing, even if capacity is free."""

from __future__ import annotations

from typing import Final

from kai_cp_models.fairness.runtime import delayed, doubted_until
from kai_cp_models.joint.problem import Ask
from kai_cp_models.pods import PodStatus
from kai_cp_models.refusal import Refusal
from kai_cp_models.reservations.times import TIMES
from kai_cp_models.shown import span
from kai_cp_models.snapshot import PodGroup, Snapshot
from kai_cp_models.units import Gang, GangState

DELAYED: Final = "PreemptionDelayNotElapsed"
DOUBTED: Final = "InVain"
DELAYS: Final = frozenset((DELAYED, DOUBTED))
"""Reasons of a group that may not evict others yet."""


def delay_of(snapshot: Snapshot, group: PodGroup) -> Refusal | None:
    """What keeps the group from evicting others yet."""
    if (left := delayed(snapshot, group)) is None:
        return None
    failures = group.notes.failures
    if failures is not None and doubted_until(snapshot, group) - snapshot.now >= left:
        words = f"the places of its pod came to nothing {failures.times} times in a row"
        return Refusal(DOUBTED, f"{words}; it gets what is free, and may evict others in {span(left)}")
    return Refusal(DELAYED, f"it may evict others in {span(left)} (preemption delay)")


def unready(snapshot: Snapshot, gang: Gang, state: GangState, ask: Ask | None) -> Refusal | None:
    """The refusal of the group that holds in every action."""
    group = gang.group
    if group.queue not in snapshot.queue_by_name:
        return Refusal("QueueDoesNotExist", f"queue {group.queue or '(none)'} does not exist")
    if group.queue not in snapshot.leaf_queues:
        return Refusal("QueueNotLeaf", f"queue {group.queue} has child queues; leaf queues run pods")
    if group.backed_off:
        return Refusal("SchedulingBackoff", "schedulingBackoff is 1 and an earlier attempt failed")
    if state.batch is None:
        return Refusal("NotReady", f"the gang is not complete: {_incomplete(gang, state)}")
    times = snapshot.extras[TIMES]
    if times is not None and (delay := times.requeue_delay_left(group)) > 0:
        return Refusal("RequeueDelay", f"its maximum run time ended it; it may start again in {delay:.0f} s")
    if ask is not None and ask.kind.shape.scoped and snapshot.policy.plugin("topology"):
        constraints = (scope.constraint for scopes, _ in ask.batch.leaves for scope in scopes)
        if problem := next((one.error for one in constraints if one is not None and one.error), ""):
            return Refusal("TopologyFragmented", problem)
    return None


def _incomplete(gang: Gang, state: GangState) -> str:
    """What the gang lacks to start, or to start one of its further subgroups, in words."""
    alive = {name: counts.active + counts.pending for name, counts in state.tally.counts.items()}
    lacking = [leaf for leaf in gang.top.leaves() if alive[leaf.name] < leaf.minimum]
    words = [
        f"{'it' if gang.top.leaf else leaf.name} has {alive[leaf.name]} of {leaf.minimum} pods"
        for leaf in lacking
    ]
    gated = sum(pod.status is PodStatus.GATED for leaf in lacking for pod in gang.by_leaf[leaf.name])
    return ", ".join(words) + (f"; pods with scheduling gates, {gated} here, do not count" if gated else "")
