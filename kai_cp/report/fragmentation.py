"""A frontier of defragmentation as sections of a report: what ``kai-cp defrag`` answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from kai_cp.fragmentation import in_words
from kai_cp.report.section import IN_PLACE, Names, Section, Shortening
from kai_cp_models.queries.moves import Frontier
from kai_cp_models.shown import plural

_WHY: Final = {
    "exhausted": "More is not possible, whatever moves.",
    "maxMoves": "More would take more restarts than allowed.",
    "most": "More was not asked for.",
    "budget": "The time ended before more was decided.",
}


def headline(found: Frontier) -> str:
    """What is free already, and the most that moves can free."""
    proof = "proved" if found.proved else "not proved"
    return f"{in_words(found.question)}: {found.already} already, at most {found.most} ({proof})."


def shortening(found: Frontier) -> Shortening:
    """The common parts of the names of pods and nodes."""
    moves = [move for point in found.points for move in point.plan]
    nodes = {name for move in moves for name in (move.source, move.target)}
    freed = {name for point in found.points for name in point.frees}
    return Shortening.of([move.pod.namespace for move in moves], sorted(nodes | freed))


def about(found: Frontier) -> str:
    """Why the frontier ends, and which pod groups do not move."""
    counts = Counter(one.reason for one in found.excluded)
    words = ", ".join(f"{count} {reason}" for reason, count in sorted(counts.items()))
    still = f"Not moved: {plural(len(found.excluded), 'pod group')} ({words})." if found.excluded else ""
    return " ".join(filter(None, (_WHY[found.because], still)))


def sections(found: Frontier) -> Iterator[Section]:
    """The frontier, and the steps of its cheapest point."""
    points = [
        (
            str(point.value),
            str(point.moves),
            str(point.groups),
            f"{point.lost_gpu_hours:,.1f}",
            "fewest" if point.proved else f"at least {point.bound}",
            Names(point.frees),
        )
        for point in found.points
    ]
    numbers = ("Free", "Restarts", "Pod groups", "Lost GPU-hours")
    columns = (*numbers, "Proof", "Freed")
    yield Section("What moves can free", columns, points, right=numbers, drop=("Pod groups",))
    if found.points:
        best = found.points[0]
        steps = [
            (
                str(move.step),
                str(move.pod),
                move.source,
                IN_PLACE if move.target == move.source else move.target,
            )
            for move in best.plan
        ]
        yield Section(
            f"Plan for {best.value}",
            ("Step", "Pod", "From", "To"),
            steps,
            right=("Step",),
            fixed=("Pod", "From", "To"),
            merged=("Step",),
        )
