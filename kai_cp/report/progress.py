"""One line that shows the progress of a decision."""

from __future__ import annotations

from kai_cp.report.terminal import amount, gpus
from kai_cp.solving import Progress


def line(name: str, now: Progress) -> str:
    """For example ``demo: reclaim: 12 GPUs admitted, 4 lost; gap 17 % (admission: 12, bound 14)``."""
    if not now.action:
        return f"{name}: deciding"
    done = f"{gpus(now.gpus_admitted)} admitted, {amount(now.gpus_lost)} lost"
    return f"{name}: {now.action}: {done}; {_proof(now)}"


def _proof(now: Progress) -> str:
    stage = now.unproved
    if stage is None:
        return "proved"
    goal = stage.goal.partition(" [")[0] or "goal"
    return f"gap {stage.gap:.0%} ({goal}: {stage.objective:,.0f}, bound {stage.bound:,.0f})"
