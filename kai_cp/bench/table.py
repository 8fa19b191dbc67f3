"""Results as tables on the terminal."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean
from typing import Final

from kai_cp.bench.records import (
    BoundResult,
    CaseResult,
    MattersResult,
    Peer,
    PolicyResult,
    Result,
    SimulationResult,
)
from kai_cp.report.section import Section


def tables(results: Sequence[Result]) -> list[Section]:
    """One table per kind of result."""
    cases = [result for result in results if isinstance(result, CaseResult)]
    policies = [result for result in results if isinstance(result, PolicyResult)]
    bounds = [result for result in results if isinstance(result, BoundResult)]
    simulations = [result for result in results if isinstance(result, SimulationResult)]
    matters = [result for result in results if isinstance(result, MattersResult)]
    dated = [result for result in simulations if result.promises is not None]
    plain = [result for result in simulations if result.promises is None]
    found = [
        _cases(cases),
        _policies(policies, bounds),
        _simulations(plain),
        _starts(dated),
        _matters(matters),
    ]
    return [section for section in found if section.rows]


def answered(case: CaseResult) -> str:
    """How good the answer is known to be: proved to be the best, the best that was found, or wrong."""
    if case.errors:
        return "WRONG"
    return "all proved" if case.status == "OPTIMAL" else "best found"


def _cases(cases: Sequence[CaseResult]) -> Section:
    """The gains, their bound and the time of each case, with the peer's beside them."""
    rows = []
    for case in cases:
        peer, ours = case.peer, case.outcome
        theirs = None if peer is None else peer.outcome
        rows.append(
            (
                case.case,
                f"{case.running_pods}+{case.pending_pods}",
                pair(f"{case.seconds['decide']:.2f}", None if peer is None else _seconds(peer.seconds)),
                pair(f"{ours.admitted_gpus:g}", None if theirs is None else f"{theirs.admitted_gpus:g}"),
                pair(f"{ours.lost_gpus:g}", None if theirs is None else f"{theirs.lost_gpus:g}"),
                gained(case),
                to_gain(case),
                answered(case),
                "" if peer is None or theirs is None else difference(peer),
                second_cycle(case),
                pair(str(ours.groups_left), None if theirs is None else str(theirs.groups_left)),
                pair(str(ours.moved_pods), None if theirs is None else str(theirs.moved_pods)),
                f"{case.seconds['read']:.2f}",
                f"{case.peak_memory_mib:.0f}",
            )
        )
    beside = any(case.peer is not None for case in cases)
    numbers = ("Pods", "Decide [s]", "GPUs in", "GPUs lost", "Gained of most", "Gap", "Groups left")
    more = ("Second cycle [s]", "Moved pods", "Read [s]", "MiB")
    columns = (
        *("Case", "Pods", "Decide [s]", "GPUs in", "GPUs lost", "Gained of most", "Gap", "Answer"),
        *("First difference", "Second cycle [s]", "Groups left", "Moved pods", "Read [s]", "MiB"),
    )
    empty = {name for at, name in enumerate(columns) if not any(row[at] for row in rows)}
    shown = [at for at, name in enumerate(columns) if name not in empty]
    return Section(
        "Cycles: ours / theirs" if beside else "Cycles",
        [columns[at] for at in shown],
        [[row[at] for at in shown] for row in rows],
        right=(*numbers, *more),
        fixed=("Case", "First difference"),
        drop=("MiB", "Read [s]", "Moved pods", "Groups left", "Second cycle [s]", "Pods", "First difference"),
    )


def _policies(runs: Sequence[PolicyResult], bounds: Sequence[BoundResult]) -> Section:
    groups: dict[tuple[str, str], list[PolicyResult]] = defaultdict(list)
    for run in runs:
        groups[run.case, run.policy].append(run)
    rows: list[tuple[str, ...]] = []
    for (case, policy), mine in groups.items():
        published = mine[0].published
        rows.append(
            (
                case,
                policy,
                str(len(mine)),
                f"{fmean(r.used for r in mine):.2f}",
                "" if published is None else f"{published:.2f}",
                f"{fmean(r.moved_pods for r in mine):.0f}",
                f"{fmean(r.seconds for r in mine):.1f}",
            )
        )
    for bound in bounds:
        text = f"≤ {bound.bound:.2f}"
        rows.append((bound.case, "offline bound", "1", text, "", "", f"{bound.seconds:.1f}"))
    numbers = ("Seeds", "Used", "Published", "Moved pods", "Seconds a run")
    return Section(
        "openb: GPUs in use, percent (mean over seeds)",
        ("List", "Policy", *numbers),
        rows,
        right=numbers,
        fixed=("List", "Policy"),
        drop=("Seconds a run", "Seeds"),
    )


def _simulations(runs: Sequence[SimulationResult]) -> Section:
    sizes = sorted({size for run in runs for size in run.waiting_minutes}, key=_first_number)
    rows = [
        (
            f"{run.case} s{run.seed}",
            run.policy,
            f"{run.finished}/{run.groups}",
            f"{run.utilisation:.1%}",
            *(f"{run.waiting_minutes[size]:.1f}" if size in run.waiting_minutes else "" for size in sizes),
            f"{run.lost_gpu_hours:.0f}",
            f"{run.share_error:.1%}",
            str(run.evictions),
            str(run.moves),
        )
        for run in runs
    ]
    waits = tuple(f"Wait {size}" for size in sizes)
    numbers = ("Finished", "In use", *waits, "Lost GPU-h", "Share error", "Evictions", "Moves")
    return Section(
        "Gangs, simulated (wait: mean minutes until a gang of so many GPUs starts)",
        ("Case", "Policy", *numbers),
        rows,
        right=numbers,
        fixed=("Case", "Policy"),
        drop=("Moves", "Evictions", "Share error"),
    )


STARTS: Final = (
    *("Wait to 8 GPUs", "16", "32+", "Longest 32+", "In use", "Idle held", "Lost GPU-h"),
    *("Promises kept", "Broken by"),
)


def starts_row(run: SimulationResult) -> tuple[str, ...]:
    """The columns of ``STARTS``: waits in hours, the cost of holding, and promises kept."""
    promises = run.promises
    assert promises is not None
    small = [run.waiting_minutes[size] for size in ("1", "2-4", "8") if size in run.waiting_minutes]
    due = promises.kept + sum(promises.broken.values())
    return (
        f"{fmean(small) / 60:.2f}" if small else "",
        *(
            f"{run.waiting_minutes[size] / 60:.2f}" if size in run.waiting_minutes else ""
            for size in ("16", "32+")
        ),
        f"{run.longest_wait_minutes.get('32+', 0.0) / 60:.1f}",
        f"{run.utilisation:.1%}",
        f"{promises.idle_gpu_hours:.0f}",
        f"{run.lost_gpu_hours:.0f}",
        f"{promises.kept} of {due}" if due else "",
        ", ".join(f"{cause} {number}" for cause, number in promises.broken.items()),
    )


def _starts(runs: Sequence[SimulationResult]) -> Section:
    return Section(
        "Reservations, simulated (waits in hours until the start)",
        ("Case", "Policy", *STARTS),
        [(f"{run.case} s{run.seed}", run.policy, *starts_row(run)) for run in runs],
        right=STARTS[:-1],
        fixed=("Case", "Policy"),
        drop=("Lost GPU-h", "16"),
    )


def _matters(runs: Sequence[MattersResult]) -> Section:
    rows = []
    for run in runs:
        n = max(1, run.clusters)
        rows.append(
            (
                run.case,
                f"{run.budget_seconds:g}",
                str(run.clusters),
                f"{run.improved / n:.0%}",
                f"{run.certified / n:.0%}",
                f"{run.equal_certified / n:.0%}",
                f"{run.mean_seconds:.2f}",
            )
        )
    numbers = ("Budget [s]", "Clusters", "Improved", "Proved best", "Best already", "Mean [s]")
    return Section(
        "Where a default scheduler fails", ("Case", *numbers), rows, right=numbers, fixed=("Case",)
    )


def gained(case: CaseResult) -> str:
    """GPUs gained, and their upper bound."""
    most = "?" if case.most_gpus is None else f"{case.most_gpus:g}"
    return f"{case.outcome.gained_gpus:g} of {most}"


def to_gain(case: CaseResult) -> str:
    """The part of the possible gain that is still missing; "" if unknown, or if the plan gives GPUs up."""
    if case.most_gpus is None or case.outcome.gained_gpus < 0:
        return ""
    return f"{max(0.0, case.most_gpus - case.outcome.gained_gpus) / max(1.0, case.most_gpus):.1%}"


def share(value: float | None) -> str:
    """A share in percent; empty when unknown."""
    return "" if value is None else f"{value:.1%}"


def second_cycle(case: CaseResult) -> str:
    """Seconds of the second cycle, with its shares of the first: by the clock, by processor time, and up to
    the first answer.
    """
    if case.second_cycle_seconds is None:
        return ""
    shares = (case.second_cycle_share, case.second_cpu_share, case.second_answer_share)
    return f"{case.second_cycle_seconds:.2f} ({', '.join(map(share, shares))})"


def difference(peer: Peer) -> str:
    """The first difference in the fair order in words."""
    first = peer.first
    if first is None:
        return "none"
    return f"{'ours' if first.here else peer.name}: {first.group} ({first.turn}.)"


def pair(ours: str, theirs: str | None) -> str:
    """Our figure, beside that of another answer if there is one."""
    return ours if theirs is None else f"{ours} / {theirs}"


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _first_number(text: str) -> int:
    digits = "".join(c if c.isdigit() else " " for c in text).split()
    return int(digits[0]) if digits else 0
