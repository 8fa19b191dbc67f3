"""How a command ends: output that any terminal can show, and one sentence for every error."""

from __future__ import annotations

import codecs
import errno
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from kai_cp.cli.common import BAD_INPUT, BUG, INTERRUPTED, MISSING, complain
from kai_cp.cli.extras import sentence
from kai_cp.errors import Unavailable
from kai_cp.files import TooLate

DEBUG_VARIABLE: Final = "KAI_CP_DEBUG"
"""Set to anything, it shows tracebacks."""

_PLAIN: Final = {"…": "...", "×": "x", "∞": "unlimited", "→": "->", "−": "-", "≥": ">=", "≤": "<=", "─": "-"}
"""Replacements for characters that the terminal's character set lacks."""

_UNWRITTEN: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)
"""Errors of writing to an open stream; other errors without a file name are not about the output."""


def _plain(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    lost = error.object[error.start : error.end]
    return "".join(_PLAIN.get(character, "?") for character in lost), error.end


def guarded(body: Callable[[], object]) -> int:
    """Run ``body``, which may raise ``SystemExit``, and flush all output; returns the exit status."""
    codecs.register_error("plain", _plain)
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, ValueError):
            stream.reconfigure(errors="plain")  # type: ignore[union-attr]
    try:
        try:
            body()
            status = 0
        except SystemExit as end:
            if isinstance(end.__context__, BrokenPipeError):  # Libraries end the program because of it.
                raise end.__context__ from None
            status = end.code if isinstance(end.code, int) else int(end.code is not None)
        sys.stdout.flush()
    except KeyboardInterrupt:
        status = INTERRUPTED
    except Unavailable as problem:
        complain(str(problem))
        status = MISSING
    except TooLate as problem:
        complain(str(problem))
        status = BAD_INPUT
    except MemoryError:
        complain("the input needs more memory than is allowed (limits.memory_bytes)")
        status = BAD_INPUT
    except BrokenPipeError:
        status = _without_output(0)  # The reader of the pipe has closed it, as ``head`` does.
    except OSError as error:
        unwritten = "output cannot be written: " if error.errno in _UNWRITTEN else ""
        complain(f"{f'{error.filename}: ' if error.filename else unwritten}{error.strerror or error}")
        status = _without_output(MISSING)
    except ModuleNotFoundError as error:
        missing = sentence(error)
        if missing is None:
            raise
        complain(missing)
        status = MISSING
    except Exception as error:
        if os.environ.get(DEBUG_VARIABLE):
            raise
        reason = str(error).splitlines()
        complain(
            f"this is a defect of kai-cp: {type(error).__name__}{': ' + reason[0] if reason else ''}. "
            f"Please report it with what {DEBUG_VARIABLE}=1 shows."
        )
        status = BUG
    if status == INTERRUPTED:
        complain("interrupted")
    return status


def _without_output(status: int) -> int:
    """Discard further output, so that the interpreter does not try to write it at its end."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return status
