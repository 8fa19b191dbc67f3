"""Limits the memory of a process, whatever it reads."""

from __future__ import annotations

import ctypes
from contextlib import suppress
from pathlib import Path
from typing import Final

_CGROUP: Final = Path("/sys/fs/cgroup/memory.max")
_SHARE: Final = 0.6
"""Share of a container's memory that one of its processes may use; the kernel kills all of them when the
memory is used up."""
_M_ARENA_MAX: Final = -8
"""Of glibc's ``mallopt``."""


def one_heap() -> None:
    """Let the threads that start from now on share one heap. Otherwise each thread's own heap keeps the
    memory of its largest task. C libraries other than glibc have no such setting."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)


def bound(most_bytes: int) -> int:
    """Let this process allocate at most this much, and less in a small container; returns the limit.

    Beyond it Python raises ``MemoryError``, and a solver ends its process. Where the system knows no such
    limit, there is none.
    """
    with suppress(OSError, ValueError):
        most_bytes = min(most_bytes, int(_SHARE * int(_CGROUP.read_text())))
    with suppress(ImportError, OSError, ValueError):
        import resource

        hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
        allowed = most_bytes if hard == resource.RLIM_INFINITY else min(most_bytes, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (allowed, hard))
    return most_bytes
