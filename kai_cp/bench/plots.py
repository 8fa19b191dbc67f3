"""Plots of the report, as inline SVG."""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean
from typing import Any, Final

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from kai_cp.bench.records import BoundResult, CaseResult, PolicyResult, SimulationResult
from kai_cp.printable import in_plot

OURS: Final = "#1b6ca8"
THEIRS: Final = "#d1495b"
GREY: Final = "#8d99ae"
GREEN: Final = "#3a7d44"


def svg(figure: Figure) -> str:
    """The figure as an ``<svg>`` element; the same figure gives the same text."""
    mpl.rcParams["svg.hashsalt"] = "kai_cp"
    mpl.rcParams["svg.fonttype"] = "none"
    file = io.StringIO()
    figure.savefig(file, format="svg", bbox_inches="tight", metadata={"Date": None})
    text = file.getvalue()
    return text[text.index("<svg") :]


def time_against_size(cases: Sequence[CaseResult]) -> str:
    """Seconds of a decision over the pods of the cluster, with the peer's where known."""
    figure, axes = _axes()
    mine = [(c.running_pods + c.pending_pods, max(1e-3, c.seconds["decide"])) for c in cases]
    peers = [
        (c.running_pods + c.pending_pods, max(1e-3, c.peer.seconds))
        for c in cases
        if c.peer is not None and c.peer.seconds is not None
    ]
    if peers:
        name = next(c.peer.name for c in cases if c.peer is not None)
        axes.scatter(
            *zip(*peers, strict=True), s=22, color=THEIRS, marker="s", label=in_plot(name), alpha=0.8
        )
    axes.scatter(*zip(*mine, strict=True), s=26, color=OURS, label="this run", alpha=0.8)
    axes.set(xlabel="pods in the cluster", ylabel="seconds to decide")
    _scale(axes.xaxis, [pods for pods, _ in (*mine, *peers)])
    _scale(axes.yaxis, [seconds for _, seconds in (*mine, *peers)])
    axes.legend(frameon=False)
    return svg(figure)


def memory_against_size(cases: Sequence[CaseResult]) -> str:
    """Peak memory over the pods of the cluster."""
    figure, axes = _axes()
    points = [(c.running_pods + c.pending_pods, c.peak_memory_mib) for c in cases]
    axes.scatter(*zip(*points, strict=True), s=26, color=GREEN, alpha=0.8)
    axes.set(xlabel="pods in the cluster", ylabel="peak memory, MiB")
    _scale(axes.xaxis, [pods for pods, _ in points])
    _scale(axes.yaxis, [memory for _, memory in points])
    return svg(figure)


def quality_against_time(cases: Sequence[CaseResult]) -> str:
    """Admitted GPUs relative to the peer's over the time relative to the peer's."""
    figure, axes = _axes()
    points = [
        (
            max(1e-3, c.seconds["decide"]) / max(1e-3, c.peer.seconds),
            c.outcome.admitted_gpus / c.peer.outcome.admitted_gpus,
        )
        for c in cases
        if c.peer is not None
        and c.peer.outcome is not None
        and c.peer.seconds is not None
        and c.peer.outcome.admitted_gpus > 0
    ]
    if not points:
        return ""
    axes.axhline(1, color=GREY, linewidth=1)
    axes.axvline(1, color=GREY, linewidth=1)
    axes.scatter(*zip(*points, strict=True), s=26, color=OURS, alpha=0.8)
    axes.set(xlabel="time, ours / theirs (left is faster)", ylabel="GPUs admitted, ours / theirs")
    _scale(axes.xaxis, [time for time, _ in points])
    return svg(figure)


def gaps(cases: Sequence[CaseResult]) -> str:
    """The worst proven gap of a stage, for each case that has one; "" if all is proved optimal."""
    shown = sorted((c for c in cases if c.gap > 1e-6), key=lambda c: (c.gap, c.case))[-40:]
    if not shown:
        return ""
    figure, axes = _axes(height=0.9 + 0.19 * len(shown))
    names = [in_plot(c.case) for c in shown]
    axes.barh(names, [100 * c.gap for c in shown], color=OURS)
    axes.set(xlabel="largest gap of a stage, percent")
    axes.tick_params(axis="y", labelsize=7)
    axes.margins(y=0.01)
    return svg(figure)


def anytime(cases: Sequence[CaseResult]) -> str:
    """GPUs admitted over time, for the cases with most intermediate answers."""
    shown = sorted((c for c in cases if len(c.moments) > 1), key=lambda c: -len(c.moments))[:8]
    if not shown:
        return ""
    figure, axes = _axes()
    for case in shown:
        best = max(1e-9, *(m.admitted_gpus for m in case.moments))
        times = [max(1e-3, m.seconds) for m in case.moments] + [max(1e-3, case.seconds["decide"])]
        values = [100 * m.admitted_gpus / best for m in case.moments]
        axes.step(times, [*values, values[-1]], where="post", label=in_plot(case.case), linewidth=1.4)
    axes.set(xlabel="seconds since the decision began")
    _scale(axes.xaxis, [m.seconds for case in shown for m in case.moments])
    axes.set(ylabel="GPUs admitted, percent of the end")
    axes.legend(frameon=False, fontsize=7)
    return svg(figure)


def policies(runs: Sequence[PolicyResult], bounds: Sequence[BoundResult]) -> str:
    """GPUs in use per list and policy, with the published means and the bound."""
    used: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    published: dict[tuple[str, str], float] = {}
    for run in runs:
        used[run.case][run.policy].append(run.used)
        if run.published is not None:
            published[run.case, run.policy] = run.published
    names = list(dict.fromkeys(run.policy for run in runs))
    figure, axes = _axes(width=8.5)
    width = 0.8 / max(1, len(names))
    palette = ["#adb5bd", "#6c757d", "#7fb2d9", OURS, "#0b3c5d", "#c9d6c3"]
    lowest = min((fmean(v) for by in used.values() for v in by.values()), default=80.0)
    for j, name in enumerate(names):
        at = [i + (j - (len(names) - 1) / 2) * width for i in range(len(used))]
        heights = [fmean(by[name]) if by.get(name) else 0.0 for by in used.values()]
        axes.bar(at, heights, width * 0.92, label=in_plot(name), color=palette[j % len(palette)])
        for i, case in enumerate(used):
            if (case, name) in published:
                axes.plot(at[i], published[case, name], marker="D", color=THEIRS, markersize=4)
    for i, case in enumerate(used):
        for bound in bounds:
            if bound.case == case:
                axes.hlines(bound.bound, i - 0.42, i + 0.42, color=GREEN, linewidth=1.5)
    axes.set_xticks(range(len(used)), list(map(in_plot, used)))
    axes.set(ylim=(max(0.0, lowest - 4), 100.6), ylabel="GPUs in use, percent")
    axes.legend(frameon=False, fontsize=7, ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    return svg(figure)


def waits(runs: Sequence[SimulationResult]) -> str:
    """Mean waiting time by size of the pod group, one bar per policy."""
    sizes = [
        size for size in ("1", "2-4", "8", "16", "32+") if any(size in run.waiting_minutes for run in runs)
    ]
    names = list(dict.fromkeys(run.policy for run in runs))
    figure, axes = _axes()
    width = 0.8 / max(1, len(names))
    for j, name in enumerate(names):
        mine = [run for run in runs if run.policy == name]
        heights = [fmean([run.waiting_minutes.get(size, 0.0) for run in mine]) for size in sizes]
        at = [i + (j - (len(names) - 1) / 2) * width for i in range(len(sizes))]
        axes.bar(at, heights, width * 0.92, label=in_plot(name), color=[OURS, "#7fb2d9", GREY][j % 3])
    axes.set_xticks(range(len(sizes)), [f"{size} GPU{'s' * (size != '1')}" for size in sizes])
    axes.set(ylabel="mean wait, minutes")
    axes.legend(frameon=False)
    return svg(figure)


def _scale(axis: Any, values: Sequence[float]) -> None:
    """Numbers as people write them; logarithmic if the values span more than a factor of ten."""
    if max(values) > 10 * max(1e-3, min(values)):
        axis.axes.set(**{f"{axis.axis_name}scale": "log"})
        axis.set_minor_formatter(NullFormatter())
    axis.set_major_formatter("{x:,g}")


def _axes(width: float = 7.0, height: float = 3.4) -> tuple[Figure, Any]:
    figure = Figure(figsize=(width, height))
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.set_axisbelow(True)
    return figure, axes
