"""The eviction actions as records: what differs between reclaim, preempt and consolidation (4.3 to 4.5)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kai_cp_models.snapshot import ActionName


@dataclass(frozen=True, slots=True)
class EvictionPolicy:
    """One eviction action. Everything else is the same for all of them."""

    name: ActionName
    may_lose: bool
    """Victims may end without a place; if not, they move, and only preemptible triggers are served."""
    own_queue: bool
    """Victims are of the trigger's own queue and of lower priority, so queues are decided one by one."""
    by_share: bool
    """Fair shares decide which queue may take what from which (4.4)."""


RECLAIM: Final = EvictionPolicy("reclaim", may_lose=True, own_queue=False, by_share=True)
PREEMPT: Final = EvictionPolicy("preempt", may_lose=True, own_queue=True, by_share=False)
CONSOLIDATION: Final = EvictionPolicy("consolidation", may_lose=False, own_queue=False, by_share=False)
POLICIES: Final[Mapping[str, EvictionPolicy]] = {
    policy.name: policy for policy in (RECLAIM, PREEMPT, CONSOLIDATION)
}
"""The eviction actions by name."""
