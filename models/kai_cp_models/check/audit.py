"""The audit: all subjects, asked one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from kai_cp_models.check import (
    affinity,
    budgets,
    capacity,
    defrag,
    dra,
    gangs,
    gpu_kinds,
    locality,
    nodes,
    numa,
    ports,
    protocol,
    queues,
    reclaim,
    references,
    runtime,
    sharing,
    shrinking,
    spread,
    stale,
    starts,
    storage,
    topology,
    victims,
)
from kai_cp_models.check.planned_cluster import PlannedCluster
from kai_cp_models.check.snapshot_facts import SnapshotFacts
from kai_cp_models.settings import OptionalRules
from kai_cp_models.snapshot import Plan, Snapshot

Subject = Callable[[PlannedCluster], Iterator[str]]

SUBJECTS: Final[tuple[Subject, ...]] = (
    protocol.broken,
    capacity.broken,
    sharing.broken,
    nodes.broken,
    ports.broken,
    affinity.broken,
    gangs.broken,
    shrinking.broken,
    queues.broken,
    victims.broken,
    runtime.broken,
    reclaim.broken,
    stale.broken,
    starts.broken,
    defrag.broken,
    topology.broken,
    locality.broken,
)
"""Every rule there is; one line each."""

STATEFUL_RULES: Final[tuple[Subject, ...]] = (
    references.broken,
    dra.broken,
    numa.broken,
    storage.broken,
    spread.broken,
    budgets.broken,
    gpu_kinds.broken,
)
"""Rules of ``rules.stateful`` by the same names; same shape."""


def violations(
    snapshot: Snapshot,
    plan: Plan,
    options: OptionalRules | None = None,
    *,
    start: SnapshotFacts | None = None,
) -> list[str]:
    """Every rule that the plan breaks, in words; empty when the plan may be sent.

    What was illegal in the snapshot already is not reported, only what the plan adds or worsens.
    ``options``: rules that KAI lacks and that are on. ``start``: shared by audits of one snapshot.
    """
    if not plan.decisions and not plan.reservations:
        return []
    rules = options if options is not None else OptionalRules.model_validate({})
    world = PlannedCluster(snapshot, plan, rules, start)
    return [fault for subject in (*SUBJECTS, *STATEFUL_RULES) for fault in subject(world)]
