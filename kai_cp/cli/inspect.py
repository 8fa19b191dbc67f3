"""``kai-cp inspect``: an overview of a snapshot."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from kai_cp.cli.common import (
    instant_or_exit,
    selected_or_exit,
    settings_or_exit,
    snapshot_or_exit,
    usage_or_exit,
)
from kai_cp.cli.options import (
    SHOWN,
    AllOption,
    ConfigOption,
    GroupOption,
    NamespaceOption,
    NowOption,
    QueueOption,
    SnapshotArgument,
    UsageOption,
)
from kai_cp.cli.output import CommandResult, OutputFormat, answer

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
COLUMNS = ("position", "podGroup", "queue", "priority", "nextPods", "pendingPods", "gpus", "ageSeconds")
"""Of ``-o csv``: one row for each pod group that waits."""


class InspectedResource(StrEnum):
    """The resource in which queues are shown."""

    GPU = "gpu"
    CPU = "cpu"
    MEMORY = "memory"


@app.command()
def inspect(
    snapshot: SnapshotArgument,
    format: Annotated[
        OutputFormat,
        typer.Option(
            "--format",
            "-o",
            help="Tables (wide: all columns, one row a line), the document inspection/1, names of waiting "
            "pod groups, or one row for each of them.",
            rich_help_panel=SHOWN,
        ),
    ] = OutputFormat.TABLE,
    resource: Annotated[
        InspectedResource, typer.Option(help="Resource in which queues are shown.", rich_help_panel=SHOWN)
    ] = InspectedResource.GPU,
    queue: QueueOption = None,
    namespace: NamespaceOption = None,
    *,
    group: GroupOption = None,
    now: NowOption = None,
    usage: UsageOption = None,
    config: ConfigOption = None,
    everything: AllOption = False,
) -> None:
    """Show nodes, queues with quota, fair share and allocation, and what waits, in fair order.

    Exit status: 0 shown, 1 the snapshot is bad, 2 wrong usage, or no such queue or pod group.

    Examples:
    kai-cp inspect snapshot.zip
    kai-cp inspect snapshot.zip --resource cpu --all
    kai-cp inspect snapshot.zip --queue team-a -o json
    """
    from kai_cp.files import within
    from kai_cp.inspection import inspection
    from kai_cp.report.inspect import as_answer, report, selected
    from kai_cp.report.select import Selection, keys_of, names
    from kai_cp.report.terminal import show

    settings = settings_or_exit(config, {})
    found, name, digest = snapshot_or_exit(snapshot, instant_or_exit(now), settings, usage_or_exit(usage))
    with within(settings.limits.read_seconds, name):
        document = inspection(found, digest, settings)
    selection = Selection(names(queue), names(namespace), names(group))
    selected_or_exit(selection, as_answer(document), name, lambda: keys_of(found))
    document = selected(document, selection)
    line = document["waiting"]

    def shown(wide: bool) -> None:
        show(report(name, document, resource.value, everything=everything or wide), wide=wide)

    answer(
        CommandResult(
            [document],
            names=lambda: (f"podgroup/{waiter['podGroup']}" for waiter in line),
            table=lambda: (COLUMNS, ([waiter[column] for column in COLUMNS] for waiter in line)),
            show=shown,
        ),
        format,
    )
