"""The ratio of GPUs taken by evictions to GPUs given, over the last hour."""

from __future__ import annotations

import math
from collections import deque
from typing import Final

from kai_cp.kube.telemetry.cycles import CycleRecord
from kai_cp_models.queries.shares import gpus_of

HOUR: Final = 3600.0


class DisruptionTotals:
    """GPUs that evictions and moves took, and GPUs given to the pod groups that caused them."""

    def __init__(self) -> None:
        self._cycles: deque[tuple[float, float, float]] = deque()
        """When, GPUs taken, GPUs given."""

    def note(self, cycle: CycleRecord) -> None:
        """Add a cycle. Evictions that serve no other group, as of a stale gang, do not count."""
        pods = cycle.snapshot.pod_by_key
        evicted = {
            result.decision.pod: result.decision
            for result in cycle.results
            if result.decision.triggers and result.outcome == "done"
        }
        triggers = {key for decision in evicted.values() for key in decision.triggers}
        if not triggers:
            return
        taken = sum(gpus_of(cycle.snapshot, pods[key]) for key in evicted)
        given = sum(
            gpus_of(cycle.snapshot, pods[decision.pod], decision.node)
            for decision, outcome, _ in cycle.results
            if outcome == "done"
            and decision.kind != "Evict"
            and decision.group in triggers
            and decision.pod not in evicted
        )
        self._cycles.append((cycle.started, taken, given))

    def ratio(self, now: float) -> float:
        """GPUs taken per GPU given in the hour before ``now``; 0 when none was taken, infinite when GPUs were
        taken and none was given.
        """
        while self._cycles and self._cycles[0][0] < now - HOUR:
            self._cycles.popleft()
        taken = sum(entry[1] for entry in self._cycles)
        given = sum(entry[2] for entry in self._cycles)
        if not taken:
            return 0.0
        return taken / given if given else math.inf
