"""Which of two plans of one snapshot is better: the first goal in which they differ decides. And which stages
of a plan another one proves wrong.

Actions come in their order. Within an action, and within a queue of preempt, admission along the fair order
comes first, then the goals in force. Both plans are walked through together: as long as they agree, the fair
order is the same for both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from typing import Final, TypeAlias

from kai_cp_models.actions.asking import line_of, waiting_groups
from kai_cp_models.actions.run import ActionRun
from kai_cp_models.cycle import Cycle
from kai_cp_models.fairness.book import QueueBook
from kai_cp_models.joint.goals import GOALS, Disruption, GoalList
from kai_cp_models.joint.policy import POLICIES
from kai_cp_models.joint.problem import Ask
from kai_cp_models.ledger import Ledger
from kai_cp_models.plan import Plan
from kai_cp_models.pods import MILLI, GroupKey, PodKey, PodStatus
from kai_cp_models.policy import ActionName
from kai_cp_models.reservations.prepare import prepare
from kai_cp_models.settings import Settings
from kai_cp_models.snapshot import Snapshot

Difference: TypeAlias = tuple[str, int]
"""What two plans differ in first, and -1 where the first is better, 1 the other, 0 neither."""
NONE: Final[Difference] = ("", 0)


def first_difference(snapshot: Snapshot, one: Plan, other: Plan, settings: Settings) -> Difference:
    """What the plans differ in first; ``NONE`` where they do not, or where neither is better.

    A group may get what evictions leave over. Whether something is left over comes after the goals.
    """
    cycle = _begun(snapshot, one, settings)
    snapshot = cycle.snapshot
    given: set[GroupKey] = set()
    for action in snapshot.policy.actions:
        if action == "allocate" and one.reservations != other.reservations:
            # What is promised comes first, and which promise is better is not looked at.
            return NONE
        asks = {k: ask for k, ask in waiting_groups(cycle, action).items() if k not in given}
        mine, theirs = served(snapshot, one, action), served(snapshot, other, action)
        # A place that a later action took back was given, too.
        mine, theirs = mine | _withdrawn(one) & theirs, theirs | _withdrawn(other) & mine
        more = [_further(snapshot, plan, action, given) for plan in (one, other)]
        if more[0] != more[1]:
            # Which of further batches and other groups comes first is not looked at.
            comparable = mine - given == theirs - given and (more[0] < more[1] or more[1] < more[0])
            return (f"{action}: further pods", -1 if more[1] < more[0] else 1) if comparable else NONE
        # Victims are ranked as the action finds the queues, so what it admits is charged to a copy.
        book = cycle.ledger.book.copy()
        left_over = NONE
        for part in _parts(cycle, action, asks):
            if not left_over[1] and (key := _admission(cycle, part, book, (mine, theirs), given)):
                found = f"{action}: {key}", -1 if key in mine else 1
                if action not in POLICIES or key in _triggers(one if key in mine else other, action):
                    return found
                left_over = found
            if action in POLICIES:
                here, there = (_values(cycle, action, part, plan, settings) for plan in (one, other))
                if here != there:
                    better = -1 if here < there else 1
                    return (f"{action}: goals", better) if left_over[1] in (0, better) else NONE
        if left_over[1]:
            return left_over
        if action in POLICIES and _disturbed(one, action) != _disturbed(other, action):
            # Equal by every goal and yet different: from here on the two plans continue differently.
            return NONE
        cycle.ledger = _carried_out(cycle.ledger, one, action)
    return NONE


def _parts(cycle: Cycle, action: ActionName, asks: Mapping[GroupKey, Ask]) -> list[dict[GroupKey, Ask]]:
    """The waiting groups that are decided together: all, or queue by queue where a queue's own groups are the
    victims. What such a queue loses goes to its own, so the first queue in which plans differ decides.
    """
    if action not in POLICIES or not POLICIES[action].own_queue:
        return [dict(asks)]
    found: dict[str, dict[GroupKey, Ask]] = {}
    order = line_of(cycle.ledger, asks)
    while (key := order.pop()) is not None:
        found.setdefault(asks[key].group.queue, {})[key] = asks[key]
    return list(found.values())


def _admission(
    cycle: Cycle,
    part: Mapping[GroupKey, Ask],
    book: QueueBook,
    served_by: tuple[Set[GroupKey], Set[GroupKey]],
    given: set[GroupKey],
) -> GroupKey | None:
    """The first group of the part that only one plan serves. Those before it are charged to ``book``, and
    added to ``given`` where they are served.
    """
    mine, theirs = served_by
    order = line_of(cycle.ledger, part, book)
    while (key := order.pop()) is not None:
        if (key in mine) != (key in theirs):
            return key
        if key in mine:
            given.add(key)
            group = part[key].group
            book.charge(group.queue, part[key].asked, group.preemptible)
            order.charged(group.queue)
    return None


def _begun(snapshot: Snapshot, plan: Plan, settings: Settings) -> Cycle:
    """The cycle when maximum run times have ended what they end, whatever comes then."""
    seen = prepare(snapshot, settings)[0]
    ledger = _carried_out(Ledger.of(seen, settings.rules), plan, "maxruntime")
    return Cycle(seen, settings, ledger, float("inf"))


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


def _triggers(plan: Plan, action: ActionName) -> set[GroupKey]:
    """The groups for which the action evicts or moves something."""
    return {key for d in plan.decisions if d.kind == "Evict" and d.action == action for key in d.triggers}


def _disturbed(plan: Plan, action: ActionName) -> set[PodKey]:
    return {d.pod for d in plan.decisions if d.kind == "Evict" and d.action == action}


def _values(
    cycle: Cycle, action: ActionName, part: Mapping[GroupKey, Ask], plan: Plan, settings: Settings
) -> tuple[int, ...]:
    """The plan's values of all goals in force, among the victims of a part of the action."""
    gone = _disturbed(plan, action)
    again = {d.pod for d in plan.decisions if d.kind != "Evict"}
    victims = ActionRun(cycle, POLICIES[action], cycle.ledger, part)
    lost = [all(p.key in gone - again for p in item.pods) for item in victims.ranked]
    # A plan that breaks rules may move pods that no group may disturb; no goal has a weight for them.
    moved = frozenset(gone & again & {pod.key for item in victims.ranked for pod in item.pods})
    keys = served(cycle.snapshot, plan, action)
    asks = [ask for key, ask in victims.asks.items() if key in keys]
    step = MILLI * settings.objective.lost_beyond_step_gpus
    plan = Disruption(victims.ranked, lost, moved, asks, step)
    return tuple(value for goal in victims.goals.entries for value in goal.value(plan))


def bettered(snapshot: Snapshot, plan: Plan, other: Plan, settings: Settings) -> Iterator[tuple[str, bool]]:
    """(stage of ``plan``, whether ``other`` is below its bound), for stages before which both are equal.

    ``other`` may come from any search and by any goals. A stage is passed over, with all that follow, whose
    value the plan itself does not have: it was solved for a part of the action, or backfill came after it.
    """
    cycle = _begun(snapshot, plan, settings)
    seen = cycle.snapshot
    for action in seen.policy.actions:
        after, instead = (_carried_out(cycle.ledger, one, action) for one in (plan, other))
        if action in POLICIES:
            if _gained(seen, after) != _gained(seen, instead):
                return
            victims = ActionRun(cycle, POLICIES[action], cycle.ledger, waiting_groups(cycle, action))
            keys = served(seen, plan, action)
            asks = [ask for key, ask in victims.asks.items() if key in keys]
            mine, theirs = (
                _by_stage(victims.goals, victims.disruption(one, victims.ranked, asks))
                for one in (after, instead)
            )
            for stage in plan.stages:
                if stage.action != action or stage.goal in ("", "admission"):
                    continue
                if mine.get(stage.goal) != stage.objective:
                    return
                yield f"{stage.name}: {stage.status}", theirs[stage.goal] < stage.bound
                if theirs[stage.goal] != stage.objective:
                    return
            if (part := _optimal_part(cycle, action, plan)) is not None:
                here, there = (_values(cycle, action, part, one, settings) for one in (plan, other))
                yield f"{action}: all goals", there < here
        if _places(after) != _places(instead):
            return
        cycle.ledger = after


def _optimal_part(cycle: Cycle, action: ActionName, plan: Plan) -> dict[GroupKey, Ask] | None:
    """The groups that were decided together, if the plan calls all goals of the action met as well as can be.

    Where the action served several parts, or reclaim more than one group, their goals are not those of all
    together.
    """
    stages = [stage for stage in plan.stages if stage.action == action]
    keys = served(cycle.snapshot, plan, action)
    parts = [one for one in _parts(cycle, action, waiting_groups(cycle, action)) if keys & one.keys()]
    several = len(parts) != 1 or (POLICIES[action].by_share and len(keys) != 1)
    return None if several or any(stage.status != "OPTIMAL" for stage in stages) else parts[0]


def _carried_out(ledger: Ledger, plan: Plan, action: ActionName) -> Ledger:
    """The ledger after the decisions of one action."""
    found, pods, index = ledger.copy(), ledger.snapshot.pod_by_key, ledger.snapshot.node_index
    mine = [one for one in plan.decisions if one.action == action]
    for one in mine:
        if one.kind == "Evict":
            found.leave(pods[one.pod])
    for one in mine:
        if one.kind != "Evict":
            found.leave(pods[one.pod])
            found.place(pods[one.pod], index[one.node], one.gpu_groups, pipelined=one.kind == "Nominate")
    return found


def _gained(snapshot: Snapshot, ledger: Ledger) -> set[PodKey]:
    return {key for key in ledger.held if snapshot.pod_by_key[key].status is PodStatus.PENDING}


def _places(ledger: Ledger) -> dict[PodKey, object]:
    return {key: (held.node, held.gpu_groups) for key, held in ledger.held.items()} | {
        key: None for key in ledger.evicted.keys() - ledger.held.keys()
    }


def _by_stage(goals: GoalList, plan: Disruption) -> dict[str, int]:
    """The plan's values by the names of stages."""
    every = (*GOALS.values(), *goals.entries)
    return {
        words: cost for goal in every for words, cost in zip(goal.costs(plan), goal.value(plan), strict=True)
    }
