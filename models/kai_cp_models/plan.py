"""The output of the engine: decisions, what waits and why, and how good the plan is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, NamedTuple, get_args

from kai_cp_models.frozen import record
from kai_cp_models.pods import GroupKey, PodKey
from kai_cp_models.policy import ActionName
from kai_cp_models.snapshot import SetAside, Shares
from kai_cp_topology.records import Locality


@record(frozen=True, slots=True)
class Decision:
    """One decision of a cycle; the list of them in order is the plan (``decisions/1``).

    ``kind`` Bind: the place is free now. Nominate: it is promised but not free yet. Evict: the pod is
    deleted. A moved pod has an Evict and a Nominate.
    """

    kind: Literal["Bind", "Nominate", "Evict"]
    pod: PodKey
    group: GroupKey | None
    node: str
    action: ActionName
    message: str = ""
    gpu_groups: tuple[str, ...] = ()
    triggers: tuple[GroupKey, ...] = ()
    """Evict only: the pod groups that the pod is evicted for."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """What the binder needs beyond the place: ``resourceClaimAllocations``, ``numaZones`` …"""


class Unscheduled(NamedTuple):
    """Why a pod group waits. ``reason``: one token; ``proved``: see formulation 1.6."""

    group: GroupKey
    reason: str
    message: str
    proved: bool
    details: Mapping[str, Any] = {}
    estimate: Estimate | None = None
    """When it might start; None where that was not asked for."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """When a pod group that waits might start.

    ``reserved``: at ``start``. ``notBefore``: it would fit alone at ``start``, if all waiting groups and
    holders are ignored. ``none``: not even when all known ends have passed. ``unknown_ends``: running groups
    without one.
    """

    kind: Literal["reserved", "notBefore", "none"]
    start: float | None = None
    unknown_ends: int = 0


class Offer(NamedTuple):
    """A start that a hero could have, and what others would lose for it."""

    start: float
    lost_gpu_hours: float
    idle_gpu_hours: float
    victims: tuple[GroupKey, ...] = ()


HoldState = Literal["made", "kept", "earlier", "later", "started", "dropped", "offered", "draining"]


@dataclass(frozen=True, slots=True)
class IdleSoFar:
    """Idle time on closed places: ``gpu_hours`` until ``since``, and ``gpus`` that are idle since then."""

    since: float
    gpus: float
    gpu_hours: float

    def at(self, instant: float) -> float:
        """GPU-hours until an instant."""
        return self.gpu_hours + self.gpus * max(0.0, instant - self.since) / 3600.0


@dataclass(frozen=True, slots=True)
class RolloutHolding:
    """A workload in rollout (3.8): GPUs of its newest revision, of all others, and what quotas lend to it.

    ``until``: when that ends.
    """

    namespace: str
    workload: str
    queue: str
    revision: str
    until: float
    old_gpus: float
    new_gpus: float

    @property
    def lent_gpus(self) -> float:
        """What quotas do not count: the old revision gives it back."""
        return min(self.old_gpus, self.new_gpus)


@dataclass(frozen=True, slots=True)
class Reservation:
    """What became of a pod group's start in the future in this cycle.

    ``nodes``: GPUs held by node. ``domain``: (level, name) of the one it has to lie in. ``waits_for``: groups
    on its places that end at its start. ``drained``: held nodes that stand idle for it. ``victims``: what an
    accepted price evicts at the start. ``expired``: when an overdue one was given up. ``idle``: of
    closed places (``draining``), which have no start. ``beside``: groups on its places that are not backfill,
    as they came before it or others were evicted for them; it waits for their ends.
    """

    group: GroupKey
    queue: str
    state: HoldState
    start: float | None = None
    promised: float | None = None
    made: float | None = None
    nodes: Mapping[str, float] = field(default_factory=dict)
    domain: tuple[str, str] | None = None
    waits_for: tuple[GroupKey, ...] = ()
    drained: tuple[str, ...] = ()
    idle_gpu_hours: float = 0.0
    lost_gpu_hours: float = 0.0
    victims: tuple[GroupKey, ...] = ()
    cause: str | None = None
    message: str = ""
    offers: tuple[Offer, ...] = ()
    expired: float | None = None
    idle: IdleSoFar | None = None
    beside: tuple[GroupKey, ...] = ()


DefragState = Literal["met", "report", "closed", "waits", "rate", "moved", "stuck", "unknown"]


@dataclass(frozen=True, slots=True)
class DefragReport:
    """How far the goal of defragmentation is met, and what was done for it in this cycle.

    ``value``: how much of ``goal`` (``defrag.goal`` in words) there is now, ``wanted``: how much is wanted.
    """

    goal: str
    value: int
    wanted: int
    state: DefragState
    message: str


SOLVED: Final = "solved"
"""The stage is a question that was answered: its numbers are of its goal."""

REJECTED: Final = "rejected by the checker"
"""The action's plan broke a rule: it was dropped (formulation 1.6)."""

FAILED: Final = "failed"
"""The action raised; its traceback is in the log."""

CUT: Final = "cut by the deadline"
"""The clock ended the action: a quieter machine may find more."""

SPENT: Final = "ended by the budget's work"
"""Counted work, which follows from the budget, ended a search: a larger budget may find more."""

FURTHER: Final = "further goals"
"""Some goals were not pursued: a plan made for the others has no value of theirs."""

StageKind = Literal[
    "solved",
    "rejected by the checker",
    "failed",
    "cut by the deadline",
    "ended by the budget's work",
    "further goals",
]
StageStatus = Literal["OPTIMAL", "FEASIBLE", "GREEDY"]


@dataclass(frozen=True, slots=True)
class Stage:
    """What one stage of a cycle solved, or what became of its action."""

    action: str
    """The action, or another step of the cycle, such as ``proofs``."""
    goal: str
    """What it optimises, with the unit; "": the action as a whole."""
    status: StageStatus
    """OPTIMAL: proved; FEASIBLE: best found; GREEDY: the solver was not asked, or not in time."""
    objective: float = 0.0
    """A cost: smaller is better."""
    bound: float = 0.0
    """No answer is below this."""
    gap: float = 0.0
    """(objective - bound) / max(1, |objective|); 0 is proof."""
    variables: int = 0
    """Variables of the model; 0: no model."""
    constraints: int = 0
    """Constraints of the model; 0: no model."""
    seconds: float = 0.0
    """Seconds spent on it."""
    kind: StageKind = SOLVED

    @property
    def name(self) -> str:
        """The action with its goal or what became of it, as documents and metrics have it."""
        told = self.goal if self.kind == SOLVED else self.kind
        return f"{self.action}: {told}" if told else self.action

    def unproved(self, count: int) -> Stage:
        """The stage, which minimises a number of refusals, where this many of them carry no proof."""
        status = self.status if count else "OPTIMAL"
        gap = count / max(1.0, self.objective)
        return replace(self, status=status, bound=self.objective - count, gap=gap)

    @staticmethod
    def named(name: str, status: StageStatus) -> Stage:
        """The stage of a name in a document, without its numbers."""
        action, _, told = name.partition(": ")
        kinds: tuple[StageKind, ...] = get_args(StageKind)
        kind = next((one for one in kinds if one == told), kinds[0])
        return Stage(action, told if kind == SOLVED else "", status, kind=kind)


@dataclass(frozen=True, slots=True)
class QueueReport:
    """Fair share and allocation of a queue before and after the cycle."""

    fair_share: Shares
    allocated_before: Shares
    allocated_after: Shares


@dataclass(frozen=True, slots=True)
class Plan:
    """The answer of a cycle: decisions in order, and everything needed to explain them."""

    decisions: tuple[Decision, ...] = ()
    unscheduled: tuple[Unscheduled, ...] = ()
    stages: tuple[Stage, ...] = ()
    queues: Mapping[str, QueueReport] = field(default_factory=dict)
    timings: Mapping[str, float] = field(default_factory=dict)
    localities: Mapping[GroupKey, Locality] = field(default_factory=dict)
    """How close the GPUs of pod groups are that got places, where they are on several nodes."""
    turns: tuple[GroupKey, ...] = ()
    """Pod groups in the order in which allocate took them (3.5), served or refused."""
    reservations: tuple[Reservation, ...] | None = None
    """Starts in the future; None: they are switched off."""
    set_aside: tuple[SetAside, ...] = ()
    """What settings asked for and could not be read, beyond what the snapshot set aside."""
    again_at: float | None = None
    """The next time at which the decisions of the time axis may change although nothing else does."""
    defrag: DefragReport | None = None
    """Of a goal of defragmentation; None: there is none."""
    rollouts: tuple[RolloutHolding, ...] = ()
    """Workloads in rollout as the plan leaves them, where the rule is on."""
    work: float = 0.0
    """Counted work of the cycle (``budget.py``); about seconds of an idle core."""

    def promises(self, named: Callable[[PodKey], str]) -> dict[PodKey, str]:
        """The nominated pods that are promised their places, with the nodes (4.2): others leave for them, or
        have left before. ``named``: the node that the status of a pod names; "" for none."""
        found = (one for one in self.decisions if one.kind == "Nominate")
        return {one.pod: one.node for one in found if one.action != "allocate" or named(one.pod)}
