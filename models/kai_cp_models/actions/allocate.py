"""Allocate: admit batches in the fair order and place them together (4.2, formulation 1.1).

A batch is admitted if and only if it can be placed together with all batches admitted before it. Those may
get other places for it. The greedy pass gives order and places. Where it finds no place, the joint model
decides, and its refusal is a proof. Pods that run are not touched.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from kai_cp_models.actions.common import line_of, no_place, waiting_groups
from kai_cp_models.actions.locality import draw_together
from kai_cp_models.cycle import Cycle, Refusal
from kai_cp_models.fairness.order import FairOrder
from kai_cp_models.joint.admission import Admission
from kai_cp_models.joint.problem import Ask, ask_of
from kai_cp_models.ledger import Ledger
from kai_cp_models.placement import Placer, quota_check
from kai_cp_models.plan import Stage
from kai_cp_models.pods import GroupKey


@dataclass
class AdmissionPass:
    """How far a pass along the fair order has come."""

    ledger: Ledger
    order: FairOrder
    asks: dict[GroupKey, Ask]
    admission: Admission
    waiting: dict[GroupKey, Refusal]
    """Refusals, as the cycle knows them."""
    refused: int = 0
    turns: list[GroupKey] = field(default_factory=list)
    """The batches that were looked at, in that order."""

    def before(self, key: GroupKey, refused: int) -> AdmissionPass:
        """An independent copy of the pass as it was before ``key`` was refused, the first refusal without a
        proof.

        ``refused``: how many batches were refused before it.
        """
        ledger = self.ledger.copy()
        order = self.order.fork(ledger.book)
        order.push(key, self.asks[key].entry)
        waiting = {other: why for other, why in self.waiting.items() if other != key}
        return AdmissionPass(
            ledger, order, dict(self.asks), self.admission.proved(), waiting, refused, self.turns[:-1]
        )


def allocate(
    cycle: Cycle, resumed: AdmissionPass | None = None, *, joint: bool = True
) -> AdmissionPass | None:
    """Run the action on the cycle; ``joint`` False is the greedy pass alone.

    Returns what the greedy pass had done before its first refusal without a proof; a joint pass is
    ``resumed`` from there. Returns None when every refusal is proved, so that nothing is left to solve.
    """
    started = time.monotonic()
    run = resumed or _begun(cycle, joint=joint)
    if resumed is not None:
        run.admission.enabled = True
        cycle.waiting.update(run.waiting)
        run.waiting = cycle.waiting
    admission, order = run.admission, run.order
    first: AdmissionPass | None = None
    while not cycle.out_of_time() and (key := order.pop()) is not None:
        run.turns.append(key)
        ask = run.asks[key]
        refusal = quota_check(run.ledger, ask, lending=True)
        if refusal is not None:
            cycle.waiting[key] = Refusal(*refusal, proved=True)
            continue
        outcome = _admit(run.ledger, ask, admission)
        if isinstance(outcome, Refusal):
            if first is None and not outcome.proved and not joint:
                first = run.before(key, run.refused)
            run.refused += 1
            cycle.waiting[key] = outcome
            continue
        run.ledger = outcome
        cycle.waiting.pop(key, None)
        order.use(run.ledger.book, ask.group.queue)
        whole = len(ask.pods) == len(ask.gang.pods)
        batch = None if whole else run.ledger.state(ask.gang).batch
        if batch is not None:
            run.asks[key] = ask_of(run.ledger, ask.gang, batch)
            order.push(key, run.asks[key].entry)
    # Batches that were not looked at before time ended are refused without a proof.
    run.refused += len(order)
    admission.unproved += len(order)
    if admission.placed_jointly:
        run.ledger = draw_together(admission.asks, run.ledger)
    cycle.ledger = run.ledger
    cycle.turns = tuple(run.turns)
    _record(cycle, admission, run.refused, joint, time.monotonic() - started)
    return first


def _begun(cycle: Cycle, *, joint: bool) -> AdmissionPass:
    asks = waiting_groups(cycle, "allocate")
    for pod in (pod for shape in {ask.kind.shape for ask in asks.values()} for pod in shape.examples):
        # All copies of the ledger share what is looked up before they are made.
        cycle.ledger.has_room(pod)
    ledger = cycle.ledger.copy()
    # A group asks for more once its first batch is admitted.
    asking = [pod for ask in asks.values() for pod in ask.gang.pods]
    settings = cycle.settings.solver
    return AdmissionPass(
        ledger,
        line_of(ledger, asks),
        asks,
        Admission(cycle.ledger, asking, settings, cycle.budget, enabled=joint),
        cycle.waiting,
    )


def _admit(ledger: Ledger, ask: Ask, admission: Admission) -> Ledger | Refusal:
    refusal = admission.known_refusal(ask)
    if refusal is not None:
        return refusal
    failure = Placer(ask.gang).place(ledger, ask.batch)
    if failure is None:
        admission.admitted(ask)
        return ledger
    return admission.decide(ask, no_place(failure))


def _record(cycle: Cycle, admission: Admission, refused: int, joint: bool, seconds: float) -> None:
    for key in cycle.ledger.held:
        cycle.placed_by.setdefault(key, "allocate")
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
