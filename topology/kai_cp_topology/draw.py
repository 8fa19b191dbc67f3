"""The picture of a tree: each lowest domain is a column of nodes, and each node is a row of GPUs.

Domains stand side by side under the names of the domains around them, like racks in a hall. matplotlib is
imported when a picture is asked for, not before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from itertools import groupby
from math import sqrt
from typing import TYPE_CHECKING, Final, Literal

from kai_cp_topology.records import Domain, Tree
from kai_cp_topology.report import Report

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.patches import Rectangle

_FREE: Final = "#9ad0a8"
_USED: Final = "#44546a"
_INK: Final = "#222222"
_FAINT: Final = "#777777"
_CELL: Final = 0.12
"""Inches per GPU; all lengths below are in such cells."""
_GAP: Final = 1.5
"""Gap between two columns."""
_WIDTH: Final = 120.0
"""Width of a line of columns; the columns that follow start a new line."""
_MIN_WIDTH: Final = 58.0
_TITLE: Final = 4.5
"""Height of a tree's title and legend."""
_HEAD: Final = 4.2
"""Height of the names above a line of columns."""
_LETTER: Final = 0.48
"""Width of a letter of a column's name."""
_BOLD_LETTER: Final = 0.68
"""Width of a letter in the bold names of the outer domains."""
_ROWS: Final = 36
"""Rows of a column; a larger domain folds until it is about as high as wide."""
_FOLD: Final = 0.5
"""Gap between the folds of a column."""


@dataclass(frozen=True)
class _Column:
    """A domain that is drawn as one column, and its place.

    ``around``: names of the outer domains. ``gpus``: most GPUs of any of its nodes. ``rows``: nodes of one
    fold. ``x`` and ``width`` are in cells; ``line`` counts from 0.
    """

    domain: Domain
    around: str
    gpus: int
    rows: int
    x: float
    width: float
    line: int


def picture(report: Report, fmt: Literal["png", "svg"]) -> bytes:
    """Draw all trees of the report, one below the other; returns the bytes of the file."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    layouts = [(tree, _layout(report, tree)) for tree in report.trees]
    width = max([_MIN_WIDTH, *(c.x + c.width for _, columns in layouts for c in columns)]) + 2
    heights = [_TITLE + sum(_heights(columns)) + 1 for _, columns in layouts]
    figure = Figure(figsize=(width * _CELL, sum(heights) * _CELL), dpi=130)
    FigureCanvasAgg(figure)
    above = 0.0
    for (tree, columns), height in zip(layouts, heights, strict=True):
        above += height
        axes = figure.add_axes((0.0, 1 - above / sum(heights), 1.0, height / sum(heights)))
        axes.set_xlim(-1, width - 1)
        axes.set_ylim(height, 0)
        axes.set_axis_off()
        _title(tree, axes)
        _columns(report, columns, axes)
    out = BytesIO()
    # No date and fixed ids: one cluster gives one file.
    with matplotlib.rc_context({"svg.hashsalt": "kai-cp"}):
        figure.savefig(out, format=fmt, metadata={"Date": None} if fmt == "svg" else {"Software": None})
    return out.getvalue()


def _layout(report: Report, tree: Tree) -> list[_Column]:
    by_path = {domain.path: domain for domain in tree.domains}
    columns: list[_Column] = []
    x, line = 0.0, 0
    for lowest in _lowest(tree):
        domain = lowest
        # Where a domain has the same nodes as its parent, the parent is shown.
        while domain.path and by_path[domain.parent].nodes == domain.nodes and domain.parent:
            domain = by_path[domain.parent]
        gpus = max((report.nodes[name].gpus for name in domain.nodes), default=0)
        rows = min(len(domain.nodes), max(_ROWS, int(sqrt(len(domain.nodes) * (gpus + _FOLD)))))
        folds = -(-len(domain.nodes) // max(rows, 1))
        width = max(folds * (gpus + _FOLD) - _FOLD, _LETTER * max(len(domain.name), 8))
        if x and x + width > _WIDTH:
            x, line = 0.0, line + 1
        columns.append(
            _Column(domain, " / ".join(filter(None, domain.path[:-1])), gpus, rows, x, width, line)
        )
        x += width + _GAP
    return columns


def _lowest(tree: Tree) -> Iterator[Domain]:
    """Domains of the last level above single nodes, in tree order."""
    children = tree.children()

    def walk(domain: Domain) -> Iterator[Domain]:
        below = children.get(domain.path, ())
        if all(len(child.nodes) <= 1 for child in below) or sum(len(c.nodes) for c in below) < len(
            domain.nodes
        ):
            yield domain
        else:
            for child in below:
                yield from walk(child)

    return walk(tree.root)


def _heights(columns: Sequence[_Column]) -> list[float]:
    """Height of every line of columns."""
    return [
        _HEAD + max(column.rows for column in line) + 1.5
        for _, line in groupby(columns, key=lambda column: column.line)
    ]


def _title(tree: Tree, axes: Axes) -> None:
    from matplotlib.patches import Rectangle

    root = tree.root
    text = f"{tree.name}: {root.free_gpus} of {root.gpus} GPUs free on {len(root.nodes)} nodes"
    axes.text(0, 1.6, text, fontsize=9, color=_INK, weight="bold", va="baseline", parse_math=False)
    for x, color, word in ((0, _FREE, "free"), (6, _USED, "in use")):
        axes.add_patch(Rectangle((x, 2.5), 0.9, 0.9, color=color, linewidth=0))
        axes.text(x + 1.5, 3.4, word, fontsize=7, color=_INK, va="baseline")


def _columns(report: Report, columns: Sequence[_Column], axes: Axes) -> None:
    from matplotlib.collections import PatchCollection

    cells: dict[str, list[Rectangle]] = {_FREE: [], _USED: []}
    top = _TITLE
    lines = groupby(columns, key=lambda column: column.line)
    for (_, line), height in zip(lines, _heights(columns), strict=True):
        for around, group in groupby(line, key=lambda column: column.around):
            members = list(group)
            if around:
                left, right = members[0].x, members[-1].x + members[-1].width
                letters = max(int((right - left) / _BOLD_LETTER), 2)
                name = around if len(around) <= letters else around[: letters - 1] + "…"
                axes.text(
                    left,
                    top + 0.9,
                    name,
                    fontsize=7,
                    color=_INK,
                    weight="bold",
                    va="baseline",
                    parse_math=False,
                )
                axes.plot((left, right), (top + 1.3, top + 1.3), color=_FAINT, linewidth=0.6)
            for column in members:
                _column(report, column, top, axes, cells)
        top += height
    for color, patches in cells.items():
        axes.add_collection(PatchCollection(patches, facecolor=color, linewidth=0))


def _column(
    report: Report, column: _Column, top: float, axes: Axes, cells: dict[str, list[Rectangle]]
) -> None:
    from matplotlib.patches import Rectangle

    domain = column.domain
    title = domain.name or "nodes"
    axes.text(column.x, top + 2.6, title, fontsize=5.5, color=_INK, va="baseline", parse_math=False)
    free = f"{domain.free_gpus} free"
    axes.text(column.x, top + 3.6, free, fontsize=5, color=_FAINT, va="baseline")
    for position, name in enumerate(domain.nodes):
        node = report.nodes[name]
        fold, row = divmod(position, column.rows)
        left = column.x + fold * (column.gpus + _FOLD)
        for gpu in range(node.gpus):
            color = _FREE if gpu >= node.gpus - node.free_gpus else _USED
            cells[color].append(Rectangle((left + gpu + 0.06, top + _HEAD + row + 0.06), 0.88, 0.88))
