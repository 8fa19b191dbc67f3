"""``kai-cp`` and ``python -m kai_cp``."""

from __future__ import annotations

import time

STARTED = time.monotonic()
"""When this process began, as near as Python can tell."""


def main() -> None:
    """Run the command line."""
    from kai_cp.cli.app import command

    command.main(prog_name="kai-cp")


if __name__ == "__main__":
    main()
