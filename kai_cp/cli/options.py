"""Options that several commands share: one name, one meaning, one sentence (see CONTRIBUTING, command line).

Use them as annotations: ``def inspect(snapshot: SnapshotArgument, now: NowOption = None)``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from kai_cp.cli.output import DocumentFormat, OutputFormat

INPUT: Final = "Input options"
SEARCH: Final = "Search options"
SHOWN: Final = "Output options"

SnapshotArgument = Annotated[
    str,
    typer.Argument(
        metavar="SNAPSHOT",
        help="A KAI snapshot: .zip, .json, .json.gz, a pipe, or - for standard input.",
    ),
]
SnapshotsArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="SNAPSHOT...",
        help="KAI snapshots: .zip, .json, .json.gz, a directory of them, or - for standard input.",
    ),
]
NowOption = Annotated[
    str | None,
    typer.Option(
        metavar="RFC3339",
        help="Read the snapshot as of this time. Default: when it was taken (the newest time in it).",
        rich_help_panel=INPUT,
    ),
]
ConfigOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Settings (YAML); `kai-cp config explain` lists them.", rich_help_panel=INPUT
    ),
]
UsageOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Historic share of the cluster by queue, from 0 to 1 (YAML: QUEUE: {gpu: 0.3}); snapshots "
        "have none.",
        rich_help_panel=INPUT,
    ),
]
BudgetOption = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS",
        help="Most time for deciding; reading may add a fifth of it, at least 1 s. Default: 30, or "
        "solver.budget_seconds of --config.",
        rich_help_panel=SEARCH,
    ),
]
PatienceOption = Annotated[
    float | None,
    typer.Option(
        metavar="NUMBER",
        help="How long to go on searching without success, as a multiple of the work of a cycle "
        "without searches. Default: 0.5, or solver.patience of --config. A large value spends the whole "
        "budget on proofs and better plans.",
        rich_help_panel=SEARCH,
    ),
]
PartOption = Annotated[
    str | None,
    typer.Option(
        metavar="I/N",
        help="Only the I-th of N equal parts, counted from 0: for many machines, such as "
        "$JOB_COMPLETION_INDEX/8 in a Job of Kubernetes.",
        rich_help_panel=INPUT,
    ),
]
QueueOption = Annotated[
    list[str] | None,
    typer.Option(
        "--queue", "-q", metavar="NAME", help="Only this queue and those below it.", rich_help_panel=SHOWN
    ),
]
NamespaceOption = Annotated[
    list[str] | None,
    typer.Option("--namespace", "-n", metavar="NAME", help="Only this namespace.", rich_help_panel=SHOWN),
]
GroupOption = Annotated[
    list[str] | None,
    typer.Option(
        "--group", "-g", metavar="[NAMESPACE/]NAME", help="Only this pod group.", rich_help_panel=SHOWN
    ),
]
FormatOption = Annotated[
    OutputFormat,
    typer.Option(
        "--format",
        "-o",
        help="Tables (wide: all columns, one row a line), the document, names, or a row each.",
        rich_help_panel=SHOWN,
    ),
]
DocumentFormatOption = Annotated[
    DocumentFormat,
    typer.Option("--format", "-o", help="Format of the documents.", rich_help_panel=SHOWN),
]
AllOption = Annotated[bool, typer.Option("--all", help="Show long tables in full.", rich_help_panel=SHOWN)]
