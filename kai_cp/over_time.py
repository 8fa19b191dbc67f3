"""Which pod groups are on which nodes over time, as pictures of reservations draw it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kai_cp_models.plan import Plan
from kai_cp_models.pods import ACTIVE_ALLOCATED, GroupKey, PodKey
from kai_cp_models.queries.shares import gpus_of
from kai_cp_models.queries.times import RunTimes
from kai_cp_models.snapshot import Snapshot

PlannedPart = Literal["runs", "starts", "reserved"]
"""Runs and stays, starts in this cycle, holds places for a start in the future."""


@dataclass(frozen=True, slots=True)
class Bar:
    """GPUs that a pod group has on a node from one instant to another; the end None: unknown."""

    node: str
    group: GroupKey
    gpus: float
    start: float
    end: float | None
    part: PlannedPart


def bars(snapshot: Snapshot, plan: Plan, times: RunTimes) -> list[Bar]:
    """For each node over time: which pod groups run and stay, start now, or are reserved."""
    found: dict[tuple[str, GroupKey, PlannedPart], Bar] = {}

    def add(
        node: str, group: GroupKey, gpus: float, start: float, end: float | None, *, part: PlannedPart
    ) -> None:
        if gpus and node in snapshot.node_index:
            key = (node, group, part)
            before = found[key].gpus if key in found else 0.0
            found[key] = Bar(node, group, before + gpus, start, end, part)

    def end_of(group: GroupKey, start: float) -> float | None:
        owner = snapshot.group_by_key.get(group)
        expected = None if owner is None else times.expected(owner)
        return None if expected is None else start + expected

    now = snapshot.now
    gone: set[PodKey] = {one.pod for one in plan.decisions if one.kind == "Evict"}
    for pod in snapshot.pods:
        if pod.node and pod.status in ACTIVE_ALLOCATED and pod.key not in gone and pod.group:
            gpus = gpus_of(snapshot, pod, pod.node)
            add(pod.node, pod.group, gpus, now, times.end(pod.group), part="runs")
    for one in plan.decisions:
        if one.kind != "Evict" and one.group is not None and one.pod in snapshot.pod_by_key:
            gpus = gpus_of(snapshot, snapshot.pod_by_key[one.pod], one.node)
            add(one.node, one.group, gpus, now, end_of(one.group, now), part="starts")
    for entry in plan.reservations or ():
        if entry.start is None or entry.state not in ("made", "kept", "earlier", "later"):
            continue
        for node, gpus in entry.nodes.items():
            add(node, entry.group, gpus, entry.start, end_of(entry.group, entry.start), part="reserved")
    return sorted(found.values(), key=lambda bar: (bar.node, bar.start, bar.group))
