"""What a cycle may spend: a deadline by the clock, and work that is counted.

Work alone decides how long a search continues, so that the same snapshot gives the same answer on a busy
machine and on an idle one. Work is CP-SAT's deterministic time, weighted, and for everything else an estimate
from sizes and counts. One unit is about what an idle core does in a second. The clock only stops what would
miss the deadline, and then ``cut`` says so.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from math import inf
from typing import Final

from kai_cp_models.settings import SolverSettings
from kai_cp_models.snapshot import Snapshot

SEARCH_SHARE: Final = 0.5
"""Work of all searches of a cycle per second of its budget; the rest is for everything else."""

ALLOCATE_SHARE: Final = 0.5
"""Share of the work left that the searches of allocate may do."""

CONSOLIDATION_SHARE: Final = 0.35
"""The same for consolidation."""

RECLAIM_SHARE: Final = 0.55
"""The same for reclaim; all other actions may do all of it."""

MODEL_SHARE: Final = 0.5
"""Share of what patience allows that one model of allocate may use."""

PLACES_SHARE: Final = 0.5
"""Share of the work left that one model of places at given starts may use."""

REFIT_SHARE: Final = 0.5
"""The same for better places of holds; the present ones stand until better ones are found."""

DRAIN_SHARE: Final = 0.1
"""The same for places to close."""

HERO_SHARE: Final = 0.25
"""The same for the least price of an earlier start that evicts others."""

POINT_SHARE: Final = 0.34
"""The same for one attempt at a point of the frontier of defragmentation."""

LEAST_DEFRAG_WORK: Final = 1.0
"""Work for a plan of defragmentation, however much the actions have done."""

DETERMINISTIC_TIME_WORK: Final = 4.0
"""Work per unit of CP-SAT's deterministic time, as measured."""

LOAD_WORK: Final = 0.00001
"""Work of passing a model to CP-SAT, per variable."""

LEAST_SECONDS: Final = 0.001
"""The least time that the clock gives a solve, so that the solve ends by itself."""

LEAST_VAIN_WORK: Final = 0.3
"""Work that an action may always spend without success: one failed model of a small cluster takes up to 0.2,
and the smaller attempts after it need some as well.
"""

LEAST_PART_WORK: Final = 0.05
"""The same for each part of an action, such as a queue under preempt: enough for a small model."""

POD_WORK: Final = 0.0004
"""Work of a cycle without searches, per pod: reading, ranking, placing and checking it."""

NODE_WORK: Final = 0.0004
"""The same per node."""

MOST_PATIENT_WORK: Final = 4.0
"""Plain work of a large cluster. Beyond it patience does not grow: more made no plan better, and `racks` with
10,000 nodes and a budget of 20 s took 22 s instead of 6.
"""

FIRST_RESERVE: Final = 0.15
"""Share of the time kept for checking and writing plans, as long as it is not known how long that takes."""

LEAST_RESERVE: Final = 0.02
"""The least share of it that is kept once that is known."""

MOST_RESERVE: Final = 0.3
"""The most of it."""

NEXT_PLAN: Final = 4.0
"""Seconds kept per second that checking took the last time: the next plan may be larger, and the machine
busier.
"""

LARGER_PLAN: Final = 1.25
"""The same in proportion to how much larger the next plan is already."""

WRITTEN: Final = 2.0
"""Seconds kept per second that writing took the last time: the last plan is written twice, without and with
its proofs.
"""


@dataclass
class Budget:
    """The time and the work of one cycle, and what the present action may use of the work."""

    deadline: float
    """Value of ``time.monotonic()`` by which the cycle must end."""
    patience: float
    """Work without success per unit of plain work, see ``SolverSettings.patience``."""
    work: float
    """Work that all searches of the cycle may do."""
    plain_work: float = 0.0
    """Work of the cycle without searches, estimated from the size of the snapshot."""
    settings: SolverSettings = SolverSettings()
    """By which its searches run."""
    cut: bool = False
    """Whether the clock has ended something."""
    short: bool = False
    """Whether the work of the budget, and not patience, has ended a search of the present action."""
    _spent: float = 0.0
    _vain: float = 0.0
    _allowed: float = inf
    _part: tuple[float, float] = (inf, inf)
    """In the present part of the action: the upper limit of ``_spent``, and what it may spend in vain."""
    _before: float = 0.0
    """``_vain`` when the present part began."""
    _span: tuple[float, float] = (0.0, inf)
    """When the cycle began, and by when its last plan is needed."""
    _took: tuple[float, float, int] | None = None
    """Seconds that checking and writing the last plan took, and how many decisions it has; None: unknown."""

    @staticmethod
    def of(settings: SolverSettings, snapshot: Snapshot, deadline: float) -> Budget:
        """The budget of one cycle over the snapshot."""
        plain = POD_WORK * len(snapshot.pods) + NODE_WORK * len(snapshot.nodes)
        return Budget(deadline, settings.patience, SEARCH_SHARE * settings.budget_seconds, plain, settings)

    def end_within(self, start: float, end: float) -> None:
        """Keep time at the end of the cycle to check and write its plans; none where it is endless."""
        self._span = start, end
        self.deadline = end - FIRST_RESERVE * self._in_all

    def plan_took(self, checking: float, writing: float, decisions: int) -> None:
        """Note the seconds that the last plan took, and how many ``decisions`` it has."""
        self._took = checking, writing, max(1, decisions)
        self.plan_has(decisions)

    def plan_has(self, decisions: int) -> None:
        """Keep time for the next plan, which has this many ``decisions`` so far."""
        if self._took is not None:
            checking, writing, before = self._took
            self._keep(checking * max(NEXT_PLAN, LARGER_PLAN * decisions / before) + WRITTEN * writing)

    def plan_is_made(self) -> None:
        """Keep time for nothing but writing the plan again, with its proofs."""
        if self._took is not None and self._took[1]:
            self._keep(WRITTEN * self._took[1])

    @property
    def _in_all(self) -> float:
        """Seconds of the cycle that shares are kept of; 0 where they have no end."""
        start, end = self._span
        return max(0.0, end - start) if end < inf else 0.0

    def _keep(self, seconds: float) -> None:
        kept = min(MOST_RESERVE * self._in_all, max(LEAST_RESERVE * self._in_all, seconds))
        self.deadline = self._span[1] - kept

    def begin(self, share: float) -> None:
        """Give the action that starts now ``share`` of the work that is left; what it does not use is left
        for the next."""
        self._allowed = self._spent + share * max(0.0, self.work - self._spent)
        self._vain = self._before = 0.0
        self._part = inf, inf
        self.short = False

    def begin_part(self, left: int) -> None:
        """Share the work and the patience of the action among the parts that are ``left``, this one included.

        What a part does not use is left for the later parts.
        """
        self._part = inf, inf
        self._before = self._vain
        if left > 1:
            vain = max(LEAST_PART_WORK, max(0.0, self._patience_ends() - self._vain) / left)
            self._part = self._spent + self.work_left() / left, vain

    def spend(self, work: float) -> None:
        """Count the work of a search."""
        self._spent += work

    def in_vain(self, work: float) -> None:
        """Note that this work, which is counted as spent already, served no group and proved nothing."""
        self._vain += work

    @property
    def spent(self) -> float:
        """Work of all searches so far."""
        return self._spent

    def work_left(self) -> float:
        """Work that the present action may still do; never negative.

        It ends searches as the clock does: no answer is used that more work would have changed. So a larger
        budget goes on where a smaller one ended.
        """
        return max(0.0, min(self.work, self._allowed, self._part[0]) - self._spent)

    def work_worth(self) -> float:
        """Work that one more search is worth, however much is left; never negative."""
        # The part's own sum: a part that has spent nothing has exactly its share, as its least share is just
        # what a model needs.
        return max(0.0, min(self._patience_ends() - self._vain, self._part[1] - (self._vain - self._before)))

    def work_now(self) -> float:
        """Work that a search which begins now may do: what it is worth, as far as that is left."""
        return min(self.work_worth(), self.work_left())

    def _patience_ends(self) -> float:
        """The most work that the action may spend without success."""
        return max(LEAST_VAIN_WORK, self.patience * min(self.plain_work, MOST_PATIENT_WORK))

    def ended(self, least: float) -> bool:
        """Whether too little work is left for a search that needs ``least``.

        No search starts once half of the part's patience is spent: one that starts then would mostly end
        without an answer.
        """
        return not self.suffices(max(least, self._vain - self._before)) or self.passed()

    def suffices(self, least: float) -> bool:
        """Whether a search may begin that needs ``least``; ``short`` where a larger budget would let it."""
        self.short = self.short or self.work_left() < least <= self.work_worth()
        return self.work_now() >= least

    def seconds_left(self) -> float:
        """Seconds until the deadline; never negative."""
        return max(0.0, self.deadline - time.monotonic())

    def passed(self, until: float = inf) -> bool:
        """Whether the deadline, or an earlier time of that clock, has passed; the answer is ``cut`` then."""
        late = time.monotonic() > min(self.deadline, until)
        self.cut = self.cut or late
        return late


@dataclass
class Allowance:
    """Work that one sequence of solves may do."""

    budget: Budget
    work: float

    def left(self) -> float:
        """Work that is left of it; never negative."""
        return max(0.0, self.work)

    def spend(self, work: float) -> None:
        """Count the work of one solve."""
        self.work -= work
        self.budget.spend(work)
