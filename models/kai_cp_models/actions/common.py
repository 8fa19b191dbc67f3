"""Which pod groups an action considers, and which batch each has in the fair order (4.1)."""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from typing import Final, NamedTuple

from kai_cp_models.cycle import Cycle, Refusal
from kai_cp_models.fairness.order import Entry, FairOrder, group_sort_key
from kai_cp_models.fairness.runtime import delayed
from kai_cp_models.joint.policy import POLICIES
from kai_cp_models.joint.problem import leaves_with_scopes
from kai_cp_models.ledger import Ledger
from kai_cp_models.placement import NoPlace
from kai_cp_models.reservations.times import TIMES
from kai_cp_models.snapshot import ActionName, GroupKey, PodGroup, PodStatus, Snapshot
from kai_cp_models.units import Batch, Gang, GangState, StatusOf

DELAYED: Final = "PreemptionDelayNotElapsed"


class WaitingGroup(NamedTuple):
    """A pod group that waits, its position in the fair order, and the refusal that holds in every action, if
    any.
    """

    group: PodGroup
    state: GangState
    refusal: Refusal | None


def waiting_groups(cycle: Cycle, action: ActionName) -> dict[GroupKey, Batch]:
    """The next batch of every pod group that ``action`` may serve (4.1); refusals are recorded."""
    snapshot, ledger = cycle.snapshot, cycle.ledger
    found: dict[GroupKey, Batch] = {}
    for group, state, refusal in _lines(ledger):
        gang = ledger.fixed.gangs[group.key]
        if not ledger.untouched(gang):
            state = gang.state(ledger.status)
            refusal = _refusal(snapshot, gang, state, ledger.status)
        if not state.pending:
            continue
        if group.key in cycle.left_out:
            words = f"left out of {action}: {cycle.left_out[group.key]}"
            cycle.waiting[group.key] = Refusal("InternalError", words)
            continue
        refusal = refusal or _may_not_evict(snapshot, group, action)
        if refusal is not None:
            before = cycle.waiting.get(group.key)
            # No action may evict for it until the delay is over, so the delay is the reason and not the
            # missing capacity.
            if before is None or (refusal.reason == DELAYED and before.reason == "NodeFragmented"):
                cycle.waiting[group.key] = refusal
            continue
        if state.batch is not None:
            found[group.key] = state.batch
    return _within_depth(cycle, action, found)


def _lines(ledger: Ledger) -> list[WaitingGroup]:
    """All pod groups that wait in the snapshot; computed once a cycle."""
    known: list[WaitingGroup] = ledger.fixed.waiting
    if not known:
        snapshot, read = ledger.snapshot, attrgetter("status")
        gangs = [ledger.fixed.gangs[group.key] for group in snapshot.waiting_groups]
        known += [
            WaitingGroup(gang.group, gang.at_first, _refusal(snapshot, gang, gang.at_first, read))
            for gang in gangs
        ]
    return known


def _refusal(snapshot: Snapshot, gang: Gang, state: GangState, status_of: StatusOf) -> Refusal | None:
    """The refusal of the group that holds in every action."""
    group = gang.group
    if group.queue not in snapshot.queue_by_name:
        return Refusal("QueueDoesNotExist", f"queue {group.queue or '(none)'} does not exist", True)
    if group.queue not in snapshot.leaf_queues:
        return Refusal("QueueNotLeaf", f"queue {group.queue} has child queues; leaf queues run pods", True)
    if group.backed_off:
        return Refusal("SchedulingBackoff", "schedulingBackoff is 1 and an earlier attempt failed", True)
    if not state.ready:
        alive = sum(status_of(pod) is PodStatus.PENDING for pod in gang.pods)
        needed = sum(leaf.minimum for leaf in group.root.leaves())
        return Refusal(
            "NotReady",
            f"the gang is not complete: {alive} pending pods, the subgroups ask for {needed} in all",
            True,
        )
    times = snapshot.extras[TIMES]
    if times is not None and (delay := times.requeue_delay_left(group)) > 0:
        return Refusal(
            "RequeueDelay", f"its maximum run time ended it; it may start again in {delay:.0f} s", True
        )
    if state.batch is not None and (problem := _bad_topology(snapshot, state.batch)):
        return Refusal("TopologyFragmented", problem, True)
    return None


def _may_not_evict(snapshot: Snapshot, group: PodGroup, action: ActionName) -> Refusal | None:
    """Why the group may not disturb others in the action."""
    evicting = POLICIES.get(action)
    if evicting is None:
        return None
    if not evicting.may_lose and not group.preemptible:
        return Refusal("NonPreemptible", "consolidation serves preemptible pod groups only", True)
    left = delayed(snapshot, group)
    if left is not None:
        return Refusal(DELAYED, f"may evict others in {left:.0f} s (preemption delay)", True)
    return None


def no_place(failure: NoPlace) -> Refusal:
    """The refusal, without a proof, of a batch that found no place on the nodes."""
    reason = "TopologyFragmented" if failure.pod is None else "NodeFragmented"
    return Refusal(reason, failure.message, pod=failure.pod)


def _bad_topology(snapshot: Snapshot, batch: Batch) -> str:
    """Why a topology constraint of the batch has no domain with nodes; "" if it has one."""
    scoped = [scope for scopes, _ in leaves_with_scopes(batch) for scope in scopes]
    if not scoped or not snapshot.policy.plugin("topology"):
        return ""
    constraints = (scope.constraint for scope in scoped)
    return next((one.error for one in constraints if one is not None and one.error), "")


def entry_of(ledger: Ledger, group: PodGroup, batch: Batch) -> Entry:
    """The pod group's entry in the fair order, with its next batch (3.5, 3.6)."""
    state = ledger.state(ledger.fixed.gangs[group.key])
    return group_sort_key(group, state.elastic_state), ledger.asked(batch)


def entries_of(ledger: Ledger, batches: Mapping[GroupKey, Batch]) -> dict[GroupKey, Entry]:
    """The same of every group with the batch that it asks for."""
    groups, gangs, known = ledger.snapshot.group_by_key, ledger.fixed.gangs, ledger.fixed.entries
    found: dict[GroupKey, Entry] = {}
    for key, batch in batches.items():
        one, as_read = known.get(key), ledger.untouched(gangs[key])
        if one is None or one[0] is not batch or not as_read:
            one = batch, entry_of(ledger, groups[key], batch)
            if as_read:
                known[key] = one
        found[key] = one[1]
    return found


def line_of(ledger: Ledger, batches: Mapping[GroupKey, Batch]) -> FairOrder:
    """The groups in the fair order, as the ledger's queues give it, each with the batch that it asks for."""
    return FairOrder(ledger.snapshot, ledger.book, entries_of(ledger, batches))


def _within_depth(cycle: Cycle, action: ActionName, found: dict[GroupKey, Batch]) -> dict[GroupKey, Batch]:
    """The first ``queueDepthPerAction`` groups of every leaf queue (4.1)."""
    depth = cycle.snapshot.policy.queue_depth.get(action)
    if not depth:
        return found
    by_queue: dict[str, list[PodGroup]] = {}
    for key in found:
        group = cycle.snapshot.group_by_key[key]
        by_queue.setdefault(group.queue, []).append(group)
    kept: set[GroupKey] = set()
    for groups in by_queue.values():
        groups.sort(key=lambda g: entry_of(cycle.ledger, g, found[g.key])[0])
        kept |= {group.key for group in groups[:depth]}
    return {key: batch for key, batch in found.items() if key in kept}
