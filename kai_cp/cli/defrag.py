"""``kai-cp defrag``: what moving pods would free, with how many restarts and in which order."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from kai_cp.cli.common import WRONG_USAGE, fail, instant_or_exit, settings_or_exit, snapshot_or_exit
from kai_cp.cli.options import SHOWN, ConfigOption, NowOption, SnapshotArgument

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


class DefragFormat(StrEnum):
    """What goes to standard output."""

    TABLE = "table"
    JSON = "json"


@app.command()
def defrag(
    snapshot: SnapshotArgument,
    free: Annotated[
        str | None,
        typer.Option(metavar="nodes|LEVEL", help="What should be free of GPU pods. Default: nodes."),
    ] = None,
    gang: Annotated[
        str | None,
        typer.Option("--for", metavar="gang=PxG[@LEVEL]", help="Gangs of P pods of G GPUs that should fit."),
    ] = None,
    most: Annotated[int | None, typer.Option(min=1, help="Do not look for more than this.")] = None,
    max_moves: Annotated[
        int | None, typer.Option(min=0, help="Most restarts of a plan. Default: defrag.max_moves.")
    ] = None,
    *,
    budget: Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="Time for all points.")] = 60.0,
    now: NowOption = None,
    config: ConfigOption = None,
    format: Annotated[
        DefragFormat, typer.Option("--format", "-o", help="A table, or defrag/1.", rich_help_panel=SHOWN)
    ] = DefragFormat.TABLE,
    output: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write defrag/1 to this file.", rich_help_panel=SHOWN),
    ] = None,
) -> None:
    """Show what could be freed by moving pods: a frontier of plans, each with a proof.

    Nothing is changed anywhere. Exit status: 0 answered, 1 bad input, 2 wrong usage.

    Examples:
    kai-cp defrag snapshot.zip
    kai-cp defrag snapshot.zip --for gang=8x8@rack --format json
    """
    import orjson

    from kai_cp.fragmentation import to_json
    from kai_cp_models.queries.moves import BadQuestion, frontier, question_of

    settings = settings_or_exit(config, {})
    found, name, _ = snapshot_or_exit(snapshot, instant_or_exit(now), settings)
    try:
        question = question_of(found, free, gang)
    except BadQuestion as problem:
        fail(str(problem), WRONG_USAGE)
    answer = frontier(
        found,
        settings,
        question,
        most=most,
        max_moves=max_moves,
        seconds=budget,
    )
    content = orjson.dumps(to_json(answer), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    if output is not None:
        try:
            output.write_bytes(content)
        except OSError as error:
            fail(f"--output: {output}: {error.strerror or error}", WRONG_USAGE)
    if format is DefragFormat.JSON:
        typer.echo(content.decode(), nl=False)
    elif output is None:
        from kai_cp.report.fragmentation import report
        from kai_cp.report.terminal import stdout

        stdout().print(report(name, answer))
