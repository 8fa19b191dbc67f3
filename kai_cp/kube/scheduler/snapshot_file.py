"""Snapshots as the zip that KAI serves: one deflated entry ``snapshot.json``, streamed while it is made."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from kai_cp.decisions import RECORD
from kai_cp.reader.container import ENTRY


class _Drain(io.RawIOBase):
    """A stream without seek, whose content is taken from it piece by piece."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._position = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        piece = bytes(data)
        self._pieces.append(piece)
        self._position += len(piece)
        return len(piece)

    def tell(self) -> int:
        return self._position

    def take(self) -> bytes:
        pieces, self._pieces = self._pieces, []
        return b"".join(pieces)


def pieces(raw: Mapping[str, Any]) -> Iterator[bytes]:
    """A raw snapshot as JSON, a few objects at a time, so that memory never holds all of it."""
    first = True
    for key, value in raw.items():
        yield (b"{" if first else b",") + orjson.dumps(key) + b":"
        first = False
        if key == "rawObjects":
            yield from _lists(value)
        else:
            yield orjson.dumps(value)
    yield b"}\n" if not first else b"{}\n"


def _lists(lists: Mapping[str, Any]) -> Iterator[bytes]:
    first = True
    for key, items in lists.items():
        yield (b"{" if first else b",") + orjson.dumps(key) + b":"
        first = False
        if items is None:
            yield b"null"
            continue
        for i, item in enumerate(items):
            yield (b"[" if i == 0 else b",\n") + orjson.dumps(item)
        yield b"]" if items else b"[]"
    yield b"}" if not first else b"{}"


def archive(raw: Mapping[str, Any], decisions: Mapping[str, Any] | None = None) -> Iterator[bytes]:
    """The zip as a stream; ``decisions`` become a second entry, which KAI's reader ignores."""
    drain = _Drain()
    with zipfile.ZipFile(drain, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as container:
        with container.open(ENTRY, "w", force_zip64=True) as entry:
            for piece in pieces(raw):
                entry.write(piece)
                if ready := drain.take():
                    yield ready
        if decisions is not None:
            container.writestr(RECORD, orjson.dumps(decisions, option=orjson.OPT_INDENT_2))
    yield drain.take()
