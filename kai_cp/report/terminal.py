"""Terminal: the consoles, and the few shapes that every table here shares."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Final

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

_PIPE_WIDTH: Final = 160
"""Columns when nobody's terminal says: wide enough that most lines stay whole."""


def stdout() -> Console:
    """The console of results; as wide as the terminal."""
    piped = not sys.stdout.isatty() and not os.environ.get("COLUMNS")
    return Console(width=_PIPE_WIDTH if piped else None, highlight=False, markup=False)


def stderr() -> Console:
    """The console of progress and complaints."""
    return Console(stderr=True, highlight=False, markup=False)


def table(*columns: str, title: str = "", right: Sequence[str] = (), fixed: Sequence[str] = ()) -> Table:
    """An empty table: ``right`` columns hold numbers, ``fixed`` ones are never broken."""
    result = Table(
        title=Text(title, style="bold") if title else None,
        title_justify="left",
        box=SIMPLE_HEAD,
        pad_edge=False,
        header_style="dim",
        show_edge=False,
        padding=(0, 1, 0, 0),
    )
    for name in columns:
        if name in right:
            result.add_column(name, justify="right", no_wrap=True)
        else:
            result.add_column(name, overflow="fold", no_wrap=name in fixed)
    return result


def amount(value: float | None) -> str:
    """A count of GPUs or the like: no needless decimals, ``∞`` for unlimited."""
    if value is None or value == -1:
        return "∞"
    return f"{value:,.3f}".rstrip("0").rstrip(".") if value != int(value) else f"{int(value):,}"


def plural(count: int, noun: str) -> str:
    """``1 pod``, ``3 pods``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
