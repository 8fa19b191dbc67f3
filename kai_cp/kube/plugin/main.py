"""The ``kubectl-kai_cp`` program."""

from __future__ import annotations

import sys

from kai_cp.starting import started


def main() -> None:
    """Run the plugin, and end with its status."""
    sys.exit(started(_run))


def _run() -> int:
    import logging

    from kai_cp.cli.streams import guarded
    from kai_cp.kube.plugin.command import run

    # Retries do not concern the user: one sentence reports the last answer.
    logging.getLogger().addHandler(logging.NullHandler())
    return guarded(lambda: sys.exit(run(sys.argv[1:])))


if __name__ == "__main__":
    main()
