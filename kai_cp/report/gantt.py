"""A picture of nodes over time: what runs, what starts now, and what is reserved."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from kai_cp.planning import Planned
from kai_cp.printable import in_plot
from kai_cp.report.section import distinct
from kai_cp_models.shown import moment

_MOST_ROWS: Final = 60
"""The most nodes that are drawn; those with reservations come first."""
_NAME: Final = 32
"""Characters of a node's name, beside the axis."""
_LEGEND: Final = 120
"""Characters of a line of the legend, below the axis."""
_LAST_DAY: Final = 2_932_531
"""Days since the epoch: the end of the year 9998, as an axis shows a little more than its data."""
_MINUTE: Final = 1 / (24 * 60)
"""In days, the unit of the axis."""
_TAIL: Final = 1.15
"""How far beyond the last known end the axis goes."""


def draw(found: Planned, path: Path) -> None:
    """Write the picture in the format of ``path``'s suffix."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.dates as dates
    import matplotlib.pyplot as plt

    bars = found.bars()
    now = found.snapshot.now
    held = sorted({bar.node for bar in bars if bar.part == "reserved"})
    rows = [*held, *sorted({bar.node for bar in bars} - set(held))][:_MOST_ROWS]
    known = [bar.end for bar in bars if bar.end is not None] + [bar.start for bar in bars]
    last = now + _TAIL * max(3600.0, max(known, default=now) - now)
    names = sorted({bar.group for bar in bars if bar.part == "reserved"})
    height = 1.6 + 0.28 * max(1, len(rows)) + 0.2 * len(names)
    figure, axes = plt.subplots(figsize=(11, height), layout="constrained")
    colours = {name: f"C{i % 10}" for i, name in enumerate(names)}
    for row, node in enumerate(rows):
        there = [bar for bar in bars if bar.node == node]
        total = max(_gpus(found, node), sum(bar.gpus for bar in there if bar.part != "reserved"), 1.0)
        low = 0.0
        for bar in there:
            height = 0.9 * bar.gpus / total
            offset = row - 0.45 + (0.0 if bar.part == "reserved" else low)
            end = last if bar.end is None else bar.end
            begin, length = _day(bar.start), (end - bar.start) / 86_400
            axes.barh(
                offset + height / 2,
                length,
                left=begin,
                height=height,
                color=colours.get(bar.group, "0.75"),
                alpha=0.55 if bar.part == "reserved" else 1.0,
                hatch="//" if bar.part == "reserved" else ("" if bar.end is not None else "..."),
                edgecolor="0.35",
                linewidth=0.4,
            )
            if bar.part != "reserved":
                low += height
    told = distinct((f"reserved for {name}" for name in names), _LEGEND)
    for name in names:
        axes.barh(
            0, 0, color=colours[name], alpha=0.55, hatch="//", label=in_plot(told[f"reserved for {name}"])
        )
    axes.barh(0, 0, color="0.75", label="runs")
    axes.barh(0, 0, color="0.75", hatch="...", label="runs, end unknown")
    axes.axvline(_day(now), color="black", linewidth=0.8)
    short = distinct(rows, _NAME)
    axes.set_yticks(range(len(rows)), [in_plot(short[node]) for node in rows])
    axes.invert_yaxis()
    axes.set_xlim(_day(now) - _MINUTE, _day(last))
    axes.xaxis.set_major_formatter(dates.DateFormatter("%d %H:%M"))  # type: ignore[no-untyped-call]
    axes.set_xlabel("day and time (UTC)")
    figure.legend(loc="outside lower left", fontsize="small")
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    plt.close(figure)


def _gpus(found: Planned, node: str) -> float:
    from kai_cp_models.pods import GPU, MILLI

    return found.snapshot.nodes[found.snapshot.node_index[node]].allocatable[GPU] / MILLI


def _day(instant: float) -> float:
    import matplotlib.dates as dates

    number: float = dates.date2num(moment(instant))  # type: ignore[no-untyped-call]
    return min(number, _LAST_DAY)
