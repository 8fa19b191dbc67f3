"""Limits of searches: one frozen record in which every number has its unit and its reason.

No limit decides what a plan may do. If a limit ends a search, the result is not proved; models/README.md
says what is approximated then. Time and work of a cycle are in ``budget``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final


def _limit(value: float, unit: str, why: str) -> Any:
    """A field with its unit and the reason why it is what it is."""
    return field(default=value, metadata={"unit": unit, "why": why})


@dataclass(frozen=True, slots=True)
class SearchLimits:
    """The limits of all searches of a cycle."""

    # --- which triggers are tried together ---------------------------------------------------------
    chunk: int = _limit(
        4_096,
        "pod groups",
        "bounds one model; recorded clusters have fewer that are not refused by arithmetic",
    )
    optional_chunk: int = _limit(
        12, "pod groups", "one solve decides which are admitted, with weights 2^i; chunks of 24 were slower"
    )
    compared_refusals: int = _limit(
        256,
        "kinds of pods",
        "that were refused are compared with a further one, which they may refuse: n kinds cost n each",
    )
    passed_over: int = _limit(
        48,
        "kinds of pod groups",
        "that do not fit beside the next ones, after a round that admitted none: n such rounds cost n each",
    )
    many_admitted: int = _limit(
        48,
        "pod groups",
        "beside more admitted ones such a solve is too long; the next are halved down to one",
    )
    least_idle_share: float = _limit(
        0.02, "share of the GPUs asked for", "idle, below which moves wait in a large cluster"
    )
    replaced_share: float = _limit(
        0.5, "share of the admitted", "that allocate places again with one more; a model places more of them"
    )
    # --- which victims are looked at ---------------------------------------------------------------
    first_plan_units: int = _limit(
        1_000,
        "eviction units",
        "beyond, even one trigger gets a first plan without a solver: a model takes seconds",
    )
    cleared_units: int = _limit(
        5_000,
        "eviction units",
        "beyond, consolidation clears nodes only: taking back what is owed needs the time",
    )
    moving_units: int = _limit(
        600, "eviction units", "beyond, consolidation looks at the nodes that are cheapest to clear"
    )
    nodes_per_pod: int = _limit(
        4, "nodes", "candidates to clear for each pod: the cheapest, and a choice of others"
    )
    fewest_nodes: int = _limit(32, "nodes", "candidates to clear at least, where few pods ask")
    open_units: int = _limit(
        60, "eviction units", "so few are all open at once, which needs no search for a prefix"
    )
    deepening: int = _limit(
        4, "times the units", "open next where none was served: in all, a third more work than the last try"
    )
    nearly_all_share: float = _limit(
        0.7, "share of the units", "a longer prefix is no smaller problem than all of them"
    )
    policy_units: int = _limit(
        150, "eviction units", "beyond, the last goals look no deeper than the deepest unit lost"
    )
    requeue_pairs: int = _limit(
        100_000, "asks times units", "beyond, which pods save which from being lost is left to the replay"
    )
    clearing_tries: int = _limit(
        4, "sets of nodes", "tried for one ask: the cheapest may fail for what a node cannot show"
    )
    opening_tries: int = _limit(
        4, "first plans", "with ever more units gone, while that serves more; the last ones serve few"
    )
    # --- models ------------------------------------------------------------------------------------
    model_counts: int = _limit(
        60_000, "variables", "that count pods by class and cell; a cycle cannot solve larger models"
    )
    finished_variables: int = _limit(
        2_000, "variables", "beyond, the rough goal is the objective: each further one costs a presolve"
    )
    finished_asks: int = _limit(
        128, "pod groups", "the same: for 118 the last goals were met in 0.1 s, for 258 not in 1.7 s"
    )
    weighed_units: int = _limit(
        2_000, "eviction units", "beyond, it is not asked which are lost: no goal but the first is pursued"
    )
    all_moves_pods: int = _limit(
        60,
        "pods",
        "beyond, the last goals are bounded by sums over the nodes: looking at all moves takes long",
    )
    cuts: int = _limit(
        24,
        "plans",
        "refused before the last goals, or a batch of allocate, are given up; random ones needed up to 10",
    )
    rough_cuts: int = _limit(4, "plans", "the same before an attempt ends; each may be a long solve")
    rough_gap: float = _limit(0.01, "relative gap", "good enough where only capacity is asked for")
    unequal_units: int = _limit(
        400, "eviction units", "beyond, the due of a queue with unequal units is stated by one safe row"
    )
    stride: int = _limit(8, "eviction units", "between sums of what went before: short rows, few variables")
    patterns: int = _limit(
        400, "patterns", "of shares on one device, up to which counting patterns makes the smaller model"
    )
    small_variables: int = _limit(
        2_000,
        "variables",
        "below, one worker and full presolve; from there on several workers, unless a plan is known",
    )
    sum_of_goals: int = _limit(
        10**12,
        "values",
        "of goals that are solved for together: below 2^53, up to which floats are exact integers",
    )
    exact_order: int = _limit(
        40, "eviction units", "whose order is exact, by powers of two, which overflow beyond 60"
    )
    goals_ahead: int = _limit(3, "goals", "among which the work that is left is shared, however many follow")
    most_beyond: int = _limit(10_000_000, "steps", "of GPUs lost beyond those admitted: bounds a variable")
    late_percent: int = _limit(
        50, "percent", "that the rough goal adds to the GPUs of the unit that policy takes last"
    )
    # --- work below which nothing is begun ---------------------------------------------------------
    model_work: float = _limit(0.05, "work", "an eviction model is not worth building for less")
    admission_work: float = _limit(0.01, "work", "a model of allocate, which has no goals, for less")
    variable_work: float = _limit(0.00002, "work per variable", "of building a model, as measured")
    unit_work: float = _limit(0.00003, "work per eviction unit", "of choosing among them, as measured")
    least_unit_work: float = _limit(
        0.00026,
        "work per eviction unit",
        "of building a model with it, four variables at least, and loading and solving it for as long",
    )
    simulated_unit_work: float = _limit(
        0.00006, "work per eviction unit", "of letting it go and placing it again, as measured"
    )
    places_work: float = _limit(0.005, "work", "a model of places at given starts, for less")
    # --- proofs ------------------------------------------------------------------------------------
    proof_pods: int = _limit(600, "pods", "that ask or move, up to which a model is solved for a proof")
    proof_leaving: int = _limit(5_000, "pods", "that leave, up to which nodes are summed up without them")
    proof_work: float = _limit(0.2, "work", "of one model for a proof: no more than patience always allows")
    # --- the time axis -----------------------------------------------------------------------------
    splits: int = _limit(4, "models", "of the same gangs, each with the classes split that were too coarse")
    idle_pairs: int = _limit(4_000, "pairs", "of gangs on one node whose idle time is computed together")
    single_nodes: int = _limit(500, "nodes", "up to which each is a class of its own where starts differ")
    named_counts: int = _limit(20_000, "variables", "up to which names of nodes decide among equal answers")
    held_again: int = _limit(
        8, "plans", "for one hold in a cycle, because another moved into its capacity; then it ends"
    )
    kept_instants: int = _limit(64, "instants", "whose free capacity is kept; others are computed again")
    # --- defragmentation ---------------------------------------------------------------------------
    order_units: int = _limit(500, "eviction units", "beyond, one order of moves is tried, not several")
    order_states: int = _limit(20_000, "sets of moved units", "looked at to find an order of the moves")
    order_products: int = _limit(
        60_000, "pods times nodes times units", "of one model that chooses targets and order together"
    )
    order_cuts: int = _limit(400, "plans", "without a safe order, before a point of the frontier is given up")
    gangs_per_node: int = _limit(1_000, "gangs", "that a node could hold: bounds a variable")
    # --- other partitions of GPUs ------------------------------------------------------------------
    advice_work: float = _limit(
        0.04,
        "CP-SAT's deterministic time",
        "of each of three models, half a second in all; useful advice needs far less",
    )
    advised_nodes: int = _limit(
        64, "nodes", "that are partitioned again: those with most outside the instances in use"
    )
    # --- the cycle ---------------------------------------------------------------------------------
    tries: int = _limit(
        6, "runs", "of one action; each retry leaves out the groups blamed for the last failure"
    )
    named: int = _limit(3, "names", "in a message, which then ends with an ellipsis")
    grown: float = _limit(
        1.1,
        "times the decisions",
        "of the last early answer, before the next: a large plan takes long to write",
    )
    close_places: int = _limit(3, "places of one scale", "that are tried for a close gang")
    changed_nodes: int = _limit(
        48, "nodes", "from which on it is faster to look at them together, as measured"
    )


LIMITS: Final = SearchLimits()
"""The limits in force."""
