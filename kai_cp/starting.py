"""How a program begins: with all standard streams, and with imports that Ctrl-C may end."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable


def started(body: Callable[[], int]) -> int:
    """The status of ``body``, which imports what it needs and reports its own errors."""
    _open_closed()
    try:
        return body()
    except KeyboardInterrupt:  # The program was interrupted before ``body`` could report it.
        print("kai-cp: interrupted", file=sys.stderr)
        return 130


def _open_closed() -> None:
    """Give streams that began closed (``>&-`` in a shell, a daemon) their numbers back, before another file
    gets them.

    What is written to the output then fails as it does for every program, complaints are dropped, and
    ``sys.stdin`` stays None.
    """
    for number, name, flags in (
        (0, "stdin", os.O_RDONLY),
        (1, "stdout", os.O_RDONLY),  # So that writing fails.
        (2, "stderr", os.O_WRONLY),
    ):
        if getattr(sys, name) is None:
            null = os.open(os.devnull, flags)
            if null != number:
                os.dup2(null, number)
                os.close(null)
            if number:
                setattr(sys, name, os.fdopen(number, "w", encoding="utf-8", closefd=False))
