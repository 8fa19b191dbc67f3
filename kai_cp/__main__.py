"""``kai-cp`` and ``python -m kai_cp``."""

from __future__ import annotations

import sys
from typing import Final

from kai_cp.starting import started

_SOLVE: Final = "solve"
"""The worker imports the engine while this process imports the parser of options and the output."""


def main() -> None:
    """Run the command line, and end with its status."""
    sys.exit(started(_run))


def _run() -> int:
    if sys.argv[1:2] == [_SOLVE]:
        from kai_cp.worker import ENGINE, warm_up

        warm_up(ENGINE)
    from kai_cp.cli.app import run

    return run()


if __name__ == "__main__":
    main()
