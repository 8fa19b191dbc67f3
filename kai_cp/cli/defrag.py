"""``kai-cp defrag``: what moving pods would free, with how many restarts and in which order."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from kai_cp.cli.common import WRONG_USAGE, fail, instant_or_exit, settings_or_exit, snapshot_or_exit
from kai_cp.cli.options import (
    SEARCH,
    SHOWN,
    AllOption,
    ConfigOption,
    FormatOption,
    NowOption,
    SnapshotArgument,
)
from kai_cp.cli.output import OutputFormat, answer, as_json, of_rows

if TYPE_CHECKING:
    from kai_cp_models.queries.moves import Frontier

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


_COLUMNS: Final = ("step", "podGroup", "pod", "from", "to")
"""The fields of a move that ``-o csv`` has."""


@app.command()
def defrag(
    snapshot: SnapshotArgument,
    free: Annotated[
        str | None,
        typer.Option(
            metavar="nodes|LEVEL",
            help="What should be free of GPU pods. Default: nodes.",
            rich_help_panel=SEARCH,
        ),
    ] = None,
    gang: Annotated[
        str | None,
        typer.Option(
            "--for",
            metavar="gang=PxG[@LEVEL]",
            help="Gangs of P pods of G GPUs that should fit.",
            rich_help_panel=SEARCH,
        ),
    ] = None,
    most: Annotated[
        int | None, typer.Option(min=1, help="Do not look for more than this.", rich_help_panel=SEARCH)
    ] = None,
    max_moves: Annotated[
        int | None,
        typer.Option(
            min=0, help="Most restarts of a plan. Default: defrag.max_moves.", rich_help_panel=SEARCH
        ),
    ] = None,
    *,
    budget: Annotated[
        float, typer.Option(min=0.1, metavar="SECONDS", help="Time for all points.", rich_help_panel=SEARCH)
    ] = 60.0,
    now: NowOption = None,
    config: ConfigOption = None,
    format: FormatOption = OutputFormat.TABLE,
    everything: AllOption = False,
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
    from kai_cp.fragmentation import to_json
    from kai_cp_models.queries.moves import BadQuestion, frontier, question_like, question_of

    settings = settings_or_exit(config, {})
    found, name, _ = snapshot_or_exit(snapshot, instant_or_exit(now), settings)
    try:
        question = question_of(found, free, gang)
    except BadQuestion as problem:
        fail(f"{problem}{question_like(gang or free or '')}", WRONG_USAGE)
    reached = frontier(
        found,
        settings,
        question,
        most=most,
        max_moves=max_moves,
        seconds=budget,
    )
    document = to_json(reached)
    if output is not None:
        try:
            output.write_bytes(as_json([document]))
        except OSError as error:
            fail(f"--output: {output}: {error.strerror or error}", WRONG_USAGE)
        if format is OutputFormat.TABLE:
            return
    moves = document["points"][0]["plan"] if document["points"] else []
    answer(
        of_rows(
            document,
            moves,
            _COLUMNS,
            "pod/{pod}",
            lambda wide: _show(name, document["now"], reached, everything=everything, wide=wide),
        ),
        format,
    )


def _show(name: str, now: str, reached: Frontier, *, everything: bool, wide: bool) -> None:
    """The answer in words and tables."""
    from kai_cp.report.fragmentation import about, headline, sections, shortening
    from kai_cp.report.headline import as_of
    from kai_cp.report.page import show_page

    show_page(
        f"{name}: {headline(reached)}",
        f"{as_of({'now': now})} {about(reached)}",
        sections(reached),
        everything=everything,
        wide=wide,
        shorten=shortening(reached),
    )
