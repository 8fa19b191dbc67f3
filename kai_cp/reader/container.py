"""Snapshot files: what KAI serves as a zip, plain or gzipped JSON, directories, standard input."""

from __future__ import annotations

import codecs
import gzip
import hashlib
import io
import zipfile
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from kai_cp import files
from kai_cp.files import STDIN
from kai_cp.reader import document

DEFAULT_MAX_BYTES: Final = 2 * 1024**3
ENTRY: Final = "snapshot.json"
SUFFIXES: Final = (".json", ".json.gz", ".zip")

_ZIP: Final = b"PK"
_GZIP: Final = b"\x1f\x8b"
_CHUNK = 1 << 20
_SMALL: Final = 1024**2
"""Bytes of a snapshot that fits into memory whatever it contains."""
_VALUE_BYTES: Final = 150
"""The most memory for an object, a list or a value (an object with one key counts as two); its text is extra.
Mostly the records of an object take as much as the object itself."""
DEFAULT_MEMORY_BYTES: Final = 4 * 1024**3
_CUT_BY_KAI: Final = (
    "; fetch it again (KAI serves a truncated snapshot with status 200 when writing it fails)"
)
_BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, gzip.BadGzipFile, NotImplementedError, RuntimeError)


class UnreadableSnapshot(Exception):
    """The input is not a snapshot that can be read; ``str()`` is one clear sentence."""


class OtherContent(UnreadableSnapshot):
    """The input is JSON, or a zip, but of another kind."""


@dataclass(frozen=True, slots=True)
class Source:
    """One input: its location (``-`` is standard input) and the name of its answer."""

    path: str
    name: str


@dataclass(frozen=True, slots=True)
class Loaded:
    """A raw snapshot and the SHA-256 of its JSON text.

    ``raw`` has ``Items`` for the lists of objects, unless it was read whole.
    """

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
                raise UnreadableSnapshot(f"{value}: the directory holds no {', '.join(SUFFIXES)} file")
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


_KEPT: Final[dict[str, str]] = {}
"""The names by which messages call the files that keep the content of pipes."""


def call(path: str, label: str) -> None:
    """Let messages call the file at ``path`` by the name of the pipe from which it came."""
    _KEPT[path] = label


def label_of(source: str | Path | bytes) -> str:
    """The name of a source in messages; bytes came on standard input."""
    if isinstance(source, bytes) or str(source) == STDIN:
        return "standard input"
    return _KEPT.get(str(source), str(source))


def load(
    source: str | Path | bytes,
    *,
    max_bytes: int = DEFAULT_MAX_BYTES,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
) -> Loaded:
    """The raw snapshot of a path, of ``-`` or of bytes, whole; raises ``UnreadableSnapshot``.

    ``max_bytes`` limits the decompressed size; a larger snapshot is refused while it is being read. One that
    would take more than ``memory_bytes`` as objects is refused before they are made.
    """
    text, label = _found(source, min(max_bytes, memory_bytes // 2))
    found = _loaded(text, label, memory_bytes, whole=True)
    return Loaded(document.whole(found.raw), found.sha256)


def load_items(
    source: str | Path | bytes,
    *,
    max_bytes: int = DEFAULT_MAX_BYTES,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
) -> Loaded:
    """The same with ``Items`` as lists, so that hardly more than the text is in memory.

    An item that would take more than ``memory_bytes`` is set aside.
    """
    text, label = _found(source, min(max_bytes, memory_bytes // 2))
    return _loaded(text, label, memory_bytes, whole=False)


def load_document(source: str | Path | bytes, entry: str) -> Any:
    """The JSON value of a document, packed or not, in a zip that of ``entry``.

    Raises ``UnreadableSnapshot``.
    """
    text, label = _found(source, files.MOST_BYTES, entry)
    try:
        return document.value(text)
    except document.BadJson as problem:
        raise UnreadableSnapshot(f"{label}: {_json_problem(problem, text)}") from None


def _found(source: str | Path | bytes, max_bytes: int, entry: str = ENTRY) -> tuple[bytearray, str]:
    """The JSON text of a source, and the name of the source."""
    label = label_of(source)
    if isinstance(source, bytes):
        return _text(io.BytesIO(source), label, max_bytes, entry), label
    try:
        if Path(source).is_file() and str(source) != STDIN:
            with Path(source).open("rb") as file:
                return _text(file, label, max_bytes, entry), label
        # A zip is read from its end, so a stream is taken whole first.
        return _text(io.BytesIO(files.read(source, max_bytes)), label, max_bytes, entry), label
    except OSError as problem:
        raise UnreadableSnapshot(f"{label}: {problem.strerror or problem}") from None


def _text(file: IO[bytes], label: str, max_bytes: int, wanted: str) -> bytearray:
    """The JSON text inside a file; the content shows the format, not the name."""
    start = file.read(2)
    file.seek(0)
    if not start:
        raise UnreadableSnapshot(f"{label}: it is empty")
    try:
        if start == _ZIP:
            with zipfile.ZipFile(file) as archive, archive.open(_entry(archive, label, wanted)) as entry:
                return _read(entry, label, max_bytes)
        if label.endswith(".zip"):
            raise UnreadableSnapshot(f"{label}: this is not a zip file")
        if start == _GZIP:
            with gzip.GzipFile(fileobj=file) as entry:
                return _read(entry, label, max_bytes)
        if label.endswith(".gz"):
            raise UnreadableSnapshot(f"{label}: this is not a gzip file")
        return _read(file, label, max_bytes)
    except _BROKEN as problem:
        raise UnreadableSnapshot(f"{label}: the archive is damaged or cut short ({problem})") from None


def _entry(archive: zipfile.ZipFile, label: str, wanted: str) -> zipfile.ZipInfo:
    for info in archive.infolist():
        if info.filename == wanted:
            return info
    raise OtherContent(f"{label}: the zip has no entry {wanted}")


def _read(stream: Any, label: str, max_bytes: int) -> bytearray:
    text = bytearray()
    while chunk := stream.read(_CHUNK):
        if len(text) + len(chunk) > max_bytes:
            raise UnreadableSnapshot(f"{label}: unpacked, it is larger than the limit of {max_bytes} bytes")
        text += chunk
    return text.removeprefix(codecs.BOM_UTF8)


def _too_much(text: bytes | bytearray | memoryview, memory_bytes: int, *, whole: bool) -> str:
    """Why the text may not be read, as one value or item by item; "" if it may."""
    if len(text) <= _SMALL:
        return ""
    word, marks, copies = ("values", b",{[", 2) if whole else ("objects", b"{", 1)
    count = sum(map(bytes(text).count if isinstance(text, memoryview) else text.count, marks))
    needed = copies * len(text) + _VALUE_BYTES * count
    if needed <= memory_bytes:
        return ""
    return (
        f"it holds {count} {word}, which take some {needed} bytes; the limit is {memory_bytes} "
        "(limits.memory_bytes)"
    )


def _loaded(text: bytearray, label: str, memory_bytes: int, *, whole: bool) -> Loaded:
    too_much = _too_much(text, memory_bytes, whole=whole)
    if too_much:
        raise UnreadableSnapshot(f"{label}: {too_much}")
    try:
        raw = document.read(text, lambda item: _too_much(item, memory_bytes, whole=True))
    except document.BadJson as problem:
        raise UnreadableSnapshot(f"{label}: {_json_problem(problem, text, _CUT_BY_KAI)}") from None
    if raw is None or not isinstance(raw.get(document.OBJECTS), dict):
        raise OtherContent(f"{label}: this is not a KAI snapshot: it has no rawObjects")
    return Loaded(raw, hashlib.sha256(text).hexdigest())


def _json_problem(problem: document.BadJson, text: bytearray, cut: str = "") -> str:
    """``cut``: why the text may be cut short."""
    if not text:
        return "it is empty"
    if problem.at is not None and not text[problem.at :].strip():
        return f"the JSON ends in the middle, after {len(text)} bytes{cut}"
    if problem.at is None:
        return f"this is not JSON ({problem})"
    line = text.count(b"\n", 0, problem.at)
    column = problem.at - text.rfind(b"\n", 0, problem.at)
    return f"this is not JSON ({problem} at line {line + 1}, column {column})"
