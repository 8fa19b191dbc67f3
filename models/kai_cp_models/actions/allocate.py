"""Allocate: admit batches in the fair order and place them together (4.2, formulation 1.1).

A batch is admitted if and only if it can be placed together with all batches admitted before it. Those may
get other places for it. The greedy pass gives order and places. Where it finds no place, the joint model
decides, and its refusal is a proof. Pods that run are not touched.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from kai_cp_models.actions.common import line_of, waiting_groups
from kai_cp_models.actions.locality import draw_together
from kai_cp_models.cycle import Cycle, Refusal
from kai_cp_models.fairness.order import FairOrder
from kai_cp_models.joint.admission import Admission
from kai_cp_models.joint.problem import Ask, AskKind, ask_of
from kai_cp_models.placement import Placer, quota_check
from kai_cp_models.plan import Stage
from kai_cp_models.pods import GroupKey


@dataclass
class AdmissionPass:
    """How far a pass along the fair order has come in ``cycle``; ``turns``: what was looked at, in order."""

    cycle: Cycle
    order: FairOrder
    asks: dict[GroupKey, Ask]
    admission: Admission
    refused: int = 0
    turns: list[GroupKey] = field(default_factory=list)
    unproved: int = field(default=0, init=False)
    """Refusals that carry no proof."""
    known: dict[AskKind, Refusal] = field(default_factory=dict, init=False)
    """Why no ask of a kind gets places, until the next batch is admitted."""

    def __contains__(self, key: object) -> bool:
        """Whether a group that waits is of a kind that may get places."""
        return self.asks[key].kind not in self.known  # type: ignore[index]

    def next(self) -> Ask | None:
        """The next ask of a kind that may get places; those before it are refused."""
        passed: list[GroupKey] = []
        key = self.order.pop(self, passed)
        whys = [self.known[self.asks[one].kind] for one in passed]
        self.cycle.waiting.update(zip(passed, whys, strict=True))
        self.refused += len(passed)
        self.unproved += sum(not why.proved for why in whys)
        self.turns += passed
        return None if key is None else self.asks[key]

    def proved(self, cycle: Cycle) -> AdmissionPass:
        """An independent copy for a copy of the cycle, without the refusals that carry no proof."""
        order, admission = self.order.fork(cycle.ledger.book), self.admission.proved()
        return AdmissionPass(cycle, order, dict(self.asks), admission, self.refused, list(self.turns))


def allocate(
    cycle: Cycle, resumed: AdmissionPass | None = None, *, joint: bool = True
) -> AdmissionPass | None:
    """Run the action on the cycle; ``joint`` False is the greedy pass alone.

    Returns what the greedy pass had done before its first refusal without a proof; a joint pass is
    ``resumed`` from there. Returns None when every refusal is proved, so that nothing is left to solve.
    """
    started = time.monotonic()
    run = _begun(cycle) if resumed is None else resumed.proved(cycle)
    admission, order = run.admission, run.order
    admission.enabled = joint
    first: AdmissionPass | None = None
    while not cycle.out_of_time() and (ask := run.next()) is not None:
        key = ask.group.key
        if over := quota_check(cycle.ledger, ask, lending=True):
            cycle.waiting[key] = Refusal(*over, proved=True)
        elif refusal := _admit(run, ask):
            if first is None and not refusal.proved and not joint:
                first = run.proved(cycle.save())
                first.order.push(key, ask.entry)
            run.refused += 1
            run.unproved += not refusal.proved
            cycle.waiting[key] = refusal
        else:
            run.known.clear()
            cycle.waiting.pop(key, None)
            order.use(cycle.ledger.book, ask.group.queue)
            batch = cycle.ledger.state(ask.gang).batch if len(ask.pods) < len(ask.gang.pods) else None
            if batch is not None:
                run.asks[key] = ask_of(cycle.ledger, ask.gang, batch)
                order.push(key, run.asks[key].entry)
        run.turns.append(key)
    # Batches that were not looked at before time ended are refused without a proof.
    run.refused += len(order)
    run.unproved += len(order)
    if admission.placed_jointly:
        cycle.ledger = draw_together(admission.asks, cycle.ledger, admission.base.copy)
    cycle.turns = tuple(run.turns)
    _record(run, joint, time.monotonic() - started)
    return first


def _begun(cycle: Cycle) -> AdmissionPass:
    asks = waiting_groups(cycle, "allocate")
    for pod in (pod for shape in {ask.kind.shape for ask in asks.values()} for pod in shape.examples):
        # All copies of the ledger share what is looked up before they are made.
        cycle.ledger.has_room(pod)
    # A group asks for more once its first batch is admitted.
    unlike = {cycle.snapshot.alike[key]: ask for key, ask in asks.items()}
    asking = [pod for ask in unlike.values() for pod in ask.gang.pods]
    admission = Admission(cycle.ledger.copy(), asking, cycle.settings.solver, cycle.budget)
    return AdmissionPass(cycle, line_of(cycle.ledger, asks), asks, admission)


def _admit(run: AdmissionPass, ask: Ask) -> Refusal | None:
    """Give the ask places, or say why it gets none."""
    if (refusal := run.admission.known_refusal(ask)) is not None:
        # What quotas lend depends on more than the kind.
        if quota_check(run.cycle.ledger, ask) is None:
            run.known[ask.kind] = refusal
        return refusal
    refusal = Placer(ask.gang).place(run.cycle.ledger, ask.batch)
    if refusal is None:
        run.admission.admitted(ask)
        return None
    outcome = run.admission.decide(run.cycle.ledger, ask, refusal)
    if isinstance(outcome, Refusal):
        return outcome
    run.cycle.ledger = outcome
    return None


def _record(run: AdmissionPass, joint: bool, seconds: float) -> None:
    for key in run.cycle.ledger.held:
        run.cycle.placed_by.setdefault(key, "allocate")
    run.cycle.stages.append(
        Stage(
            "allocate",
            "",
            "OPTIMAL" if run.unproved == 0 else ("FEASIBLE" if joint else "GREEDY"),
            objective=run.refused,
            bound=run.refused - run.unproved,
            gap=run.unproved / max(1, run.refused),
            variables=run.admission.variables,
            constraints=run.admission.constraints,
            seconds=seconds,
        )
    )
