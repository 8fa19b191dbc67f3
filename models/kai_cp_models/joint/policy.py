"""The eviction actions as records: what differs between reclaim, preempt and consolidation (4.3 to 4.5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kai_cp_models.budget import CONSOLIDATION_SHARE, RECLAIM_SHARE
from kai_cp_models.limits import LIMITS
from kai_cp_models.pods import GroupKey
from kai_cp_models.policy import ActionName, EvictionAction


@dataclass(frozen=True, slots=True, eq=False)
class EvictionPolicy:
    """One eviction action, one object each. Everything else is the same for all of them."""

    name: EvictionAction
    may_lose: bool
    """Victims may end without a place; if not, they move, and only preemptible triggers are served."""
    own_queue: bool
    """Victims are of the trigger's own queue and of lower priority, so queues are decided one by one."""
    by_share: bool
    """Fair shares decide what a queue may take from another (4.4)."""
    work_share: float
    """Fraction of the work left that the searches of the action may use; 1: all of it."""
    verb: str
    """What happens to a victim, as the first words of its eviction message; the triggers follow."""

    def message(self, triggers: Sequence[GroupKey]) -> str:
        """The eviction's message; it names the first triggers."""
        names = ", ".join(map(str, triggers[: LIMITS.named])) + (" …" if len(triggers) > LIMITS.named else "")
        return f"{self.verb} {names}"


RECLAIM: Final = EvictionPolicy(
    "reclaim", may_lose=True, own_queue=False, by_share=True, work_share=RECLAIM_SHARE, verb="reclaimed for"
)
PREEMPT: Final = EvictionPolicy(
    "preempt", may_lose=True, own_queue=True, by_share=False, work_share=1.0, verb="preempted by"
)
CONSOLIDATION: Final = EvictionPolicy(
    "consolidation",
    may_lose=False,
    own_queue=False,
    by_share=False,
    work_share=CONSOLIDATION_SHARE,
    verb="moved to free capacity for",
)
POLICIES: Final[Mapping[ActionName, EvictionPolicy]] = {
    policy.name: policy for policy in (RECLAIM, PREEMPT, CONSOLIDATION)
}
"""The eviction actions by name."""
