"""A frontier of defragmentation on the terminal."""

from __future__ import annotations

from collections import Counter

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kai_cp.fragmentation import in_words
from kai_cp.report.terminal import plural
from kai_cp_models.queries.moves import Frontier

_SHOWN = 12
"""Steps of a plan that are shown."""

_WHY = {
    "exhausted": "more is not possible, whatever moves",
    "maxMoves": "more would take more restarts than allowed",
    "most": "more was not asked for",
    "budget": "the time ended before more was decided",
}


def report(name: str, found: Frontier) -> RenderableType:
    """The frontier, and the steps of its cheapest point."""
    proof = "proved" if found.proved else "not proved"
    parts: list[RenderableType] = [
        Text(f"{name}: {in_words(found.question)}: {found.already} already, at most {found.most} ({proof})"),
        Text(_WHY[found.because], style="dim"),
    ]
    if found.points:
        table = Table("value", "restarts", "pod groups", "lost GPU-hours", "proof", "frees", box=None)
        for point in found.points:
            freed = ", ".join(point.frees[:4]) + (" …" if len(point.frees) > 4 else "")
            table.add_row(
                str(point.value),
                str(point.moves),
                str(point.groups),
                f"{point.lost_gpu_hours:.1f}",
                "fewest" if point.proved else f"at least {point.bound}",
                freed,
            )
        parts.append(table)
        steps = Table("step", "pod", "from", "to", box=None, title=f"Plan for {found.points[0].value}")
        for move in found.points[0].plan[:_SHOWN]:
            steps.add_row(str(move.step), str(move.pod), move.source, move.target)
        parts.append(steps)
        left = len(found.points[0].plan) - _SHOWN
        if left > 0:
            parts.append(Text(f"… {left} more; --format json has all", style="dim"))
    if found.excluded:
        counts = Counter(one.reason for one in found.excluded)
        words = ", ".join(f"{count} {reason}" for reason, count in sorted(counts.items()))
        parts.append(Text(f"not moved: {plural(len(found.excluded), 'pod group')} ({words})"))
    return Group(*parts)
