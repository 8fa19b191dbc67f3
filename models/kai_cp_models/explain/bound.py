"""The most GPUs that any scheduler could have in use at once without stopping a pod.

Every running pod of a pod group stays but may move, and gangs start whole. Node rules, stateful rules and
required topology hold; queues and the order are ignored. The rows are those of the engine's joint model.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Final

from kai_cp_models.budget import DETERMINISTIC_TIME_WORK
from kai_cp_models.fairness.amounts import milli_gpus
from kai_cp_models.joint.model import JointModel, ModelTooLarge
from kai_cp_models.joint.problem import Ask, EvictionUnit, ask_of
from kai_cp_models.ledger import Ledger
from kai_cp_models.pods import ACTIVE_ALLOCATED, MILLI, Pod
from kai_cp_models.snapshot import Snapshot
from kai_cp_models.solver import cp_model, run

_MOST_INCREMENTS: Final = 1_000
"""The most increments of one pod group that are looked at."""


@dataclass(frozen=True, slots=True)
class GpuBound:
    """``gpus``: no scheduler has more in use; ``reached``: some plan of the model uses as many."""

    gpus: float
    reached: bool
    proved: bool
    note: str = ""


def gpu_bound(snapshot: Snapshot, work: float) -> GpuBound:
    """The bound for a snapshot; without a model that fits, all GPUs that are or could be asked for.

    ``work``: the most work of its search, in the unit of budgets.
    """
    ledger = Ledger.of(snapshot)
    running = sum(milli_gpus(pod) for pod in snapshot.pods if _ours(pod))
    asks, steps = _asks(ledger)
    if not asks:
        return GpuBound(running / MILLI, True, True)
    wanted = running + sum(milli_gpus(pod) for ask in asks for pod in ask.pods)
    installed = sum(node.allocatable[2] for node in snapshot.nodes)
    try:
        model = JointModel(ledger, asks, _units(ledger), may_lose=False)
    except ModelTooLarge:
        return GpuBound(min(wanted, installed) / MILLI, False, True, "by sums: too large for the model")
    for first, then in steps:
        model.cp.add_implication(model.admitted[then], model.admitted[first])
    sizes = [sum(milli_gpus(pod) for pod in ask.pods) for ask in asks]
    model.cp.maximize(sum(size * var for size, var in zip(sizes, model.admitted, strict=True)))
    solver = cp_model.CpSolver()
    solver.parameters.max_deterministic_time = work / DETERMINISTIC_TIME_WORK
    solver.parameters.num_workers = 1
    status = run(solver, model.cp)
    if status == cp_model.OPTIMAL:
        return GpuBound((running + round(solver.objective_value)) / MILLI, True, True)
    if status == cp_model.FEASIBLE:
        most = min(wanted, installed, running + int(solver.best_objective_bound))
        return GpuBound(most / MILLI, False, True, "the search ended before a plan reached it")
    return GpuBound(
        min(wanted, installed) / MILLI, False, True, "by sums: the search ended before the model was solved"
    )


def _ours(pod: Pod) -> bool:
    return pod.group is not None and pod.status in ACTIVE_ALLOCATED


def _asks(ledger: Ledger) -> tuple[list[Ask], list[tuple[int, int]]]:
    """Every batch of every group that could start, and the order of the batches of a group."""
    asks: list[Ask] = []
    steps: list[tuple[int, int]] = []
    for group in ledger.snapshot.waiting_groups:
        gang = ledger.fixed.gangs[group.key]
        previous: int | None = None
        for batch in islice(gang.batches(), _MOST_INCREMENTS if gang.at_first.ready else 0):
            if previous is not None:
                steps.append((previous, len(asks)))
            previous = len(asks)
            asks.append(ask_of(ledger, gang, batch))
    return asks, steps


def _units(ledger: Ledger) -> list[EvictionUnit]:
    """All that runs; it may move."""
    found: list[EvictionUnit] = []
    for group in ledger.snapshot.groups:
        gang = ledger.fixed.gangs[group.key]
        for chain, unit in enumerate(gang.units_at_first):
            found.append(EvictionUnit(group, unit.pods, chain, unit.whole))
    return found
