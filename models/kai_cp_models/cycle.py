"""The cycle: what the actions of one pass over a snapshot share, and the plan that comes out of it.

Each action sees the ledger that the ones before left (0.2). The plan is the net effect: a place that
was given and taken back leaves no trace, and neither does an eviction that nothing needs any more.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from kai_cp_models.ledger import Ledger
from kai_cp_models.settings import Settings
from kai_cp_models.snapshot import (
    ACTIVE_USED,
    ActionName,
    Decision,
    GroupKey,
    Pod,
    PodKey,
    PodStatus,
    Snapshot,
    Stage,
)

_ORDER: Final[dict[str, int]] = {
    name: i for i, name in enumerate(("stalegangeviction", "allocate", "consolidation", "reclaim", "preempt"))
}

_LEAST_SECONDS: Final = 0.2
"""What an action may always spend in vain."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """Why a pod group got nothing in an action, as known when it was refused."""

    reason: str
    message: str = ""
    proved: bool = False
    pod: Pod | None = None
    """The pod that found no node, to be explained at the end."""
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Eviction:
    """Who evicts a pod and for whom."""

    action: ActionName
    triggers: tuple[GroupKey, ...]
    message: str


@dataclass
class Cycle:
    """The mutable state of one pass."""

    snapshot: Snapshot
    settings: Settings
    ledger: Ledger
    deadline: float
    placed_by: dict[PodKey, ActionName] = field(default_factory=dict)
    evicted_by: dict[PodKey, Eviction] = field(default_factory=dict)
    waiting: dict[GroupKey, Waiting] = field(default_factory=dict)
    stages: list[Stage] = field(default_factory=list)
    sequence: dict[GroupKey, int] = field(default_factory=dict)
    """Triggers of evictions in the order in which they were admitted; their claims are tested in it."""
    action_deadline: float = 0.0
    """Until when the present action may search; at most ``deadline``."""
    withdraws: bool = True
    """Whether places given earlier in the cycle may be taken back."""
    started: float = field(default_factory=time.monotonic)
    """When the cycle began; what it has taken so far says how long one more attempt is worth."""
    fruitless_seconds: float = 0.0
    """What attempts of the present action took that neither served anybody nor proved anything."""

    def save(self) -> Cycle:
        """An independent copy to fall back to."""
        return Cycle(
            self.snapshot,
            self.settings,
            self.ledger.copy(),
            self.deadline,
            dict(self.placed_by),
            dict(self.evicted_by),
            dict(self.waiting),
            list(self.stages),
            dict(self.sequence),
            self.action_deadline,
            self.withdraws,
            self.started,
            self.fruitless_seconds,
        )

    def begin(self, share: float) -> None:
        """Give the action that starts now ``share`` of the time that is left; what it saves carries over."""
        now = time.monotonic()
        self.action_deadline = now + share * max(0.0, self.deadline - now)
        self.fruitless_seconds = 0.0

    def seconds_left(self) -> float:
        """Time until the present action must end; never negative."""
        return max(0.0, min(self.deadline, self.action_deadline) - time.monotonic())

    def seconds_to_deadline(self) -> float:
        """Time until the cycle must end; never negative."""
        return max(0.0, self.deadline - time.monotonic())

    def seconds_worth(self) -> float:
        """Time that one more attempt may take: what is left, as far as patience goes; never negative.

        Patience grows with what the cycle has taken, less what the action has spent in vain.
        """
        taken = time.monotonic() - self.started - self.fruitless_seconds
        worth = max(_LEAST_SECONDS, self.settings.solver.patience * taken)
        return max(0.0, min(self.seconds_left(), worth - self.fruitless_seconds))

    def out_of_time(self) -> bool:
        """Whether the deadline of the cycle has passed."""
        return time.monotonic() > self.deadline

    def decisions(self) -> tuple[Decision, ...]:
        """The net effect of the cycle so far, evictions of an action before what relies on them."""
        found = list(self._decisions())
        rank = {"Evict": 0, "Nominate": 1, "Bind": 1}
        last = len(self.sequence)

        def turn(decision: Decision) -> int:
            group = decision.triggers[0] if decision.triggers else decision.group
            return last if group is None else self.sequence.get(group, last)

        found.sort(key=lambda d: (_ORDER[d.action], rank[d.kind], turn(d), d.pod))
        return tuple(found)

    def _decisions(self) -> Iterator[Decision]:
        ledger = self.ledger
        nodes = self.snapshot.nodes
        for key, status in ledger.changed.items():
            pod = self.snapshot.pod_by_key[key]
            held = ledger.held.get(key)
            if pod.status in ACTIVE_USED:
                eviction = self.evicted_by[key]
                yield Decision(
                    "Evict",
                    key,
                    pod.group,
                    pod.node or "",
                    eviction.action,
                    eviction.message,
                    triggers=eviction.triggers,
                )
            if held is not None:
                kind = "Nominate" if status is PodStatus.PIPELINED else "Bind"
                action = self.placed_by.get(key, "allocate")
                yield Decision(
                    "Bind" if kind == "Bind" else "Nominate",
                    key,
                    pod.group,
                    nodes[held.node].name,
                    action,
                    "room is free now" if kind == "Bind" else "room is promised, not free yet",
                    held.gpu_groups,
                    details=ledger.details_of(pod),
                )
