"""Which pod groups an action considers, and which batch each has in the fair order (4.1)."""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from typing import Final, NamedTuple

from kai_cp_models.cycle import Cycle, Refusal
from kai_cp_models.fairness.order import Entry, FairOrder, group_sort_key
from kai_cp_models.fairness.runtime import delayed
from kai_cp_models.joint.policy import POLICIES
from kai_cp_models.ledger import Ledger
from kai_cp_models.placement import NoPlace
from kai_cp_models.pods import GroupKey, PodStatus
from kai_cp_models.policy import ActionName
from kai_cp_models.reservations.times import TIMES
from kai_cp_models.snapshot import PodGroup, Snapshot
from kai_cp_models.units import Batch, Gang, GangState, StatusOf

DELAYED: Final = "PreemptionDelayNotElapsed"
_FIXED: Final = Refusal("NonPreemptible", "consolidation serves preemptible pod groups only", True)


class WaitingGroup(NamedTuple):
    """A pod group that waits, as the snapshot has it.

    ``refusal``: what holds in every action. ``delay``: what holds in those that evict. ``entry``: its batch
    in the fair order. Each may be None.
    """

    gang: Gang
    state: GangState
    refusal: Refusal | None
    delay: Refusal | None
    entry: Entry | None


def waiting_groups(cycle: Cycle, action: ActionName) -> dict[GroupKey, Batch]:
    """The next batch of every pod group that ``action`` may serve (4.1); refusals are recorded."""
    snapshot, ledger, evicting = cycle.snapshot, cycle.ledger, POLICIES.get(action)
    found: dict[GroupKey, Batch] = {}
    for key, one in _lines(ledger).items():
        gang, state, refusal, delay, _ = one
        if key in ledger.touched:
            state = gang.state(ledger.status)
            refusal = _refusal(snapshot, gang, state, ledger.status)
        if not state.pending:
            continue
        if key in cycle.left_out:
            words = f"left out of {action}: {cycle.left_out[key]}"
            cycle.waiting[key] = Refusal("InternalError", words)
            continue
        if evicting is not None and refusal is None:
            refusal = delay if evicting.may_lose or gang.group.preemptible else _FIXED
        if refusal is not None:
            before = cycle.waiting.get(key)
            # No action may evict for it until the delay is over, so the delay is the reason and not the
            # missing capacity.
            if before is None or (refusal.reason == DELAYED and before.reason == "NodeFragmented"):
                cycle.waiting[key] = refusal
            continue
        if state.batch is not None:
            found[key] = state.batch
    return _within_depth(cycle, action, found)


def _lines(ledger: Ledger) -> Mapping[GroupKey, WaitingGroup]:
    """All pod groups that wait in the snapshot, in the order of their leaves; computed once a cycle."""
    known: dict[GroupKey, WaitingGroup] = ledger.fixed.waiting
    if not known:
        snapshot, read = ledger.snapshot, attrgetter("status")
        groups = sorted(snapshot.waiting_groups, key=lambda group: group_sort_key(group, 0))
        for gang in [ledger.fixed.gangs[group.key] for group in groups]:
            group, state = gang.group, gang.at_first
            entry = None
            if state.batch is not None:
                entry = group_sort_key(group, state.elastic_state), ledger.asked(state.batch)
            refusal = _refusal(snapshot, gang, state, read)
            known[group.key] = WaitingGroup(gang, state, refusal, _delay(snapshot, group), entry)
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


def _delay(snapshot: Snapshot, group: PodGroup) -> Refusal | None:
    """Why the group may not disturb others yet."""
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
    scoped = [scope for scopes, _ in batch.leaves for scope in scopes]
    if not scoped or not snapshot.policy.plugin("topology"):
        return ""
    constraints = (scope.constraint for scope in scoped)
    return next((one.error for one in constraints if one is not None and one.error), "")


def entry_of(ledger: Ledger, group: PodGroup, batch: Batch) -> Entry:
    """The pod group's entry in the fair order, with its next batch (3.5, 3.6)."""
    one = _lines(ledger).get(group.key)
    if one is not None and one.entry and one.state.batch is batch and group.key not in ledger.touched:
        return one.entry
    state = ledger.state(ledger.fixed.gangs[group.key])
    return group_sort_key(group, state.elastic_state), ledger.asked(batch)


def entries_of(ledger: Ledger, batches: Mapping[GroupKey, Batch]) -> dict[GroupKey, Entry]:
    """The same of every group with the batch that it asks for."""
    groups = ledger.snapshot.group_by_key
    return {key: entry_of(ledger, groups[key], batch) for key, batch in batches.items()}


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
