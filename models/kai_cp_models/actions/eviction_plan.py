"""The result of one attempt of an eviction action: a plan, or the reason why there is none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from kai_cp_models.actions.reclaim_bounds import Owners
from kai_cp_models.joint.problem import Ask, EvictionUnit
from kai_cp_models.joint.search import StageResult
from kai_cp_models.joint.victim_candidates import VictimOrder
from kai_cp_models.ledger import Ledger
from kai_cp_models.limits import LIMITS
from kai_cp_models.pods import GroupKey, Pod
from kai_cp_models.refusal import Refusal

NO_VICTIMS: Final = Refusal("NoVictims", "no running pod group may be disturbed for this one")
NOTHING_SUFFICES: Final = Refusal("NotPossible", "no permitted set of evictions frees enough capacity")
OUT_OF_TIME: Final = Refusal("NotDecidedInTime", "the search of this cycle ended before it was decided")


@dataclass(frozen=True)
class EvictionPlan:
    """A plan that passed simulation: the ledger after it and how it was reached."""

    ledger: Ledger
    asks: tuple[Ask, ...]
    ranked: tuple[EvictionUnit, ...]
    owners: Owners
    stages: tuple[StageResult, ...]
    complete: bool
    """Whether the stages hold for all goals: the solver pursued them, or no plan is better in any."""
    variables: int = 0
    constraints: int = 0
    """Of the model; 0 where no solver made the plan."""

    @property
    def disturbed(self) -> set[int]:
        """Ranks of the units that are lost or moved, in whole or in part."""
        return {item.rank for item in self.owners}

    @property
    def too_large_to_weigh(self) -> bool:
        """Whether it serves too many groups, or looks at too many units, to ask which units are best lost."""
        return len(self.ranked) > LIMITS.weighed_units or len(self.asks) > LIMITS.finished_asks

    @property
    def lost(self) -> set[int]:
        """Ranks of the units of which a pod has no place any more."""
        return {item.rank for item in self.owners if not all(map(self.ledger.stays, item.pods))}

    def serves(self, asks: Sequence[Ask]) -> list[bool]:
        """Whether each of the asks gets its place."""
        served = {ask.group.key for ask in self.asks}
        return [ask.group.key in served for ask in asks]


@dataclass(frozen=True, slots=True)
class NoPlan:
    """An attempt that led to no plan.

    ``served``: asks that have their place in the last plan tried; None where there was no plan to try.
    """

    why: Refusal
    served: frozenset[GroupKey] | None = None


def named_triggers(order: VictimOrder, found: EvictionPlan) -> Iterator[tuple[Pod, tuple[GroupKey, ...]]]:
    """Every pod of the units that some trigger takes or moves, with the triggers that its eviction names.

    It names the triggers that use the freed place and may take the unit; if none does, or under reclaim, all
    that took it. Of several, reclaim and preempt name the first. A move may name several.
    """
    ledger, policy, users = found.ledger, order.reach.policy, dict[str, list[Ask]]()
    for ask in () if policy.by_share else found.asks:
        for node in ledger.nodes_of(ask.pods):
            users.setdefault(ledger.snapshot.nodes[node].name, []).append(ask)
    for item in filter(found.owners.__contains__, found.ranked):
        for pod in item.pods:
            there = users.get(pod.node or "", ())
            here = tuple(ask.group.key for ask in there if item.rank in order.takes(ask))
            yield pod, (here or found.owners[item])[: 1 if policy.may_lose else LIMITS.named + 1]
