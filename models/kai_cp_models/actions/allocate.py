"""Allocate: admit batches along the fair order, place them together (4.2, formulation 1.1).

A batch is admitted if and only if it can be placed together with all admitted before it, whose places
are free to change. The greedy pass gives order and places; where it finds no room, the joint model
decides, and a refusal is then a proof. Nothing that runs is touched.
"""

from __future__ import annotations

import time

from kai_cp_models.actions.closer import closer
from kai_cp_models.actions.common import entry_of, waiting_groups
from kai_cp_models.cycle import Cycle, Waiting
from kai_cp_models.fairness.order import FairOrder
from kai_cp_models.joint.admission import Admission
from kai_cp_models.joint.problem import Ask
from kai_cp_models.ledger import Ledger
from kai_cp_models.placement import NoPlace, Placer, gate
from kai_cp_models.snapshot import GroupKey, Stage


def allocate(cycle: Cycle, *, joint: bool = True) -> int:
    """Run the action on the cycle; ``joint`` False is the greedy pass alone.

    Returns how many refusals carry no proof. After a greedy pass without any there is nothing to solve.
    """
    started = time.monotonic()
    snapshot = cycle.snapshot
    ledger = cycle.ledger.copy()
    batches = waiting_groups(cycle, "allocate")
    order = FairOrder(
        snapshot,
        ledger.book,
        {key: entry_of(ledger, snapshot.group_by_key[key], batch) for key, batch in batches.items()},
    )
    # A group asks for more once its first batch is admitted.
    asking = [pod for key in batches for pod in ledger.fixed.gangs[key].pods]
    admission = Admission(cycle.ledger, asking, cycle.settings.solver, cycle.seconds_left, enabled=joint)
    refused = 0
    while not cycle.out_of_time() and (key := order.pop()) is not None:
        group = snapshot.group_by_key[key]
        ask = Ask(group, ledger.fixed.gangs[key], batches[key])
        refusal = gate(ledger, group, ask.batch)
        if refusal is not None:
            cycle.waiting[key] = Waiting(*refusal, proved=True)
            continue
        outcome = _admit(ledger, ask, admission)
        if isinstance(outcome, Waiting):
            refused += 1
            cycle.waiting[key] = outcome
            continue
        ledger = outcome
        cycle.waiting.pop(key, None)
        order.use(ledger.book, group.queue)
        batch = ask.gang.next_batch(ledger.status)
        if batch is not None:
            batches[key] = batch
            order.push(key, entry_of(ledger, group, batch))
    if admission.placed_jointly:
        ledger = closer(cycle.ledger, admission.asks, ledger)
    cycle.ledger = ledger
    _record(cycle, admission, refused, joint, time.monotonic() - started)
    return admission.unproved


def _admit(ledger: Ledger, ask: Ask, admission: Admission) -> Ledger | Waiting:
    dead = admission.known_dead(ask)
    if dead is not None:
        return dead
    outcome = Placer(ask.gang).place(ledger, ask.batch, consume=True)
    if isinstance(outcome, Ledger):
        admission.admitted(ask)
        return outcome
    return admission.decide(ledger, ask, _waiting(outcome))


def _waiting(failure: NoPlace) -> Waiting:
    reason = "TopologyFragmented" if failure.subgroup or not failure.pod else "NodeFragmented"
    return Waiting(reason, failure.message, pod=failure.pod)


def _record(cycle: Cycle, admission: Admission, refused: int, joint: bool, seconds: float) -> None:
    placed: dict[GroupKey, None] = {}
    for key in cycle.ledger.held:
        pod = cycle.snapshot.pod_by_key[key]
        cycle.placed_by.setdefault(key, "allocate")
        if pod.group is not None:
            placed[pod.group] = None
    unproved = admission.unproved
    cycle.stages.append(
        Stage(
            "allocate",
            "OPTIMAL" if unproved == 0 else ("FEASIBLE" if joint else "GREEDY"),
            objective=refused,
            bound=refused - unproved,
            gap=unproved / max(1, refused),
            variables=admission.variables,
            constraints=admission.constraints,
            seconds=seconds,
        )
    )
