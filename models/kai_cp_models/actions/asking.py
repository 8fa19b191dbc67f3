"""Which pod groups an action considers, and what each asks for (4.1)."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Final, NamedTuple

from kai_cp_models.cycle import Cycle
from kai_cp_models.fairness.book import QueueBook
from kai_cp_models.fairness.order import FairOrder, group_sort_key
from kai_cp_models.joint.policy import POLICIES
from kai_cp_models.joint.problem import Ask, ask_of
from kai_cp_models.ledger import Ledger
from kai_cp_models.pods import GroupKey
from kai_cp_models.policy import ActionName
from kai_cp_models.refusal import Refusal
from kai_cp_models.reservations.times import TIMES
from kai_cp_models.snapshot import PodGroup
from kai_cp_models.units import Gang
from kai_cp_models.unready import DELAYS, delay_of, unready

logger = logging.getLogger(__name__)
_FIXED: Final = Refusal("NonPreemptible", "consolidation serves preemptible pod groups only")


class WaitingGroup(NamedTuple):
    """A pod group that waits.

    ``refusal``: what holds in every action. ``delay``: what holds in those that evict. ``ask``: its next
    batch. Each may be None.
    """

    group: PodGroup
    refusal: Refusal | None
    delay: Refusal | None
    ask: Ask | None


def waiting_groups(cycle: Cycle, action: ActionName) -> dict[GroupKey, Ask]:
    """What every pod group asks for that ``action`` may serve (4.1); refusals are recorded."""
    ledger, known, gangs = cycle.ledger, at_first(cycle.ledger), cycle.ledger.fixed.gangs
    found, changed = dict(known.asks), [*known.kept, *cycle.left_out]
    # Most groups are as in the snapshot and ask in every action, or places for all their pods are held.
    for key in ledger.touched:
        if key in found and ledger.served(gangs[key]):
            del found[key]
        else:
            changed.append(key)
    for key in filter(known.groups.__contains__, dict.fromkeys(changed)):
        one = _waiting(ledger, gangs[key]) if key in ledger.touched else known.groups[key]
        ask = None if one is None else _asking(cycle, action, one)
        if ask is None:
            found.pop(key, None)
        else:
            found[key] = ask
    return _within_depth(cycle, action, found)


def _asking(cycle: Cycle, action: ActionName, one: WaitingGroup) -> Ask | None:
    """What the group asks the action for; None where it is refused, or asks for nothing."""
    key, evicting, refusal = one.group.key, POLICIES.get(action), one.refusal
    if key in cycle.left_out:
        cycle.waiting[key] = cycle.left_out[key]
        return None
    if evicting is not None and refusal is None:
        refusal = one.delay if evicting.may_lose or one.group.preemptible else _FIXED
    if refusal is None:
        return one.ask
    before = cycle.waiting.get(key)
    # No action may evict for it until the delay is over, so the delay is the reason and not the missing
    # capacity.
    if before is None or (refusal.reason in DELAYS and before.reason == "NodeFragmented"):
        cycle.waiting[key] = refusal
    return None


class AtFirst(NamedTuple):
    """All pod groups that wait in the snapshot, in order (3.6), and the line of those that ask (``asks``).

    ``kept``: groups that ask for nothing, or may not ask in some action.
    """

    groups: Mapping[GroupKey, WaitingGroup]
    asks: Mapping[GroupKey, Ask]
    kept: Sequence[GroupKey]
    line: FairOrder


def at_first(ledger: Ledger) -> AtFirst:
    """How groups wait in the snapshot; computed once a cycle."""
    fixed = ledger.fixed
    if fixed.waiting is None:
        found = {one.group.key: one for one in _as_read(ledger) if one is not None}
        asks = {key: one.ask for key, one in found.items() if one.ask is not None}
        kept = [key for key, (one, *why, ask) in found.items() if not (ask and one.preemptible) or any(why)]
        line = FairOrder(ledger.snapshot, ledger.book, {key: ask.entry for key, ask in asks.items()})
        fixed.waiting = AtFirst(found, asks, kept, line)
    return fixed.waiting


def _as_read(ledger: Ledger) -> Iterator[WaitingGroup | None]:
    """How groups wait in the snapshot, in the order of their leaves; of equal groups only the first is
    examined."""
    snapshot, gangs = ledger.snapshot, ledger.fixed.gangs
    known, alike, timed = dict[int, Ask](), snapshot.alike, snapshot.extras[TIMES] is not None
    for group in sorted(snapshot.waiting_groups, key=lambda group: group_sort_key(group, 0)):
        # A back-off or a maximum run time belongs to a single group, whatever else is alike.
        like = None if group.backed_off or timed else known.get(alike[group.key])
        try:
            one = _waiting(ledger, gangs[group.key], first=True) if like is None else _as(like, ledger, group)
        except Exception as problem:
            # A defect costs only the group that it concerns.
            logger.exception("pod group %s cannot be read: report this defect with its trace", group.key)
            words = f"it cannot be read: {type(problem).__name__}: {problem}"
            one = WaitingGroup(group, Refusal("InternalError", words), None, None)
        if one is not None and one.ask is not None and one.refusal is None:
            known.setdefault(alike[group.key], one.ask)
        yield one


def _as(like: Ask, ledger: Ledger, group: PodGroup) -> WaitingGroup:
    """How a group waits that is equal to that of an ask; only promises are its own."""
    (_, _, elastic, *_), asked = like.entry
    ask = Ask(group, like.gangs, (group_sort_key(group, elastic), asked), like.kind)
    if like.pods[0].nominated_node is not None and ledger.promised(ask.pods):
        ask.entry = group_sort_key(group, elastic, promised=True), asked
    return WaitingGroup(group, None, delay_of(ledger.snapshot, group), ask)


def _waiting(ledger: Ledger, gang: Gang, *, first: bool = False) -> WaitingGroup | None:
    """How the group waits now, or ``first``: in the snapshot; None when no pod does."""
    state = gang.at_first if first else ledger.state(gang)
    if not state.pending:
        return None
    ask = None if state.batch is None else ask_of(ledger, gang, state.batch, state)
    refusal, delay = unready(ledger.snapshot, gang, state, ask), delay_of(ledger.snapshot, gang.group)
    return WaitingGroup(gang.group, refusal, delay, ask)


def line_of(ledger: Ledger, asks: Mapping[GroupKey, Ask], book: QueueBook | None = None) -> FairOrder:
    """The asks in the fair order of the book; None: of the ledger's book."""
    book, (_, first, _, line) = book or ledger.book, at_first(ledger)
    changed = asks.keys() & ledger.touched.keys()
    others = {key: asks[key].entry for key in changed if first.get(key) is not asks[key]}
    return line.fork(book, asks if others or len(asks) < len(first) else None, others)


def _within_depth(cycle: Cycle, action: ActionName, found: dict[GroupKey, Ask]) -> dict[GroupKey, Ask]:
    """The first ``queueDepthPerAction`` groups of every leaf queue (4.1)."""
    depth = cycle.snapshot.policy.queue_depth.get(action)
    if depth is None:
        return found
    seen = Counter[str]()
    for ask in sorted(found.values(), key=attrgetter("entry")):
        seen[ask.group.queue] += 1
        if seen[ask.group.queue] > depth:
            del found[ask.group.key]
    return found
