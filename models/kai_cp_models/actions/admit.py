"""The loop of an eviction action that admits triggers: propose, simulate, compare, accept (formulation 1.3).

It takes the next triggers of the fair order that no certificate refuses, looks at one proposal after the
other, and keeps the best one: it serves the earlier triggers, or the same ones for less by the goals (1.4).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product
from math import inf

from kai_cp_models.actions.certificates import Beside, refusal
from kai_cp_models.actions.eviction_plan import NOTHING_SUFFICES, OUT_OF_TIME, EvictionPlan, NoPlan
from kai_cp_models.actions.first import first_plans
from kai_cp_models.actions.jointly import attempt, finish
from kai_cp_models.actions.run import ActionRun
from kai_cp_models.actions.simulation import simulate_all
from kai_cp_models.budget import MOST_PATIENT_WORK
from kai_cp_models.joint.problem import Ask
from kai_cp_models.limits import LIMITS
from kai_cp_models.pods import GPU, GroupKey
from kai_cp_models.refusal import Refusal

_Proposal = tuple[Sequence[Ask], EvictionPlan | NoPlan]
"""What is proposed for the first triggers of a chunk, and which these are."""


def _worth_trying(run: ActionRun) -> bool:
    """Whether the search is worth its time. In a large cluster where almost nothing is idle, no time is spent
    on moves, because the evictions that follow need it.
    """
    budget, counting = run.cycle.budget, run.counting
    if run.policy.may_lose or budget.plain_work <= MOST_PATIENT_WORK:
        return not budget.passed()
    asked = sum(ask.asked[2] for ask in run.open.values())
    return bool(counting.idle_room[counting.totals][GPU] >= LIMITS.least_idle_share * asked)


def admit_all(run: ActionRun) -> None:
    """Admit until every trigger is decided or time has ended; then pursue all goals for what is admitted."""
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
        if run.rightful:
            run.found = finish(run, run.found)
            if run.rightful:
                # The first are decided anew, so what models find beside all of them is of no use.
                return
    _refuse(run, list(run.open), OUT_OF_TIME)
    if run.found is not before:
        run.found = finish(run, run.found)


def _next(run: ActionRun, most_passed: float) -> list[Ask]:
    """The next triggers to try together, in the fair order as it is if each of them gets its place.

    A trigger that a certificate refuses beside the admitted ones is refused. One that it refuses only beside
    others of the chunk is passed over until those have their places, at most ``most_passed`` kinds.
    """
    # What a queue loses to others here entitles it only afterwards (``evict._entitle``).
    here, passed = Beside(run), 0
    most = 1 if run.anew else LIMITS.optional_chunk if run.begun else LIMITS.chunk
    order = run.line.fork(here.book, run.open if len(run.open) < len(run.asks) else None)
    left = set(run.open)
    while len(here.chunk) < most and passed < most_passed and not run.cycle.budget.passed():
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
    """The plans tried for the chunk beside the admitted triggers, while a later one may be better.

    First come plans without a solver, then those of the joint model with all that is admitted. It serves as
    many as it can of a few triggers; under reclaim, or beside many, all of the chunk, half of it and so on.
    Consolidation seeks no moves beside others. Beside many, triggers that the first plan of preempt leaves
    out wait, and so does a single one: a model of all of them costs too much.
    """
    units = len(run.ranked)
    if not run.begun:
        plans = first_plans(run, chunk)
        yield from ((chunk, plan) for plan in plans)
        run.begun = True
        few = units <= LIMITS.first_plan_units and len(chunk) <= LIMITS.optional_chunk
        if plans and not (few and all(len(plan.asks) < len(chunk) for plan in plans)):
            return
    if not run.policy.may_lose and (units > LIMITS.cleared_units or run.found.owners):
        return
    # Beside too many no model is built of all of them and one more.
    many = len(run.found.asks) > LIMITS.many_admitted
    if run.policy.own_queue and many:
        return
    # In reclaim the fair order decides where admission ends; halving finds that point.
    halving = run.policy.by_share or many
    chunk = chunk if halving else chunk[: LIMITS.optional_chunk]
    while chunk:
        result: EvictionPlan | NoPlan = NoPlan(OUT_OF_TIME)
        if len(chunk) > 1 or not many:
            optional = len(chunk) > 1 and not halving
            result = _in_order(run, attempt(run, chunk, optional=optional))
        yield chunk, result
        # Fewer may get a place, unless the fair order gives a place to none of them. If all together have no
        # plan, this shows nothing about fewer.
        vain = isinstance(result, EvictionPlan) or (
            result.served == frozenset() and result.why is not NOTHING_SUFFICES
        )
        chunk = chunk[: len(chunk) // 2] if halving and not vain else ()


def _in_order(run: ActionRun, result: EvictionPlan | NoPlan) -> EvictionPlan | NoPlan:
    """The result; no plan where victims are chosen anew and the plan takes something only for a further group
    that has no right to it, or disturbs a further victim of higher priority in that group's queue.
    """
    if not run.anew or isinstance(result, NoPlan):
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


def _better(
    run: ActionRun, asks: Sequence[Ask], result: EvictionPlan | NoPlan, than: EvictionPlan | NoPlan
) -> bool:
    """Whether ``result`` is better: it serves the earlier of ``asks``, or the same ones for less by the
    goals. Of two results without a plan the later one, which says more.
    """
    if isinstance(result, NoPlan) or isinstance(than, NoPlan):
        return isinstance(than, NoPlan)
    here, there = result.serves(asks), than.serves(asks)
    return here > there or (here == there and run.better(result, than))


def _take_over(run: ActionRun, asks: Sequence[Ask], result: EvictionPlan | NoPlan) -> None:
    """Admit what the proposal serves and refuse the rest; what no model has looked at stays open."""
    why = NOTHING_SUFFICES
    if isinstance(result, EvictionPlan):
        if _better(run, result.asks, result, run.found):
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
    run.undecided.update(keys if why is OUT_OF_TIME else ())
    for key in keys:
        open_.pop(key, None)
        if cut:
            waiting[key] = why
        else:
            # Another action may take what this one may not, so the missing capacity stays the reason.
            waiting.setdefault(key, why)
