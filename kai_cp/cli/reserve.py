"""``kai-cp reserve``: which starts would be promised, what they cost, and when other groups might start."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from kai_cp.cli.common import (
    OFFLINE,
    WRONG_USAGE,
    fail,
    file_or_exit,
    instant_or_exit,
    loaded_or_exit,
    settings_or_exit,
    snapshot_or_exit,
    usage_or_exit,
)
from kai_cp.cli.explain import groups_or_exit
from kai_cp.cli.options import (
    SEARCH,
    SHOWN,
    AllOption,
    BudgetOption,
    ConfigOption,
    FormatOption,
    NowOption,
    SnapshotArgument,
    UsageOption,
)
from kai_cp.cli.output import OutputFormat, answer, of_rows
from kai_cp.json_types import Document

if TYPE_CHECKING:
    from kai_cp_models.pods import GroupKey
    from kai_cp_models.settings import Settings
    from kai_cp_models.snapshot import Snapshot

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

_COLUMNS: Final = ("podGroup", "queue", "state", "start", "promised", "idleGpuHours", "lostGpuHours", "cause")
"""The fields of a reservation that ``-o csv`` has."""


@app.command()
def reserve(
    snapshot: SnapshotArgument,
    group: Annotated[
        str | None,
        typer.Option(
            "--for",
            metavar="NAME",
            help="Plan a start for this pod group: [KIND/][NAMESPACE/]NAME, such as job/team-a/train.",
            rich_help_panel=SEARCH,
        ),
    ] = None,
    format: FormatOption = OutputFormat.TABLE,
    *,
    now: NowOption = None,
    usage: UsageOption = None,
    config: ConfigOption = None,
    budget: BudgetOption = None,
    everything: AllOption = False,
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
    from kai_cp.planning import planned

    overrides = {"reservations.enabled": True, "solver.budget_seconds": budget}
    settings = settings_or_exit(config, overrides, defaults=OFFLINE)
    path = file_or_exit(snapshot, settings)
    found, name, _ = snapshot_or_exit(path, instant_or_exit(now), settings, usage_or_exit(usage))
    wanted = None if group is None else _wanted(group, path, settings, found)
    plan = planned(found, settings, wanted)
    if picture is not None:
        from kai_cp.report.gantt import draw

        if picture.suffix not in (".svg", ".png"):
            fail(f"--picture: {picture}: name an .svg or .png file", WRONG_USAGE)
        try:
            draw(plan, picture)
        except OSError as error:
            fail(f"--picture: {picture}: {error.strerror or error}", WRONG_USAGE)
    document = plan.document()
    rows = document["reservations"]
    answer(
        of_rows(
            document,
            rows,
            _COLUMNS,
            "podgroup/{podGroup}",
            lambda wide: _show(name, document, everything=everything, wide=wide),
        ),
        format,
    )


def _wanted(text: str, path: str, settings: Settings, snapshot: Snapshot) -> GroupKey:
    """The one pod group of ``--for``."""
    keys = groups_or_exit(text, loaded_or_exit(path, settings).raw, snapshot, "--for")
    if len(keys) > 1:
        fail(f"--for: {text} has several pod groups: {', '.join(map(str, keys[:4]))}", WRONG_USAGE)
    return keys[0]


def _show(name: str, document: Document, *, everything: bool, wide: bool) -> None:
    """The answer in words and tables."""
    from kai_cp.report.headline import as_of
    from kai_cp.report.page import show_page
    from kai_cp.report.starts import headline, sections, shortening

    show_page(
        f"{name}: {headline(document)}",
        as_of(document),
        sections(document),
        everything=everything,
        wide=wide,
        shorten=shortening(document),
    )
