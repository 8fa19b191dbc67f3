"""Section: one table of a report, fitted to its output.

On a terminal a table is never wider than the window. Long names are cut in the middle, and lists of nodes at
their end. The column of sentences goes below its row. The least useful columns are left out and named. In a
pipe (and with ``-o wide``) one row is one line, and nothing is cut, wrapped or left out.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from kai_cp.printable import one_line
from kai_cp.report.terminal import is_whole

ROWS_SHOWN: Final = 20
_GAP: Final = 2
_SHORTEST_NAME: Final = 24
"""A name is cut to this many columns before a column is left out …"""
_SHORTEST_EVER: Final = 10
"""… and to this many when no further column can be left out."""
_SHORTEST_NOTE: Final = 36
"""A column of sentences that gets fewer columns than this goes below its row."""
_LONGEST_LIST: Final = 44
"""The most columns of a list of names; in a pipe a longer list pushes the rest to the right."""
_INDENT: Final = 4
_PAD: Final = "\0"
"""Stands after a wide character while a sentence is wrapped, because wrapping counts characters; no text has
it."""
IN_PLACE: Final = "restarts in place"
"""The words for a move to the node on which the pod already runs."""


@dataclass(frozen=True, slots=True)
class Names:
    """A list of names in a cell, such as the nodes of a gang: shown as far as it fits."""

    names: tuple[str, ...]
    before: str = ""
    after: str = ""

    def fitted(self, width: int | None, shorten: Shortening) -> str:
        """As many names as fit into ``width`` columns, and how many more there are."""
        names = [shorten(name) for name in self.names]
        whole = self.before + ", ".join(names) + self.after
        if width is None or cell_len(whole) <= width:
            return whole
        for shown in range(len(names) - 1, 0, -1):
            text = f"{self.before}{', '.join(names[:shown])}, {len(names) - shown} more{self.after}"
            if cell_len(text) <= width:
                return text
        rest = f", {len(names) - 1} more" if len(names) > 1 else ""
        left = width - cell_len(self.before + rest + self.after)
        return cut_end(self.before + cut_middle(names[0], max(left, 0)) + rest + self.after, width)


Cell = str | Text | Names


@dataclass(frozen=True, slots=True)
class Shortening:
    """Parts that all names of a report share and need not repeat: a namespace, the common end of node
    names."""

    namespace: str = ""
    suffix: str = ""

    @staticmethod
    def of(namespaces: Sequence[str], nodes: Sequence[str]) -> Shortening:
        """The common parts of these names: one namespace; the same domain
        (``.eu-west-1.compute.internal``)."""
        one = namespaces[0] if namespaces and len(set(namespaces)) == 1 else ""
        ends = {name[name.find(".") :] if "." in name else "" for name in nodes}
        return Shortening(one, ends.pop() if len(ends) == 1 else "")

    def __call__(self, text: str) -> str:
        """The text without the common parts."""
        if self.suffix:
            text = text.replace(self.suffix, "")
        if self.namespace:
            text = re.sub(rf"(?<![\w./-]){re.escape(self.namespace)}/", "", text)
        return text

    def said(self) -> str:
        """The sentence that states what was left out."""
        parts = [f"namespace {self.namespace}"] if self.namespace else []
        parts += [f"nodes end in {self.suffix}"] if self.suffix else []
        return f"All names: {', '.join(parts)}." if parts else ""


WHOLE: Final = Shortening()


@dataclass(frozen=True, slots=True)
class Section:
    """One table of a report.

    ``right``: columns of numbers. ``fixed``: columns of names, which may be cut in the middle. ``note``:
    the column of sentences, which may go below its row. ``drop``: columns that may be left out on a narrow
    terminal, the first one first. ``merged``: columns whose repeated values are left blank on a terminal.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    right: Sequence[str] = ()
    fixed: Sequence[str] = ()
    note: str = ""
    drop: Sequence[str] = ()
    merged: Sequence[str] = ()

    def render(self, most: int | None = None, shorten: Shortening = WHOLE, wider: str = "-o wide") -> Fitted:
        """As a table of at most this many rows on a terminal. ``wider``: what shows the columns left out."""
        return Fitted(self, most, shorten, wider)


@dataclass(frozen=True, slots=True)
class Fitted:
    """A section that is laid out for the console it is printed on."""

    section: Section
    most: int | None
    shorten: Shortening = field(default=WHOLE)
    wider: str = "-o wide"

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = None if is_whole(options.max_width) else options.max_width
        yield Text("")
        yield Text(self.section.title, style="bold", no_wrap=True, overflow="ignore")
        yield from _Layout(self, width).lines()


class _Layout:
    """A section's columns, fitted into a width (None: as wide as they are)."""

    def __init__(self, fitted: Fitted, width: int | None) -> None:
        self._section = section = fitted.section
        self._wider = fitted.wider
        self._width = width
        self._shorten = fitted.shorten if width is not None else WHOLE
        self._rows = section.rows if width is None else section.rows[: fitted.most]
        self._hidden = len(section.rows) - len(self._rows)
        self._at = {name: i for i, name in enumerate(section.columns)}
        self._shown = [name for name in section.columns if name != section.note]
        self._dropped: list[str] = []
        self._widths = {name: self._natural(name) for name in section.columns}
        self._note_inline = bool(section.note)
        if width is not None:
            self._fit(width)
        self._short = {
            name: self._cut(name) for name in section.fixed if width is not None and name in self._at
        }

    def _cut(self, name: str) -> Mapping[str, str]:
        """The names of a column, cut to its width."""
        cells = [row[self._at[name]] for row in self._rows]
        texts = [self._text(cell) for cell in cells if not isinstance(cell, Names)]
        return distinct(texts, self._widths[name])

    def _text(self, cell: Cell, width: int | None = None) -> str:
        if isinstance(cell, Names):
            return one_line(cell.fitted(width, self._shorten))
        return one_line(self._shorten(str(cell)))

    def _natural(self, name: str) -> int:
        longest = max((cell_len(self._text(row[self._at[name]])) for row in self._rows), default=0)
        if self._is_list(name):
            longest = min(longest, _LONGEST_LIST)
        return max(len(name), longest)

    def _is_list(self, name: str) -> bool:
        return any(isinstance(row[self._at[name]], Names) for row in self._rows)

    def _total(self, shown: Sequence[str]) -> int:
        return sum(self._widths[name] + _GAP for name in shown) - _GAP

    def _fit(self, width: int) -> None:
        """Cut names; if that is not enough, leave columns out; finally cut names further."""
        natural = dict(self._widths)
        while not self._shrunk(width, _SHORTEST_NAME):
            droppable = [name for name in self._section.drop if name in self._shown]
            if not droppable:
                self._shrunk(width, _SHORTEST_EVER)
                break
            self._shown.remove(droppable[0])
            self._dropped.append(droppable[0])
            self._widths = dict(natural)
        note = self._section.note
        if note:
            left = width - self._total(self._shown) - _GAP
            self._note_inline = left >= min(self._widths[note], _SHORTEST_NOTE)
            self._widths[note] = left if self._note_inline else width - _INDENT

    def _shrunk(self, width: int, least: int) -> bool:
        """Take the excess from the widest columns of names; whether the table fits then."""
        names = [name for name in self._shown if name in self._section.fixed or self._is_list(name)]
        while self._total(self._shown) > width:
            wide = [name for name in names if self._widths[name] > max(least, len(name))]
            if not wide:
                return False
            self._widths[max(wide, key=self._widths.__getitem__)] -= 1
        return True

    def lines(self) -> Iterator[Text]:
        """Header, rows, and what is not shown."""
        shown = [*self._shown, *([self._section.note] if self._note_inline else [])]
        head = self._line([Text(name) for name in shown], shown)
        head.stylize("dim")
        yield head
        if self._width is not None:
            yield Text("─" * min(self._width, max(head.cell_len, self._total(shown))), style="dim")
        for before, row in pairwise([None, *self._rows]):
            assert row is not None
            yield from self._row(row, before, shown)
        if self._hidden:
            yield Text(f"… {self._hidden:,} more; --all shows them", style="dim")
        if self._dropped:
            yield Text(f"Not shown at this width: {', '.join(self._dropped)} ({self._wider}).", style="dim")

    def _row(
        self, row: Sequence[Cell], before: Sequence[Cell] | None, shown: Sequence[str]
    ) -> Iterator[Text]:
        note = self._section.note
        cells: list[Text] = []
        same = self._width is not None and before is not None
        for name in shown:
            value = row[self._at[name]]
            same = same and name in self._section.merged and str(value) == str(before[self._at[name]])  # type: ignore[index]
            cells.append(Text("") if same else self._cell(name, value))
        if not note or self._width is None:
            yield self._line(cells, shown)
            return
        wrapped = self._wrapped(row[self._at[note]])
        if not self._note_inline:
            yield self._line(cells, shown)
            for part in wrapped:
                yield Text(" " * _INDENT + part, style="dim", no_wrap=True, overflow="ignore")
            return
        for number, part in enumerate(wrapped or [""]):
            left = cells[:-1] if number == 0 else [Text("")] * (len(shown) - 1)
            yield self._line([*left, Text(part)], shown)

    def _wrapped(self, value: Cell) -> list[str]:
        width = max(2, self._widths[self._section.note])
        text = self._text(value)
        if cell_len(text) > len(text):
            width -= 1  # A wide character at the end of a line may leave its pad to the next one.
            text = "".join(c + _PAD * (cell_len(c) - 1) for c in text)
        return [part.replace(_PAD, "") for part in textwrap.wrap(text, width, break_on_hyphens=False)]

    def _cell(self, name: str, value: Cell) -> Text:
        width = None if self._width is None else self._widths[name]
        text = self._text(value, width)
        if width is not None and cell_len(text) > width and name != self._section.note:
            text = self._short.get(name, {}).get(text) or cut_end(text, width)
        return Text(text, style=value.style if isinstance(value, Text) else "")

    def _line(self, cells: Sequence[Text], shown: Sequence[str]) -> Text:
        line = Text(no_wrap=True, overflow="ignore")
        for name, cell in zip(shown, cells, strict=True):
            blank = " " * max(0, self._widths[name] - cell.cell_len)
            right = name in self._section.right
            line = line + (Text(blank) + cell if right else cell + Text(blank)) + Text(" " * _GAP)
        line.rstrip()
        line.no_wrap, line.overflow = True, "ignore"
        return line


def cut_middle(text: str, width: int) -> str:
    """``pretraining…worker-7``: the beginning and the end of a name distinguish it."""
    if cell_len(text) <= width:
        return text
    if width <= 2:
        return _first(text, width)
    tail = width // 2
    return _first(text, width - tail - 1) + "…" + _first(text[::-1], tail)[::-1]


def distinct(texts: Iterable[str], width: int) -> dict[str, str]:
    """Each text cut in the middle; texts that would then look the same lose their beginning instead."""
    found = {text: cut_middle(text, width) for text in texts}
    same: dict[str, list[str]] = {}
    for text, cut in found.items():
        same.setdefault(cut, []).append(text)
    for several in same.values():
        pairs = enumerate(zip(min(several), max(several), strict=False))
        shared = next((i for i, (one, other) in pairs if one != other), 0)
        for text in several if shared else ():
            indent = text[: len(text) - len(text.lstrip())]
            found[text] = indent + "…" + cut_middle(text[shared:], width - len(indent) - 1)
    return found


def cut_end(text: str, width: int) -> str:
    """The beginning of a text, with … where it was cut."""
    return text if cell_len(text) <= width else _first(text, max(0, width - 1)) + "…"


def _first(text: str, width: int) -> str:
    """As many characters as fit into ``width`` columns; a Chinese one takes two."""
    end = min(len(text), width)
    while end and cell_len(text[:end]) > width:
        end -= 1
    return text[:end]


def ignored(fields: Mapping[str, int]) -> Section:
    """Fields that the reader does not know, and how often each occurred."""
    rows = [(name, f"{count:,}") for name, count in fields.items()]
    return Section("Ignored: unknown fields", ("Field", "Times"), rows, right=("Times",), fixed=("Field",))


def skipped(entries: Sequence[tuple[str, str]]) -> Section:
    """Objects that could not be used, each with field and reason."""
    columns = ("Object", "Reason")
    return Section("Skipped: left out of this answer", columns, entries, fixed=("Object",), note="Reason")
