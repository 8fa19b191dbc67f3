"""Compares several configurations side by side, and marks differences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from rich.text import Text

from kai_cp.bench.report import STYLE
from kai_cp.report.section import Cell, Section
from kai_cp.tune.measure import MEASURES, Measure, Measured, mean

Results = Mapping[str, Mapping[str, Measured]]
"""Snapshot name -> configuration name -> numbers."""


def rows(results: Results, configs: Sequence[str]) -> list[tuple[str, Measure, list[float]]]:
    """Rows of (snapshot, measure, a number per configuration)."""
    found: list[tuple[str, Measure, list[float]]] = []
    blocks = {name: by for name, by in results.items()}
    if len(blocks) > 1:
        blocks["mean of all"] = {c: mean([by[c] for by in results.values()]) for c in configs}
    for snapshot, by in blocks.items():
        for name, measure in MEASURES.items():
            if name not in by[configs[0]].values:
                continue
            found.append((snapshot, measure, [by[c].values[name] for c in configs]))
        priorities = sorted({p for c in configs for p in by[c].waiting_by_priority}, reverse=True)
        for priority in priorities:
            values = [by[c].waiting_by_priority.get(priority, 0.0) for c in configs]
            found.append((snapshot, Measure(f"waiting at priority {priority}", "GPUs", False), values))
    return found


def mark(values: Sequence[float], i: int, measure: Measure) -> str:
    """``+`` if better than the first configuration, ``-`` if worse, empty if equal."""
    first, value = values[0], values[i]
    if i == 0 or abs(value - first) <= max(measure.least, measure.same * max(abs(first), abs(value))):
        return ""
    return "+" if (value > first) == measure.more else "-"


def changed_settings(settings: Mapping[str, Mapping[str, object]]) -> list[tuple[str, list[str]]]:
    """The settings that differ: path, and the value per configuration."""
    flat = {name: _flat(document) for name, document in settings.items()}
    paths = sorted({path for values in flat.values() for path in values})
    lines = [(path, [values.get(path, "") for values in flat.values()]) for path in paths]
    return [(path, values) for path, values in lines if len(set(values)) > 1]


def table(results: Results, configs: Sequence[str]) -> Section:
    """The terminal's table: values better than the first configuration's are green, worse ones red."""
    lines: list[list[Cell]] = []
    for snapshot, measure, values in rows(results, configs):
        cells: list[Cell] = [snapshot, measure.label]
        for i, value in enumerate(values):
            sign = mark(values, i, measure)
            style = {"+": "green", "-": "red"}.get(sign, "")
            cells.append(Text(f"{_number(value)} {sign}".rstrip(), style=style))
        lines.append(cells)
    return Section(
        "Settings side by side; marked: better (+) or worse (-) than the first",
        ("Snapshot", "Measure", *configs),
        lines,
        right=configs,
        fixed=("Snapshot", "Measure"),
        merged=("Snapshot",),
    )


def html(results: Results, configs: Sequence[str], settings: Mapping[str, Mapping[str, object]]) -> str:
    """The comparison as one self-contained HTML page."""
    names = "".join(f"<th>{escape(name)}</th>" for name in configs)
    head = f'<th>snapshot</th><th class="words">measure</th>{names}'
    lines = []
    last = ""
    for snapshot, measure, values in rows(results, configs):
        cells = ""
        for i, value in enumerate(values):
            sign = mark(values, i, measure)
            kind = {"+": ' class="good"', "-": ' class="bad"'}.get(sign, "")
            cells += f"<td{kind}>{_number(value)} {sign}</td>"
        name = "" if snapshot == last else snapshot
        label = f'<td class="words">{escape(measure.label)}</td>'
        lines.append(f"<tr><td>{escape(name)}</td>{label}{cells}</tr>")
        last = snapshot
    differing = ""
    for path, texts in changed_settings(settings):
        cells = "".join(f'<td class="text">{escape(text)}</td>' for text in texts)
        differing += f"<tr><td>{escape(path)}</td>{cells}</tr>"
    titles = "".join(f'<th class="text">{escape(name)}</th>' for name in configs)
    changed = f"<table><tr><th>setting</th>{titles}</tr>{differing}</table>"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width"><title>kai_cp: settings compared</title>'
        f"<style>{STYLE}</style></head><body><h1>kai_cp: settings compared</h1>"
        '<p class="note">One decision per snapshot and configuration, or one simulated day. '
        "Green (+): better than the first "
        "configuration; red (-): worse. <b>Fragmentation</b>: free GPUs on partly used nodes. "
        "<b>Share error</b>: how far the queues are from their fair shares.</p>"
        f'<h2>Settings that differ</h2><div class="scroll">{changed}</div>'
        f'<h2>Results</h2><div class="scroll"><table><tr>{head}</tr>{"".join(lines)}</table></div>'
        "</body></html>\n"
    )


def _flat(document: Mapping[str, object], prefix: str = "") -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in document.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{prefix}{name}.")
        elif isinstance(value, tuple):
            found[prefix + name] = ", ".join(map(str, value))
        else:
            found[prefix + name] = str(value)
    return found


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")
