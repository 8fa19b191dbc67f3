"""Which of two plans of one snapshot is better: the first goal in which they differ decides.

Actions come in their order. Within an action, admission along the fair order comes first, then the goals in
force. Both plans are walked through together: as long as they agree, the fair order is the same for both.
"""

from __future__ import annotations

from kai_cp_models.actions.common import line_of, waiting_groups
from kai_cp_models.actions.victims import Victims
from kai_cp_models.cycle import Cycle
from kai_cp_models.joint.goals import Disruption
from kai_cp_models.joint.policy import POLICIES
from kai_cp_models.ledger import Ledger
from kai_cp_models.plan import Plan
from kai_cp_models.pods import MILLI, GroupKey, PodKey, PodStatus
from kai_cp_models.policy import ActionName
from kai_cp_models.settings import Settings
from kai_cp_models.snapshot import Snapshot


def first_difference(snapshot: Snapshot, one: Plan, other: Plan, settings: Settings) -> tuple[str, int]:
    """(what the plans differ in first, -1: ``one`` is better, 1: ``other`` is); ("", 0) where they do not."""
    cycle = Cycle(snapshot, settings, Ledger.of(snapshot, settings.rules), float("inf"))
    given: set[GroupKey] = set()
    for action in snapshot.policy.actions:
        asks = {k: ask for k, ask in waiting_groups(cycle, action).items() if k not in given}
        # Victims are ranked as the action finds the queues, so what it admits is charged to a copy.
        book = cycle.ledger.book.copy()
        order = line_of(cycle.ledger, asks).fork(book)
        mine, theirs = served(snapshot, one, action), served(snapshot, other, action)
        # A place that a later action took back was given, too.
        mine, theirs = mine | _withdrawn(one) & theirs, theirs | _withdrawn(other) & mine
        more = [_further(snapshot, plan, action, given) for plan in (one, other)]
        if more[0] != more[1]:
            # Which of further batches and other groups comes first is not looked at.
            comparable = mine - given == theirs - given and (more[0] < more[1] or more[1] < more[0])
            return (f"{action}: further pods", -1 if more[1] < more[0] else 1) if comparable else ("", 0)
        while (key := order.pop()) is not None:
            if (key in mine) != (key in theirs):
                return f"{action}: {key}", -1 if key in mine else 1
            if key in mine:
                given.add(key)
                group = snapshot.group_by_key[key]
                book.charge(group.queue, asks[key].asked, group.preemptible)
                order.charged(group.queue)
        if action in POLICIES:
            pair = [_values(cycle, action, plan, settings) for plan in (one, other)]
            if pair[0] != pair[1]:
                return f"{action}: goals", -1 if pair[0] < pair[1] else 1
            if _disturbed(one, action) != _disturbed(other, action):
                # Equal by every goal and yet different: from here on the two plans continue differently.
                return "", 0
        cycle.ledger.book = book
    return "", 0


def served(snapshot: Snapshot, plan: Plan, action: ActionName) -> set[GroupKey]:
    """Waiting groups that get a place in this action."""
    found = {d.pod for d in plan.decisions if d.kind != "Evict" and d.action == action}
    pods = (snapshot.pod_by_key[key] for key in found)
    return {p.group for p in pods if p.group is not None and p.status is PodStatus.PENDING}


def _further(snapshot: Snapshot, plan: Plan, action: ActionName, given: set[GroupKey]) -> set[PodKey]:
    """Waiting pods that get a place in this action, of groups that got one in an earlier one."""
    found = {d.pod for d in plan.decisions if d.kind != "Evict" and d.action == action and d.group in given}
    return {key for key in found if snapshot.pod_by_key[key].status is PodStatus.PENDING}


def _withdrawn(plan: Plan) -> set[GroupKey]:
    return {row.group for row in plan.unscheduled if row.reason == "Withdrawn"}


def _disturbed(plan: Plan, action: ActionName) -> set[PodKey]:
    return {d.pod for d in plan.decisions if d.kind == "Evict" and d.action == action}


def _values(cycle: Cycle, action: ActionName, plan: Plan, settings: Settings) -> tuple[int, ...]:
    gone = _disturbed(plan, action)
    again = {d.pod for d in plan.decisions if d.kind != "Evict"}
    victims = Victims(cycle, POLICIES[action], cycle.ledger, waiting_groups(cycle, action))
    lost = [all(p.key in gone - again for p in item.unit.pods) for item in victims.ranked]
    # A plan that breaks rules may move pods that no group may disturb; no goal has a weight for them.
    moved = frozenset(gone & again & {pod.key for item in victims.ranked for pod in item.unit.pods})
    keys = served(cycle.snapshot, plan, action)
    asks = [ask for key, ask in victims.asks.items() if key in keys]
    step = MILLI * settings.objective.lost_beyond_step_gpus
    return victims.goals.values(Disruption(victims.ranked, lost, moved, asks, step))
