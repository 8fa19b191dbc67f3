"""The cycle: what the actions of one pass over a snapshot share, and the plan that comes out of it.

Each action sees the ledger that the ones before left (0.2). The plan is the net effect: a place that
was given and taken back leaves no trace, and neither does an eviction that nothing needs any more.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from copy import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kai_cp_models.budget import Budget
from kai_cp_models.joint.problem import Ask
from kai_cp_models.ledger import Ledger
from kai_cp_models.plan import Decision, Stage
from kai_cp_models.pods import ACTIVE_ALLOCATED, ACTIVE_USED, GroupKey, Pod, PodKey, PodStatus
from kai_cp_models.policy import ActionName
from kai_cp_models.refusal import Refusal
from kai_cp_models.settings import Settings
from kai_cp_models.snapshot import Snapshot

if TYPE_CHECKING:
    from kai_cp_models.reservations.state import TimeState


@dataclass(frozen=True, slots=True)
class Eviction:
    """Which action evicts a pod, and for which group."""

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
    """The actions that gave pods their places; allocate where there is no entry."""
    evicted_by: dict[PodKey, Eviction] = field(default_factory=dict)
    waiting: dict[GroupKey, Refusal] = field(default_factory=dict)
    stages: list[Stage] = field(default_factory=list)
    """What the steps did; of each eviction action only its admission."""
    telling: dict[ActionName, Callable[[Ledger], Iterable[Stage]]] = field(default_factory=dict)
    """The other stages of eviction actions, with the values of the plan that led to a ledger."""
    sequence: dict[tuple[ActionName, GroupKey], int] = field(default_factory=dict)
    """Triggers of each action in the order of their admission, in which their claims are tested."""
    turns: tuple[GroupKey, ...] = ()
    """What was popped in allocate, in order."""
    served: tuple[GroupKey, ...] = ()
    """Whose batches it admitted, in order."""
    left_out: dict[GroupKey, Refusal] = field(default_factory=dict)
    """Pod groups that the present action leaves alone, as plans with them failed."""
    refused: dict[ActionName, frozenset[GroupKey]] = field(default_factory=dict)
    """The pod groups that every eviction action refused."""
    dropped: set[ActionName] = field(default_factory=set)
    """Actions that were dropped, so that it is not known what they refuse."""
    overreaching: Callable[[Ledger], Ask | None] = lambda _: None
    """The trigger of reclaim that takes more than it may if the cycle ends with this ledger."""
    at_rest: bool = False
    """Whether ``backfill`` found nothing to do after the last change of the plan."""
    _decided: tuple[object, tuple[Decision, ...]] = None, ()
    """What all decisions follow from, as it was, and the decisions."""
    time: TimeState | None = None
    """The time axis; it is replaced, never changed. None: off."""

    def __post_init__(self) -> None:
        self.budget = Budget.of(self.settings.solver, self.snapshot, self.deadline)
        """The time and work of the cycle; copies of the cycle share it."""

    def save(self) -> Cycle:
        """An independent copy to fall back to."""
        own = ("placed_by", "evicted_by", "waiting", "stages", "sequence", "left_out", "refused", "dropped")
        saved, copies = copy(self), {name: getattr(self, name).copy() for name in own}
        vars(saved).update(copies, telling=self.telling.copy(), ledger=self.ledger.copy())
        return saved

    def restore(self, saved: Cycle) -> None:
        """Fall back to a saved cycle, which stays as it is."""
        vars(self).update(vars(saved.save()))

    def told(self) -> Iterator[Stage]:
        """All stages, with the values of the plan as it is now."""
        for stage in self.stages:
            yield stage
            if stage.goal == "admission":
                yield from self.telling[stage.action](self.ledger)  # type: ignore[index]

    def admitted(self, action: ActionName, group: GroupKey, pods: Iterable[Pod]) -> None:
        """Note that the action gave pods of a trigger their places, after all that it admitted before."""
        self.placed_by |= dict.fromkeys((pod.key for pod in pods), action)
        self.sequence.setdefault((action, group), len(self.sequence))

    def end_groups(self, action: ActionName, ended: Iterable[tuple[GroupKey, str]]) -> None:
        """Evict all active pods of each pod group for its own state, and for no other group
        (``STATE_ACTIONS``). ``ended``: the groups, each with the sentence that says why.

        A group stays as a whole if a PodDisruptionBudget protects it (where budgets are on), or if a
        nominated pod needs it.
        """
        started, evicted = time.monotonic(), 0
        for key, why in ended:
            # Those of unknown subgroups too.
            active = [p for p in self.snapshot.members[key] if self.ledger.status(p) in ACTIVE_ALLOCATED]
            if key not in self.left_out and self.ledger.let_go(active):
                evicted += len(active)
                runs = (pod.key for pod in active if pod.status in ACTIVE_USED)
                self.evicted_by |= dict.fromkeys(runs, Eviction(action, (), why))
        seconds = time.monotonic() - started
        self.stages.append(Stage(action, "", "OPTIMAL", evicted, evicted, seconds=seconds))

    def decisions(self) -> tuple[Decision, ...]:
        """The net effect of the cycle so far, evictions of an action before what relies on them."""
        causes = (self.ledger.evicted, self.ledger.held, self.evicted_by, self.placed_by, self.sequence)
        if self._decided[0] == causes:
            return self._decided[1]
        place = {name: i for i, name in enumerate(self.snapshot.policy.decision_order)}
        last = len(self.sequence)

        def turn(decision: Decision) -> int:
            group = decision.triggers[0] if decision.triggers else decision.group
            return last if group is None else self.sequence.get((decision.action, group), last)

        found = sorted(self._decisions(), key=lambda d: (place[d.action], d.kind != "Evict", turn(d), d.pod))
        self._decided = tuple(one.copy() for one in causes), tuple(found)
        return self._decided[1]

    def _decisions(self) -> Iterator[Decision]:
        ledger = self.ledger
        for key, pod in ledger.evicted.items():
            by = self.evicted_by[key]
            yield Decision(
                "Evict", key, pod.group, pod.node or "", by.action, by.message, triggers=by.triggers
            )
        for key, held in ledger.held.items():
            pod = self.snapshot.pod_by_key[key]
            bound = held.status is not PodStatus.PIPELINED
            yield Decision(
                "Bind" if bound else "Nominate",
                key,
                pod.group,
                self.snapshot.nodes[held.node].name,
                self.placed_by.get(key, "allocate"),
                "starts now, on free capacity" if bound else "starts when the capacity is free",
                held.gpu_groups,
                details=ledger.details_of(pod),
            )
