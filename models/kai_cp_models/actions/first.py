"""First plans of the eviction actions, without a solver: an answer, however little time there is.

Reclaim and preempt evict the units that counting selects and place everything in the fair order.
Consolidation clears nodes, one ask at a time. The answer states what such a plan loses, and as its bound the
least that counting allows, so it is not called proved.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from kai_cp_models.actions.eviction_plan import OUT_OF_TIME, EvictionPlan
from kai_cp_models.actions.home import settle_moves
from kai_cp_models.actions.node_drain import NodeDrain
from kai_cp_models.actions.reclaim_bounds import overreaching, shared_out
from kai_cp_models.actions.run import ActionRun, Opening
from kai_cp_models.actions.simulation import in_the_way, simulate_all
from kai_cp_models.budget import Budget
from kai_cp_models.fairness.amounts import milli_gpus
from kai_cp_models.joint.admission import RefusalCache
from kai_cp_models.joint.counting import Counting
from kai_cp_models.joint.goals import GOALS, Disruption
from kai_cp_models.joint.problem import Ask, EvictionUnit
from kai_cp_models.joint.search import StageResult
from kai_cp_models.ledger import Ledger
from kai_cp_models.limits import LIMITS
from kai_cp_models.pods import GPU


def first_plans(run: ActionRun, chunk: Sequence[Ask]) -> list[EvictionPlan]:
    """Plans for the asks of the chunk that find a place in this way; none when no ask does."""
    named = tuple(ask.group.key for ask in chunk)
    if named not in run.plans:
        found = _counted(run, chunk) if run.policy.may_lose else [_cleared(run, chunk)]
        run.plans[named] = [plan for plan in found if plan is not None]
    if len(run.ranked) > LIMITS.weighed_units:
        return run.plans.pop(named)
    # A run changes the ledger of the plan that it takes over, so it gets a copy.
    return [replace(one, ledger=one.ledger.copy()) for one in run.plans[named]]


def _counted(run: ActionRun, chunk: Sequence[Ask]) -> list[EvictionPlan | None]:
    """Evict the units that counting selects.

    If the units that may go in turn are too few for all asks of the chunk, they may be enough for its first
    half, a quarter and so on. In that case, if there are few units, and always if the opened ones serve no
    ask, all units leave at once, and some of them move instead. Of many, those in the way leave.
    """
    asks, taken, opening = chunk, run.taken_by(chunk), run.opening(chunk)
    while (units := opening.first_for(asks)) is None and (asks := asks[: len(asks) // 2]):
        opening = run.opening(asks)
    found = [_widened(run, asks, opening, units)]
    if found[0] is None or (len(asks) < len(chunk) and len(taken) <= LIMITS.open_units):
        # A group that asks gives up none of its pods.
        asking, ranked = {ask.group.key for ask in chunk}, map(run.ranked.__getitem__, sorted(taken))
        found.append(_deepened(run, chunk, [unit for unit in ranked if unit.group.key not in asking]))
    return found


def _deepened(run: ActionRun, chunk: Sequence[Ask], units: list[EvictionUnit]) -> EvictionPlan | None:
    """Evict the first units. If these serve no ask, evict those of more units that are in the way of one:
    counting knows neither nodes nor rules, so the units it selects may free capacity that no ask can use.
    """
    if (found := _opened(run, chunk, (), units[: LIMITS.open_units])) is not None:
        return found
    ways = in_the_way(run.base, chunk, units, _depths(run.cycle.budget, len(units)))
    plans = (_opened(run, chunk, (), leaving) for leaving in ways if leaving)
    return next((plan for plan in plans if plan is not None), None)


def _depths(budget: Budget, most: int) -> Iterator[int]:
    """How many first units to search, deeper each time, as long as the budget has the work for it."""
    depth = LIMITS.open_units
    while depth < most:
        depth *= LIMITS.deepening
        work = LIMITS.simulated_unit_work * min(depth, most)
        if budget.ended(work):
            return
        budget.spend(work)
        budget.in_vain(work)
        yield depth


def _widened(
    run: ActionRun, chunk: Sequence[Ask], opening: Opening, units: list[EvictionUnit] | None
) -> EvictionPlan | None:
    """Evict the units, which are the first of the opening that suffice in sum, then more while that serves
    more asks: free capacity that suffices in sum may have no place for a pod.
    """
    best: EvictionPlan | None = None
    served, again = list[bool](), list[Ask]()
    for _ in range(LIMITS.opening_tries):
        found = _opened(run, chunk, again, units)
        if found is None or (here := found.serves(chunk)) <= served:
            break
        best, served = found, here
        missed = [ask for ask, yes in zip(chunk, here, strict=True) if not yes]
        if not missed or run.cycle.budget.passed():
            break
        again += missed
        before, units = units, opening.first_for(chunk, again)
        if units is None or units == before:
            # Counting finds no more units to open.
            break
        if run.policy.own_queue:
            # Losses change no turn inside a queue: if no missed ask fits now, replaying all serves no more.
            taken = best.disturbed
            more = [unit for unit in units if unit.rank not in taken]
            if not simulate_all(best.ledger, missed, more, run.line, run.cycle.budget.passed).served:
                break
    return best


def _opened(
    run: ActionRun, chunk: Sequence[Ask], again: Sequence[Ask], ranked: list[EvictionUnit] | None
) -> EvictionPlan | None:
    """The plan for the asks of the chunk that find a place when ``ranked`` go; for fewer asks, fewer go."""
    asks = list(chunk)
    while asks and ranked is not None and not run.cycle.budget.passed():
        found, asks = _simulated(run, asks, ranked)
        if found is not None:
            return _less_moved(run, found)
        # Some units left for asks that got no place or had no right to them. Next, only units that the
        # remaining asks may take are opened.
        ranked = run.opening(asks).first_for(asks, again)
    return None


def _simulated(
    run: ActionRun, asks: Sequence[Ask], ranked: Sequence[EvictionUnit]
) -> tuple[EvictionPlan | None, list[Ask]]:
    """The plan for the asks that find a place when ``ranked`` go, if it holds; and the asks to try next."""
    base, cycle = run.base, run.cycle
    simulated = simulate_all(base, asks, ranked, run.line, cycle.budget.passed)
    if simulated.ledger is None:
        return None, []
    asks = [ask for ask in asks if ask.group.key in simulated.served]
    plan = run.disruption(simulated.ledger, ranked, asks)
    found = _shown(run, plan, simulated.ledger)
    # A gang may come home in part. The rest is no lost unit, but is taken all the same.
    if not found.disturbed <= run.taken_by(asks):
        return None, asks
    moved = (base.snapshot.pod_by_key[key] for key in plan.moved)
    if not run.may_move(moved, asks):
        # The model may find a plan that moves less.
        return None, []
    beyond = overreaching(base, asks, found.ledger, found.owners) if run.policy.by_share else None
    return (found, asks) if beyond is None else (None, [ask for ask in asks if ask is not beyond])


def _less_moved(run: ActionRun, found: EvictionPlan) -> EvictionPlan:
    """The plan, or one for as many asks that is no worse, in which pods that got a place in this cycle keep
    it instead of moving: as the newest they leave first, and would start later."""
    if len(found.ranked) > LIMITS.open_units:
        return found
    before, after = run.base.held, found.ledger.held
    away = {key for key, held in after.items() if key in before and held != before[key]}
    stay = [unit for unit in found.ranked if away.isdisjoint(pod.key for pod in unit.pods)]
    if not stay or len(stay) == len(found.ranked):
        return found
    less, asks = _simulated(run, found.asks, stay)
    if less is None or len(asks) < len(found.asks) or run.better(found, less):
        return found
    return less


def _shown(run: ActionRun, plan: Disruption, ledger: Ledger) -> EvictionPlan:
    """The plan that leads to ``ledger``, with each unit that is not as it was assigned to an ask."""
    base, ranked, asks = run.base, plan.units, plan.admitted
    away = [not all(map(ledger.stays, item.pods)) for item in ranked]
    owners = shared_out(run.ranked, asks, ranked, away, plan.taken)
    gone = [item for item, yes in zip(ranked, plan.lost, strict=True) if yes]
    leaving = [pod for item in gone for pod in item.pods]
    # The sum of GPUs bounds the loss of any plan.
    everywhere = Counting(base, (), everywhere=True)
    room, asked = everywhere.room(everywhere.leaving(leaving)), (pod for ask in asks for pod in ask.pods)
    spare = max(0, int((room - everywhere.demand(asked))[GPU]))
    freed = sum(map(milli_gpus, leaving))
    # Another plan may take back all places of this cycle that it may, and lose less.
    given_now = sum(milli_gpus(pod) for pod in run.ranked.pods if pod.key in base.held) if base.held else 0
    lost, least = sum(GOALS["lost_gpus"].value(plan)), max(0, freed - spare - given_now)
    stages = [StageResult("lost GPUs [milli-GPUs]", lost, least, lost == least)]
    if plan.moved:
        stages.append(StageResult("moved pods", sum(GOALS["moved_pods"].value(plan)), 0.0, False))
    # Of plans that free just as many GPUs as are asked for, one that takes the first units may be the best.
    in_turn = not (plan.moved or spare) and len(gone) == len(ranked)
    complete = not owners or (
        in_turn and ranked[-1].rank < len(gone) and run.goals.default and run.ranked.best_in_turn(len(gone))
    )
    return EvictionPlan(ledger, tuple(asks), tuple(ranked), owners, tuple(stages), complete)


def _cleared(run: ActionRun, chunk: Sequence[Ask]) -> EvictionPlan | None:
    """Drain nodes for one ask after the other, in the fair order."""
    drain, missed = NodeDrain(run), RefusalCache(run.base, run.policy)
    for ask in chunk:
        if run.cycle.budget.passed():
            break
        # An ask for as much as a missed one is not worth the time.
        if missed.find(ask) is None and not drain.serve(ask):
            missed.add(ask, OUT_OF_TIME)
    if not drain.served:
        return None
    settle_moves(drain.ledger, [run.base.snapshot.pod_by_key[key] for key in drain.taken_by])
    plan = run.disruption(drain.ledger, run.ranked, drain.served)
    takers = (
        (item, dict.fromkeys(drain.taken_by[pod.key] for pod in item.pods if pod.key in plan.taken))
        for item in run.ranked
    )
    owners = {item: tuple(asks) for item, asks in takers if asks}
    (moved,) = GOALS["moved_pods"].value(plan)
    stage = StageResult("moved pods", moved, 0, not moved)
    complete = not moved and run.goals.default
    return EvictionPlan(drain.ledger, tuple(drain.served), tuple(owners), owners, (stage,), complete)
