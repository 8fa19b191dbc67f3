"""The pictures of README and docs: ``python docs/pictures/make.py [FOLDER]`` (needs the extra ``bench``).

``racks`` and ``answer`` are decisions made here and now; ``times`` and ``bound`` draw the table *kai* of
docs/benchmarks.md, which says how it was measured.
"""

from __future__ import annotations

import re
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from kai_cp.bench.generate import NOW, SHAPES
from kai_cp.bench.outcome import gpus_of, outcome
from kai_cp.reader import parse
from kai_cp_models.engine import decide
from kai_cp_models.plan import Plan
from kai_cp_models.pods import GPU, MILLI
from kai_cp_models.settings import Settings
from kai_cp_models.snapshot import Snapshot

HERE: Final = Path(__file__).parent
TABLE: Final = HERE.parent / "benchmarks.md"
COLUMNS: Final = 8
"""Of the table *kai*, beside the name of the case."""
BLUE, RED, GREY, GREEN, PALE = "#1b6ca8", "#d1495b", "#8d99ae", "#3a7d44", "#eef1f5"


def save(figure: Figure, folder: Path, name: str) -> None:
    """As SVG, the same text for the same picture, on white, so that a dark page shows it too."""
    mpl.rcParams["svg.hashsalt"] = "kai_cp"
    figure.savefig(folder / f"{name}.svg", bbox_inches="tight", facecolor="white", metadata={"Date": None})
    if folder.resolve() != HERE.resolve():  # To look at them.
        figure.savefig(folder / f"{name}.png", bbox_inches="tight", facecolor="white", dpi=110)


def racks(folder: Path) -> None:
    """GPUs of every node, rack by rack, before and after one decision."""
    raw = SHAPES["fragmented"](32, 2)
    snapshot = parse(raw, now=NOW.timestamp())
    settings = Settings().model_copy(
        update={"solver": Settings().solver.model_copy(update={"budget_seconds": 60.0})}
    )
    plan = decide(snapshot, settings)
    figure = Figure(figsize=(10, 4.1))
    before, after = figure.subplots(1, 2)
    placed = {d.pod: d.node for d in plan.decisions if d.kind != "Evict"}
    evicted = {d.pod for d in plan.decisions if d.kind == "Evict"}
    running = {pod.key: pod.node for pod in snapshot.pods if pod.node is not None}
    later = {key: node for key, node in running.items() if key not in evicted} | placed
    moved, new = evicted & placed.keys(), placed.keys() - evicted
    found = outcome(snapshot, [(d.kind, d.pod) for d in plan.decisions])
    cells(before, snapshot, running, set(), moved)
    cells(after, snapshot, later, new, moved)
    used: dict[str, float] = defaultdict(float)
    for key, node in running.items():
        used[node] += gpus_of(snapshot, snapshot.pod_by_key[key])
    piece = max(node.allocatable[GPU] / MILLI - used[node.name] for node in snapshot.nodes)
    largest = max(gpus_of(snapshot, pod) for pod in snapshot.pods if pod.key not in running)
    free = sum(n.allocatable[GPU] for n in snapshot.nodes) / MILLI - sum(
        gpus_of(snapshot, snapshot.pod_by_key[key]) for key in running
    )
    waits = sum(gpus_of(snapshot, pod) for pod in snapshot.pods if pod.key not in running)
    before.set_title(
        f"Before: {free:g} GPUs free, at most {piece:g} on a node; {waits:g} wait, one pod for {largest:g}",
        fontsize=10,
    )
    after.set_title(
        f"After: {found.moved_pods} pods moved, {found.admitted_gpus:g} GPUs start, {found.lost_gpus:g} lost",
        fontsize=10,
    )
    marks = [Rectangle((0, 0), 1, 1, color=c) for c in (GREY, RED, BLUE, PALE)]
    labels = ["running", "moved by kai_cp", "starts", "free"]
    figure.legend(marks, labels, loc="lower center", ncols=4, frameon=False, fontsize=9)
    save(figure, folder, "racks")


def cells(axes: Any, snapshot: Snapshot, where: Mapping[Any, str], new: set[Any], moved: set[Any]) -> None:
    """A row for every node, a cell for every GPU, coloured by what becomes of its pod."""
    on: dict[str, list[Any]] = defaultdict(list)
    for key, node in where.items():
        on[node].append(key)
    racks: dict[str, list[Any]] = defaultdict(list)
    for node in snapshot.nodes:
        racks[node.labels["rack"]].append(node)
    places = [
        (column * 9.5, row, node)
        for column, nodes in enumerate(racks.values())
        for row, node in enumerate(nodes)
    ]
    for column, name in enumerate(racks):
        axes.text(column * 9.5, 1.1, name, fontsize=8)
    for left, row, node in places:
        total = node.allocatable[GPU] // MILLI
        colours: list[str] = []
        for key in sorted(on[node.name], key=lambda key: (key in new, key in moved, key)):
            count = round(gpus_of(snapshot, snapshot.pod_by_key[key]))
            colours += [BLUE if key in new else RED if key in moved else GREY] * count
        colours += [PALE] * (total - len(colours))
        for gpu, colour in enumerate(colours[:total]):
            axes.add_patch(Rectangle((left + gpu, -row), 0.9, 0.8, color=colour))
    axes.set(xlim=(-0.3, 9.5 * len(racks) - 1), ylim=(-max(map(len, racks.values())) + 0.5, 1.8))
    axes.axis("off")


def answer(folder: Path) -> None:
    """How the answer of one decision grows, beside what no plan exceeds."""
    figure = Figure(figsize=(7, 3.4))
    axes = figure.subplots()
    for shape, colour in (("racks", BLUE), ("mixed", GREEN), ("fragmented", RED)):
        snapshot = parse(SHAPES[shape](100, 1), now=NOW.timestamp())
        most = no_plan_exceeds(snapshot)
        began = time.process_time()
        moments: list[tuple[float, float]] = []

        def seen(
            plan: Plan, snapshot: Snapshot = snapshot, began: float = began, moments: Any = moments
        ) -> None:
            gained = outcome(snapshot, [(d.kind, d.pod) for d in plan.decisions]).gained_gpus
            moments.append((time.process_time() - began, gained))

        settings = Settings().model_copy(
            update={"solver": Settings().solver.model_copy(update={"budget_seconds": 30.0})}
        )
        decide(snapshot, settings, emit=seen)
        ends = time.process_time() - began
        times = [max(0.01, at) for at, _ in moments] + [ends]
        values = [100 * gained / most for _, gained in moments]
        axes.step(
            times,
            [*values, values[-1]],
            where="post",
            color=colour,
            linewidth=1.8,
            label=f"{shape}, 100 nodes",
        )
        axes.scatter(times[-1:], values[-1:], color=colour, s=20)
    axes.axhline(100, color=GREY, linewidth=1)
    axes.annotate("what no plan exceeds", (0.012, 100), xytext=(0, 3), textcoords="offset points", fontsize=8)
    axes.legend(frameon=False, fontsize=8, loc="lower right")
    axes.set(xscale="log", xlabel="processor seconds since the decision began")
    axes.set(ylabel="GPUs gained, percent of the most", ylim=(0, 110))
    axes.spines[["top", "right"]].set_visible(False)
    save(figure, folder, "answer")


def no_plan_exceeds(snapshot: Snapshot) -> float:
    """The smaller of what waits and what is idle, in GPUs."""
    idle = sum(node.allocatable[GPU] for node in snapshot.nodes) / MILLI
    idle -= sum(gpus_of(snapshot, pod) for pod in snapshot.pods if pod.node is not None)
    waits = sum(gpus_of(snapshot, pod) for pod in snapshot.pods if pod.node is None)
    return max(1.0, min(idle, waits))


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the table *kai*: what kai_cp did, and KAI where it was recorded."""

    case: str
    seconds: tuple[float, float | None]
    admitted: tuple[float, float | None]
    lost: tuple[float, float | None]
    most: float


def lines() -> Iterator[Line]:
    """The table *kai* of docs/benchmarks.md."""
    text = TABLE.read_text("utf-8")
    rows = re.findall(r"^\| ([\w-]+) \| (.*) \|$", text[text.index("## kai") : text.index("## scale")], re.M)
    for case, row in rows:
        values = [value.strip() for value in row.split("|")]
        if len(values) == COLUMNS and case != "case":
            _, seconds, admitted, lost, _, gained, *_ = values
            most = number(gained.split(" of ")[1])
            yield Line(case, pair(seconds), pair(admitted), pair(lost), most)


def number(text: str) -> float:
    return float(text.replace(",", ""))


def pair(text: str) -> tuple[float, float | None]:
    """``552 / 448``: ours and KAI's."""
    ours, _, theirs = text.partition(" / ")
    return number(ours), number(theirs) if theirs else None


def times(folder: Path) -> None:
    """Seconds for one decision, ours and KAI's, on KAI's benchmark shapes and on generated clusters."""
    shown = sorted(
        (line for line in lines() if line.seconds[1] is not None), key=lambda li: li.seconds[1] or 0
    )
    figure = Figure(figsize=(8, 0.26 * len(shown) + 1))
    axes = figure.subplots()
    for at, line in enumerate(shown):
        ours, theirs = max(0.05, line.seconds[0]), max(0.05, line.seconds[1] or 0)
        axes.plot([ours, theirs], [at, at], color=GREY, linewidth=1, zorder=1)
        axes.scatter([theirs], [at], color=RED, s=28, marker="s", zorder=2, label="KAI" if not at else None)
        axes.scatter([ours], [at], color=BLUE, s=32, zorder=3, label="kai_cp" if not at else None)
    axes.set_yticks(range(len(shown)), [line.case for line in shown], fontsize=7)
    axes.set(xscale="log", xlabel="seconds for one decision (left is faster)")
    axes.legend(frameon=False, loc="lower right")
    axes.spines[["top", "right"]].set_visible(False)
    save(figure, folder, "times")


def bound(folder: Path) -> None:
    """GPUs gained beside what no plan exceeds, where there is something to gain."""
    shown = [li for li in lines() if li.most >= 100 and li.admitted[1] is not None and li.lost[1] is not None]
    figure = Figure(figsize=(8, 0.42 * len(shown) + 1))
    axes = figure.subplots()
    for at, line in enumerate(reversed(shown)):
        ours = 100 * (line.admitted[0] - line.lost[0]) / line.most
        theirs = 100 * ((line.admitted[1] or 0) - (line.lost[1] or 0)) / line.most
        axes.barh(at + 0.19, ours, height=0.36, color=BLUE, label="kai_cp" if not at else None)
        axes.barh(
            at - 0.19, max(0, theirs), height=0.36, color=RED, alpha=0.75, label="KAI" if not at else None
        )
    axes.axvline(100, color="black", linewidth=1)
    axes.annotate("what no plan exceeds", (100, len(shown) - 0.45), ha="right", fontsize=8)
    axes.set_yticks(range(len(shown)), [line.case for line in reversed(shown)], fontsize=8)
    axes.set(xlabel="GPUs admitted less GPUs lost, percent of the most", xlim=(0, 104))
    axes.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=2)
    axes.spines[["top", "right"]].set_visible(False)
    save(figure, folder, "bound")


PICTURES: Final = {"racks": racks, "answer": answer, "times": times, "bound": bound}

if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE
    for name in sys.argv[2:] or PICTURES:
        PICTURES[name](target)
