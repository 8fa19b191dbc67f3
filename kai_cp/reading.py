"""A snapshot from the bytes that a user names to the engine's records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from kai_cp.reader.collection import no_collection
from kai_cp.reader.container import Source, UnreadableSnapshot, load, sources
from kai_cp_models.settings import Settings
from kai_cp_models.snapshot import Snapshot

_OPTIONS: Final = ".options.json"
"""``NAME.options.json`` beside a snapshot says something about NAME and is no snapshot."""


def inputs(arguments: Iterable[str]) -> tuple[list[Source], list[str]]:
    """The inputs that the arguments stand for, and a line for every argument that stands for none."""
    usable: list[str] = []
    problems: list[str] = []
    for argument in arguments:
        try:
            sources([argument])
        except UnreadableSnapshot as problem:
            problems.append(str(problem))
        else:
            usable.append(argument)
    return [source for source in sources(usable) if not source.path.endswith(_OPTIONS)], problems


def read(
    source: str | bytes, *, now: float, settings: Settings, usage: Mapping[str, Any] | None = None
) -> tuple[Snapshot, str]:
    """The snapshot of a path, of ``-`` or of bytes, and its SHA-256; raises ``UnreadableSnapshot``."""
    from kai_cp.reader.snapshot import parse

    with no_collection(for_good=True):
        loaded = load(source, max_bytes=settings.max_snapshot_bytes)
        return parse(loaded.raw, now=now, usage=usage), loaded.sha256
