"""Starts in the future of one snapshot, as ``kai-cp reserve`` shows them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kai_cp.decisions import cut_during
from kai_cp.instants import rfc3339
from kai_cp.over_time import Bar, bars
from kai_cp.starts import estimate_document, reservation_document
from kai_cp_models.engine import decide
from kai_cp_models.plan import Plan
from kai_cp_models.pods import GroupKey
from kai_cp_models.queries.times import RunTimes, asking_to_reserve
from kai_cp_models.settings import Settings
from kai_cp_models.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan with starts in the future. ``wanted``: the pod group that was asked about."""

    snapshot: Snapshot
    plan: Plan
    times: RunTimes
    wanted: GroupKey | None

    def document(self) -> dict[str, Any]:
        """The plan as JSON."""
        during = cut_during(self.plan.stages)
        return {
            "schema": "reservations/1",
            "now": rfc3339(self.snapshot.now),
            **({} if during is None else {"cutDuring": during}),
            "reservations": [
                reservation_document(entry)
                for entry in self.plan.reservations or ()
                if self.wanted in (None, entry.group)
            ],
            "waiting": [
                {
                    "podGroup": str(entry.group),
                    "reason": entry.reason,
                    "message": entry.message,
                    "estimate": None if entry.estimate is None else estimate_document(entry.estimate),
                }
                for entry in self.plan.unscheduled
                if self.wanted in (None, entry.group)
            ],
            "starts": sorted(
                {
                    str(one.group)
                    for one in self.plan.decisions
                    if one.kind != "Evict" and self.wanted in (None, one.group)
                }
            ),
        }

    def bars(self) -> list[Bar]:
        """Which pod groups are where over time: those that run, start now, or are reserved."""
        return bars(self.snapshot, self.plan, self.times)


def planned(snapshot: Snapshot, settings: Settings, wanted: GroupKey | None) -> Planned:
    """The plan of a snapshot. ``wanted``: a pod group that is treated as if it asked for a reservation."""
    if wanted is not None:
        snapshot = asking_to_reserve(snapshot, wanted)
    return Planned(snapshot, decide(snapshot, settings), RunTimes(snapshot, settings), wanted)
