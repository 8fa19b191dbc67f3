"""What refuses a trigger of an eviction action before any plan is made: one list, asked in order of cost.

Every certificate holds under the action's own rules (4.1 to 4.4). A trigger that none of them refuses is
tried; then only a model, or the end of the time, refuses it, or a refusal of one that asks for no more.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from functools import cached_property
from typing import Final

from kai_cp_models.actions.eviction_plan import NO_VICTIMS
from kai_cp_models.actions.run import ActionRun
from kai_cp_models.certificates import (
    MISSING_OBJECT,
    NO_NODE_ACCEPTS,
    NOTHING_TO_MOVE_INTO,
    OVER_BOUNDS,
    OVER_SUMS,
    TOO_LITTLE,
    Certificate,
    LeastHeld,
)
from kai_cp_models.fairness.book import QueueBook
from kai_cp_models.fairness.quota_checks import OverQuota
from kai_cp_models.fairness.reclaim import can_reclaim
from kai_cp_models.joint.counting import CumulativeDemand
from kai_cp_models.joint.problem import Ask
from kai_cp_models.refusal import Refusal


class Beside:
    """The state that a trigger is tested with: all that the run has admitted, and the present ``chunk``."""

    def __init__(self, run: ActionRun) -> None:
        self.run, self.base, self.chunk = run, run.found.ledger, list[Ask]()
        self.book, self._least = run.base.book.copy(), run.base.book.copy()
        """What queues hold, and what of it cannot be preempted, in the places that cost least."""
        for ask in run.found.asks:
            self._charge(ask)

    def least_held(self, ask: Ask) -> LeastHeld:
        """What queues hold if everything else is evicted. Nothing is evicted for what quotas lend (3.8)."""
        firm = self._least.firm
        return LeastHeld(firm, firm, {})

    def short(self, ask: Ask) -> Refusal | None:
        """Whether capacity is too little for the ask alone, or beside all others, when everything has gone
        that may go for one of them; where victims are chosen anew, only for the ask alone."""
        run, own, moved = self.run, self.run.counting.asked(ask), not self.run.policy.may_lose
        if run.counting.exceeded(own, own, run.emptied, moved=moved):
            return NOTHING_TO_MOVE_INTO if moved else TOO_LITTLE
        takes = frozenset[int]() if run.anew else run.ranked.takes(ask)
        return TOO_LITTLE if takes and self.counted.exceeded(ask, takes, run.losable(ask)) else None

    @cached_property
    def counted(self) -> CumulativeDemand:
        """The demand of everything admitted and of the chunk, to be compared with all that may go."""
        counted = copy(self.run.cumulative)
        for ask in self.run.found.asks:
            counted.hold(ask, self.run.ranked.takes(ask), self.run.losable(ask))
        return counted

    def hold(self, ask: Ask) -> None:
        """Add the ask to the chunk. It counts as served for what comes after it, as in KAI."""
        self.chunk.append(ask)
        self.counted.hold(ask, self.run.ranked.takes(ask), self.run.losable(ask))
        self._charge(ask)

    def _charge(self, ask: Ask) -> None:
        self.book.charge(ask.group.queue, ask.asked, ask.group.preemptible)
        if not ask.group.preemptible:
            self._least.charge(ask.group.queue, ask.kind.shape.optimistic, preemptible=False)


def refusal(beside: Beside, ask: Ask) -> tuple[Refusal, bool] | None:
    """Why the ask is not tried, and whether that holds whatever becomes of the chunk; None: it is tried.

    Once the chunk is decided, later triggers may fit in what victims of earlier ones leave.
    """
    if (known := beside.run.refusals.find(ask)) is not None:
        return known, True
    for certificate in CERTIFICATES:
        if (why := certificate.refuse(beside, ask)) is not None:
            return why, not beside.chunk
    return None


def _over_share(beside: Beside, ask: Ask) -> Refusal | None:
    """Reclaim serves no queue beyond its fair share (4.4)."""
    # Anew, the admitted triggers may take what brings the queue below it.
    if beside.run.anew or not beside.run.policy.by_share:
        return None
    return None if (why := over_share(beside.book, ask)) is None else Refusal("OverFairShare", why.message)


def over_share(book: QueueBook, ask: Ask) -> OverQuota | None:
    """Why the ask may not reclaim where queues hold what ``book`` says; None when it may (4.4)."""
    return can_reclaim(book, ask.group.queue, ask.asked, ask.group.preemptible)


def _no_victims(beside: Beside, ask: Ask) -> Refusal | None:
    """There is nothing that the ask may take (4.3)."""
    # Anew, it may be served from what the admitted triggers take.
    return None if beside.run.anew or beside.run.ranked.takes(ask) else NO_VICTIMS


CERTIFICATES: Final[Sequence[Certificate[Beside]]] = (
    MISSING_OBJECT,
    NO_NODE_ACCEPTS,
    OVER_BOUNDS,
    Certificate("over its fair share", _over_share),
    OVER_SUMS,
    Certificate("no victims", _no_victims),
)
"""What an action asks, the cheapest first. The two of its own hold in this action alone."""
