"""Snapshot files: what KAI serves as a zip, plain or gzipped JSON, directories, standard input."""

from __future__ import annotations

import gzip
import hashlib
import io
import zipfile
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

import orjson

from kai_cp import files
from kai_cp.files import STDIN
from kai_cp.reader import salvage

DEFAULT_MAX_BYTES: Final = 2 * 1024**3
ENTRY: Final = "snapshot.json"
SUFFIXES: Final = (".json", ".json.gz", ".zip")

_ZIP: Final = b"PK"
_GZIP: Final = b"\x1f\x8b"
_CHUNK = 1 << 20
_SMALL: Final = 1024**2
"""Bytes of a snapshot that fits into memory whatever it holds."""
_VALUE_BYTES: Final = 150
"""Memory for an object, a list or a value, at most (an object of one key has two); its text comes on top."""
DEFAULT_MEMORY_BYTES: Final = 4 * 1024**3
_OBJECTS: Final = 3
"""Brackets around an object: those of the snapshot, of ``rawObjects`` and of its list."""
_BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, gzip.BadGzipFile, NotImplementedError, RuntimeError)


class UnreadableSnapshot(Exception):
    """The input is not a snapshot; ``str()`` is one clear sentence."""


@dataclass(frozen=True, slots=True)
class Source:
    """One input: its location (``-`` is standard input) and the name of its answer."""

    path: str
    name: str


@dataclass(frozen=True, slots=True)
class Loaded:
    """A raw snapshot and the SHA-256 of its JSON text."""

    raw: dict[str, Any]
    sha256: str


def sources(inputs: Iterable[str | Path]) -> list[Source]:
    """The inputs, with directories expanded, each with a unique name (``NAME`` for ``NAME.json``).

    Raises ``UnreadableSnapshot`` for a directory without snapshots.
    """
    paths: list[str] = []
    for value in map(str, inputs):
        folder = Path(value)
        if value != STDIN and folder.is_dir():
            inside = sorted(p for p in folder.iterdir() if p.is_file() and p.name.endswith(SUFFIXES))
            if not inside:
                raise UnreadableSnapshot(f"{value}: the directory holds no {', '.join(SUFFIXES)} file.")
            paths += map(str, inside)
        else:
            paths.append(value)
    taken: set[str] = set()
    return [Source(path, _free(_stem(path), taken)) for path in paths]


def _stem(path: str) -> str:
    name = "stdin" if path == STDIN else Path(path).name
    for suffix in sorted(SUFFIXES, key=len, reverse=True):
        if name.endswith(suffix) and name != suffix:
            return name.removesuffix(suffix)
    return name or "snapshot"


def _free(name: str, taken: set[str]) -> str:
    candidate, number = name, 2
    while candidate in taken:
        candidate, number = f"{name}-{number}", number + 1
    taken.add(candidate)
    return candidate


def load(
    source: str | Path | bytes,
    *,
    max_bytes: int = DEFAULT_MAX_BYTES,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
) -> Loaded:
    """The raw snapshot of a path, of ``-`` or of bytes; raises ``UnreadableSnapshot``.

    ``max_bytes`` limits the decompressed size; a larger snapshot is refused while it is being read. One that
    would take more than ``memory_bytes`` as objects is refused before they are made.
    """
    max_bytes = min(max_bytes, memory_bytes // 2)
    if isinstance(source, bytes):
        return _loaded(_text(io.BytesIO(source), "input", max_bytes), "input", memory_bytes)
    label = "standard input" if str(source) == STDIN else str(source)
    try:
        if Path(source).is_file() and str(source) != STDIN:
            with Path(source).open("rb") as file:
                text = _text(file, label, max_bytes)
        else:  # A zip is read from its end, so a stream is taken whole first.
            text = _text(io.BytesIO(files.read(source, max_bytes)), label, max_bytes)
    except OSError as problem:
        raise UnreadableSnapshot(f"{label}: {problem.strerror or problem}.") from None
    return _loaded(text, label, memory_bytes)


def _text(file: IO[bytes], label: str, max_bytes: int) -> bytearray:
    """The JSON text inside a file, whose format is detected from its content and not from its name."""
    start = file.read(2)
    file.seek(0)
    try:
        if start == _ZIP:
            with zipfile.ZipFile(file) as archive, archive.open(_entry(archive, label)) as entry:
                return _read(entry, label, max_bytes)
        if label.endswith(".zip"):
            raise UnreadableSnapshot(f"{label}: this is not a zip file.")
        if start == _GZIP:
            with gzip.GzipFile(fileobj=file) as entry:
                return _read(entry, label, max_bytes)
        if label.endswith(".gz"):
            raise UnreadableSnapshot(f"{label}: this is not a gzip file.")
        return _read(file, label, max_bytes)
    except _BROKEN as problem:
        raise UnreadableSnapshot(f"{label}: the archive is damaged or cut short ({problem}).") from None


def _entry(archive: zipfile.ZipFile, label: str) -> zipfile.ZipInfo:
    for info in archive.infolist():
        if info.filename == ENTRY:
            return info
    raise UnreadableSnapshot(f"{label}: the zip has no entry {ENTRY}.")


def _read(stream: Any, label: str, max_bytes: int) -> bytearray:
    text = bytearray()
    while chunk := stream.read(_CHUNK):
        if len(text) + len(chunk) > max_bytes:
            raise UnreadableSnapshot(
                f"{label}: the decompressed snapshot is larger than the limit of {max_bytes} bytes."
            )
        text += chunk
    return text


def _loaded(text: bytearray, label: str, memory_bytes: int) -> Loaded:
    if len(text) > _SMALL:
        values = sum(map(text.count, (b",", b"{", b"[")))
        needed = 2 * len(text) + _VALUE_BYTES * values
        if needed > memory_bytes:
            raise UnreadableSnapshot(
                f"{label}: it holds {values} values, which take some {needed} bytes; the limit is "
                f"{memory_bytes} (limits.memory_bytes)."
            )
    try:
        raw = salvage.loads(text, _OBJECTS)
    except orjson.JSONDecodeError as problem:
        raise UnreadableSnapshot(f"{label}: {_json_problem(problem, text)}.") from None
    if not isinstance(raw, dict) or not isinstance(raw.get("rawObjects"), dict):
        raise UnreadableSnapshot(f"{label}: this is not a KAI snapshot: it has no rawObjects.")
    return Loaded(raw, hashlib.sha256(text).hexdigest())


def _json_problem(problem: orjson.JSONDecodeError, text: Sequence[int]) -> str:
    if not text:
        return "it is empty"
    if problem.pos >= len(bytes(text).rstrip().decode("utf-8", "replace")):
        return (
            f"the JSON ends in the middle, after {len(text)} bytes (KAI serves a truncated snapshot"
            " with status 200 when writing it fails; fetch it again)"
        )
    return f"this is not JSON ({problem.msg} at line {problem.lineno}, column {problem.colno})"
