"""Beside what a proof asks certificates: any plan that the rules permit; and those that only proofs ask."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kai_cp_models.arrays import Ints, Mask
from kai_cp_models.budget import Allowance
from kai_cp_models.certificates import (
    MISSING_OBJECT,
    NO_NODE_ACCEPTS,
    OVER_BOUNDS,
    OVER_SHARES,
    OVER_SUMS,
    TOO_LITTLE,
    Certificate,
    LeastHeld,
    dead_end,
)
from kai_cp_models.cycle import Cycle
from kai_cp_models.fairness.amounts import NOTHING, Amounts, add, subtract, total
from kai_cp_models.joint.counting import Counting
from kai_cp_models.joint.model import JointModel, ModelTooLarge
from kai_cp_models.joint.problem import Ask, EvictionUnit
from kai_cp_models.joint.search import solve_within
from kai_cp_models.ledger import Ledger
from kai_cp_models.limits import LIMITS
from kai_cp_models.pods import GPU, Pod, PodKey, PodSpec, PodStatus
from kai_cp_models.proof.departures import Departures
from kai_cp_models.proof.rights import Rights
from kai_cp_models.proof.served import ServedBatches
from kai_cp_models.refusal import Refusal
from kai_cp_models.rules.stateful.protocol import RuleState


@dataclass
class Known:
    """What all certificates of a cycle may use. ``asking``: a pod of each spec that asks in some plan."""

    cycle: Cycle
    base: Ledger
    departures: Departures
    served: ServedBatches
    asking: Sequence[Pod]
    shown: dict[tuple[object, ...], int] = field(default_factory=dict)
    """The number of served batches beside which a model had no places for such a batch; it holds with fewer
    rights, too."""
    _waiting: dict[RuleState, dict[Hashable, list[Pod]]] = field(default_factory=dict)
    """The waiting pods by rule and kind."""

    def opened(self, rule: RuleState, pod: Pod) -> bool:
        """Whether a waiting pod may open a node to this one: a plan may place it, whatever this plan does."""
        if not rule.opened_by(pod):
            return False
        kinds = self._waiting.get(rule)
        if kinds is None:
            kinds = self._waiting[rule] = {}
            for group in self.base.snapshot.waiting_groups:
                for other in self.base.snapshot.members[group.key]:
                    if other.status is PodStatus.PENDING:
                        kinds.setdefault((other.spec, rule.identity(other)), []).append(other)
        others = (kind[0] if kind[0].key != pod.key else kind[-1] for kind in kinds.values())
        return any(other.key != pod.key and rule.opened_by(pod, other) for other in others)

    def kind(self, ask: Ask) -> Hashable:
        """Asks of equal kind are refused alike; a stateful rule may tell an ask from all others."""
        concerned = any(rule.concerns(pod) for rule in self.base.rules for pod in ask.pods)
        return ask.kind, ask.group.key if concerned else None


class Emptied:
    """The cluster when all that may leave has left: what certificates need of it, each computed once.

    ``moves``: whether something may move. ``gone``: [P] what leaves or moves. ``looked``: whether that is few
    enough pods to look at every node without them.
    """

    def __init__(self, known: Known, rights: Rights) -> None:
        self.known, self.rights = known, rights
        self.moves = bool(rights.moved.any())
        self.gone = rights.taken | rights.moved
        self.looked = int(self.gone.sum()) <= LIMITS.proof_leaving
        self.counting = Counting(known.base, known.asking, everywhere=self.moves)
        self.refusals: dict[Hashable, str] = {}
        """What was shown of each kind of ask, "" for nothing, by the number of served batches beside it."""
        self.refused: dict[PodKey | PodSpec, bool] = {}
        """Whether no node takes a pod, by its name where stateful rules concern it, else by its spec."""
        self.open: dict[tuple[object, ...], int] = {}
        """The number of served batches beside which a model showed nothing; beside fewer there is more free
        capacity."""

    @cached_property
    def given(self) -> Sequence[Amounts]:
        """For each queue of the book, how much less it holds then."""
        return self.known.departures.given(self.rights.taken)

    @cached_property
    def room(self) -> Ints:
        """What all nodes offer: pieces [size], then amounts [D]."""
        return self.counting.room(self.known.departures.columns(self.rights.taken))

    @cached_property
    def free(self) -> NDArray[np.int64]:
        """[N, D] what nodes offer when even what moves has left; parts of shared GPUs not counted."""
        return self.counting.free(self.known.departures.columns(self.gone))

    @cached_property
    def spare(self) -> NDArray[np.int64]:
        """[N, D] what is left of ``free`` beside the places of this plan; nothing where they need moves."""
        placed = [pod for ask in self.known.served.asks for pod in ask.pods]
        held = Counting(self.known.cycle.ledger, ()).leaving(placed)
        spare = self.free.copy()
        np.subtract.at(spare, held.nodes, held.requests)
        possible = not self.moves and not held.shares and bool((spare[held.nodes] >= 0).all())
        return spare if possible else np.zeros_like(spare)

    @cached_property
    def ledger(self) -> Ledger:
        """The ledger of the start without what may leave; only read.

        A model keeps a constrained pod in its domain, but its pod group may move as a whole: such pods leave
        as well.
        """
        moving = {pod.key for pod in self.moving}
        gone = self.known.departures.pods(self.gone)
        return self.known.base.without(pod for pod in gone if pod.key not in moving)

    @cached_property
    def moving(self) -> Sequence[Pod]:
        """The pods that move, without those of groups with a topology constraint."""
        groups, moved = self.known.base.snapshot.group_by_key, self.known.departures.pods(self.rights.moved)
        return [pod for pod in moved if pod.group and not groups[pod.group].root.constrained]

    @cached_property
    def demands(self) -> Ints:
        """[B, D] what the first of the served ask for in all, by their number: pieces, then amounts."""
        rows = [self.counting.demand(()), *map(self.counting.asked, self.known.served.asks)]
        found: Ints = np.cumsum(rows, axis=0)
        return found

    @cached_property
    def concerned(self) -> frozenset[RuleState]:
        """The rules to which one of those that leave matters."""
        gone = list(self.known.departures.pods(self.gone))
        return frozenset(rule for rule in self.known.base.rules if any(map(rule.concerns, gone)))

    def refusal(self, ask: Ask, before: int) -> str:
        """The certificate that refuses the ask beside the first ``before`` served batches; "": none."""
        key = (self.known.kind(ask), before)
        found = self.refusals.get(key)
        if found is None:
            beside = AnyPlan(self, before)
            refusing = (one.name for one in CERTIFICATES if one.refuse(beside, ask) is not None)
            found = self.refusals[key] = next(refusing, "")
        return found


@dataclass(frozen=True, slots=True)
class AnyPlan:
    """Any permitted plan that serves the first ``before`` of the served batches."""

    emptied: Emptied
    before: int

    @property
    def known(self) -> Known:
        """What holds in the cycle."""
        return self.emptied.known

    @property
    def base(self) -> Ledger:
        """The ledger with which the cycle began."""
        return self.known.base

    def least_held(self, ask: Ask) -> LeastHeld:
        """What the queues of the ask hold when everything that may leave has left."""
        book, departures = self.base.book, self.known.departures
        gone, ended = self.emptied.given, departures.firm_ended
        held: dict[int, Amounts] = {}
        firm: dict[int, Amounts] = {}
        lent: dict[str, Amounts] = {}
        for i in book.line(ask.group.queue):
            total, kept = self.known.served.charged(i, self.before)
            held[i] = add(subtract(book.held[i], gone[i]), total)
            if not ask.group.preemptible:
                firm[i] = add(subtract(book.firm[i], ended[i]), kept)
                lent[book.name(i)] = self._lent(ask, kept).get(book.name(i), NOTHING)
        return LeastHeld(held, firm, lent)

    def _lent(self, ask: Ask, beside: Amounts) -> Mapping[str, Amounts]:
        """The most that quotas lend to the batch: if they lend to one of its pods, as if to all of them."""
        pods, asked = ask.pods if self.base.rules else (), ask.kind.shape.optimistic
        found = (self.base.lent([pod], asked, beside=beside) for pod in pods)
        return next((lent.by_queue for lent in found if lent is not None and lent.by_queue), {})

    def short(self, ask: Ask) -> Refusal | None:
        """Sums over the cluster: with moves, of whole resources only."""
        emptied, own = self.emptied, self.emptied.counting.asked(ask)
        wanted = emptied.demands[self.before] + own
        short = emptied.counting.exceeded(own, wanted, emptied.room, moved=emptied.moves)
        asked, needed = (row[emptied.counting.totals][GPU] for row in (own, wanted))
        return TOO_LITTLE if short or (asked and needed > emptied.rights.most_gpus) else None


_NO_PLACES: Final = Refusal("NotPossible")


def _over_shares(beside: AnyPlan, ask: Ask) -> Refusal | None:
    """The sums are too little, and would not be if reclaim did not look at shares (4.4)."""
    if (refusal := beside.short(ask)) is None:
        return None
    emptied, counting, book = beside.emptied, beside.emptied.counting, beside.base.book
    own = counting.asked(ask)
    wanted, room = ((emptied.demands[beside.before] + own)[counting.totals], emptied.room[counting.totals])
    kept = emptied.rights.kept_by_shares
    others = subtract(total(kept[i] for i in book.tree.roots), kept[book.index(ask.group.queue)])
    more = np.pad(others, (0, len(room) - len(others)))
    lacking, still = (((wanted > most) & (own[counting.totals] > 0)).any() for most in (room, room + more))
    return refusal if not still and (lacking or wanted[GPU] > emptied.rights.most_gpus) else None


def _no_node_takes(beside: AnyPlan, ask: Ask) -> Refusal | None:
    """No node takes one of the pods, even alone."""
    if not beside.emptied.looked:
        return None
    refused = beside.emptied.refused
    for pod in ask.pods:
        key = pod.key if any(rule.concerns(pod) for rule in beside.base.rules) else pod.spec
        if key not in refused:
            refused[key] = not _taking(beside.emptied, pod).any()
        if refused[key]:
            return _NO_PLACES
    return None


def _missing_object(beside: AnyPlan, ask: Ask) -> Refusal | None:
    """A rule that has looked at everything says that an object is missing."""
    rules = (rule for rule in beside.base.rules if not rule.gave_up)
    return _NO_PLACES if dead_end(rules, ask.pods) else None


def _taking(emptied: Emptied, pod: Pod) -> Mask:
    """[N] nodes that may take the pod.

    A stateful rule counts if no leaving pod matters to it and no waiting pod could open a node by it.
    """
    base = emptied.known.base
    mask = base.fixed.table.accepting(pod).copy()
    for rule in base.rules:
        if not rule.concerns(pod) or rule in emptied.concerned or emptied.known.opened(rule, pod):
            continue
        allowed = rule.mask(pod, now=False)
        if allowed is not None and not rule.gave_up:
            mask &= allowed
    request = np.array(pod.spec.requests)
    if pod.spec.gpu.shares:
        request[GPU] = 0
    fits: Mask = mask & (emptied.free >= request).all(axis=1)
    return fits


def _no_places(beside: AnyPlan, ask: Ask) -> Refusal | None:
    """CP-SAT: this batch and all earlier ones have no places, even with everything gone that may go and moves
    free."""
    # What cannot be placed beside fewer groups cannot be placed beside more.
    key, before, emptied = ask.kind.signature, beside.before, beside.emptied
    known = beside.known.shown.get(key)
    if known is not None and known <= before:
        return _NO_PLACES
    if before <= emptied.open.get(key, -1) or not _worth_solving(beside, ask):
        return None
    shown = _infeasible(beside, ask)
    if not shown:
        emptied.open[key] = before
        return None
    beside.known.shown[key] = before
    return _NO_PLACES


def _worth_solving(beside: AnyPlan, ask: Ask) -> bool:
    """Whether the model is small enough, and the cycle has time for it."""
    emptied, budget = beside.emptied, beside.known.cycle.budget
    moved = int(emptied.rights.moved.sum())
    size = len(ask.pods) + beside.known.served.pods[beside.before] + moved
    if size > LIMITS.proof_pods or fits_beside(beside, ask):
        return False
    return not budget.passed() and budget.suffices(LIMITS.admission_work)


def fits_beside(beside: AnyPlan, ask: Ask) -> bool:
    """Whether the batch fits beside the places of this plan, so that no model shows anything."""
    base, (pod, *others) = beside.base, ask.kind.shape.examples
    table, count = base.fixed.table, ask.kind.shape.count
    if others or pod.spec.gpu.shares or any(r.concerns(one) for r in base.rules for one in ask.pods):
        return False
    domains = [table.domains_of(scope) for scopes, _ in ask.batch.leaves for scope in scopes]
    required = [domain for _, domain in domains if domain is not None]
    if len(required) > 1 or (required and ask.kind.pinned is not None):
        return False
    request, spare = np.array(pod.spec.requests), beside.emptied.spare
    asked = request > 0
    takes = np.logical_and.reduce([table.accepting(pod), *(member for member, _ in domains)])
    takes &= (spare >= 0).all(axis=1)
    fits = np.where(takes, (spare[:, asked] // request[asked]).min(axis=1, initial=count), 0)
    # Nodes outside all domains of a required level are -1.
    sums = np.bincount(required[0] + 1, fits)[1:] if required else [fits.sum()]
    return max(sums, default=0) >= count


def _infeasible(beside: AnyPlan, ask: Ask) -> bool:
    """Whether a model proves it; False where it is too large, too."""
    emptied, cycle = beside.emptied, beside.known.cycle
    budget, groups = cycle.budget, beside.base.snapshot.group_by_key
    asks = [*beside.known.served.asks[: beside.before], ask]
    moving = emptied.moving
    units = [EvictionUnit(groups[pod.group], (pod,), 0, False) for pod in moving if pod.group is not None]
    # In a permitted plan, the neighbour that opens a node to one of these may stay, or come; and what one
    # that leaves uses up is there for others where it stays.
    ledger, pods = emptied.ledger.copy(), [*moving, *(pod for part in asks for pod in part.pods)]
    rules = zip(ledger.rules, beside.base.rules, strict=True)
    found = (first if rule.uses_up else rule for rule, first in rules)
    ledger.rules = tuple(rule for rule in found if not any(map(rule.opened_by, pods)))
    try:
        model = JointModel(ledger, asks, units, may_lose=False, all_admitted=True)
    except ModelTooLarge:
        return False
    worth = min(LIMITS.proof_work, budget.work_worth())
    outcome, _ = solve_within(model.cp, Allowance(budget, worth), worth)
    shown = outcome.status == "infeasible" and outcome.proved and not any(r.gave_up for r in ledger.rules)
    if not shown:
        budget.in_vain(outcome.work)
    return shown


CERTIFICATES: Final[Sequence[Certificate[AnyPlan]]] = (
    Certificate(MISSING_OBJECT.name, _missing_object),
    NO_NODE_ACCEPTS,
    OVER_BOUNDS,
    Certificate(OVER_SHARES, _over_shares),
    OVER_SUMS,
    Certificate("no node takes a pod", _no_node_takes),
    Certificate("no places", _no_places),
)
"""What is asked for every plan, the cheapest first."""
