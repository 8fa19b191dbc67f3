"""Admission of one more batch beside those already admitted: new places for all of them, or a proof that
there are none.

Cheap answers come first. A batch that is at least as hard to place as a refused one is refused for the same
reason, because more is admitted since (formulation 1.6). A batch that exceeds the sums of the action's start
never fits. Only then is the joint model solved.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass, field, replace

from kai_cp_models.budget import MODEL_SHARE, Allowance, Budget
from kai_cp_models.certificates import OVER_SUMS
from kai_cp_models.fairness.amounts import milli_gpus
from kai_cp_models.joint.counting import Counting
from kai_cp_models.joint.model import JointModel, ModelTooLarge
from kai_cp_models.joint.policy import EvictionPolicy
from kai_cp_models.joint.problem import Ask, fits_in_place_of, runs
from kai_cp_models.joint.search import solve_within
from kai_cp_models.ledger import Ledger
from kai_cp_models.limits import LIMITS
from kai_cp_models.placement import disaggregate, largest_first, place_all
from kai_cp_models.pods import MILLI, Pod
from kai_cp_models.refusal import Proof, Refusal


@dataclass
class RefusalCache:
    """Refused batches of one action. It only admits more and more, so each refusal holds to its end."""

    ledger: Ledger
    policy: EvictionPolicy | None
    """None: allocate, which takes nothing."""
    _known: dict[tuple[object, ...], Refusal] = field(default_factory=dict)
    """By signature and terms, which decide: what was added, or found from an easier batch."""
    _plain: dict[tuple[object, ...], list[tuple[Pod, int, Refusal]]] = field(default_factory=dict)
    """The first batches of equal pods that were added, by their terms: one pod, and how many there are."""
    _compared: Counter[tuple[object, ...]] = field(default_factory=Counter)
    """With how many of them a batch was compared in vain, by its signature and terms, and their terms."""

    def proved(self) -> RefusalCache:
        """An independent copy with the refusals that carry a proof."""
        known = {key: why for key, why in self._known.items() if why.proof}
        plain = {terms: [one for one in found if one[2].proof] for terms, found in self._plain.items()}
        return RefusalCache(self.ledger, self.policy, known, plain)

    def add(self, ask: Ask, why: Refusal) -> None:
        """Note that the batch found no place, unless a later group may be what its pod affinity lacks."""
        shape = ask.kind.shape
        if any(rule.opened_by(pod) for rule in self.ledger.rules for pod in shape.examples):
            return
        terms = self._terms(ask)
        self._known[ask.kind.signature, terms] = why
        plain = self._plain.setdefault(terms, [])
        if shape.uniform is not None and len(plain) < LIMITS.compared_refusals:
            plain.append((shape.uniform, shape.count, why))

    def find(self, ask: Ask) -> Refusal | None:
        """The refusal of an equal batch, or of one that asks for at most as much in every respect."""
        if not self._known:
            return None
        shape, own = ask.kind.shape, self._terms(ask)
        key = ask.kind.signature, own
        # Without terms, what others may take is more.
        found = self._known.get(key) or self._known.get((ask.kind.signature, ()))
        if found is None and (pod := shape.uniform) is not None:
            for terms in {own, ()}:
                plain = self._plain.get(terms, [])
                for easier, count, why in plain[self._compared[key, terms] :]:
                    if count <= shape.count and (
                        easier.spec is pod.spec or fits_in_place_of(self.ledger, easier, pod)
                    ):
                        self._known[key] = why
                        return why
                self._compared[key, terms] = len(plain)
        return found

    def _terms(self, ask: Ask) -> tuple[object, ...]:
        """What an ask may take from others: with equal terms, equal asks are admitted or refused alike."""
        group = ask.group
        if self.policy is None or not self.policy.may_lose:
            if self.policy is not None and runs(self.ledger, ask):
                return (group.key,)
            return ask.kind.bounds
        if self.policy.own_queue:
            return (group.queue, group.priority, group.preemptible)
        return (group.queue, group.preemptible, *(amount > 0 for amount in ask.asked))


@dataclass
class Admission:
    """The batches admitted so far, and those known not to fit beside them."""

    base: Ledger
    """The ledger without the batches."""
    waiting: Sequence[Pod]
    """All groups that may ask."""
    budget: Budget
    asks: list[Ask] = field(default_factory=list)
    """All admitted batches, in the order of their admission."""
    enabled: bool = True
    """Whether models are solved."""
    placed_jointly: bool = False
    """Whether batches have the places of a model, which knows nothing of distances."""
    variables: int = 0
    constraints: int = 0

    def __post_init__(self) -> None:
        self._refusals, self._counting = RefusalCache(self.base, None), Counting(self.base, self.waiting)
        self._held = self._counting.demand(pod for ask in self.asks for pod in ask.pods)

    def beside(self, base: Ledger, asks: Iterable[Ask] = ()) -> Admission:
        """An admission of the same groups, with these batches, beside all that has places in ``base``."""
        return replace(self, base=base, asks=list(asks))

    def proved(self) -> Admission:
        """An independent admission with the same batches and the refusals that carry a proof."""
        result: Admission = copy(self)
        result.asks = list(self.asks)
        result._refusals = self._refusals.proved()
        return result

    def admitted(self, ask: Ask) -> None:
        """Note that the batch has a place."""
        self.asks.append(ask)
        self._held = self._held + self._counting.asked(ask)

    def known_refusal(self, ask: Ask) -> Refusal | None:
        """The refusal of a batch that is at most as hard to place; it holds for this one too."""
        found = self._refusals.find(ask)
        if found is not None and found.proof is None and (proof := self._over_sums(ask)):
            return replace(found, proof=proof)
        return found

    def _over_sums(self, ask: Ask) -> Proof | None:
        """The proof that the sums refuse the batch beside the admitted ones; None: they do not."""
        own = self._counting.asked(ask)
        over = self._counting.exceeded(own, self._held + own, self._counting.idle_room)
        return Proof(OVER_SUMS.name) if over else None

    def decide(self, ledger: Ledger, ask: Ask, refusal: Refusal) -> Ledger | Refusal:
        """The ledger with this batch, too, where the admitted ones have places; or why it has none."""
        outcome = self._over_sums(ask) or self._solve(ledger, ask)
        if isinstance(outcome, Ledger):
            self.admitted(ask)
            return outcome
        result = replace(refusal, proof=outcome)
        self._refusals.add(ask, result)
        return result

    def _solve(self, ledger: Ledger, ask: Ask) -> Ledger | Proof | None:
        if not self.asks and len(ask.pods) == 1:
            # The greedy pass looked at every node for this pod, and no admitted pod could be elsewhere.
            return Proof("no node takes a pod")
        if not self.enabled or self.budget.ended(LIMITS.admission_work):
            return None
        asks = [*self.asks, ask]
        try:
            model = JointModel(self.base, asks, all_admitted=True)
        except ModelTooLarge:
            # More batches make no smaller model, and in a large cluster it takes seconds to find that out.
            self.enabled = False
            return None
        self.variables = max(self.variables, len(model.cp.proto.variables))
        self.constraints = max(self.constraints, len(model.cp.proto.constraints))
        allowance = Allowance(self.budget, MODEL_SHARE * self.budget.work_worth())
        for cuts in range(LIMITS.cuts):
            outcome, solver = solve_within(model.cp, allowance, allowance.left())
            if outcome.status == "unknown":
                self.budget.in_vain(outcome.work)
            if outcome.status != "solved":
                return Proof("no places") if outcome.status == "infeasible" and not cuts else None
            if not cuts and (found := self._made_room(ledger, ask)) is not None:
                return found
            made = disaggregate(self.base, model.answer(solver), pipeline_only=False)
            if made is not None:
                self.placed_jointly = True
                return made
            # A rule refuses it, or a queue's limit: a share by memory is charged more where GPUs are small.
            model.charge_least()
            model.refuse_counts(solver)
        return None

    def _made_room(self, ledger: Ledger, ask: Ask) -> Ledger | None:
        """The ledger with the batch, after admitted batches of smaller pods were placed again: where sizes
        divide each other, only these are in the way. None: they are many, or one finds no place."""
        # Shares of devices do not divide each other.
        most = max(MILLI, *map(milli_gpus, ask.kind.shape.examples))
        small = [one for one in self.asks if max(map(milli_gpus, one.kind.shape.examples)) < most]
        pods = [pod for one in small for pod in one.pods]
        if len(small) > LIMITS.replaced_share * len(self.asks) or ledger.relied_on(pods):
            return None
        room = ledger.without(pods)
        return room if place_all(room, largest_first([ask, *small])) else None
