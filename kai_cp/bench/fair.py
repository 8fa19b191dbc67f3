"""Where two answers part: the first pod group in the fair order that only one of them admits."""

from __future__ import annotations

import math
from collections.abc import Set

from kai_cp.bench.records import Difference
from kai_cp_models.actions.common import entry_of, waiting_groups
from kai_cp_models.cycle import Cycle
from kai_cp_models.fairness.order import FairOrder
from kai_cp_models.ledger import Ledger
from kai_cp_models.settings import Settings
from kai_cp_models.snapshot import GroupKey, Snapshot


def first_difference(
    snapshot: Snapshot, settings: Settings, here: Set[GroupKey], there: Set[GroupKey]
) -> Difference | None:
    """Compare two sets of admitted pod groups; None when the fair order meets no difference.

    Pod groups are popped as the queues stand in the snapshot (3.5, 3.6). What both answers admit is
    charged to its queue before the next is popped, so up to the difference the order is that of both.
    """
    ledger = Ledger.of(snapshot, settings.rules)
    batches = waiting_groups(Cycle(snapshot, settings, ledger, math.inf), "allocate")
    entries = {key: entry_of(ledger, snapshot.group_by_key[key], batch) for key, batch in batches.items()}
    order = FairOrder(snapshot, ledger.book, entries)
    turn = 0
    while (key := order.pop()) is not None:
        turn += 1
        if (key in here) != (key in there):
            return Difference(group=f"{key.namespace}/{key.name}", turn=turn, here=key in here)
        if key in here:
            group = snapshot.group_by_key[key]
            ledger.book.charge(group.queue, entries[key][1], group.preemptible)
            order.charged(group.queue)
    return None
