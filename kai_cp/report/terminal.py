"""Terminal: the consoles, and the few phrases that every report shares."""

from __future__ import annotations

import sys
from typing import Final

from rich.console import Console, RenderableType

from kai_cp_models.shown import span

_WHOLE: Final = 1_000_000
"""Width of a console on which nothing is cut or wrapped."""


def is_whole(width: int) -> bool:
    """Whether a console of this width shows everything on one line a row."""
    return width >= _WHOLE


def stdout(*, wide: bool = False) -> Console:
    """The console of results: as wide as the terminal; in a pipe, or with ``wide``, a row is one line."""
    whole = wide or not sys.stdout.isatty()
    return Console(width=_WHOLE if whole else None, highlight=False, markup=False, soft_wrap=False)


def stderr() -> Console:
    """The console of progress and errors."""
    return Console(stderr=True, highlight=False, markup=False)


def show(what: RenderableType, *, wide: bool = False) -> None:
    """Print to standard output."""
    stdout(wide=wide).print(what, crop=False)


def amount(value: float | None) -> str:
    """A count of GPUs or the like: no needless decimals, ``∞`` for unlimited."""
    if value is None or value == -1:
        return "∞"
    return f"{value:,.3f}".rstrip("0").rstrip(".") if value != int(value) else f"{int(value):,}"


def age(seconds: float | None) -> str:
    """A duration in whole units of its largest one, rounded down: ``3d``, ``41m``."""
    return "" if seconds is None else span(seconds, 1)


def gpus(value: float) -> str:
    """``1 GPU``, ``0.5 GPUs``."""
    return f"{amount(value)} GPU" if value == 1 else f"{amount(value)} GPUs"
