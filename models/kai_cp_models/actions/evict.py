"""Reclaim, preempt and consolidation: place waiting groups by evicting or moving others (4.3 to 4.7).

One loop admits (formulation 1.3, 1.4). It takes the next triggers of the fair order that no certificate
refuses, looks at one proposal after the other, and keeps the best one: it serves the earlier triggers, or the
same ones for less by the goals. One proof of refusal serves a whole class of equal triggers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from functools import partial
from itertools import chain, product
from math import inf
from operator import attrgetter
from typing import TypeGuard

from kai_cp_models.actions.asking import line_of, waiting_groups
from kai_cp_models.actions.backfill import backfill
from kai_cp_models.actions.certificates import Beside, over_share, refusal
from kai_cp_models.actions.eviction_plan import (
    NOTHING_SUFFICES,
    OUT_OF_TIME,
    EvictionPlan,
    NoPlan,
    named_triggers,
)
from kai_cp_models.actions.first import first_plans
from kai_cp_models.actions.jointly import attempt, finish
from kai_cp_models.actions.reclaim_bounds import inherited, overreaching
from kai_cp_models.actions.run import ActionRun
from kai_cp_models.actions.simulation import simulate_all
from kai_cp_models.budget import MOST_PATIENT_WORK
from kai_cp_models.cycle import Cycle, Eviction
from kai_cp_models.fairness.book import QueueBook
from kai_cp_models.joint.admission import RefusalCache
from kai_cp_models.joint.policy import EvictionPolicy
from kai_cp_models.joint.problem import Ask
from kai_cp_models.ledger import Ledger
from kai_cp_models.limits import LIMITS
from kai_cp_models.plan import FURTHER, Stage
from kai_cp_models.pods import GroupKey
from kai_cp_models.policy import ActionName
from kai_cp_models.refusal import Refusal

_Proposal = tuple[Sequence[Ask], EvictionPlan | NoPlan]
"""What is proposed for the first triggers of a chunk, and which these are."""


def evict(cycle: Cycle, policy: EvictionPolicy) -> None:
    """Run the action: serve waiting groups in the fair order by evicting or moving what the action allows."""
    if not policy.may_lose and not cycle.snapshot.policy.consolidates:
        return
    started, runs = time.monotonic(), list[ActionRun]()
    parts = _parts(cycle, policy, waiting_groups(cycle, policy.name))
    for left, asks in zip(reversed(range(len(parts))), parts, strict=True):
        runs += _never_worse(cycle, policy, asks, left)
    if policy.own_queue or not parts:
        _offer(cycle, policy)
    found = [run.found for run in runs if run.found is not None]
    refused = frozenset[GroupKey]().union(*(run.refused & cycle.waiting.keys() for run in runs))
    apart = all(run.open_units is None for run in runs)
    _record(cycle, policy.name, refused, found, time.monotonic() - started, apart=apart)


def _offer(cycle: Cycle, policy: EvictionPolicy) -> None:
    if cycle.evicted_by or "allocate" not in cycle.snapshot.policy.actions:
        backfill(cycle, policy.name)


def _never_worse(
    cycle: Cycle, policy: EvictionPolicy, asks: Mapping[GroupKey, Ask], left: int
) -> list[ActionRun]:
    """Decide these asks and what follows from that; without models where that is better: what these choose
    may entitle others, which lose more, or leave less over. ``left``: how many parts come after this one.
    """
    before = cycle.save()
    runs = _followed(cycle, policy, asks, left)
    found = [run.found for run in runs if run.found is not None]
    searched = any(one.variables for one in found) or any(run.open_units is not None for run in runs)
    if not searched or any(one.too_large_to_weigh for one in found):
        return runs
    made = cycle.save()
    cycle.restore(before)
    cycle.budget = replace(made.budget, work=0.0)
    plain = _followed(cycle, policy, asks, left)
    made.budget.cut |= cycle.budget.cut
    if not _ahead((cycle.ledger, plain), (made.ledger, runs)):
        cycle.restore(made)
        return runs
    cycle.budget = made.budget
    return plain


def _ahead(*both: tuple[Ledger, Sequence[ActionRun]]) -> bool:
    """Whether the first of two ways is better: it admits the first group in the fair order that only one of
    them serves, or it serves the same for less by the goals. What gets what is left over is not admitted.
    """
    run = both[0][1][0]
    served = [{k: ask for k, ask in run.asks.items() if ask.pods[0].key in ledger.held} for ledger, _ in both]
    admitted = [{ask.group.key for one in runs for ask in one.admitted} for _, runs in both]
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


def _followed(
    cycle: Cycle, policy: EvictionPolicy, asks: Mapping[GroupKey, Ask], left: int
) -> list[ActionRun]:
    """Decide these asks, and under reclaim those that losses entitle."""
    start, runs, parts = cycle.ledger, list[ActionRun](), [asks]
    while parts:
        cycle.budget.begin_part(left + len(parts))
        # A part before may have served or disturbed these groups.
        asks = _asks_of(cycle, policy, parts.pop(0).keys()) if runs else parts.pop(0)
        run, others = _decided(cycle, policy, asks)
        runs.append(run)
        if run.found is not None:
            _commit(run, run.found)
            cycle.budget.plan_has(len(cycle.ledger.evicted) + len(cycle.ledger.held))
            if policy.by_share and (further := _entitled(run)):
                parts.append(further)
            # What the plan leaves may serve more of those that were decided beside it.
            if others and (again := _asks_of(cycle, policy, others & run.refused)):
                parts.insert(0, again)
    found = [run.found for run in runs if run.found is not None]
    if policy.by_share and found:
        admitted = [ask for one in found for ask in one.asks]
        owners = {item: takers for one in found for item, takers in one.owners.items()}
        withdrawn = start.held.keys() - found[-1].ledger.held.keys()
        cycle.overreaching = partial(overreaching, start, admitted, owners=owners, withdrawn=withdrawn)
    if not policy.own_queue:
        _offer(cycle, policy)
    return runs


def _decided(
    cycle: Cycle, policy: EvictionPolicy, asks: Mapping[GroupKey, Ask]
) -> tuple[ActionRun, Set[GroupKey]]:
    """Decide these asks: all together, or some first and the others, which are named, by their rights."""
    before = cycle.waiting.copy()
    _admit_all(run := ActionRun(cycle, policy, cycle.ledger, asks))
    others: Set[GroupKey] = frozenset()
    while first := _decided_alone(run):
        cycle.waiting.update(before)
        run = ActionRun(cycle, policy, cycle.ledger, asks)
        run.open, others = {key: asks[key] for key in first}, asks.keys() - first
        _admit_all(run)
    if others:
        _admit_by_rights(run, others)
    else:
        _entitle(run)
    return run, others


def rightful(
    asks: Sequence[Ask], lost: Set[int], takes_of: Callable[[Ask], frozenset[int]]
) -> frozenset[GroupKey]:
    """The first asks of a plan for which nothing is lost that only others have a right to (formulation 1.3);
    none where these are all of them.

    ``lost``: ranks of the lost units. An ask with a right to none of them is left out. So are the first that
    has a right to fewer than one before it, and all that follow: without it, that one may have taken others.
    """
    rights, kept = dict[frozenset[int], frozenset[int]](), list[GroupKey]()
    for ask in asks if lost else ():
        takes = takes_of(ask)
        if takes not in rights:
            mine = takes & lost
            if any(mine < one for one in rights.values()):
                break
            rights[takes] = mine
        if rights[takes]:
            kept.append(ask.group.key)
    return frozenset(kept if len(kept) < len(asks) else ())


def _decided_alone(run: ActionRun) -> frozenset[GroupKey]:
    """The asks that are decided alone first, see ``rightful``; none where the plan is too large to ask which
    units are best lost.
    """
    found = run.found
    if found is None or found.too_large_to_weigh:
        return frozenset()
    return rightful(found.asks, found.lost, run.takes_of)


def _admit_by_rights(run: ActionRun, keys: Set[GroupKey]) -> None:
    """Admit more groups beside what is admitted, those together that may take the same units: what is lost
    for them is lost already, or theirs to take.
    """
    alike: dict[frozenset[int], dict[GroupKey, Ask]] = {}
    for ask in sorted((run.asks[key] for key in keys), key=attrgetter("entry")):
        alike.setdefault(run.takes_of(ask), {})[ask.group.key] = ask
    for takes, run.open in alike.items():
        run.open_units = takes | (run.found.disturbed if run.found else set())
        _admit_all(run)


def _worth_trying(run: ActionRun) -> bool:
    """Whether the action may find anything in its time. In a large cluster where almost nothing is idle,
    none is spent on moves, because the evictions that follow need it.
    """
    cycle, ledger = run.cycle, run.base
    if run.policy.may_lose or cycle.budget.plain_work <= MOST_PATIENT_WORK:
        return not cycle.budget.passed()
    asked = sum(ask.asked[2] for ask in run.open.values())
    return ledger.free_milli_gpus() >= LIMITS.least_idle_share * asked


def _parts(
    cycle: Cycle, policy: EvictionPolicy, waiting: Mapping[GroupKey, Ask]
) -> list[Mapping[GroupKey, Ask]]:
    """The waiting groups that are decided together.

    Preempt works queue by queue: what a queue loses goes to its own triggers. They do not wait because
    another queue comes first in the fair order (4.5).
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
    """Go on with the groups that the admitted ones may entitle.

    KAI tests every group on the totals that the groups before it left (4.4). Where there are few units, the
    victims of the admitted groups are chosen anew with each group that is within its share only because of
    that choice.
    """
    if run.policy.by_share and run.found is not None and len(run.ranked) <= LIMITS.open_units:
        beyond = _over_share(run, run.book)
        run.open = {key: ask for key, ask in run.asks.items() if key in beyond}
        run.refusals, run.anew = RefusalCache(run.base, run.policy), True
        _admit_all(run)


def _over_share(run: ActionRun, book: QueueBook) -> set[GroupKey]:
    """The refused triggers that are over their share where queues hold what ``book`` says."""
    kinds = (
        alike for alike in run.kinds.values() if over_share(book, next(iter(alike.values()))) is not None
    )
    return run.refused.intersection(chain.from_iterable(kinds))


def _asks_of(cycle: Cycle, policy: EvictionPolicy, keys: Set[GroupKey]) -> dict[GroupKey, Ask]:
    """What these groups ask for now: those that the action served, nothing; those that lost pods may ask for
    something else.
    """
    asks, served = waiting_groups(cycle, policy.name), cycle.sequence
    return {key: ask for key, ask in asks.items() if key in keys and (policy.name, key) not in served}


def _entitled(run: ActionRun) -> dict[GroupKey, Ask]:
    """The refused triggers that are within their share only because of what the admitted ones took."""
    found = _over_share(run, run.book) - _over_share(run, run.ledger.book)
    return _asks_of(run.cycle, run.policy, found) if found else {}


def _admit_all(run: ActionRun) -> None:
    """Propose, simulate, compare, accept, until every trigger is decided or time has ended; then pursue all
    goals for what is admitted."""
    ended = partial(run.cycle.budget.ended, LIMITS.model_work)
    worth, before, most_passed = _worth_trying(run), run.found, inf
    while worth and run.open and not (run.begun and ended()) and (chunk := _next(run, most_passed)):
        best: _Proposal | None = None
        for asks, result in _proposals(run, chunk):
            if best is None or _better(run, chunk, result, best[1]):
                best = asks, result
        if best is None:
            # Other actions, or parts, will need the time that a few more triggers would take.
            break
        _take_over(run, *best)
        most_passed = LIMITS.passed_over if isinstance(best[1], NoPlan) else inf
    _refuse(run, list(run.open), OUT_OF_TIME)
    if run.found is not None and run.found is not before:
        run.found = finish(run, run.found)


def _next(run: ActionRun, most_passed: float) -> list[Ask]:
    """The next triggers, at most ``run.most``, in the fair order that holds if each gets its place.

    A trigger that a certificate refuses beside the admitted ones is refused. One that it refuses only beside
    others of the chunk is passed over, and looked at again once those have their places. ``most_passed``: how
    many kinds are passed over at most.
    """
    # What a queue loses to others here entitles it only afterwards (``_entitle``).
    here, passed = Beside(run), 0
    order = run.line.fork(here.book, run.open if len(run.open) < len(run.asks) else None)
    left = set(run.open)
    while len(here.chunk) < run.most and passed < most_passed and not run.cycle.budget.passed():
        if not left or (key := order.pop(left)) is None:
            break
        ask = run.open[key]
        if (refused := refusal(here, ask)) is None:
            here.hold(ask)
            order.charged(ask.group.queue)
            left.remove(key)
            continue
        why, lasting = refused
        # Free capacity only shrinks, so all triggers of a kind are refused alike.
        if lasting:
            _refuse(run, [other for other in run.alike(ask) if other in left], why)
        passed += bool(here.chunk)
        left.difference_update(run.alike(ask))
    return here.chunk


def _proposals(run: ActionRun, chunk: Sequence[Ask]) -> Iterator[_Proposal]:
    """What is tried for the chunk beside the admitted triggers, until nothing better is to be expected.

    In this order: a plan without a solver; the joint model with all that is admitted, which serves as many as
    it can of a few, or all of the chunk, half of it and so on where the fair order ends the admission or many
    are admitted. Moves beside moves are not sought. What the first plan of preempt for many leaves out keeps
    waiting, as does a single group beside many: a model of all of them costs too much.
    """
    units = len(run.ranked)
    if not run.begun:
        plans = first_plans(run, chunk)
        yield from ((chunk, plan) for plan in plans)
        run.begun = True
        few = units <= LIMITS.first_plan_units and len(chunk) <= LIMITS.optional_chunk
        if plans and not (few and all(len(plan.asks) < len(chunk) for plan in plans)):
            return
    if not run.policy.may_lose and (units > LIMITS.cleared_units or (run.found and run.found.owners)):
        return
    if run.policy.own_queue and run.many:
        return
    # In reclaim the fair order decides where admission ends; halving finds that point.
    halving = run.policy.by_share or run.many
    chunk = chunk if halving else chunk[: LIMITS.optional_chunk]
    while chunk:
        result: EvictionPlan | NoPlan = NoPlan(OUT_OF_TIME)
        if len(chunk) > 1 or not run.many:
            optional = len(chunk) > 1 and not halving
            result = _in_order(run, attempt(run, chunk, optional=optional))
        yield chunk, result
        chunk = chunk[: len(chunk) // 2] if halving and _undecided(result) else ()


def _in_order(run: ActionRun, result: EvictionPlan | NoPlan) -> EvictionPlan | NoPlan:
    """The result. Where victims are chosen anew: none if something is lost only for a further group without a
    right to it; or if, beyond those of the plan before, one of higher priority is disturbed in its queue.
    """
    if not run.anew or run.found is None or isinstance(result, NoPlan):
        return result
    asks, before, late = run.found.asks, run.found.disturbed, run.cycle.budget.passed

    def overtaken(plan: EvictionPlan) -> bool:
        further = [ask for ask in plan.asks if ask.group.key in run.open]
        more = [unit.group for unit in plan.owners if unit.rank not in before]
        if any(a.queue == b.group.queue and a.priority > b.group.priority for a, b in product(more, further)):
            return True
        lost, rights = plan.lost, run.taken_by(further)
        units = [unit for unit in plan.ranked if unit.rank in lost]
        alone = simulate_all(run.base, asks, units, run.line, late).ledger
        spared = (unit for unit in units if alone is not None and all(map(alone.stays, unit.pods)))
        return any(unit.rank not in rights for unit in spared)

    # An attempt pursues no goals yet.
    best = finish(run, result) if overtaken(result) else result
    return NoPlan(NOTHING_SUFFICES) if overtaken(best) else best


def _undecided(result: EvictionPlan | NoPlan) -> TypeGuard[NoPlan]:
    """Whether fewer triggers may get a place. They do not where the fair order gives no trigger one; that all
    together have no plan shows nothing about fewer.
    """
    return isinstance(result, NoPlan) and (result.served != frozenset() or result.why is NOTHING_SUFFICES)


def _better(
    run: ActionRun, asks: Sequence[Ask], result: EvictionPlan | NoPlan, than: EvictionPlan | NoPlan
) -> bool:
    """Whether the later result is better: it serves the earlier of ``asks``, or the same for less by the
    goals.

    Of two results without a plan, the later one says more.
    """
    if isinstance(result, NoPlan) or isinstance(than, NoPlan):
        return isinstance(than, NoPlan)
    here, there = result.serves(asks), than.serves(asks)
    return here > there or (here == there and run.better(result, than))


def _take_over(run: ActionRun, asks: Sequence[Ask], result: EvictionPlan | NoPlan) -> None:
    """Admit what the proposal serves and refuse the rest; what no model has looked at stays open."""
    why = NOTHING_SUFFICES
    if isinstance(result, EvictionPlan):
        if run.found is None or _better(run, result.asks, result, run.found):
            run.found = result
        served = frozenset(ask.group.key for ask in result.asks)
        for key in served & run.open.keys():
            del run.open[key]
            run.refused.discard(key)
            run.cycle.waiting.pop(key, None)
        left = [ask for ask in asks if ask.group.key not in served] if result.variables else []
    else:
        left, why = list(asks), result.why
    _refuse(run, [ask.group.key for ask in left], why)
    for ask in left:
        run.refusals.add(ask, why)


def _refuse(run: ActionRun, keys: Sequence[GroupKey], why: Refusal) -> None:
    open_, waiting = run.open, run.cycle.waiting
    # The action might have found some, had the clock not ended it.
    cut = why is OUT_OF_TIME and run.cycle.budget.passed()
    run.refused.update(keys)
    for key in keys:
        open_.pop(key, None)
        if cut:
            waiting[key] = why
        else:
            # Another action may take what this one may not, so the missing capacity stays the reason.
            waiting.setdefault(key, why)


def _commit(run: ActionRun, found: EvictionPlan) -> None:
    cycle, base, action = run.cycle, run.base, run.policy.name
    cycle.ledger = found.ledger
    for pod, owners in named_triggers(run.policy, found):
        if pod.key in found.ledger.evicted and pod.key not in base.evicted:
            cycle.evicted_by[pod.key] = Eviction(action, owners, run.policy.message(owners))
            if pod.key in found.ledger.held:
                cycle.placed_by[pod.key] = action
        elif pod.group is not None and pod.key in base.held and pod.key not in found.ledger.held:
            cycle.placed_by.pop(pod.key, None)
            cycle.waiting[pod.group] = Refusal(
                "Withdrawn", f"its place of this cycle went to {owners[0]} ({action})"
            )
        elif pod.group is not None and base.place_of(pod) != found.ledger.place_of(pod):
            # A place that the action may have freed; its queue is charged for one already.
            cycle.placed_by[pod.key] = action
            cycle.sequence.setdefault((action, pod.group), -1)
    for item, owners in found.owners.items():
        for _, pod in inherited(item, base, found.ledger):
            cycle.evicted_by[pod.key] = Eviction(action, owners[:1], run.policy.message(owners[:1]))
            if pod.key in found.ledger.held:
                cycle.placed_by[pod.key] = action
    for ask in found.asks:
        cycle.admitted(action, ask.group.key)
        for pod in ask.pods:
            cycle.placed_by[pod.key] = action


def _record(
    cycle: Cycle,
    action: ActionName,
    refused: frozenset[GroupKey],
    found: Sequence[EvictionPlan],
    seconds: float,
    *,
    apart: bool,
) -> None:
    """Note what was decided. ``apart``: no run goes on from what another left, so their values are added."""
    cycle.refused[action] = refused
    # Proofs of refusals follow at the end of the cycle.
    rows: dict[str, tuple[float, float, bool]] = {"admission": (len(refused), 0.0, not refused)}
    complete = apart and all(one.complete for one in found)
    named = [{stage.name for stage in one.stages} for one in found if one.owners]
    # A goal that one run did not pursue has no sum.
    for one in found:
        for stage in one.stages:
            if not (complete or all(stage.name in names for names in named)):
                continue
            objective, bound, proved = rows.get(stage.name, (0.0, 0.0, True))
            least = stage.bound if apart else min(0.0, stage.bound)
            rows[stage.name] = objective + stage.objective, bound + least, proved and stage.proved and apart
    for position, (goal, (objective, bound, proved)) in enumerate(rows.items()):
        cycle.stages.append(
            Stage(
                action,
                goal,
                "OPTIMAL" if proved else "FEASIBLE",
                objective,
                objective if proved else bound,
                0.0 if proved else abs(objective - bound) / max(1.0, abs(objective)),
                max((one.variables for one in found), default=0),
                max((one.constraints for one in found), default=0),
                seconds if position == 0 else 0.0,
            )
        )
    if not complete:
        cycle.stages.append(Stage(action, "", "FEASIBLE", gap=1.0, kind=FURTHER))
