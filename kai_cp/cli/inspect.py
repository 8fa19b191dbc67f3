"""``kai-cp inspect``: the first look at a snapshot."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from kai_cp.cli.common import instant_or_exit, mapping_or_exit, settings_or_exit, snapshot_or_exit
from kai_cp.cli.options import SHOWN, AllOption, ConfigOption, NowOption, SnapshotArgument, UsageOption

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


class Resource(StrEnum):
    """The resource in which queues are shown."""

    GPU = "gpu"
    CPU = "cpu"
    MEMORY = "memory"


@app.command()
def inspect(
    snapshot: SnapshotArgument,
    resource: Annotated[
        Resource, typer.Option(help="Resource in which queues are shown.", rich_help_panel=SHOWN)
    ] = Resource.GPU,
    now: NowOption = None,
    usage: UsageOption = None,
    config: ConfigOption = None,
    everything: AllOption = False,
) -> None:
    """Show nodes, queues with quota, fair share and allocation, and who waits, in fair order.

    Examples:
    kai-cp inspect snapshot.zip
    kai-cp inspect snapshot.zip --resource cpu --all
    """
    from kai_cp.report.inspect import report
    from kai_cp.report.terminal import stdout

    found, name, _ = snapshot_or_exit(
        snapshot, instant_or_exit(now), settings_or_exit(config, {}), mapping_or_exit(usage, "--usage")
    )
    stdout().print(report(name, found, resource.value, everything=everything))
