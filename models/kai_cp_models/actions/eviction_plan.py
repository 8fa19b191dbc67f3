"""The result of one attempt of an eviction action: a plan, or the reason why there is none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kai_cp_models.actions.reclaim_bounds import Owners
from kai_cp_models.cycle import Refusal
from kai_cp_models.joint.problem import Answer, Ask
from kai_cp_models.joint.search import StageResult
from kai_cp_models.joint.victim_candidates import VictimCandidate
from kai_cp_models.ledger import Ledger
from kai_cp_models.pods import GroupKey

NO_VICTIMS: Final = Refusal("NoVictims", "no running pod group may be disturbed for this one", True)
TOO_LITTLE: Final = Refusal("NotPossible", "all permitted victims together do not free enough capacity", True)
NOTHING_SUFFICES: Final = Refusal("NotPossible", "no permitted set of evictions frees enough capacity")
FITS_AS_IT_IS: Final = Refusal("FitsAsItIs", "it fits without evictions; allocate places it", True)
OUT_OF_TIME: Final = Refusal(
    "NotDecidedInTime", "the time budget, or the patience of the settings, ended before it was decided"
)


@dataclass(frozen=True)
class EvictionPlan:
    """A plan that passed simulation: the ledger after it and how it was reached."""

    ledger: Ledger
    asks: tuple[Ask, ...]
    ranked: tuple[VictimCandidate, ...]
    answer: Answer
    owners: Owners
    stages: tuple[StageResult, ...]
    variables: int
    constraints: int
    complete: bool
    """Whether the solver looked at all goals."""

    @property
    def disturbed(self) -> set[int]:
        """Ranks of the units that are lost or moved."""
        return {
            item.rank
            for item, lost in zip(self.ranked, self.answer.lost, strict=True)
            if lost or any(pod.key in self.answer.moved for pod in item.unit.pods)
        }


@dataclass(frozen=True, slots=True)
class NoPlan:
    """An attempt that led to no plan.

    ``served``: asks that have their place in the last plan tried; None where there was no plan to try.
    ``unneeded``: the asks fit without disturbing any unit.
    """

    why: Refusal
    served: frozenset[GroupKey] | None = None
    unneeded: bool = False
