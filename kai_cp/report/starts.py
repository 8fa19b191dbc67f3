"""Starts in the future on the terminal."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kai_cp.planning import Planned
from kai_cp_models.plan import Estimate, Reservation
from kai_cp_models.shown import clock

_SHOWN = 30


def report(name: str, found: Planned) -> RenderableType:
    """What holds capacity, what heroes would pay, and when the other groups might start."""
    now = found.snapshot.now
    entries = [one for one in found.plan.reservations or () if found.wanted in (None, one.group)]
    parts: list[RenderableType] = [Text(f"{name}: as of {clock(now, now)} UTC")]
    if entries:
        parts.append(_holds(entries, now))
    for entry in entries:
        for offer in entry.offers:
            victims = ", ".join(str(victim) for victim in offer.victims) or "nothing is stopped"
            parts.append(
                Text(
                    f"offer to {entry.group}: start {clock(offer.start, now)} for {offer.lost_gpu_hours:.1f} "
                    f"lost GPU-hours ({victims})"
                )
            )
    waiting = [one for one in found.plan.unscheduled if found.wanted in (None, one.group)]
    if waiting:
        table = Table("waits", "start", "reason", "why", box=None)
        for one in waiting[:_SHOWN]:
            table.add_row(str(one.group), _estimate(one.estimate, now), one.reason, one.message)
        parts.append(table)
        if len(waiting) > _SHOWN:
            parts.append(Text(f"… {len(waiting) - _SHOWN} more; --format json has all", style="dim"))
    if not entries and not waiting:
        parts.append(Text("nothing waits"))
    return Group(*parts)


def _holds(entries: list[Reservation], now: float) -> Table:
    table = Table("pod group", "queue", "state", "start", "promised", "nodes", "idle GPU-hours", box=None)
    for one in entries:
        nodes = ", ".join(sorted(one.nodes)[:4]) + (" …" if len(one.nodes) > 4 else "")
        state = one.state if one.cause is None else f"{one.state} ({one.cause})"
        table.add_row(
            str(one.group),
            one.queue,
            state,
            "" if one.start is None else clock(one.start, now),
            "" if one.promised is None else clock(one.promised, now),
            nodes,
            f"{one.idle_gpu_hours:.1f}",
        )
    return table


def _estimate(estimate: Estimate | None, now: float) -> str:
    if estimate is None:
        return ""
    if estimate.start is None:
        return f"unknown ({estimate.unknown_ends} running without an end)"
    words = "at" if estimate.kind == "reserved" else "not before"
    return f"{words} {clock(estimate.start, now)}"
