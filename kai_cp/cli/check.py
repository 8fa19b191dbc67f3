"""``kai-cp check``: runs only the independent checker, on decisions of any scheduler."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kai_cp.cli.common import (
    BAD_INPUT,
    WRONG_USAGE,
    complain,
    fail,
    file_or_exit,
    instant_or_exit,
    settings_or_exit,
    snapshot_or_exit,
)
from kai_cp.cli.options import INPUT, SnapshotArgument

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
    kai-cp check cycle.zip
    """
    import orjson

    from kai_cp import files
    from kai_cp.decisions import BadDecisions, from_json, recorded
    from kai_cp.printable import one_line
    from kai_cp.report.terminal import plural
    from kai_cp_models.queries.cluster import faults

    if decisions == Path("-") and snapshot == "-":
        fail("only one of snapshot and decisions can come from standard input", WRONG_USAGE)
    settings = settings_or_exit(config, {})
    snapshot = file_or_exit(snapshot, settings)
    given = decisions or Path(snapshot)
    try:
        with files.within(settings.limits.read_seconds, given):
            text = recorded(given) if decisions is None else files.read(given)
            document = orjson.loads(text)
            plan = from_json(document)
    except OSError as error:
        fail(f"{given}: {error.strerror or error}", BAD_INPUT)
    except orjson.JSONDecodeError as error:
        fail(f"{given}: not JSON: {error}", BAD_INPUT)
    except BadDecisions as error:
        fail(f"{given}: {error}", BAD_INPUT)
    if document.get("selected"):
        fail(
            f"{given}: this is a part of an answer (--queue, --namespace or --group); check all of it",
            BAD_INPUT,
        )
    said = document.get("now")
    instant = instant_or_exit(now if now is not None or not isinstance(said, str) else said)
    found, name, digest = snapshot_or_exit(snapshot, instant, settings)
    made_for = document.get("snapshotSha256")
    if made_for and made_for != digest:
        complain(f"{given}: was made for another snapshot (hash {made_for[:12]}, this one is {digest[:12]})")
    with files.within(settings.limits.read_seconds, name):
        broken = faults(found, plan, settings)
    count = plural(len(plan.decisions), "decision")
    if not broken:
        typer.echo(f"{name}: {count}, no rule broken")
        return
    typer.echo(f"{name}: {count}, {plural(len(broken), 'violation')}:")
    for line in broken:
        typer.echo(one_line(f"- {line}"))
    raise typer.Exit(BAD_INPUT)
