"""One joint attempt of an eviction action: everything admitted so far and the next triggers, solved together.

Small problems get all goals at once. In large ones an attempt only looks for room at little loss; the
goals follow once, when the admission is settled (``finish``).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from ortools.sat.python import cp_model

from kai_cp_models.actions.dues import Owners, dues_of, valid_reclaim
from kai_cp_models.actions.scenario import play
from kai_cp_models.cycle import Cycle, Waiting
from kai_cp_models.fairness import amounts
from kai_cp_models.joint.choose import joint_model
from kai_cp_models.joint.evicting import Due, EvictingModel
from kai_cp_models.joint.model import TooLarge
from kai_cp_models.joint.offers import Ranked, Reach, entitlement, milli_gpus, ranked_offers
from kai_cp_models.joint.problem import Answer, Ask
from kai_cp_models.joint.prune import MOST_MOVABLE, near_empty
from kai_cp_models.joint.search import StageResult, lexicographic
from kai_cp_models.ledger import Ledger
from kai_cp_models.snapshot import GPU, MILLI, UNLIMITED, ActionName, GroupKey
from kai_cp_models.units import Batch

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
    _given: dict[tuple[object, ...], int] = field(default_factory=dict)

    @cached_property
    def ranked(self) -> tuple[Ranked, ...]:
        """All that any waiting group may disturb, in the reverse fair order of the action's start."""
        snapshot = self.cycle.snapshot
        asks = [
            Ask(snapshot.group_by_key[key], self.base.fixed.gangs[key], batch)
            for key, batch in self.waiting.items()
        ]
        return tuple(ranked_offers(self.cycle, asks, self.action))

    def takes_of(self, ask: Ask) -> frozenset[int]:
        """Ranks of the units that the ask may take."""
        key = entitlement(self.base, ask, self.action)
        found = self._takes.get(key)
        if found is None:
            reach = Reach(self.base, ask, self.action)
            found = frozenset(item.rank for item in self.ranked if reach.takes(item.offer))
            self._takes[key] = found
        return found

    def too_little(self, before: Found | None, ask: Ask) -> Waiting | None:
        """Refuses a preempting ask whose queue has too few GPUs to give, all victims and idle room counted.

        Only preempt: whatever the asks of a queue get there is idle or comes from their own queue.
        """
        if self.action != "preempt":
            return None
        snapshot = self.base.snapshot
        asked = amounts.optimistic_batch(snapshot, ask.pods)[GPU]
        given = self._given.get(key := entitlement(self.base, ask, self.action))
        if given is None:
            takes = self.takes_of(ask)
            given = self._given[key] = sum(item.holds[GPU] for item in self.ranked if item.rank in takes)
        used = sum(
            amounts.optimistic_batch(snapshot, other.pods)[GPU]
            for other in (before.asks if before else ())
            if other.group.queue == ask.group.queue
        )
        if asked == 0 or used + asked <= given + self._idle_milli_gpus:
            return None
        return Waiting(
            "NotPossible",
            f"lower priorities of queue {ask.group.queue} hold {given / MILLI:g} GPUs, "
            f"{self._idle_milli_gpus / MILLI:g} are idle; {(used + asked) / MILLI:g} are asked for",
            True,
        )

    @cached_property
    def _idle_milli_gpus(self) -> int:
        """Milli-GPUs that are idle or left of shared GPUs, all nodes together."""
        free = np.maximum(self.base.idle[:, GPU] + self.base.releasing[:, GPU], 0)
        return int(free.sum()) + int(np.ceil(MILLI * self.base.shared_free().sum()))

    def attempt(
        self, before: Found | None, chunk: Sequence[Ask], *, optional: bool = False
    ) -> Found | Waiting:
        """Place everything admitted before and ``chunk``; with ``optional``, as much of it as can be.

        Only units that the chunk may take, or that are disturbed already, may be disturbed (1.3 e).
        """
        if self.cycle.seconds_left() <= 0:
            return _out_of_time()
        useful: set[int] = before.disturbed if before else set()
        for ask in chunk:
            useful |= self.takes_of(ask)
        asks = [*(before.asks if before else ()), *chunk]
        required = len(asks) - len(chunk) if optional else len(asks)
        return self._solve(asks, required, useful, final=False, caps=before.caps if before else None)

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
    ) -> Found | Waiting:
        cycle, action = self.cycle, self.action
        ranked = [item for item in self.ranked if item.rank in useful]
        whole = True
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


def _out_of_time() -> Waiting:
    return Waiting("NotDecidedInTime", "the time budget ended before this pod group was decided")
