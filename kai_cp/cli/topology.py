"""``kai-cp topology``: racks, NVLink domains, and the largest gang that still fits in each."""

from __future__ import annotations

import shutil
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from kai_cp.cli.common import WRONG_USAGE, fail, instant_or_exit, settings_or_exit, snapshot_or_exit
from kai_cp.cli.options import SHOWN, ConfigOption, NowOption, SnapshotArgument

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


class TopologyFormat(StrEnum):
    """How the fabric is shown."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
    SVG = "svg"
    PNG = "png"


@app.command()
def topology(
    snapshot: SnapshotArgument,
    format: Annotated[
        TopologyFormat,
        typer.Option("--format", "-o", help="Tables, the document, or a picture.", rich_help_panel=SHOWN),
    ] = TopologyFormat.TABLE,
    output: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write to this file; pictures need one.", rich_help_panel=SHOWN),
    ] = None,
    now: NowOption = None,
    config: ConfigOption = None,
) -> None:
    """Show the tree of racks and NVLink domains, free GPUs, and the largest gang that fits per level.

    Exit status: 0 shown, 1 the snapshot is bad, 2 wrong usage.

    Examples:
    kai-cp topology snapshot.zip
    kai-cp topology snapshot.zip -o svg --output racks.svg
    """
    from kai_cp.files import within
    from kai_cp.topology_view import topology_report

    if format in (TopologyFormat.SVG, TopologyFormat.PNG) and output is None and sys.stdout.isatty():
        fail(f"--format {format.value}: name a file with --output", WRONG_USAGE)
    settings = settings_or_exit(config, {})
    found, name, _ = snapshot_or_exit(snapshot, instant_or_exit(now), settings)
    with within(settings.limits.read_seconds, name):
        shown = output is None and sys.stdout.isatty()
        columns = shutil.get_terminal_size().columns if shown else None
        made = topology_report(found, format.value, columns)
    content = made.encode() if isinstance(made, str) else made
    if output is None:
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
        return
    try:
        output.write_bytes(content)
    except OSError as error:
        fail(f"--output: {output}: {error.strerror or error}", WRONG_USAGE)
