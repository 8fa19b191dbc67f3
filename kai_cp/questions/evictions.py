"""Lists the evicted pods, for which group, and where they go."""

from __future__ import annotations

from typing import Any, Final

from kai_cp.json_types import Document
from kai_cp.questions.question import SnapshotDetails, SnapshotQuestion
from kai_cp.report.section import IN_PLACE, Names, Section
from kai_cp.report.terminal import amount, gpus
from kai_cp_models.shown import plural


def ask(facts: SnapshotDetails) -> dict[str, Any]:
    """``evictions/1``: every pod that is evicted; ``movesTo``: its new place, or null: back to pending."""
    decisions = facts.decisions["decisions"]
    places = {(d["namespace"], d["pod"]): d["node"] for d in decisions if d["kind"] == "Nominate"}
    return {
        "schema": "evictions/1",
        "now": facts.decisions["now"],
        "evictions": [
            {
                "pod": f"{d['namespace']}/{d['pod']}",
                "podGroup": f"{d['namespace']}/{d['podGroup']}" if d.get("podGroup") else "",
                "queue": d.get("queue") or "",
                "gpus": d.get("gpus") or 0,
                "node": d["node"],
                "movesTo": places.get((d["namespace"], d["pod"])),
                "for": list(d.get("for", ())),
                "action": d["action"],
                "message": d.get("message", ""),
            }
            for d in decisions
            if d["kind"] == "Evict"
        ],
    }


def headline(document: Document) -> str:
    """The headline of the answer."""
    found = document["evictions"]
    if not found:
        return "no pod is evicted."
    lost = [entry for entry in found if entry["movesTo"] is None]
    held = gpus(sum(entry["gpus"] for entry in lost))
    moved = len(found) - len(lost)
    return f"{plural(len(found), 'pod')} evicted: {moved} moved, {len(lost)} back to pending ({held})."


def sections(document: Document) -> list[Section]:
    """The answer as tables."""
    rows = [
        (
            entry["pod"],
            entry["queue"],
            amount(entry["gpus"]),
            Names(tuple(entry["for"])) if entry["for"] else "-",
            _then(entry),
            entry["node"],
            entry["action"],
        )
        for entry in document["evictions"]
    ]
    return [
        Section(
            "Evicted",
            ("Pod", "Queue", "GPUs", "For", "And then", "From", "By"),
            rows,
            right=("GPUs",),
            fixed=("Pod", "Queue"),
            drop=("By", "From", "GPUs", "Queue"),
        )
    ]


def _then(entry: Document) -> str:
    if entry["movesTo"] is None:
        return "back to pending"
    return IN_PLACE if entry["movesTo"] == entry["node"] else f"moves to {entry['movesTo']}"


_COLUMNS: Final = (
    *("pod", "podGroup", "queue", "gpus", "node"),
    *("movesTo", "for", "action", "message"),
)
EVICTIONS = SnapshotQuestion("evictions", "pod/{pod}", _COLUMNS, ask, headline, sections)
