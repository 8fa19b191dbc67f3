"""The standard streams with which a process began closed (``>&-`` in a shell, a daemon)."""

from __future__ import annotations

import os
import sys


def open_closed() -> None:
    """Give closed streams their numbers back, before another file gets them.

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
