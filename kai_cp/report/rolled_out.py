"""Workloads in rollout, and what their queues lend them, as a section of a report."""

from __future__ import annotations

from collections.abc import Sequence

from kai_cp.instants import from_rfc3339
from kai_cp.json_types import Document
from kai_cp.report.section import Section
from kai_cp.report.terminal import amount
from kai_cp_models.shown import clock


def rolled_out(entries: Sequence[Document], now: str) -> Section:
    """One row per workload; empty where the option is off or nothing is in rollout."""
    instant = from_rfc3339(now) if entries else 0.0
    rows = [
        (
            f"{entry['namespace']}/{entry['workload']}",
            entry["queue"],
            entry["revision"],
            amount(entry["oldGpus"]),
            amount(entry["newGpus"]),
            amount(entry["lentGpus"]),
            clock(from_rfc3339(entry["until"]), instant),
        )
        for entry in entries
    ]
    numbers = ("Old GPUs", "New GPUs", "Lent GPUs", "Until")
    columns = ("Workload", "Queue", "New revision", *numbers)
    return Section("In rollout (UTC)", columns, rows, right=numbers, fixed=("Workload", "Queue"))
