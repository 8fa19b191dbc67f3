"""Starts in the future as a section of a report."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from kai_cp.instants import from_rfc3339
from kai_cp.json_types import Document
from kai_cp.report.section import Names, Section
from kai_cp_models.shown import clock, span

_WIDTH: Final = 40
"""Columns of a bar."""
_BEYOND: Final = 1.25
"""The length of a bar, as a multiple of the time until the last start."""


def reserved(entries: Sequence[Document], now: str) -> Section:
    """What holds capacity and from when; with states and causes where a cycle decided about them."""
    instant = from_rfc3339(now) if entries else 0.0

    def when(text: str | None) -> str:
        return clock(from_rfc3339(text), instant) if text else "-"

    rows = [
        (
            entry["podGroup"],
            entry["queue"],
            entry.get("state", "kept") + _cause(entry),
            when(entry["start"]),
            when(entry["promised"]),
            Names(tuple(f"{name} ×{gpus}" for name, gpus in entry["nodes"].items())),
            f"{entry.get('idleGpuHours', 0.0):,.1f}",
        )
        for entry in entries
    ]
    return Section(
        "Start later, on capacity that is kept (UTC)",
        ("Pod group", "Queue", "State", "Start", "Promised", "Nodes", "Idle GPU-hours"),
        rows,
        right=("Start", "Promised", "Idle GPU-hours"),
        fixed=("Pod group", "Queue"),
        drop=("Idle GPU-hours", "Promised"),
    )


def over_time(entries: Sequence[Document], now: str) -> Section:
    """The same as a picture, node by node: dots until the start, blocks from it on."""
    held = sorted(
        (name, from_rfc3339(entry["start"]), entry["podGroup"], gpus)
        for entry in entries
        if entry["start"]
        for name, gpus in entry["nodes"].items()
    )
    begin = from_rfc3339(now) if held else 0.0
    ahead = max((start for _, start, _, _ in held), default=begin) - begin
    column = max(1, math.ceil(ahead * _BEYOND / _WIDTH / 60)) * 60
    rows = [
        (f"{name} ×{gpus}", group, _bar(min(_WIDTH, round(max(0.0, start - begin) / column))))
        for name, start, group, gpus in held
    ]
    end = clock(begin + _WIDTH * column, begin)
    times = f"{clock(begin, begin)} to {end} (UTC), {span(column)} a column"
    title = f"Kept nodes over time: {times}, █ from the start on"
    return Section(title, ("Node", "Pod group", "Time"), rows, fixed=("Node", "Pod group"), merged=("Node",))


def _bar(before: int) -> str:
    return "·" * before + "█" * (_WIDTH - before)


def _cause(entry: Document) -> str:
    return f" ({entry['cause']})" if entry.get("cause") else ""


def estimated(entry: Document, now: str) -> str:
    """When a waiting pod group might start; "" if the cycle estimated nothing."""
    estimate = entry.get("estimate")
    if not estimate:
        return ""
    if not estimate["start"]:
        return "unknown"
    words = "" if estimate["kind"] == "reserved" else "≥ "
    return words + clock(from_rfc3339(estimate["start"]), from_rfc3339(now))


def longest_wait(waiter: Document) -> str:
    """How long a pod group can wait at most since it was created; "" if there is no such bound."""
    if "waitAtMostSeconds" not in waiter:
        return ""
    seconds = waiter["waitAtMostSeconds"]
    return "no bound" if seconds is None else span(seconds)
