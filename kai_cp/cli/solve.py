"""``kai-cp solve``: decides on snapshots, each within its budget."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import orjson
import typer

from kai_cp import files, reading
from kai_cp.cli.common import (
    BAD_INPUT,
    INTERRUPTED,
    OFFLINE,
    WRONG_USAGE,
    complain,
    fail,
    instant_or_exit,
    part_or_exit,
    selected_or_exit,
    settings_or_exit,
    usage_or_exit,
    warn_if_empty,
)
from kai_cp.cli.options import (
    SEARCH,
    SHOWN,
    AllOption,
    BudgetOption,
    ConfigOption,
    GroupOption,
    NamespaceOption,
    NowOption,
    PartOption,
    PatienceOption,
    QueueOption,
    SnapshotsArgument,
    UsageOption,
)
from kai_cp.cli.output import OutputFormat, as_csv, as_json, as_yaml, write
from kai_cp.reader.container import Source
from kai_cp.report.decisions import report
from kai_cp.report.headline import batch
from kai_cp.report.progress import line
from kai_cp.report.rows import COLUMNS
from kai_cp.report.rows import names as named
from kai_cp.report.rows import rows as rows_of
from kai_cp.report.select import Selection, keys_of, names
from kai_cp.report.terminal import show, stderr
from kai_cp.solving import Progress as Step
from kai_cp.solving import SolvingResult, SolvingTask, Watch, job
from kai_cp.solving import solve as solved
from kai_cp.worker import Worker
from kai_cp_models.shown import plural

if TYPE_CHECKING:
    from rich.progress import TaskID

    from kai_cp_models.settings import Settings

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


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
        OutputFormat,
        typer.Option(
            "--format",
            "-o",
            help="On standard output: tables (wide: all columns, one row a line), the document decisions/1, "
            "names of pods and pod groups, or one row for every decision.",
            rich_help_panel=SHOWN,
        ),
    ] = OutputFormat.TABLE,
    summary: Annotated[
        bool | None,
        typer.Option(
            "--summary/--details",
            help="One row for every input, or a report for each. Default: --details for one input, "
            "--summary for several.",
            rich_help_panel=SHOWN,
        ),
    ] = None,
    stages: Annotated[
        bool,
        typer.Option(
            "--stages",
            help="Show how the solver got there: bound and gap of each stage.",
            rich_help_panel=SHOWN,
        ),
    ] = False,
    *,
    queue: QueueOption = None,
    namespace: NamespaceOption = None,
    group: GroupOption = None,
    now: NowOption = None,
    budget: BudgetOption = None,
    patience: PatienceOption = None,
    config: ConfigOption = None,
    part: PartOption = None,
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

    Exit status: 0 all solved, 1 an input was bad, 2 wrong usage, or the only snapshot has no such
    queue or pod group, 130 ended by Ctrl-C.

    Examples:
    kai-cp solve snapshot.zip
    kai-cp solve snapshots/ --output-dir answers/ --budget 5
    kai-cp solve snapshot.zip --queue team-a --stages
    kai-cp solve snapshot.zip -o json | jq '.unscheduled[]'
    """
    settings = settings_or_exit(
        config,
        {
            "solver.budget_seconds": budget,
            "solver.patience": patience,
            "solver.workers": workers,
            "solver.seed": seed,
        },
        defaults=OFFLINE,
    )
    instant = instant_or_exit(now)
    shares = usage_or_exit(usage)
    inputs, missing = _inputs(snapshots, output_dir)
    index, count = part_or_exit(part)
    inputs = inputs[index::count]
    results: list[SolvingResult] = []
    answers = _answers(
        inputs,
        settings.max_snapshot_bytes,
        lambda source, data: SolvingTask(source, data, instant, settings, shares),
    )
    for result in answers:
        if result.document is not None and output_dir is not None:
            _write(output_dir / f"{result.source.name}.json", result.document)
        results.append(result)
    for result in results:
        if result.problem:
            complain(result.problem)
        if debug and result.details:
            complain(result.details)
    selection = Selection(names(queue), names(namespace), names(group))
    _show(results, format, selection, Look(everything, stages, summary, output_dir, settings))
    if any(result.interrupted for result in results):
        undone = len(inputs) - len(results)
        if undone:
            complain(f"{undone} of {len(inputs)} inputs were not looked at")
        raise typer.Exit(INTERRUPTED)
    if missing or any(result.problem for result in results):
        raise typer.Exit(BAD_INPUT)


def _answers(
    inputs: Sequence[Source], most_bytes: int, task: Callable[[Source, bytes | None], SolvingTask]
) -> Iterator[SolvingResult]:
    """The answers to the inputs, one after the other; an interrupted one is the last."""
    if not inputs:
        return
    with Worker(job, decides_once=True) as worker, _progress(inputs) as watched:
        for source, watch in watched:
            try:
                data = files.read(files.STDIN, most_bytes) if source.path == files.STDIN else None
            except OSError as problem:
                yield SolvingResult(source, None, f"standard input: {problem.strerror or problem}")
                continue
            result = solved(worker, task(source, data), watch)
            yield result
            if result.interrupted:
                return


def _write(path: Path, content: bytes) -> None:
    try:
        path.write_bytes(content)
    except OSError as error:
        fail(f"--output-dir: {path}: {error.strerror or error}", WRONG_USAGE)


def _inputs(arguments: Sequence[str], output_dir: Path | None) -> tuple[list[Source], int]:
    """The inputs that exist, and the number of arguments that name none; usage errors end the program."""
    found, problems = reading.inputs(arguments)
    for problem in problems:
        complain(problem)
    if output_dir is None:
        return found, len(problems)
    try:
        output_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        fail(f"--output-dir: {output_dir}: {error.strerror or error}", WRONG_USAGE)
    for source in found:
        target = output_dir / f"{source.name}.json"
        if target.exists() and Path(source.path).exists() and target.samefile(source.path):
            fail(f"--output-dir: {target} is an input and would be overwritten", WRONG_USAGE)
    return found, len(problems)


@contextmanager
def _progress(inputs: Sequence[Source]) -> Iterator[Iterable[tuple[Source, Watch | None]]]:
    """The inputs one by one; on a terminal a line shows the progress of the decision."""
    if not sys.stderr.isatty():
        yield ((source, None) for source in inputs)
        return
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

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


class Look(NamedTuple):
    """How much of the answers is shown."""

    everything: bool
    stages: bool
    summary: bool | None
    output_dir: Path | None
    settings: Settings


def _show(results: Sequence[SolvingResult], format: OutputFormat, selection: Selection, look: Look) -> None:
    """Print the answers to standard output."""
    rows: list[tuple[SolvingResult, dict[str, Any] | None]] = []
    for result in results:
        document = None if result.document is None else orjson.loads(result.document)
        cluster = document["cluster"] if document is not None else {}
        if cluster:
            warn_if_empty(result.source.path, cluster["nodes"], cluster["pods"])
        if document is not None:
            known = partial(_known, result.source, look.settings)
            selected_or_exit(selection, document, result.source.name, known, alone=len(results) == 1)
        rows.append((result, None if document is None else selection.of(document)))
    documents = [document for _, document in rows if document is not None]
    if format is OutputFormat.JSON:
        whole = [result.document for result, document in rows if document is not None and not selection]
        write(whole[0] if len(whole) == 1 and whole[0] is not None else as_json(documents))
    elif format is OutputFormat.YAML:
        write(as_yaml(documents))
    elif format is OutputFormat.NAME:
        write("".join(f"{name}\n" for document in documents for name in named(document)))
    elif format is OutputFormat.CSV:
        pairs = [(result.source.name, document) for result, document in rows if document is not None]
        write(as_csv(COLUMNS, (row for name, document in pairs for row in rows_of(name, document))))
    else:
        _print_tables(rows, look, wide=format is OutputFormat.WIDE)


def _known(source: Source, settings: Settings) -> Collection[str]:
    """The pod groups and pods of an input; () for standard input, which is read once."""
    if source.path == files.STDIN:
        return ()
    snapshot, _ = reading.read(source.path, now=None, settings=settings)
    return keys_of(snapshot)


def _print_tables(
    rows: Sequence[tuple[SolvingResult, dict[str, Any] | None]], look: Look, *, wide: bool
) -> None:
    """Print a report for every input, or one row for each."""
    summary = look.summary if look.summary is not None else len(rows) > 1
    if not summary:
        for result, document in rows:
            if document is not None:
                everything = look.everything or wide
                show(
                    report(
                        result.source.name,
                        document,
                        end=result.end,
                        everything=everything,
                        stages=look.stages,
                    ),
                    wide=wide,
                )
    if summary or len(rows) > 1:
        lines = ((r.source.name, document, bool(r.problem)) for r, document in rows)
        show(batch(lines).render(None), wide=wide)
    written = sum(document is not None for _, document in rows)
    if look.output_dir is not None:
        show(f"{plural(written, 'answer')} written to {look.output_dir}", wide=wide)
