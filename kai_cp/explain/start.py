"""When a waiting pod group can start: the earliest known event at which a cycle admits it.

Events are declared ends, ends of minimum runtimes, and the end of the group's own preemption delay. The
date holds if declared ends are kept, nobody new comes, and what declares no end runs on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kai_cp.decisions import rfc3339
from kai_cp.explain.cycle import Cycles, Decided
from kai_cp.explain.draft import Json
from kai_cp.explain.operations import applied
from kai_cp.explain.raw import known_ends
from kai_cp_models.explain.blocking import Blocking
from kai_cp_models.explain.families import VICTIM_RULES, kind_of
from kai_cp_models.fairness.runtime import delayed, granted
from kai_cp_models.snapshot import ACTIVE_ALLOCATED, GroupKey


@dataclass(frozen=True)
class Start:
    """``at``: seconds since the epoch, None where no event admits the group. ``tried``: all events were."""

    at: float | None
    open_ends: int
    because: str
    tried: bool = True
    decided: Decided | None = None

    def document(self) -> Json:
        """As the explanation has it."""
        at = None if self.at is None else rfc3339(self.at)
        return {"at": at, "openEnds": self.open_ends, "because": self.because}


def start_of(cycles: Cycles, base: Decided, key: GroupKey, blocking: Blocking) -> Start:
    """The start of a group that waits."""
    ends = known_ends(base.draft.raw)
    now = base.snapshot.now
    open_ends = sum(end is None or end <= now for end in ends.values())
    lasting = next((s for s in blocking.sets if not any(kind_of(f) in VICTIM_RULES for f in s)), None)
    if lasting is not None:
        return Start(
            None, open_ends, f"no end of others helps: {', '.join(sorted(lasting))} would still refuse it"
        )
    times = sorted(
        {t for t, _ in _events(base, key) if t > now} | {e for e in ends.values() if e and e > now}
    )
    for when in times:
        if cycles.out_of_time():
            return Start(None, open_ends, "no estimate: time ended before all known events were tried", False)
        draft = applied(base.draft.raw, [{"op": "at", "now": rfc3339(when)}], now)
        decided = cycles.decide(draft)
        if decided.admits(key):
            return Start(when, open_ends, _because(base, key, ends, when), True, decided)
    shields = _shields(base, key)
    if open_ends:
        jobs = "1 running job declares" if open_ends == 1 else f"{open_ends} running jobs declare"
        return Start(None, open_ends, f"no estimate: {jobs} no end{shields}")
    if times:
        return Start(None, 0, f"no known end or date admits it{shields}")
    return Start(None, 0, "no estimate: nothing that is known to end would make room")


def _events(base: Decided, key: GroupKey) -> Iterator[tuple[float, str]]:
    """Ends of minimum runtimes and of the group's own preemption delay, each with its words."""
    snapshot = base.snapshot
    group = snapshot.group_by_key[key]
    left = delayed(snapshot, group)
    if left is not None:
        yield snapshot.now + left, "its preemption delay is over"
    if group.queue not in snapshot.leaf_queues:
        return
    for other in snapshot.groups:
        if other.key == key or other.last_start is None or other.queue not in snapshot.queue_by_name:
            continue
        if not any(pod.status in ACTIVE_ALLOCATED for pod in snapshot.members[other.key]):
            continue
        action = "preempt" if other.queue == group.queue else "reclaim"
        seconds = granted(snapshot, other.queue, "preempt" if action == "preempt" else "reclaim", group.queue)
        if seconds > 0:
            yield other.last_start + seconds, f"the minimum runtime of {other.key} is over"


def _because(base: Decided, key: GroupKey, ends: dict[str, float | None], when: float) -> str:
    words = [f"{group} ends (declared)" for group, end in sorted(ends.items()) if end == when]
    words += [why for at, why in _events(base, key) if at == when]
    more = f" and {len(words) - 2} more" if len(words) > 2 else ""
    return f"{', '.join(words[:2])}{more}; if declared ends are kept and nobody new comes"


def _shields(base: Decided, key: GroupKey) -> str:
    """The first known end of a protection, which is named even without an estimate."""
    soonest = min((event for event in _events(base, key) if event[0] > base.snapshot.now), default=None)
    return "" if soonest is None else f"; {soonest[1]} at {rfc3339(soonest[0])}"
