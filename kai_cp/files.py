"""Reading files from unknown authors: up to a size, and within a time."""

from __future__ import annotations

import contextlib
import errno
import gzip
import os
import select
import signal
import stat
import sys
import threading
import time
import zlib
from collections.abc import Iterator
from io import BytesIO, FileIO, UnsupportedOperation
from pathlib import Path
from types import FrameType
from typing import Final

from kai_cp import yaml_text

STDIN: Final = "-"
MOST_BYTES: Final = 256 * 1024**2
"""Most bytes of a document (decisions, objects); an answer for 100,000 pods has a tenth of it."""
SILENT_SECONDS: Final = 30.0
"""The longest silence of a pipe, such as the output of a command that is given as a file."""
PIPE_SECONDS: Final = 600.0
"""The longest wait for the end of a pipe; 2 GiB at 4 MiB a second take less."""
_PIECE_BYTES: Final = 1024**2
_AGAIN_SECONDS: Final = 1.0
"""Code that swallows the alarm meets it again after this time."""
_AT_ONCE_SECONDS: Final = 1e-6
"""Zero would turn the alarm off."""


class TooLarge(OSError):
    """A file is larger than its kind may be; the text names the limit."""

    def __init__(self, most_bytes: int) -> None:
        super().__init__(f"larger than {most_bytes} bytes")
        self.strerror = str(self)


class NoText(OSError):
    """A file is not text in UTF-8."""

    def __init__(self) -> None:
        super().__init__("it is not text in UTF-8")
        self.strerror = str(self)


class TooLate(Exception):
    """Something was not finished in time; the text names the limit."""


class _Alarm(BaseException):
    """An alarm that gets past every ``except Exception``."""


def read(path: Path | str, most_bytes: int = MOST_BYTES) -> bytes:
    """The bytes of a file (``-``: standard input), also of a pipe.

    A pipe that stays silent for ``SILENT_SECONDS``, or has no end within ``PIPE_SECONDS``, is given up, on
    every thread. Raises ``OSError``, ``TooLarge``.
    """
    with _opened(path, most_bytes) as file:
        found = b"".join(_pieces(file, most_bytes + 1))
    if len(found) > most_bytes:
        raise TooLarge(most_bytes)
    return found


def _opened(path: Path | str, most_bytes: int) -> FileIO | BytesIO:
    """The file, to be read in pieces; a stand-in for standard input that is not a file is read at once."""
    if str(path) != STDIN:
        return FileIO(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
    if sys.stdin is None:
        raise OSError(errno.EBADF, "it is closed")
    try:
        return FileIO(os.dup(sys.stdin.fileno()))
    except UnsupportedOperation:
        return BytesIO(sys.stdin.buffer.read(most_bytes + 1))


def _pieces(file: FileIO | BytesIO, most_bytes: int) -> Iterator[bytes]:
    """What is in the file, at most so much; raises ``OSError`` when nothing more comes."""
    pipe = isinstance(file, FileIO) and stat.S_ISFIFO(os.fstat(file.fileno()).st_mode)
    left, begun = most_bytes, time.monotonic()
    while left:
        if pipe and not select.select([file], [], [], SILENT_SECONDS)[0]:
            raise TimeoutError(errno.ETIMEDOUT, f"nothing came for {SILENT_SECONDS:g} s")
        if pipe and time.monotonic() - begun > PIPE_SECONDS:
            raise TimeoutError(errno.ETIMEDOUT, f"no end within {PIPE_SECONDS:g} s")
        piece = file.read(min(left, _PIECE_BYTES))
        if not piece:
            return
        left -= len(piece)
        yield piece


def read_text(path: Path, most_bytes: int = yaml_text.LONGEST) -> str:
    """The text of a file; by default as much as is read of YAML. Raises ``NoText``; errors as of
    :func:`read`.
    """
    return text_of(read(path, most_bytes))


def text_of(content: bytes) -> str:
    """The text of bytes; raises ``NoText``."""
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        raise NoText from None


def read_gzip(path: Path, most_bytes: int = MOST_BYTES) -> bytes:
    """The unpacked content of a gzip file. Raises ``OSError``, also for a damaged file, and ``TooLarge``."""
    with gzip.GzipFile(fileobj=BytesIO(read(path, most_bytes))) as file:
        try:
            found = file.read(most_bytes + 1)
        except (EOFError, zlib.error, gzip.BadGzipFile) as problem:
            raise OSError(errno.EINVAL, f"damaged or cut short ({problem})") from None
    if len(found) > most_bytes:
        raise TooLarge(most_bytes)
    return found


@contextlib.contextmanager
def within(seconds: float, subject: object) -> Iterator[None]:
    """Stop the block with ``TooLate``, which names the subject, when it takes longer.

    For the main thread of a command; on another thread it raises ``RuntimeError``, because no alarm would
    ring there. Blocks nest: the shorter deadline holds. One call of C code is not interrupted, so what is
    read is bounded by size first. Where the system has no alarms nothing ends the block.
    """
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("a deadline works only on the main thread")
    if not hasattr(signal, "setitimer"):
        yield
        return
    left = signal.getitimer(signal.ITIMER_REAL)[0]
    if 0 < left <= seconds:
        yield  # The block around this one ends first.
        return

    def ring(_signal: int, _frame: FrameType | None) -> None:
        raise _Alarm

    before, begun = signal.signal(signal.SIGALRM, ring), time.monotonic()
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds, _AGAIN_SECONDS)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except _Alarm:
        raise TooLate(f"{subject}: not done within {seconds:g} s (limits.read_seconds)") from None
    finally:
        signal.signal(signal.SIGALRM, before)
        if left:
            spent = time.monotonic() - begun
            signal.setitimer(signal.ITIMER_REAL, max(_AT_ONCE_SECONDS, left - spent), _AGAIN_SECONDS)
