"""One joint attempt of an eviction action: everything admitted so far and the next triggers, solved together.

Small problems get all goals at once. In large ones an attempt only looks for room at little loss; the
goals follow once, when the admission is settled (``finish``).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from ortools.sat.python import cp_model

from kai_cp_models.actions.dues import Owners, dues_of, valid_reclaim
from kai_cp_models.actions.scenario import play
from kai_cp_models.cycle import Cycle, Waiting
from kai_cp_models.joint.choose import joint_model
from kai_cp_models.joint.counting import Counting, Families
from kai_cp_models.joint.evicting import Due, EvictingModel
from kai_cp_models.joint.model import TooLarge
from kai_cp_models.joint.offers import Ranked, Reach, entitlement, milli_gpus, ranked_offers
from kai_cp_models.joint.problem import Answer, Ask
from kai_cp_models.joint.prune import MOST_MOVABLE, near_empty, shallow
from kai_cp_models.joint.search import StageResult, lexicographic
from kai_cp_models.ledger import Ledger
from kai_cp_models.snapshot import UNLIMITED, ActionName, GroupKey
from kai_cp_models.units import Batch

_FEW_UNITS = 60
"""Up to so many victim units all are open at once."""
_DEEPER = 2
_NEARLY_ALL = 0.7
_MOST_CUTS = 24
_MOST_ROUGH_CUTS = 8
_SMALL = 400
"""Variables up to which every attempt pursues all goals."""
_ROUGH_GAP = 0.01
_MOST_FINISHED = 4_000
"""Variables beyond which the rough goal is the objective: each further goal costs a presolve."""
_ROUGH_GOALS = 2
_ROUGH_SHARE = 0.4
"""Share of the time left that one attempt of a large problem may take."""


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


@dataclass
class Attempts:
    """The joint problem of one run of an action, and what the waiting groups may disturb in it."""

    cycle: Cycle
    action: ActionName
    base: Ledger
    waiting: Mapping[GroupKey, Batch]
    _takes: dict[tuple[object, ...], frozenset[int]] = field(default_factory=dict)

    @cached_property
    def _asks(self) -> dict[GroupKey, Ask]:
        snapshot = self.cycle.snapshot
        return {
            key: Ask(snapshot.group_by_key[key], self.base.fixed.gangs[key], batch)
            for key, batch in self.waiting.items()
        }

    @cached_property
    def ranked(self) -> tuple[Ranked, ...]:
        """All that any waiting group may disturb, in the reverse fair order of the action's start."""
        return tuple(ranked_offers(self.cycle, list(self._asks.values()), self.action))

    def entitlement(self, ask: Ask) -> tuple[object, ...]:
        """Asks with equal entitlement may take the same units."""
        return entitlement(self.base, ask, self.action)

    def takes_of(self, ask: Ask) -> frozenset[int]:
        """Ranks of the units that the ask may take."""
        key = self.entitlement(ask)
        found = self._takes.get(key)
        if found is None:
            reach = Reach(self.base, ask, self.action)
            found = frozenset(item.rank for item in self.ranked if reach.takes(item.offer))
            self._takes[key] = found
        return found

    @cached_property
    def _counting(self) -> Counting:
        everywhere = self.action == "consolidation"
        return Counting(self.base, self._asks.values(), everywhere=everywhere)

    @cached_property
    def _families(self) -> Families:
        for ask in self._asks.values():
            self.takes_of(ask)
        return Families(self._counting, self.ranked, self._takes, moved=self.action == "consolidation")

    def counted(self, before: Found | None) -> Families:
        """Room by counting, when every unit that may be taken is, beside what was admitted ``before``."""
        counted = self._families.copy()
        for ask in before.asks if before else ():
            counted.hold(self.entitlement(ask), ask.pods)
        return counted

    def attempt(
        self, before: Found | None, chunk: Sequence[Ask], *, optional: bool = False
    ) -> Found | Waiting:
        """Place everything admitted before and ``chunk``; with ``optional``, as much of it as can be.

        Only units that the chunk may take, or that are disturbed already, may be disturbed (1.3 e).
        """
        if self.cycle.seconds_left() <= 0:
            return out_of_time()
        useful: set[int] = before.disturbed if before else set()
        for ask in chunk:
            useful |= self.takes_of(ask)
        asks = [*(before.asks if before else ()), *chunk]
        required = len(asks) - len(chunk) if optional else len(asks)
        caps = before.caps if before else None
        result: Found | Waiting = out_of_time()
        for part in [useful] if optional else self._prefixes(asks, useful, before):
            result = self._solve(asks, required, part, final=False, caps=caps, whole=part == useful)
            if isinstance(result, Found) or result.reason == "FitsAsItIs":
                break
        return result

    def _prefixes(self, asks: Sequence[Ask], useful: set[int], before: Found | None) -> Iterator[set[int]]:
        """Ever more of the useful units, least deserving first: the threshold of 1.4.2, found by counting."""
        if self.action != "consolidation" and len(useful) > _FEW_UNITS:
            ranked = [item for item in self.ranked if item.rank in useful]
            dues = dues_of(self.base, self.action, asks, ranked, self._takes)
            depth = shallow(self._counting, asks, ranked, dues, self.base.book)
            while depth is not None and (depth := max(depth, _FEW_UNITS)) < len(ranked) * _NEARLY_ALL:
                part = {item.rank for item in ranked[:depth]}
                yield part | (before.disturbed if before else set())
                depth *= _DEEPER
        yield useful

    def finish(self, found: Found) -> Found:
        """The same admission with all goals pursued; ``found`` itself when that fails."""
        if found.complete or found.variables > _MOST_FINISHED:
            return found
        useful = found.disturbed
        for ask in found.asks:
            useful |= self.takes_of(ask)
        for threshold in (True, False):
            best = self._solve(list(found.asks), len(found.asks), useful, final=True, threshold=threshold)
            if isinstance(best, Found):
                return best
        return found

    def _most_moved(self, asks: Sequence[Ask]) -> int:
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
    ) -> Found | Waiting:
        """``whole``: nothing else may be disturbed, so that a refusal is a proof."""
        cycle, action = self.cycle, self.action
        ranked = [item for item in self.ranked if item.rank in useful]
        if action == "consolidation" and len(ranked) > MOST_MOVABLE:
            ranked = near_empty(self.base, asks, ranked)
            whole = False
        if not ranked:
            return Waiting("NoVictims", "no running pod group may be disturbed for this one", True)
        dues = dues_of(self.base, action, asks, ranked, self._takes)
        may_lose = action != "consolidation"
        try:
            placement = joint_model(self.base, asks, [item.offer for item in ranked], may_lose=may_lose)
        except TooLarge:
            return Waiting("NotDecidedInTime", "the joint problem is too large for the time budget")
        policy = cycle.snapshot.policy
        model = EvictingModel(
            placement,
            action,
            ranked,
            dues,
            required=required,
            max_moved_groups=UNLIMITED if may_lose else policy.max_consolidation_preemptees,
            max_moved_ratio=cycle.settings.objective.max_moved_gpus_per_admitted_gpu,
        )
        for queue, most in (caps or {}).items():
            model.cap_loss(queue, most)
        complete = final or len(model.cp.proto.variables) <= _SMALL
        goals = [
            *model.admission_goals(),
            *(model.goals(threshold=threshold) if complete else model.rough_goals()),
        ]
        gap = 0.0 if complete else _ROUGH_GAP
        # The fair order is asked of a first, short solve; the other goals hardly ever change its verdict.
        rough = final
        share = 1.0 if complete else _ROUGH_SHARE
        ends = time.monotonic() + share * cycle.seconds_left()

        def left() -> float:
            return max(0.0, ends - time.monotonic())

        sure = True
        for _ in range(_MOST_CUTS if complete else _MOST_ROUGH_CUTS):
            trial = model.cp.clone()
            solver, stages, first = lexicographic(
                trial, goals[:_ROUGH_GOALS] if rough else goals, cycle.settings.solver, left, gap=gap
            )
            if solver is None:
                proved = first.status == "infeasible" and sure and model.exact and whole
                return Waiting("NotPossible", "no permitted set of evictions makes room", proved)
            answer = placement.answer(solver)
            if not any(answer.lost) and not answer.moved:
                return Waiting("FitsAsItIs", "there is room without evictions; allocate places it", True)
            placed = [ask for ask, yes in zip(asks, answer.admitted, strict=True) if yes]
            played = play(
                self.base,
                asks,
                placement.offers,
                answer,
                self.waiting,
                most_moved=self._most_moved(placed),
            )
            if played.ledger is not None and rough:
                rough = False
                continue
            if played.ledger is not None:
                owners = _owners(model, dues, answer, solver)
                if action != "reclaim" or valid_reclaim(self.base, placed, ranked, played.ledger, owners):
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
                        all(stage.proved for stage in stages if stage.name.startswith("admitted")),
                    )
            if played.early:
                model.keep_more(answer, played.early)
            else:
                # The counts were right and the places were not: this cut is no proof.
                sure = sure and played.ledger is not None
                model.forbid(answer)
        return Waiting("NotDecidedInTime", "the fair order refused every plan that was tried")


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


def out_of_time() -> Waiting:
    """The refusal of what was not decided in time."""
    return Waiting("NotDecidedInTime", "the time budget ended before this pod group was decided")
