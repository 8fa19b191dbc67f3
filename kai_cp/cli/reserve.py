"""``kai-cp reserve``: which starts would be promised, what they cost, and when other groups might start."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from kai_cp.cli.common import (
    BAD_INPUT,
    WRONG_USAGE,
    fail,
    instant_or_exit,
    settings_or_exit,
    snapshot_or_exit,
)
from kai_cp.cli.options import SHOWN, ConfigOption, NowOption, SnapshotArgument

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


class ReserveFormat(StrEnum):
    """What goes to standard output."""

    TABLE = "table"
    JSON = "json"


@app.command()
def reserve(
    snapshot: SnapshotArgument,
    group: Annotated[
        str | None,
        typer.Option("--for", metavar="podgroup/NS/NAME", help="Plan a start for this pod group."),
    ] = None,
    now: NowOption = None,
    config: ConfigOption = None,
    format: Annotated[
        ReserveFormat, typer.Option("--format", "-o", help="A table, or JSON.", rich_help_panel=SHOWN)
    ] = ReserveFormat.TABLE,
    *,
    picture: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw nodes over time (.svg or .png).", rich_help_panel=SHOWN),
    ] = None,
) -> None:
    """Show the future starts that `reservations.enabled` would promise: holds, prices and estimates.

    Nothing is changed anywhere. Exit status: 0 answered, 1 bad input, 2 wrong usage.

    Examples:
    kai-cp reserve snapshot.zip
    kai-cp reserve snapshot.zip --for podgroup/team-a/llm-70b --picture plan.svg
    """
    import orjson

    from kai_cp.planning import NoSuchGroup, planned

    settings = settings_or_exit(config, {"reservations.enabled": True})
    found, name, _ = snapshot_or_exit(snapshot, instant_or_exit(now), settings)
    try:
        plan = planned(found, settings, group)
    except NoSuchGroup as problem:
        fail(f"--for: {problem}", BAD_INPUT)
    if picture is not None:
        from kai_cp.report.gantt import draw

        if picture.suffix not in (".svg", ".png"):
            fail(f"--picture: {picture}: name an .svg or .png file", WRONG_USAGE)
        try:
            draw(plan, picture)
        except OSError as error:
            fail(f"--picture: {picture}: {error.strerror or error}", WRONG_USAGE)
    if format is ReserveFormat.JSON:
        typer.echo(orjson.dumps(plan.document(), option=orjson.OPT_INDENT_2).decode())
    else:
        from kai_cp.report.starts import report
        from kai_cp.report.terminal import stdout

        stdout().print(report(name, plan))
