"""``/get-job-order``: the order in which pod groups would be looked at, nothing simulated (11.3)."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

from kai_cp_models.actions.common import entry_of, waiting_groups
from kai_cp_models.cycle import Cycle
from kai_cp_models.fairness.order import FairOrder
from kai_cp_models.ledger import Ledger
from kai_cp_models.settings import Settings
from kai_cp_models.snapshot import Snapshot


def job_order(snapshot: Snapshot) -> dict[str, Any]:
    """Waiting pod groups in KAI's form: over all queues, and by queue."""
    ledger = Ledger.of(snapshot)
    cycle = Cycle(snapshot, Settings(), ledger, math.inf)
    groups = snapshot.group_by_key
    entries = {
        key: entry_of(ledger, groups[key], batch) for key, batch in waiting_groups(cycle, "allocate").items()
    }
    order = FairOrder(snapshot, ledger.book, entries)
    everywhere: list[dict[str, Any]] = []
    by_queue: dict[str, list[dict[str, Any]]] = defaultdict(list)
    while (key := order.pop()) is not None:
        entry = {"id": key.name, "priority": groups[key].priority}
        everywhere.append(entry)
        by_queue[groups[key].queue].append(entry)
    return {"global_order": everywhere, "queue_order": dict(by_queue)}
