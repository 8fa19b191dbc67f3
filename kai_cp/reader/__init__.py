"""Turns raw KAI snapshots into ``Snapshot`` values, and reports the objects that it cannot read.

Names are imported on first use: the command line lists files long before it needs the parser.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from kai_cp.reader.container import Loaded, Source, UnreadableSnapshot, load, sources
    from kai_cp.reader.snapshot import ParseMemo, parse

__all__ = ["Loaded", "ParseMemo", "Source", "UnreadableSnapshot", "load", "parse", "sources"]

_PARSER: Final = frozenset(("ParseMemo", "parse"))


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = "kai_cp.reader.snapshot" if name in _PARSER else "kai_cp.reader.container"
    return getattr(import_module(home), name)
