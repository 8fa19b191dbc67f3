"""Starts in the future as sections of a report: what ``kai-cp reserve`` answers."""

from __future__ import annotations

from collections.abc import Iterator

from kai_cp.instants import from_rfc3339
from kai_cp.json_types import Document
from kai_cp.report.reserved import estimated, reserved
from kai_cp.report.section import Names, Section, Shortening
from kai_cp_models.shown import clock, plural


def headline(document: Document) -> str:
    """How many pod groups have a later start, and how many wait without one."""
    held, waiting = len(document["reservations"]), len(document["waiting"])
    if not held and not waiting:
        return "no capacity is kept, and no pod group waits."
    kept = f"capacity is kept for {plural(held, 'pod group')}" if held else "no capacity is kept"
    return f"{kept}; after the plan {plural(waiting, 'pod group')} {'waits' if waiting == 1 else 'wait'}."


def shortening(document: Document) -> Shortening:
    """The common parts of the names of pod groups and nodes."""
    entries = document["reservations"]
    groups = [one["podGroup"].partition("/")[0] for one in (*entries, *document["waiting"])]
    return Shortening.of(groups, [name for one in entries for name in one["nodes"]])


def sections(document: Document) -> Iterator[Section]:
    """What holds capacity, what heroes would pay, and when the other groups might start."""
    now, entries = document["now"], document["reservations"]
    yield reserved(entries, now)
    yield _offers(entries, now)
    rows = [
        (one["podGroup"], estimated(one, now), one["reason"], one["message"]) for one in document["waiting"]
    ]
    columns = ("Pod group", "Start", "Reason", "Why")
    yield Section("Wait", columns, rows, right=("Start",), fixed=("Pod group",), note="Why")


def _offers(entries: list[Document], now: str) -> Section:
    instant = from_rfc3339(now)
    rows = [
        (
            entry["podGroup"],
            clock(from_rfc3339(offer["start"]), instant),
            f"{offer['lostGpuHours']:,.1f}",
            Names(tuple(offer["victims"])) if offer["victims"] else "nothing",
        )
        for entry in entries
        for offer in entry.get("offers", ())
    ]
    return Section(
        "Offers: earlier starts, and what they would stop (UTC)",
        ("Pod group", "Start", "Lost GPU-hours", "Stopped"),
        rows,
        right=("Start", "Lost GPU-hours"),
        fixed=("Pod group",),
        merged=("Pod group",),
    )
