"""Which pod groups an action considers, and what each asks for (4.1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Final, NamedTuple

from kai_cp_models.cycle import Cycle, Refusal
from kai_cp_models.fairness.book import QueueBook
from kai_cp_models.fairness.order import FairOrder, group_sort_key
from kai_cp_models.fairness.runtime import delayed
from kai_cp_models.joint.policy import POLICIES
from kai_cp_models.joint.problem import Ask, ask_of
from kai_cp_models.ledger import Ledger
from kai_cp_models.pods import GroupKey, PodStatus
from kai_cp_models.policy import ActionName
from kai_cp_models.reservations.times import TIMES
from kai_cp_models.snapshot import Snapshot
from kai_cp_models.units import Gang, GangState

DELAYED: Final = "PreemptionDelayNotElapsed"
_FIXED: Final = Refusal("NonPreemptible", "consolidation serves preemptible pod groups only", True)


class WaitingGroup(NamedTuple):
    """A pod group that waits.

    ``refusal``: what holds in every action. ``delay``: what holds in those that evict. ``ask``: its next
    batch. Each may be None.
    """

    gang: Gang
    refusal: Refusal | None
    delay: Refusal | None
    ask: Ask | None


def waiting_groups(cycle: Cycle, action: ActionName) -> dict[GroupKey, Ask]:
    """What every pod group asks for that ``action`` may serve (4.1); refusals are recorded."""
    ledger, known = cycle.ledger, _at_first(cycle.ledger)
    found = dict(known.asks)
    # Most groups are as in the snapshot, and nothing keeps them from asking in any action.
    changed = (key for key in (*ledger.touched, *cycle.left_out) if key in known.groups)
    for key in dict.fromkeys((*known.kept, *changed)):
        one: WaitingGroup | None = known.groups[key]
        if key in ledger.touched:
            gang = known.groups[key].gang
            one = _waiting(ledger, gang, ledger.state(gang))
        ask = None if one is None else _asking(cycle, action, one)
        if ask is None:
            found.pop(key, None)
        else:
            found[key] = ask
    return _within_depth(cycle, action, found)


def _asking(cycle: Cycle, action: ActionName, one: WaitingGroup) -> Ask | None:
    """What the group asks the action for; None where it is refused, or asks for nothing."""
    key, evicting, refusal = one.gang.group.key, POLICIES.get(action), one.refusal
    if key in cycle.left_out:
        cycle.waiting[key] = Refusal("InternalError", f"left out of {action}: {cycle.left_out[key]}")
        return None
    if evicting is not None and refusal is None:
        refusal = one.delay if evicting.may_lose or one.gang.group.preemptible else _FIXED
    if refusal is None:
        return one.ask
    before = cycle.waiting.get(key)
    # No action may evict for it until the delay is over, so the delay is the reason and not the missing
    # capacity.
    if before is None or (refusal.reason == DELAYED and before.reason == "NodeFragmented"):
        cycle.waiting[key] = refusal
    return None


class _AtFirst(NamedTuple):
    """All pod groups that wait in the snapshot, and the line of those that ask for something (``asks``).

    ``kept``: those that ask for nothing, or that something keeps from it in some action.
    """

    groups: Mapping[GroupKey, WaitingGroup]
    asks: Mapping[GroupKey, Ask]
    kept: Sequence[GroupKey]
    line: FairOrder


def _at_first(ledger: Ledger) -> _AtFirst:
    """How groups wait in the snapshot; computed once a cycle."""
    known: list[_AtFirst] = ledger.fixed.waiting
    if not known:
        groups = sorted(ledger.snapshot.waiting_groups, key=lambda group: group_sort_key(group, 0))
        gangs = (ledger.fixed.gangs[group.key] for group in groups)
        waiting = (_waiting(ledger, gang, gang.at_first) for gang in gangs)
        found = {one.gang.group.key: one for one in waiting if one is not None}
        asks = {key: one.ask for key, one in found.items() if one.ask is not None}
        movable = {key for key, ask in asks.items() if ask.kind.preemptible}
        kept = [key for key, one in found.items() if key not in movable or one.refusal or one.delay]
        line = FairOrder(ledger.snapshot, ledger.book, {key: ask.entry for key, ask in asks.items()})
        known.append(_AtFirst(found, asks, kept, line))
    return known[0]


def waiting_lines(ledger: Ledger) -> Mapping[GroupKey, WaitingGroup]:
    """All pod groups that wait in the snapshot, in the order of their leaves."""
    return _at_first(ledger).groups


def _waiting(ledger: Ledger, gang: Gang, state: GangState) -> WaitingGroup | None:
    """How the group waits in this state; None when no pod does."""
    if not state.pending:
        return None
    ask = None if state.batch is None else ask_of(ledger, gang, state.batch, state)
    refusal, delay = _refusal(ledger.snapshot, gang, state, ask), None
    if (left := delayed(ledger.snapshot, gang.group)) is not None:
        delay = Refusal(DELAYED, f"may evict others in {left:.0f} s (preemption delay)", True)
    return WaitingGroup(gang, refusal, delay, ask)


def _refusal(snapshot: Snapshot, gang: Gang, state: GangState, ask: Ask | None) -> Refusal | None:
    """The refusal of the group that holds in every action."""
    group = gang.group
    if group.queue not in snapshot.queue_by_name:
        return Refusal("QueueDoesNotExist", f"queue {group.queue or '(none)'} does not exist", True)
    if group.queue not in snapshot.leaf_queues:
        return Refusal("QueueNotLeaf", f"queue {group.queue} has child queues; leaf queues run pods", True)
    if group.backed_off:
        return Refusal("SchedulingBackoff", "schedulingBackoff is 1 and an earlier attempt failed", True)
    if state.batch is None:
        return Refusal("NotReady", f"the gang is not complete: {_incomplete(gang, state)}", True)
    times = snapshot.extras[TIMES]
    if times is not None and (delay := times.requeue_delay_left(group)) > 0:
        return Refusal(
            "RequeueDelay", f"its maximum run time ended it; it may start again in {delay:.0f} s", True
        )
    if ask is not None and ask.kind.shape.scoped and snapshot.policy.plugin("topology"):
        constraints = (scope.constraint for scopes, _ in ask.batch.leaves for scope in scopes)
        if problem := next((one.error for one in constraints if one is not None and one.error), ""):
            return Refusal("TopologyFragmented", problem, True)
    return None


def _incomplete(gang: Gang, state: GangState) -> str:
    """What the gang lacks to start, or to start one of its further subgroups, in words."""
    alive = {name: counts.active + counts.pending for name, counts in state.tally.items()}
    lacking = [leaf for leaf in gang.top.leaves() if alive[leaf.name] < leaf.minimum]
    words = [
        f"{'it' if gang.top.leaf else leaf.name} has {alive[leaf.name]} of {leaf.minimum} pods"
        for leaf in lacking
    ]
    gated = sum(pod.status is PodStatus.GATED for leaf in lacking for pod in gang.by_leaf[leaf.name])
    return ", ".join(words) + (f"; pods with scheduling gates, {gated} here, do not count" if gated else "")


def line_of(ledger: Ledger, asks: Mapping[GroupKey, Ask], book: QueueBook | None = None) -> FairOrder:
    """The asks in the fair order, as the book gives it. None: that of the ledger."""
    book, (_, first, _, line) = book or ledger.book, _at_first(ledger)
    if 2 * len(asks) < len(first):
        return FairOrder(ledger.snapshot, book, {key: ask.entry for key, ask in asks.items()})
    changed = (asks[key] for key in ledger.touched if key in asks)
    others = {ask.group.key: ask.entry for ask in changed if first.get(ask.group.key) is not ask}
    return line.fork(book, asks if others or len(asks) < len(first) else None, others)


def _within_depth(cycle: Cycle, action: ActionName, found: dict[GroupKey, Ask]) -> dict[GroupKey, Ask]:
    """The first ``queueDepthPerAction`` groups of every leaf queue (4.1)."""
    depth = cycle.snapshot.policy.queue_depth.get(action)
    if depth is None:
        return found
    seen, beyond = Counter[str](), set[GroupKey]()
    for ask in sorted(found.values(), key=attrgetter("entry")):
        seen[ask.group.queue] += 1
        if seen[ask.group.queue] > depth:
            beyond.add(ask.group.key)
    return {key: ask for key, ask in found.items() if key not in beyond}
