"""Room that the evictions of a cycle leave over goes to whoever fits into it as it is.

KAI serves such a pod group too: it evicts a victim in its simulation only, which then returns to its own
place (4.7). Waiting for the next allocate would leave the room unpromised for a cycle.
"""

from __future__ import annotations

from collections.abc import Mapping

from kai_cp_models.actions.dues import overreaching
from kai_cp_models.cycle import Cycle, Waiting
from kai_cp_models.fairness.order import Entry, FairOrder
from kai_cp_models.joint.dead import DeadAsks
from kai_cp_models.joint.problem import Ask
from kai_cp_models.ledger import Ledger
from kai_cp_models.placement import Placer, gate
from kai_cp_models.snapshot import ActionName, GroupKey


def nominate_left(
    cycle: Cycle, action: ActionName, asks: Mapping[GroupKey, tuple[Ask, Entry]]
) -> set[GroupKey]:
    """Nominate those of ``asks``, in fair order, that fit into the room left; returns who got a place.

    ``asks``: pod groups that the action refused and that may disturb somebody, with their entries.
    """
    served: set[GroupKey] = set()
    ledger = cycle.ledger
    snapshot = ledger.snapshot
    order = FairOrder(snapshot, ledger.book, {key: entry for key, (_, entry) in asks.items()})
    # Here as in allocate: what is given only grows, so who finds no room refuses all that ask for no less.
    dead = DeadAsks(ledger, "allocate")
    while not cycle.out_of_time() and (key := order.pop()) is not None:
        ask, group = asks[key][0], snapshot.group_by_key[key]
        if dead.find(ask) is not None or gate(ledger, group, ask.batch) is not None:
            continue
        # It takes from nobody, but must be one that may reclaim (4.4).
        if action == "reclaim" and overreaching(ledger, [ask], (), ledger, {}) is not None:
            continue
        placed = Placer(ask.gang, pipeline_only=True).place(ledger, ask.batch)
        if not isinstance(placed, Ledger):
            dead.add(ask, Waiting("NodeFragmented"))
            continue
        ledger = placed
        order.use(ledger.book, group.queue)
        served.add(key)
        cycle.waiting.pop(key, None)
        for pod in ask.pods:
            cycle.placed_by[pod.key] = action
    cycle.ledger = ledger
    return served
