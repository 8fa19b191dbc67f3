"""The last cycles, kept for ``/debug/cycles``: the snapshot, the decisions and their results."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from kai_cp.kube.api.api_objects import rfc3339
from kai_cp.kube.api.write_results import WriteResult
from kai_cp_models.plan import Plan
from kai_cp_models.snapshot import PodGroup, Snapshot

KEPT: Final = 20


@dataclass(frozen=True, slots=True)
class CycleRecord:
    """One cycle. ``seconds`` is the time by phase (snapshot, prepare, solve, check, write, report)."""

    number: int
    started: float
    raw: Mapping[str, Any]
    snapshot: Snapshot
    plan: Plan
    results: Sequence[WriteResult]
    """What was sent so far."""
    seconds: Mapping[str, float]
    settings: str
    """Hash of the settings it was decided under."""
    problem: str = ""
    observed: Mapping[str, int] = field(default_factory=dict)
    """What another scheduler did since the cycle before, against our plan."""
    usage: Mapping[str, Any] | None = None
    """Historic usage of queues that it was decided with."""

    def queue_of(self, group: PodGroup) -> str:
        """The queue of a pod group as metrics name it; "" where there is none of that name: owners of pod
        groups may write any text there, and each would be a series.
        """
        return group.queue if group.queue in self.snapshot.queue_by_name else ""

    def summary(self) -> dict[str, Any]:
        """The entry of the cycle in ``/debug/cycles``."""
        return {
            "cycle": self.number,
            "started": rfc3339(self.started),
            "settings": self.settings,
            "decisions": dict(Counter(decision.kind for decision in self.plan.decisions)),
            "outcomes": dict(Counter(result.outcome for result in self.results)),
            "observed": dict(self.observed),
            "unscheduled": dict(Counter(entry.reason for entry in self.plan.unscheduled)),
            "setAside": len(self.snapshot.set_aside),
            "stages": [
                {"name": s.name, "status": s.status, "gap": s.gap, "seconds": round(s.seconds, 6)}
                for s in self.plan.stages
            ],
            "seconds": {name: round(value, 6) for name, value in self.seconds.items()},
            "problem": self.problem,
        }


class CycleLog:
    """The last ``kept`` cycles. Snapshots share unchanged objects, so keeping them costs little."""

    def __init__(self, kept: int = KEPT) -> None:
        self._cycles: deque[CycleRecord] = deque(maxlen=kept)
        self._lock = threading.Lock()

    def add(self, cycle: CycleRecord) -> None:
        """Remember a cycle, or what more is known of one that is remembered."""
        with self._lock:
            for i, known in enumerate(self._cycles):
                if known.number == cycle.number:
                    self._cycles[i] = cycle
                    return
            if not self._cycles or cycle.number > self._cycles[-1].number:
                self._cycles.append(cycle)

    def all(self) -> list[CycleRecord]:
        """The remembered cycles, oldest first."""
        with self._lock:
            return list(self._cycles)

    def get(self, number: int) -> CycleRecord | None:
        """The cycle with that number, or None if it is no longer kept."""
        return next((cycle for cycle in self.all() if cycle.number == number), None)
