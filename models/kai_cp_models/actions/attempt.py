"""One joint attempt of an eviction action: everything admitted so far and the next triggers, solved together.

Small problems get all goals at once. In large ones an attempt only looks for room at little loss; the
goals follow once, when the admission is settled (``finish``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from kai_cp_models.actions.dues import Owners, dues_of, most_lost_milli_gpus, overreaching
from kai_cp_models.actions.scenario import Played, play
from kai_cp_models.budget import Allowance
from kai_cp_models.cycle import Cycle, Waiting
from kai_cp_models.joint.choose import joint_model
from kai_cp_models.joint.counting import Counting, Families, Row
from kai_cp_models.joint.evicting import Due, EvictingModel
from kai_cp_models.joint.goals import Disruption, GoalList, Values
from kai_cp_models.joint.model import JointModel, TooLarge
from kai_cp_models.joint.offers import Ranked, Reach, entitlement, milli_gpus, ranked_offers
from kai_cp_models.joint.policy import EvictionPolicy
from kai_cp_models.joint.problem import Answer, Ask
from kai_cp_models.joint.prune import near_empty, shallow
from kai_cp_models.joint.realise import realise
from kai_cp_models.joint.returning import Returning
from kai_cp_models.joint.search import StageResult, lexicographic, start_from
from kai_cp_models.ledger import Ledger
from kai_cp_models.limits import LIMITS
from kai_cp_models.snapshot import MILLI, UNLIMITED, GroupKey
from kai_cp_models.solver import cp_model
from kai_cp_models.units import Batch

NO_VICTIMS: Final = Waiting("NoVictims", "no running pod group may be disturbed for this one", True)
TOO_LITTLE: Final = Waiting("NotPossible", "all permitted victims together do not free enough capacity", True)


@dataclass(frozen=True)
class Found:
    """An accepted joint answer: the ledger it leads to and how it was reached."""

    ledger: Ledger
    asks: tuple[Ask, ...]
    ranked: tuple[Ranked, ...]
    answer: Answer
    owners: Owners
    stages: tuple[StageResult, ...]
    variables: int
    constraints: int
    complete: bool
    """All goals were pursued."""
    caps: Mapping[str, int] = field(default_factory=dict)
    """What the fair order lets queues lose; it lets them lose no more when more is admitted."""
    proved: bool = True
    """Which of the optional asks are admitted is proved to be best."""

    @property
    def disturbed(self) -> set[int]:
        """Ranks of the units that are lost or moved."""
        return {
            item.rank
            for item, lost in zip(self.ranked, self.answer.lost, strict=True)
            if lost or any(pod.key in self.answer.moved for pod in item.offer.pods)
        }


@dataclass(frozen=True, slots=True)
class Failed:
    """An attempt that led to no plan.

    ``served``: asks that have their place in the last plan tried; None: there was none to try. ``caps``:
    what the fair order lets queues lose, as far as this attempt has learned.
    """

    why: Waiting
    served: frozenset[GroupKey] | None = None
    caps: Mapping[str, int] = field(default_factory=dict)


@dataclass
class Attempts:
    """The joint problem of one run of an action, and what the waiting groups may disturb in it."""

    cycle: Cycle
    policy: EvictionPolicy
    base: Ledger
    waiting: Mapping[GroupKey, Batch]
    takes: dict[tuple[object, ...], frozenset[int]] = field(default_factory=dict)
    """Ranks of the units by entitlement, for those that ``takes_of`` was asked about."""
    _scopes: dict[tuple[object, ...], frozenset[int]] = field(default_factory=dict)
    _rooms: dict[tuple[object, ...], Row] = field(default_factory=dict)
    _beside: dict[GroupKey, frozenset[int]] = field(default_factory=dict)

    @cached_property
    def goals(self) -> GoalList:
        """What makes a plan of this action better."""
        return GoalList(self.cycle.settings.objective, moves_only=not self.policy.may_lose)

    def values(self, found: Found) -> Values:
        """What the plan is worth by the goals, as it was played through and beside all that could go."""
        return self.goals.values(self.disruption(found.ledger, self.ranked, found.asks))

    def disruption(self, ledger: Ledger, ranked: Sequence[Ranked], asks: Sequence[Ask]) -> Disruption:
        """What the plan that led to ``ledger`` disturbs of ``ranked``."""
        step = MILLI * self.cycle.settings.objective.lost_beyond_step_gpus
        return Disruption.of(self.base, ledger, ranked, asks, step)

    @cached_property
    def asks(self) -> Mapping[GroupKey, Ask]:
        """All waiting groups as asks."""
        snapshot = self.cycle.snapshot
        return {
            key: Ask(snapshot.group_by_key[key], self.base.fixed.gangs[key], batch)
            for key, batch in self.waiting.items()
        }

    @cached_property
    def ranked(self) -> tuple[Ranked, ...]:
        """All that any waiting group may disturb, in the reverse fair order of the action's start."""
        return tuple(ranked_offers(self.cycle, list(self.asks.values()), self.policy))

    @property
    def ranked_so_far(self) -> tuple[Ranked, ...]:
        """``ranked`` once it was asked for; nothing before."""
        return self.ranked if "ranked" in self.__dict__ else ()

    def entitlement(self, ask: Ask) -> tuple[object, ...]:
        """Asks with equal entitlement may take the same units."""
        return entitlement(self.base, ask, self.policy)

    def takes_of(self, ask: Ask) -> frozenset[int]:
        """Ranks of the units that the ask may take."""
        key = self.entitlement(ask)
        found = self.takes.get(key)
        if found is None:
            reach = Reach(self.base, ask, self.policy)
            scope = reach.scope(self._victim_queues)
            found = self._scopes.get(scope)
            if found is None:
                found = reach.takes_all(self._by_queue)
                self._scopes[scope] = found
            self.takes[key] = found
        return found

    def taken_by(self, asks: Iterable[Ask]) -> set[int]:
        """Ranks of the units that some of the asks may take; there are many asks and few sets."""
        return set[int]().union(*{self.takes_of(ask) for ask in asks})

    @cached_property
    def _by_queue(self) -> Mapping[str, Sequence[Ranked]]:
        found: dict[str, list[Ranked]] = {}
        for item in self.ranked:
            found.setdefault(item.offer.group.queue, []).append(item)
        return found

    @cached_property
    def _victim_queues(self) -> list[str]:
        return sorted(self._by_queue)

    @cached_property
    def counting(self) -> Counting:
        """Room and demand at the action's start."""
        everywhere = not self.policy.may_lose
        shapes = {self.base.shape(batch) for batch in self.waiting.values()}
        asking = (pod for shape in shapes for pod in shape.examples)
        return Counting(self.base, asking, everywhere=everywhere)

    @cached_property
    def _families(self) -> Families:
        for ask in self.asks.values():
            self.takes_of(ask)
        return Families(self.counting, self.ranked, self.takes, moved=not self.policy.may_lose)

    def refused_by_sums(self, ask: Ask) -> Waiting | None:
        """The refusal of an ask that finds no room by counting even alone, all gone that it may disturb.

        Asked before victims are ranked, which takes longer; it is a proof.
        """
        wanted = self.counting.demand(ask.pods)
        if not self.policy.may_lose:
            short = (wanted > self.counting.idle_room)[self.counting.totals] & (
                wanted[self.counting.totals] > 0
            )
            message = "moving pods cannot help: there is too little free capacity in all"
            return Waiting("NoRoomInSum", message, True) if short.any() else None
        reach = Reach(self.base, ask, self.policy)
        victims = self.cycle.snapshot.preemptible_groups
        scope = reach.scope(victims)
        room = self._rooms.get(scope)
        if room is None:
            queues = [ask.group.queue] if self.policy.own_queue else list(victims)
            groups = (group for queue in queues for group in victims.get(queue, ()))
            pods = [
                pod
                for group in groups
                if reach.disturbs(group)
                for pod in self.base.fixed.gangs[group.key].pods
            ]
            room = self._rooms[scope] = self.counting.room(pods)
        enough = bool((wanted <= room)[wanted > 0].all()) and self._within_dues(ask, reach)
        return None if enough else TOO_LITTLE

    def _within_dues(self, ask: Ask, reach: Reach) -> bool:
        if not self.policy.by_share:
            return True
        allowed = reach.scope(self.cycle.snapshot.preemptible_groups)[1:]
        units = {queue: most for queue, most in self._largest_units.items() if queue in allowed}
        asked = self.base.asked(ask.batch)
        lost = most_lost_milli_gpus(self.base.book, ask, asked, units)
        return self.counting.spare_milli_gpus([ask], ()) + self.counting.elsewhere_milli_gpus + lost >= 0

    @cached_property
    def _largest_units(self) -> Mapping[str, int]:
        """Milli-GPUs of the largest preemptible pod group of every queue."""
        gangs = self.base.fixed.gangs
        return {
            queue: max(sum(milli_gpus(pod) for pod in gangs[group.key].pods) for group in groups)
            for queue, groups in self.cycle.snapshot.preemptible_groups.items()
        }

    def counted(self, before: Found | None) -> Counted:
        """Room by counting, when every unit that may be taken is, beside what was admitted ``before``."""
        counted = Counted(self, self._families.copy())
        for ask in before.asks if before else ():
            counted.hold(ask)
        return counted

    @cached_property
    def _returning(self) -> Returning:
        return Returning(self.base)

    def beside(self, ask: Ask) -> frozenset[int] | None:
        """Ranks of the units that may be lost while the ask is admitted; None: none is known to be kept."""
        if not self.policy.own_queue or len(self.waiting) * len(self.ranked) > LIMITS.requeue_pairs:
            return None
        found = self._beside.get(ask.group.key)
        if found is None:
            first = self._returning.before((item.offer for item in self.ranked), ask)
            found = self._beside[ask.group.key] = frozenset(
                item.rank for item, comes_first in zip(self.ranked, first, strict=True) if not comes_first
            )
        return found

    def attempt(
        self,
        before: Found | None,
        chunk: Sequence[Ask],
        *,
        optional: bool = False,
        after: Failed | None = None,
    ) -> Found | Failed:
        """Place everything admitted before and ``chunk``; with ``optional``, as much of it as can be.

        ``after``: a failed attempt with more asks, whose lessons are taken over; a refusal is no proof then.

        Only units that the chunk may take, or that are disturbed already, may be disturbed (formulation 1.3).
        """
        budget = self.cycle.budget
        if budget.work_worth() < LIMITS.model_work or budget.passed():
            return Failed(out_of_time())
        useful = self.taken_by(chunk) | (before.disturbed if before else set())
        asks = [*(before.asks if before else ()), *chunk]
        required = len(asks) - len(chunk) if optional else len(asks)
        caps = {**(before.caps if before else {}), **(after.caps if after else {})}
        result: Found | Failed = Failed(out_of_time())
        for part in self._prefixes(asks, useful, before):
            if budget.work_worth() < LIMITS.model_work or budget.passed():
                return result if isinstance(result, Failed) else Failed(out_of_time())
            began = budget.spent
            whole = part == useful and (after is None or not after.caps)
            result = self._solve(asks, required, part, final=False, caps=caps, whole=whole)
            if isinstance(result, Found) and (not optional or len(result.asks) > required):
                return result
            if isinstance(result, Found) or not result.why.proved:
                budget.in_vain(budget.spent - began)
            if isinstance(result, Failed) and (result.why.reason == "FitsAsItIs" or result.served):
                return result
        return result

    def _prefixes(self, asks: Sequence[Ask], useful: set[int], before: Found | None) -> Iterator[set[int]]:
        """Ever more of the useful units, least deserving first, found by counting (formulation 1.4)."""
        if self.policy.may_lose and len(useful) > LIMITS.open_units and self.goals.by_policy:
            ranked = [item for item in self.ranked if item.rank in useful]
            dues = dues_of(self.base, self.policy, asks, ranked, self.takes)
            opened = shallow(self.counting, asks, ranked, dues, self.base.book)
            depth = opened[-1] + 1 if opened else len(ranked)
            while (depth := max(depth, LIMITS.open_units)) < len(ranked) * LIMITS.nearly_all_share:
                part = {item.rank for item in ranked[:depth]}
                yield part | (before.disturbed if before else set())
                depth *= LIMITS.deeper
        yield useful

    def finish(self, found: Found) -> Found | Failed:
        """The same admission with all goals pursued; ``found`` itself when there is no time for that.

        Fails only where it turns out that no unit has to be disturbed for these asks.
        """
        budget = self.cycle.budget
        began = budget.spent
        best = self._finish(found)
        budget.in_vain(budget.spent - began)
        return best

    def _finish(self, found: Found) -> Found | Failed:
        budget = self.cycle.budget
        if found.complete or found.variables > LIMITS.finished_variables or budget.passed():
            return found
        if len(found.ranked) > LIMITS.weighed_units:
            return found
        if budget.work_worth() < LIMITS.model_work:
            return found
        useful = self.taken_by(found.asks) | found.disturbed
        if self.policy.may_lose and len(useful) > LIMITS.policy_units and self.goals.by_policy:
            # The threshold need not be deeper than it is (formulation 1.4).
            deepest = max(found.disturbed)
            useful = {rank for rank in useful if rank <= deepest}
        for threshold in (True, False):
            best = self._solve(
                list(found.asks),
                len(found.asks),
                useful,
                final=True,
                threshold=threshold,
                rough_again=threshold and not found.variables,
                known=found,
            )
            if isinstance(best, Found):
                # What the model is sure of may turn out otherwise when it is played through.
                return best if self.values(best) <= self.values(found) else found
            if best.why.reason == "FitsAsItIs":
                return best
        return found

    def most_moved_milli_gpus(self, asks: Sequence[Ask]) -> int:
        """Milli-GPUs that the settings let move for these asks."""
        ratio = self.cycle.settings.objective.max_moved_gpus_per_admitted_gpu
        if ratio == UNLIMITED:
            return UNLIMITED
        return int(ratio * sum(milli_gpus(pod) for ask in asks for pod in ask.pods))

    def _solve(
        self,
        asks: list[Ask],
        required: int,
        useful: set[int],
        *,
        final: bool,
        threshold: bool = True,
        caps: Mapping[str, int] | None = None,
        whole: bool = True,
        rough_again: bool = True,
        known: Found | None = None,
    ) -> Found | Failed:
        """``whole``: nothing else may be disturbed, so that a refusal is a proof.

        ``rough_again``: a model too large for all goals is solved for the rough one. ``known``: a plan for
        these asks to start from.
        """
        cycle, policy = self.cycle, self.policy
        ranked = [item for item in self.ranked if item.rank in useful]
        if not policy.may_lose and len(ranked) > LIMITS.moving_units:
            keep = known.disturbed if known is not None else frozenset[int]()
            ranked = near_empty(self.base, asks, ranked, keep)
            whole = False
        if not ranked:
            return Failed(NO_VICTIMS)
        dues = dues_of(self.base, policy, asks, ranked, self.takes)
        built = self._model(asks, ranked, dues, required, caps or {})
        if built is None:
            return Failed(Waiting("NotDecidedInTime", "the joint problem is too large for the time budget"))
        placement, model = built
        complete = len(model.cp.proto.variables) <= (
            LIMITS.finished_variables if final else LIMITS.full_variables
        )
        if final and not complete and not rough_again:
            return Failed(Waiting("NotDecidedInTime", "the joint problem is too large for the last goals"))
        goals = [
            *model.admission_goals(),
            *(self.goals.objectives(model, threshold=threshold) if complete else self.goals.rough(model)),
        ]
        gap = 0.0 if complete else LIMITS.rough_gap
        # The fair order is asked of a first, short solve; the other goals hardly ever change its verdict.
        rough = complete and (final or len(ranked) > LIMITS.open_units)
        share = 1.0 if complete else LIMITS.rough_share
        allowance = self._allowance(model, share)
        if known is not None and not known.variables:
            start_from(
                model.cp, _choices(model, known.answer, known.ranked), cycle.settings.solver, allowance
            )
        sure = True
        served: frozenset[GroupKey] | None = None
        for _ in range(LIMITS.cuts if complete else LIMITS.rough_cuts):
            trial = model.cp.clone()
            solver, stages, first = lexicographic(
                trial,
                goals[: LIMITS.rough_goals] if rough else goals,
                cycle.settings.solver,
                allowance,
                gap=gap,
            )
            if solver is None:
                proved = first.status == "infeasible" and first.proved and sure and model.exact and whole
                return Failed(
                    Waiting("NotPossible", "no permitted set of evictions frees enough capacity", proved),
                    served,
                    dict(model.caps),
                )
            answer = placement.answer(solver)
            placed = [ask for ask, yes in zip(asks, answer.admitted, strict=True) if yes]
            best = whole and all(stage.proved for stage in stages if stage.name.startswith("admitted"))
            if not placed:
                proved = best and sure and model.exact
                return Failed(
                    Waiting("NotPossible", "no permitted set of evictions frees enough capacity", proved)
                )
            if not any(answer.lost) and not answer.moved:
                if realise(self.base, asks, placement.offers, answer, pipeline_only=True) is None:
                    # The counts fit and the places do not: a unit has to go after all.
                    sure = False
                    model.disturb_some()
                    continue
                return Failed(
                    Waiting("FitsAsItIs", "it fits without evictions; allocate places it", True),
                    frozenset(ask.group.key for ask in placed),
                )
            owners = _owners(model, dues, answer, solver)
            played = play(
                self.base,
                asks,
                placement.offers,
                answer,
                self.waiting,
                most_moved=self.most_moved_milli_gpus(placed),
                lost_to=_lost_to(ranked, owners) if policy.by_share else None,
            )
            if played.ledger is not None and rough:
                rough = False
                continue
            allowed = not policy.by_share or (
                played.ledger is not None
                and not overreaching(self.base, placed, ranked, played.ledger, owners)
            )
            if played.ledger is not None and allowed:
                return Found(
                    played.ledger,
                    tuple(placed),
                    tuple(ranked),
                    answer,
                    owners,
                    tuple(stages),
                    len(model.cp.proto.variables),
                    len(model.cp.proto.constraints),
                    complete,
                    dict(model.caps),
                    best,
                )
            served = played.served
            sure = _cut(model, answer, played, policy) and sure
        return Failed(
            Waiting("NotDecidedInTime", "the fair order refused every plan that was tried"),
            served,
            dict(model.caps),
        )

    def _model(
        self,
        asks: list[Ask],
        ranked: Sequence[Ranked],
        dues: Sequence[Due],
        required: int,
        caps: Mapping[str, int],
    ) -> tuple[JointModel, EvictingModel] | None:
        """The joint model of the asks and the units of ``ranked``; None where it would be too large.

        ``caps``: the most that a leaf queue may lose, as earlier cuts have shown.
        """
        policy, settings = self.policy, self.cycle.settings.objective
        offers = [item.offer for item in ranked]
        try:
            placement = joint_model(self.base, asks, offers, may_lose=policy.may_lose)
        except TooLarge:
            return None
        most_groups = self.cycle.snapshot.policy.max_consolidation_preemptees
        model = EvictingModel(
            placement,
            policy,
            ranked,
            dues,
            required=required,
            max_moved_groups=UNLIMITED if policy.may_lose else most_groups,
            max_moved_ratio=settings.max_moved_gpus_per_admitted_gpu,
            lost_beyond_step_gpus=settings.lost_beyond_step_gpus,
        )
        for queue, most in caps.items():
            model.cap_loss(queue, most)
        return placement, model

    def _allowance(self, model: EvictingModel, share: float) -> Allowance:
        """What solving may take: at least as much work as building the model was."""
        budget = self.cycle.budget
        built = LIMITS.variable_work * len(model.cp.proto.variables) + LIMITS.unit_work * len(self.ranked)
        budget.spend(built)
        return Allowance(budget, min(share * budget.work_left(), max(budget.work_worth(), built)))


def _cut(model: EvictingModel, answer: Answer, played: Played, policy: EvictionPolicy) -> bool:
    """Forbid an answer that played through does not hold; whether the cut may be part of a proof."""
    if played.early and policy.own_queue:
        # In another plan they might find no place to come back to.
        model.keep_some(answer, played.early, played.served)
        return False
    if played.early:
        model.keep_more(answer, played.early, played.served)
        return True
    # The counts were right; if the places were not, others might be.
    model.forbid(answer, played.served)
    return played.ledger is not None


@dataclass(frozen=True)
class Counted:
    """What counting says of more asks, one after the other."""

    attempts: Attempts
    families: Families

    def fits(self, ask: Ask) -> bool:
        """Whether the ask may have a place beside all held ones; False is a proof."""
        return self.families.fits(ask, self.attempts.entitlement(ask), self.attempts.beside(ask))

    def hold(self, ask: Ask) -> None:
        """The ask has its place."""
        self.families.hold(ask, self.attempts.entitlement(ask), self.attempts.beside(ask))


def _owners(
    model: EvictingModel, dues: Sequence[Due], answer: Answer, solver: cp_model.CpSolver
) -> dict[int, tuple[GroupKey, ...]]:
    """For every disturbed unit the admitted triggers that take it, or may move it."""
    moved = {
        o for o, item in enumerate(model.ranked) if any(pod.key in answer.moved for pod in item.offer.pods)
    }
    found: dict[int, tuple[GroupKey, ...]] = {}
    for due, part in zip(dues, model.taken, strict=True):
        owners = tuple(model.asks[a].group.key for a in due.asks if answer.admitted[a])
        if not owners:
            continue
        for o, literal in part.items():
            if solver.value(literal) or (o in moved and not answer.lost[o]):
                found[o] = (*found.get(o, ()), *owners)
    return found


def _choices(
    model: EvictingModel, answer: Answer, ranked: Sequence[Ranked]
) -> list[tuple[cp_model.IntVar, bool]]:
    """What a plan for all asks of the model decides: what is admitted, lost and moved."""
    lost = {item.rank for item, yes in zip(ranked, answer.lost, strict=True) if yes}
    return [
        *((admitted, True) for admitted in model.admitted),
        *((var, item.rank in lost) for item, var in zip(model.ranked, model.lost, strict=True)),
        *((var, key in answer.moved) for key, var in model.moved.items()),
    ]


def _lost_to(ranked: Sequence[Ranked], owners: Owners) -> dict[GroupKey, frozenset[GroupKey]]:
    """For every disturbed pod group the triggers that answer for its units."""
    found: dict[GroupKey, frozenset[GroupKey]] = {}
    for o, takers in owners.items():
        key = ranked[o].offer.group.key
        found[key] = found.get(key, frozenset()) | {takers[0]}
    return found


def out_of_time() -> Waiting:
    """The refusal of what was not decided in time."""
    return Waiting(
        "NotDecidedInTime", "the time budget, or the patience of the settings, ended before it was decided"
    )
