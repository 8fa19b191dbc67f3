"""What actions share that evict pod groups for their own state and for no other group (``STATE_ACTIONS``)."""

from __future__ import annotations

import time
from collections.abc import Iterable

from kai_cp_models.cycle import Cycle, Eviction
from kai_cp_models.plan import Stage
from kai_cp_models.pods import ACTIVE_ALLOCATED, ACTIVE_USED, GroupKey
from kai_cp_models.policy import ActionName


def end_groups(cycle: Cycle, action: ActionName, ended: Iterable[tuple[GroupKey, str]]) -> None:
    """Evict all active pods of each pod group. ``ended``: the groups, each with the sentence that says why.

    A group stays as a whole that a PodDisruptionBudget protects, where budgets are on, or beside which a pod
    is nominated that needs it.
    """
    started = time.monotonic()
    evicted = 0
    for key, why in ended:
        # Those of unknown subgroups too.
        active = [p for p in cycle.snapshot.members[key] if cycle.ledger.status(p) in ACTIVE_ALLOCATED]
        if key in cycle.left_out or not cycle.ledger.let_go(active):
            continue
        for pod in active:
            evicted += 1
            if pod.status in ACTIVE_USED:
                cycle.evicted_by[pod.key] = Eviction(action, (), why)
    cycle.stages.append(Stage(action, "", "OPTIMAL", evicted, evicted, seconds=time.monotonic() - started))
