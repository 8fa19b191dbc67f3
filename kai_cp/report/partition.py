"""Another MIG partition that would let more pods fit, as a table of nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kai_cp.report.section import Section
from kai_cp_models.migs import instances

Instances = Mapping[str, int]


def partition(now: int, then: int, nodes: Iterable[tuple[str, Instances, Instances]]) -> Section:
    """``now``, ``then``: waiting pods that fit; ``nodes``: name, instances now, instances then."""
    rows = [(name, instances(before), instances(after)) for name, before, after in nodes]
    title = f"Another MIG partition: {then} waiting pods fit, not {now}"
    return Section(title, ("Node", "Instances now", "Instances then"), rows, fixed=("Node",))
