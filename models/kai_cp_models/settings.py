"""Settings of the engine: budgets, stage order and objective terms, frozen and validated.

Only preferences live here. Contract rules (limits, gangs, eligibility) cannot be switched off.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class Frozen(BaseModel):
    """Base of every settings record: immutable, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class SolverSettings(Frozen):
    """How CP-SAT is run."""

    budget_seconds: float = Field(
        1.0,
        gt=0,
        description="Time for one cycle; the best checked answer counts. `kai-cp solve` counts from the "
        "opening of a snapshot, but leaves three quarters of it, or one whole second, for deciding.",
    )
    patience: float = Field(
        0.5,
        gt=0,
        description="How long an action searches in vain (for room, better plans, proofs of refusals): "
        "so many times the work of the cycle otherwise, at least 0.2. Work is counted, not timed (a unit is "
        "about a second of a quiet core), so the machine's load decides nothing. All searches together do "
        "half a unit for every second of the budget.",
    )
    workers: int = Field(
        2,
        ge=1,
        description="CP-SAT search workers for large models; they take turns, so that their "
        "answer does not depend on the machine's load.",
    )
    seed: int = Field(0, ge=0, description="CP-SAT random seed.")


class ObjectiveSettings(Frozen):
    """Named preferences of the stages (formulation.md 1.2 to 1.4); the order of the stages is fixed."""

    lost_work_cap_seconds: int = Field(
        604_800,
        ge=0,
        description="Lost work of a pod is GPU-seconds since its group's last start, capped at this age [s].",
    )
    max_moved_gpus_per_admitted_gpu: float = Field(
        -1.0,
        ge=-1,
        description="Ceiling on GPUs moved per GPU admitted by an eviction action; -1: none.",
    )
    lost_beyond_step_gpus: int = Field(
        8,
        ge=1,
        description="GPUs lost beyond those admitted count in steps of so many; a step weighs more than "
        "the age of pod groups, so a large gang is not stopped for a small one because it is younger.",
    )
    close_gangs: bool = Field(
        True,
        description="A gang of GPUs goes to the closest place that has room for all of it: one NVLink "
        "domain, else one domain of ever wider Topology levels, inside the levels that it asks for; where "
        "none has, to few places. Never a reason to wait.",
    )


class OptionalRules(Frozen):
    """Rules that KAI lacks, off by default for parity."""

    topology_spread: bool = Field(False, description="Enforce DoNotSchedule topology spread.")
    pod_disruption_budgets: bool = Field(False, description="Never evict beyond a PodDisruptionBudget.")


class Limits(Frozen):
    """How much one tenant's objects may cost everybody. Work is counted, not timed."""

    cel_steps_per_device: int = Field(
        10_000,
        ge=1,
        description="Steps that a CEL selector of a claim may take for one device (one of those that it "
        "cannot tell apart); about ten microseconds each. A claim that needs more is set aside.",
    )
    cel_steps_per_namespace: int = Field(
        100_000,
        ge=1,
        description="Steps that the selectors of all claims of a namespace may take in one cycle, parsing "
        "included. A claim that alone needs more is set aside, others wait for a later cycle.",
    )
    cel_steps_per_cycle: int = Field(
        300_000, ge=1, description="Steps that the selectors of all claims may take in one cycle."
    )


class Settings(Frozen):
    """Everything an operator may set for the engine."""

    solver: SolverSettings = SolverSettings()
    objective: ObjectiveSettings = ObjectiveSettings()
    rules: OptionalRules = OptionalRules()
    limits: Limits = Limits()
    max_snapshot_bytes: int = Field(
        2 * 1024**3, gt=0, description="Largest decompressed snapshot that is read [bytes]."
    )
