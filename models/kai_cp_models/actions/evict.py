"""Reclaim, preempt and consolidation: place waiting groups by evicting or moving others (4.3 to 4.7).

Triggers are admitted in the fair order (formulation 1.3, 1.4). A step tries all triggers together that
counting does not refuse. Where that fails it tries fewer, and it doubles their number while it succeeds. When
few are left, one solve decides which of them are admitted. One proof of refusal serves a whole class of equal
triggers.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import lt

from kai_cp_models.actions.backfill import backfill
from kai_cp_models.actions.certificates import Beside, refusal
from kai_cp_models.actions.common import line_of, waiting_groups
from kai_cp_models.actions.eviction_plan import (
    NOTHING_SUFFICES,
    OUT_OF_TIME,
    EvictionPlan,
    NoPlan,
    named_triggers,
    users_of,
)
from kai_cp_models.actions.first import first_plan
from kai_cp_models.actions.jointly import attempt, finish
from kai_cp_models.actions.reclaim_bounds import may_take, overreaching
from kai_cp_models.actions.victims import Victims
from kai_cp_models.actions.withdraw import must_stay, settle
from kai_cp_models.cycle import Cycle, Eviction, Refusal
from kai_cp_models.fairness import amounts
from kai_cp_models.fairness.amounts import NOTHING
from kai_cp_models.fairness.reclaim import can_reclaim, reclaim_conceivable
from kai_cp_models.joint.policy import EvictionPolicy
from kai_cp_models.joint.problem import Ask, AskKind
from kai_cp_models.joint.refusals import RefusalCache
from kai_cp_models.ledger import Ledger
from kai_cp_models.limits import LIMITS
from kai_cp_models.plan import Stage
from kai_cp_models.pods import GPU, MILLI, GroupKey, Pod
from kai_cp_models.policy import ActionName
from kai_cp_models.snapshot import PodGroup


@dataclass
class _Run:
    """One run of an eviction action; ``open``: the triggers that are not decided yet."""

    victims: Victims
    refusals: RefusalCache
    open: dict[GroupKey, Ask]
    found: EvictionPlan | None = None
    refused: set[GroupKey] = field(default_factory=set)
    failed: dict[frozenset[GroupKey], NoPlan] = field(default_factory=dict)
    """Sets of triggers, those admitted before included, for which no plan was found."""

    @property
    def cycle(self) -> Cycle:
        return self.victims.cycle

    @property
    def policy(self) -> EvictionPolicy:
        return self.victims.policy

    @property
    def ledger(self) -> Ledger:
        """The state with everything admitted so far."""
        return self.found.ledger if self.found is not None else self.victims.base


def evict(cycle: Cycle, policy: EvictionPolicy) -> None:
    """Run the action: serve waiting groups in the fair order by evicting or moving what the action allows."""
    if not policy.may_lose and not cycle.snapshot.policy.consolidates:
        return
    started = time.monotonic()
    waiting = waiting_groups(cycle, policy.name)
    runs: list[_Run] = []
    if cycle.out_of_time() or not (policy.may_lose or _worth_moving(cycle, waiting)):
        # Time ended before the action began, so it decides nothing.
        for key in waiting:
            _note(cycle, key, OUT_OF_TIME)
        _record(cycle, policy.name, frozenset(waiting), (), time.monotonic() - started)
        return
    start, earlier = cycle.ledger, dict(cycle.evicted_by)
    parts = _parts(cycle, policy, waiting)
    for position, part in enumerate(parts):
        cycle.budget.begin_part(len(parts) - position)
        base = cycle.ledger
        victims = Victims(cycle, policy, base, part)
        run = _Run(victims, RefusalCache(base, policy), dict(victims.asks))
        _admit_all(run)
        if run.found is not None:
            _finish(run, run.found)
        runs.append(run)
        if policy.by_share and run.found is not None and (again := _newly_entitled(run, run.found)):
            parts.append(again)
    found = [run.found for run in runs if run.found is not None]
    if policy.by_share and found:
        inherited = [
            (cycle.snapshot.pod_by_key[key], eviction.triggers[0])
            for key, eviction in cycle.evicted_by.items()
            if key in earlier and eviction.action == policy.name
        ]
        cycle.overreaching = partial(_overreaching, start, found, inherited)
        if inherited and cycle.overreaching(cycle.ledger) is not None:
            # As the trigger of a withdrawn move, a group may take what it may not take after those before it.
            raise must_stay(earlier)
    if cycle.evicted_by or "allocate" not in cycle.snapshot.policy.actions:
        backfill(cycle, policy.name)
    refused = frozenset(key for run in runs for key in run.refused if key in cycle.waiting)
    _record(cycle, policy.name, refused, found, time.monotonic() - started)


def _worth_moving(cycle: Cycle, waiting: Mapping[GroupKey, Ask]) -> bool:
    """Whether moves are tried before evictions: no when time is short and almost nothing is idle."""
    if cycle.budget.plain_work <= cycle.settings.solver.budget_seconds:
        return True
    ledger = cycle.ledger
    idle = (ledger.idle + ledger.releasing)[:, GPU].clip(min=0).sum() + MILLI * ledger.shared_free().sum()
    asked = sum(ask.asked[2] for ask in waiting.values())
    return bool(idle >= LIMITS.least_idle_share * asked)


def _finish(run: _Run, found: EvictionPlan) -> None:
    """Carry out the admission with the least disruption; nothing is disturbed where that is not needed."""
    best = finish(run.victims, found)
    if isinstance(best, EvictionPlan) and run.policy.by_share:
        more = _entitling(run, best)
        best = best if more is best else finish(run.victims, more)
    if isinstance(best, EvictionPlan):
        run.found = best
        _commit(run, best)
        return
    run.found = None
    for ask in found.asks:
        run.open[ask.group.key] = ask
        _refuse(run, ask, best.why)


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


def _entitling(run: _Run, found: EvictionPlan) -> EvictionPlan:
    """The plan with refused groups that are within their share only with what the admitted ones take of it.

    KAI tests every group on the totals that the groups before it left (4.4). What the admitted ones take is
    chosen again for each such group. With many units it is not: ``_newly_entitled`` uses what they took.
    """
    if len(run.victims.ranked) > LIMITS.open_units:
        return found
    missed, budget = RefusalCache(run.victims.base, run.policy), run.cycle.budget
    # Half of the patience is for what follows.
    least = budget.work_worth() / 2
    for ask in _entitled_by_losses(run, found):
        if len(found.asks) > LIMITS.beside or budget.work_worth() < least:
            break
        if missed.find(ask) is not None:
            continue
        result = attempt(run.victims, found, [ask], rechoose=True)
        if isinstance(result, EvictionPlan):
            found = result
            run.refused.remove(ask.group.key)
            run.cycle.waiting.pop(ask.group.key, None)
        else:
            missed.add(ask, result.why)
    return found


def _entitled_by_losses(run: _Run, plan: EvictionPlan) -> list[Ask]:
    """Refused triggers over their share, in the fair order, whose queue might lose enough to the admitted
    ones.
    """
    book = run.victims.base.book.copy()
    lost = [NOTHING] * len(book.held)
    able = run.victims.taken_by(plan.asks)
    for item in run.victims.ranked:
        if item.rank in able:
            for i in book.line(item.unit.group.queue):
                lost[i] = amounts.add(lost[i], item.holds)
    for ask in plan.asks:
        book.charge(ask.group.queue, ask.asked, ask.group.preemptible)
    order = run.victims.line.fork(book, run.refused)
    found: list[Ask] = []
    while (key := order.pop()) is not None:
        ask = run.victims.asks[key]
        queue, asked = ask.group.queue, ask.asked
        over = can_reclaim(book, queue, asked, ask.group.preemptible) is not None
        if over and reclaim_conceivable(book, queue, asked, lost=lost):
            found.append(ask)
    return found


def _newly_entitled(run: _Run, found: EvictionPlan) -> Mapping[GroupKey, Ask]:
    """Refused groups of queues that lost something to ``found``: these may be below their share now.

    KAI tests every group on the totals that the groups before it left.
    """
    before, after, snapshot = run.victims.base.book, found.ledger.book, run.cycle.snapshot
    asking = {key: snapshot.group_by_key[key].queue for key in run.refused - found.ledger.touched.keys()}
    fell = {
        queue
        for queue in {*asking.values()}
        if any(map(lt, after.allocated_of(queue), before.allocated_of(queue)))
    }
    return {key: ask for key, ask in run.victims.asks.items() if asking.get(key) in fell}


def _admit_all(run: _Run) -> None:
    """Propose, simulate, compare, accept, until every trigger is decided or time has ended."""
    step, first = LIMITS.chunk, True
    while run.open and not run.cycle.out_of_time() and (chunk := _next(run, step)):
        plan = first_plan(run.victims, chunk) if first else None
        # What fits as it is leaves no plan, so the next chunk is a first one, too.
        first = isinstance(plan, NoPlan)
        clears_only = not run.policy.may_lose and len(run.victims.ranked_so_far) > LIMITS.cleared_units
        if isinstance(plan, NoPlan):
            _turn_down(run, chunk, plan)
        elif plan is not None and _stands(run, plan, chunk):
            _accept(run, plan, list(plan.asks))
        elif not clears_only:
            step = _step(run, chunk, plan)
        if clears_only:
            # Reclaim will need the time that moves for a few more triggers would take.
            break
    for ask in list(run.open.values()):
        _refuse(run, ask, OUT_OF_TIME)


def _stands(run: _Run, plan: EvictionPlan, chunk: Sequence[Ask]) -> bool:
    """Whether a first plan is accepted at once: it serves the chunk, or there are many triggers or units."""
    many = len(chunk) > LIMITS.optional_chunk or len(run.victims.ranked) > LIMITS.first_plan_units
    return many or len(plan.asks) == len(chunk)


def _next(run: _Run, step: int) -> list[Ask]:
    """The next triggers, at most ``step``, in the fair order that holds if each gets its place.

    Together they have no more pods than the budget is expected to have time for.
    A trigger that a certificate refuses beside the admitted ones is refused. One that it refuses only beside
    others of the chunk is passed over, and looked at again once those have their places.
    """
    # What a queue loses to others here entitles it only afterwards (``_newly_entitled``).
    book = run.victims.base.book.copy()
    for ask in run.found.asks if run.found else ():
        book.charge(ask.group.queue, ask.asked, ask.group.preemptible)
    order = run.victims.line.fork(book, run.open)
    here = Beside(run.victims, run.refusals, run.ledger, book, run.found)
    kinds: dict[AskKind, list[Ask]] = {}
    for ask in run.open.values():
        kinds.setdefault(ask.kind, []).append(ask)
    left = set(run.open)
    pods_left = LIMITS.chunk_pods * run.cycle.settings.solver.budget_seconds
    while len(here.chunk) < step and pods_left > 0 and not run.cycle.out_of_time():
        if not left or (key := order.pop(left)) is None:
            break
        ask = run.open[key]
        if (refused := refusal(here, ask)) is None:
            here.hold(ask)
            order.charged(ask.group.queue)
            left.remove(key)
            pods_left -= len(ask.pods)
            continue
        why, lasting = refused
        # Free capacity only shrinks, so all triggers of a kind are refused alike.
        alike = [other for other in kinds[ask.kind] if other.group.key in left]
        left.difference_update(other.group.key for other in alike)
        for other in alike if lasting else ():
            _refuse(run, other, why)
    return here.chunk


def _step(run: _Run, chunk: list[Ask], first: EvictionPlan | None) -> int:
    """Decide the first triggers of the fair order by the joint model; returns how many to try next.

    ``first``: a plan made without a solver for some of them; it is used where the model finds none.
    """
    many = run.found is not None and len(run.found.asks) > LIMITS.beside
    # In reclaim the fair order decides where admission ends; halving finds that point.
    fewest = 1 if many or run.policy.by_share else LIMITS.optional_chunk
    result = _beside(run, chunk, many)
    while isinstance(result, NoPlan) and len(chunk) > fewest and not result.unneeded:
        # Half of them; only the first where none of them had its place in the plan that failed.
        alone = result.served is not None and result.served.isdisjoint(ask.group.key for ask in chunk)
        chunk = chunk[: 1 if alone else len(chunk) // 2]
        result = _beside(run, chunk, many)
    if isinstance(result, NoPlan) and len(chunk) > 1 and not result.unneeded:
        result = attempt(run.victims, run.found, chunk, optional=True)
    if first is not None and _beats(run, first, result):
        chunk, result = list(first.asks), first
    if isinstance(result, NoPlan) and not (result.why.proved or result.unneeded) and _few(run):
        # A search that ended without a proof says nothing about each trigger alone.
        chunk = chunk[:1]
        result = _alone(run, chunk[0])
    if isinstance(result, EvictionPlan):
        _accept(run, result, chunk)
        return LIMITS.optional_chunk if len(chunk) <= LIMITS.optional_chunk else 2 * len(chunk)
    _turn_down(run, chunk, result)
    return LIMITS.optional_chunk


def _turn_down(run: _Run, chunk: Sequence[Ask], result: NoPlan) -> None:
    """Refuse the chunk, or those in it that fit without disturbing any unit."""
    for ask in chunk:
        if not result.unneeded:
            _refuse(run, ask, result.why)
            run.refusals.add(ask, result.why)
        elif ask.group.key in (result.served or ()):
            _refuse(run, ask, result.why)


def _beside(run: _Run, chunk: list[Ask], many: bool) -> EvictionPlan | NoPlan:
    """A plan for the chunk and all admitted triggers, unless the same set was tried in another order.

    Under reclaim, a single group that the first plan for many leaves out keeps waiting: a model of all of
    them costs too much.
    """
    if many and run.policy.by_share and len(chunk) == 1:
        return NoPlan(OUT_OF_TIME)
    together = frozenset(ask.group.key for ask in (*(run.found.asks if run.found else ()), *chunk))
    if together in run.failed:
        return run.failed[together]
    result = attempt(run.victims, run.found, chunk)
    if isinstance(result, NoPlan) and result.why is not OUT_OF_TIME:
        run.failed[together] = result
    return result


def _few(run: _Run) -> bool:
    """Whether triggers and units are few enough to try the triggers one by one."""
    admitted = len(run.found.asks) if run.found is not None else 0
    return admitted < LIMITS.beside and len(run.victims.ranked) <= LIMITS.first_plan_units


def _alone(run: _Run, ask: Ask) -> EvictionPlan | NoPlan:
    """A plan for the trigger and all admitted ones; without a solver where a search proves nothing."""
    result = _beside(run, [ask], many=False)
    if isinstance(result, EvictionPlan) or result.why.proved or result.unneeded:
        return result
    asks = [*(run.found.asks if run.found else ()), ask]
    plan = first_plan(run.victims, asks)
    return plan if isinstance(plan, EvictionPlan) and len(plan.asks) == len(asks) else result


def _beats(run: _Run, fallback: EvictionPlan, result: EvictionPlan | NoPlan) -> bool:
    """Whether the plan made without a solver is the better answer: there is no other, or it is worth more."""
    if isinstance(result, NoPlan):
        return not result.why.proved
    same = {ask.group.key for ask in fallback.asks} == {ask.group.key for ask in result.asks}
    return same and run.victims.values(fallback) < run.victims.values(result)


def _accept(run: _Run, found: EvictionPlan, chunk: list[Ask]) -> None:
    # A plan that serves no other group replaces the plan so far only if it is worth more.
    if run.found is None or len(found.asks) > len(run.found.asks) or _beats(run, found, run.found):
        run.found = found
    admitted = {ask.group.key for ask in found.asks}
    for ask in chunk:
        if ask.group.key in admitted:
            run.cycle.waiting.pop(ask.group.key, None)
            del run.open[ask.group.key]
        else:
            _refuse(run, ask, NOTHING_SUFFICES)
            run.refusals.add(ask, NOTHING_SUFFICES)


def _refuse(run: _Run, ask: Ask, why: Refusal) -> None:
    del run.open[ask.group.key]
    run.refused.add(ask.group.key)
    _note(run.cycle, ask.group.key, why)


def _note(cycle: Cycle, key: GroupKey, why: Refusal) -> None:
    # Another action may take what this one may not, so the missing capacity stays the reason.
    cycle.waiting.setdefault(key, why)


def _commit(run: _Run, found: EvictionPlan) -> None:
    cycle, base, action = run.cycle, run.victims.base, run.policy.name
    cycle.ledger = found.ledger
    withdrawn: set[GroupKey] = set()
    for pod, owners in named_triggers(run.policy, found):
        if pod.key in found.ledger.changed and pod.key not in base.changed:
            cycle.evicted_by[pod.key] = Eviction(action, owners, run.policy.message(owners))
            if pod.key in found.ledger.held:
                cycle.placed_by[pod.key] = action
        elif pod.group is not None and pod.key in base.held and pod.key not in found.ledger.held:
            cycle.placed_by.pop(pod.key, None)
            withdrawn.add(pod.group)
            cycle.waiting[pod.group] = Refusal(
                "Withdrawn", f"its place of this cycle went to {owners[0]} ({action})", True
            )
    for ask in found.asks:
        cycle.admitted(action, ask.group.key)
        for pod in ask.pods:
            cycle.placed_by[pod.key] = action
    if withdrawn:
        users = users_of(found)

        def successors(pod: Pod) -> tuple[GroupKey, ...]:
            here = set(users.get(pod.node or "", ()))
            return tuple(
                ask.group.key
                for ask in found.asks
                if ask.group.key in here and may_take(base, ask, pod, run.policy)
            )[:1]

        cycle.evicted_by = settle(
            cycle.ledger, cycle.evicted_by, frozenset(withdrawn), successors, run.policy
        )
        for pod_key, eviction in cycle.evicted_by.items():
            if eviction.action == action and pod_key in cycle.ledger.held:
                # An earlier action moved the pod; this action changed its new place, so the place is recorded
                # as its own.
                cycle.placed_by[pod_key] = action


def _overreaching(
    base: Ledger,
    found: Sequence[EvictionPlan],
    inherited: Sequence[tuple[Pod, GroupKey]],
    ledger: Ledger,
) -> PodGroup | None:
    """The trigger that takes more than it may if the plans, made one after the other, end with ``ledger``."""
    asks = [ask for one in found for ask in one.asks]
    ranked = [item for one in found for item in one.ranked]
    owners: dict[int, tuple[GroupKey, ...]] = {}
    for one in reversed(found):
        owners = dict(one.owners) | {o + len(one.ranked): takers for o, takers in owners.items()}
    ask = overreaching(base, asks, ranked, ledger, owners, inherited=inherited)
    return None if ask is None else ask.group


def _record(
    cycle: Cycle,
    action: ActionName,
    refused: frozenset[GroupKey],
    found: Sequence[EvictionPlan],
    seconds: float,
) -> None:
    cycle.refused[action] = refused
    # Proofs of refusals follow at the end of the cycle.
    rows: dict[str, tuple[float, float, bool]] = {"admission": (len(refused), 0.0, not refused)}
    # Runs do not depend on each other, so their values are added.
    for one in found:
        for stage in one.stages:
            objective, bound, proved = rows.get(stage.name, (0.0, 0.0, True))
            rows[stage.name] = objective + stage.objective, bound + stage.bound, proved and stage.proved
    if any(not one.complete for one in found):
        # A plan made for some of the goals has no value for the others.
        rows["further goals"] = (1.0, 0.0, False)
    for position, (name, (objective, bound, proved)) in enumerate(rows.items()):
        cycle.stages.append(
            Stage(
                f"{action}: {name}",
                "OPTIMAL" if proved else "FEASIBLE",
                objective,
                objective if proved else bound,
                0.0 if proved else abs(objective - bound) / max(1.0, abs(objective)),
                max((one.variables for one in found), default=0),
                max((one.constraints for one in found), default=0),
                seconds if position == 0 else 0.0,
            )
        )
