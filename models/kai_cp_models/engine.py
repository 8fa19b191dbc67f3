"""The engine: one snapshot in, one checked plan out, within a deadline.

The actions run in the configured order (0.2). After each of them the plan so far is complete and valid
in itself; it is checked and emitted, so the process outside always holds the best answer yet.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping
from functools import partial
from math import inf
from typing import Final, NamedTuple

from kai_cp_models.actions.allocate import AdmissionPass, allocate, allocate_jointly
from kai_cp_models.actions.backfill import backfill
from kai_cp_models.actions.evict import evict
from kai_cp_models.actions.stale import evict_stale
from kai_cp_models.blame import breaking, raised_for
from kai_cp_models.budget import ALLOCATE_SHARE, LEAST_DEFRAG_WORK, Budget
from kai_cp_models.check import PlannedCluster, SnapshotFacts, audit
from kai_cp_models.collection import collector_held
from kai_cp_models.cycle import Cycle
from kai_cp_models.defrag.act import Looked, advance
from kai_cp_models.domains.localities import localities
from kai_cp_models.explain import unscheduled
from kai_cp_models.joint.policy import CONSOLIDATION, POLICIES, PREEMPT, RECLAIM
from kai_cp_models.ledger import Ledger
from kai_cp_models.limits import LIMITS
from kai_cp_models.mig_advice import advised
from kai_cp_models.plan import CUT, FAILED, REJECTED, SPENT, Plan, QueueReport, Stage, StageKind, Unscheduled
from kai_cp_models.pods import GroupKey
from kai_cp_models.policy import STATE_ACTIONS, ActionName
from kai_cp_models.proof import Refuter
from kai_cp_models.refusal import Proof, Refusal
from kai_cp_models.reservations.allocate import allocate_in_time, settle
from kai_cp_models.reservations.maxruntime import end_overdue
from kai_cp_models.reservations.prepare import prepare
from kai_cp_models.reservations.report import estimated, reservations
from kai_cp_models.reservations.state import TimeState
from kai_cp_models.reservations.times import Times
from kai_cp_models.reservations.upcoming import next_instant
from kai_cp_models.rules.stateful import gpu_kinds, rollouts
from kai_cp_models.settings import Settings
from kai_cp_models.snapshot import Snapshot
from kai_cp_topology.records import Locality

ACTIONS: Final[dict[ActionName, Callable[[Cycle], None]]] = {
    "consolidation": partial(evict, policy=CONSOLIDATION),
    "reclaim": partial(evict, policy=RECLAIM),
    "preempt": partial(evict, policy=PREEMPT),
    "stalegangeviction": evict_stale,
}

logger = logging.getLogger(__name__)


def decide(
    snapshot: Snapshot,
    settings: Settings,
    *,
    deadline: float | None = None,
    emit: Callable[[Plan], None] | None = None,
    trial: bool = False,
) -> Plan:
    """The plan of one cycle for ``snapshot``.

    ``deadline``: value of ``time.monotonic()`` by which the answer is needed, ``inf``: none; by default the
    budget of the settings from now. ``emit`` gets every better checked plan as soon as there is one.
    ``trial``: nothing will be sent, so what the checker refused goes to the log at level debug.
    """
    started = time.monotonic()
    if deadline is None:
        deadline = started + settings.solver.budget_seconds
    with collector_held():
        seen, times = prepare(snapshot, settings)
        return _Engine(seen, settings, started, deadline, emit, times=times, trial=trial).run()


class _Fault(NamedTuple):
    """What was wrong with a run of an action, with which pod groups, and which it evicts for these."""

    kind: StageKind
    why: str
    groups: frozenset[GroupKey]
    taken: frozenset[GroupKey] = frozenset()


class _Engine:
    """One run over a snapshot: the cycle, and the best checked plan so far."""

    def __init__(
        self,
        snapshot: Snapshot,
        settings: Settings,
        started: float,
        deadline: float,
        emit: Callable[[Plan], None] | None,
        *,
        times: Times | None = None,
        trial: bool = False,
    ) -> None:
        self._times = times
        self._level = logging.DEBUG if trial else logging.ERROR
        self._aside = (
            *(() if times is None else times.aside),
            *gpu_kinds.problems(snapshot, settings.rules),
            *rollouts.problems(snapshot, settings.rules),
        )
        self._snapshot = snapshot
        self._emit = emit
        self._looked = Looked()
        self._worded: tuple[object, tuple[Unscheduled, ...]] = None, ()
        """Why groups wait, and in which state of the cycle, with which proofs."""
        self._proofs: Mapping[GroupKey, Proof] = {}
        self._short: dict[str, None] = {}
        """Steps of which the budget's work ended a search, in order."""
        self._started = started
        self._deadline = deadline
        self._checked = 0.0
        """Seconds that checking took in all."""
        self._sending = 0.0
        """Seconds that the last plan took to be written."""
        self._sent = 0
        """How many decisions it has."""
        self._located: tuple[object, Mapping[GroupKey, Locality]] = None, {}
        """How close the gangs of a plan are, and of which."""
        self._left_out = set[GroupKey]()
        """Pod groups that some action left alone, as plans with them failed."""
        self._made = Plan()
        """What was decided and checked: decisions and reservations."""
        self._cycle = Cycle(
            snapshot,
            settings,
            Ledger.of(snapshot, settings.rules, close_gangs=settings.objective.close_gangs),
            deadline,
        )
        self._cycle.budget.end_within(started, deadline)
        if times is not None and settings.reservations.enabled:
            self._cycle.time = TimeState(times)
        self._first = self._cycle.ledger
        self._base = self._cycle.ledger.copy()
        book = self._cycle.ledger.book
        self._start = SnapshotFacts(snapshot, book.shares)
        self._before = {q.name: book.allocated_shares(q.name) for q in snapshot.queues}
        self._prepared = time.monotonic()

    def run(self) -> Plan:
        """All actions in their order; the plan with everything that explains it."""
        if self._times is not None and self._times.settings.max_runtime.enforce:
            self._act("maxruntime", partial(end_overdue, times=self._times))
        for action in self._snapshot.policy.actions:
            if action == "allocate" and self._cycle.time is not None:
                self._act("allocate", allocate_in_time)
            elif action == "allocate":
                self._allocate()
            elif action in ACTIONS:
                self._act(action, ACTIONS[action])
        self._settle()
        self._defragment()
        self._prove()
        plan = better = self._send()
        try:
            better = advised(self._snapshot, plan, seconds=(self._deadline - time.monotonic()) / 2)
        except Exception:
            # The plan needs no advice.
            logger.log(self._level, "advice on MIG partitions failed", exc_info=True)
        if self._emit is not None and better is not plan:
            self._emit(better)
        return better

    def _settle(self) -> None:
        """Once more, when all actions have run: needless evictions are taken back, idle capacity is
        offered."""
        acting = [name for name in self._snapshot.policy.actions if name not in STATE_ACTIONS]
        if self._made.decisions and acting and not (self._cycle.at_rest or self._cycle.budget.passed()):
            last = acting[-1]
            self._act(last, partial(backfill, action=last))

    def _defragment(self) -> None:
        """Where a goal is set: how far it is met, and in mode act the next step towards it."""
        if not self._cycle.settings.defrag.goal:
            return
        rows = self._explained()
        looked = Looked()

        def step(cycle: Cycle) -> None:
            nonlocal looked
            work = max(LEAST_DEFRAG_WORK, cycle.budget.work_left())
            until, solver = max(self._deadline, time.monotonic() + work), cycle.settings.solver
            own = Budget(until, inf, work, settings=solver)
            looked = advance(cycle, rows, own)
            cycle.budget.cut |= own.cut

        if self._act("defrag", step):
            self._looked = looked

    def _prove(self) -> None:
        """The proofs of the refusals, and what they say about the admission of every action."""
        self._cycle.budget.begin(1.0)
        self._cycle.budget.plan_is_made()
        stages = self._cycle.stages
        try:
            self._proofs = Refuter(self._cycle, self._base).proofs()
        except Exception:
            # The plan was checked without them.
            logger.log(self._level, "proofs failed", exc_info=True)
            stages.append(Stage("proofs", "", "GREEDY", kind=FAILED))
        self._tell_cut("proofs")
        open_ = self._cycle.waiting.keys() - self._proofs.keys()
        if self._cycle.budget.short and open_:
            self._short["proofs"] = None
        for position, stage in enumerate(stages):
            refused = self._cycle.refused.get(stage.action)  # type: ignore[call-overload]
            if stage.goal != "admission" or refused is None:
                continue
            stages[position] = stage.unproved(len(refused & open_))
        told = list(self._cycle.told()) if self._short else ()
        proved = {stage.action for stage in told} - {one.action for one in told if one.gap}
        spent = (step for step in self._short if step not in proved)
        stages += [Stage(step, "", "FEASIBLE", gap=1.0, kind=SPENT) for step in spent]

    def _tell_cut(self, what: str) -> None:
        """Say once that the clock has cut the answer: ``what`` was under way when that was noticed."""
        stages = self._cycle.stages
        if self._cycle.budget.cut and all(stage.kind != CUT for stage in stages):
            stages.append(Stage(what, "", "FEASIBLE", gap=1.0, kind=CUT))

    def _explained(self) -> tuple[Unscheduled, ...]:
        """Why groups wait. Only refusals with a proof count as proved; before the end few have one."""
        state = self._made.decisions, self._cycle.waiting.copy(), bool(self._proofs)
        if self._worded[0] != state:
            self._worded = state, unscheduled(self._cycle, self._proofs)
        return estimated(self._cycle, self._worded[1], self._first)

    def _allocate(self) -> None:
        """The greedy pass first: it is an early answer, and the final one if it admits everything."""
        first: AdmissionPass | None = None

        def greedy(cycle: Cycle) -> None:
            nonlocal first
            first = allocate(cycle)

        self._act("allocate", greedy)
        if self._emit is not None and (first is not None or self._made.decisions):
            self._send()
        if first is None or self._cycle.budget.passed():
            return
        plain, self._cycle = self._cycle, first.cycle
        made, self._made = self._made, Plan()
        if not self._act("allocate", partial(allocate_jointly, first=first)) or self._cycle.budget.passed():
            # A pass that was cut short may have admitted less.
            self._cycle, self._made = plain, made

    def _act(self, action: ActionName, run: Callable[[Cycle], object]) -> bool:
        """Run one action and check its plan; False if the action was dropped.

        If the action fails because of one pod group, it runs again without that group: a rule that raises, or
        a plan that the checker refuses, costs no other group. A victim with which the plans for one trigger
        after the other fail stays, and these triggers take part again.
        """
        saved = self._cycle.save()
        saved.left_out.clear()
        before, victims = self._left_out.copy(), list[frozenset[GroupKey]]()
        for _ in range(LIMITS.tries):
            self._cycle = saved.save()
            if (found := self._attempt(action, run)) is None:
                return True
            fault = found
            logger.log(self._level, "%s: %s", action, fault.why)
            groups = fault.groups - saved.left_out.keys()
            if not groups:
                break
            victims.append(fault.taken)
            if 2 * len(victims) >= LIMITS.tries and (common := frozenset.intersection(*victims)):
                # It is not all these triggers, but what each of them would take.
                groups, victims = common, []
                saved.left_out.clear()
            logger.log(
                self._level, "%s is decided again without %s", action, ", ".join(map(str, sorted(groups)))
            )
            why = Refusal("InternalError", f"left out of {action}: {fault.why}")
            saved.left_out |= dict.fromkeys(groups, why)
            self._left_out = before | saved.left_out.keys()
        self._cycle = saved
        self._cycle.dropped.add(action)
        self._cycle.stages.append(Stage(action, "", "GREEDY", kind=fault.kind))
        return False

    def _attempt(self, action: ActionName, run: Callable[[Cycle], object]) -> _Fault | None:
        """One run of the action: what was wrong with it; None: nothing."""
        self._cycle.budget.begin(_work_share(action))
        rested, self._cycle.at_rest = self._cycle.at_rest, False
        try:
            run(self._cycle)
            settle(self._cycle)
            made = Plan(self._cycle.decisions(), reservations=reservations(self._cycle))
        except Exception as problem:
            logger.debug("%s failed", action, exc_info=True)
            return _Fault(FAILED, f"{type(problem).__name__}: {problem}", raised_for(problem))
        self._tell_cut(action)
        if self._cycle.budget.short:
            self._short[action] = None
        if made == self._made:
            self._cycle.at_rest |= rested
            return None
        started = time.monotonic()
        rules = self._cycle.settings.rules
        broken = audit(self._snapshot, made, rules, start=self._start, left_out=self._left_out)
        checking = time.monotonic() - started
        self._checked += checking
        if broken:
            words = f"the checker refused the plan: {'; '.join(map(str, broken[: LIMITS.named]))}"
            world, rules_broken = PlannedCluster(self._snapshot, made), {fault.rule for fault in broken}

            def mended_without(groups: Collection[GroupKey]) -> bool:
                other = world.plan_without(groups)
                left = audit(self._snapshot, other, rules, start=self._start, left_out=self._left_out)
                return rules_broken.isdisjoint(fault.rule for fault in left)

            groups = breaking(broken, self._snapshot, made, self._made, mended_without)
            taken = (
                d.group for d in made.decisions if d.kind == "Evict" and not groups.isdisjoint(d.triggers)
            )
            return _Fault(REJECTED, words, groups, frozenset(key for key in taken if key is not None))
        self._made, size = made, len(made.decisions)
        if self._emit is not None and action != "allocate" and size >= max(1, LIMITS.grown * self._sent):
            self._send()
        self._cycle.budget.plan_took(checking, self._sending, size)
        return None

    def _send(self) -> Plan:
        """The plan so far, complete in itself; the process outside gets it."""
        began = time.monotonic()
        book = self._cycle.ledger.book
        queues = {
            name: QueueReport(book.fair_share_of(name), before, book.allocated_shares(name))
            for name, before in self._before.items()
        }
        timings = {
            "prepare": self._prepared - self._started,
            "solve": time.monotonic() - self._prepared - self._checked,
            "check": self._checked,
        }
        starts = reservations(self._cycle)
        if self._located[0] is not self._made.decisions:
            self._located = self._made.decisions, localities(self._cycle.ledger)
        plan = Plan(
            self._made.decisions,
            self._explained(),
            tuple(self._cycle.told()),
            queues,
            timings,
            self._located[1],
            self._cycle.turns,
            starts,
            self._aside,
            _first(next_instant(self._times, starts), self._looked.again_at),
            self._looked.report,
            rollouts.holdings(self._cycle.ledger.rules),
            self._cycle.budget.plain_work + self._cycle.budget.spent,
        )
        if self._emit is not None:
            self._emit(plan)
        self._sending, self._sent = time.monotonic() - began, len(self._made.decisions)
        return plan


def _work_share(action: ActionName) -> float:
    """Share of the work left that the searches of an action may do."""
    policy = POLICIES.get(action)
    return ALLOCATE_SHARE if action == "allocate" else 1.0 if policy is None else policy.work_share


def _first(*instants: float | None) -> float | None:
    """The earliest of the instants that there are."""
    return min((instant for instant in instants if instant is not None), default=None)
