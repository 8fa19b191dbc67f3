"""Reclaim, preempt and consolidation: place waiting groups by evicting or moving others (4.3 to 4.7).

This module decides which groups are decided together, with which rights, and which groups follow from that.
The loop that admits is in ``admit``. Of several ways to decide, the best one is kept.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from functools import partial
from itertools import chain
from operator import attrgetter

from kai_cp_models.actions.admit import admit_all
from kai_cp_models.actions.asking import line_of, waiting_groups
from kai_cp_models.actions.backfill import backfill
from kai_cp_models.actions.certificates import Beside, over_share
from kai_cp_models.actions.eviction_plan import named_triggers
from kai_cp_models.actions.reclaim_bounds import inherited, overreaching
from kai_cp_models.actions.run import ActionRun
from kai_cp_models.cycle import Cycle, Eviction
from kai_cp_models.fairness.book import QueueBook
from kai_cp_models.joint.admission import RefusalCache
from kai_cp_models.joint.goals import GOALS, Disruption
from kai_cp_models.joint.policy import EvictionPolicy
from kai_cp_models.joint.problem import Ask
from kai_cp_models.joint.search import StageResult
from kai_cp_models.ledger import Ledger
from kai_cp_models.limits import LIMITS
from kai_cp_models.plan import FURTHER, Stage
from kai_cp_models.pods import GroupKey, Pod, PodKey
from kai_cp_models.refusal import Refusal

_Finished = Callable[[Ledger], Iterator[StageResult]]


def evict(cycle: Cycle, policy: EvictionPolicy) -> None:
    """Run the action: serve waiting groups in the fair order by evicting or moving what the action allows."""
    if not policy.may_lose and not cycle.snapshot.policy.consolidates:
        return
    started, runs = time.monotonic(), list[ActionRun]()
    parts = _parts(cycle, policy, waiting_groups(cycle, policy.name))
    while parts:
        runs += _never_worse(cycle, policy, parts.pop(0), len(parts))
    if policy.own_queue or not runs:
        _offer(cycle, policy)
    _record(cycle, policy, runs, time.monotonic() - started)


def _offer(cycle: Cycle, policy: EvictionPolicy) -> None:
    if cycle.evicted_by or "allocate" not in cycle.snapshot.policy.actions:
        backfill(cycle, policy.name)


def _never_worse(
    cycle: Cycle, policy: EvictionPolicy, asks: Mapping[GroupKey, Ask], left: int
) -> list[ActionRun]:
    """Decide these asks and those that follow from them; without models where that is better. What models
    choose may entitle others, so that more is lost or less is left over. ``left``: how many parts follow.
    """
    first = ActionRun(cycle, policy, cycle.ledger, asks)
    # Moves entitle no others.
    if not policy.may_lose or len(cycle.ledger.fixed.running.units) > LIMITS.weighed_units:
        return _followed(first, left)
    before = cycle.save()
    runs = _followed(first, left)
    found = [run.found for run in runs]
    searched = any(one.variables for one in found) or any(run.open_units is not None for run in runs)
    if not searched or any(one.too_large_to_weigh for one in found):
        return runs
    made = cycle.save()
    cycle.restore(before)
    cycle.budget = replace(made.budget, work=0.0)
    plain = _followed(first.again(), left)
    made.budget.cut |= cycle.budget.cut
    if not _ahead((cycle.ledger, plain), (made.ledger, runs)):
        cycle.restore(made)
        return runs
    cycle.budget = made.budget
    return plain


def _ahead(*both: tuple[Ledger, Sequence[ActionRun]]) -> bool:
    """Whether the first of two ways is better: it admits the first group in the fair order that only one of
    them serves, or serves the same for less by the goals. A group on left-over capacity is not admitted.
    """
    run = both[0][1][0]
    served = [{k: ask for k, ask in run.asks.items() if ask.pods[0].key in ledger.held} for ledger, _ in both]
    admitted = [{ask.group.key for one in runs for ask in one.found.asks} for _, runs in both]
    line = run.line.fork(book := run.base.book.copy())
    while (key := line.pop()) is not None:
        ask, (here, there) = run.asks[key], (key in asks for asks in served)
        if here and there:
            book.charge(ask.group.queue, ask.asked, ask.group.preemptible)
            line.charged(ask.group.queue)
        elif (here and key in admitted[0]) or (there and key in admitted[1]):
            return here
    mine, theirs = (
        [goal.value(run.disruption(ledger, run.ranked, list(asks.values()))) for goal in run.goals.entries]
        for (ledger, _), asks in zip(both, served, strict=True)
    )
    return mine < theirs


def _followed(run: ActionRun, left: int) -> list[ActionRun]:
    """Decide the asks of the run; then those whose places these got and, under reclaim, those entitled."""
    cycle, policy, start = run.cycle, run.policy, run.base
    runs, parts, withdrawn = list[ActionRun](), list[Set[GroupKey]]([run.asks.keys()]), set[PodKey]()
    while parts:
        cycle.budget.begin_part(left + len(parts))
        keys = parts.pop(0)
        if runs:
            # An earlier part may have served or disturbed these groups.
            waiting, served = waiting_groups(cycle, policy.name), cycle.sequence
            asks = {k: one for k, one in waiting.items() if k in keys and (policy.name, k) not in served}
            run = ActionRun(cycle, policy, cycle.ledger, asks)
        run, others = _decided(run)
        runs.append(run)
        if run.found.asks:
            _commit(run)
            cycle.budget.plan_has(len(cycle.ledger.evicted) + len(cycle.ledger.held))
            withdrawn |= (gone := run.base.held.keys() - cycle.ledger.held.keys())
            # With many units another run takes longer than it is worth; they ask in the next cycle.
            few = len(run.ranked) <= LIMITS.open_units
            further = {group for key in gone if few and (group := cycle.snapshot.pod_by_key[key].group)}
            if policy.by_share:
                # Those are within their share only because of what the admitted ones took.
                further |= _over_share(run, Beside(run).book) - _over_share(run, run.found.ledger.book)
            if further:
                parts.append(further)
            if again := run.refused & (others | run.undecided if few else others):
                # What the plan leaves may serve more of those that were decided beside it, and first plans
                # more of those that models had no work left for.
                parts.insert(0, again)
    found = [run.found for run in runs]
    if policy.by_share:
        admitted = [ask for one in found for ask in one.asks]
        owners = {item: takers for one in found for item, takers in one.owners.items()}
        cycle.overreaching = partial(overreaching, start, admitted, owners=owners, withdrawn=withdrawn)
    if not policy.own_queue:
        _offer(cycle, policy)
    return runs


def _decided(run: ActionRun) -> tuple[ActionRun, Set[GroupKey]]:
    """Decide the asks of the run: all together, or some first and the others, which it names, by rights."""
    before, others = run.cycle.waiting.copy(), set[GroupKey]()
    admit_all(run)
    while first := run.rightful:
        run.cycle.waiting.update(before)
        run = run.again()
        run.open, others = {key: run.asks[key] for key in first}, run.asks.keys() - first
        admit_all(run)
    if others:
        _admit_by_rights(run, others)
    else:
        _entitle(run)
    return run, others


def _admit_by_rights(run: ActionRun, keys: Set[GroupKey]) -> None:
    """Admit further groups beside the admitted ones. Those that may take the same units are decided together;
    besides pods that left already, only these may leave for them."""
    alike: dict[frozenset[int], dict[GroupKey, Ask]] = {}
    for ask in sorted((run.asks[key] for key in keys), key=attrgetter("entry")):
        alike.setdefault(run.ranked.takes(ask), {})[ask.group.key] = ask
    for takes, run.open in alike.items():
        run.open_units = takes | run.found.disturbed
        disturbed = map(run.ranked.__getitem__, run.found.disturbed - takes)
        run.stay = {pod.key for unit in disturbed for pod in unit.pods} - run.taken(run.found.ledger).keys()
        admit_all(run)


def _parts(
    cycle: Cycle, policy: EvictionPolicy, waiting: Mapping[GroupKey, Ask]
) -> list[Mapping[GroupKey, Ask]]:
    """The waiting groups in the parts that are decided together: under preempt one part for each queue, whose
    losses go to its own triggers, even if another queue comes first in the fair order (4.5).
    """
    if not policy.own_queue:
        return [waiting] if waiting else []
    parts: dict[str, dict[GroupKey, Ask]] = {}
    for key, ask in waiting.items():
        parts.setdefault(ask.group.queue, {})[key] = ask
    order, left = line_of(cycle.ledger, waiting), set(waiting)
    found: list[Mapping[GroupKey, Ask]] = []
    while left and (first := order.pop(left)) is not None:
        found.append(parts[waiting[first].group.queue])
        left.difference_update(found[-1])
    return found


def _entitle(run: ActionRun) -> None:
    """Continue with groups that the admitted ones may entitle, as KAI tests each group on the totals that
    earlier ones left (4.4). Among few units only, as each of them has all victims chosen anew.
    """
    if run.policy.by_share and run.found.asks and len(run.ranked) <= LIMITS.open_units:
        beyond = _over_share(run, Beside(run).book)
        run.open = {key: ask for key, ask in run.asks.items() if key in beyond}
        run.refusals, run.anew = RefusalCache(run.base, run.policy), True
        admit_all(run)


def _over_share(run: ActionRun, book: QueueBook) -> set[GroupKey]:
    """The refused triggers that are over their share where queues hold what ``book`` says."""
    kinds = (
        alike for alike in run.kinds.values() if over_share(book, next(iter(alike.values()))) is not None
    )
    return run.refused.intersection(chain.from_iterable(kinds))


def _commit(run: ActionRun) -> None:
    cycle, base, found, action = run.cycle, run.base, run.found, run.policy.name
    cycle.ledger = found.ledger

    def evicted(pod: Pod, owners: tuple[GroupKey, ...]) -> None:
        cycle.evicted_by[pod.key] = Eviction(action, owners, run.policy.message(owners))
        if pod.key in found.ledger.held:
            cycle.placed_by[pod.key] = action

    for pod, owners in named_triggers(run.ranked, found):
        changed = base.place_of(pod) != found.ledger.place_of(pod)
        if pod.key in found.ledger.evicted and (changed or pod.key not in base.evicted):
            evicted(pod, owners)
        elif not changed or pod.group is None or pod.key in base.evicted:
            continue
        elif pod.key in found.ledger.held:
            # A place that the action may have freed; its queue is charged for one already.
            cycle.placed_by[pod.key] = action
            cycle.sequence.setdefault((action, pod.group), -1)
        else:
            cycle.placed_by.pop(pod.key, None)
            words = f"its place of this cycle went to {owners[0]} ({action})"
            cycle.waiting[pod.group] = Refusal("Withdrawn", words)
    for item, owners in found.owners.items():
        for _, pod in inherited(item, base, found.ledger):
            evicted(pod, owners[:1])
    for ask in found.asks:
        cycle.admitted(action, ask.group.key, ask.pods)


def _told(run: ActionRun, ended: Ledger) -> _Finished:
    """The stages of a run as they are told later; what tells them keeps no ledger of the run. ``ended``: the
    ledger at the end of the action."""
    found, stages, objective = run.found, run.found.stages, run.cycle.settings.objective
    # The action disturbed no pod that is home by then.
    taken = {key: place for key, place in run.taken(found.ledger).items() if run.away(key, ended)}
    plan = partial(Disruption.of, found.ranked, taken, admitted=found.asks, objective=objective)
    goals = run.goals.entries if found.variables else (GOALS["lost_gpus"], GOALS["moved_pods"])

    def finished(ledger: Ledger) -> Iterator[StageResult]:
        """The stages with the values of the plan that led to ``ledger``. Left-over capacity, or what a later
        action frees, may give lost pods places after all; a goal that this changes, and those after it, are
        proved only where they are 0 then.
        """
        disruption, alike = plan(ledger=ledger), True
        costs = dict(chain.from_iterable(goal.costs(disruption).items() for goal in goals))
        for stage in stages:
            value = float(costs.get(stage.name, stage.objective))  # type: ignore[arg-type]
            alike &= value == stage.objective
            bound = stage.bound if alike else 0.0
            # Nothing is less than a bound.
            proved = value == bound or (alike and stage.proved)
            yield replace(stage, objective=value, bound=bound, proved=proved)

    return finished


def _record(cycle: Cycle, policy: EvictionPolicy, runs: Sequence[ActionRun], seconds: float) -> None:
    """Note what was decided."""
    refused = frozenset[GroupKey]().union(*(run.refused & cycle.waiting.keys() for run in runs))
    found, cycle.refused[policy.name] = [run.found for run in runs], refused
    variables, constraints = (max(map(attrgetter(n), found), default=0) for n in ("variables", "constraints"))
    # Proofs of refusals follow at the end of the cycle.
    first = Stage(policy.name, "admission", "FEASIBLE", len(refused), 0, 0, variables, constraints, seconds)
    cycle.stages.append(first.unproved(len(refused)))
    # Values are added up unless a run started from what another one left.
    apart, taking = all(run.open_units is None for run in runs), [one for one in runs if one.found.owners]
    complete = apart and all(one.complete for one in found)
    pursued = complete and all(run.found.variables for run in taking or runs)
    told = [_told(run, cycle.ledger) for run in taking or runs]
    cycle.telling[policy.name] = partial(_goals, first, told, apart=apart, complete=complete, pursued=pursued)


def _goals(
    first: Stage, told: Sequence[_Finished], ledger: Ledger, *, apart: bool, complete: bool, pursued: bool
) -> Iterator[Stage]:
    """The stages that follow the ``first`` of an action, with the values of the plan that led to ``ledger``.

    ``apart``: whether no run started from what another one left. ``complete``: see ``EvictionPlan``.
    ``pursued``: so is every run, by a model. A goal that such a run does not name, such as lost work at a
    priority that it lacks, is 0 there.
    """
    rows, parts = dict[str, tuple[float, float, bool]](), [list(finished(ledger)) for finished in told]
    named = [{stage.name for stage in stages} for stages in parts]
    for stage in chain.from_iterable(parts):
        # A goal that one run did not pursue has no sum.
        if not (pursued or all(stage.name in names for names in named)):
            complete = complete and stage.proved
            continue
        value, bound, proved = rows.get(stage.name, (0.0, 0.0, True))
        least = stage.bound if apart else min(0.0, stage.bound)
        rows[stage.name] = value + stage.objective, bound + least, proved and stage.proved and apart
    for goal, (value, least, proved) in rows.items():
        bound = value if proved else least
        numbers = value, bound, abs(value - bound) / max(1.0, abs(value)), first.variables, first.constraints
        yield Stage(first.action, goal, "OPTIMAL" if proved else "FEASIBLE", *numbers)
    if not complete:
        yield Stage(first.action, "", "FEASIBLE", gap=1.0, kind=FURTHER)
