"""``kai-cp solve``: snapshots in, decisions out, each within its budget."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from kai_cp.cli.common import (
    BAD_INPUT,
    INTERRUPTED,
    WRONG_USAGE,
    complain,
    fail,
    instant_or_exit,
    mapping_or_exit,
    settings_or_exit,
)
from kai_cp.cli.options import (
    SEARCH,
    SHOWN,
    AllOption,
    BudgetOption,
    ConfigOption,
    NowOption,
    PatienceOption,
    SnapshotsArgument,
    UsageOption,
)

if TYPE_CHECKING:
    from rich.progress import TaskID

    from kai_cp.reader.container import Source
    from kai_cp.solving import Progress as Step
    from kai_cp.solving import Result, Watch

BUDGET_SECONDS: Final = 30.0
"""Most time for deciding on a snapshot that is solved by hand; the live scheduler has its period."""

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


class Format(StrEnum):
    """What goes to standard output."""

    TABLE = "table"
    JSON = "json"


@app.command()
def solve(
    snapshots: SnapshotsArgument,
    output_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Write NAME.json (decisions/1) for every input into this directory.",
            rich_help_panel=SHOWN,
        ),
    ] = None,
    format: Annotated[
        Format,
        typer.Option(
            "--format", "-o", help="On standard output: tables, or decisions/1.", rich_help_panel=SHOWN
        ),
    ] = Format.TABLE,
    now: NowOption = None,
    budget: BudgetOption = None,
    patience: PatienceOption = None,
    config: ConfigOption = None,
    workers: Annotated[
        int | None, typer.Option(help="Solver threads. Default: 2.", rich_help_panel=SEARCH)
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Solver random seed. Default: 0.", rich_help_panel=SEARCH)
    ] = None,
    usage: UsageOption = None,
    everything: AllOption = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks of failures.")] = False,
) -> None:
    """Decide what to bind, nominate and evict, and say why the rest waits.

    Nothing is changed anywhere. Ctrl-C ends the search and shows the best checked answer so far.

    Exit status: 0 all solved, 1 an input was bad, 2 wrong usage, 130 ended by Ctrl-C.

    Examples:
    kai-cp solve snapshot.zip
    kai-cp solve snapshots/ --output-dir answers/ --budget 5
    kai-cp solve snapshot.zip -o json | jq '.unscheduled[]'
    """
    from kai_cp.worker import Worker, warm_up

    warm_up()
    from kai_cp.reader.container import STDIN
    from kai_cp.solving import Task, job
    from kai_cp.solving import solve as solve_one

    settings = settings_or_exit(
        config,
        {
            "solver.budget_seconds": budget,
            "solver.patience": patience,
            "solver.workers": workers,
            "solver.seed": seed,
        },
        defaults={"solver.budget_seconds": BUDGET_SECONDS},
    )
    instant = instant_or_exit(now)
    usage_by_queue = mapping_or_exit(usage, "--usage")
    inputs, missing = _inputs(snapshots, output_dir)
    results: list[Result] = []
    with Worker(job) as worker, _progress(inputs) as watched:
        for source, watch in watched:
            data = sys.stdin.buffer.read() if source.path == STDIN else None
            result = solve_one(worker, Task(source, data, instant, settings, usage_by_queue), watch)
            if result.document is not None and output_dir is not None:
                _write(output_dir / f"{source.name}.json", result.document)
            results.append(result)
            if result.interrupted:
                break
    for result in results:
        if result.problem:
            complain(result.problem)
        if debug and result.details:
            complain(result.details)
    if format is Format.JSON:
        _print_json(results)
    else:
        _print_tables(results, output_dir, everything)
    if any(result.interrupted for result in results):
        undone = len(inputs) - len(results)
        if undone:
            complain(f"interrupted: {undone} of {len(inputs)} inputs were not looked at")
        raise typer.Exit(INTERRUPTED)
    if missing or any(result.problem for result in results):
        raise typer.Exit(BAD_INPUT)


def _write(path: Path, content: bytes) -> None:
    try:
        path.write_bytes(content)
    except OSError as error:
        fail(f"--output-dir: {path}: {error.strerror or error}", WRONG_USAGE)


def _inputs(arguments: Sequence[str], output_dir: Path | None) -> tuple[list[Source], int]:
    """The inputs that are there, and how many arguments named none; usage errors end the program."""
    from kai_cp.reading import inputs

    found, problems = inputs(arguments)
    for problem in problems:
        complain(problem)
    if output_dir is None:
        return found, len(problems)
    try:
        output_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        fail(f"--output-dir: {error}", WRONG_USAGE)
    for source in found:
        target = output_dir / f"{source.name}.json"
        if target.exists() and Path(source.path).exists() and target.samefile(source.path):
            fail(f"--output-dir: {target} is an input and would be overwritten", WRONG_USAGE)
    return found, len(problems)


@contextmanager
def _progress(inputs: Sequence[Source]) -> Iterator[Iterable[tuple[Source, Watch | None]]]:
    """The inputs one by one; on a terminal a line says how far the decision has come."""
    if not sys.stderr.isatty():
        yield ((source, None) for source in inputs)
        return
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from kai_cp.report.progress import line
    from kai_cp.report.terminal import stderr

    text = TextColumn("{task.description}", markup=False)
    with Progress(SpinnerColumn(), text, TimeElapsedColumn(), console=stderr(), transient=True) as progress:

        def one_by_one() -> Iterator[tuple[Source, Watch]]:
            for number, source in enumerate(inputs, 1):
                name = source.name if len(inputs) == 1 else f"{number} of {len(inputs)}: {source.name}"
                shown = progress.add_task(f"{name}: reading")

                def watch(now: Step, shown: TaskID = shown, name: str = name) -> None:
                    progress.update(shown, description=line(name, now))

                yield source, watch
                progress.remove_task(shown)

        yield one_by_one()


def _print_json(results: Sequence[Result]) -> None:
    """One document as it is; of several, each on one line."""
    import orjson

    documents = [result.document for result in results if result.document is not None]
    for document in documents:
        text = document if len(documents) == 1 else orjson.dumps(orjson.loads(document)) + b"\n"
        sys.stdout.buffer.write(text)
    sys.stdout.buffer.flush()


def _print_tables(results: Sequence[Result], output_dir: Path | None, everything: bool) -> None:
    """A report for every input (for a batch that is written to files: one row), then the batch."""
    import orjson

    from kai_cp.report.decisions import report
    from kai_cp.report.headline import batch
    from kai_cp.report.terminal import plural, stdout

    console = stdout()
    rows = [
        (result, None if result.document is None else orjson.loads(result.document)) for result in results
    ]
    if output_dir is None or len(rows) == 1:
        for result, document in rows:
            if document is not None:
                console.print(report(result.source.name, document, end=result.end, everything=everything))
    if len(rows) > 1:
        console.print(batch((r.source.name, document, bool(r.problem)) for r, document in rows))
    written = sum(document is not None for _, document in rows)
    if output_dir is not None:
        console.print(f"{plural(written, 'answer')} written to {output_dir}")
