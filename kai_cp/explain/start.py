"""When a waiting pod group can start: the earliest known event at which a cycle admits it.

Events are declared ends, ends of minimum runtimes, and the end of the group's own preemption delay. The date
holds if declared ends are kept, no new work comes, and pods without a declared end run on.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from kai_cp.decisions import rfc3339
from kai_cp.explain.cycle import Cycles, DecidedCycle
from kai_cp.explain.operations import applied
from kai_cp.explain.raw import known_ends
from kai_cp.explain.sentences import words
from kai_cp.json_types import Object
from kai_cp_models.pods import GroupKey
from kai_cp_models.queries.times import delay_seconds
from kai_cp_models.queries.why import Blocking, lasting, protected_until

Events = list[tuple[float, str]]
"""Times with what happens then."""


@dataclass(frozen=True)
class Start:
    """``at``: seconds since the epoch, None where no event admits the group. ``tried``: all events were."""

    at: float | None
    open_ends: int
    because: str
    tried: bool = True
    decided: DecidedCycle | None = None

    def document(self) -> Object:
        """As the explanation has it."""
        at = None if self.at is None else rfc3339(self.at)
        return {"at": at, "openEnds": self.open_ends, "because": self.because}


class Starts:
    """Starts on one snapshot; what many groups have in common is computed once."""

    def __init__(self, cycles: Cycles, base: DecidedCycle) -> None:
        self._cycles = cycles
        self._base = base
        self._now = base.snapshot.now
        self._guards: dict[str, Events] = {}

    @cached_property
    def _ends(self) -> dict[str, float | None]:
        return known_ends(self._base.draft.raw)

    @cached_property
    def _ending(self) -> Events:
        """Declared ends in the future."""
        ahead = ((end, group) for group, end in self._ends.items() if end is not None and end > self._now)
        return sorted((end, f"{group} ends (declared)") for end, group in ahead)

    @cached_property
    def _open_ends(self) -> int:
        return sum(end is None or end <= self._now for end in self._ends.values())

    def of(self, key: GroupKey, blocking: Blocking) -> Start:
        """The start of a group that waits."""
        count = self._open_ends
        group = self._base.snapshot.group_by_key[key]
        if stay := lasting(self._base.situation, group, blocking.sets):
            why = f"waiting for other jobs does not help against: {words(stay[0])}"
            return Start(None, count, why)
        events = sorted([*self._ending, *self._protections(key)])
        for when in sorted({at for at, _ in events}):
            if over := self._cycles.over():
                return Start(None, count, f"no estimate, not all known events were tried: {over}", False)
            ops = [{"op": "at", "now": rfc3339(when)}]
            decided = self._cycles.decide(applied(self._base.draft.raw, ops, self._now, at_once=True))
            if decided.admits(key):
                return Start(when, count, _because(events, when), True, decided)
        soonest = min(self._protections(key), default=None)
        shield = "" if soonest is None else f"; {soonest[1]} at {rfc3339(soonest[0])}"
        if count:
            jobs = "1 running job declares" if count == 1 else f"{count} running jobs declare"
            return Start(None, count, f"no estimate: {jobs} no end{shield}")
        if events:
            return Start(None, 0, f"no known end or date admits it{shield}")
        return Start(None, 0, "no estimate: nothing that is known to end would free enough")

    def _protections(self, key: GroupKey) -> Events:
        """Future ends of the group's preemption delay and of minimum runtimes."""
        snapshot = self._base.snapshot
        group = snapshot.group_by_key[key]
        left = delay_seconds(snapshot, group)
        own = [] if left is None else [(self._now + left, "its preemption delay is over")]
        if group.queue not in snapshot.leaf_queues:
            return own
        if group.queue not in self._guards:
            self._guards[group.queue] = self._guarded(group.queue)
        return own + self._guards[group.queue]

    def _guarded(self, queue: str) -> Events:
        return [
            (until, f"the minimum runtime of {key} is over")
            for until, key in protected_until(self._base.snapshot, queue)
        ]


def _because(events: Events, when: float) -> str:
    words = [why for at, why in events if at == when]
    more = f" and {len(words) - 2} more" if len(words) > 2 else ""
    return f"{', '.join(words[:2])}{more}; if declared ends are kept and nothing new comes"
