"""Results as tables on the terminal."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean

from rich.console import Console
from rich.table import Table

from kai_cp.bench.records import (
    BoundResult,
    CaseResult,
    MattersResult,
    Peer,
    PolicyResult,
    Result,
    SimulationResult,
)


def show(results: Sequence[Result]) -> None:
    """Print one table per kind of result."""
    console = Console() if sys.stdout.isatty() else Console(width=200)
    console.print(*tables(results), sep="\n")


def tables(results: Sequence[Result]) -> list[Table]:
    """The tables of the results."""
    cases = [result for result in results if isinstance(result, CaseResult)]
    policies = [result for result in results if isinstance(result, PolicyResult)]
    bounds = [result for result in results if isinstance(result, BoundResult)]
    simulations = [result for result in results if isinstance(result, SimulationResult)]
    matters = [result for result in results if isinstance(result, MattersResult)]
    found = []
    if cases:
        found.append(_cases(cases))
    if policies or bounds:
        found.append(_policies(policies, bounds))
    if simulations:
        found.append(_simulations(simulations))
    if matters:
        found.append(_matters(matters))
    return found


def _cases(cases: Sequence[CaseResult]) -> Table:
    table = Table(title="Cycles: ours / theirs")
    for name in ("case", "pods", "decide s", "read s", "MiB", "status", "gap", "GPUs admitted", "lost"):
        table.add_column(name, justify="left" if name in ("case", "status") else "right")
    table.add_column("gained of most", justify="right")
    table.add_column("second cycle s", justify="right")
    table.add_column("moved pods", justify="right")
    table.add_column("groups left", justify="right")
    table.add_column("first difference")
    for case in cases:
        peer, ours = case.peer, case.outcome
        theirs = None if peer is None else peer.outcome
        table.add_row(
            case.case,
            f"{case.running_pods}+{case.pending_pods}",
            _pair(f"{case.seconds['decide']:.2f}", None if peer is None else _seconds(peer.seconds)),
            f"{case.seconds['read']:.2f}",
            f"{case.peak_memory_mib:.0f}",
            case.status if not case.errors else "WRONG",
            f"{case.gap:.1%}",
            _pair(f"{ours.admitted_gpus:g}", None if theirs is None else f"{theirs.admitted_gpus:g}"),
            _pair(f"{ours.lost_gpus:g}", None if theirs is None else f"{theirs.lost_gpus:g}"),
            gained(case),
            second_cycle(case),
            _pair(str(ours.moved_pods), None if theirs is None else str(theirs.moved_pods)),
            _pair(str(ours.groups_left), None if theirs is None else str(theirs.groups_left)),
            "" if peer is None or theirs is None else difference(peer),
        )
    return table


def _policies(runs: Sequence[PolicyResult], bounds: Sequence[BoundResult]) -> Table:
    table = Table(title="openb: GPUs in use, percent (mean over seeds)")
    for name in ("list", "policy", "seeds", "used", "published", "moved pods", "s a run"):
        table.add_column(name, justify="left" if name in ("list", "policy") else "right")
    groups: dict[tuple[str, str], list[PolicyResult]] = defaultdict(list)
    for run in runs:
        groups[run.case, run.policy].append(run)
    for (case, policy), mine in groups.items():
        published = mine[0].published
        table.add_row(
            case,
            policy,
            str(len(mine)),
            f"{fmean(r.used for r in mine):.2f}",
            "" if published is None else f"{published:.2f}",
            f"{fmean(r.moved_pods for r in mine):.0f}",
            f"{fmean(r.seconds for r in mine):.1f}",
        )
    for bound in bounds:
        text = f"≤ {bound.bound:.2f}"
        table.add_row(bound.case, "offline bound", "1", text, "", "", f"{bound.seconds:.1f}")
    return table


def _simulations(runs: Sequence[SimulationResult]) -> Table:
    table = Table(title="Gangs, simulated")
    names = ("case", "policy", "finished", "utilisation", "lost GPU-h", "evictions", "moves", "share error")
    for name in names:
        table.add_column(name, justify="left" if name in ("case", "policy") else "right")
    sizes = sorted({size for run in runs for size in run.waiting_minutes}, key=_first_number)
    for size in sizes:
        table.add_column(f"wait {size} (min)", justify="right")
    for run in runs:
        waits = [f"{run.waiting_minutes[size]:.1f}" if size in run.waiting_minutes else "" for size in sizes]
        table.add_row(
            f"{run.case} s{run.seed}",
            run.policy,
            f"{run.finished}/{run.groups}",
            f"{run.utilisation:.1%}",
            f"{run.lost_gpu_hours:.0f}",
            str(run.evictions),
            str(run.moves),
            f"{run.share_error:.1%}",
            *waits,
        )
    return table


def _matters(runs: Sequence[MattersResult]) -> Table:
    table = Table(title="Where a default scheduler fails")
    for name in ("case", "budget s", "clusters", "improved", "certified", "best already", "mean s"):
        table.add_column(name, justify="left" if name == "case" else "right")
    for run in runs:
        n = max(1, run.clusters)
        table.add_row(
            run.case,
            f"{run.budget_seconds:g}",
            str(run.clusters),
            f"{run.improved / n:.0%}",
            f"{run.certified / n:.0%}",
            f"{run.equal_certified / n:.0%}",
            f"{run.mean_seconds:.2f}",
        )
    return table


def gained(case: CaseResult) -> str:
    """GPUs gained, and what no plan exceeds."""
    most = "?" if case.most_gpus is None else f"{case.most_gpus:g}"
    return f"{case.outcome.gained_gpus:g} of {most}"


def share(value: float | None) -> str:
    """A share in percent; empty when unknown."""
    return "" if value is None else f"{value:.1%}"


def second_cycle(case: CaseResult) -> str:
    """Seconds of the second cycle; as shares of the first cycle all of it, and up to the first answer."""
    if case.second_cycle_seconds is None:
        return ""
    shares = f"{share(case.second_cycle_share)}, {share(case.second_answer_share)}"
    return f"{case.second_cycle_seconds:.2f} ({shares})"


def difference(peer: Peer) -> str:
    """The first difference in the fair order in words."""
    first = peer.first
    if first is None:
        return "none"
    return f"{'ours' if first.here else peer.name}: {first.group} ({first.turn}.)"


def _pair(ours: str, theirs: str | None) -> str:
    return ours if theirs is None else f"{ours} / {theirs}"


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _first_number(text: str) -> int:
    digits = "".join(c if c.isdigit() else " " for c in text).split()
    return int(digits[0]) if digits else 0
