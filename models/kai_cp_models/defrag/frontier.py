"""The frontier of defragmentation: the fewest restarts for each value, proved (section 8)."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from kai_cp_models.budget import POINT_SHARE, Allowance, Budget
from kai_cp_models.defrag.bound import domains_to_free, least_restarts, units_at_bound
from kai_cp_models.defrag.model import DefragModel
from kai_cp_models.defrag.order import Ordered, ordered
from kai_cp_models.defrag.problem import DefragQuestion, Excluded, Problem
from kai_cp_models.joint.search import Objective, lexicographic
from kai_cp_models.limits import LIMITS
from kai_cp_models.pods import UNLIMITED, GroupKey, PodKey
from kai_cp_models.settings import Settings
from kai_cp_models.snapshot import Snapshot
from kai_cp_models.solver import cp_model

_LOST_TICKS: Final = 100.0
"""Lost work is compared in hundredths of a GPU-hour."""

Because = Literal["exhausted", "maxMoves", "most", "budget"]


@dataclass(frozen=True, slots=True)
class Move:
    """One restart: the pods of a step restart together."""

    step: int
    group: GroupKey
    pod: PodKey
    source: str
    target: str


@dataclass(frozen=True, slots=True)
class Point:
    """A value with the fewest restarts that reach it; ``bound``: no plan restarts fewer pods."""

    value: int
    moves: int
    groups: int
    lost_gpu_hours: float
    proved: bool
    bound: int
    frees: tuple[str, ...]
    plan: tuple[Move, ...]


@dataclass(frozen=True, slots=True)
class Frontier:
    """What can be reached. ``most``: the largest value; ``proved``: more is impossible, or was not asked
    for."""

    question: DefragQuestion
    now: float
    already: int
    points: tuple[Point, ...]
    most: int
    proved: bool
    because: Because
    excluded: tuple[Excluded, ...]
    seconds: float


def frontier(
    snapshot: Snapshot,
    settings: Settings,
    question: DefragQuestion,
    *,
    most: int | None = None,
    max_moves: int | None = None,
    seconds: float = 60.0,
) -> Frontier:
    """The frontier of a snapshot.

    ``most``: larger values are not computed. ``max_moves``: the most restarts of a plan; None: as the
    settings say. ``seconds``: of processor time.
    """
    started = time.monotonic()
    problem = Problem(snapshot, settings, question)
    limit = settings.defrag.max_moves if max_moves is None else max_moves
    budget = Budget(started + 2 * seconds, math.inf, seconds, settings=settings.solver)
    search = _Search(problem, limit, budget)
    already = problem.value({})
    points, because, proved = search.run(already, most)
    return Frontier(
        question,
        snapshot.now,
        already,
        tuple(points),
        points[-1].value if points else already,
        proved,
        because,
        tuple(sorted(problem.excluded, key=lambda one: one.group)),
        time.monotonic() - started,
    )


def cheapest(problem: Problem, value: int, budget: Budget) -> Point | Because:
    """The point with the fewest restarts that reaches ``value``, or why there is none."""
    return _Search(problem, problem.settings.defrag.max_moves, budget).point(value, 0)


class _Search:
    """Solves the values one after the other; each answer is the hint of the next."""

    def __init__(self, problem: Problem, limit: int, budget: Budget) -> None:
        self._problem = problem
        self._limit = limit
        self._budget = budget
        budget.begin(1.0)
        self._forbidden: list[tuple[int, ...]] = []
        self._bounds: Sequence[float] = ()

    def run(self, already: int, most: int | None) -> tuple[list[Point], Because, bool]:
        """Points of the frontier, why it ends, and whether that end is proved."""
        found: list[Point] = []
        value = already + 1
        least = 0
        while True:
            if most is not None and value > most:
                return found, "most", all(point.proved for point in found)
            outcome = self.point(value, least)
            if isinstance(outcome, str):
                proved = outcome != "budget"
                return found, outcome, proved
            if found and found[-1].moves == outcome.moves:
                found.pop()
            found.append(outcome)
            least = outcome.bound
            value = outcome.value + 1

    def _least(self, value: int) -> int:
        """The least number of restarts that a value takes, by counting."""
        if len(self._bounds) <= value:
            self._bounds = least_restarts(self._problem, 2 * value)
        bound = self._bounds[value]
        return -1 if bound == math.inf else int(bound)

    def point(self, value: int, least: int) -> Point | Because:
        """The fewest restarts for a value that can be made in a safe order; or why there are none."""
        counted = self._least(value)
        if counted < 0:
            return "exhausted"
        if not self._problem.units:
            return "exhausted"
        least = max(least, counted)
        if not self._problem.question.gang and least == counted:
            # If restarts are as few as counting allows, all are on the domains that become free: a small
            # model suffices.
            outcome = self._solved(value, counted, units_at_bound(self._problem, value, counted))
            if outcome != "exhausted":
                return outcome
            least = counted + 1
        outcome = self._solved(value, least)
        return self._end(value, counted) if outcome == "exhausted" else outcome

    def _solved(self, value: int, least: int, among: Collection[int] | None = None) -> Point | Because:
        """The fewest restarts, ``least`` or more; ``among``: exactly that many, of these units only."""
        problem = self._problem
        model = DefragModel(problem, among)
        model.cp.add(model.value >= value)
        model.cp.add(model.moves >= least)
        most = self._limit if among is None else least if self._limit < 0 else min(least, self._limit)
        if most >= 0:
            model.cp.add(model.moves <= most)
        if not problem.question.gang and among is None:
            cheapest = sorted((whole, k) for _, whole, k in domains_to_free(problem))
            model.hint([k for _, k in cheapest[:value]])
        for units in self._forbidden:
            model.forbid(units)
        for _ in range(LIMITS.order_cuts):
            work = POINT_SHARE * self._budget.work_left()
            allowance = Allowance(self._budget, work)
            solver, bound, status, proved = _fewest(model, allowance)
            if status == "infeasible":
                return "exhausted"
            if solver is None:
                return "budget"
            units, targets = model.read(solver)
            order = ordered(self._problem, units, targets, value, allowance)
            if order.units is not None:
                return self._finished(order, max(bound, least), proved)
            if not order.proved:
                return "budget"
            self._forbidden.append(tuple(units))
            model.forbid(units)
        return "budget"

    def _end(self, value: int, counted: int) -> Because:
        """Why there is no plan: because of the limit on moves, or under any limit."""
        if self._limit < 0:
            return "exhausted"
        saved, self._limit = self._limit, UNLIMITED
        outcome = self.point(value, counted)
        self._limit = saved
        return "exhausted" if outcome == "exhausted" else "maxMoves"

    def _finished(self, order: Ordered, bound: int, proved: bool) -> Point:
        problem, nodes = self._problem, self._problem.snapshot.nodes
        assert order.units is not None
        plan: list[Move] = []
        for step, u in enumerate(order.units, 1):
            unit = problem.units[u]
            for pod, node in zip(unit.pods, unit.nodes, strict=True):
                target = nodes[order.targets[pod.key]].name
                plan.append(Move(step, unit.group.key, pod.key, nodes[node].name, target))
        busy_before, busy = problem.busy_after({}), problem.busy_after(order.targets)
        frees = sorted(nodes[n].name for n in problem.nodes if n in busy_before and n not in busy)
        proved = proved or len(plan) <= bound
        return Point(
            problem.value(order.targets),
            len(plan),
            len({problem.units[u].group.key for u in order.units}),
            sum(problem.units[u].lost_gpu_hours for u in order.units),
            proved,
            len(plan) if proved else bound,
            tuple(frees),
            tuple(plan),
        )


def _fewest(model: DefragModel, allowance: Allowance) -> tuple[cp_model.CpSolver | None, int, str, bool]:
    """One solve of the model: restarts first, then groups, lost work and names.

    Returns (solver or None, bound on restarts, status, whether the restarts are proved to be fewest).
    """
    problem, cp = model.problem, model.cp.clone()
    by_group: dict[GroupKey, list[int]] = {}
    for u, unit in enumerate(problem.units):
        by_group.setdefault(unit.group.key, []).append(u)
    groups = []
    for units in by_group.values():
        if len(units) == 1:
            groups.append(model.out[units[0]])
            continue
        some = cp.new_bool_var("")
        for u in units:
            cp.add_implication(model.out[u], some)
        groups.append(some)
    lost = sum(
        round(unit.lost_gpu_hours * _LOST_TICKS) * out
        for unit, out in zip(problem.units, model.out, strict=True)
    )
    named = sum((u + 1) * out for u, out in enumerate(model.out))
    goals = [
        Objective("restarts", model.moves),
        Objective("groups", sum(groups)),
        Objective("lost work", lost),
        Objective("names", named),
    ]
    best, stages, outcome = lexicographic(cp, goals, allowance)
    if outcome.status == "infeasible":
        return None, 0, "infeasible", True
    if best is None or not stages:
        return None, 0, "unknown", False
    return best, math.ceil(stages[0].bound - 1e-6), "solved", stages[0].proved
