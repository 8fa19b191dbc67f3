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
_MOST_CELLS: Final = 30
"""Cells of the part of a large cluster that is looked at first."""
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


def blocking(model: Feasibility, seconds: float = 10.0, *, one_action: bool = False) -> Blocking:
    """The minimal blocking sets of the model's pod group, as many as ``seconds`` of processor time allow.

    ``one_action``: what is disturbed is disturbed by one action.
    """
    return _Search([model], time.process_time() + seconds, one_action).run()


def blocking_of(situation: Situation, group: PodGroup, seconds: float = 10.0) -> Blocking:
    """The minimal blocking sets of a pod group.

    As if actions could be mixed; where that is feasible, with one action at a time, as a cycle has it. Of a
    large cluster a part is looked at first: where that is enough for a plan, so is the whole.
    """
    deadline = time.process_time() + seconds
    batch, given = situation.batch(group.key), own_faults(situation, group)
    models = [Feasibility(situation, group, batch, given, most_cells=_MOST_CELLS)]
    alone = _Search(models, deadline, one_action=True)
    if not models[0].cells.whole and not alone.feasible(frozenset(models[0].literals)):
        models.append(Feasibility(situation, group, batch, given))
    if alone.feasible(frozenset(models[-1].literals)) is not False:
        return alone.run()
    found = _Search(models, deadline).run()
    return found if found.sets or not found.sure else alone.run()


def solver_for(seconds: float) -> cp_model.CpSolver:
    """A solver whose answers depend on the model alone, unless ``seconds`` end it."""
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = _RANDOM_SEED
    # These look for structure that this model does not have, for longer than the search itself takes.
    solver.parameters.cp_model_probing_level = 0
    solver.parameters.symmetry_level = 0
    solver.parameters.max_deterministic_time = _WORK
    # Work ends a solve, so that a busy machine gives the same answer; time only ends a hopeless one.
    solver.parameters.max_time_in_seconds = _PATIENCE * seconds
    return solver


@dataclass
class _Search:
    """``models``: of growing parts of the cluster, the last one of the whole."""

    models: list[Feasibility]
    deadline: float
    one_action: bool = False
    solves: int = 0
    sure: bool = True
    sets: list[Families] = field(default_factory=list)
    corrections: list[Families] = field(default_factory=list)
    fits: list[Families] = field(default_factory=list)
    blocks: list[Families] = field(default_factory=list)
    """Sets that were found to be feasible, and infeasible: they decide what lies below and above."""

    def run(self) -> Blocking:
        began = time.process_time()
        families = ordered(self.models[-1].literals)
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
        if any(enforced <= one for one in self.fits):
            return True
        if any(one <= enforced for one in self.blocks):
            return False
        found = None
        for model in self.models:
            found = self._solved(model, enforced)
            if found is True:
                self.fits.append(enforced)
                return True
        if found is False and self.models[-1].cells.whole:
            self.blocks.append(enforced)
            return False
        return None

    def _solved(self, model: Feasibility, enforced: Families) -> bool | None:
        left = self.deadline - time.process_time()
        if left <= 0:
            return None
        self.solves += 1
        model.enforce(enforced, one_action=self.one_action)
        status = solver_for(left).solve(model.cp)
        if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return True
        return False if status == cp_model.INFEASIBLE else None

    def core(self, enforced: Families) -> Families:
        """A smaller blocking set within one that blocks, named by the solver, confirmed by another solve."""
        model, left = self.models[-1], self.deadline - time.process_time()
        if left <= 0:
            return enforced
        self.solves += 1
        model.enforce(enforced, one_action=self.one_action)
        model.assume(enforced)
        solver = solver_for(left)
        status = solver.solve(model.cp)
        model.cp.clear_assumptions()
        if status != cp_model.INFEASIBLE:
            return enforced
        # Presolve has named literals that were not assumed, so nothing is believed before it is solved again.
        named = frozenset(solver.sufficient_assumptions_for_infeasibility())
        found = frozenset(family for family in enforced if model.literals[family].index in named)
        return found if found and self.feasible(found) is False else enforced

    def least_within(self, enforced: Families) -> Families:
        """A minimal blocking set within one that blocks."""
        core = self.core(enforced)
        for family in ordered(core):
            # Without what is in every blocking set there is a plan; that settles most of what follows.
            self.feasible(enforced - {family})
        return self.shrink(core)

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
                least = self.least_within(seed)
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
            least = self.least_within(rest)
            self.sets.append(least)
            rest -= {ordered(least)[-1]}
        return False
