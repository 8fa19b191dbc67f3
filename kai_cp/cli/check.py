"""``kai-cp check``: runs only the independent checker, on decisions of any scheduler."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kai_cp.cli.common import (
    BAD_INPUT,
    WRONG_USAGE,
    fail,
    file_or_exit,
    instant_or_exit,
    settings_or_exit,
    snapshot_or_exit,
)
from kai_cp.cli.options import INPUT, FormatOption, SnapshotArgument
from kai_cp.cli.output import CommandResult, OutputFormat, answer, of_rows
from kai_cp.cli.world import PART, decisions_or_exit, told_if_of_another

if TYPE_CHECKING:
    from kai_cp_models.check import Violation

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def check(
    snapshot: SnapshotArgument,
    decisions: Annotated[
        Path | None,
        typer.Argument(
            metavar="[DECISIONS]",
            help="decisions/1, as solve writes it, or - for standard input. Default: those recorded in the "
            "snapshot's zip.",
        ),
    ] = None,
    format: FormatOption = OutputFormat.TABLE,
    now: Annotated[
        str | None,
        typer.Option(
            metavar="RFC3339",
            help="Read the snapshot as of this time. Default: as the decisions say.",
            rich_help_panel=INPUT,
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Settings (YAML): the optional rules in it are checked too.",
            rich_help_panel=INPUT,
        ),
    ] = None,
) -> None:
    """Check decisions against every contract rule, and name each broken rule in words.

    Exit status: 0 nothing broken, 1 a rule is broken or an input is bad, 2 wrong usage.

    Examples:
    kai-cp check snapshot.zip answer.json
    kai-cp solve snapshot.zip -o json | kai-cp check snapshot.zip -
    kai-cp check cycle.zip -o json
    """
    from kai_cp.decisions import with_groups
    from kai_cp.files import within
    from kai_cp.reader.container import label_of
    from kai_cp_models.queries.cluster import faults

    if decisions == Path("-") and snapshot == "-":
        fail("only one of snapshot and decisions can come from standard input", WRONG_USAGE)
    settings = settings_or_exit(config, {})
    instant = instant_or_exit(now)
    snapshot = file_or_exit(snapshot, settings)
    given = decisions or Path(snapshot)
    with within(settings.limits.read_seconds, label_of(given)):
        document, plan = decisions_or_exit(given)
    if document.get("selected"):
        fail(f"{label_of(given)}: {PART}; check all of it", BAD_INPUT)
    if instant is None:
        instant = instant_or_exit(document.get("now"))
    found, name, digest = snapshot_or_exit(snapshot, instant, settings)
    told_if_of_another(given, document, name, digest)
    with within(settings.limits.read_seconds, name):
        groups = {pod.key: pod.group for pod in found.pods}
        broken = list({str(one): one for one in faults(found, with_groups(plan, groups), settings)}.values())
    answer(_result(name, digest, len(plan.decisions), broken), format)
    if broken:
        raise typer.Exit(BAD_INPUT)


def _result(name: str, digest: str, decisions: int, broken: Sequence[Violation]) -> CommandResult:
    """The verdict."""
    from kai_cp.printable import one_line
    from kai_cp_models.shown import plural

    rows = [{"rule": one.rule, "message": one.words} for one in broken]

    def shown(_wide: bool) -> None:
        said = f"{plural(len(broken), 'violation')}:" if broken else "no rule broken"
        typer.echo(f"{name}: {plural(decisions, 'decision')}, {said}")
        for one in broken:
            typer.echo(one_line(f"- {one}"))

    document = {"schema": "check/1", "snapshotSha256": digest, "decisions": decisions, "violations": rows}
    return of_rows(document, rows, ("rule", "message"), "rule/{rule}", shown)
