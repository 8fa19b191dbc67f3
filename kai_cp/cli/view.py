"""``kai-cp view``: a snapshot and its decisions as a page for the browser."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kai_cp.cli.common import (
    BAD_INPUT,
    INTERRUPTED,
    WRONG_USAGE,
    complain,
    fail,
    instant_or_exit,
    settings_or_exit,
    snapshot_or_exit,
)
from kai_cp.cli.options import INPUT, SHOWN, BudgetOption, ConfigOption, NowOption, SnapshotArgument

if TYPE_CHECKING:
    from kai_cp_models.settings import Settings
    from kai_cp_models.snapshot import Plan

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

BUDGET_SECONDS = 30.0


@app.command()
def view(
    snapshot: SnapshotArgument,
    decisions: Annotated[
        Path | None,
        typer.Argument(
            metavar="[DECISIONS]",
            help="decisions/1, as solve writes it. Default: those recorded in the snapshot's zip, or else "
            "what solve decides now.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Where the page goes; - is standard output. Default: NAME.html here.",
            rich_help_panel=SHOWN,
        ),
    ] = None,
    undecided: Annotated[
        bool,
        typer.Option("--undecided", help="Show the snapshot alone; decide nothing.", rich_help_panel=INPUT),
    ] = False,
    now: NowOption = None,
    budget: BudgetOption = None,
    config: ConfigOption = None,
) -> None:
    """Write a page with queues, pending pod groups, the cluster's GPUs, and what was decided.

    The page is one file: it can be sent, kept and opened without a network.

    Exit status: 0 written, 1 an input is bad, 2 wrong usage, 130 ended by Ctrl-C.

    Examples:
    kai-cp view snapshot.zip
    kai-cp view snapshot.zip answer.json --output page.html
    kai-cp view cycle.zip
    """
    if decisions is not None and undecided:
        fail("--undecided and DECISIONS exclude each other", WRONG_USAGE)
    if snapshot == "-":
        fail("name the snapshot's file: a page is made of it in two steps", WRONG_USAGE)
    settings = settings_or_exit(
        config, {"solver.budget_seconds": budget}, defaults={"solver.budget_seconds": BUDGET_SECONDS}
    )
    instant = instant_or_exit(now)
    plan, decided_at = (None, None) if undecided else _plan(snapshot, decisions, settings, instant)
    found, name, _ = snapshot_or_exit(snapshot, instant if instant is not None else decided_at, settings)
    from kai_cp.view.data import view as document
    from kai_cp.view.page import page

    text = page(document(name, found, plan))
    target = output or Path(f"{name}.html")
    if str(target) == "-":
        sys.stdout.write(text)
        return
    try:
        target.write_text(text, "utf-8")
    except OSError as error:
        fail(f"--output: {target}: {error.strerror or error}", WRONG_USAGE)
    typer.echo(f"{target}: {len(text.encode()) / 2**20:.1f} MiB; open it in a browser")


def _plan(
    snapshot: str, decisions: Path | None, settings: Settings, instant: float | None
) -> tuple[Plan, float | None]:
    """The plan that is shown, and the time for which it was made."""
    import orjson

    from kai_cp.decisions import BadDecisions, from_json, recorded

    given = decisions or Path(snapshot)
    text: bytes | None = None
    try:
        text = decisions.read_bytes() if decisions is not None else recorded(given)
    except OSError as error:
        fail(f"{given}: {error.strerror or error}", BAD_INPUT)
    except BadDecisions:
        text = _decided(snapshot, settings, instant)  # a snapshot that holds none
    try:
        document = orjson.loads(text)
        plan = from_json(document)
    except orjson.JSONDecodeError as error:
        fail(f"{given}: not JSON: {error}", BAD_INPUT)
    except BadDecisions as error:
        fail(f"{given}: {error}", BAD_INPUT)
    said = document.get("now")
    return plan, instant_or_exit(said) if isinstance(said, str) else None


def _decided(snapshot: str, settings: Settings, instant: float | None) -> bytes:
    """What the engine decides on the snapshot, as ``decisions/1``."""
    from kai_cp.reading import inputs
    from kai_cp.solving import Task, job, solve
    from kai_cp.worker import Worker

    sources, problems = inputs([snapshot])
    if problems:
        fail(problems[0], BAD_INPUT)
    if len(sources) != 1:
        fail(f"{snapshot}: holds {len(sources)} snapshots; name one of them", WRONG_USAGE)
    with Worker(job) as worker:
        result = solve(worker, Task(sources[0], None, instant, settings, None))
    if result.problem:
        complain(result.problem)
    if result.interrupted:
        raise typer.Exit(INTERRUPTED)
    if result.document is None:
        raise typer.Exit(BAD_INPUT)
    return result.document
