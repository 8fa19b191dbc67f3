"""What refuses a trigger of an eviction action before any plan is made: one list, asked in order of cost.

Every entry is a proof under the action's own rules (4.1 to 4.4), from the state beside which the trigger is
looked at. What none of them refuses is tried; then only a model, or the end of the time, refuses it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, NamedTuple

from kai_cp_models.actions.eviction_plan import NO_VICTIMS, TOO_LITTLE, EvictionPlan
from kai_cp_models.actions.victims import Victims
from kai_cp_models.cycle import Refusal
from kai_cp_models.fairness.amounts import Amounts
from kai_cp_models.fairness.book import QueueBook
from kai_cp_models.fairness.quota_checks import OverQuota, non_preemptible_over_quota
from kai_cp_models.fairness.reclaim import can_reclaim, reclaim_conceivable
from kai_cp_models.joint.counting import CumulativeDemand
from kai_cp_models.joint.problem import Ask
from kai_cp_models.joint.refusals import RefusalCache
from kai_cp_models.ledger import Ledger


@dataclass
class Beside:
    """What a trigger is looked at beside: everything admitted so far, and the ``chunk`` in hand.

    ``ledger``: with ``before``, what is admitted, in its places. ``book``: what queues hold, with the chunk
    charged as well. ``known``: what the action has refused so far.
    """

    victims: Victims
    known: RefusalCache
    ledger: Ledger
    book: QueueBook
    before: EvictionPlan | None
    anew: bool = False
    """Whether what the admitted triggers take may be chosen anew."""
    chunk: list[Ask] = field(default_factory=list)

    @cached_property
    def lost(self) -> Sequence[Amounts]:
        """The most that each queue may lose to the admitted triggers; nothing where their plan stays."""
        able = self.victims.taken_by(self.before.asks) if self.before is not None and self.anew else ()
        ranked = self.victims.ranked if able else ()
        return self.book.summed((item.unit.group.queue, item.holds) for item in ranked if item.rank in able)

    @cached_property
    def counted(self) -> CumulativeDemand:
        """The demand of everything admitted and of the chunk, to be compared with all that may go."""
        counted = self.victims.cumulative.copy()
        for ask in self.before.asks if self.before else ():
            counted.hold(ask, self.victims.entitlement(ask), self.victims.beside(ask))
        return counted

    def hold(self, ask: Ask) -> None:
        """Add the ask to the chunk. It counts as served for what comes after it, as in KAI."""
        self.chunk.append(ask)
        self.counted.hold(ask, self.victims.entitlement(ask), self.victims.beside(ask))
        self.book.charge(ask.group.queue, ask.asked, ask.group.preemptible)


class Certificate(NamedTuple):
    """One way to refuse. ``lasting``: it holds whatever becomes of the chunk; else the trigger is looked at
    again once the chunk is decided, because later triggers may fit in what victims of earlier ones leave."""

    refuse: Callable[[Beside, Ask], Refusal | None]
    lasting: bool


def refusal(beside: Beside, ask: Ask) -> tuple[Refusal, bool] | None:
    """The first refusal of the list, and whether it is lasting; None where nothing refuses the ask."""
    for certificate in CERTIFICATES:
        if (why := certificate.refuse(beside, ask)) is not None:
            return why, certificate.lasting or not beside.chunk
    return None


def _no_easier(beside: Beside, ask: Ask) -> Refusal | None:
    return beside.known.find(ask)


def _missing_object(beside: Beside, ask: Ask) -> Refusal | None:
    for rule in beside.ledger.rules:
        for pod in ask.pods:
            if rule.concerns(pod) and (why := rule.dead_end(pod)):
                return Refusal("DependencyMissing", why, True)
    return None


def _no_node(beside: Beside, ask: Ask) -> Refusal | None:
    for pod in ask.kind.shape.examples:
        if not beside.ledger.fixed.table.accepted(pod):
            return Refusal("NoNodeAccepts", "no node accepts a pod of the group", True, pod)
    return None


def _over_quota(beside: Beside, ask: Ask) -> Refusal | None:
    if ask.group.preemptible:
        return None
    asked = ask.kind.shape.optimistic
    why = non_preemptible_over_quota(beside.book, ask.group.queue, asked)
    return None if why is None else Refusal("NonPreemptibleOverQuota", why.message, True)


def _over_share(beside: Beside, ask: Ask) -> Refusal | None:
    if not beside.victims.policy.by_share or (why := over_share(beside.book, ask)) is None:
        return None
    if beside.anew and reclaim_conceivable(beside.book, ask.group.queue, ask.asked, lost=beside.lost):
        return None
    return Refusal("OverFairShare", why.message, True)


def over_share(book: QueueBook, ask: Ask) -> OverQuota | None:
    """Why the ask may not reclaim where queues hold what ``book`` says; None when it may (4.4)."""
    return can_reclaim(book, ask.group.queue, ask.asked, ask.group.preemptible)


def _over_sums(beside: Beside, ask: Ask) -> Refusal | None:
    """The only one that counts without ranking victims, which takes longer; it knows nothing of others."""
    beside_others = beside.before is not None or bool(beside.chunk)
    if beside.victims.policy.may_lose and beside_others:
        return None
    return beside.victims.refused_by_sums(ask)


def _no_victims(beside: Beside, ask: Ask) -> Refusal | None:
    # Anew, it may be served from what the admitted triggers take.
    return None if beside.anew or beside.victims.takes_of(ask) else NO_VICTIMS


def _over_all_victims(beside: Beside, ask: Ask) -> Refusal | None:
    victims = beside.victims
    fits = beside.anew or beside.counted.fits(ask, victims.entitlement(ask), victims.beside(ask))
    return None if fits else TOO_LITTLE


CERTIFICATES: Final = (
    Certificate(_no_easier, lasting=True),
    Certificate(_missing_object, lasting=True),
    Certificate(_no_node, lasting=True),
    Certificate(_over_quota, lasting=False),
    Certificate(_over_share, lasting=False),
    Certificate(_over_sums, lasting=False),
    Certificate(_no_victims, lasting=False),
    Certificate(_over_all_victims, lasting=False),
)
"""All certificates, the cheapest first."""
