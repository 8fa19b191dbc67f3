"""One line that says how far a decision has come."""

from __future__ import annotations

from kai_cp.report.terminal import amount
from kai_cp.solving import Progress


def line(name: str, now: Progress) -> str:
    """Such as ``demo-cluster: reclaim: 12 GPUs admitted, 4 lost, gap 3 %``."""
    gap = f", gap {now.gap:.0%}" if now.gap else ", proved"
    done = f"{amount(now.gpus_admitted)} GPUs admitted, {amount(now.gpus_lost)} lost"
    return f"{name}: {now.action}: {done}{gap}"
