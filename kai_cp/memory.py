"""A process takes no more memory than it may, whatever it is given to read."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Final

_CGROUP: Final = Path("/sys/fs/cgroup/memory.max")
_SHARE: Final = 0.6
"""Of a container's memory for one of the processes in it; the kernel ends all of them when it is used up."""


def bound(most_bytes: int) -> int:
    """Let this process allocate so much at most, and less in a small container; what it is now.

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
