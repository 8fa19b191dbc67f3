"""The door: raw KAI snapshots become ``Snapshot`` values, and what cannot be read is set aside."""

from kai_cp.reader.container import Loaded, Source, UnreadableSnapshot, load, sources
from kai_cp.reader.snapshot import ParseMemo, parse

__all__ = ["Loaded", "ParseMemo", "Source", "UnreadableSnapshot", "load", "parse", "sources"]
