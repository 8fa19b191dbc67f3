"""All minimal blocking sets, and all correction sets, of one waiting pod group (MUSes and MCSes).

A set of families is *blocking* when the batch cannot be placed while they are enforced and all others are
relaxed. The search remembers every answer: a feasible set decides all its subsets, an infeasible one all its
supersets. Mostly there is only one minimal set, and as many questions as it has members prove it. Otherwise
sets are found smallest first: each is the least set that meets all corrections known so far. The solver is
not asked for cores, because one solve with families free to choose takes longer than the whole search.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from kai_cp_models.explain.cells import Cells, Extent
from kai_cp_models.explain.families import Families, Family, kind_of, ordered, set_key
from kai_cp_models.explain.feasibility import Feasibility
from kai_cp_models.explain.question import Question
from kai_cp_models.explain.situation import Situation
from kai_cp_models.snapshot import PodGroup
from kai_cp_models.solver import cp_model, run, work_of

MOST_SETS: Final = 8
"""The most blocking sets that are named."""
_MOST_BITS: Final = 40
"""The most families whose order decides between equal costs: a cost has 63 bits."""
_WORK: Final = 4.0
"""The most deterministic time of one solve, in the solver's unit."""
_MOST_WORK: Final = {"whole": 0.5, "domains": 0.5, "sum": 0.5, "part": 0.4}
"""The same limit for one look at a question: if the whole does not answer within it, it needs far longer, and
a part need not answer."""
_RANDOM_SEED: Final = 0
_FEW_CELLS: Final = 12
_MOST_CELLS: Final = (_FEW_CELLS, 60)
"""The most cells in the parts of a large cluster that are examined first."""
_PATIENCE: Final = 20.0
"""The most wall time per second of counted work."""
_UNIT_SECONDS: Final = 2.5
"""Seconds of a 2.5 GHz core per unit of the solver's deterministic time, as measured on such models."""
_ROW_SECONDS: Final = 2e-5
"""Seconds for a row: to build it, and again whenever a solve reads it."""
_SCARCE: Final = "room:gpu"
"""The resource that is short most often; all other resources are first tested together."""
ALL_SECONDS: Final = 10.0
"""Counted work for the blocking sets of all groups of one question."""


@dataclass
class Work:
    """The work left, in seconds of a core. It is counted from rows and from the solver's work and never read
    from a clock, so a busy machine gives the same answer."""

    left: float

    @contextmanager
    def at_most(self, seconds: float) -> Iterator[None]:
        """Do no more than ``seconds`` of it."""
        kept = max(0.0, self.left - seconds)
        self.left = min(self.left, seconds)
        try:
            yield
        finally:
            self.left += kept

    def built(self, model: Feasibility) -> Feasibility:
        """Count a model that was built."""
        self.left -= _ROW_SECONDS * len(model.cp.proto.constraints)
        return model

    def solve(self, model: Feasibility) -> cp_model.CpSolverStatus:
        """Look at a question within what is left."""
        solver = solver_for(self.left)
        limits = solver.parameters
        limits.max_deterministic_time = min(_MOST_WORK[model.cells.extent], limits.max_deterministic_time)
        # With few cells, the linear relaxation of all rows decides at once; with many, it takes too long.
        limits.linearization_level = 2 if len(model.cells.nodes) <= _FEW_CELLS else 1
        limits.cut_level = 0
        return self.run(solver, model)

    def run(self, solver: cp_model.CpSolver, model: Feasibility) -> cp_model.CpSolverStatus:
        """Solve, and count it."""
        status = run(solver, model.cp)
        self.left -= _ROW_SECONDS * len(model.cp.proto.constraints)
        self.left -= _UNIT_SECONDS * work_of(solver)
        return status


@dataclass(frozen=True, slots=True)
class Blocking:
    """What blocks a group. ``sets``: the minimal ones, in their order; empty when the model is feasible.

    ``proved``: the refusal is proved. ``minimal``: without any member of a set the model has a plan.
    ``complete``: the model has no other minimal sets. ``corrections``: minimal sets whose relaxation admits
    the group. ``families``: all that have a row.
    """

    sets: tuple[Families, ...] = ()
    corrections: tuple[Families, ...] = ()
    proved: bool = False
    minimal: bool = True
    complete: bool = False
    families: tuple[Family, ...] = ()
    sure: bool = True
    """Whether the model itself was decided within the work that was left."""
    solves: int = 0
    seconds: float = 0.0

    @property
    def not_involved(self) -> list[Family]:
        """Families with a row that are in no minimal set; known only when all sets are."""
        named = frozenset().union(*self.sets) if self.sets else frozenset()
        return [family for family in self.families if family not in named] if self.complete else []


def blocking(question: Question, seconds: float = ALL_SECONDS, *, one_action: bool = False) -> Blocking:
    """The minimal blocking sets of a question, as many as ``seconds`` of counted work allow.

    ``one_action``: one action makes all evictions and moves.
    """
    return _Search(_Ladder(question, Work(seconds)), one_action).run()


def blocking_of(situation: Situation, group: PodGroup, work: Work | None = None) -> Blocking:
    """The minimal blocking sets of a pod group, within ``work``; by default all that one question may do."""
    return blocking_of_all(situation, [group], work)[0]


def blocking_of_all(
    situation: Situation, groups: Sequence[PodGroup], work: Work | None = None
) -> list[Blocking]:
    """The minimal blocking sets of pod groups.

    Every group is tested by sums before any is examined further. Groups that the sums refuse come first, then
    the others. Each has an equal share of the work left for its kind; later groups get what it does not need.
    """
    work = work or Work(ALL_SECONDS)
    sought = [_Sought(situation, group) for group in groups]
    for one in sought:
        one.look(work)
    found = {}
    for refused in (True, False):
        left = [i for i, one in enumerate(sought) if one.refused is refused]
        for done, i in enumerate(left):
            share = Work(max(0.0, work.left) / (len(left) - done))
            work.left -= share.left
            found[i] = sought[i].answer(share)
            work.left += share.left
    return [found[i] for i in range(len(sought))]


class _Ladder:
    """Examines one question by models, the cheap ones first, each built when first needed: sums refuse, parts
    of the cluster admit, the whole does both. A small cluster needs only the whole."""

    def __init__(self, question: Question, work: Work) -> None:
        self.work = work
        self._question = question
        self.looks: list[Cells] = [question.cells]
        if not question.cells.exact:
            few, some = (question.part(most) for most in _MOST_CELLS)
            by_domain = [question.sums(domains=True)] if question.together else []
            looks = [question.sums(domains=False), few, *by_domain, some, question.cells]
            whole = len(question.cells.nodes)
            self.looks = [look for look in looks if look.extent != "part" or len(look.nodes) < whole]
        self.whole = len(self.looks) - 1
        self._built: dict[int, Feasibility] = {}

    def __getitem__(self, i: int) -> Feasibility:
        found = self._built.get(i)
        if found is None:
            found = self._built[i] = self.work.built(Feasibility(self._question, self.looks[i]))
        return found

    def counts(self, i: int, answer: bool) -> bool:
        """Whether a model's answer holds for the whole."""
        look = self.looks[i]
        return look.extent != "part" if answer is False else not look.summed

    @cached_property
    def families(self) -> Families:
        """All families with a row; the first model has all but those of topology and of stateful rules."""
        first = self[0]
        found = {*first.literals, *(family for family, _ in first.rules)} if self.whole else {*first.literals}
        return frozenset(found | ({"topology"} if self._question.together else set()))


class _Sought:
    """Finds what blocks one pod group: first as if actions could be mixed; if that is feasible, with one
    action at a time, as in a cycle."""

    def __init__(self, situation: Situation, group: PodGroup) -> None:
        self._question = Question(situation, group)
        self._mixed: _Search | None = None
        self.refused = False
        """Whether sums refuse the group."""

    def look(self, work: Work) -> None:
        """Test the sums; nothing is known when no work is left."""
        if work.left > 0:
            ladder = _Ladder(self._question, work)
            self._mixed = _Search(ladder)
            self.refused = self._mixed.within(ladder.families, "sum") is False

    def answer(self, work: Work) -> Blocking:
        """The blocking sets, or that there are none."""
        if self._mixed is None:
            return Blocking(sure=False)
        ladder = self._mixed.ladder
        ladder.work = work
        alone = _Search(ladder, one_action=True)
        # What one action can place, several can place too.
        if self.refused or not alone.within(ladder.families, "part"):
            found = self._mixed.run()
            if found.sets or not found.sure:
                return found
        return alone.run()


def solver_for(seconds: float) -> cp_model.CpSolver:
    """A solver for at most ``seconds`` of counted work whose answers depend on the model alone."""
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = _RANDOM_SEED
    # These look for structure that this model lacks, and take longer than the search itself.
    solver.parameters.cp_model_probing_level = 0
    solver.parameters.symmetry_level = 0
    solver.parameters.max_presolve_iterations = 1
    # The limit on work ends a solve, so a busy machine gives the same answer; the time limit only ends a
    # hopeless one.
    solver.parameters.max_deterministic_time = min(_WORK, seconds / _UNIT_SECONDS)
    solver.parameters.max_time_in_seconds = _PATIENCE * max(1.0, seconds)
    return solver


@dataclass
class _Search:
    ladder: _Ladder
    one_action: bool = False
    solves: int = 0
    sure: bool = True
    sets: list[Families] = field(default_factory=list)
    corrections: list[Families] = field(default_factory=list)
    _fits: dict[int, list[Families]] = field(default_factory=lambda: defaultdict(list))
    _blocks: dict[int, list[Families]] = field(default_factory=lambda: defaultdict(list))
    """By model, sets that are feasible and sets that are infeasible: they decide their subsets and
    supersets."""
    _open: set[tuple[int, Families]] = field(default_factory=set)
    """Sets that a model left undecided; it would do so again."""

    def run(self) -> Blocking:
        began = time.process_time()
        families = ordered(self.ladder.families)
        everything = frozenset(families)
        fits = self.feasible(everything)
        if fits is not False:
            return Blocking(
                families=tuple(families),
                sure=fits is True,
                solves=self.solves,
                seconds=time.process_time() - began,
            )
        complete = self._only(everything) or self._by_size(families)
        return Blocking(
            tuple(sorted(self.sets, key=set_key)[:MOST_SETS]),
            tuple(sorted(self.corrections, key=set_key)[:MOST_SETS]),
            True,
            self.sure,
            complete,
            tuple(families),
            True,
            self.solves,
            time.process_time() - began,
        )

    def feasible(self, enforced: Families) -> bool | None:
        """Whether the batch can be placed with these families; None when the work ended first."""
        return self.within(enforced, "whole")

    def within(self, enforced: Families, extent: Extent) -> bool | None:
        """The same, by the cheaper models and by those of an extent; None when they leave it open."""
        ladder = self.ladder
        known = self._known(ladder.whole, enforced)
        if known is not None:
            return known
        for look, cells in enumerate(ladder.looks):
            if extent == "whole" or cells.extent == extent:
                answer = self._asked(look, enforced)
                if answer is not None and ladder.counts(look, answer):
                    (self._fits if answer else self._blocks)[ladder.whole].append(enforced)
                    return answer
        return None

    def _known(self, look: int, enforced: Families) -> bool | None:
        if any(enforced <= one for one in self._fits[look]):
            return True
        return False if any(one <= enforced for one in self._blocks[look]) else None

    def _asked(self, look: int, enforced: Families) -> bool | None:
        """The answer of one model; None when the work ended first."""
        known = self._known(look, enforced)
        if known is not None or self.ladder.work.left <= 0 or (look, enforced) in self._open:
            return known
        self.solves += 1
        model = self.ladder[look]
        model.enforce(enforced, one_action=self.one_action)
        status = self.ladder.work.solve(model)
        if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            self._fits[look].append(enforced)
            return True
        if status == cp_model.INFEASIBLE:
            self._blocks[look].append(enforced)
            return False
        self._open.add((look, enforced))
        return None

    def _only(self, everything: Families) -> bool:
        """Whether there is exactly one minimal set.

        A family is in every blocking set, and is a correction by itself, if the batch can be placed without
        it while all others are enforced. If these families together block, they are the only minimal set. If
        they do not, the search needs the same answers anyway.
        """
        refused = everything
        for family in reversed(ordered(everything)):
            # If the sums refuse with a few families, that answers most of the questions below.
            if self.within(refused - {family}, "sum") is False:
                refused -= {family}
        self.feasible(everything - {f for f in everything if kind_of(f) == "room" and f != _SCARCE})
        needed = frozenset(f for f in ordered(everything) if self.feasible(everything - {f}))
        if self.feasible(needed) is not False:
            return False
        self.sets.append(needed)
        self.corrections += [frozenset((family,)) for family in ordered(needed)]
        return True

    def shrink(self, enforced: Families) -> Families:
        """A blocking set within one that blocks, minimal unless the work ends; earlier families are kept
        first."""
        kept = enforced
        for family in reversed(ordered(enforced)):
            if self.feasible(kept - {family}) is False:
                kept -= {family}
        return kept

    def _by_size(self, families: list[Family]) -> bool:
        """Minimal sets, the smallest first; and whether these are all.

        Each step asks about the least set that meets every correction and contains no set found so far. All
        its subsets are feasible, so if it blocks it is minimal, and no remaining set is smaller. If it is
        feasible, as many families as possible are enforced with it; the others form one more correction.
        """
        everything = frozenset(families)
        some = self.shrink(everything)
        least = _LeastSets(families)
        for known in self._fits[self.ladder.whole]:
            least.meet(everything - known)
        while len(self.sets) <= MOST_SETS:
            seed = least.next(self.ladder.work)
            found = None if seed is None else self.feasible(seed)
            if seed is None and self.ladder.work.left > 0:
                return True
            if seed is None or found is None:
                break
            if found:
                grown, tested = self._grow(seed, families)
                if tested:
                    self.corrections.append(everything - grown)
                least.meet(everything - grown)
            else:
                self.sets.append(seed)
                least.leave_out(seed)
        if not self.sets:
            self.sets.append(some)
            self.sure = all(self.feasible(some - {family}) for family in some)
        return False

    def _grow(self, seed: Families, families: list[Family]) -> tuple[Families, bool]:
        """A largest feasible set around a feasible one, and whether no question was left open."""
        grown = max((one for one in self._fits[self.ladder.whole] if seed <= one), key=len)
        tested = True
        for family in families:
            if family not in grown:
                found = self.feasible(grown | {family})
                grown |= {family} if found else frozenset()
                tested = tested and found is not None
        return grown, tested


class _LeastSets:
    """The least set of families, by ``set_key``, that meets some sets and contains none of others."""

    def __init__(self, families: list[Family]) -> None:
        self._cp = cp_model.CpModel()
        self._in = {family: self._cp.new_bool_var(family) for family in families}
        bits = min(len(families), _MOST_BITS)
        self._cp.minimize(
            sum(
                var * ((1 << bits) - (1 << (bits - 1 - i) if i < bits else 0))
                for i, var in enumerate(self._in.values())
            )
        )

    def meet(self, families: Families) -> None:
        """Require one of these in the set."""
        self._cp.add_bool_or([self._in[family] for family in sorted(families)])

    def leave_out(self, families: Families) -> None:
        """Require that one of these is not in the set."""
        self._cp.add_bool_or([~self._in[family] for family in sorted(families)])

    def next(self, work: Work) -> Families | None:
        """The next set; None when there is none, or no work is left."""
        if work.left <= 0:
            return None
        solver = solver_for(work.left)
        status = run(solver, self._cp)
        work.left -= _UNIT_SECONDS * work_of(solver)
        if status != cp_model.OPTIMAL:
            work.left = min(work.left, 0.0) if status != cp_model.INFEASIBLE else work.left
            return None
        return frozenset(family for family, var in self._in.items() if solver.boolean_value(var))
