"""Lists what waits, in its order, and why."""

from __future__ import annotations

import math
from typing import Any, Final

from rich.text import Text

from kai_cp.json_types import Document
from kai_cp.questions.question import SnapshotDetails, SnapshotQuestion
from kai_cp.report.section import Section
from kai_cp.report.terminal import age, amount, gpus
from kai_cp_models.shown import plural


def ask(facts: SnapshotDetails) -> dict[str, Any]:
    """``pending/1``: pod groups that stay pending, in fair order."""
    line = {entry["podGroup"]: entry["position"] for entry in facts.inspection["waiting"]}
    found = sorted(
        facts.decisions["unscheduled"], key=lambda e: (line.get(e["podGroup"]) or math.inf, e["podGroup"])
    )
    priority = {entry["podGroup"]: entry["priority"] for entry in facts.inspection["waiting"]}
    return {
        "schema": "pending/1",
        "now": facts.decisions["now"],
        "pending": [
            {
                "position": line.get(entry["podGroup"]),
                "podGroup": entry["podGroup"],
                "queue": entry.get("queue") or "",
                "priority": priority.get(entry["podGroup"]),
                "gpus": entry.get("gpus") or 0,
                "ageSeconds": entry.get("ageSeconds"),
                "reason": entry["reason"],
                "proof": entry["proof"],
                "message": entry["message"],
            }
            for entry in found
        ],
    }


def headline(document: Document) -> str:
    """The headline of the answer."""
    waiting = document["pending"]
    if not waiting:
        return "after the plan no pod group waits."
    asked = sum(entry["gpus"] for entry in waiting)
    waits = "waits" if len(waiting) == 1 else "wait"
    return f"after the plan {plural(len(waiting), 'pod group')} {waits}, for {gpus(asked)}."


def sections(document: Document) -> list[Section]:
    """The answer as tables."""
    rows = [
        (
            str(entry["position"] or ""),
            entry["podGroup"],
            entry["queue"],
            amount(entry["gpus"]),
            age(entry["ageSeconds"]),
            Text(entry["reason"], style="bold"),
            Text(entry["proof"], style="green" if entry["proof"] == "proved" else "yellow"),
            entry["message"],
        )
        for entry in document["pending"]
    ]
    return [
        Section(
            "Waiting, in fair order",
            ("Position", "Pod group", "Queue", "GPUs", "Age", "Reason", "Proof", "Because"),
            rows,
            right=("Position", "GPUs", "Age"),
            fixed=("Pod group", "Queue"),
            note="Because",
            drop=("Proof", "Age", "Queue"),
        )
    ]


_COLUMNS: Final = (
    *("position", "podGroup", "queue", "priority", "gpus"),
    *("ageSeconds", "reason", "proof", "message"),
)
PENDING = SnapshotQuestion("pending", "podgroup/{podGroup}", _COLUMNS, ask, headline, sections)
