"""All minimal blocking sets, and all correction sets, of one waiting pod group (MUSes and MCSes).

A set of families is *blocking* when the batch cannot be placed while they are enforced, all others
relaxed. The search keeps what is known of every subset: one that is feasible decides all below it, one
that is not all above it. A core is taken as a hint only: it is shrunk by deletion, from the end of the
order of families, and every member is tested.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from kai_cp_models.explain.families import Families, Family, ordered, set_key
from kai_cp_models.explain.feasibility import Feasibility
from kai_cp_models.explain.own import own_faults
from kai_cp_models.explain.situation import Situation
from kai_cp_models.snapshot import PodGroup
from kai_cp_models.solver import cp_model

MOST_SETS: Final = 8
"""Blocking sets that are named at most."""
_MOST_FAMILIES: Final = 16
"""Families up to which all sets are looked for; beyond, some are."""
_WORK: Final = 4.0
"""Deterministic time of one solve at most, in the solver's unit."""
_RANDOM_SEED: Final = 0
_PATIENCE: Final = 4.0
"""Wall time per second of processor time, at most."""


@dataclass(frozen=True, slots=True)
class Blocking:
    """What blocks a group. ``sets``: minimal ones, in their order; empty when the model is feasible.

    ``proved``: the refusal is; ``minimal``: every member of every set was tested; ``complete``: there are no
    other minimal sets. ``corrections``: minimal sets whose relaxation admits the group. ``families``: all
    that have a row.
    """

    sets: tuple[Families, ...] = ()
    corrections: tuple[Families, ...] = ()
    proved: bool = False
    minimal: bool = True
    complete: bool = False
    families: tuple[Family, ...] = ()
    sure: bool = True
    """Whether the model itself was decided in time."""
    solves: int = 0
    seconds: float = 0.0

    @property
    def not_involved(self) -> list[Family]:
        """Families with a row that are in no minimal set; known only when all sets are."""
        named = frozenset().union(*self.sets) if self.sets else frozenset()
        return [family for family in self.families if family not in named] if self.complete else []


def blocking(model: Feasibility, seconds: float = 10.0) -> Blocking:
    """The minimal blocking sets of the model's pod group, as many as ``seconds`` of processor time allow."""
    return _Search(model, time.process_time() + seconds).run()


def blocking_of(situation: Situation, group: PodGroup, seconds: float = 10.0) -> Blocking:
    """The minimal blocking sets of a pod group.

    First as if actions could be mixed; where that is feasible, with one action at a time, as a cycle has it.
    """
    batch, given = situation.batch(group.key), own_faults(situation, group)
    found = blocking(Feasibility(situation, group, batch, given), seconds)
    if found.sets or not found.sure:
        return found
    again = blocking(Feasibility(situation, group, batch, given, one_action=True), seconds)
    return again if again.sets else found


def fix_literals(model: Feasibility, enforced: Families) -> None:
    """Enforce these families and relax all others."""
    for family, literal in model.literals.items():
        domain = model.cp.proto.variables[literal.index].domain
        domain.clear()
        domain.extend([1, 1] if family in enforced else [0, 0])


def solver_for(seconds: float) -> cp_model.CpSolver:
    """A solver whose answers depend on the model alone, unless ``seconds`` end it."""
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = _RANDOM_SEED
    solver.parameters.max_deterministic_time = _WORK
    # Work ends a solve, so that a busy machine gives the same answer; time only ends a hopeless one.
    solver.parameters.max_time_in_seconds = _PATIENCE * seconds
    return solver


@dataclass
class _Search:
    model: Feasibility
    deadline: float
    solves: int = 0
    sure: bool = True
    sets: list[Families] = field(default_factory=list)
    corrections: list[Families] = field(default_factory=list)

    def run(self) -> Blocking:
        began = time.process_time()
        families = ordered(self.model.literals)
        everything = frozenset(families)
        fits = self.feasible(everything)
        if fits is not False:
            return Blocking(
                families=tuple(families),
                sure=fits is True,
                solves=self.solves,
                seconds=time.process_time() - began,
            )
        complete = self._all(families) if len(families) <= _MOST_FAMILIES else self._some(everything)
        return Blocking(
            tuple(sorted(self.sets, key=set_key)[:MOST_SETS]),
            tuple(sorted(self.corrections, key=set_key)[:MOST_SETS]),
            True,
            self.sure,
            complete and self.sure and len(self.sets) <= MOST_SETS,
            tuple(families),
            True,
            self.solves,
            time.process_time() - began,
        )

    def feasible(self, enforced: Families) -> bool | None:
        """Whether the batch has a place with these families; None when time ended first."""
        left = self.deadline - time.process_time()
        if left <= 0:
            return None
        self.solves += 1
        fix_literals(self.model, enforced)
        status = solver_for(left).solve(self.model.cp)
        if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return True
        return False if status == cp_model.INFEASIBLE else None

    def shrink(self, enforced: Families) -> Families:
        """A minimal blocking set within one that blocks; what stands first in the order survives."""
        kept = enforced
        for family in reversed(ordered(enforced)):
            found = self.feasible(kept - {family})
            if found is False:
                kept -= {family}
            elif found is None:
                self.sure = False
        return kept

    def grow(self, enforced: Families, order: list[Family]) -> Families:
        """A largest feasible set around one that is feasible."""
        kept = enforced
        for family in order:
            if family not in kept:
                found = self.feasible(kept | {family})
                if found:
                    kept |= {family}
                elif found is None:
                    self.sure = False
        return kept

    def _all(self, families: list[Family]) -> bool:
        """Every minimal set; False when time ended first."""
        count = len(families)
        subsets = np.arange(1 << count, dtype=np.int64)
        sizes = sum((subsets >> i) & 1 for i in range(count))
        by_size = subsets[np.argsort(-sizes, kind="stable")]
        open_ = np.ones(1 << count, dtype=bool)
        bit = {family: 1 << i for i, family in enumerate(families)}
        everything = (1 << count) - 1
        while time.process_time() < self.deadline:
            left = by_size[open_[by_size]]
            if not len(left):
                return True
            seed = frozenset(family for family in families if int(left[0]) & bit[family])
            found = self.feasible(seed)
            if found is None:
                self.sure = False
                return False
            if found:
                # Larger subsets are looked at first, so nothing open lies above this one.
                chosen = sum(bit[family] for family in seed)
                self.corrections.append(frozenset(families) - seed)
                open_ &= (subsets & ~chosen & everything) != 0
            else:
                least = self.shrink(seed)
                self.sets.append(least)
                mask = sum(bit[family] for family in least)
                open_ &= (subsets & mask) != mask
                if not self.sure:
                    return False
        return False

    def _some(self, everything: Families) -> bool:
        """Minimal sets one after the other, each without a member of those before it."""
        rest = everything
        while len(self.sets) < MOST_SETS and self.feasible(rest) is False:
            least = self.shrink(rest)
            self.sets.append(least)
            rest -= {ordered(least)[-1]}
        return False
