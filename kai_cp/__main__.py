"""``kai-cp`` and ``python -m kai_cp``."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line, and end with its status."""
    try:
        from kai_cp.cli.app import run

        status = run()
    except KeyboardInterrupt:  # Before there was anything to show.
        status = 130
    sys.exit(status)


if __name__ == "__main__":
    main()
