"""What may be asked of a snapshot beside its plan (``engine.decide``) and the faults of one (``violations``).

The public surface of the package: what is below it, the ledger, the actions and the models, may change at any
time and is imported by no other package.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterator
from typing import TYPE_CHECKING

from kai_cp_models.ledger import Ledger
from kai_cp_models.settings import Settings
from kai_cp_models.snapshot import GPU, MILLI, GroupKey, Plan, Snapshot

if TYPE_CHECKING:
    from kai_cp_models.cycle import Cycle

# What solves is imported where it is asked for: a process that only looks at a snapshot loads no solver.

__all__ = ["fair_line", "greedy_plan", "idle_gpus", "solver_seconds"]


def fair_line(snapshot: Snapshot, settings: Settings, served: Container[GroupKey] = ()) -> Iterator[GroupKey]:
    """The waiting pod groups that allocate would look at, in the fair order of the snapshot (3.5, 3.6).

    Those of ``served`` are charged to their queue before the next is popped.
    """
    from kai_cp_models.actions.common import line_of, waiting_groups

    cycle = _begun(snapshot, settings)
    ledger, groups = cycle.ledger, snapshot.group_by_key
    batches = waiting_groups(cycle, "allocate")
    order = line_of(ledger, batches)
    while (key := order.pop()) is not None:
        yield key
        if key in served:
            ledger.book.charge(groups[key].queue, ledger.asked(batches[key]), groups[key].preemptible)
            order.charged(groups[key].queue)


def greedy_plan(snapshot: Snapshot, settings: Settings) -> Plan:
    """The plan of allocate's greedy pass alone: nothing is solved, nothing evicted, nothing checked."""
    from kai_cp_models.actions.allocate import allocate

    cycle = _begun(snapshot, settings)
    cycle.budget.begin(1.0)
    allocate(cycle, joint=False)
    return Plan(decisions=cycle.decisions(), stages=tuple(cycle.stages))


def idle_gpus(snapshot: Snapshot) -> list[int]:
    """Whole GPUs of every node that are free now, in the order of ``Snapshot.nodes``."""
    idle: list[int] = (Ledger.of(snapshot).idle[:, GPU] // MILLI).tolist()
    return idle


def solver_seconds() -> float:
    """Wall seconds that this process has spent inside the solver so far."""
    from kai_cp_models.joint.search import SOLVING

    return SOLVING.seconds


def _begun(snapshot: Snapshot, settings: Settings) -> Cycle:
    from kai_cp_models.cycle import Cycle

    return Cycle(snapshot, settings, Ledger.of(snapshot, settings.rules), math.inf)
