"""Allocate: admit batches in the fair order and place them together (4.2, formulation 1.1).

A batch is admitted if and only if it can be placed together with all batches admitted before it. Those may
get other places for it. The greedy pass gives order and places. Where it finds no place, the joint model
decides, and its refusal is a proof. Pods that run are not touched.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container
from copy import copy
from dataclasses import dataclass, field
from functools import partial

from kai_cp_models.actions.asking import line_of, waiting_groups
from kai_cp_models.actions.locality import draw_together
from kai_cp_models.blame import for_group
from kai_cp_models.certificates import OVER_BOUNDS
from kai_cp_models.cycle import Cycle
from kai_cp_models.fairness.order import FairOrder
from kai_cp_models.joint.admission import Admission
from kai_cp_models.joint.problem import Ask, AskKind, examples, further, in_turn
from kai_cp_models.ledger import Ledger
from kai_cp_models.placement import Placer, bound, quota_check, start_elsewhere
from kai_cp_models.plan import Stage, StageStatus
from kai_cp_models.pods import GpuKind, GroupKey
from kai_cp_models.refusal import Proof, Refusal

_for_its_group = for_group(lambda ask, *_: ask.group.key)


@dataclass
class AdmissionPass:
    """Groups that wait and are served in the fair order.

    ``turns``: what was looked at, in order. ``served``: what of it got places, once for each batch.
    ``refused``: the proof of each refusal, None where there is none; without those for which limits and
    quotas are the proof.
    """

    cycle: Cycle
    asks: dict[GroupKey, Ask]
    refused: list[Proof | None] = field(default_factory=list)
    turns: list[GroupKey] = field(default_factory=list)
    served: list[GroupKey] = field(default_factory=list)
    order: FairOrder = field(init=False)
    admission: Admission = field(init=False)
    over_bounds: Proof | None = field(default=None, init=False)
    """The proof that limits and quotas refuse a group; None: with other places its queue may hold less."""
    known: dict[AskKind, Refusal] = field(default_factory=dict, init=False)
    """Why no ask of a kind gets places, until the next batch is admitted."""
    kept: dict[GroupKey, Ask] = field(default_factory=dict, init=False)
    """Asks that wait for their promised places, and may start elsewhere in their own turn."""
    missed: set[int] = field(default_factory=set, init=False)
    """Nodes that were promised to groups which do not get them."""

    def __contains__(self, key: object) -> bool:
        """Whether a group is of a kind that may get places, or has some already."""
        known = self.known
        return not known or key in self.kept or self.asks[key].kind not in known  # type: ignore[index]

    def line_up(self, base: Ledger, apart: Container[GroupKey] = ()) -> None:
        """Prepare to serve all groups except ``apart``. ``base``: the ledger without their batches."""
        cycle, asks = self.cycle, self.asks
        self.order = line_of(cycle.ledger, {k: ask for k, ask in asks.items() if k not in apart})
        # A group asks for more once its first batch is admitted.
        unlike = {cycle.snapshot.alike[key]: ask for key, ask in asks.items()}
        asking = [pod for ask in unlike.values() for pod in ask.gang.pods]
        by_memory = any(pod.spec.gpu.kind is GpuKind.MEMORY for pod in asking)
        by_places = by_memory and cycle.snapshot.gpu_sizes_differ
        self.over_bounds = None if by_places else Proof(OVER_BOUNDS.name)
        self.admission = Admission(base, asking, cycle.budget)

    def proved(self, cycle: Cycle) -> AdmissionPass:
        """An independent copy for a copy of the cycle, without the refusals that carry no proof."""
        found, own = copy(self), ("asks", "refused", "turns", "served", "kept", "missed")
        vars(found).update({name: getattr(self, name).copy() for name in own}, cycle=cycle, known={})
        found.order, found.admission = self.order.fork(cycle.ledger.book), self.admission.proved()
        return found

    def serve(
        self,
        start: Callable[[Ask], Refusal | None],
        reserve: Callable[[Ask, Refusal], None] = lambda ask, why: None,
        *,
        promised: bool = False,
    ) -> None:
        """Serve one group after the other until the time has ended.

        ``start``: gives an ask its places, or says why it gets none. ``reserve``: for each refused one.
        ``promised``: serve only those that are promised their places, which come first.
        """
        cycle = self.cycle
        start, reserve = _for_its_group(start), _for_its_group(reserve)
        while not cycle.budget.passed() and (key := self._next()) is not None:
            ask = self.asks[key]
            if promised and not ask.promised:
                self._push(ask)
                break
            if key in cycle.left_out:
                # A joint pass continues from a state of the greedy pass, in which this group waits still.
                cycle.waiting[key] = cycle.left_out[key]
                continue
            if not ask.promised and (kept := self.kept.pop(key, None)) is not None:
                nodes = map(cycle.ledger.nominated_to, kept.pods)
                if self.missed.isdisjoint(nodes) and not bound(cycle.ledger, kept.pods):
                    self.start_elsewhere(kept)
                self._go_on(kept)
                continue
            over = quota_check(cycle.ledger, ask, lending=True)
            why = Refusal(*over, proof=self.over_bounds) if over else start(ask)
            if ask.promised and why is None:
                if not bound(cycle.ledger, ask.pods):
                    self.kept.setdefault(key, ask)
            elif ask.promised:
                # Its promised places are taken; it may get other places in its own turn.
                self.missed.update(() if over else map(cycle.ledger.nominated_to, ask.pods))
                self._push(in_turn(ask))
                continue
            self.turns.append(key)
            if why is not None:
                self.refused += () if over and self.over_bounds else (why.proof,)
                cycle.waiting[key] = why
                reserve(ask, why)
                continue
            self.known.clear()
            self.served.append(key)
            cycle.waiting.pop(key, None)
            self._go_on(ask)
        if promised:
            return
        # Batches that were not looked at before time ended are refused without a proof.
        self.refused += [None] * (len(self.order) - len(self.kept))

    def start_elsewhere(self, ask: Ask) -> None:
        """Start a group that waits for its promised places wherever it fits now, if it fits anywhere."""
        admission = self.admission
        if start_elsewhere(self.cycle.ledger, ask) and ask.pods[0].key in admission.base.held:
            self.admission = admission.beside(admission.base.without(ask.pods), [*admission.asks, ask])

    def keep_promised(self) -> None:
        """From now on, batches on places that were promised to others stay there for the rest of the pass."""
        ledger, admission = self.cycle.ledger, self.admission
        free = [a for a in admission.asks if self.missed.isdisjoint(map(ledger.nominated_to, a.pods))]
        self.admission = admission.beside(ledger.without([pod for ask in free for pod in ask.pods]), free)

    def _go_on(self, ask: Ask) -> None:
        """Line up the next ask of a group that got places; after promised places this is its own turn."""
        ledger, key = self.cycle.ledger, ask.group.key
        self.order.use(ledger.book, ask.group.queue)
        more = further(ledger, ask)
        if key in self.kept and (more is None or not more.promised):
            more = in_turn(self.kept[key])
        if more is None:
            del self.asks[key]  # It may be lined up no second time.
        else:
            self._push(more)

    def _push(self, ask: Ask) -> None:
        self.asks[ask.group.key] = ask
        self.order.push(ask.group.key, ask.entry)

    def _next(self) -> GroupKey | None:
        """The next group of a kind that may get places; those before it are refused."""
        passed: list[GroupKey] = []
        key = self.order.pop(self, passed)
        if not passed:
            return key
        whys = [self.known[self.asks[one].kind] for one in passed]
        self.cycle.waiting.update(zip(passed, whys, strict=True))
        self.refused += [why.proof for why in whys]
        self.turns += passed
        return key

    def record(self, seconds: float, *, joint: bool = True) -> None:
        """Note in the cycle what was served; ``joint`` False: models were not asked."""
        cycle, size = self.cycle, (self.admission.variables, self.admission.constraints)
        cycle.turns, cycle.served = tuple(self.turns), tuple(self.served)
        status: StageStatus = "FEASIBLE" if joint else "GREEDY"
        stage = Stage("allocate", "", status, len(self.refused), 0, 0, *size, seconds)
        cycle.stages.append(stage.unproved(self.refused.count(None)))


def allocate(cycle: Cycle) -> AdmissionPass | None:
    """The greedy pass over the cycle: what it had done before its first refusal without a proof, for
    ``allocate_jointly``; None: every refusal is proved, so that nothing is left to solve."""
    started = time.monotonic()
    run = AdmissionPass(cycle, waiting_groups(cycle, "allocate"))
    for pod in examples(run.asks.values()):
        # Copies of the ledger share what was looked up before they were made.
        cycle.ledger.has_room(pod)
    run.line_up(cycle.ledger.copy())
    run.admission.enabled = False
    run.serve(partial(_admit, run), promised=True)
    if run.missed:
        run.keep_promised()
    first: AdmissionPass | None = None

    def start(ask: Ask) -> Refusal | None:
        nonlocal first
        refusal = _admit(run, ask)
        if first is None and refusal is not None and refusal.proof is None and not ask.promised:
            first = run.proved(cycle.save())
            first.order.push(ask.group.key, ask.entry)
        return refusal

    run.serve(start)
    run.record(time.monotonic() - started, joint=False)
    return first


def allocate_jointly(cycle: Cycle, first: AdmissionPass) -> None:
    """The pass that continues with models from ``first``, of which the cycle has the state."""
    started, run = time.monotonic(), first.proved(cycle)
    run.admission.enabled = True
    run.serve(partial(_admit, run))
    admission = run.admission
    if admission.placed_jointly:
        cycle.ledger = draw_together(admission.asks, cycle.ledger, admission.base.copy)
    run.record(time.monotonic() - started)


def _admit(run: AdmissionPass, ask: Ask) -> Refusal | None:
    """Give the ask its promised places, or any places if none are promised, or say why it gets none."""
    if not ask.promised and (refusal := run.admission.known_refusal(ask)) is not None:
        # What quotas lend depends on more than the kind.
        if quota_check(run.cycle.ledger, ask) is None:
            run.known[ask.kind] = refusal
        return refusal
    placer = Placer(ask.gang, only="nominated" if ask.promised else None)
    refusal = placer.place(run.cycle.ledger, ask.batch)
    if refusal is None:
        run.admission.admitted(ask)
    if refusal is None or ask.promised:
        return refusal
    outcome = run.admission.decide(run.cycle.ledger, ask, refusal)
    if isinstance(outcome, Refusal):
        return outcome
    run.cycle.ledger = outcome
    return None
