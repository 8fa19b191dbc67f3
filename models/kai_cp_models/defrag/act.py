"""Carries out defragmentation: one step of the cheapest plan that meets the goal (section 8, mode ``act``).

Nothing is remembered between cycles. Each cycle looks at the cluster as it is and takes the first step of the
plan that is cheapest now. It takes no step outside the windows, while a pod waits for capacity or is
starting, while pods of the last step are not running again, or beyond the rate. A group that was moved stays
for an hour. Nothing moves into capacity that is held for others, and no step evicts more than a
PodDisruptionBudget allows.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Final

from kai_cp_models.budget import Budget
from kai_cp_models.cycle import Cycle, Eviction
from kai_cp_models.defrag.frontier import Move, Point, cheapest
from kai_cp_models.defrag.notes import HOUR, moved
from kai_cp_models.defrag.problem import Problem
from kai_cp_models.defrag.questions import BadQuestion, goal_of
from kai_cp_models.defrag.windows import opening
from kai_cp_models.ledger import Ledger
from kai_cp_models.plan import DefragReport, DefragState, Unscheduled
from kai_cp_models.pods import ACTIVE_ALLOCATED, UNLIMITED, GroupKey, PodStatus
from kai_cp_models.reasons import NOT_FOR_MOVES
from kai_cp_models.reservations.held import NAME as HELD
from kai_cp_models.shown import clock

_ON_THE_WAY: Final = (PodStatus.RELEASING, PodStatus.BINDING, PodStatus.PIPELINED)


@dataclass(frozen=True, slots=True)
class Looked:
    """The report, and the time at which a cycle may decide differently although nothing else has changed."""

    report: DefragReport | None = None
    again_at: float | None = None


def advance(cycle: Cycle, waiting: Sequence[Unscheduled], budget: Budget) -> Looked:
    """Take the next step if one is due. ``budget``: for the plan."""
    settings, now = cycle.settings.defrag, cycle.snapshot.now

    def said(
        state: DefragState, text: str, value: int = 0, goal: int = 0, again: float | None = None
    ) -> Looked:
        return Looked(DefragReport(settings.goal, value, goal, state, text), again)

    try:
        question, goal = goal_of(cycle.snapshot, settings.goal)
    except BadQuestion as refusal:
        return said("unknown", str(refusal))
    problem = Problem(cycle.snapshot, cycle.settings, question, within=_within_holds(cycle))
    value = problem.value({})
    if value >= goal:
        return said("met", f"{value} of {goal}", value, goal)
    if settings.mode == "report":
        return said("report", f"{value} of {goal}; nothing is moved in mode report", value, goal)
    if cycle.snapshot.policy.spreads:
        return said("closed", "placementStrategy spread: what is moved would be spread again", value, goal)
    opens = opening(settings.windows, now)
    if opens is None or opens > now:
        when = "never" if opens is None else f"at {clock(opens, now)}"
        return said("closed", f"the next window opens {when}", value, goal, opens)
    why = _waits(cycle, waiting)
    if why:
        return said("waits", why, value, goal)
    recent = sorted(at for group in cycle.snapshot.groups if (one := moved(group, now)) for at in one.at)
    point = cheapest(problem, goal, budget)
    if not isinstance(point, Point):
        return said("stuck", f"no plan reaches {goal} ({point})", value, goal)
    step = [move for move in point.plan if move.step == 1]
    if len(recent) + len(step) > settings.max_moves_per_hour:
        again = recent[0] + HOUR + 1 if recent else None
        text = f"{len(recent)} pods were moved in the last hour, {settings.max_moves_per_hour} may be"
        return said("rate", text, value, goal, again)
    text = f"{value} of {goal}: step 1 of {point.plan[-1].step}, {point.moves} restarts in all"
    if not _carry_out(cycle, step, _waited_for(cycle, waiting), text):
        why = "the next step has no place beside what is held or placed, or within limits of its queue"
        return said("stuck", why, value, goal)
    return said("moved", text, value, goal)


def _within_holds(cycle: Cycle) -> Ledger | None:
    """The ledger whose held capacity binds the moves; None where nothing is held."""
    return cycle.ledger if any(rule.name == HELD for rule in cycle.ledger.rules) else None


def _waits(cycle: Cycle, waiting: Sequence[Unscheduled]) -> str:
    """Why no step may be taken now; "" when one may be."""
    snapshot, now = cycle.snapshot, cycle.snapshot.now
    for row in waiting:
        if row.reason not in NOT_FOR_MOVES and not _too_large(cycle, row.group):
            return f"{row.group} waits for capacity ({row.reason})"
    for group in snapshot.groups:
        note = moved(group, now)
        running = sum(pod.status in ACTIVE_ALLOCATED for pod in snapshot.members[group.key])
        if note is not None and 0 <= running < note.pods:
            return f"{running} of {note.pods} pods of {group.key} run again"
    if cycle.decisions():
        return "others are placed or evicted in this cycle"
    for pod in snapshot.pods:
        if pod.status in _ON_THE_WAY and pod.spec.needs_gpu:
            return f"pod {pod.key} is on its way"
    return ""


def _too_large(cycle: Cycle, key: GroupKey) -> bool:
    """Whether the pods that would start together need more than all nodes together have, even if empty."""
    ledger = cycle.ledger
    batch = ledger.state(ledger.fixed.gangs[key]).batch
    if batch is None:
        return False
    asked = zip(*(pod.spec.requests for pod in batch.all_pods), strict=True)
    return any(sum(amounts) > has for amounts, has in zip(asked, ledger.fixed.table.owned, strict=True))


def _waited_for(cycle: Cycle, waiting: Sequence[Unscheduled]) -> frozenset[str]:
    """Queues whose limits keep pod groups waiting: pods that leave these queues may not return before those
    groups start."""
    snapshot = cycle.snapshot
    late = (snapshot.group_by_key[row.group].queue for row in waiting if row.reason == "OverLimit")
    names = {name for queue in late for name in snapshot.queue_path.get(queue, ())}
    limits = ((name, snapshot.queue_by_name[name].limit) for name in names)
    return frozenset(name for name, limit in limits if any(most != UNLIMITED for most in limit))


def _carry_out(cycle: Cycle, step: Sequence[Move], waited_for: Set[str], text: str) -> bool:
    """Evict the pods of the step and give them their new places. Do nothing if one of them does not fit, or
    would not start there within the limits of its queue. ``waited_for``: see ``_waited_for``."""
    snapshot, ledger = cycle.snapshot, cycle.ledger.copy()
    pods = [snapshot.pod_by_key[move.pod] for move in step]
    for pod in pods:
        ledger.evict(pod)
    for pod, move in zip(pods, step, strict=True):
        node = snapshot.node_index[move.target]
        group = snapshot.group_by_key[move.group]
        # The replacement of a pod that cannot be preempted starts while the old pod still serves.
        charge, path = ledger.fixed.charge(pod, node), snapshot.queue_path.get(group.queue, ())
        starts = bool(path) and not ledger.over_quota(group, (pod,), charge, lending=False)
        fits = ledger.fits_on(pod, node, now=not group.preemptible)
        if not (starts and fits and waited_for.isdisjoint(path)):
            return False
        ledger.place(pod, node, pipelined=True)
    cycle.ledger = ledger
    for pod in pods:
        cycle.evicted_by[pod.key] = Eviction("defrag", (), f"moved for {cycle.settings.defrag.goal}: {text}")
        cycle.placed_by[pod.key] = "defrag"
    return True
