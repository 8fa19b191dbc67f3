"""``kai-cp view``: a snapshot and its decisions as a page for the browser."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kai_cp.cli.common import WRONG_USAGE, fail, mapping_or_exit
from kai_cp.cli.options import (
    INPUT,
    SHOWN,
    BudgetOption,
    ConfigOption,
    NowOption,
    SnapshotArgument,
    UsageOption,
)
from kai_cp.cli.world import DecisionsArgument, world_or_exit

if TYPE_CHECKING:
    from kai_cp.json_types import Object

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def view(
    snapshot: SnapshotArgument,
    decisions: DecisionsArgument = None,
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Where the page goes; - is standard output. Default: NAME.html here.",
            rich_help_panel=SHOWN,
        ),
    ] = None,
    explained: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="explanation/1, as `kai-cp explain --all -o json` writes it: its fixes are shown.",
            rich_help_panel=INPUT,
        ),
    ] = None,
    undecided: Annotated[
        bool,
        typer.Option("--undecided", help="Show the snapshot alone; decide nothing.", rich_help_panel=INPUT),
    ] = False,
    *,
    now: NowOption = None,
    usage: UsageOption = None,
    budget: BudgetOption = None,
    config: ConfigOption = None,
) -> None:
    """Write a page with queues, pending pod groups, GPUs now and over time, and the decisions.

    The page is one file: it can be sent, kept and opened without a network. If the decisions break a rule, it
    says so.

    Exit status: 0 written, 1 an input is bad, 2 wrong usage, 130 ended by Ctrl-C.

    Examples:
    kai-cp view snapshot.zip
    kai-cp view snapshot.zip answer.json --output page.html
    kai-cp view snapshot.zip --explained explanation.json
    """
    if decisions is not None and undecided:
        fail("--undecided and DECISIONS exclude each other", WRONG_USAGE)
    fixes = _fixes_or_exit(explained)
    world = world_or_exit(
        snapshot, decisions, now=now, budget=budget, config=config, usage=usage, undecided=undecided
    )
    from kai_cp.view.data import view as document
    from kai_cp.view.page import page

    content = document(
        world.name, world.snapshot, world.plan, fixes=fixes, settings=world.settings, broken=world.broken
    )
    text = page(content)
    target = output or Path(f"{world.name}.html")
    if str(target) == "-":
        sys.stdout.write(text)
        return
    try:
        target.write_text(text, "utf-8")
    except OSError as error:
        fail(f"--output: {target}: {error.strerror or error}", WRONG_USAGE)
    typer.echo(f"{target}: {len(text.encode()) / 1024:,.0f} KiB; open it in a browser")


def _fixes_or_exit(path: Path | None) -> dict[str, Object]:
    """What would help, by pod group, of an ``explanation/1``; none without a path."""
    from kai_cp.explain.text import remedies

    if path is None:
        return {}
    try:
        document = mapping_or_exit(path, "--explained", "explanation/1") or {}
        return {entry["podGroup"]: remedies(entry) for entry in document["explanations"]}
    except (KeyError, TypeError):
        fail(f"--explained: {path}: no explanation/1; `kai-cp explain --all -o json` writes it", WRONG_USAGE)
