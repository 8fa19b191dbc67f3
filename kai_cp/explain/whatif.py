"""``whatif/1``: the cycle before and after operations, and their difference by pod group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from kai_cp.decisions import ENGINE, by_resource, rfc3339, version
from kai_cp.explain.cycle import Cycles, DecidedCycle, PlacedGroups, carried_out, difference
from kai_cp.explain.draft import BadOperation, Draft
from kai_cp.explain.operations import applied, beside_the_present, path_of
from kai_cp.json_types import Object, plain_number
from kai_cp_models.plan import Plan
from kai_cp_models.pods import PodKey
from kai_cp_models.queries.shares import queue_shares
from kai_cp_models.queries.why import Situation, gpu_bound, moves_fit

SCHEMA: Final = "whatif/1"
BETWEEN_SECONDS: Final = 60.0
"""Time between the cycles of a cluster that runs on."""
BOUND_WORK: Final = 10.0


def whatif(
    cycles: Cycles,
    draft: Draft,
    ops: Sequence[Object],
    *,
    settle: int | None = None,
    bound: bool = False,
    sha256: str = "",
) -> tuple[Object, DecidedCycle]:
    """The document without ``least``, and the cycle on the changed snapshot.

    ``settle``: run both on for at most this many cycles, until one decides nothing.
    """
    _moves_possible(cycles, draft, ops)
    before = cycles.decide(draft)
    changed = applied(draft.raw, ops, draft.now)
    after = cycles.decide(changed) if ops else before
    diff = difference(before.outcome, after.outcome)
    if settle is not None:
        first, _, first_settled = run_on(cycles, before, settle)
        last, count, settled = run_on(cycles, after, settle)
        diff |= difference(first, last) | {"cycles": count, "settled": first_settled and settled}
    found: Object = {
        "schema": SCHEMA,
        "engine": ENGINE,
        "version": version(),
        "snapshotSha256": sha256,
        "now": rfc3339(draft.now),
        "ops": beside_the_present(draft.raw, ops),
        "before": summary(before),
        "after": summary(after),
        "diff": diff,
    }
    if bound:
        most = gpu_bound(after.snapshot, BOUND_WORK)
        use = after.outcome.gpus
        found["bound"] = {
            "gpus": plain_number(most.gpus),
            "inUse": plain_number(use),
            "gap": plain_number(round(most.gpus - use, 3)),
            "proof": "proved" if most.proved else "not proved",
        }
        if most.note:
            found["bound"]["note"] = most.note
    return found, after


def _moves_possible(cycles: Cycles, draft: Draft, ops: Sequence[Object]) -> None:
    """Raise ``BadOperation`` for a move to a node that does not take the pod in the present state."""
    for i, op in enumerate(ops):
        if op.get("op") != "move":
            continue
        applied(draft.raw, ops[: i + 1], draft.now)
        snapshot = cycles.parse(applied(draft.raw, ops[:i], draft.now))
        still = Situation(snapshot, cycles.settings, Plan())
        names = [(*path_of(one["pod"]).split("/", 1), one["node"]) for one in op["moves"]]
        known = [
            (snapshot.pod_by_key[PodKey(space, name)], snapshot.node_index[node])
            for space, name, node in names
            if PodKey(space, name) in snapshot.pod_by_key and node in snapshot.node_index
        ]
        if not moves_fit(still, [pod for pod, _ in known], [node for _, node in known]):
            which = ", ".join(f"{space}/{name} cannot be moved to {node}" for space, name, node in names)
            raise BadOperation(f"move: {which}: it lacks the capacity, or a rule refuses the pod")


def run_on(cycles: Cycles, decided: DecidedCycle, most: int) -> tuple[PlacedGroups, int, bool]:
    """Carry out cycles until one decides nothing. Returns the last cycle with everything that all of them
    stopped and moved, how many cycles there were, and whether the cluster settled."""
    count = 0
    lost: set[PodKey] = set()
    moved: set[PodKey] = set()
    while decided.situation.plan.decisions and count < most:
        count += 1
        lost |= decided.outcome.lost
        moved |= decided.outcome.moved
        decided = cycles.decide(carried_out(decided, BETWEEN_SECONDS))
    end = replace(_standing(decided), lost=frozenset(lost), moved=frozenset(moved))
    return end, count, not decided.situation.plan.decisions


def _standing(decided: DecidedCycle) -> PlacedGroups:
    """Which groups hold a place before the cycle decides anything."""
    outcome = decided.outcome
    if not decided.situation.plan.decisions:
        return outcome
    still = Situation(decided.snapshot, decided.situation.settings, Plan())
    return DecidedCycle(decided.draft, still, 0.0).outcome


def summary(decided: DecidedCycle) -> Object:
    """A cycle in figures."""
    plan = decided.situation.plan
    kinds = [one.kind for one in plan.decisions]
    return {
        "bound": kinds.count("Bind"),
        "nominated": kinds.count("Nominate"),
        "evicted": kinds.count("Evict"),
        "gpus": plain_number(decided.outcome.gpus),
        "pending": [{"podGroup": str(one.group), "reason": one.reason} for one in plan.unscheduled],
        "stages": [
            {"name": s.name, "status": s.status, "objective": s.objective, "bound": s.bound}
            for s in plan.stages
        ],
        "fairShares": {
            name: by_resource(shares.fair) for name, shares in queue_shares(decided.snapshot).items()
        },
    }
