"""``kai-cp inspect``: the first look at a snapshot."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from kai_cp.cli.common import instant_or_exit, mapping_or_exit, settings_or_exit, snapshot_or_exit

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


class Resource(StrEnum):
    """The resource in which queues are shown."""

    GPU = "gpu"
    CPU = "cpu"
    MEMORY = "memory"


@app.command()
def inspect(
    snapshot: Annotated[str, typer.Argument(help="A KAI snapshot: .zip, .json, .json.gz, or -.")],
    resource: Annotated[Resource, typer.Option(help="Resource in which queues are shown.")] = Resource.GPU,
    now: Annotated[
        str | None,
        typer.Option(
            metavar="RFC3339", help="Read the snapshot as of this time; default: when it was taken."
        ),
    ] = None,
    usage: Annotated[
        Path | None, typer.Option(help="Historic share of the cluster by queue (YAML), as for solve.")
    ] = None,
    config: Annotated[Path | None, typer.Option(help="Settings file; see `kai-cp config explain`.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Show long tables in full.")] = False,
) -> None:
    """Show nodes, queues with quota, fair share and allocation, and who waits, in fair order."""
    from kai_cp.report.inspect import report
    from kai_cp.report.terminal import stdout

    found, name, _ = snapshot_or_exit(
        snapshot, instant_or_exit(now), settings_or_exit(config, {}), mapping_or_exit(usage, "--usage")
    )
    stdout().print(report(name, found, resource.value, everything=everything))
