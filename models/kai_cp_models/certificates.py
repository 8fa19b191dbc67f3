"""Certificates: ways to show that a batch gets no places, each implemented once.

A certificate relaxes the problem: it allows at least as much as any plan with the same rights that gives
places to the same other batches. An action tests certificates before it searches, with its own rights and
beside what it has admitted (``actions/certificates.py``). A proof tests them with the rights of every plan
(``proof``). A refusal also holds beside further batches, and with fewer rights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from kai_cp_models.fairness.amounts import Amounts
from kai_cp_models.fairness.quota_checks import Held, over_bounds, over_limit
from kai_cp_models.joint.problem import Ask
from kai_cp_models.ledger import Ledger
from kai_cp_models.pods import Pod
from kai_cp_models.refusal import Refusal
from kai_cp_models.rules.stateful.protocol import RuleState


class Surroundings(Protocol):
    """The batches beside which an ask is tested, and what may leave for any of them."""

    @property
    def base(self) -> Ledger:
        """The ledger before anything leaves."""
        ...

    def least_held(self, ask: Ask) -> LeastHeld:
        """What the queues of the ask hold at the least beside it."""
        ...

    def short(self, ask: Ask) -> Refusal | None:
        """Why the sums of capacity are too little with the ask; None: they are not."""
        ...


class LeastHeld(NamedTuple):
    """What queues hold at the least, by position in the book: in all, and of what cannot be preempted.

    ``lent``: what their quotas lend to the batch at the most (3.8).
    """

    held: Held
    firm: Held
    lent: Mapping[str, Amounts]


S = TypeVar("S", bound=Surroundings, contravariant=True)


@dataclass(frozen=True, slots=True)
class Certificate(Generic[S]):
    """One way to refuse a batch. ``refuse``: why there are no places for it; None where it shows nothing."""

    name: str
    refuse: Callable[[S, Ask], Refusal | None]


TOO_LITTLE: Final = Refusal("NotPossible", "all permitted victims together do not free enough capacity")
NOTHING_TO_MOVE_INTO: Final = Refusal(
    "NoRoomInSum", "moving pods cannot help: there is too little free capacity in all"
)


def dead_end(rules: Iterable[RuleState], pods: Sequence[Pod]) -> Refusal | None:
    """Something that one of the pods needs does not exist, so no free capacity could help it (4.3)."""
    found = ((rule, rule.dead_end(pod)) for rule in rules for pod in pods if rule.concerns(pod))
    return next((Refusal(rule.dead_end_reason, words) for rule, words in found if words), None)


def _missing_object(beside: Surroundings, ask: Ask) -> Refusal | None:
    rules = beside.base.rules
    return dead_end(rules, ask.pods) if rules else None


def _no_node_accepts(beside: Surroundings, ask: Ask) -> Refusal | None:
    """No node takes one of the pods even if it is empty."""
    for pod in ask.kind.shape.examples:
        if not beside.base.fixed.table.takes_when_empty(pod):
            return Refusal("NoNodeAccepts", "no node accepts a pod of the group", pod)
    return None


def _over_bounds(beside: Surroundings, ask: Ask) -> Refusal | None:
    """A limit, or the quota of what cannot be preempted, is still exceeded (3.7)."""
    book, queue, asked = beside.base.book, ask.group.queue, ask.kind.shape.optimistic
    least, preemptible = beside.least_held(ask), ask.group.preemptible
    over = over_bounds(
        book, queue, asked, preemptible=preemptible, held=least.held, firm=least.firm, lent=least.lent
    )
    if over is None:
        return None
    # In words, what the queue holds before anything leaves.
    said = over_limit(book, queue, asked) if over.bound == "limit" else over
    return Refusal(over.reason, (said or over).message)


def _over_sums(beside: Surroundings, ask: Ask) -> Refusal | None:
    """The pods need more than all nodes that accept one of the asks offer in sum."""
    return beside.short(ask)


MISSING_OBJECT: Final = Certificate("an object is missing", _missing_object)
NO_NODE_ACCEPTS: Final = Certificate("no node accepts a pod", _no_node_accepts)
OVER_BOUNDS: Final = Certificate("over a limit or quota", _over_bounds)
OVER_SHARES: Final = "over what shares let go in sum"
OVER_SUMS: Final = Certificate("over the sums of capacity", _over_sums)
