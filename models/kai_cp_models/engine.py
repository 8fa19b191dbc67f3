"""The engine: one snapshot in, one checked plan out, within a deadline.

The actions run in the configured order (0.2). After each of them the plan so far is complete and valid
in itself; it is checked and emitted, so whoever waits outside always holds the best answer yet.
"""

from __future__ import annotations

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
from kai_cp_models.snapshot import ActionName, Plan, QueueReport, Snapshot

ACTIONS: Final[dict[ActionName, Callable[[Cycle], None]]] = {
    "allocate": allocate,
    "consolidation": consolidation,
    "reclaim": reclaim,
    "preempt": preempt,
    "stalegangeviction": evict_stale,
}

_RESERVE: Final = 0.15
"""Share of the budget kept for checking and writing."""


class Rejected(Exception):
    """The checker found broken rules in a plan; it is never sent (formulation 1.6)."""


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
    cycle = Cycle(snapshot, settings, Ledger.of(snapshot), deadline - _RESERVE * max(0.0, deadline - started))
    before = {q.name: cycle.ledger.book.allocated_shares(q.name) for q in snapshot.queues}
    best = Plan()
    prepared = time.monotonic()
    checked = 0.0
    for action in snapshot.policy.actions:
        run = ACTIONS.get(action)
        if run is None:
            continue
        run(cycle)
        check_started = time.monotonic()
        plan = Plan(decisions=cycle.decisions(), stages=tuple(cycle.stages))
        broken = violations(snapshot, plan)
        checked += time.monotonic() - check_started
        if broken:
            raise Rejected("; ".join(broken[:3]))
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
    plan = Plan(best.decisions, unscheduled(cycle), best.stages, queues, timings)
    if emit is not None:
        emit(plan)
    return plan
