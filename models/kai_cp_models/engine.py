"""The engine: one snapshot in, one checked plan out, within a deadline.

The actions run in the configured order (0.2). After each of them the plan so far is complete and valid
in itself; it is checked and emitted, so whoever waits outside always holds the best answer yet.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from kai_cp_models.actions.allocate import allocate
from kai_cp_models.actions.evict import consolidation, preempt, reclaim
from kai_cp_models.actions.stale import evict_stale
from kai_cp_models.check import violations
from kai_cp_models.cycle import Cycle
from kai_cp_models.explain import unscheduled
from kai_cp_models.ledger import Ledger
from kai_cp_models.settings import Settings
from kai_cp_models.snapshot import ActionName, Plan, QueueReport, Snapshot, Stage

ACTIONS: Final[dict[ActionName, Callable[[Cycle], None]]] = {
    "allocate": allocate,
    "consolidation": consolidation,
    "reclaim": reclaim,
    "preempt": preempt,
    "stalegangeviction": evict_stale,
}

REJECTED: Final = "rejected by the checker"
"""End of the name of a stage whose plan broke a rule: it was dropped (formulation 1.6)."""

_SHARE: Final[dict[ActionName, float]] = {"allocate": 0.5, "consolidation": 0.35, "reclaim": 0.7}
"""Share of the time left that an action may use; later ones get the rest."""

logger = logging.getLogger(__name__)

_RESERVE: Final = 0.15
"""Share of the budget kept for checking and writing."""


def decide(
    snapshot: Snapshot,
    settings: Settings,
    *,
    deadline: float | None = None,
    emit: Callable[[Plan], None] | None = None,
) -> Plan:
    """The plan of one cycle for ``snapshot``.

    ``deadline``: value of ``time.monotonic()`` by which the answer is needed; by default the budget of
    the settings from now. ``emit`` gets every better checked plan as soon as there is one.
    """
    started = time.monotonic()
    if deadline is None:
        deadline = started + settings.solver.budget_seconds
    cycle = Cycle(
        snapshot,
        settings,
        Ledger.of(snapshot, settings.rules),
        deadline - _RESERVE * max(0.0, deadline - started),
    )
    before = {q.name: cycle.ledger.book.allocated_shares(q.name) for q in snapshot.queues}
    prepared = time.monotonic()
    checked = 0.0
    best = Plan()
    for action in snapshot.policy.actions:
        run = ACTIONS.get(action)
        if run is None:
            continue
        saved = cycle.save()
        cycle.begin(_SHARE.get(action, 1.0))
        run(cycle)
        check_started = time.monotonic()
        plan = Plan(decisions=cycle.decisions(), stages=tuple(cycle.stages))
        broken = violations(snapshot, plan, settings.rules)
        checked += time.monotonic() - check_started
        if broken:
            cycle = saved
            cycle.stages.append(Stage(f"{action}: {REJECTED}", "GREEDY"))
            for line in broken:
                logger.error("the checker rejected the plan of %s: %s", action, line)
            continue
        best = plan
        if emit is not None:
            emit(best)
    book = cycle.ledger.book
    queues = {
        q.name: QueueReport(book.fair_share_of(q.name), before[q.name], book.allocated_shares(q.name))
        for q in snapshot.queues
    }
    timings = {
        "prepare": prepared - started,
        "solve": time.monotonic() - prepared - checked,
        "check": checked,
    }
    plan = Plan(best.decisions, unscheduled(cycle), tuple(cycle.stages), queues, timings)
    if emit is not None:
        emit(plan)
    return plan
