"""Which of two plans of one snapshot is better: the first goal in which they differ decides. And which stages
of a plan another one proves wrong.

Actions come in their order. Within an action, and within a queue of preempt, admission along the fair order
comes first, then the goals in force. Both plans are walked through together: as long as they agree, the fair
order is the same for both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import replace
from typing import Final, NamedTuple, TypeAlias

from kai_cp_models.actions.asking import line_of, waiting_groups
from kai_cp_models.actions.certificates import over_share
from kai_cp_models.actions.run import ActionRun
from kai_cp_models.cycle import Cycle
from kai_cp_models.fairness.book import QueueBook
from kai_cp_models.joint.goals import GOALS, Disruption, GoalList
from kai_cp_models.joint.policy import POLICIES
from kai_cp_models.joint.problem import Ask, ask_of
from kai_cp_models.ledger import Ledger
from kai_cp_models.plan import Plan
from kai_cp_models.pods import GroupKey, Pod, PodKey, PodStatus
from kai_cp_models.policy import ActionName
from kai_cp_models.reservations.prepare import prepare
from kai_cp_models.settings import Settings
from kai_cp_models.snapshot import Snapshot

Difference: TypeAlias = tuple[str, int]
"""What two plans differ in first, and -1 where the first is better, 1 the other, 0 neither."""
Stages: TypeAlias = Callable[[ActionName], Plan]
"""A plan as it is when an action has ended."""
NONE: Final[Difference] = ("", 0)


def first_difference(
    snapshot: Snapshot, one: Plan, other: Plan, settings: Settings, stages: Stages | None = None
) -> Difference:
    """What the plans differ in first; ``NONE`` where they do not, or where neither is better.

    ``stages``: the first plan as it is when an action has ended.

    A group may get what evictions leave over. Whether something is left over comes after the goals.
    """
    cycle = _begun(snapshot, one, settings)
    snapshot, begun = cycle.snapshot, cycle.ledger
    assumed: set[GroupKey] = set()
    for action in snapshot.policy.actions:
        if action == "allocate" and one.reservations != other.reservations:
            # What is promised comes first, and which promise is better is not looked at.
            return NONE
        here, there = _Given.of(snapshot, one, action, stages), _Given.of(snapshot, other, action)
        asks = {k: ask for k, ask in waiting_groups(cycle, action).items() if k not in assumed}
        # Victims are ranked as the action finds the queues, so what it admits is charged to a copy.
        book, left_over = cycle.ledger.book.copy(), NONE
        for part in _parts(cycle, action, asks):
            for key in _admissions(cycle, action, part, book, (here, there), assumed):
                better = here if here.pods[key] > there.pods[key] else there
                found = f"{action}: {key}", -1 if better is here else 1
                if action not in POLICIES or _by_right(cycle, action, part, key, book, better.after):
                    return found
                left_over = left_over if left_over[1] else found
            if action in POLICIES:
                mine, theirs = (_values(cycle, action, part, by.after, settings) for by in (here, there))
                if mine != theirs:
                    return f"{action}: goals", -1 if mine < theirs else 1
        if left_over[1]:
            return left_over
        if action in POLICIES and _disturbed(here.after, action) != _disturbed(there.after, action):
            # Equal by every goal and yet different: from here on the two plans continue differently.
            return NONE
        cycle.ledger = begun
        for past in snapshot.policy.actions[: snapshot.policy.actions.index(action) + 1]:
            cycle.ledger = _carried_out(cycle.ledger, here.after, past)
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


class _Given(NamedTuple):
    """What an action gives in a plan: how many pods of each group that waits.

    ``after``: the plan when the action has ended. ``perhaps``: groups that may have got a place there too, as
    only their last one is known: a later action took it back, or gave them one; allocate may have given the
    first where that action evicts nothing for them, and any other where it does.
    """

    pods: Counter[GroupKey | None]
    after: Plan
    perhaps: Set[GroupKey]

    @staticmethod
    def of(snapshot: Snapshot, plan: Plan, action: ActionName, stages: Stages | None = None) -> _Given:
        """What the action gives in the plan."""
        actions, pods = snapshot.policy.actions, snapshot.pod_by_key
        number = actions.index(action)
        before, after = (_stage(snapshot, plan, count, stages) for count in (number, number + 1))
        given = Counter(pods[key].group for key in _started(snapshot, after) - _started(snapshot, before))
        if stages:
            return _Given(given, after, frozenset())
        perhaps, named = _withdrawn(plan), _triggers(plan, action)
        for later in actions[number + 1 :]:
            again = served(snapshot, plan, later)
            perhaps |= again & named if action in POLICIES else again - _triggers(plan, later)
        return _Given(given, after, perhaps)

    def serves(self, key: GroupKey, pods: int) -> bool | None:
        """Whether the group gets so many pods; None: perhaps."""
        return self.pods[key] >= pods or (None if key in self.perhaps else False)


def _admissions(
    cycle: Cycle,
    action: ActionName,
    part: Mapping[GroupKey, Ask],
    book: QueueBook,
    plans: tuple[_Given, _Given],
    assumed: set[GroupKey],
) -> Iterator[GroupKey]:
    """The groups of the part of which only one plan serves a batch. What both serve before is charged to
    ``book``; groups that may have been served are added to ``assumed`` where the other plan serves them.
    """
    ledger, order = cycle.ledger, line_of(cycle.ledger, part, book)
    asks, asked, taken = dict(part), Counter[GroupKey](), set[PodKey]()

    def status_of(pod: Pod) -> PodStatus:
        return PodStatus.ALLOCATED if pod.key in taken else ledger.status(pod)

    while (key := order.pop()) is not None:
        ask = asks[key]
        asked[key] += len(ask.pods)
        served_by = [given.serves(key, asked[key]) for given in plans]
        if set(served_by) == {True, False}:
            yield key
            continue
        if True not in served_by:
            continue
        if None in served_by:
            assumed.add(key)
        book.charge(ask.group.queue, ask.asked, ask.group.preemptible)
        order.charged(ask.group.queue)
        taken.update(pod.key for pod in ask.pods)
        state = ask.gang.state(status_of)
        if action == "allocate" and state.batch is not None:
            asks[key] = ask_of(ledger, ask.gang, state.batch, state)
            order.push(key, asks[key].entry)


def _by_right(
    cycle: Cycle,
    action: ActionName,
    part: Mapping[GroupKey, Ask],
    key: GroupKey,
    book: QueueBook,
    plan: Plan,
) -> bool:
    """Whether the action may serve the group for what it disturbs in the plan: under reclaim, its queue is
    within its share once that is gone (formulation 1.3); else it may take some of that.

    ``book``: what queues hold with what was served before it.
    """
    run, ask = ActionRun(cycle, POLICIES[action], cycle.ledger, part), part[key]
    gone = _disturbed(plan, action)
    taken = [item for item in run.ranked if any(pod.key in gone for pod in item.pods)]
    if not run.policy.by_share:
        return not run.ranked.takes(ask).isdisjoint(item.rank for item in taken)
    left = book.copy()
    for item in taken:
        left.charge(item.group.queue, item.holds, item.group.preemptible, -1)
    return over_share(left, ask) is None


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


def _stage(snapshot: Snapshot, plan: Plan, count: int, stages: Stages | None) -> Plan:
    """The plan after the first ``count`` actions."""
    actions = snapshot.policy.actions
    if count and stages:
        return stages(actions[count - 1])
    return replace(plan, decisions=tuple(d for d in plan.decisions if d.action not in actions[count:]))


def _started(snapshot: Snapshot, plan: Plan) -> set[PodKey]:
    """Waiting pods that get a place."""
    pods = (snapshot.pod_by_key[one.pod] for one in plan.decisions if one.kind != "Evict")
    return {pod.key for pod in pods if pod.status is PodStatus.PENDING}


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
    victims = ActionRun(cycle, POLICIES[action], cycle.ledger, part)
    keys = served(cycle.snapshot, plan, action)
    asks = [ask for key, ask in victims.asks.items() if key in keys]
    after = _carried_out(cycle.ledger, plan, action)
    found = victims.disruption(after, victims.ranked, asks)
    return tuple(value for goal in victims.goals.entries for value in goal.value(found))


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
