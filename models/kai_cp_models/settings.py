"""Settings of the engine: budgets, goals in their order, and rules that are optional; frozen and validated.

Only preferences live here. Contract rules (limits, gangs, eligibility) cannot be switched off.
"""

from __future__ import annotations

import re
from typing import Any, Final, Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from kai_cp_models.defrag import goals
from kai_cp_models.defrag.windows import PATTERN as WINDOW
from kai_cp_models.defrag.windows import window

MOST: Final = {"seconds": 100 * 365 * 86_400, "bytes": 1 << 50}
"""Largest value of settings whose names end in the unit; instants and sums stay far inside their types."""
MOST_OTHERS: Final = 1_000_000_000
"""Largest value of all other settings, whatever they count."""


_LABEL_KEY: Final = re.compile(
    r"([a-z0-9.-]{1,253}/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?", re.ASCII
)


class Frozen(BaseModel):
    """Base of every settings record: immutable, unknown keys refused, numbers of a size that can be meant."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @field_validator("*", mode="before")
    @classmethod
    def _no_switch(cls, value: Any, field: ValidationInfo) -> Any:
        if isinstance(value, bool) and cls.model_fields[str(field.field_name)].annotation in (int, float):
            raise ValueError("expected a number")
        return value

    @field_validator("*")
    @classmethod
    def _of_a_size(cls, value: Any, field: ValidationInfo) -> Any:
        most = MOST.get(str(field.field_name).rsplit("_", 1)[-1], MOST_OTHERS)
        if isinstance(value, int | float) and value > most:
            raise ValueError(f"input should be less than or equal to {most}")
        return value


class SolverSettings(Frozen):
    """How CP-SAT is run."""

    budget_seconds: float = Field(
        1.0,
        gt=0,
        description="Time for one cycle; after it the best checked answer is used. Offline commands read a "
        "snapshot before it begins (limits.read_seconds), and write the answer within a fifth of it, or one "
        "second.",
    )
    patience: float = Field(
        0.5,
        gt=0,
        description="How long an action goes on searching without success (for capacity, better plans, "
        "proofs of refusals): this many times the work of a cycle without searches, at least 0.3. Work is "
        "counted, not timed (a unit is about a second of a quiet core), so the machine's load decides "
        "nothing. All searches together do half a unit for every second of the budget.",
    )
    workers: int = Field(
        2,
        ge=1,
        le=256,
        description="CP-SAT search workers for large models; they take turns, so that their "
        "answer does not depend on the machine's load.",
    )
    seed: int = Field(0, ge=0, description="CP-SAT random seed.")


GoalName = Literal[
    "threshold",
    "lost_beyond",
    "threshold_by_age",
    "lost_work_by_priority",
    "lost_work",
    "lost_gpus",
    "stopped_groups",
    "moved_pods",
    "moved_groups",
    "newest_first",
    "moved_latest",
]
"""What a plan that evicts or moves may be better by; ``kai_cp_models.joint.goals`` says what each is."""


def goals_of(entry: str) -> tuple[GoalName, ...]:
    """The names in one entry of ``objective.goals``: one, or several that are added up."""
    return tuple(name.strip() for name in entry.split("+"))  # type: ignore[misc]


class GoalWeights(Frozen):
    """Weight of one unit of a goal where goals are added up."""

    lost_work: float = Field(
        1.0, gt=0, le=10_000, description="Weight of a GPU-hour of lost work in a sum of goals."
    )
    lost_gpus: float = Field(1.0, gt=0, le=10_000, description="Weight of a lost GPU in a sum of goals.")
    stopped_groups: float = Field(
        1.0, gt=0, le=10_000, description="Weight of a pod group that is stopped in a sum of goals."
    )
    moved_pods: float = Field(
        1.0, gt=0, le=10_000, description="Weight of a restarted pod in a sum of goals."
    )
    moved_groups: float = Field(
        1.0, gt=0, le=10_000, description="Weight of a pod group with restarted pods in a sum of goals."
    )

    def of(self, name: str) -> float:
        """The weight of the goal."""
        return float(getattr(self, name))


_ADDED: Final = "|".join(GoalWeights.model_fields)
_GOALS: Final = rf"^\s*({'|'.join(get_args(GoalName))}|({_ADDED})(\s*\+\s*({_ADDED}))+)\s*$"
"""An entry of ``objective.goals``: a goal, or amounts that are added up."""


class ObjectiveSettings(Frozen):
    """Named preferences among plans that admit the same pod groups."""

    goals: tuple[str, ...] = Field(
        (
            "threshold",
            "lost_beyond",
            "threshold_by_age",
            "lost_work_by_priority",
            "stopped_groups",
            "moved_pods",
            "moved_groups",
            "newest_first",
            "moved_latest",
        ),
        min_length=1,
        description="What evictions and moves are to be better by, in this order: the first goal in which "
        "two plans differ decides. Neighbours joined by `+` are one weighted sum "
        "(`lost_work + moved_pods`), see objective.weights. What is left out does not count. "
        "docs/goals.md says what each goal is.",
        json_schema_extra={"type": ["array", "string"], "items": {"type": "string", "pattern": _GOALS}},
    )
    weights: GoalWeights = GoalWeights()

    lost_work_cap_seconds: int = Field(
        604_800,
        ge=0,
        description="Lost work of a pod is GPU-seconds since its group's last start, counted up to this age.",
    )
    max_moved_gpus_per_admitted_gpu: float = Field(
        -1.0,
        ge=-1,
        description="Ceiling on GPUs moved per GPU admitted by an eviction action; -1: none.",
    )
    lost_beyond_step_gpus: int = Field(
        8,
        ge=1,
        description="GPUs lost beyond those admitted are counted in steps of this size; a step weighs more "
        "than the age of pod groups, so a large gang is not stopped for a small one because it is younger.",
    )
    close_gangs: bool = Field(
        True,
        description="A gang of GPUs goes to the closest place with capacity for all of it: one NVLink "
        "domain, else one domain of ever wider Topology levels, inside the levels that it asks for; where "
        "none has, to few places. Never a reason to wait.",
    )

    @field_validator("goals", mode="before")
    @classmethod
    def _one_line(cls, value: Any) -> Any:
        """The whole list may be one text, parted by commas, as a choice in a search is."""
        return tuple(part.strip() for part in value.split(",")) if isinstance(value, str) else value

    @field_validator("goals")
    @classmethod
    def _known(cls, entries: tuple[str, ...]) -> tuple[str, ...]:
        known = get_args(GoalName)
        names = [name for entry in entries for name in goals_of(entry)]
        for name in names:
            if name not in known:
                raise ValueError(f"no goal {name!r}; there are {', '.join(known)}")
        twice = [name for name in known if names.count(name) > 1]
        if twice:
            raise ValueError(f"{twice[0]} is named twice")
        for entry in entries:
            parts = goals_of(entry)
            for name in parts if len(parts) > 1 else ():
                if name not in GoalWeights.model_fields:
                    raise ValueError(f"{name} is an order and no amount, it cannot be added up")
        return tuple(" + ".join(goals_of(entry)) for entry in entries)


class OptionalRules(Frozen):
    """Rules that KAI lacks, off by default for parity."""

    topology_spread: bool = Field(False, description="Enforce DoNotSchedule topology spread.")
    pod_disruption_budgets: bool = Field(
        False,
        description="Never evict beyond a PodDisruptionBudget: the right to make one protects from reclaim.",
    )
    gpu_kinds: bool = Field(
        False,
        description="Hold queues to the limits and quotas that they state for kinds of GPUs "
        "(`kai-cp/gpu-kinds`, docs/gpu-kinds.md).",
    )
    rollouts: bool = Field(
        False,
        description="A workload that cannot be preempted counts in quotas what the larger of its revisions "
        "holds, for as long as its queue states (`kai-cp/rollout`, docs/inference.md).",
    )


class Limits(Frozen):
    """How much one tenant's objects may cost the others. Work is counted, not timed."""

    cel_steps_per_device: int = Field(
        10_000,
        ge=1,
        description="Steps that a CEL selector of a claim may take for one device (one of those that it "
        "cannot tell apart); about ten microseconds each. A claim that needs more is skipped.",
    )
    cel_steps_per_namespace: int = Field(
        100_000,
        ge=1,
        description="Steps that the selectors of all claims of a namespace may take in one cycle, parsing "
        "included. A claim that alone needs more is skipped, others wait for a later cycle.",
    )
    cel_steps_per_cycle: int = Field(
        300_000, ge=1, description="Steps that the selectors of all claims may take in one cycle."
    )
    terms_per_pod: int = Field(
        256,
        ge=1,
        description="Terms of affinity and spread that a pod may have, and terms of its node affinity; one "
        "with more is skipped.",
    )
    values_per_pod: int = Field(
        10_000,
        ge=1,
        description="Values, keys and ports in the node affinity, node selector, tolerations and containers "
        "of a pod; one with more is skipped.",
    )
    host_ports_per_pod: int = Field(
        256, ge=1, description="Ports of its node that a pod may listen on; one with more is skipped."
    )
    resources_per_pod: int = Field(
        64, ge=1, description="Resources that a pod may ask for by name; one with more is skipped."
    )
    unknown_resources_per_namespace: int = Field(
        64,
        ge=1,
        description="Resources that no node has and that the pods of a namespace may name together, those "
        "with a place first; waiting pods that name further ones are skipped.",
    )
    terms_per_namespace: int = Field(
        1_000,
        ge=1,
        description="Different terms of affinity and spread about other pods that the pods of a namespace "
        "may have together, those with a place first; waiting pods that bring further ones are skipped, and "
        "of placed ones such terms are not obeyed.",
    )
    subgroups_per_pod_group: int = Field(
        2_000, ge=1, description="Subgroups of a pod group; one with more is skipped."
    )
    memory_bytes: int = Field(
        4 * 1024**3,
        ge=256 * 1024**2,
        description="Most memory of a process that reads a snapshot or decides [bytes]; in a container, six "
        "tenths of what that has, if it is less.",
    )
    read_seconds: float = Field(
        120.0,
        gt=0,
        description="Longest time for reading a snapshot, and for what is then done with it without a "
        "budget of its own: checking, inspecting, auditing.",
    )


class TimeSettings(Frozen):
    """How long pod groups run that do not declare it."""

    default_runtime_seconds: int = Field(
        0,
        ge=0,
        description="Run time of pod groups that declare none, and whose queues declare none; 0: unknown.",
    )
    longest_runtime_seconds: int = Field(
        2_592_000,
        gt=0,
        description="A declared run time counts as at most this, so that a wrong one does little harm.",
    )
    margin_seconds: int = Field(0, ge=0, description="Time added to every known end of a run.")
    overrun: Literal["double", "unknown"] = Field(
        "double",
        description="What becomes of an estimate that has passed: it doubles, or the end is unknown.",
    )


class MaxRuntimeSettings(Frozen):
    """Maximum run times (`kai-cp/max-runtime` of pod groups and queues)."""

    enforce: bool = Field(False, description="Evict a pod group whole when it has run for its maximum.")
    requeue_delay_seconds: int = Field(
        0,
        ge=0,
        description="How long a pod group that was evicted for its maximum waits before it may start again.",
    )


class ReservationSettings(Frozen):
    """Starts in the future for large gangs, and what may use the capacity that is kept for them."""

    enabled: bool = Field(False, description="Keep capacity for gangs that cannot start yet.")
    most: int = Field(4, ge=0, description="Most pod groups that hold capacity at the same time.")
    min_gpus: int = Field(8, ge=1, description="Smallest gang that may hold capacity.")
    after_seconds: int = Field(
        3600,
        ge=-1,
        description="A gang that did not ask for it holds capacity after it has waited this long; -1: never.",
    )
    horizon_seconds: int = Field(604_800, gt=0, description="No start is promised later than this from now.")
    within: Literal["fair_share", "limit"] = Field(
        "fair_share", description="What a queue may reserve: up to its allocatable share, or to its limit."
    )
    backfill: Literal["none", "ends_before", "preemptible"] = Field(
        "ends_before",
        description="What may use it until then: nothing; what is gone by then; also preemptible pod groups "
        "without a run time, which are evicted at the start.",
    )
    max_idle_gpu_hours: float = Field(
        -1.0, ge=-1, description="Most GPU-hours that may stay idle for one start; -1: any number."
    )
    max_backfill_loss_gpu_hours: float = Field(
        -1.0,
        ge=-1,
        description="Most GPU-hours of preemptible backfill that may be lost at a start; -1: any number.",
    )
    without_ends: Literal["none", "drain"] = Field(
        "none",
        description="What happens if no end is known: no capacity is kept, or the places with the fewest "
        "busy GPUs are closed until they are empty or max_idle_gpu_hours is used up.",
    )
    max_overdue_seconds: int = Field(
        3600,
        ge=0,
        description="A start that is overdue by more is given up, and not promised again for the same time.",
    )
    charge_idle: bool = Field(
        False,
        description="Count capacity that is kept and idle as usage of the holder's queue: it is added to "
        "what `usageDBConfig` asks Prometheus for.",
    )
    hero: bool = Field(
        False,
        description="Queues marked `kai-cp/hero` are offered starts that evict others, with their price.",
    )

    @model_validator(mode="after")
    def _drains_within_a_cap(self) -> Self:
        if self.without_ends == "drain" and self.max_idle_gpu_hours < 0:
            raise ValueError("without_ends: drain needs max_idle_gpu_hours")
        return self


class AgingSettings(Frozen):
    """Priority that grows with waiting, inside a leaf queue."""

    step_seconds: int = Field(
        0, ge=0, description="Waiting time that adds one point of priority; 0: waiting adds none."
    )
    most_points: int = Field(0, ge=0, description="Most points of priority that waiting can add.")


class DefragSettings(Frozen):
    """Defragmentation: moving pods so that nodes, domains or places for gangs become free."""

    mode: Literal["report", "act"] = Field(
        "report", description="`report`: say what moves could free; `act`: carry them out."
    )
    goal: str = Field(
        "",
        description="What `act` works for, and how much of it: `nodes=4`, `rack=1` or `gang=8x8@rack=2`.",
        json_schema_extra={"pattern": f"^({goals.PATTERN})?$"},
    )
    windows: tuple[str, ...] = Field(
        (),
        description="When `act` may move pods, in UTC: `Mon-Fri 02:00-05:00`; none: never.",
        json_schema_extra={"items": {"type": "string", "pattern": f"^{WINDOW}$"}},
    )
    max_moves: int = Field(-1, ge=-1, description="Most pods that one plan restarts; -1: any number.")
    max_moves_per_hour: int = Field(0, ge=0, description="Most pods that `act` restarts in an hour.")
    min_runtime_seconds: int = Field(0, ge=0, description="Pod groups that started later are not moved.")
    serving: bool = Field(
        False,
        description="Pods that cannot be preempted take part where `kai-cp/defrag` on pod group or queue is "
        "`true` and a PodDisruptionBudget covers them, one at a time (docs/inference.md).",
    )

    @field_validator("goal")
    @classmethod
    def _readable_goal(cls, text: str) -> str:
        if text:
            goals.goal(text)
        return text

    @field_validator("windows")
    @classmethod
    def _readable_windows(cls, windows: tuple[str, ...]) -> tuple[str, ...]:
        for text in windows:
            window(text)
        return windows

    @model_validator(mode="after")
    def _acts_within_bounds(self) -> Self:
        bounded = self.goal and self.windows and self.max_moves_per_hour
        if self.mode == "act" and not bounded:
            raise ValueError("mode: act needs goal, windows and max_moves_per_hour")
        return self


class UserSettings(Frozen):
    """Fair sharing between users inside a leaf queue."""

    label: str = Field(
        "",
        description="Label of pod groups that names their user, such as `user`: each user of a leaf queue is "
        "a queue of its own below it (docs/users.md). Empty: users are not distinguished.",
    )

    @field_validator("label")
    @classmethod
    def _key(cls, value: str) -> str:
        if value and _LABEL_KEY.fullmatch(value) is None:
            raise ValueError(f"no label has the key {value!r}")
        return value


FixKind = Literal[
    "repair",
    "wait",
    "uncordon",
    "enable-action",
    "move",
    "stop",
    "raise-limit",
    "raise-quota",
    "raise-priority",
    "relax-topology",
    "add-nodes",
    "reduce-gang",
    "reduce-request",
    "tolerate",
    "drop-selector",
    "combined",
]
FIX_KINDS: Final[tuple[FixKind, ...]] = get_args(FixKind)
"""Kinds of fixes in the declared order of cost: time alone; an administrator returns what exists; work is
moved; work is stopped; policy changes; closeness is given up; money is spent; the request itself changes."""


class ExplainSettings(Frozen):
    """What `explain` looks for."""

    fix_order: tuple[FixKind, ...] = Field(
        FIX_KINDS,
        description="Kinds of fixes in their order of cost: the first that helps is named the cheapest. "
        "Kinds that are left out are not looked for.",
    )

    @field_validator("fix_order")
    @classmethod
    def _once(cls, kinds: tuple[FixKind, ...]) -> tuple[FixKind, ...]:
        twice = next((kind for i, kind in enumerate(kinds) if kind in kinds[:i]), None)
        if twice is not None:
            raise ValueError(f"{twice} is named twice")
        return kinds


class Settings(Frozen):
    """Everything an operator may set for the engine."""

    solver: SolverSettings = SolverSettings()
    objective: ObjectiveSettings = ObjectiveSettings()
    rules: OptionalRules = OptionalRules()
    limits: Limits = Limits()
    time: TimeSettings = TimeSettings()
    max_runtime: MaxRuntimeSettings = MaxRuntimeSettings()
    reservations: ReservationSettings = ReservationSettings()
    aging: AgingSettings = AgingSettings()
    defrag: DefragSettings = DefragSettings()
    users: UserSettings = UserSettings()
    explain: ExplainSettings = ExplainSettings()
    max_snapshot_bytes: int = Field(
        2 * 1024**3, gt=0, description="Largest decompressed snapshot that is read [bytes]."
    )
