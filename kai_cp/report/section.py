"""Section: one table of a report, cut to what a person reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rich.console import Group, RenderableType
from rich.text import Text

from kai_cp.report.terminal import table

ROWS_SHOWN: Final = 20

Cell = str | Text


@dataclass(frozen=True, slots=True)
class Section:
    """One table of the report. ``right``: columns of numbers; ``fixed``: columns that are never broken."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    right: Sequence[str] = ()
    fixed: Sequence[str] = ()

    def render(self, most: int | None) -> RenderableType:
        """As a table of at most so many rows."""
        result = table(*self.columns, title=self.title, right=self.right, fixed=self.fixed)
        for row in self.rows[:most]:
            result.add_row(*row)
        if most is None or len(self.rows) <= most:
            return Group("", result)
        hidden = len(self.rows) - most
        return Group("", result, Text(f"… {hidden:,} more; --all shows them", style="dim"))


def ignored(fields: Mapping[str, int]) -> Section:
    """What the reader did not know, by how often it was there."""
    rows = [(name, f"{count:,}") for name, count in fields.items()]
    return Section("Ignored: unknown fields", ("Field", "Times"), rows, right=("Times",))
