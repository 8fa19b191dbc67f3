"""The output of ``kai-cp migrate``."""

from __future__ import annotations

from collections.abc import Iterator

from kai_cp.migrate.report import Migration
from kai_cp.migrate.table import ADMISSION, CONTROLLERS
from kai_cp.yaml_text import written


def told(found: Migration) -> str:
    """The steps to take, in order; the command itself changes nothing."""
    return "\n".join(_lines(found)) + "\n"


def _lines(found: Migration) -> Iterator[str]:
    yield "# Install. Nothing was changed; the mode is observe until you say so: docs/observe-to-enforce.md\n"
    yield "## values.yaml for deploy/chart/kai-cp\n"
    yield written(found.values)
    yield "## controllers.extraArgs of the chart, as flags\n"
    yield written(found.command(CONTROLLERS))
    yield "## admission.extraArgs of the chart, as flags\n"
    yield written(found.command(ADMISSION))
    for title, lines in (
        ("# Differs", found.differs),
        ("# Not taken over", found.left),
        ("# Not understood", found.unread),
    ):
        if lines:
            yield f"{title}\n"
            yield from (f"- {line}" for line in lines)
            yield ""
