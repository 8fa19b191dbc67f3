"""Plans of the joint model: everything admitted so far and the next triggers, solved together.

An answer is simulated as KAI would carry it out; one that does not hold is cut off. An attempt only looks for
places at little loss. The goals follow once, when the admission is settled (``finish``).
"""

from __future__ import annotations

from bisect import bisect
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import compress, zip_longest
from math import inf

from kai_cp_models.actions.eviction_plan import (
    NO_VICTIMS,
    NOTHING_SUFFICES,
    OUT_OF_TIME,
    EvictionPlan,
    NoPlan,
    named_triggers,
)
from kai_cp_models.actions.node_drain import cheapest_nodes_to_drain
from kai_cp_models.actions.reclaim_bounds import Owners, overreaching, reclaim_bounds, shared_out
from kai_cp_models.actions.run import ActionRun
from kai_cp_models.actions.simulation import Simulated, simulate
from kai_cp_models.budget import Allowance
from kai_cp_models.joint.evicting import EvictingModel
from kai_cp_models.joint.model import ModelTooLarge, Moves
from kai_cp_models.joint.problem import Answer, Ask, EvictionUnit
from kai_cp_models.joint.search import Objective, StageResult, lexicographic
from kai_cp_models.ledger import Ledger
from kai_cp_models.limits import LIMITS
from kai_cp_models.pods import GroupKey
from kai_cp_models.refusal import Refusal
from kai_cp_models.solver import cp_model


def attempt(run: ActionRun, chunk: Sequence[Ask], *, optional: bool = False) -> EvictionPlan | NoPlan:
    """Place everything admitted before and ``chunk``; with ``optional``, as much of ``chunk`` as possible.

    It may disturb units that the chunk may take and units that are disturbed already (formulation 1.3); where
    victims are chosen anew, also all units that the admitted asks may take.
    """
    budget = run.cycle.budget
    if budget.ended(LIMITS.model_work):
        return NoPlan(OUT_OF_TIME)
    asks = [*run.found.asks, *chunk]
    useful = run.taken_by(asks if run.anew else chunk) | run.found.disturbed
    required = len(asks) - len(chunk) if optional else len(asks)
    result: EvictionPlan | NoPlan = NoPlan(OUT_OF_TIME)
    for part in _prefixes(run, asks, useful, fewer=len(chunk) > 1 and not optional):
        units = len(part) if run.policy.may_lose else min(len(part), LIMITS.moving_units)
        if budget.ended(max(LIMITS.model_work, LIMITS.least_unit_work * units)):
            return result if isinstance(result, NoPlan) else NoPlan(OUT_OF_TIME)
        began = budget.spent
        result = _Search(run, asks, required, part).solved()
        if isinstance(result, EvictionPlan) and (not optional or len(result.asks) > required):
            return result
        if result != NoPlan(NOTHING_SUFFICES):
            budget.in_vain(budget.spent - began)
        if isinstance(result, NoPlan) and result.served is not None:
            return result
    return result


def _prefixes(run: ActionRun, asks: Sequence[Ask], useful: set[int], *, fewer: bool) -> Iterator[set[int]]:
    """The first of the useful units in the reverse fair order, as many as counting asks for, then all of them
    (formulation 1.4). None where all are too few and ``fewer`` asks are left to try.
    """
    if run.policy.may_lose and len(useful) > LIMITS.open_units and run.goals.by_policy:
        opened, ranks = run.opening(asks, useful).first_for(asks), sorted(useful)
        if opened is None and fewer:
            return
        depth = max(bisect(ranks, opened[-1].rank) if opened else len(ranks), LIMITS.open_units)
        if depth < len(ranks) * LIMITS.nearly_all_share:
            yield {*ranks[:depth]} | run.found.disturbed
    yield useful


def finish(run: ActionRun, found: EvictionPlan) -> EvictionPlan:
    """The same admission with all goals pursued; ``found`` itself when there is no time for that."""
    budget = run.cycle.budget
    too_large = found.variables > LIMITS.finished_variables or found.too_large_to_weigh
    if found.complete or too_large or budget.ended(LIMITS.model_work):
        return found
    useful = run.taken_by(found.asks) | found.disturbed if run.open_units is None else set(run.open_units)
    if run.policy.may_lose and len(useful) > LIMITS.policy_units and run.goals.by_policy:
        # The new plan needs no unit beyond the present threshold (formulation 1.4).
        deepest = max(found.disturbed)
        useful = {rank for rank in useful if rank <= deepest}
    began = budget.spent
    best = _Search(run, found.asks, len(found.asks), useful, known=found).solved()
    budget.in_vain(budget.spent - began)
    # A simulation may refuse what the model proved.
    return found if isinstance(best, NoPlan) or run.better(found, best) else best


@dataclass
class _Search:
    """One model: places for ``asks``, of which the first ``required`` must get one, with the cuts from plans
    that did not hold.

    ``useful``: ranks of the units that may be disturbed. ``known``: a plan for these asks; the admission is
    settled, and the goals are solved for.
    """

    run: ActionRun
    asks: Sequence[Ask]
    required: int
    useful: set[int]
    known: EvictionPlan | None = None

    def __post_init__(self) -> None:
        run, whole = self.run, [self.run.ranked[rank] for rank in sorted(self.useful)]
        keep = set[int]() if self.known is None else self.known.disturbed
        self.ranked = whole
        if run.policy.by_share:
            vain = run.in_line.before(self.asks, whole)
            self.ranked = [item for o, item in enumerate(whole) if o not in vain or item.rank in keep]
        if not run.policy.may_lose and len(self.ranked) > LIMITS.moving_units:
            self.ranked = cheapest_nodes_to_drain(run.base, self.asks, self.ranked, keep)
        self.pruned = len(self.ranked) < len(whole)
        """Whether units are left out that might be part of a better plan."""
        self.served: frozenset[GroupKey] | None = None

    def solved(self) -> EvictionPlan | NoPlan:
        """The plan of the joint model, or why there is none."""
        run, known = self.run, self.known
        if not self.ranked:
            return NoPlan(NOTHING_SUFFICES if self.pruned else NO_VICTIMS)
        bounds = reclaim_bounds(run.ranked, self.asks, [item.rank for item in self.ranked])
        problem = run.base, run.policy, self.asks, self.ranked, bounds
        objective = run.cycle.settings.objective
        self.made = partial(EvictingModel, *problem, required=self.required, objective=objective)
        try:
            self.model = self.made(moves=Moves.INTO_IDLE if run.policy.may_lose else Moves.ALL)
        except ModelTooLarge:
            return NoPlan(Refusal("NotDecidedInTime", "the joint problem is too large for the time budget"))
        size = len(self.model.cp.proto.variables)
        self.complete = known is not None and size <= LIMITS.finished_variables
        """Whether all goals are solved for."""
        if known is not None and known.variables and not self.complete:
            # The rough goal was pursued before.
            return NoPlan(Refusal("NotDecidedInTime", "the joint problem is too large for the last goals"))
        goals, allowance = self._goals(self.model), self._allowance()
        # Of several triggers, fewer are tried next.
        small = len(self.asks) == 1 and size <= LIMITS.small_variables
        # Solve, play through and cut, until a plan holds or there is none.
        for _ in range(LIMITS.cuts if self.complete or small else LIMITS.rough_cuts):
            gap = 0.0 if self.complete else LIMITS.rough_gap
            solver, stages, first = lexicographic(self.model.cp.clone(), goals, allowance, gap=gap)
            if solver is None:
                return NoPlan(NOTHING_SUFFICES if first.proved else OUT_OF_TIME, self.served)
            answer = self.model.answer(solver)
            if not answer.asks:
                return NoPlan(NOTHING_SUFFICES)
            found = self._held(answer, stages, solver)
            if found is not None:
                return found
        why = Refusal("NotDecidedInTime", "the fair order refused every plan that was tried")
        return NoPlan(why, self.served)

    def _goals(self, model: EvictingModel) -> list[Objective]:
        """What is minimised."""
        run, known = self.run, self.known
        if known is None or not self.complete:
            return [*model.admission_goals(), *run.goals.rough(model)]
        return run.goals.objectives(model, run.disruption(known.ledger, self.ranked, self.asks))

    def _allowance(self) -> Allowance:
        """What solving may take: at least as much work as building the model was."""
        budget = self.run.cycle.budget
        variables = len(self.model.cp.proto.variables)
        built = LIMITS.variable_work * variables + LIMITS.unit_work * len(self.run.ranked)
        budget.spend(built)
        return Allowance(budget, max(budget.work_worth(), built))

    def _held(
        self, answer: Answer, stages: Sequence[StageResult], solver: cp_model.CpSolver
    ) -> EvictionPlan | None:
        """The plan of an answer that holds when it is simulated; None when the answer is cut off."""
        for owners in self._attributions(answer, solver):
            simulated = self._simulated(answer, owners)
            if simulated.ledger is not None:
                break
        else:
            if simulated.early:
                self.served = simulated.served
            self._cut(answer, simulated)
            return None
        if together := self._moving_beyond(simulated.ledger, answer, owners):
            # These groups may not move together again.
            self.model.refuse(one for key, one in self.model.moved_groups.items() if key in together)
            return None
        return self._plan(simulated.ledger, answer, owners, stages)

    def _plan(
        self, ledger: Ledger, answer: Answer, owners: Owners, stages: Sequence[StageResult] = ()
    ) -> EvictionPlan:
        taken = self.run.taken(ledger)
        # A unit that came home is not disturbed, so others may not take it.
        left = {item: some for item, some in owners.items() if any(pod.key in taken for pod in item.pods)}
        return EvictionPlan(
            ledger,
            tuple(answer.asks),
            tuple(self.ranked),
            left,
            tuple(self._bounded(stages)),
            self.complete or not (any(answer.lost) or answer.moved),
            len(self.model.cp.proto.variables),
            len(self.model.cp.proto.constraints),
        )

    def _bounded(self, stages: Sequence[StageResult]) -> Iterator[StageResult]:
        """The stages, with bounds that hold for every permitted plan.

        If victims move only into idle capacity, the bounds are those of a model without that rule, as long as
        all earlier goals have their least values there. Later goals have only the bound 0.
        """
        if self.run.policy.may_lose:
            wanted = stages and self.complete and not self.pruned
            return _within(stages, self._least(stages) if wanted else ())
        sure = self.model.exact and not self.pruned
        return iter(stages) if sure else _within(stages, ())

    def _least(self, stages: Sequence[StageResult]) -> Sequence[StageResult]:
        """The goals in a model in which pods may move wherever rules permit, or anywhere if they are many; up
        to the first goal with a better value than the plan's."""
        few = sum(len(item.pods) for item in self.ranked) <= LIMITS.all_moves_pods
        try:
            made = (self.made(moves=moves) for moves in ((Moves.ALL,) if few else ()) + (Moves.FREE,))
            model = next((one for one in made if one.exact), None)
        except ModelTooLarge:
            return ()
        if model is None:
            return ()
        own = zip(self._goals(model), stages, strict=True)
        goals = [replace(goal, most=int(stage.objective)) for goal, stage in own]
        return lexicographic(model.cp, goals, self._allowance(), bettering=True)[1]

    def _attributions(self, answer: Answer, solver: cp_model.CpSolver) -> Iterator[Owners]:
        """Ways to charge disturbed units: to each trigger in turn until its need is met, and under reclaim as
        the solver chose."""
        yield shared_out(self.run.ranked, answer.asks, self.ranked, answer.lost, answer.moved)
        if self.run.policy.by_share:
            yield _chosen(self.model, answer, solver)

    def _simulated(self, answer: Answer, owners: Owners) -> Simulated:
        def allowed(ledger: Ledger) -> bool:
            moved = (pod for pod in answer.gone if pod.key in ledger.held)
            few = self.run.may_move(moved, answer.asks)
            return few and not self._moving_beyond(ledger, answer, owners)

        lost_to: dict[GroupKey, set[GroupKey]] = {}
        for item, takers in owners.items() if self.run.policy.by_share else ():
            lost_to.setdefault(item.group.key, set()).add(takers[0])
        base, units, line = self.run.base, self.model.units, self.run.line
        found = simulate(base, units, answer, line, lost_to=lost_to, allowed=allowed)
        if found.ledger is None:
            return found
        stay = self.run.stay
        beyond = (stay and not stay.isdisjoint(self.run.taken(found.ledger))) or (
            self.run.policy.by_share and overreaching(base, answer.asks, found.ledger, owners) is not None
        )
        return replace(found, ledger=None) if beyond else found

    def _cut(self, answer: Answer, simulated: Simulated) -> None:
        """Refuse an answer that does not hold when simulated."""
        model, early = self.model, dict[GroupKey, list[cp_model.BoolVarT]]()
        for item, literal in compress(zip(model.units, model.lost, strict=True), answer.lost):
            if item.group.key in simulated.early:
                early.setdefault(item.group.key, []).append(literal)
        # The others may fit without an optional ask that was admitted but has no place.
        missed = {ask.group.key for ask in answer.asks} - simulated.served
        asked = zip(model.asks, model.admitted, strict=True)
        unserved = [yes for ask, yes in asked if ask.group.key in missed]
        # One cut for each group: beside another choice of the others it would mostly come back as well.
        for part in early.values() or [model.disturbance(answer)]:
            model.refuse([*part, *unserved])

    def _moving_beyond(self, ledger: Ledger, answer: Answer, owners: Owners) -> frozenset[GroupKey | None]:
        """Pod groups that move for one ask and exceed its limit; all that move if they exceed the limit of
        all asks together (4.3). A group that moves for several asks counts for one of them.
        """
        most = self.model.most_moved
        if most == inf:
            return frozenset()
        found = self._plan(ledger, answer, owners)
        named = named_triggers(self.run.ranked, found)
        fresh = ledger.evicted.keys() - self.run.base.evicted.keys()
        moves = {(pod.group, names) for pod, names in named if pod.key in fresh}
        groups = frozenset(group for group, _ in moves)
        if len(groups) > most * len({name for _, names in moves for name in names}):
            return groups
        alone = {(names[0], group) for group, names in moves if len(names) == 1}
        numbers = Counter(trigger for trigger, _ in alone)
        beyond = min((trigger for trigger, number in numbers.items() if number > most), default=None)
        return frozenset(group for trigger, group in alone if trigger == beyond)


def _within(stages: Sequence[StageResult], least: Sequence[StageResult]) -> Iterator[StageResult]:
    """The stages with the bounds of ``least``; such a bound holds only if all earlier stages have theirs."""
    alike = True
    for stage, other in zip_longest(stages, least):
        bound = min(stage.bound, other.bound if alike and other else 0.0)
        alike &= bound == stage.objective
        yield replace(stage, bound=bound, proved=alike)


def _chosen(model: EvictingModel, answer: Answer, solver: cp_model.CpSolver) -> Owners:
    """The admitted triggers that the solver lets take each unit; those that may, where it moves."""
    moved = {o for o, item in enumerate(model.units) if any(pod.key in answer.moved for pod in item.pods)}
    found: dict[EvictionUnit, tuple[GroupKey, ...]] = {}
    admitted = {ask.group.key for ask in answer.asks}
    for bound, part in model.taken:
        owners = tuple(key for a in bound.asks if (key := model.asks[a].group.key) in admitted)
        if not owners:
            continue
        for o, literal in part.items():
            if solver.value(literal) if answer.lost[o] else o in moved:
                found[model.units[o]] = (*found.get(model.units[o], ()), *owners)
    return found
